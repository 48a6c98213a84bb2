---Review maps: buffer-local, only while there is something to review, never in the way of other maps.

local api = vim.api
local options = require('pi.review.options')
local say = require('pi.review.say')

---@class (exact) pi.review.Map
---@field lhs string without the prefix when `prefixed`
---@field prefixed boolean
---@field mode 'n'|'x'|'o'
---@field plug string
---@field word string? word of the hint line

---@class (exact) pi.review.Installed
---@field lhs string
---@field mode string
---@field saved table<string, any>? the map that was there

local M = {}

---@type pi.review.Map[]
local maps = {
  { lhs = 'a', prefixed = true, mode = 'n', plug = 'accept', word = 'accept' },
  { lhs = 'r', prefixed = true, mode = 'n', plug = 'reject', word = 'reject' },
  { lhs = 'n', prefixed = true, mode = 'n', plug = 'note', word = 'note' },
  { lhs = 'e', prefixed = true, mode = 'n', plug = 'edit', word = 'edit' },
  { lhs = 'A', prefixed = true, mode = 'n', plug = 'accept-file' },
  { lhs = 'R', prefixed = true, mode = 'n', plug = 'reject-file' },
  { lhs = 'y', prefixed = true, mode = 'n', plug = 'accept-all' },
  { lhs = 'x', prefixed = true, mode = 'n', plug = 'reject-all' },
  { lhs = 'u', prefixed = true, mode = 'n', plug = 'undo' },
  { lhs = 'd', prefixed = true, mode = 'n', plug = 'diff' },
  { lhs = 'l', prefixed = true, mode = 'n', plug = 'list' },
  { lhs = 'a', prefixed = true, mode = 'x', plug = 'accept' },
  { lhs = 'r', prefixed = true, mode = 'x', plug = 'reject' },
  { lhs = ']c', prefixed = false, mode = 'n', plug = 'next' },
  { lhs = '[c', prefixed = false, mode = 'n', plug = 'prev' },
  { lhs = ']C', prefixed = false, mode = 'n', plug = 'next-file' },
  { lhs = '[C', prefixed = false, mode = 'n', plug = 'prev-file' },
  { lhs = 'ih', prefixed = false, mode = 'o', plug = 'textobject' },
  { lhs = 'ih', prefixed = false, mode = 'x', plug = 'textobject' },
}

---@type table<integer, pi.review.Installed[]?>
local installed = {}
---@type table<string, true>
local named = {}

---@param lhs string
---@return string
local function raw(lhs)
  return api.nvim_replace_termcodes(lhs, true, true, true)
end

---Maps of a mode as typed, without ours.
---@param buf integer
---@param mode string
---@return string[]
local function taken(buf, mode)
  local found = {}
  for _, list in ipairs({ api.nvim_get_keymap(mode), api.nvim_buf_get_keymap(buf, mode) }) do
    for _, map in ipairs(list) do
      local ours = (map.rhs or ''):find('<Plug>(pi-review-', 1, true)
      local lhs = map.lhs or ''
      local plug = vim.startswith(lhs, '<Plug>') or vim.startswith(lhs, '<SNR>')
      if not ours and not plug then
        found[#found + 1] = map.lhsraw or raw(lhs)
      end
    end
  end
  return found
end

---Whether a longer map starts with these keys, or a shorter one begins them.
---@param lhs string
---@param others string[]
---@return boolean
local function clashes(lhs, others)
  local mine = raw(lhs)
  for _, other in ipairs(others) do
    if other ~= mine and (vim.startswith(other, mine) or vim.startswith(mine, other)) then
      return true
    end
  end
  return false
end

---@param buf integer
---@return table<string, string[]>
local function taken_by_mode(buf)
  return { n = taken(buf, 'n'), x = taken(buf, 'x'), o = taken(buf, 'o') }
end

---Returns a map that a prefix would be in the way of.
---@param prefix string
---@param others table<string, string[]>
---@return string?
local function in_the_way(prefix, others)
  for _, map in ipairs(maps) do
    if map.prefixed and clashes(prefix .. map.lhs, others[map.mode]) then
      return prefix .. map.lhs
    end
  end
end

---Resolves the prefix: the wished one, or `g.` when it is in anybody's way.
---@param wish string
---@param others table<string, string[]>
---@return string
---@return string? why it is not the wished one
local function usable_prefix(wish, others)
  local leader = vim.g.mapleader or '\\'
  local localleader = vim.g.maplocalleader or '\\'
  local uses_localleader = wish:lower():find('<localleader>', 1, true) ~= nil
  local prefix = wish
    :gsub('<[lL]ocal[lL]eader>', (localleader:gsub('%%', '%%%%')))
    :gsub('<[lL]eader>', (leader:gsub('%%', '%%%%')))
  if uses_localleader and localleader == leader then
    return 'g.', '<localleader> is the same key as <leader>'
  end
  local clash = in_the_way(prefix, others)
  if clash then
    return 'g.', ('a map of yours begins like, or with, %s'):format(vim.fn.keytrans(clash))
  end
  return prefix
end

---@param buf integer
---@param lhs string
---@param mode string
---@return table<string, any>?
local function existing(buf, lhs, mode)
  return api.nvim_buf_call(buf, function()
    local map = vim.fn.maparg(lhs, mode, false, true)
    return map.buffer == 1 and map or nil
  end)
end

---@param left_out string[]
local function name_left_out(left_out)
  local fresh = vim.tbl_filter(function(lhs)
    return not named[lhs]
  end, left_out)
  for _, lhs in ipairs(fresh) do
    named[lhs] = true
  end
  if #fresh > 0 then
    say.warn(
      ('not mapped, other maps use them: %s (see :checkhealth pi)'):format(table.concat(fresh, ' '))
    )
  end
end

---Installs the maps in a buffer; does nothing when they are there.
---@param buf integer
function M.install(buf)
  local wish = options.prefix()
  if not wish or installed[buf] then
    return
  end
  local others = taken_by_mode(buf)
  local prefix = usable_prefix(wish, others)
  local mine, left_out = {}, {} ---@type pi.review.Installed[], string[]
  for _, map in ipairs(maps) do
    local lhs = (map.prefixed and prefix or '') .. map.lhs
    if clashes(lhs, others[map.mode]) then
      left_out[#left_out + 1] = lhs
    else
      mine[#mine + 1] = { lhs = lhs, mode = map.mode, saved = existing(buf, lhs, map.mode) }
      vim.keymap.set(map.mode, lhs, ('<Plug>(pi-review-%s)'):format(map.plug), {
        buffer = buf,
        nowait = true,
        remap = true,
        desc = 'Pi review: ' .. map.plug:gsub('-', ' '),
      })
    end
  end
  installed[buf] = mine
  name_left_out(left_out)
end

---Takes the maps away again and puts back what was there before.
---@param buf integer
function M.remove(buf)
  local mine = installed[buf]
  installed[buf] = nil
  if not mine or not api.nvim_buf_is_valid(buf) then
    return
  end
  for _, map in ipairs(mine) do
    local now = existing(buf, map.lhs, map.mode)
    if now and (now.rhs or ''):find('<Plug>(pi-review-', 1, true) then
      vim.keymap.del(map.mode, map.lhs, { buffer = buf })
      if map.saved then
        api.nvim_buf_call(buf, function()
          vim.fn.mapset(map.saved)
        end)
      end
    end
  end
end

---The real keys of a buffer for the hint line: only those that are mapped.
---@param buf integer
---@return {key: string, word: string}[]
function M.hints(buf)
  local found = {}
  for _, map in ipairs(maps) do
    if map.word then
      local key = M.key(buf, map.plug)
      if key then
        found[#found + 1] = { key = key, word = map.word }
      end
    end
  end
  return found
end

---The key of an action in a buffer, as a person reads it.
---@param buf integer
---@param plug string
---@return string?
function M.key(buf, plug)
  for _, map in ipairs(api.nvim_buf_get_keymap(buf, 'n')) do
    if map.rhs == ('<Plug>(pi-review-%s)'):format(plug) then
      return ((map.lhs or ''):gsub('<lt>', '<'):gsub('|', '<Bar>'))
    end
  end
end

---@class (exact) pi.review.KeyFacts
---@field prefix string? as mapped; nil when no maps are wanted
---@field why string? why it is not the wished one
---@field left_out string[] maps that others are in the way of

---What the maps of a buffer are or would be, for `:checkhealth`.
---@param buf integer
---@return pi.review.KeyFacts
function M.facts(buf)
  local wish = options.prefix()
  local facts = { left_out = {} } ---@type pi.review.KeyFacts
  if not wish then
    return facts
  end
  local others = taken_by_mode(buf)
  local why
  facts.prefix, why = usable_prefix(wish, others)
  facts.why = why
  for _, map in ipairs(maps) do
    local lhs = (map.prefixed and facts.prefix or '') .. map.lhs
    if clashes(lhs, others[map.mode]) then
      facts.left_out[#facts.left_out + 1] = lhs
    end
  end
  return facts
end

return M
