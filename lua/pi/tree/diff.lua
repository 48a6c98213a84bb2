--- Files as they were at an entry beside what they are now, in a tab page of its own: no window of the person changes.
local buffer = require('pi.buffer')
local notice = require('pi.notice')
local rpc = require('pi.rpc')

local M = {}

---@class pi.tree.ThenFile
---@field path string
---@field name string as the model named it
---@field then_lines string[]
---@field now_lines string[]
---@field then_there boolean whether there was a file
---@field now_there boolean

---@class pi.tree.Diff
---@field session string
---@field entry string
---@field tab integer
---@field back integer the tab page the person came from
---@field left integer window
---@field right integer window
---@field names string[]
---@field at integer

---@type pi.tree.Diff?
local open

local function close()
  local it = open
  open = nil
  if not it or not vim.api.nvim_tabpage_is_valid(it.tab) then
    return
  end
  local back = it.back
  if #vim.api.nvim_list_tabpages() > 1 then
    vim.cmd('tabclose ' .. vim.api.nvim_tabpage_get_number(it.tab))
  end
  if vim.api.nvim_tabpage_is_valid(back) then
    vim.api.nvim_set_current_tabpage(back)
  end
end

---@param step integer
local function go(step)
  local it = open
  if not it then
    return
  end
  local at = it.at + step
  if at < 1 or at > #it.names then
    notice.say(step > 0 and 'this is the last file' or 'this is the first file')
    return
  end
  it.at = at
  M.fill()
end

---@param buf integer
---@param lines string[]
---@param file pi.tree.ThenFile
local function put(buf, lines, file)
  buffer.set(buf, lines)
  -- Colours only: the file type itself would start language servers.
  local filetype = vim.filetype.match({ filename = file.path, contents = lines }) or ''
  local language = vim.treesitter.language.get_lang(filetype)
  vim.treesitter.stop(buf)
  if not (language and pcall(vim.treesitter.start, buf, language)) then
    vim.bo[buf].syntax = filetype
  end
end

--- What a loaded buffer says is what the agent sees, saved or not.
---@param file pi.tree.ThenFile
---@return string[]
local function now(file)
  local buf = vim.fn.bufnr('^' .. vim.fn.escape(file.path, '\\*?[]{}~,') .. '$')
  if buf > 0 and vim.api.nvim_buf_is_loaded(buf) and vim.bo[buf].modified then
    return vim.api.nvim_buf_get_lines(buf, 0, -1, false)
  end
  return file.now_lines
end

---@param text string
---@return string
local function plain(text)
  return (text:gsub('%%', '%%%%'))
end

---@param it pi.tree.Diff
---@param file pi.tree.ThenFile
local function dress(it, file)
  local count = #it.names > 1 and ('  file %d of %d'):format(it.at, #it.names) or ''
  local name = plain(file.name)
  local sides = {
    {
      it.left,
      '%#PiUser# '
        .. name
        .. '%#PiTime#  '
        .. (file.then_there and 'then' or 'not there then')
        .. count,
    },
    {
      it.right,
      '%#PiUser# '
        .. name
        .. '%#PiTime#  '
        .. (file.now_there and 'now' or 'not there now')
        .. '%='
        .. (#it.names > 1 and ']f [f files  ' or '')
        .. 'q close ',
    },
  }
  for _, side in ipairs(sides) do
    buffer.win_options(side[1], { winbar = side[2] })
    vim.api.nvim_win_call(side[1], function()
      vim.cmd('diffthis')
      vim.cmd('normal! gg')
    end)
  end
  vim.api.nvim_win_call(it.right, function()
    vim.cmd('diffupdate')
    -- The first difference, not the first line.
    vim.cmd('silent! normal! ]czz')
  end)
end

--- Shows the file that is meant now.
function M.fill()
  local it = open
  if not it then
    return
  end
  local params = { session = it.session, entry = it.entry, path = it.names[it.at] }
  rpc.request('changes.then', params, function(err, file)
    ---@cast file pi.tree.ThenFile
    if err then
      notice.say(err, 'error')
      return
    end
    local ours = open == it
      and vim.api.nvim_win_is_valid(it.left)
      and vim.api.nvim_win_is_valid(it.right)
    if not ours then
      return
    end
    put(vim.api.nvim_win_get_buf(it.left), file.then_lines, file)
    put(vim.api.nvim_win_get_buf(it.right), now(file), file)
    dress(it, file)
  end)
end

---@param side 'then'|'now'
---@param session string
---@return integer
local function make(side, session)
  local buf = buffer.scratch('pi://entry/' .. side, 'entry', 'pi-diff', session)
  vim.bo[buf].bufhidden = 'wipe'
  local keys = {
    q = close,
    [']f'] = function()
      go(1)
    end,
    ['[f'] = function()
      go(-1)
    end,
  }
  for key, fn in pairs(keys) do
    vim.keymap.set('n', key, fn, { buffer = buf, nowait = true, desc = 'Pi: ' .. side })
  end
  return buf
end

---@param session string
---@param entry string
---@param names string[]
local function build(session, entry, names)
  close()
  local back = vim.api.nvim_get_current_tabpage()
  local left = make('then', session)
  local right = make('now', session)
  local switch = vim.o.switchbuf
  vim.o.switchbuf = ''
  vim.cmd('tab sbuffer ' .. left)
  vim.o.switchbuf = switch
  local left_win = vim.api.nvim_get_current_win()
  local right_win = vim.api.nvim_open_win(right, true, { split = 'right', win = left_win })
  for _, win in ipairs({ left_win, right_win }) do
    buffer.win_options(win, { winfixbuf = true, wrap = false, list = false, spell = false })
  end
  open = {
    session = session,
    entry = entry,
    tab = vim.api.nvim_get_current_tabpage(),
    back = back,
    left = left_win,
    right = right_win,
    names = names,
    at = 1,
  }
  M.fill()
end

--- Compares what was written after an entry with what was there before.
---@param session string
---@param entry string
function M.open(session, entry)
  rpc.request('changes.files', { session = session, entry = entry }, function(err, result)
    if err then
      notice.say(err, 'error')
    elseif #result.paths == 0 then
      notice.say('no file was written after this point')
    else
      build(session, entry, result.paths)
    end
  end)
end

return M
