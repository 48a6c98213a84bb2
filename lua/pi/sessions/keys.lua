--- Keys of the list of sessions.
local dialog = require('pi.dialog')
local list = require('pi.sessions.list')
local notice = require('pi.notice')
local rpc = require('pi.rpc')

local M = {}

local function refresh()
  require('pi.sessions').refresh()
end

--- Goes on after a request, with one line when it failed.
---@param err string?
local function done(err)
  if err then
    notice.say(err, 'error')
  else
    refresh()
  end
end

---@param in_tab boolean
---@return fun()
local function enter(in_tab)
  return function()
    local row = list.current()
    if not row then
      return
    end
    if row.live and require('pi.session').focus(row.id) then
      require('pi.sessions').close()
      return
    end
    -- One that is kept in memory has no file; it runs here.
    local request = row.path and 'session.open' or 'session.ensure'
    local params = { path = row.path, session = row.id }
    require('pi.session').open(request, params, function(err)
      if err then
        notice.say(err, 'error')
      else
        require('pi.window').open()
      end
    end, function()
      require('pi.sessions').close()
      if in_tab then
        vim.cmd('tabnew')
      end
    end)
  end
end

local function rename()
  local row = list.current()
  if not row then
    return
  end
  dialog.words('Name: ', row.name, function(text)
    if row.live then
      rpc.request('session.name', { session = row.id, name = text }, done)
    elseif row.path then
      rpc.request('session.rename', { path = row.path, name = text }, done)
    end
  end)
end

local function stop()
  local row = list.current()
  if not row then
    return
  end
  if not row.live then
    notice.say('this session does not run')
    return
  end
  local function go()
    rpc.request('session.stop', { session = row.id }, done)
  end
  if row.live == 'run' or row.live == 'ask' then
    dialog.confirm('The agent is at work there', 'stop it', 'leave it', go)
  else
    go()
  end
end

local function delete()
  local row = list.current()
  if not row then
    return
  end
  if row.live then
    notice.say('this session is running; x stops it, then it can be deleted', 'warn')
  elseif row.path then
    require('pi.sessions').delete(row.path, list.title(row))
  end
end

---@param key 'all'|'named'
---@return fun()
local function toggle(key)
  return function()
    list.state[key] = not list.state[key]
    refresh()
  end
end

local function sort()
  for i, name in ipairs(list.SORTS) do
    if name == list.state.sort then
      list.state.sort = list.SORTS[i % #list.SORTS + 1] or 'recent'
      break
    end
  end
  refresh()
end

---@type { [1]: string, [2]: function, [3]: string }[]
M.keys = {
  { '<CR>', enter(false), 'open here' },
  { '<C-t>', enter(true), 'open in a new tab page' },
  {
    'v',
    function()
      require('pi.sessions.preview').toggle()
    end,
    'how it ended, on or off',
  },
  { 'r', rename, 'name it' },
  { 'd', delete, 'delete it' },
  { 'x', stop, 'stop it' },
  { 'w', toggle('all'), 'this directory or all' },
  { 'N', toggle('named'), 'only named ones' },
  { 'S', sort, 'sort by last use, by age or by name' },
  {
    '/',
    function()
      dialog.line('Sessions with: ', list.state.query, function(text)
        list.state.query = text
        refresh()
      end)
    end,
    'search in names and texts',
  },
  { 'R', refresh, 'read again' },
  {
    '?',
    function()
      require('pi.help').show('Sessions', M.keys)
    end,
    'these keys',
  },
  {
    'q',
    function()
      require('pi.sessions').close()
    end,
    'close',
  },
}

return M
