--- What the list of sessions shows: rows, their order, and how they are drawn.
local buffer = require('pi.buffer')

local M = {}

---@class pi.sessions.Row
---@field id string
---@field path string?
---@field name string?
---@field first_message string? absent while the file was not read yet
---@field cwd string
---@field messages integer? absent while the file was not read yet
---@field modified_ms integer?
---@field created_ms integer?
---@field cost number?
---@field live 'run'|'ask'|'idle'|'err'|nil

---@alias pi.sessions.Sort 'recent'|'created'|'name'

---@class pi.sessions.State
---@field buf integer?
---@field rows pi.sessions.Row[]
---@field all boolean
---@field named boolean
---@field live boolean
---@field query string
---@field sort pi.sessions.Sort
---@field reading boolean more rows are on their way
---@field stream integer number of the last request
---@field preview boolean

---@type pi.sessions.State
M.state = {
  rows = {},
  all = false,
  named = false,
  live = false,
  query = '',
  sort = 'recent',
  reading = false,
  stream = 0,
  preview = false,
}

M.SORTS = { 'recent', 'created', 'name' }
M.HEAD = 1

local ns = vim.api.nvim_create_namespace('pi.sessions')

---@param row pi.sessions.Row
---@return string
function M.title(row)
  if row.name or row.first_message then
    return row.name or row.first_message or ''
  end
  -- Of one that runs everything is known: it has no file yet.
  return row.live and '(no messages)' or '...'
end

---@param ms integer?
---@return string
local function age(ms)
  if not ms then
    return ''
  end
  local seconds = math.max(0, os.time() - math.floor(ms / 1000))
  if seconds < 60 then
    return 'now'
  elseif seconds < 3600 then
    return math.floor(seconds / 60) .. 'm'
  elseif seconds < 86400 then
    return math.floor(seconds / 3600) .. 'h'
  elseif seconds < 86400 * 99 then
    return math.floor(seconds / 86400) .. 'd'
  end
  return tostring(os.date('%b %y', math.floor(ms / 1000)))
end

--- Cuts a text to a width and fills it up; `tail` keeps the end, which tells paths apart.
---@param text string
---@param width integer
---@param tail boolean?
---@return string
local function fit(text, width, tail)
  text = text:gsub('%s+', ' ')
  if vim.fn.strdisplaywidth(text) > width then
    local mark = require('pi.config').ascii() and '~' or '…'
    while text ~= '' and vim.fn.strdisplaywidth(text) > width - 1 do
      local chars = vim.fn.strchars(text)
      text = tail and vim.fn.strcharpart(text, 1) or vim.fn.strcharpart(text, 0, chars - 1)
    end
    text = tail and mark .. text or text .. mark
  end
  return text .. (' '):rep(width - vim.fn.strdisplaywidth(text))
end

---@param rows pi.sessions.Row[]
---@param sort pi.sessions.Sort
local function order(rows, sort)
  local place = {} ---@type table<pi.sessions.Row, integer>
  for i, row in ipairs(rows) do
    place[row] = i
  end
  table.sort(rows, function(a, b)
    if (a.live ~= nil) ~= (b.live ~= nil) then
      return a.live ~= nil
    end
    if sort == 'name' then
      local left, right = M.title(a):lower(), M.title(b):lower()
      if left ~= right then
        return left < right
      end
    elseif sort == 'created' and a.created_ms ~= b.created_ms then
      return (a.created_ms or 0) > (b.created_ms or 0)
    end
    return place[a] < place[b]
  end)
end

--- Takes rows in as the backend tells them.
---@param given table[]
function M.take(given)
  local state = M.state
  local rows = {} ---@type pi.sessions.Row[]
  for _, row in ipairs(given) do
    for key, value in pairs(row) do
      if value == vim.NIL then
        row[key] = nil
      end
    end
    if not state.live or row.live then
      rows[#rows + 1] = row
    end
  end
  order(rows, state.sort)
  state.rows = rows
end

---@return string
local function head()
  local state = M.state
  local parts = { ('%d'):format(#state.rows) }
  parts[#parts + 1] = state.all and 'in all directories'
    or 'in ' .. vim.fn.fnamemodify(require('pi.backend').cwd(), ':~')
  if state.live then
    parts[#parts + 1] = 'running ones only'
  end
  if state.named then
    parts[#parts + 1] = 'named ones only'
  end
  if state.query ~= '' then
    parts[#parts + 1] = 'with "' .. state.query .. '"'
  end
  if state.sort ~= 'recent' then
    parts[#parts + 1] = 'by ' .. state.sort
  end
  if state.reading then
    parts[#parts + 1] = 'reading ...'
  end
  return table.concat(parts, ', ')
end

---@return string
local function nothing()
  local state = M.state
  if state.reading then
    return '   reading ...'
  elseif state.query ~= '' or state.named or state.live then
    return '   no session is like this; / N and w change what is shown'
  elseif state.all then
    return '   no sessions yet; `:Pi new` begins one'
  end
  return '   no sessions of this directory yet; w shows those of all'
end

---@class pi.sessions.Widths
---@field title integer bytes
---@field line integer bytes

local groups = { run = 'PiStatusRun', ask = 'PiStatusAsk', err = 'PiStatusErr', idle = 'PiTime' }

---@param buf integer
---@param at integer
---@param row pi.sessions.Row
---@param widths pi.sessions.Widths
local function colour(buf, at, row, widths)
  local mine = row.id == vim.t.pi_session
  local function mark(from, to, group)
    vim.api.nvim_buf_set_extmark(buf, ns, at, from, { end_col = to, hl_group = group })
  end
  if row.live then
    mark(1, 1 + #row.live, groups[row.live])
  end
  if mine or row.name then
    mark(6, 6 + widths.title, mine and 'PiTreeLeaf' or 'PiUser')
  end
  mark(6 + widths.title, widths.line, 'Comment')
end

--- Columns of what stands behind the title, and in a narrow window.
local NUMBERS, AGE = 26, 10
local NARROW = 72

---@param row pi.sessions.Row
---@param narrow boolean
---@return string
local function numbers(row, narrow)
  if narrow then
    return (' %6s'):format(age(row.modified_ms))
  end
  local cost = row.cost and row.cost >= 0.005 and ('$%.2f'):format(row.cost) or ''
  local count = row.messages and ('%4d msg'):format(row.messages) or '        '
  return ('%s %6s %7s'):format(count, age(row.modified_ms), cost)
end

---@type string? the session the person looks at
local at
---@type integer? the line the cursor was put on
local placed

--- Draws everything; the cursor stays on its session.
function M.draw()
  local state = M.state
  local buf = state.buf
  if not buf or not vim.api.nvim_buf_is_valid(buf) then
    return
  end
  local win = vim.fn.win_findbuf(buf)[1]
  local room = win and vim.api.nvim_win_get_width(win) or vim.o.columns
  local where = state.all and room >= 80 and 28 or 0
  local narrow = room < NARROW
  local width = math.max(16, room - 6 - (narrow and AGE or NUMBERS) - where)
  local lines = { ' Sessions  ' .. head() } ---@type string[]
  local marks = {} ---@type pi.sessions.Widths[]
  for i, row in ipairs(state.rows) do
    local title = fit(M.title(row), width)
    local place = where > 0 and fit(vim.fn.fnamemodify(row.cwd, ':~'), where - 2, true) .. '  '
      or ''
    local line = (' %-4s %s  %s%s'):format(row.live or '', title, place, numbers(row, narrow))
    lines[#lines + 1] = line
    marks[i] = { title = #title, line = #line }
  end
  if #state.rows == 0 then
    lines[2] = nothing()
  end
  local kept = win and vim.api.nvim_win_get_cursor(win) or nil
  buffer.set(buf, lines)
  vim.api.nvim_buf_clear_namespace(buf, ns, 0, -1)
  vim.api.nvim_buf_set_extmark(buf, ns, 0, 0, {
    end_col = 9,
    hl_group = 'PiUser',
    virt_text = { { ' ? keys ', 'PiTime' } },
    virt_text_pos = 'right_align',
  })
  vim.api.nvim_buf_set_extmark(buf, ns, 0, 9, { end_col = #lines[1], hl_group = 'Comment' })
  for i, row in ipairs(state.rows) do
    colour(buf, M.HEAD + i - 1, row, marks[i])
  end
  if win and kept then
    M.put_cursor(win, at and kept[1] or 1)
  end
end

--- Puts the cursor on its session, or on the row it stood on.
---@param win integer
---@param line integer
function M.put_cursor(win, line)
  for i, row in ipairs(M.state.rows) do
    if row.id == at then
      line = M.HEAD + i
      break
    end
  end
  local last = vim.api.nvim_buf_line_count(vim.api.nvim_win_get_buf(win))
  placed = math.max(1, math.min(math.max(line, 1 + M.HEAD), last))
  vim.api.nvim_win_set_cursor(win, { placed, 0 })
end

--- The row under the cursor of the list.
---@return pi.sessions.Row?
function M.current()
  local win = vim.fn.win_findbuf(M.state.buf or -1)[1]
  return win and M.state.rows[vim.api.nvim_win_get_cursor(win)[1] - M.HEAD] or nil
end

--- Remembers the session under the cursor, once the person has moved there.
function M.look()
  local row = M.current()
  if row and vim.api.nvim_win_get_cursor(0)[1] ~= placed then
    at, placed = row.id, nil
  end
end

--- Forgets where the cursor was: the list is opened anew.
function M.begin()
  at, placed = nil, nil
end

return M
