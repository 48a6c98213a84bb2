--- One line for the person.
local M = {}

local levels = {
  error = vim.log.levels.ERROR,
  warn = vim.log.levels.WARN,
  info = vim.log.levels.INFO,
}

--- Cuts a line that has no room in the message line, where Neovim would stop until a key is pressed. All of it is in the
--- log. Other plugins' notifications have room.
---@param text string
---@return string
local function fitting(text)
  local info = debug.getinfo(vim.notify, 'S')
  local own = info and info.source:find('vim/_', 1, true)
  local room = math.max(20, vim.v.echospace)
  if not own or text:find('\n') or vim.fn.strdisplaywidth(text) <= room then
    return text
  end
  require('pi.log').add(text)
  local more = '... (`:Pi log`)'
  local cut = vim.fn.strcharpart(text, 0, room - #more)
  while vim.fn.strdisplaywidth(cut) > room - #more do
    cut = vim.fn.strcharpart(cut, 0, vim.fn.strchars(cut) - 1)
  end
  return cut .. more
end

---@param text string
---@param level ('error'|'warn'|'info')?
function M.say(text, level)
  vim.schedule(function()
    text = fitting(text)
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
