---What the review needs of the options.

local config = require('pi.config')

---@class (exact) pi.review.Options
---@field view 'inline'|'proposal'|'split'
---@field open 'idle'|'always'|'never'
---@field hint 'current'|'all'|'none'
---@field advance boolean
---@field unsaved 'buffer'|'ask'
---@field on_save boolean
---@field reject_prompt boolean
---@field list_open 'multi'|'always'|'never'
---@field plain boolean

local M = {}

---@return pi.review.Options
function M.review()
  return config.get().review --[[@as pi.review.Options]]
end

---Returns the prefix of review maps, or nil when no maps are wanted.
---@return string?
function M.prefix()
  local keys = config.get().keys
  if type(keys) ~= 'table' then
    return nil
  end
  return keys.prefix
end

M.ascii = config.ascii

---Whether meaning has to be drawn without colour.
---@return boolean
function M.no_colour()
  if (vim.env.NO_COLOR or '') ~= '' then
    return true
  end
  if vim.o.termguicolors then
    return false
  end
  for _, ui in ipairs(vim.api.nvim_list_uis()) do
    if not ui.rgb and (ui.term_colors or 256) < 16 then
      return true
    end
  end
  return false
end

return M
