---`pi://base/…` buffers, read again.

local M = {}

---@param buf integer
---@return boolean
function M.read(buf)
  return require('pi.review.proposal').read(buf, 'base')
end

return M
