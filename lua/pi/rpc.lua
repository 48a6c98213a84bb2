--- Talks to the backend: requests go out as notifications with an id of ours, answers and drawing come in as batches.
--- Nothing here ever waits for the backend.
local M = {}

---@alias pi.rpc.Callback fun(err: string?, result: any)

---@class (exact) pi.rpc.State
---@field channel integer? job channel of the backend
---@field next_id integer
---@field waiting table<integer, pi.rpc.Callback>

---@type pi.rpc.State
local state = { channel = nil, next_id = 1, waiting = {} }

--- Shows an error that is nobody's answer.
---@param text string
local function complain(text)
  vim.schedule(function()
    vim.notify(text, vim.log.levels.ERROR, { title = 'pi' })
  end)
end

--- Sets the channel; `nil` fails every request that still waits.
---@param channel integer?
---@param reason string?
function M.connect(channel, reason)
  state.channel = channel
  if channel then
    return
  end
  local waiting = state.waiting
  state.waiting = {}
  for _, callback in pairs(waiting) do
    local ok, err = pcall(callback, reason or 'the backend is gone', nil)
    if not ok then
      complain(tostring(err))
    end
  end
end

---@return boolean
function M.connected()
  return state.channel ~= nil
end

--- Tells the backend something that needs no answer.
---@param name string
---@param params table?
---@return boolean sent
function M.notify(name, params)
  if not state.channel then
    return false
  end
  local ok = pcall(vim.rpcnotify, state.channel, 'pi', name, vim.NIL, params or vim.empty_dict())
  return ok
end

--- Asks the backend; the callback gets the answer, or an error when the backend ends first.
---@param name string
---@param params table?
---@param callback pi.rpc.Callback?
function M.request(name, params, callback)
  callback = callback or function(err)
    if err then
      complain(err)
    end
  end
  if not state.channel then
    callback('the backend is not running', nil)
    return
  end
  local id = state.next_id
  state.next_id = id + 1
  state.waiting[id] = callback
  local ok, err = pcall(vim.rpcnotify, state.channel, 'pi', name, id, params or vim.empty_dict())
  if not ok then
    state.waiting[id] = nil
    callback(tostring(err), nil)
  end
end

M.ops = {}

--- Answers a request.
---@param op { id: integer, error: string?, result: any, json: string? }
function M.ops.reply(op)
  local callback = state.waiting[op.id] ---@type pi.rpc.Callback?
  state.waiting[op.id] = nil
  if not callback then
    return
  end
  local result = op.result
  if op.json then
    -- The decoder has a limit on nesting of its own.
    local ok, decoded = pcall(vim.json.decode, op.json)
    if not ok then
      callback('the answer is nested too deeply to be read: ' .. tostring(decoded), nil)
      return
    end
    result = decoded
  end
  if result == vim.NIL then
    result = nil
  end
  callback(op.error ~= vim.NIL and op.error or nil, result)
end

--- Finds the function that carries out an op: `chat.append` is `require('pi.chat').ops.append`.
---@param name string
---@return function?
local function handler(name)
  local module, func = name:match('^([%w_.]+)%.([%w_]+)$')
  if not module then
    return nil
  end
  local loaded = require('pi.' .. module)
  return (loaded.ops or loaded)[func]
end

--- Carries out ops one after the other; one that fails does not stop the rest. An op too deep for Neovim's protocol
--- comes as JSON text. Text in place of a table is such an op.
---@param ops (table|string)[]
---@return { results: any[], errors: [integer, string][] }
function M.batch(ops)
  local results, errors = {}, {}
  for i, op in ipairs(ops) do
    local ok, value = pcall(function()
      local it = type(op) == 'string' and vim.json.decode(op) or op
      local run = handler(it.op) or error('unknown op ' .. tostring(it.op), 0)
      return run(it)
    end)
    results[i] = ok and value ~= nil and value or vim.NIL
    if not ok then
      errors[#errors + 1] = { i, tostring(value) }
    end
  end
  return { results = results, errors = errors }
end

return M
