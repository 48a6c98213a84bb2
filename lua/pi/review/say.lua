---Messages of the review.

local notice = require('pi.notice')

local M = {}

---One quiet line, not kept. What has no room in the message line is cut, since a longer one would wait for a key; the
---whole of it is in the log.
---@param line string
function M.line(line)
  local text = 'pi: ' .. line
  local room = math.max(20, vim.v.echospace)
  if vim.fn.strdisplaywidth(text) > room then
    require('pi.log').add(text)
    text = vim.fn.strcharpart(text, 0, room)
    while vim.fn.strdisplaywidth(text) > room - 3 do
      text = vim.fn.strcharpart(text, 0, vim.fn.strchars(text) - 1)
    end
    text = text .. '...'
  end
  vim.api.nvim_echo({ { text } }, false, {})
end

---@param line string
function M.warn(line)
  notice.say('pi: ' .. line, 'warn')
end

---@param line string
function M.tell(line)
  notice.say('pi: ' .. line, 'info')
end

M.event = require('pi.events').fire

return M
