--- The list of sessions: stored and running ones.
local buffer = require('pi.buffer')
local config = require('pi.config')
local notice = require('pi.notice')
local rpc = require('pi.rpc')

local M = {}

---@class pi.sessions.Row
---@field id string
---@field path string?
---@field name string?
---@field first_message string?
---@field cwd string
---@field messages integer
---@field modified_ms integer?
---@field live string?

---@class pi.sessions.State
---@field buf integer?
---@field rows pi.sessions.Row[]
---@field all boolean
---@field named boolean
---@field live boolean
---@field query string
---@field sort 'recent'|'name'

---@type pi.sessions.State
local state = { rows = {}, all = false, named = false, live = false, query = '', sort = 'recent' }

local ns = vim.api.nvim_create_namespace('pi.sessions')
local HEAD = 1

---@param ms integer?
---@return string
local function age(ms)
  if not ms then
    return ''
  end
  local seconds = math.max(0, os.time() - math.floor(ms / 1000))
  if seconds < 3600 then
    return math.floor(seconds / 60) .. 'm'
  elseif seconds < 86400 then
    return math.floor(seconds / 3600) .. 'h'
  end
  return math.floor(seconds / 86400) .. 'd'
end

---@param text string
---@param width integer
---@return string
local function fit(text, width)
  text = text:gsub('%s+', ' ')
  while vim.fn.strdisplaywidth(text) > width do
    text = vim.fn.strcharpart(text, 0, vim.fn.strchars(text) - 1)
  end
  return text .. (' '):rep(width - vim.fn.strdisplaywidth(text))
end

---@param row pi.sessions.Row
---@return string
local function title(row)
  return row.name or row.first_message or '(no messages)'
end

local function draw()
  local buf = state.buf
  if not buf or not vim.api.nvim_buf_is_valid(buf) then
    return
  end
  local rows = vim.tbl_filter(function(row)
    return (not state.live or row.live ~= nil)
  end, state.rows)
  if state.sort == 'name' then
    table.sort(rows, function(a, b)
      return title(a):lower() < title(b):lower()
    end)
  end
  state.rows = rows
  local scope = state.all and 'all directories' or 'this directory'
  ---@type string[]
  local lines = {
    (' Sessions  %s  %d%s%s'):format(
      scope,
      #rows,
      state.named and '  named only' or '',
      state.query ~= '' and ('  /' .. state.query) or ''
    ),
  }
  local win = vim.fn.win_findbuf(buf)[1] or 0
  local width = math.max(20, vim.api.nvim_win_get_width(win) - (state.all and 52 or 24))
  for _, row in ipairs(rows) do
    local where = state.all and fit(vim.fn.fnamemodify(row.cwd, ':~'), 26) .. '  ' or ''
    lines[#lines + 1] = (' %-4s %s  %s%4d msg %4s'):format(
      row.live or '',
      fit(title(row), width),
      where,
      row.messages,
      age(row.modified_ms)
    )
  end
  if #rows == 0 then
    lines[2] = '   no sessions here yet'
  end
  buffer.set(buf, lines)
  vim.api.nvim_buf_clear_namespace(buf, ns, 0, -1)
  vim.api.nvim_buf_set_extmark(buf, ns, 0, 0, {
    end_col = #lines[1],
    hl_group = 'PiUser',
    virt_text = { { '? help ', 'PiTime' } },
    virt_text_pos = 'right_align',
  })
  local groups = { run = 'PiStatusRun', ask = 'PiStatusAsk', err = 'PiStatusErr', idle = 'PiTime' }
  for i, row in ipairs(rows) do
    if row.live then
      vim.api.nvim_buf_set_extmark(buf, ns, HEAD + i - 1, 1, {
        end_col = 1 + #row.live,
        hl_group = groups[row.live] or 'PiTime',
      })
    end
    if not row.name then
      vim.api.nvim_buf_set_extmark(buf, ns, HEAD + i - 1, 6, {
        end_col = #lines[HEAD + i],
        hl_group = 'Comment',
        priority = 90,
      })
    end
  end
end

--- Reads the list anew.
function M.refresh()
  rpc.request('session.list', {
    cwd = require('pi.backend').cwd(),
    all = state.all,
    named = state.named,
    query = state.query,
  }, function(err, result)
    if err then
      notice.say(err, 'error')
      return
    end
    state.rows = {}
    for i, row in ipairs(result.sessions) do
      for key, value in pairs(row) do
        if value == vim.NIL then
          row[key] = nil
        end
      end
      state.rows[i] = row
    end
    draw()
  end)
end

---@return pi.sessions.Row?
local function current()
  return state.rows[vim.api.nvim_win_get_cursor(0)[1] - HEAD]
end

---@param row pi.sessions.Row
local function open(row)
  local path = row.path
  require('pi.session').open('session.open', { path = path, cwd = row.cwd }, function(err)
    if err then
      notice.say(err, 'error')
    else
      require('pi.window').open()
    end
  end)
end

local function close()
  for _, win in ipairs(vim.fn.win_findbuf(state.buf or -1)) do
    pcall(vim.api.nvim_win_close, win, true)
  end
end

---@param in_tab boolean
local function enter(in_tab)
  local row = current()
  if not row then
    return
  end
  close()
  for _, tab in ipairs(vim.api.nvim_list_tabpages()) do
    if vim.t[tab].pi_session == row.id and row.live then
      vim.api.nvim_set_current_tabpage(tab)
      require('pi.window').open()
      return
    end
  end
  if in_tab then
    vim.cmd('tabnew')
  end
  open(row)
end

--- Deletes a stored session, after a question.
---@param path string
---@param name string?
function M.delete(path, name)
  local prompt = ('Delete the session %s?'):format(name or vim.fs.basename(path))
  vim.ui.select({ 'no', 'delete' }, { prompt = prompt, kind = 'pi.confirm' }, function(it)
    if it ~= 'delete' then
      return
    end
    rpc.request('session.delete', { path = path }, function(err, result)
      if err then
        notice.say(err, 'error')
      else
        notice.say(result.trashed and 'moved to the trash' or 'deleted')
        M.refresh()
      end
    end)
  end)
end

local function delete()
  local row = current()
  if row and row.path then
    M.delete(row.path, title(row))
  end
end

local function rename()
  local row = current()
  if not row then
    return
  end
  vim.ui.input({ prompt = 'Name: ', default = row.name or '' }, function(text)
    if not text or text == '' then
      return
    end
    if row.live then
      rpc.request('session.name', { session = row.id, name = text }, M.refresh)
    else
      notice.say('open the session first, then `:Pi name {text}`', 'warn')
    end
  end)
end

local function stop()
  local row = current()
  if row and row.live then
    rpc.request('session.stop', { session = row.id }, function(err)
      if err then
        notice.say(err, 'error')
      else
        M.refresh()
      end
    end)
  end
end

---@param key 'all'|'named'
local function toggle(key)
  state[key] = not state[key]
  M.refresh()
end

---@type { [1]: string, [2]: function, [3]: string }[]
M.keys = {
  {
    '<CR>',
    function()
      enter(false)
    end,
    'open here',
  },
  {
    '<C-t>',
    function()
      enter(true)
    end,
    'open in a new tab page',
  },
  { 'r', rename, 'name it' },
  { 'd', delete, 'delete it' },
  { 'x', stop, 'stop it' },
  {
    'w',
    function()
      toggle('all')
    end,
    'this directory or all',
  },
  {
    'N',
    function()
      toggle('named')
    end,
    'only named ones',
  },
  {
    'S',
    function()
      state.sort = state.sort == 'recent' and 'name' or 'recent'
      M.refresh()
    end,
    'sort by age or name',
  },
  {
    '/',
    function()
      vim.ui.input({ prompt = 'Sessions with: ', default = state.query }, function(text)
        if text then
          state.query = text
          M.refresh()
        end
      end)
    end,
    'search in names and texts',
  },
  {
    'R',
    function()
      M.refresh()
    end,
    'read again',
  },
  {
    '?',
    function()
      require('pi.help').show('Sessions', M.keys)
    end,
    'these keys',
  },
  { 'q', close, 'close' },
}

--- Opens the list.
---@param scope string? `all`, `cwd`, `named` or `live`
function M.open(scope)
  state.all = scope == 'all' or (scope == nil and config.get().sessions.scope == 'all')
  state.named, state.live = scope == 'named', scope == 'live'
  state.query = ''
  local buf = buffer.scratch('pi://sessions', 'sessions', 'pi-sessions')
  if state.buf ~= buf then
    state.buf = buf
    for _, key in ipairs(M.keys) do
      vim.keymap.set('n', key[1], key[2], { buffer = buf, nowait = true, desc = 'Pi: ' .. key[3] })
    end
  end
  local win = require('pi.window').show_below(buf)
  vim.keymap.set('n', 'q', close, { buffer = buf, nowait = true, desc = 'Pi: close' })
  buffer.win_options(win, {
    cursorline = true,
    wrap = false,
    signcolumn = 'no',
    statusline = ' sessions%= <CR> open  d delete  ? keys ',
  })
  M.refresh()
end

---@param buf integer
---@return boolean
function M.read(buf)
  state.buf = buf
  M.refresh()
  return true
end

return M
