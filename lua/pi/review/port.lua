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
  local sent = require('pi.rpc').notify('review', message)
  if not sent and message.action then
    require('pi.review.say').line('the backend is not running: nothing was done')
  end
end

---Asks core to stop the run of a session.
---@param session string
function M.abort(session)
  if send then
    send({ abort = session })
    return
  end
  require('pi.rpc').notify('run.abort', { session = session })
end

return M
