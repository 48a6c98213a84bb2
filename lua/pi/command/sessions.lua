--- Sub-commands about sessions: opening, branching, naming, exporting.
local config = require('pi.config')
local notice = require('pi.notice')
local shared = require('pi.command.shared')

---@param row table
---@return string
local function session_name(row)
  local name = type(row.name) == 'string' and row.name or row.first_message
  if type(name) ~= 'string' then
    return tostring(row.id)
  end
  return vim.fn.strcharpart((name:gsub('%s+', ' ')), 0, 60)
end

--- Asks for stored sessions. None is opened for that.
---@param all boolean
---@param done fun(rows: table[])
local function stored(all, done)
  require('pi.backend').start(function(err)
    if err then
      shared.complain(err)
      return
    end
    local params = { all = all, cwd = require('pi.backend').cwd() }
    require('pi.rpc').request('session.list', params, function(failed, result)
      shared.complain(failed)
      if not failed and result.sessions then
        done(result.sessions)
      end
    end)
  end)
end

--- Finds a stored session by path, id (or its beginning) or name.
---@param wanted string
---@param done fun(path: string)
local function find_session(wanted, done)
  if vim.uv.fs_stat(wanted) then
    done(vim.fs.abspath(wanted))
    return
  end
  stored(true, function(rows)
    for _, row in ipairs(rows) do
      local id = tostring(row.id or '')
      if row.path and (vim.startswith(id, wanted) or row.name == wanted) then
        done(row.path)
        return
      end
    end
    notice.say('no session is called ' .. wanted .. '; `:Pi sessions` lists them', 'error')
  end)
end

---@param path string
local function resume(path)
  require('pi.session').open('session.open', { path = path }, function(err)
    shared.complain(err)
    if not err then
      require('pi.window').open()
    end
  end)
end

---@return string[]
local function session_words()
  local words = {} ---@type string[]
  for _, row in ipairs(require('pi.complete').sessions()) do
    words[#words + 1] = tostring(row.id or '')
  end
  return words
end

---@param stats table
local function show_stats(stats)
  local lines = {} ---@type string[]
  local function add(name, value)
    lines[#lines + 1] = ('%-12s %s'):format(name, value)
  end
  local tokens = stats.tokens or {}
  add('session', stats.sessionId or '')
  if type(stats.sessionFile) == 'string' then
    add('file', stats.sessionFile)
  end
  add(
    'messages',
    ('%d (%d of yours, %d answers)'):format(
      stats.totalMessages or 0,
      stats.userMessages or 0,
      stats.assistantMessages or 0
    )
  )
  add('tool calls', stats.toolCalls or 0)
  add(
    'tokens',
    ('%d in, %d out, %d cached'):format(
      tokens.input or 0,
      tokens.output or 0,
      tokens.cacheRead or 0
    )
  )
  add('cost', ('$%.4f'):format(stats.cost or 0))
  notice.say(table.concat(lines, '\n'))
end

---@type table<string, pi.command.Sub>
return {
  sessions = {
    run = function(args)
      require('pi.backend').start(function(err)
        shared.complain(err)
        if not err then
          require('pi.sessions').open(args[1])
        end
      end)
    end,
    complete = shared.prefix_of({ 'all', 'cwd', 'named', 'live' }),
    slash = 'stored and running sessions',
  },
  new = {
    run = function(_, cx)
      local name = cx.rest ~= '' and cx.rest or nil
      require('pi.session').open('session.new', { name = name }, function(err)
        shared.complain(err)
        if not err then
          require('pi.window').open()
          require('pi.window').focus('prompt', false)
        end
      end)
    end,
    slash = 'a new session',
  },
  continue = {
    run = function()
      require('pi.session').open('session.continue', {}, function(err)
        shared.complain(err)
        if not err then
          require('pi.window').open()
        end
      end)
    end,
  },
  resume = {
    run = function(args)
      if args[1] then
        find_session(args[1], resume)
        return
      end
      stored(config.get().sessions.scope == 'all', function(rows)
        for _, row in ipairs(rows) do
          -- For pickers that show more than one line.
          row.preview = row.first_message
        end
        shared.pick(
          rows,
          { prompt = 'Session', kind = 'pi.session', format = session_name },
          function(row)
            resume(row.path)
          end
        )
      end)
    end,
    complete = function(lead)
      return shared.prefix_of(session_words())(lead)
    end,
    slash = 'an earlier session',
  },
  fork = {
    run = function(args)
      local function fork(entry)
        shared.ask('session.fork', { entry = entry }, function(result)
          if type(result.text) == 'string' then
            vim.schedule(function()
              local session = require('pi.session').current()
              if session then
                require('pi.prompt').prefill(session, result.text)
              end
            end)
          end
        end)
      end
      if args[1] then
        fork(args[1])
      else
        require('pi.command').execute({ 'tree', 'user-only' })
      end
    end,
    slash = 'a new session from an earlier message',
  },
  clone = {
    run = function()
      shared.ask('session.clone')
    end,
    slash = 'a copy of this branch as a session',
  },
  name = {
    run = function(_, cx)
      if cx.rest == '' then
        notice.say('`:Pi name {text}`', 'warn')
        return
      end
      shared.ask('session.name', { name = cx.rest })
    end,
    slash = 'name this session',
  },
  label = {
    run = function(_, cx)
      require('pi.tree').label(cx.rest)
    end,
  },
  delete = {
    run = function(args)
      if not args[1] then
        notice.say('`:Pi delete {session}`', 'warn')
        return
      end
      find_session(args[1], function(path)
        require('pi.sessions').delete(path)
      end)
    end,
    complete = function(lead)
      return shared.prefix_of(session_words())(lead)
    end,
  },
  stats = {
    run = function()
      shared.ask('session.stats', {}, show_stats)
    end,
    slash = 'tokens and cost of this session',
  },
  export = {
    run = function(args)
      shared.ask('session.export', { path = args[1] and vim.fs.abspath(args[1]) }, function(result)
        notice.say('written: ' .. tostring(result.path))
      end)
    end,
    complete = shared.file_words,
    slash = 'this session as a page',
  },
  import = {
    run = function(args)
      shared.ask('session.import', { path = args[1] and vim.fs.abspath(args[1]) })
    end,
    complete = shared.file_words,
  },
  changes = {
    run = function(args)
      shared.ask('changes.list', { scope = args[1] or 'run' }, function(result)
        if #result.lines == 0 then
          notice.say('nothing was written')
        else
          require('pi.buffer').show('pi://entry/changes', result.lines, 'diff')
        end
      end)
    end,
    complete = shared.prefix_of({ 'run', 'session' }),
  },
  restore = {
    run = function(args)
      shared.ask('changes.restore', { entry = args[1] }, function(result)
        notice.say(result.line)
      end)
    end,
  },
}
