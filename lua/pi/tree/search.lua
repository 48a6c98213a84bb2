--- Filters the tree by words while they are typed, in a line of its own over the tree's last row.
local views = require('pi.tree.view')

local M = {}

--- How long typing rests before rows are asked for.
local REST_MS = 40

---@param view pi.tree.View
---@param text string
local function show(view, text)
  if text ~= view.query and vim.api.nvim_buf_is_valid(view.buf) then
    view.query = text
    require('pi.tree').refresh(view, { query = text })
  end
end

---@param win integer of the tree
---@param query string
---@return integer buf
---@return integer line window
local function open(win, query)
  local buf = vim.api.nvim_create_buf(false, true)
  vim.bo[buf].bufhidden = 'wipe'
  vim.bo[buf].filetype = 'pi-tree-search'
  vim.b[buf].completion = false
  vim.api.nvim_buf_set_lines(buf, 0, -1, false, { query })
  local line = vim.api.nvim_open_win(buf, true, {
    relative = 'win',
    win = win,
    row = vim.api.nvim_win_get_height(win) - 3,
    col = 0,
    width = math.max(10, vim.api.nvim_win_get_width(win) - 2),
    height = 1,
    style = 'minimal',
    border = 'single',
    title = ' rows with ',
    footer = ' <CR> keep  <Esc> as before ',
  })
  return buf, line
end

--- Opens the line.
function M.open()
  local view = views.here()
  local win = view and views.window(view)
  if not view or not win then
    return
  end
  local before = view.query
  local buf, line = open(win, before)
  local resting = vim.uv.new_timer()
  local text = before
  vim.api.nvim_create_autocmd({ 'TextChanged', 'TextChangedI' }, {
    buffer = buf,
    callback = function()
      text = vim.api.nvim_buf_get_lines(buf, 0, 1, false)[1] or ''
      if resting then
        resting:start(
          REST_MS,
          0,
          vim.schedule_wrap(function()
            show(view, text)
          end)
        )
      end
    end,
  })
  ---@param keep boolean
  local function leave(keep)
    if vim.api.nvim_buf_is_valid(buf) then
      -- Keys that were typed fast came without an event.
      text = vim.api.nvim_buf_get_lines(buf, 0, 1, false)[1] or ''
    end
    if resting then
      resting:close()
      resting = nil
    end
    vim.cmd.stopinsert()
    if vim.api.nvim_win_is_valid(line) then
      vim.api.nvim_win_close(line, true)
    end
    if vim.api.nvim_win_is_valid(win) then
      vim.api.nvim_set_current_win(win)
    end
    show(view, keep and text or before)
  end
  for mode, key in pairs({ n = { '<Esc>', '<C-c>', 'q' }, i = { '<Esc>', '<C-c>' } }) do
    for _, lhs in ipairs(key) do
      vim.keymap.set(mode, lhs, function()
        leave(false)
      end, { buffer = buf, nowait = true, desc = 'Pi: as before' })
    end
  end
  vim.keymap.set({ 'n', 'i' }, '<CR>', function()
    leave(true)
  end, { buffer = buf, nowait = true, desc = 'Pi: keep these rows' })
  vim.api.nvim_create_autocmd('WinLeave', {
    buffer = buf,
    once = true,
    callback = function()
      vim.schedule(function()
        if resting then
          leave(true)
        end
      end)
    end,
  })
  vim.cmd('startinsert!')
end

return M
