--- Operators over a motion (`<Plug>(pi-ask-operator)`), repeatable with a dot.
local M = {}

---@type string
local command = 'ask'

--- Called by Neovim with the motion's marks set.
function M.apply()
  local first = vim.api.nvim_buf_get_mark(0, '[')[1]
  local last = vim.api.nvim_buf_get_mark(0, ']')[1]
  require('pi.command').execute({ command }, { range = { first or 1, last or 1 } })
end

---@param name string
---@return string keys
function M.start(name)
  command = name
  vim.o.operatorfunc = "v:lua.require'pi.operator'.apply"
  return 'g@'
end

return M
