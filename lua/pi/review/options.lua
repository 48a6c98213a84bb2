---Review options with their defaults; `pi.config` wins where it knows them.

---@class (exact) pi.review.Options
---@field view 'inline'|'proposal'|'split'
---@field open 'idle'|'always'|'never'
---@field hint 'current'|'all'|'none'
---@field advance boolean
---@field on_save boolean
---@field reject_prompt boolean
---@field list_open 'multi'|'always'|'never'
---@field plain boolean

local M = {}

---@type pi.review.Options
local defaults = {
  view = 'inline',
  open = 'idle',
  hint = 'current',
  advance = true,
  on_save = true,
  reject_prompt = false,
  list_open = 'multi',
  plain = false,
}

---@return table
local function user()
  local ok, config = pcall(require, 'pi.config')
  if ok and type(config.get) == 'function' then
    return config.get()
  end
  local pi = vim.g.pi
  return type(pi) == 'table' and pi or {}
end

---@return pi.review.Options
function M.review()
  return vim.tbl_extend('force', defaults, user().review or {})
end

---Returns the prefix of review maps, or nil when no maps are wanted.
---@return string?
function M.prefix()
  local keys = user().keys
  if keys == false then
    return nil
  end
  return type(keys) == 'table' and keys.prefix or '<localleader>'
end

---Whether only ASCII may be drawn.
---@return boolean
function M.ascii()
  if vim.g.pi_ascii ~= nil then
    return vim.g.pi_ascii == 1 or vim.g.pi_ascii == true
  end
  local wish = (user().ui or {}).ascii
  if type(wish) == 'boolean' then
    return wish
  end
  return vim.env.TERM == 'linux'
end

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
