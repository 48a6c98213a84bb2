---Highlight groups of the review, made from the colour scheme's own diff colours.

local api = vim.api
local options = require('pi.review.options')

local M = {}

---@type table<string, string>
local links = {
  PiReviewChangeNr = 'Changed',
  PiReviewAddNr = 'Added',
  PiReviewDeleteNr = 'Removed',
  PiReviewSignChange = 'Changed',
  PiReviewSignAdd = 'Added',
  PiReviewSignDelete = 'Removed',
  PiReviewSignAccepted = 'DiagnosticOk',
  PiReviewSignRejected = 'Comment',
  PiReviewSignStale = 'DiagnosticWarn',
  PiReviewCurrent = 'CursorLine',
  PiReviewCurrentNr = 'CursorLineNr',
  PiReviewAccepted = 'DiagnosticOk',
  PiReviewRejected = 'Comment',
  PiReviewStale = 'DiagnosticWarn',
  PiReviewHint = 'Comment',
  PiReviewNote = 'DiagnosticInfo',
  PiReviewTitle = 'Title',
  PiReviewFile = 'Directory',
  PiReviewKey = 'Special',
  PiApprovalBorder = 'FloatBorder',
  PiApprovalTitle = 'DiagnosticWarn',
  PiApprovalCommand = 'String',
}

---Mixes two colours; `part` of the first, the rest of the second.
---@param a integer
---@param b integer
---@param part number
---@return integer
local function mix(a, b, part)
  local out = 0
  for shift = 16, 0, -8 do
    local x = bit.band(bit.rshift(a, shift), 0xff)
    local y = bit.band(bit.rshift(b, shift), 0xff)
    out = bit.bor(out, bit.lshift(math.floor(x * part + y * (1 - part) + 0.5), shift))
  end
  return out
end

---@param name string
---@return vim.api.keyset.get_hl_info
local function colours(name)
  return api.nvim_get_hl(0, { name = name, link = false })
end

---The background of a diff group, never its foreground: some schemes give both the same colour and text would vanish.
---@param group string
---@param fallback integer colour to blend with the normal background when the scheme has none
---@return vim.api.keyset.highlight
local function background(group, fallback)
  local diff, normal = colours(group), colours('Normal')
  local dark = vim.o.background == 'dark'
  local base = normal.bg or (dark and 0x14161b or 0xf4f4f4)
  if diff.bg and not diff.reverse then
    return { bg = diff.bg, ctermbg = diff.ctermbg }
  end
  -- A reversed group is full of colour and would swallow the syntax colours drawn over it.
  return { bg = mix(diff.fg or fallback, base, 0.25), ctermbg = diff.ctermbg or diff.ctermfg }
end

---@param weak vim.api.keyset.highlight
---@param accent integer
---@return vim.api.keyset.highlight
local function stronger(weak, accent)
  local bg = type(weak.bg) == 'number' and mix(accent, weak.bg --[[@as integer]], 0.3) or nil
  return { bg = bg, ctermbg = weak.ctermbg, bold = true }
end

---@param name string
---@param value vim.api.keyset.highlight
local function define(name, value)
  value.default = true
  api.nvim_set_hl(0, name, value)
end

---Defines every group the colour scheme or the user has not defined.
function M.apply()
  local add, delete = background('DiffAdd', 0x4faf6f), background('DiffDelete', 0xcf5f5f)
  local dark = vim.o.background == 'dark'
  if options.no_colour() then
    add, delete = {}, {}
  end
  define('PiReviewAdd', add)
  define('PiReviewDelete', delete)
  define('PiReviewAddWord', stronger(add, dark and 0x6fdf8f or 0x2f9f4f))
  local word = stronger(delete, dark and 0xff7f7f or 0xcf3f3f)
  word.strikethrough, word.bold = true, nil
  define('PiReviewDeleteWord', word)
  for name, target in pairs(links) do
    define(name, { link = target })
  end
end

---Defines the groups now and after each change of the colour scheme.
function M.setup()
  M.apply()
  api.nvim_create_autocmd('ColorScheme', {
    group = api.nvim_create_augroup('pi.review.highlights', { clear = true }),
    callback = M.apply,
  })
end

---Names of all groups, for help and tests.
---@return string[]
function M.names()
  local names = { 'PiReviewAdd', 'PiReviewDelete', 'PiReviewAddWord', 'PiReviewDeleteWord' }
  vim.list_extend(names, vim.tbl_keys(links))
  table.sort(names)
  return names
end

return M
