---A small float for text of several lines: notes, reasons.

local api = vim.api
local options = require('pi.review.options')

local M = {}

---@param win integer
---@param back integer
local function close(win, back)
  vim.cmd.stopinsert()
  if api.nvim_win_is_valid(win) then
    api.nvim_win_close(win, true)
  end
  if api.nvim_win_is_valid(back) then
    api.nvim_set_current_win(back)
  end
end

---@param title string
---@return vim.api.keyset.win_config
local function place(title)
  local width = math.max(30, math.min(70, vim.o.columns - 6))
  return {
    relative = 'cursor',
    row = 1,
    col = 0,
    width = width,
    height = 3,
    style = 'minimal',
    border = options.ascii() and { '+', '-', '+', '|', '+', '-', '+', '|' } or 'rounded',
    title = ' ' .. title .. ' ',
    footer = ' Ctrl-S sends, Esc Esc cancels ',
    footer_pos = 'right',
  }
end

---Asks for text; `done` is called with it, or not at all when the user cancels.
---@param title string
---@param before string?
---@param done fun(text: string)
function M.ask(title, before, done)
  local back = api.nvim_get_current_win()
  local buf = api.nvim_create_buf(false, true)
  api.nvim_buf_set_lines(buf, 0, -1, false, vim.split(before or '', '\n'))
  vim.bo[buf].bufhidden = 'wipe'
  vim.b[buf].pi = { kind = 'note' }
  local win = api.nvim_open_win(buf, true, place(title))
  vim.wo[win].wrap, vim.wo[win].linebreak = true, true
  local submit = function()
    local text = vim.trim(table.concat(api.nvim_buf_get_lines(buf, 0, -1, false), '\n'))
    close(win, back)
    done(text)
  end
  local cancel = function()
    close(win, back)
  end
  vim.keymap.set({ 'n', 'i' }, '<C-s>', submit, { buffer = buf, desc = 'Pi: send' })
  vim.keymap.set('n', '<CR>', submit, { buffer = buf, desc = 'Pi: send' })
  vim.keymap.set('n', '<Esc>', cancel, { buffer = buf, desc = 'Pi: cancel', nowait = true })
  vim.keymap.set('n', 'q', cancel, { buffer = buf, desc = 'Pi: cancel', nowait = true })
  vim.cmd('startinsert!')
end

return M
