---The way to core: one notification a message, nothing waits for an answer.

local M = {}

---@type fun(message: table)?
local send = nil

---Replaces the way messages leave; tests and demos use it.
---@param how fun(message: table)?
function M.connect(how)
  send = how
end

---@param message table
function M.send(message)
  if send then
    send(message)
    return
  end
  require('pi.rpc').notify('review', message)
end

return M
