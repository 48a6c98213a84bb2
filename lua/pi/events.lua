--- `User` autocommands for other plugins, and the same for Lua functions.
local M = {}

---@alias pi.events.Handler fun(data: table)

---@type table<string, pi.events.Handler[]>
local handlers = {}

--- Calls `fn` whenever the event is fired.
---@param name string
---@param fn pi.events.Handler
function M.on(name, fn)
  vim.validate('name', name, 'string')
  vim.validate('fn', fn, 'function')
  local list = handlers[name] or {}
  handlers[name] = list
  list[#list + 1] = fn
end

--- Fires an event, later and outside of whatever runs now. Errors of handlers are kept in the log.
---@param name string
---@param data table?
function M.fire(name, data)
  vim.schedule(function()
    for _, fn in ipairs(handlers[name] or {}) do
      local ok, err = pcall(fn, data or {})
      if not ok then
        require('pi.log').add('handler of ' .. name .. ': ' .. tostring(err))
      end
    end
    local ok, err = pcall(vim.api.nvim_exec_autocmds, 'User', {
      pattern = name,
      modeline = false,
      data = data or {},
    })
    if not ok then
      require('pi.log').add('autocommand of ' .. name .. ': ' .. tostring(err))
    end
  end)
end

M.ops = {}

---@param op { name: string, data: table }
function M.ops.fire(op)
  M.fire(op.name, op.data)
end

return M
