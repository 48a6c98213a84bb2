--- The transcript: draws blocks as the backend sends them. Holds no text of its own but what stands in the buffer.
local buffer = require('pi.buffer')
local config = require('pi.config')
local spinner = require('pi.spinner')

local M = {}

---@class pi.chat.Block
---@field id string
---@field kind string
---@field first integer 0-based row of its header
---@field count integer lines
---@field gap integer empty lines above it
---@field closed boolean wish of the backend for its fold
---@field entry string?
---@field running integer? since when (Unix ms)
---@field until_ms integer? until when
---@field target [string, integer]?
---@field sign integer? extmark

---@class pi.chat.View
---@field session string
---@field buf integer
---@field blocks pi.chat.Block[]
---@field index table<string, integer>
---@field top integer rows above the first block
---@field earlier integer
---@field unseen integer lines that came while the person looked elsewhere
---@field drawn boolean

---@type table<string, pi.chat.View>
local views = {}

local ns = vim.api.nvim_create_namespace('pi.chat')
local signs_ns = vim.api.nvim_create_namespace('pi.chat.signs')

local looks = {
  user = { sign = '❯', ascii = '>', group = 'PiUser' },
  steer = { sign = '»', ascii = '>>', group = 'PiUser' },
  assistant = { sign = '●', ascii = '*', group = 'PiAssistant' },
  thinking = { sign = '~', ascii = '~', group = 'PiThinking', body = 'PiThinking' },
  tool = { sign = '▾', ascii = 'v', closed = '▸', ascii_closed = '>', group = 'PiTool' },
  summary = { sign = '=', ascii = '=', group = 'PiCompaction', body = 'PiThinking' },
  error = { sign = '!', ascii = '!', group = 'PiError', body = 'PiError' },
  note = { sign = 'i', ascii = 'i', group = 'PiNotice', body = 'PiNotice' },
  empty = { sign = ' ', ascii = ' ', group = 'PiThinking', body = 'PiThinking' },
}

---@param view pi.chat.View
---@return integer[]
local function windows(view)
  return vim.fn.win_findbuf(view.buf)
end

--- The buffer of a session's chat.
---@param session string
---@return integer buf
function M.buffer(session)
  local view = views[session]
  if view and vim.api.nvim_buf_is_valid(view.buf) then
    return view.buf
  end
  local buf = buffer.scratch('pi://chat/' .. buffer.short(session), 'chat', 'pi-chat', session)
  views[session] = {
    session = session,
    buf = buf,
    blocks = {},
    index = {},
    top = 0,
    earlier = 0,
    unseen = 0,
    drawn = false,
  }
  vim.bo[buf].modifiable = false
  require('pi.chat_keys').attach(buf)
  vim.api.nvim_create_autocmd('BufWinEnter', {
    buffer = buf,
    callback = function()
      M.shown(session, vim.api.nvim_get_current_win())
    end,
  })
  vim.api.nvim_create_autocmd('BufWipeout', {
    buffer = buf,
    callback = function()
      views[session] = nil
    end,
  })
  return buf
end

---@param buf integer?
---@return pi.chat.View?
function M.view(buf)
  buf = (buf == nil or buf == 0) and vim.api.nvim_get_current_buf() or buf
  for _, view in pairs(views) do
    if view.buf == buf then
      return view
    end
  end
end

--- The block a row belongs to (its gap counts as part of the one below), and its place.
---@param view pi.chat.View
---@param row integer 0-based
---@return pi.chat.Block?
---@return integer? place
function M.block_at(view, row)
  local low, high = 1, #view.blocks
  while low <= high do
    local middle = math.floor((low + high) / 2)
    local block = view.blocks[middle] ---@type pi.chat.Block
    if row < block.first - block.gap then
      high = middle - 1
    elseif row >= block.first + block.count then
      low = middle + 1
    else
      return block, middle
    end
  end
end

---@param view pi.chat.View
---@param block pi.chat.Block
---@param win integer?
local function draw_sign(view, block, win)
  local look = looks[block.kind] or looks.note
  local ascii = config.ascii()
  local sign = ascii and look.ascii or look.sign
  if look.closed and block.count > 1 then
    local closed = block.closed
    if win then
      closed = vim.api.nvim_win_call(win, function()
        return vim.fn.foldclosed(block.first + 1) >= 0
      end)
    end
    if closed then
      sign = ascii and look.ascii_closed or look.closed
    end
  end
  -- Moved by its id: edits push marks around.
  block.sign = vim.api.nvim_buf_set_extmark(view.buf, signs_ns, block.first, 0, {
    id = block.sign,
    sign_text = sign,
    sign_hl_group = look.group,
    priority = 20,
  })
end
M.draw_sign = draw_sign

---@param view pi.chat.View
---@param block pi.chat.Block
---@param from integer first line of the block that changed
---@param marks [integer, integer, integer?, string][]
local function decorate(view, block, from, marks)
  local look = looks[block.kind] or looks.note
  local last = block.first + block.count
  vim.api.nvim_buf_clear_namespace(view.buf, ns, block.first + from, last)
  for _, mark in ipairs(marks) do
    local row = block.first + mark[1]
    local stop = mark[3]
    local whole = stop == nil or stop == vim.NIL
    -- A mark beyond its line is left out rather than failing the rest.
    local line = whole and vim.api.nvim_buf_get_lines(view.buf, row, row + 1, false)[1] or ''
    -- A range into the next line would go when that line is drawn anew; changed lines are coloured to the edge instead.
    local edge = whole and vim.startswith(mark[4], 'PiReview')
    pcall(vim.api.nvim_buf_set_extmark, view.buf, ns, row, mark[2], {
      end_row = not edge and row or nil,
      end_col = not edge and (whole and #line or stop) or nil,
      hl_group = not edge and mark[4] or nil,
      line_hl_group = edge and mark[4] or nil,
      priority = 150,
      strict = false,
    })
  end
  if from == 0 then
    if #marks == 0 then
      vim.api.nvim_buf_set_extmark(view.buf, ns, block.first, 0, {
        line_hl_group = look.group,
        priority = 140,
      })
    end
    draw_sign(view, block)
  end
  if look.body and block.count > 1 then
    for row = block.first + math.max(from, 1), last - 1 do
      vim.api.nvim_buf_set_extmark(
        view.buf,
        ns,
        row,
        0,
        { line_hl_group = look.body, priority = 120 }
      )
    end
  end
  if block.kind == 'tool' then
    M.hide_fences(view, block, from)
  end
  require('pi.markdown').touch(view, block)
end

--- Fences protect output from Markdown; they need not be seen.
---@param view pi.chat.View
---@param block pi.chat.Block
---@param from integer
function M.hide_fences(view, block, from)
  local first = block.first + math.max(from, 1)
  local lines = vim.api.nvim_buf_get_lines(view.buf, first, block.first + block.count, false)
  for i, line in ipairs(lines) do
    if line:match('^```+%w*$') then
      vim.api.nvim_buf_set_extmark(view.buf, ns, first + i - 1, 0, { conceal_lines = '' })
    end
  end
end

--- Creates or moves the fold of a block in one window.
---@param win integer
---@param block pi.chat.Block
local function fold(win, block)
  if block.count < 2 or block.kind == 'user' or block.kind == 'assistant' then
    return
  end
  vim.api.nvim_win_call(win, function()
    local row = block.first + 1
    if vim.fn.foldlevel(row) == 0 then
      vim.cmd(('silent! %d,%dfold'):format(row, row + block.count - 1))
    end
    vim.cmd(('silent! %dfold%s'):format(row, block.closed and 'close' or 'open'))
  end)
end

---@param view pi.chat.View
---@param block pi.chat.Block
local function fold_everywhere(view, block)
  for _, win in ipairs(windows(view)) do
    fold(win, block)
  end
end

--- Whether nothing was said yet: the chat holds the words for a beginner, which are read from their top.
---@param view pi.chat.View
---@return boolean
local function only_greets(view)
  local first = view.blocks[1]
  return first ~= nil and first.kind == 'empty'
end

--- Where a window that follows puts its cursor.
---@param view pi.chat.View
---@return integer
local function resting_line(view)
  return only_greets(view) and 1 or vim.api.nvim_buf_line_count(view.buf)
end

--- Called when a window begins to show a chat: folds belong to windows.
---@param session string
---@param win integer
function M.shown(session, win)
  local view = views[session]
  if not view or not vim.api.nvim_win_is_valid(win) then
    return
  end
  if vim.wo[win].foldmethod == 'manual' then
    vim.api.nvim_win_call(win, function()
      vim.cmd('silent! normal! zE')
    end)
    for _, block in ipairs(view.blocks) do
      fold(win, block)
    end
  end
  vim.api.nvim_win_set_cursor(win, { resting_line(view), 0 })
  view.unseen = 0
  if not view.drawn then
    require('pi.rpc').notify('chat.redraw', { session = session })
  end
end

--- Windows that follow the end: those whose cursor is there, and unfocused ones that show it.
---@param view pi.chat.View
---@return integer[]
local function followers(view)
  if only_greets(view) then
    return windows(view)
  end
  local last = vim.api.nvim_buf_line_count(view.buf)
  local current = vim.api.nvim_get_current_win()
  return vim.tbl_filter(function(win)
    if vim.api.nvim_win_get_cursor(win)[1] >= last then
      return true
    end
    return win ~= current and vim.fn.line('w$', win) >= last
  end, windows(view))
end

---@param view pi.chat.View
---@param following integer[]
---@param before integer line count before
local function follow(view, following, before)
  local last = vim.api.nvim_buf_line_count(view.buf)
  local line = resting_line(view)
  for _, win in ipairs(following) do
    if vim.api.nvim_win_get_cursor(win)[1] ~= line then
      vim.api.nvim_win_set_cursor(win, { line, 0 })
    end
  end
  local all = #windows(view)
  if all > #following and last > before then
    view.unseen = view.unseen + last - before
    require('pi.status').redraw()
  elseif all == #following and view.unseen > 0 then
    view.unseen = 0
    require('pi.status').redraw()
  end
end

---@param before pi.chat.Block?
---@param kind string
---@return integer
local function gap_between(before, kind)
  if not before or (before.kind == 'tool' and kind == 'tool') then
    return 0
  end
  return 1
end

--- Whether a block begins folded.
---@param kind string
---@param wish boolean what the backend says
---@return boolean
local function begins_closed(kind, wish)
  return wish and not (kind == 'thinking' and config.get().chat.show_thinking)
end

---@param view pi.chat.View
---@param op table
---@return pi.chat.Block
local function new_block(view, op)
  local before = view.blocks[#view.blocks]
  local gap = gap_between(before, op.kind)
  local first = before and before.first + before.count + gap or view.top
  return {
    id = op.id,
    kind = op.kind,
    first = first,
    count = #op.lines,
    gap = gap,
    closed = begins_closed(op.kind, op.closed),
    entry = op.entry,
    running = op.running,
    until_ms = op.until_ms,
    target = op.target,
  }
end

--- Rows that stand in the buffer without any block: none, or the line about earlier entries.
---@param view pi.chat.View
---@return boolean
local function blank(view)
  return #view.blocks == 0 and view.top == 0
end

---@param view pi.chat.View
---@param op table
local function append(view, op)
  local block = new_block(view, op)
  local lines = op.lines
  if block.gap == 1 then
    lines = { '' }
    vim.list_extend(lines, op.lines)
  end
  if blank(view) then
    buffer.set(view.buf, lines)
  else
    local count = vim.api.nvim_buf_line_count(view.buf)
    buffer.set(view.buf, lines, count, count)
  end
  view.blocks[#view.blocks + 1] = block
  view.index[block.id] = #view.blocks
  decorate(view, block, 0, op.marks)
  if block.count > 1 then
    fold_everywhere(view, block)
  end
end

---@param view pi.chat.View
---@param place integer
---@param delta integer
local function shift(view, place, delta)
  if delta == 0 then
    return
  end
  for i = place, #view.blocks do
    view.blocks[i].first = view.blocks[i].first + delta
  end
end

--- Replaces lines of a block from `from` on. Growth and shrinking happen before its last line, inside its fold, so that
--- a person's open and closed folds stay as they are.
---@param view pi.chat.View
---@param block pi.chat.Block
---@param from integer
---@param lines string[]
local function rewrite(view, block, from, lines)
  local old = block.count - from
  local last = block.first + block.count
  if block.count > 1 and #lines > old and old > 0 then
    local blanks = {} ---@type string[]
    for i = 1, #lines - old do
      blanks[i] = ''
    end
    buffer.set(view.buf, blanks, last - 1, last - 1)
    last = last + #blanks
  elseif block.count > 1 and old > #lines and #lines > 0 then
    buffer.set(view.buf, {}, last - 1 - (old - #lines), last - 1)
    last = last - (old - #lines)
  end
  buffer.set(view.buf, lines, block.first + from, last)
end

---@param view pi.chat.View
---@param place integer
---@param op table
local function change(view, place, op)
  local block = view.blocks[place] ---@type pi.chat.Block
  local before = block.count
  if op.from < before or #op.lines > 0 then
    rewrite(view, block, op.from, op.lines)
    block.count = op.from + #op.lines
    shift(view, place + 1, block.count - before)
    decorate(view, block, op.from, op.marks)
  end
  local closed = begins_closed(block.kind, op.closed)
  local refold = block.closed ~= closed or (before < 2 and block.count > 1)
  block.entry = op.entry or block.entry
  block.running, block.until_ms, block.target = op.running, op.until_ms, op.target or block.target
  if refold then
    block.closed = closed
    fold_everywhere(view, block)
    draw_sign(view, block)
  end
end

--- Does something to a view and keeps every window where it should be.
---@param session string
---@param fn fun(view: pi.chat.View)
local function with(session, fn)
  M.buffer(session)
  local view = views[session] ---@type pi.chat.View
  local following = followers(view)
  local before = vim.api.nvim_buf_line_count(view.buf)
  fn(view)
  follow(view, following, before)
  spinner.update(view)
end

M.ops = {}

--- Draws a block, or the lines of it that changed.
---@param op table
function M.ops.block(op)
  with(op.session, function(view)
    local place = view.index[op.id]
    if place then
      change(view, place, op)
    else
      append(view, op)
    end
  end)
end

---@param op { session: string, id: string }
function M.ops.remove(op)
  with(op.session, function(view)
    local place = view.index[op.id]
    local block = place and view.blocks[place]
    if not block then
      return
    end
    table.remove(view.blocks, place)
    local rows = block.gap + block.count
    vim.api.nvim_buf_del_extmark(view.buf, signs_ns, block.sign or 0)
    buffer.set(view.buf, {}, block.first - block.gap, block.first + block.count)
    shift(view, place, -rows)
    local after = view.blocks[place]
    if after and place == 1 and after.gap == 1 then
      buffer.set(view.buf, {}, after.first - 1, after.first)
      after.gap = 0
      shift(view, 1, -1)
    end
    view.index = {}
    for i, it in ipairs(view.blocks) do
      view.index[it.id] = i
    end
  end)
end

--- Draws everything anew. A window that was somewhere in the text stays there, counted from the end.
---@param op { session: string, blocks: table[], earlier: integer }
function M.ops.reset(op)
  M.buffer(op.session)
  local view = views[op.session] ---@type pi.chat.View
  local following = {} ---@type table<integer, boolean>
  for _, win in ipairs(followers(view)) do
    following[win] = true
  end
  local count = vim.api.nvim_buf_line_count(view.buf)
  local places = {} ---@type table<integer, table>
  for _, win in ipairs(windows(view)) do
    places[win] = vim.api.nvim_win_call(win, vim.fn.winsaveview)
  end
  buffer.set(view.buf, {})
  for _, space in ipairs({ ns, signs_ns }) do
    vim.api.nvim_buf_clear_namespace(view.buf, space, 0, -1)
  end
  view.blocks, view.index, view.earlier, view.drawn = {}, {}, op.earlier, true
  view.top = 0
  local lines = {} ---@type string[]
  if op.earlier > 0 then
    lines[1] = ('… %d earlier entries (<CR> or gg loads)'):format(op.earlier)
    view.top = 1
  end
  for i, it in ipairs(op.blocks) do
    local block = new_block(view, it)
    if block.gap == 1 then
      lines[#lines + 1] = ''
    end
    vim.list_extend(lines, it.lines)
    view.blocks[i] = block
    view.index[block.id] = i
  end
  buffer.set(view.buf, lines)
  for i, it in ipairs(op.blocks) do
    decorate(view, view.blocks[i], 0, it.marks)
  end
  if view.top == 1 then
    vim.api.nvim_buf_set_extmark(view.buf, ns, 0, 0, { line_hl_group = 'PiTime' })
  end
  local grown = vim.api.nvim_buf_line_count(view.buf) - count
  for _, win in ipairs(windows(view)) do
    M.shown(view.session, win)
    local place = places[win]
    if not following[win] and place then
      place.lnum = math.max(1, place.lnum + grown)
      place.topline = math.max(1, place.topline + grown)
      vim.api.nvim_win_call(win, function()
        vim.fn.winrestview(place)
      end)
    end
  end
  spinner.update(view)
end

--- The backend is gone: nothing runs any more.
---@param session string
---@param reason string
function M.gone(session, reason)
  local view = views[session]
  if not view or not vim.api.nvim_buf_is_valid(view.buf) then
    return
  end
  for _, block in ipairs(view.blocks) do
    block.running, block.until_ms = nil, nil
  end
  spinner.update(view)
  if view.drawn then
    M.ops.block({
      session = session,
      id = 'gone' .. #view.blocks,
      kind = 'error',
      from = 0,
      lines = { reason },
      marks = {},
      closed = false,
    })
  end
end

---@param buf integer
---@param name string
---@return boolean
function M.read(buf, name)
  for session, view in pairs(views) do
    if name == 'pi://chat/' .. buffer.short(session) then
      view.buf = buf
      view.drawn = false
      require('pi.rpc').notify('chat.redraw', { session = session })
      return true
    end
  end
  return false
end

return M
