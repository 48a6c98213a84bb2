--- Pi in Neovim: the functions a person's own configuration may use.
local M = {}

---@alias pi.Callback fun(err: string?, result: any)

--- Sets options; the same may stand in `vim.g.pi`. Not needed for the defaults.
---@param options table?
function M.setup(options)
  vim.validate('options', options, 'table', true)
  require('pi.config').setup(options)
  if require('pi.config').get().autostart then
    M.start()
  end
end

--- Starts the backend without showing anything.
function M.start()
  local config = require('pi.config').get()
  if type(config.keys) == 'table' and config.keys.global then
    require('pi.global_keys').install()
  end
  if config.autostart then
    require('pi.backend').start(function(err)
      if err then
        require('pi.notice').say(err, 'error')
      end
    end)
  end
end

--- Runs a `:Pi` sub-command.
---@param name string
---@param args (string?)[]?
function M.command(name, args)
  vim.validate('name', name, 'string')
  vim.validate('args', args, 'table', true)
  local words = { name }
  vim.list_extend(words, args or {})
  require('pi.command').execute(words)
end

---@param position string?
function M.toggle(position)
  M.command('toggle', { position })
end

---@param position string?
function M.open(position)
  M.command('open', { position })
end

function M.close()
  M.command('close')
end

--- Sends a prompt; without text the prompt is opened.
---@param text string?
---@param opts { how: ('send'|'followup')? }?
function M.ask(text, opts)
  vim.validate('text', text, 'string', true)
  vim.validate('opts', opts, 'table', true)
  local name = opts and opts.how == 'followup' and 'followup' or 'ask'
  require('pi.command').execute({ name }, { rest = text or '' })
end

---@param opts { instruction: string?, range: [integer, integer]? }?
function M.edit(opts)
  opts = opts or {}
  require('pi.command').execute({ 'edit' }, { rest = opts.instruction or '', range = opts.range })
end

---@param opts { paths: string[]?, range: [integer, integer]? }?
function M.add(opts)
  opts = opts or {}
  local words = { 'add' }
  vim.list_extend(words, opts.paths or {})
  require('pi.command').execute(words, { range = opts.range })
end

function M.abort()
  M.command('abort')
end

---@param text string
function M.steer(text)
  vim.validate('text', text, 'string')
  require('pi.command').execute({ 'steer' }, { rest = text })
end

---@param text string
function M.followup(text)
  vim.validate('text', text, 'string')
  require('pi.command').execute({ 'followup' }, { rest = text })
end

--- One line for the statusline.
---@return string
function M.status()
  return require('pi.status').text()
end

---@return pi.Status?
function M.status_data()
  return require('pi.status').data()
end

---@return pi.session.Info[]
function M.sessions()
  return require('pi.session').all()
end

---@param id string?
---@return pi.session.Info?
function M.session(id)
  return require('pi.session').info(id)
end

--- Calls a function at an event (`PiRunEnd`, ...), without the detour over an autocommand.
---@param event string
---@param fn fun(data: table)
function M.on(event, fn)
  require('pi.events').on(event, fn)
end

--- Calls back once the backend answers.
---@param callback fun(err: string?)
function M.wait_ready(callback)
  vim.validate('callback', callback, 'function')
  require('pi.backend').start(callback)
end

M.tree = {
  ---@param filter string?
  open = function(filter)
    M.command('tree', { filter })
  end,
}

--- The review, loaded when it is first used.
M.review = setmetatable({}, {
  __index = function(_, key)
    return require('pi.review')[key]
  end,
})

return M
