---Messages of the review.

local notice = require('pi.notice')

local M = {}

---One quiet line, not kept.
---@param line string
function M.line(line)
  vim.api.nvim_echo({ { 'pi: ' .. line } }, false, {})
end

---@param line string
function M.warn(line)
  notice.say('pi: ' .. line, 'warn')
end

---Something waits for the person.
---@param line string
function M.tell(line)
  if not require('pi.config').get().ui.notify then
    M.line(line)
    return
  end
  notice.say('pi: ' .. line, 'info')
end

M.event = require('pi.events').fire

return M
