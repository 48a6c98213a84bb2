--- `:Pi`: sub-commands, their completion, and the slash commands that mean the same.
local config = require('pi.config')
local notice = require('pi.notice')

local M = {}

---@class pi.command.Context
---@field bang boolean
---@field range [integer, integer]? first and last line
---@field buf integer
---@field rest string the arguments as they were typed

---@class pi.command.Sub
---@field run fun(args: string[], cx: pi.command.Context)
---@field complete (fun(lead: string, before: string[]): string[])?
---@field slash string? what it does, when it also is a slash command

local positions = { 'right', 'left', 'bottom', 'top', 'float', 'tab', 'here' }
local panels = { 'chat', 'prompt', 'review', 'tree' }

---@param list string[]
---@return fun(lead: string): string[]
local function prefix_of(list)
  return function(lead)
    return vim.tbl_filter(function(it)
      return vim.startswith(it, lead)
    end, list)
  end
end

---@param err string?
local function complain(err)
  if err then
    notice.say(err, 'error')
  end
end

--- Asks the session and complains when it cannot.
---@param name string
---@param params table?
---@param done fun(result: any)?
local function ask(name, params, done)
  require('pi.session').request(name, params, function(err, result)
    complain(err)
    if not err and done then
      done(result)
    end
  end)
end

--- Makes sure the windows are there, then goes on.
---@param position string?
---@param done fun()?
local function open(position, done)
  require('pi.session').ensure(function(err)
    if err then
      notice.say(err, 'error')
      return
    end
    require('pi.window').open(position)
    if done then
      done()
    end
  end)
end

--- Remembers where the person is; the result says whether they still are there and not typing. A backend that starts
--- takes a moment, and in the meantime the person may have gone on with something else.
---@return fun(): boolean
local function still_here()
  local win, tick = vim.api.nvim_get_current_win(), vim.b.changedtick
  return function()
    return vim.api.nvim_get_current_win() == win
      and vim.b.changedtick == tick
      and vim.api.nvim_get_mode().mode == 'n'
  end
end

--- Opens the windows and goes into one of them, unless the person went elsewhere meanwhile.
---@param position string?
---@param panel 'chat'|'prompt'
---@param insert boolean
---@param before fun()?
local function open_and_focus(position, panel, insert, before)
  local here = still_here()
  open(position, function()
    if before then
      before()
    end
    if here() then
      require('pi.window').focus(panel, insert)
    end
  end)
end

--- A mention of the range, or nothing.
---@param cx pi.command.Context
---@return string?
local function mention(cx)
  if not cx.range then
    return nil
  end
  local name = vim.api.nvim_buf_get_name(cx.buf)
  if name == '' then
    return table.concat(
      vim.api.nvim_buf_get_lines(cx.buf, cx.range[1] - 1, cx.range[2], false),
      '\n'
    )
  end
  local path = vim.fn.fnamemodify(name, ':.')
  return ('@%s:%d-%d'):format(path, cx.range[1], cx.range[2])
end

---@param how 'send'|'followup'
---@return fun(args: string[], cx: pi.command.Context)
local function sender(how)
  return function(_, cx)
    local at = mention(cx)
    local text = vim.trim(cx.rest)
    if text == '' then
      open_and_focus(nil, 'prompt', true, function()
        if at then
          require('pi.prompt').insert(at .. ' ')
        end
      end)
      return
    end
    if at then
      text = text .. '\n\n' .. at
    end
    open(nil, function()
      require('pi.session').request('prompt.send', {
        text = text,
        how = how,
        context = require('pi.context').gather(text),
      }, function(err, result)
        complain(err)
        -- What could not be sent is not lost, and when a review waits the person decides in the prompt what becomes of it.
        local talk_back = type(result) == 'table' and result.talk_back
        if err or talk_back then
          require('pi.prompt').insert(text)
        end
        if talk_back then
          require('pi.window').focus('prompt', false)
          notice.say(talk_back)
        end
      end)
    end)
  end
end

--- Lets the person pick one of a list.
---@param items any[]
---@param options { prompt: string, kind: string, format: fun(it: any): string }
---@param done fun(it: any)
local function pick(items, options, done)
  if #items == 0 then
    notice.say('there is nothing to choose from', 'warn')
    return
  end
  vim.ui.select(items, {
    prompt = options.prompt,
    kind = options.kind,
    format_item = options.format,
  }, function(it)
    if it then
      done(it)
    end
  end)
end

---@param model { provider: string, id: string }
local function set_model(model)
  ask('model.set', { provider = model.provider, id = model.id }, function()
    notice.say('model: ' .. model.provider .. '/' .. model.id)
  end)
end

---@param it { provider: string, id: string }
---@return string
local function model_name(it)
  return it.provider .. '/' .. it.id
end

---@param args string[]
local function model(args)
  local pattern = table.concat(args, ' ')
  if pattern == 'local' then
    require('pi.login').local_models()
    return
  end
  ask('model.list', {}, function(result)
    local list = result.models or {} ---@type table[]
    if pattern ~= '' then
      local exact = vim.tbl_filter(function(it)
        return it.id == pattern or model_name(it) == pattern
      end, list)
      local names = require('pi.complete').match(vim.tbl_map(model_name, list), pattern)
      list = #exact > 0 and exact
        or vim.tbl_filter(function(it)
          return vim.tbl_contains(names, model_name(it))
        end, list)
    end
    if pattern ~= '' and #list == 0 then
      notice.say('no model matches ' .. pattern .. '; `:Pi model` lists them', 'error')
    elseif pattern ~= '' and #list == 1 then
      set_model(list[1])
    elseif #list == 0 then
      notice.say(
        'No model yet: `:Pi login {provider}`, or `:Pi settings models` for a local server',
        'warn'
      )
    else
      pick(list, { prompt = 'Model', kind = 'pi.model', format = model_name }, set_model)
    end
  end)
end

---@param args string[]
local function thinking(args)
  local function set(level)
    ask('thinking.set', { level = level }, function()
      notice.say('thinking: ' .. level)
    end)
  end
  if args[1] then
    set(args[1])
    return
  end
  ask('thinking.list', {}, function(result)
    local format = function(it)
      return it
    end
    pick(result.levels or {}, { prompt = 'Thinking', kind = 'pi.thinking', format = format }, set)
  end)
end

---@param row table
---@return string
local function session_name(row)
  local name = row.name or row.firstMessage or row.first_message
  return type(name) == 'string' and name:gsub('%s+', ' '):sub(1, 60) or tostring(row.id)
end

--- Finds a stored session by path, id (or its beginning) or name.
---@param wanted string
---@param done fun(path: string)
local function find_session(wanted, done)
  if vim.uv.fs_stat(wanted) then
    done(vim.fs.abspath(wanted))
    return
  end
  ask('session.list', { all = true }, function(result)
    for _, row in ipairs(result.sessions or {}) do
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
    complain(err)
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

---@return string[]
local function file_words(lead)
  return vim.fn.getcompletion(lead, 'file')
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
M.subs = {
  toggle = {
    run = function(args)
      local window = require('pi.window')
      if window.is_open() and not args[1] then
        window.close()
      else
        open_and_focus(args[1], 'prompt', false)
      end
    end,
    complete = prefix_of(positions),
  },
  open = {
    run = function(args)
      open(args[1])
    end,
    complete = prefix_of(positions),
  },
  close = {
    run = function()
      require('pi.window').close()
    end,
  },
  focus = {
    run = function(args)
      local panel = args[1] or 'prompt'
      if panel == 'review' or panel == 'tree' then
        M.execute({ panel })
        return
      end
      open_and_focus(nil, panel == 'chat' and 'chat' or 'prompt', panel ~= 'chat')
    end,
    complete = prefix_of(panels),
  },
  ask = { run = sender('send') },
  steer = { run = sender('send') },
  followup = { run = sender('followup') },
  send = {
    run = function(args)
      require('pi.prompt').send(args[1] == 'followup' and 'followup' or 'send')
    end,
    complete = prefix_of({ 'followup' }),
  },
  add = {
    run = function(args, cx)
      local words = {} ---@type string[]
      local at = mention(cx)
      if at then
        words[1] = at
      end
      for _, path in ipairs(args) do
        words[#words + 1] = '@' .. vim.fn.fnamemodify(path, ':.')
      end
      if #words == 0 then
        local name = vim.api.nvim_buf_get_name(cx.buf)
        words[1] = name ~= '' and '@' .. vim.fn.fnamemodify(name, ':.') or nil
      end
      open(nil, function()
        require('pi.prompt').insert(table.concat(words, ' ') .. ' ')
      end)
    end,
    complete = file_words,
  },
  queue = {
    run = function(args)
      if args[1] == 'edit' then
        if not require('pi.prompt').dequeue() then
          notice.say('nothing is queued')
        end
      elseif args[1] == 'clear' then
        ask('run.queue_clear')
      else
        local lines = {} ---@type string[]
        for _, item in ipairs(require('pi.prompt').queue()) do
          lines[#lines + 1] = item.kind .. ': ' .. item.text
        end
        notice.say(#lines > 0 and table.concat(lines, '\n') or 'nothing is queued')
      end
    end,
    complete = prefix_of({ 'clear', 'edit' }),
  },
  abort = {
    run = function(_, cx)
      if require('pi.rpc').connected() then
        ask('run.abort', { clear = cx.bang })
      end
    end,
  },
  review = {
    run = function(args, cx)
      require('pi.review').command(args, cx)
    end,
    complete = function(lead, before)
      return require('pi.review').complete(lead, before)
    end,
  },
  attention = {
    run = function()
      require('pi.attention').open()
    end,
  },
  tree = {
    run = function(args)
      open(nil, function()
        require('pi.tree').open(args[1])
      end)
    end,
    complete = function(lead)
      return prefix_of(require('pi.tree').FILTERS)(lead)
    end,
    slash = 'the session tree',
  },
  sessions = {
    run = function(args)
      require('pi.session').ensure(function(err)
        complain(err)
        if not err then
          require('pi.sessions').open(args[1])
        end
      end)
    end,
    complete = prefix_of({ 'all', 'cwd', 'named', 'live' }),
    slash = 'stored and running sessions',
  },
  new = {
    run = function(_, cx)
      local name = cx.rest ~= '' and cx.rest or nil
      require('pi.session').open('session.new', { name = name }, function(err)
        complain(err)
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
        complain(err)
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
      ask('session.list', { all = config.get().sessions.scope == 'all' }, function(result)
        pick(
          result.sessions or {},
          { prompt = 'Session', kind = 'pi.session', format = session_name },
          function(row)
            resume(row.path)
          end
        )
      end)
    end,
    complete = function(lead)
      return prefix_of(session_words())(lead)
    end,
    slash = 'an earlier session',
  },
  fork = {
    run = function(args)
      local function fork(entry)
        ask('session.fork', { entry = entry }, function(result)
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
        M.execute({ 'tree', 'user-only' })
      end
    end,
    slash = 'a new session from an earlier message',
  },
  clone = {
    run = function()
      ask('session.clone')
    end,
    slash = 'a copy of this branch as a session',
  },
  name = {
    run = function(_, cx)
      if cx.rest == '' then
        notice.say('`:Pi name {text}`', 'warn')
        return
      end
      ask('session.name', { name = cx.rest })
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
      return prefix_of(session_words())(lead)
    end,
  },
  model = {
    run = model,
    complete = function(lead)
      return require('pi.complete').match(
        vim.tbl_map(model_name, require('pi.complete').models()),
        lead
      )
    end,
    slash = 'choose the model',
  },
  thinking = {
    run = thinking,
    complete = function(lead)
      return prefix_of(require('pi.complete').levels())(lead)
    end,
    slash = 'choose how much to think',
  },
  tools = {
    run = function(args)
      require('pi.tools').command(args)
    end,
  },
  compact = {
    run = function(_, cx)
      ask('run.compact', { instructions = cx.rest ~= '' and cx.rest or nil })
    end,
    slash = 'summarise the older part of this session',
  },
  bash = {
    run = function(_, cx)
      if cx.rest == '' then
        notice.say('`:Pi bash {command}`', 'warn')
        return
      end
      open(nil, function()
        ask('run.bash', { command = cx.rest, exclude = cx.bang })
      end)
    end,
    complete = function(lead)
      return vim.fn.getcompletion(lead, 'shellcmd')
    end,
  },
  stats = {
    run = function()
      ask('session.stats', {}, show_stats)
    end,
    slash = 'tokens and cost of this session',
  },
  export = {
    run = function(args)
      ask('session.export', { path = args[1] and vim.fs.abspath(args[1]) }, function(result)
        notice.say('written: ' .. tostring(result.path))
      end)
    end,
    complete = file_words,
    slash = 'this session as a page',
  },
  import = {
    run = function(args)
      ask('session.import', { path = args[1] and vim.fs.abspath(args[1]) })
    end,
    complete = file_words,
  },
  reload = {
    run = function()
      ask('session.reload', {}, function()
        notice.say('resources were read again')
      end)
    end,
    slash = 'read settings, skills and prompts again',
  },
  skills = {
    run = function()
      require('pi.resources').pick('skill')
    end,
  },
  templates = {
    run = function()
      require('pi.resources').pick('prompt')
    end,
  },
  login = {
    run = function(args)
      require('pi.login').login(args[1])
    end,
    complete = function(lead)
      return prefix_of(require('pi.login').PROVIDERS)(lead)
    end,
    slash = 'give a provider its key',
  },
  logout = {
    run = function(args)
      require('pi.login').logout(args[1])
    end,
    complete = function(lead)
      return prefix_of(require('pi.login').PROVIDERS)(lead)
    end,
    slash = 'forget the key of a provider',
  },
  trust = {
    run = function(args)
      require('pi.login').trust(args[1])
    end,
    complete = prefix_of({ 'yes', 'no', 'once' }),
  },
  settings = {
    run = function(args)
      require('pi.login').settings(args[1])
    end,
    complete = prefix_of({ 'models' }),
    slash = 'open the settings file',
  },
  changes = {
    run = function(args)
      ask('changes.list', { scope = args[1] or 'run' }, function(result)
        if #result.lines == 0 then
          notice.say('nothing was written')
        else
          require('pi.buffer').show('pi://entry/changes', result.lines, 'diff')
        end
      end)
    end,
    complete = prefix_of({ 'run', 'session' }),
  },
  restore = {
    run = function(args)
      ask('changes.restore', { entry = args[1] }, function(result)
        notice.say(result.line)
      end)
    end,
  },
  edit = {
    run = function(_, cx)
      local at = mention(cx) or '@' .. vim.fn.fnamemodify(vim.api.nvim_buf_get_name(cx.buf), ':.')
      if cx.rest == '' then
        vim.ui.input({ prompt = 'Edit: ' }, function(text)
          if text and text ~= '' then
            ask('prompt.send', { text = text .. '\n\n' .. at, how = 'send' })
          end
        end)
        return
      end
      ask('prompt.send', { text = cx.rest .. '\n\n' .. at, how = 'send' })
    end,
  },
  status = {
    run = function()
      local info = require('pi.backend').info()
      local it = require('pi.status').data()
      local lines = {
        info.running
            and ('backend: process %d, version %s'):format(info.pid or 0, info.version or '?')
          or 'backend: not running',
        'binary: ' .. (info.path or 'not found'),
      }
      if it then
        lines[#lines + 1] = ('session: %s, %s, review mode %s'):format(
          it.name or it.session,
          it.state,
          it.mode
        )
        lines[#lines + 1] = 'directory: ' .. it.cwd
        lines[#lines + 1] = 'model: ' .. (it.model or 'none')
      end
      notice.say(table.concat(lines, '\n'))
    end,
  },
  log = {
    run = function()
      require('pi.log').open()
    end,
  },
  restart = {
    run = function()
      require('pi.backend').restart()
    end,
  },
  stop = {
    run = function()
      require('pi.backend').stop()
    end,
  },
  install = {
    run = function(args)
      require('pi.build').install(args[1])
    end,
    complete = function(lead)
      local words = file_words(lead)
      table.insert(words, 1, 'source')
      return words
    end,
  },
  version = {
    run = function()
      local backend = require('pi.backend')
      notice.say(
        ('pi.nvim %s, backend %s'):format(backend.VERSION, backend.info().version or 'not running')
      )
    end,
  },
  help = {
    run = function()
      vim.cmd('help pi')
    end,
  },
}

---@return string[]
local function names()
  local list = vim.tbl_keys(M.subs)
  table.sort(list)
  return list
end

--- Runs a sub-command given as words.
---@param words string[]
---@param given { bang: boolean?, range: [integer, integer]?, rest: string? }?
function M.execute(words, given)
  given = given or {}
  local sub = M.subs[words[1] or 'toggle']
  if not sub then
    local near = config.nearest(words[1], names())
    notice.say(
      ('`:Pi %s` is no command; did you mean `:Pi %s`?'):format(words[1], tostring(near)),
      'error'
    )
    return
  end
  local args = vim.list_slice(words, 2)
  sub.run(args, {
    bang = given.bang or false,
    range = given.range,
    buf = vim.api.nvim_get_current_buf(),
    rest = given.rest or table.concat(args, ' '),
  })
end

--- The user command.
---@param opts vim.api.keyset.create_user_command.command_args
function M.run(opts)
  require('pi.highlights').setup()
  local text = vim.trim(opts.args)
  local name, rest = text:match('^(%S+)%s*(.*)$')
  local range = opts.range > 0 and { opts.line1, opts.line2 } or nil
  if name and vim.startswith(name, '/') then
    if not M.slash(name:sub(2), rest or '') then
      M.execute({ 'ask' }, { rest = text })
    end
    return
  end
  local words = vim.split(text, '%s+', { trimempty = true })
  M.execute(words, { bang = opts.bang, range = range, rest = rest or '' })
end

--- Runs a slash command that is one of ours; others belong to the backend.
---@param name string
---@param rest string
---@return boolean handled
function M.slash(name, rest)
  local sub = M.subs[name]
  if not sub or not sub.slash then
    return false
  end
  local words = vim.split(rest, '%s+', { trimempty = true })
  table.insert(words, 1, name)
  M.execute(words, { rest = rest })
  return true
end

--- Names and meanings of our own slash commands.
---@return [string, string][]
function M.slashes()
  local list = {} ---@type [string, string][]
  for _, name in ipairs(names()) do
    if M.subs[name].slash then
      list[#list + 1] = { name, M.subs[name].slash }
    end
  end
  return list
end

--- Completion of `:Pi`, from what is known already.
---@param lead string
---@param line string
---@param pos integer
---@return string[]
function M.complete(lead, line, pos)
  local before = line:sub(1, pos):gsub('^.-Pi!?%s*', '', 1)
  local words = vim.split(before, '%s+', { trimempty = true })
  if lead ~= '' then
    table.remove(words)
  end
  if #words == 0 then
    if vim.startswith(lead, '/') then
      local found = {} ---@type string[]
      for _, it in ipairs(M.slashes()) do
        found[#found + 1] = '/' .. it[1]
      end
      for _, it in ipairs(require('pi.complete').commands()) do
        found[#found + 1] = '/' .. it.name
      end
      return prefix_of(found)(lead)
    end
    return prefix_of(names())(lead)
  end
  local sub = M.subs[words[1]]
  if not sub or not sub.complete then
    return {}
  end
  local ok, found = pcall(sub.complete, lead, vim.list_slice(words, 2))
  return ok and found or {}
end

return M
