--- The small window below the tree that shows the entry under the cursor. It never changes anything.
local buffer = require('pi.buffer')
local draw = require('pi.tree.draw')
local rpc = require('pi.rpc')
local views = require('pi.tree.view')

local M = {}

---@param view pi.tree.View
---@return integer[]
local function shown(view)
  return vim.fn.win_findbuf(view.preview)
end

--- Shows what the entry under the cursor holds.
---@param view pi.tree.View
function M.update(view)
  local row = views.current(view)
  if not row or not view.show_preview or #shown(view) == 0 then
    return
  end
  rpc.request('tree.preview', { session = view.session, entry = row.id }, function(err, result)
    if err or not vim.api.nvim_buf_is_valid(view.preview) then
      return
    end
    local parts = { row.kind } ---@type string[]
    if row.time then
      parts[#parts + 1] = tostring(os.date('%d %b %H:%M', math.floor(row.time / 1000)))
    end
    if result.files == 1 then
      parts[#parts + 1] = '1 file written after this point'
    elseif result.files > 1 then
      parts[#parts + 1] = result.files .. ' files written after this point'
    end
    local gap = require('pi.config').ascii() and ' - ' or ' · '
    local lines = { ' ' .. table.concat(parts, gap) }
    vim.list_extend(lines, result.lines)
    buffer.set(view.preview, lines)
    vim.api.nvim_buf_clear_namespace(view.preview, draw.ns, 0, -1)
    vim.api.nvim_buf_set_extmark(view.preview, draw.ns, 0, 0, { line_hl_group = 'Comment' })
    for _, win in ipairs(shown(view)) do
      vim.api.nvim_win_set_cursor(win, { 1, 0 })
    end
  end)
end

---@param view pi.tree.View
function M.open(view)
  local win = views.window(view)
  if not win or #shown(view) > 0 then
    return
  end
  local height = math.max(4, math.floor(vim.api.nvim_win_get_height(win) * 0.3))
  local below = require('pi.window').keeping_sizes(function()
    return vim.api.nvim_open_win(view.preview, false, {
      split = 'below',
      win = win,
      height = height,
    })
  end)
  buffer.win_options(below, {
    winfixbuf = true,
    winfixheight = true,
    number = false,
    relativenumber = false,
    signcolumn = 'no',
    foldcolumn = '0',
    statuscolumn = ' ',
    wrap = true,
    linebreak = true,
    spell = false,
    list = false,
    statusline = ' preview%= v hides ',
    fillchars = 'eob: ',
  })
end

---@param view pi.tree.View
function M.toggle(view)
  local wins = shown(view)
  view.show_preview = #wins == 0
  if view.show_preview then
    M.open(view)
    M.update(view)
    return
  end
  require('pi.window').keeping_sizes(function()
    for _, win in ipairs(wins) do
      pcall(vim.api.nvim_win_close, win, true)
    end
  end)
end

return M
