---Syntax colours for new lines: the proposed text is parsed once, in the background, when it is small enough.

local api = vim.api

---@type table<string, fun(...): any>
local uv = vim.uv

local M = {}

---Largest text that is parsed.
local MAX_BYTES = 200 * 1024
---How long one parse may take; a slower one is given up and the lines stay plain.
local BUDGET_MS = 20

---@alias pi.review.SyntaxLines table<integer, [integer, integer, string][]>

---@class (exact) pi.review.SyntaxEntry
---@field version integer
---@field lines pi.review.SyntaxLines

---@type table<integer, pi.review.SyntaxEntry> by hunk
local cache = {}

---The colours of a hunk's new lines by their number, if they are known.
---@param hunk integer
---@return pi.review.SyntaxLines?
function M.of(hunk)
  return cache[hunk] and cache[hunk].lines
end

---The text as it would be with every open hunk applied, and where each hunk's new lines begin in it.
---@param buf integer
---@param hunks pi.review.Hunk[]
---@return string[] lines
---@return table<integer, integer> rows
local function applied(buf, hunks)
  local old = api.nvim_buf_get_lines(buf, 0, -1, false)
  local lines, rows, at = {}, {}, 0 ---@type string[], table<integer, integer>, integer
  for _, hunk in ipairs(hunks) do
    for row = at, hunk.row - 1 do
      lines[#lines + 1] = old[row + 1] or ''
    end
    rows[hunk.id] = #lines
    for _, line in ipairs(hunk.new) do
      lines[#lines + 1] = line.t
    end
    at = math.max(at, hunk.row + hunk.count)
  end
  vim.list_extend(lines, old, at + 1)
  return lines, rows
end

---@param source string
---@param lang string
---@return table<integer, [integer, integer, string][]>? by row
local function colours(source, lang)
  local query = vim.treesitter.query.get(lang, 'highlights')
  if not query then
    return nil
  end
  local parser = vim.treesitter.get_string_parser(source, lang)
  local tree = assert((parser:parse() or {})[1])
  local by_row = {} ---@type table<integer, [integer, integer, string][]>
  local deadline = uv.hrtime() + BUDGET_MS * 1e6
  for id, node in query:iter_captures(tree:root(), source) do
    if uv.hrtime() > deadline then
      return nil
    end
    local name = query.captures[id] or '_'
    local row, from, end_row, to = node:range()
    if row == end_row and name:sub(1, 1) ~= '_' and name ~= 'spell' then
      by_row[row] = by_row[row] or {}
      table.insert(by_row[row], { from, to, '@' .. name .. '.' .. lang })
    end
  end
  return by_row
end

---@param buf integer
---@return string?
local function language(buf)
  local lang = vim.treesitter.language.get_lang(vim.bo[buf].filetype)
  -- A language without an installed parser is an ordinary case and `add` reports it in different ways.
  local ok, added = pcall(vim.treesitter.language.add, lang or '')
  return lang and ok and added and lang or nil
end

---@param proposal pi.review.Proposal
---@return boolean
local function misses_colours(proposal)
  for _, hunk in ipairs(proposal.hunks) do
    if #hunk.new > 0 and not cache[hunk.id] then
      return true
    end
  end
  return false
end

---Colours the new lines of a proposal in the background and calls `done` when there is something new to draw.
---@param buf integer
---@param proposal pi.review.Proposal
---@param done fun()
function M.request(buf, proposal, done)
  local size = api.nvim_buf_get_offset(buf, api.nvim_buf_line_count(buf))
  if size > MAX_BYTES or not misses_colours(proposal) then
    return
  end
  local lang = language(buf)
  if not lang then
    return
  end
  vim.schedule(function()
    if not api.nvim_buf_is_loaded(buf) then
      return
    end
    local lines, rows = applied(buf, proposal.hunks)
    -- Queries of other plugins may be broken for this parser; plain lines are good enough then.
    local ok, by_row = pcall(colours, table.concat(lines, '\n'), lang)
    for _, hunk in ipairs(proposal.hunks) do
      local mine = {} ---@type pi.review.SyntaxLines
      for i = 1, #hunk.new do
        mine[i] = ok and by_row and by_row[rows[hunk.id] + i - 1] or nil
      end
      cache[hunk.id] = { version = proposal.version, lines = mine }
    end
    if ok and by_row then
      done()
    end
  end)
end

---Forgets the colours of hunks whose lines are new, so that all are coloured again together.
---@param before pi.review.Proposal
---@param now pi.review.Proposal
function M.forget_changed(before, now)
  for _, hunk in ipairs(now.hunks) do
    if not hunk.same then
      M.forget(before)
      return
    end
  end
end

---Forgets the colours of a proposal.
---@param proposal pi.review.Proposal
function M.forget(proposal)
  for _, hunk in ipairs(proposal.hunks) do
    cache[hunk.id] = nil
  end
end

return M
