--- Draws rows of the tree: only those that look different from what stands there.
local buffer = require('pi.buffer')
local config = require('pi.config')
local views = require('pi.tree.view')

local M = {}

M.ns = vim.api.nvim_create_namespace('pi.tree')

---@param list any[]
---@return pi.tree.Row
local function unpack_row(list)
  local function some(value)
    return value ~= vim.NIL and value or nil
  end
  return {
    id = list[1],
    prefix = list[2],
    kind = list[3],
    label = some(list[4]),
    text = list[5],
    on_path = list[6],
    is_leaf = list[7],
    folded = list[8],
    foldable = list[9],
    hidden = list[10],
    time = some(list[11]),
    label_time = some(list[12]),
  }
end

--- Byte ranges of a text that a search found.
---@param text string
---@param query string
---@return [integer, integer][]
local function matches(text, query)
  local found = {} ---@type [integer, integer][]
  local lower = vim.fn.tolower(text)
  -- Lower case of another length has its letters elsewhere.
  if query == '' or #lower ~= #text then
    return found
  end
  for _, word in ipairs(vim.split(vim.fn.tolower(query), '%s+', { trimempty = true })) do
    local from, to = lower:find(word, 1, true)
    while from and to do
      found[#found + 1] = { from - 1, to }
      from, to = lower:find(word, to + 1, true)
    end
  end
  return found
end

---@param row pi.tree.Row
---@param view pi.tree.View
---@param here boolean
---@return string line
---@return [integer, integer, string][] marks
local function render(row, view, here)
  local line, marks = '', {} ---@type string, [integer, integer, string][]
  local function add(text, group)
    if text ~= '' and group then
      marks[#marks + 1] = { #line, #line + #text, group }
    end
    line = line .. text
  end
  add(' ' .. row.prefix, row.folded and 'PiTreeFold' or 'PiTreeGuide')
  add(row.on_path and (config.ascii() and '* ' or '• ') or '  ', 'PiTreePath')
  local from = #line
  if row.label then
    local time = view.show_times
        and row.label_time
        and os.date(' %d %b %H:%M', math.floor(row.label_time / 1000))
      or ''
    add('[' .. row.label .. time .. '] ', 'PiTreeLabel')
  end
  local role, rest = row.text:match('^(%[?[%w ]+%]?: )(.*)$')
  if not role then
    role, rest = '', row.text
  end
  add(role, 'PiTreeRole')
  add(rest or '', here and 'PiTreeLeaf' or (not row.on_path and 'Comment' or nil))
  for _, match in ipairs(matches(line:sub(from + 1), view.query)) do
    marks[#marks + 1] = { from + match[1], from + match[2], 'PiTreeMatch' }
  end
  return line, marks
end

---@param view pi.tree.View
function M.head(view)
  local name = (require('pi.session').info(view.session) or {}).name or ''
  local count = view.len == view.total and tostring(view.len) or (view.len .. '/' .. view.total)
  -- In a narrow window what hides rows has to be seen first.
  local head = view.query ~= '' and (' Rows with "%s"'):format(view.query)
    or ' Session tree' .. (name ~= '' and ('  ' .. name) or '')
  local rest = ('  %s  %s'):format(view.filter, count)
  buffer.set(view.buf, { head .. rest }, 0, 1)
  vim.api.nvim_buf_clear_namespace(view.buf, M.ns, 0, 1)
  vim.api.nvim_buf_set_extmark(view.buf, M.ns, 0, 0, {
    end_col = #head,
    hl_group = 'PiUser',
  })
  vim.api.nvim_buf_set_extmark(view.buf, M.ns, 0, #head, {
    end_col = #head + #rest,
    hl_group = 'Comment',
  })
end

--- What stands at the right edge, so that a long text does not push it out of sight.
---@param view pi.tree.View
---@param number integer
---@param row pi.tree.Row
---@return [string, string]?
local function note(view, number, row)
  if views.is_here(view, number) then
    return { ' <- you are here ', 'PiTreeLeaf' }
  elseif number == view.leaf then
    -- The entry itself has no row with this filter.
    return { ' <- you are below ', 'PiTreeLeaf' }
  elseif row.hidden > 0 then
    return { (' %d hidden '):format(row.hidden), 'PiTreeFold' }
  end
end

---@param view pi.tree.View
---@param number integer
---@param line string
---@param marks [integer, integer, string][]
local function draw_row(view, number, line, marks)
  local at = views.HEAD + number
  buffer.set(view.buf, { line }, at, at + 1)
  vim.api.nvim_buf_clear_namespace(view.buf, M.ns, at, at + 1)
  local row = view.rows[number]
  local edge = row and note(view, number, row)
  if edge then
    vim.api.nvim_buf_set_extmark(view.buf, M.ns, at, 0, {
      virt_text = { edge },
      virt_text_pos = 'right_align',
    })
  end
  for i, mark in ipairs(marks) do
    vim.api.nvim_buf_set_extmark(view.buf, M.ns, at, mark[1], {
      end_col = mark[2],
      hl_group = mark[3],
      priority = 4096 + i,
    })
  end
end

--- Draws rows from a number on.
---@param view pi.tree.View
---@param first integer
---@param list any[][]
function M.rows(view, first, list)
  for i, it in ipairs(list) do
    local number = first + i - 1
    local row = unpack_row(it)
    view.rows[number] = row
    local line, marks = render(row, view, number == view.leaf)
    local look = line .. vim.inspect(marks) .. (note(view, number, row) or { '' })[1]
    if view.drawn[number] ~= look then
      view.drawn[number] = look
      draw_row(view, number, line, marks)
    end
  end
end

--- Gives the buffer as many lines as there are rows. With `clean` all are empty afterwards: the rows are other ones now.
---@param view pi.tree.View
---@param clean boolean
function M.size(view, clean)
  local want = math.max(view.len, 1)
  local have = vim.api.nvim_buf_line_count(view.buf) - views.HEAD
  if clean then
    view.drawn = {}
    vim.api.nvim_buf_clear_namespace(view.buf, M.ns, views.HEAD, -1)
    have = 0
  end
  if have < want then
    local blanks = {} ---@type string[]
    for i = 1, want - have do
      blanks[i] = ''
    end
    buffer.set(view.buf, blanks, views.HEAD + have, -1)
  elseif have > want then
    for number = want, have - 1 do
      view.drawn[number] = nil
    end
    buffer.set(view.buf, {}, views.HEAD + want, -1)
  end
  if view.len == 0 then
    view.drawn = {}
    local line = view.query ~= '' and '   nothing here holds these words; gs changes them'
      or '   nothing to show with this filter; F goes to the next'
    buffer.set(view.buf, { line }, views.HEAD, -1)
    vim.api.nvim_buf_set_extmark(view.buf, M.ns, views.HEAD, 0, {
      end_col = #line,
      hl_group = 'Comment',
    })
  end
end

return M
