---Lines as chunks of virtual text: control characters made visible, tabs expanded, changed words and syntax coloured.

local options = require('pi.review.options')

---@alias pi.review.Chunk [string, string[]]

---@class (exact) pi.review.Paint
---@field base string group of the whole line
---@field word string group of changed parts
---@field extra string? group on top of the base
---@field mark [string, string]? brackets around changed parts where there is no colour
---@field prefix string? text before the line where there is no colour
---@field tabstop integer
---@field width integer? lines are padded to this many cells
---@field wrap integer? lines are broken at this many cells
---@field syntax ([integer, integer, string])[]? byte ranges with their groups, in order

local M = {}

---Widest line drawn, in cells.
local MAX_CELLS = 2000

---@param base 'add'|'delete'
---@param buf integer
---@return pi.review.Paint
function M.paint(base, buf)
  local no_colour = options.no_colour()
  local add = base == 'add'
  return {
    base = add and 'PiReviewAdd' or 'PiReviewDelete',
    word = add and 'PiReviewAddWord' or 'PiReviewDeleteWord',
    mark = no_colour and (add and { '{+', '+}' } or { '[-', '-]' }) or nil,
    prefix = no_colour and (add and '+ ' or '- ') or nil,
    tabstop = math.max(1, vim.bo[buf].tabstop),
  }
end

---Makes text printable; `cell` is where it starts. Returns the text and where it ends.
---@param text string
---@param cell integer
---@param tabstop integer
---@return string shown
---@return integer cell
local function show(text, cell, tabstop)
  if not text:find('[%c\128-\255]') then
    return text, cell + #text
  end
  local parts = {} ---@type string[]
  for piece, control in text:gmatch('([^%c]*)(%c?)') do
    parts[#parts + 1] = piece
    cell = cell + vim.fn.strdisplaywidth(piece)
    if control ~= '' then
      local shown = control == '\t' and (' '):rep(tabstop - cell % tabstop)
        or (control == '\127' and '^?')
        or '^' .. string.char(control:byte() + 64)
      parts[#parts + 1] = shown
      cell = cell + #shown
    end
  end
  return table.concat(parts), cell
end

---Cuts a line into pieces that have the same groups throughout.
---@param line pi.review.Line
---@param paint pi.review.Paint
---@return {from: integer, to: integer, word: boolean, syntax: string?}[]
local function pieces(line, paint)
  local cuts = { [0] = true, [#line.t] = true } ---@type table<integer, true>
  local function cut(at)
    cuts[math.max(0, math.min(at, #line.t))] = true
  end
  local words, syntax = line.w or {}, paint.syntax or {}
  for _, at in ipairs(words) do
    cut(at)
  end
  for _, range in ipairs(syntax) do
    cut(range[1])
    cut(range[2])
  end
  local at = vim.tbl_keys(cuts)
  table.sort(at)
  local out = {}
  for i = 1, #at - 1 do
    local from, to = at[i], at[i + 1]
    local piece = { from = from, to = to, word = false }
    for w = 1, #words - 1, 2 do
      piece.word = piece.word or (words[w] <= from and to <= words[w + 1])
    end
    for _, range in ipairs(syntax) do
      if range[1] <= from and to <= range[2] then
        piece.syntax = range[3]
      end
    end
    out[#out + 1] = piece
  end
  return out
end

---@param paint pi.review.Paint
---@param piece {word: boolean, syntax: string?}
---@return string[]
local function groups(paint, piece)
  local list = { paint.base }
  list[#list + 1] = piece.syntax
  list[#list + 1] = paint.extra
  if piece.word then
    list[#list + 1] = paint.word
  end
  return list
end

---Breaks chunks into lines of at most `width` cells, at character borders.
---@param chunks pi.review.Chunk[]
---@param width integer
---@return pi.review.Chunk[][]
local function wrapped(chunks, width)
  local lines, line, cell = {}, {}, 0 ---@type pi.review.Chunk[][], pi.review.Chunk[], integer
  for _, chunk in ipairs(chunks) do
    local rest = chunk[1]
    while rest ~= '' do
      local take, room = rest, width - cell
      if vim.fn.strdisplaywidth(rest) > room then
        take = ''
        for _, char in ipairs(vim.fn.split(rest, '\\zs')) do
          if vim.fn.strdisplaywidth(take .. char) > room then
            break
          end
          take = take .. char
        end
      end
      if take == '' and cell == 0 then
        take = vim.fn.strcharpart(rest, 0, 1)
      end
      if take ~= '' then
        line[#line + 1] = { take, chunk[2] }
        cell = cell + vim.fn.strdisplaywidth(take)
      end
      rest = rest:sub(#take + 1)
      if rest ~= '' then
        lines[#lines + 1] = line
        line, cell = {}, 0
      end
    end
  end
  lines[#lines + 1] = line
  return lines
end

---@param line pi.review.Chunk[]
---@param paint pi.review.Paint
---@param width integer
local function pad(line, paint, width)
  local cells = 0
  for _, chunk in ipairs(line) do
    cells = cells + vim.fn.strdisplaywidth(chunk[1])
  end
  if cells < width then
    line[#line + 1] = { (' '):rep(width - cells), { paint.base } }
  end
end

---Turns one line of a file into virtual lines (several when it is wrapped).
---@param line pi.review.Line
---@param paint pi.review.Paint
---@return pi.review.Chunk[][]
function M.virtual(line, paint)
  local chunks, cell = {}, 0 ---@type pi.review.Chunk[], integer
  if paint.prefix then
    chunks[1], cell = { paint.prefix, { paint.base } }, #paint.prefix
  end
  local offset = cell
  for _, piece in ipairs(pieces(line, paint)) do
    local shown
    shown, cell = show(line.t:sub(piece.from + 1, piece.to), cell - offset, paint.tabstop)
    cell = cell + offset
    if piece.word and paint.mark then
      shown = paint.mark[1] .. shown .. paint.mark[2]
    end
    if cell > MAX_CELLS then
      shown = vim.fn.strcharpart(shown, 0, math.max(0, MAX_CELLS - (cell - #shown))) .. '…'
      chunks[#chunks + 1] = { shown, groups(paint, piece) }
      break
    end
    chunks[#chunks + 1] = { shown, groups(paint, piece) }
  end
  local lines = paint.wrap and wrapped(chunks, math.max(10, paint.wrap)) or { chunks }
  local width = paint.wrap or paint.width
  for _, out in ipairs(lines) do
    if width then
      pad(out, paint, width)
    end
    if #out == 0 then
      out[1] = { ' ', { paint.base } }
    end
  end
  return lines
end

---Goes over the changed parts of a line, as byte columns.
---@param line pi.review.Line
---@return fun(): integer?, integer?
function M.words(line)
  local columns, at = line.w or {}, -1
  return function()
    at = at + 2
    return columns[at], columns[at + 1]
  end
end

---Cuts text to a number of cells, with an ellipsis.
---@param text string
---@param cells integer
---@return string
function M.cut(text, cells)
  text = show(text, 0, 2)
  if vim.fn.strdisplaywidth(text) <= cells then
    return text
  end
  local more = options.ascii() and '...' or '…'
  local kept = vim.fn.strcharpart(text, 0, math.max(0, cells - #more))
  while kept ~= '' and vim.fn.strdisplaywidth(kept) > cells - vim.fn.strdisplaywidth(more) do
    kept = vim.fn.strcharpart(kept, 0, vim.fn.strchars(kept) - 1)
  end
  return kept .. more
end

---Returns text with control characters made visible.
---@param text string
---@return string
function M.printable(text)
  return (show(text, 0, 2))
end

return M
