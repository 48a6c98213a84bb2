--- One line for the person.
local M = {}

local levels = {
  error = vim.log.levels.ERROR,
  warn = vim.log.levels.WARN,
  info = vim.log.levels.INFO,
}

---@param text string
---@param level ('error'|'warn'|'info')?
function M.say(text, level)
  vim.schedule(function()
    vim.notify(text, levels[level or 'info'], { title = 'pi' })
  end)
end

M.ops = {}

---@param op { text: string, level: 'error'|'warn'|'info' }
function M.ops.show(op)
  M.say(op.text, op.level)
  if op.level == 'error' then
    require('pi.events').fire('PiError', { message = op.text })
  end
end

return M
