---Messages of the review, all through `vim.notify` or the message line.

local M = {}

---One quiet line, not kept.
---@param line string
function M.line(line)
  vim.api.nvim_echo({ { 'pi: ' .. line } }, false, {})
end

---@param line string
function M.warn(line)
  vim.notify('pi: ' .. line, vim.log.levels.WARN, { title = 'Pi review' })
end

---@param line string
---@param level 'info'|'warn'|'error'
function M.notify(line, level)
  local levels = vim.log.levels
  local by_name = { info = levels.INFO, warn = levels.WARN, error = levels.ERROR }
  vim.notify('pi: ' .. line, by_name[level] or levels.INFO, { title = 'Pi review' })
end

---Fires a `User` event; an error in somebody's handler is shown and harms nothing here.
---@param name string
---@param data table
function M.event(name, data)
  vim.schedule(function()
    local ok, err =
      pcall(vim.api.nvim_exec_autocmds, 'User', { pattern = name, modeline = false, data = data })
    if not ok then
      M.warn(('an autocommand for %s failed: %s'):format(name, err))
    end
  end)
end

return M
