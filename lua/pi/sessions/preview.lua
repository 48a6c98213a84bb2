--- The window beside the list of sessions that shows how the one under the cursor ended.
local buffer = require('pi.buffer')
local list = require('pi.sessions.list')
local rpc = require('pi.rpc')

local M = {}

---@return integer
local function buf()
  return buffer.scratch('pi://sessions-preview', 'preview', 'pi-preview')
end

--- What stands above the text. It scrolls to its end, where one stopped.
---@param row pi.sessions.Row
---@return string
local function facts(row)
  local parts = { vim.fn.fnamemodify(row.cwd, ':~') } ---@type string[]
  if row.created_ms then
    parts[#parts + 1] = 'begun ' .. os.date('%d %b %Y %H:%M', math.floor(row.created_ms / 1000))
  end
  local gap = require('pi.config').ascii() and ' - ' or ' · '
  return '%#Comment# ' .. table.concat(parts, gap):gsub('%%', '%%%%')
end

---@param row pi.sessions.Row
---@param lines string[]
local function show(row, lines)
  local it = buf()
  buffer.set(it, lines)
  local ns = vim.api.nvim_create_namespace('pi.sessions.preview')
  vim.api.nvim_buf_clear_namespace(it, ns, 0, -1)
  for i, line in ipairs(lines) do
    local who = line:match('^You%s') and 'PiUser' or line:match('^Assistant') and 'PiTreeRole'
    if who then
      vim.api.nvim_buf_set_extmark(it, ns, i - 1, 0, { line_hl_group = who })
    end
  end
  for _, win in ipairs(vim.fn.win_findbuf(it)) do
    buffer.win_options(win, { winbar = facts(row) })
    vim.api.nvim_win_set_cursor(win, { math.max(1, #lines), 0 })
    vim.api.nvim_win_call(win, function()
      vim.cmd('normal! zb')
    end)
  end
end

--- Shows the session under the cursor.
function M.update()
  local row = list.current()
  if not row or not list.state.preview or #vim.fn.win_findbuf(buf()) == 0 then
    return
  end
  if not row.path then
    show(row, { 'nothing was said here yet' })
    return
  end
  rpc.request('session.preview', { path = row.path }, function(err, result)
    local now = list.current()
    if now and now.id == row.id then
      show(row, err and { err } or result.lines)
    end
  end)
end

function M.close()
  require('pi.window').keeping_sizes(function()
    for _, win in ipairs(vim.fn.win_findbuf(buf())) do
      pcall(vim.api.nvim_win_close, win, true)
    end
  end)
end

function M.open()
  local beside = vim.fn.win_findbuf(list.state.buf or -1)[1]
  if not beside or #vim.fn.win_findbuf(buf()) > 0 then
    return
  end
  local win = require('pi.window').keeping_sizes(function()
    return vim.api.nvim_open_win(buf(), false, {
      split = 'right',
      win = beside,
      width = math.floor(vim.api.nvim_win_get_width(beside) / 2),
    })
  end)
  buffer.win_options(win, {
    winfixbuf = true,
    number = false,
    relativenumber = false,
    signcolumn = 'no',
    foldcolumn = '0',
    statuscolumn = ' ',
    wrap = true,
    linebreak = true,
    spell = false,
    list = false,
    statusline = ' how it ended%= v hides ',
    fillchars = 'eob: ',
  })
  M.update()
end

function M.toggle()
  list.state.preview = not list.state.preview
  if list.state.preview then
    M.open()
  else
    M.close()
  end
  list.draw()
end

return M
