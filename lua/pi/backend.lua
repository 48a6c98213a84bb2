--- Life of the backend process: found, started at first use, greeted, missed once when it dies.
local config = require('pi.config')
local events = require('pi.events')
local log = require('pi.log')
local notice = require('pi.notice')
local rpc = require('pi.rpc')

local M = {}

--- Version of the language between the two sides; the backend must name the same.
M.PROTOCOL = 1
--- Version of the plugin, part of the folder where an installed backend is looked for.
M.VERSION = '0.1.0'

---@class pi.backend.State
---@field job integer? our own job; `nil` for a backend that attached itself
---@field channel integer? set once greeted
---@field pid integer?
---@field path string?
---@field version string?
---@field stderr string[]
---@field refused string? why the backend that is being started is not taken
---@field leaving boolean Neovim or the person ends it: its end is no news
---@field waiting fun(err: string?)[]

---@type pi.backend.State
local state = { stderr = {}, leaving = false, waiting = {} }

--- Places where the binary may be, in order of preference.
---@return string[]
function M.candidates()
  local found = {} ---@type string[]
  local function add(path)
    if path and path ~= '' then
      found[#found + 1] = vim.fs.normalize(path)
    end
  end
  add(config.get().bin)
  add(vim.env.PI_NVIM_BIN)
  local info = debug.getinfo(1, 'S')
  local here = info and info.source:sub(2) or ''
  local root = vim.fs.dirname(vim.fs.dirname(vim.fs.dirname(vim.fs.abspath(here))))
  add(root .. '/bin/pi-nvim')
  add(vim.fn.stdpath('data') .. '/pi/bin/' .. M.VERSION .. '/pi-nvim')
  add(vim.fn.exepath('pi-nvim'))
  return found
end

--- The binary to start. What a person named is taken even when it is not there, so that the error names it.
---@return string? path
function M.find()
  if config.get().bin then
    return vim.fs.normalize(config.get().bin or '')
  end
  for _, path in ipairs(M.candidates()) do
    if vim.fn.executable(path) == 1 then
      return path
    end
  end
  return nil
end

---@param err string?
local function settle(err)
  local waiting = state.waiting
  state.waiting = {}
  for _, callback in ipairs(waiting) do
    callback(err)
  end
end

---@param code integer
local function ended(code)
  -- While Neovim leaves, the end of its backend is no news.
  local told = state.leaving or vim.v.exiting ~= vim.NIL
  local last = state.stderr[#state.stderr]
  -- One that never got so far is told by those who wait for it.
  local known = state.channel ~= nil or #state.waiting == 0
  -- Those who came after it was told to end want the next one.
  local after = told and state.waiting or {}
  if told then
    state.waiting = {}
  end
  state.job, state.channel, state.pid = nil, nil, nil
  local reason = ('the backend ended (exit %d)'):format(code)
  reason = state.refused or (last and reason .. ': ' .. last) or reason
  state.refused = nil
  log.add(reason)
  rpc.connect(nil, reason)
  settle(reason)
  require('pi.session').gone(reason)
  local lost = package.loaded['pi.review'] and require('pi.review').lost() or 0
  events.fire('PiExit', { code = code })
  for _, callback in ipairs(after) do
    M.start(callback)
  end
  if not told and known then
    local kept = lost == 0 and 'drafts are kept'
      or ('%d hunk%s not applied: `:Pi log`'):format(lost, lost == 1 and '' or 's')
    notice.say(('%s; `:Pi restart` goes on, %s'):format(reason, kept), 'error')
  end
end

---@param data string[]
local function stderr(data)
  for _, line in ipairs(data) do
    if line ~= '' then
      state.stderr[#state.stderr + 1] = line
      log.add(line)
    end
  end
  while #state.stderr > 50 do
    table.remove(state.stderr, 1)
  end
end

--- How long a process may take to greet, in milliseconds.
M.GREETING_MS = 10000

--- Gives up on a process that never greets: it is some other program, or it hangs.
---@param job integer
---@param path string
local function expect_greeting(job, path)
  vim.defer_fn(function()
    -- Neovim may itself have stood at a prompt all that time: what has come meanwhile is taken in first.
    vim.defer_fn(function()
      if state.job ~= job or state.channel then
        return
      end
      state.job = nil
      vim.fn.jobstop(job)
      settle(
        ('%s does not answer: is it the right program? `:Pi log` has what it said'):format(path)
      )
    end, 500)
  end, M.GREETING_MS)
end

--- Starts the process; the callback runs when it was greeted, or with an error.
---@param callback fun(err: string?)
function M.start(callback)
  if state.channel then
    callback(nil)
    return
  end
  state.waiting[#state.waiting + 1] = callback
  if state.job then
    return
  end
  local path = M.find()
  if not path then
    settle('pi-nvim is missing: `:Pi install source`, or `:Pi install {file}`')
    return
  end
  state.stderr, state.leaving, state.path = {}, false, path
  local ok, job = pcall(vim.fn.jobstart, { path, '--mode', 'nvim' }, {
    rpc = true,
    on_stderr = function(_, data)
      stderr(data)
    end,
    on_exit = function(id, code)
      if id == state.job then
        ended(code)
      end
    end,
  })
  if not ok or job <= 0 then
    settle(('cannot start %s: is it an executable for this machine?'):format(path))
    return
  end
  state.job = job
  expect_greeting(job, path)
end

--- The directory a session of this tab page belongs to. It does not follow files, even where Neovim's own does.
---@return string
function M.cwd()
  local cwd = vim.fn.getcwd(-1, 0)
  if not vim.o.autochdir then
    return cwd
  end
  local name = vim.api.nvim_buf_get_name(0)
  local from = (name == '' or vim.bo.buftype ~= '') and cwd or vim.fs.dirname(vim.fs.abspath(name))
  -- In a linked worktree `.git` is a file, and its folder the root all the same.
  return vim.fs.root(from, { '.git', '.jj', '.pi', 'AGENTS.md' }) or from
end

---@class pi.backend.Facts
---@field protocol integer
---@field version string
---@field pid integer
---@field channel integer
---@field begin 'open'|'pick'|nil what to show unasked: the command line named a session, or wants one picked

--- Shows what the command line of the backend asked for.
---@param word string
local function begin(word)
  if word == 'pick' then
    require('pi.sessions').open()
    return
  end
  require('pi.session').ensure(function(err)
    if err then
      notice.say(err, 'error')
    else
      require('pi.window').open()
    end
  end)
end

--- Called by the backend when it has connected.
---@param facts pi.backend.Facts
---@return table
function M.hello(facts)
  if facts.protocol ~= M.PROTOCOL then
    log.add(('%s is version %s'):format(state.path or 'the backend', facts.version))
    local line = ('pi-nvim has protocol %d, this plugin %d: run `:Pi install source`'):format(
      facts.protocol,
      M.PROTOCOL
    )
    state.refused = state.job and line
    return { refused = line }
  end
  if state.channel and state.channel ~= facts.channel and M.alive() then
    return { refused = ('this Neovim has a backend already, process %d'):format(state.pid or 0) }
  end
  if state.job and state.job ~= facts.channel then
    return { refused = 'this Neovim is starting a backend already' }
  end
  require('pi.highlights').setup()
  state.channel, state.pid, state.version = facts.channel, facts.pid, facts.version
  rpc.connect(facts.channel)
  vim.schedule(function()
    settle(nil)
    events.fire('PiReady', { pid = facts.pid, version = facts.version })
    if facts.begin and facts.begin ~= vim.NIL then
      begin(facts.begin)
    end
  end)
  return { protocol = M.PROTOCOL, cwd = M.cwd(), config = config.get() }
end

--- Whether the channel still is one.
---@return boolean
function M.alive()
  if not state.channel then
    return false
  end
  for _, channel in ipairs(vim.api.nvim_list_chans()) do
    if channel.id == state.channel then
      return true
    end
  end
  return false
end

--- Ends the backend; its end is then no news.
---@param callback fun()?
function M.stop(callback)
  local job, channel = state.job, state.channel
  state.leaving = true
  -- From here on nothing is sent to it: what is asked now waits for the next one.
  state.channel = nil
  rpc.connect(nil, 'the backend was stopped')
  settle('the backend was stopped')
  if job then
    if callback then
      local group = vim.api.nvim_create_augroup('pi.backend.stop', {})
      vim.api.nvim_create_autocmd('User', {
        group = group,
        pattern = 'PiExit',
        once = true,
        callback = callback,
      })
    end
    -- Closing the channel is enough: the backend ends when nobody speaks to it.
    pcall(vim.fn.chanclose, job)
    return
  end
  if channel then
    pcall(vim.fn.chanclose, channel)
    ended(0)
  end
  if callback then
    callback()
  end
end

--- Starts the backend anew and goes on with the sessions of all tab pages.
function M.restart()
  M.stop(function()
    require('pi.session').ensure(function(err)
      if err then
        notice.say(err, 'error')
      end
    end)
  end)
end

---@return { pid: integer?, path: string?, version: string?, running: boolean, stderr: string[] }
function M.info()
  return {
    pid = state.pid,
    path = state.path or M.find(),
    version = state.version,
    running = state.channel ~= nil,
    stderr = state.stderr,
  }
end

return M
