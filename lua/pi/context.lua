--- What a prompt mentions and only Neovim knows: buffers, the selection, diagnostics, the quickfix list.
local M = {}

local LIMIT = 20000

---@param text string
---@return string
function M.capped(text)
  if #text <= LIMIT then
    return text
  end
  -- Not in the middle of a character.
  local stop = LIMIT + vim.str_utf_start(text, LIMIT + 1)
  return text:sub(1, stop) .. '\n… cut'
end
local capped = M.capped

---@return integer? buf the file a person is looking at
local function code_buffer()
  local win = require('pi.window').target()
  return win and vim.api.nvim_win_get_buf(win) or nil
end

--- The file of a buffer as the session names it: relative to its directory, which `:cd` does not change.
---@param buf integer
---@return string
function M.path_of(buf)
  local name = vim.api.nvim_buf_get_name(buf)
  local info = require('pi.session').info()
  local inside = info and vim.fs.relpath(info.cwd, name)
  if inside then
    return inside
  end
  return vim.fn.fnamemodify(name, ':.')
end
local name_of = M.path_of

---@param items { lnum: integer, text: string, name: string, severity: string }[]
---@return string
local function listed(items)
  local lines = {} ---@type string[]
  for _, item in ipairs(items) do
    lines[#lines + 1] = ('%s:%d: %s%s'):format(item.name, item.lnum, item.severity, item.text)
  end
  return #lines > 0 and table.concat(lines, '\n') or '(none)'
end

local severities = { 'error: ', 'warning: ', 'info: ', 'hint: ' }

---@type table<string, fun(): string?>
local kinds = {
  buffer = function()
    local buf = code_buffer()
    if not buf then
      return nil
    end
    local unsaved = vim.bo[buf].modified and ' (unsaved)' or ''
    return name_of(buf) .. unsaved
  end,
  buffers = function()
    local names = {} ---@type string[]
    for _, buf in ipairs(vim.api.nvim_list_bufs()) do
      if vim.bo[buf].buflisted and vim.bo[buf].buftype == '' then
        names[#names + 1] = name_of(buf) .. (vim.bo[buf].modified and ' (unsaved)' or '')
      end
    end
    return table.concat(names, '\n')
  end,
  selection = function()
    local buf = code_buffer()
    if not buf then
      return nil
    end
    local first = vim.api.nvim_buf_get_mark(buf, '<')[1] or 0
    local last = vim.api.nvim_buf_get_mark(buf, '>')[1] or 0
    if first == 0 then
      return nil
    end
    local lines = vim.api.nvim_buf_get_lines(buf, first - 1, last, false)
    return ('%s:%d-%d\n%s'):format(name_of(buf), first, last, table.concat(lines, '\n'))
  end,
  diagnostics = function()
    local items = {} ---@type { lnum: integer, text: string, name: string, severity: string }[]
    for _, it in ipairs(vim.diagnostic.get(nil)) do
      items[#items + 1] = {
        name = name_of(it.bufnr or 0),
        lnum = it.lnum + 1,
        text = it.message,
        severity = severities[
          it.severity --[[@as integer?]] or 1
        ] or '',
      }
    end
    return listed(items)
  end,
  quickfix = function()
    local items = {} ---@type { lnum: integer, text: string, name: string, severity: string }[]
    for _, it in ipairs(vim.fn.getqflist()) do
      local name = it.bufnr > 0 and name_of(it.bufnr) or ''
      items[#items + 1] = { name = name, lnum = it.lnum, text = it.text, severity = '' }
    end
    return listed(items)
  end,
}

--- What a prompt may mention besides files, and what that stands for.
---@type table<string, string>
M.kinds = {
  buffer = 'the file you look at',
  buffers = 'the open files',
  changes = 'what was changed: not looked at yet, or by the last run',
  diagnostics = 'errors and warnings',
  diff = 'what differs from the last git commit',
  quickfix = 'the quickfix list',
  selection = 'the lines you selected last',
}

--- Their names.
---@return string[]
function M.names()
  local names = vim.tbl_keys(M.kinds)
  table.sort(names)
  return names
end

--- Collects what `@buffer`, `@selection` and the like in a text stand for.
---@param text string
---@return { name: string, text: string }[]
function M.gather(text)
  local found, seen = {}, {} ---@type { name: string, text: string }[], table<string, boolean>
  for word in (' ' .. text):gmatch('%s@(%w+)%f[^%w]') do
    local collect = kinds[word]
    if collect and not seen[word] then
      seen[word] = true
      local ok, value = pcall(collect)
      if ok and value then
        found[#found + 1] = { name = word, text = capped(value) }
      end
    end
  end
  return found
end

return M
