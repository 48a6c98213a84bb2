---`pi://proposal/…` buffers, read again.

local M = {}

---@param buf integer
---@return boolean
function M.read(buf)
  return require('pi.review.proposal').read(buf, 'proposal')
end

return M
