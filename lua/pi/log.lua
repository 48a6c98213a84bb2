--- A short memory of what went wrong, shown by `:Pi log`.
local M = {}

local LIMIT = 500

---@type string[]
local lines = {}

---@param text string
function M.add(text)
  local time = os.date('%H:%M:%S')
  for _, line in ipairs(vim.split(text, '\n', { trimempty = true })) do
    lines[#lines + 1] = time .. ' ' .. line
  end
  while #lines > LIMIT do
    table.remove(lines, 1)
  end
end

---@return string[]
function M.lines()
  return lines
end

--- Shows the log in a buffer of its own.
function M.open()
  local buffer = require('pi.buffer')
  local buf = buffer.scratch('pi://log', 'log', 'pi-log')
  buffer.set(buf, #lines > 0 and lines or { 'nothing was logged' })
  require('pi.window').show_below(buf)
end

return M
