---The inline view: hunks drawn over the real buffer, whose text stays as it is.

local api = vim.api
local options = require('pi.review.options')
local state = require('pi.review.state')
local text = require('pi.review.text')
local wins = require('pi.review.win')

local M = {}

local ns = api.nvim_create_namespace('pi.review')
local hint_ns = api.nvim_create_namespace('pi.review.hint')

---Above this number only hunks near a window are drawn.
local ALL_DRAWN = 500

---@class (exact) pi.review.Anchor
---@field mark integer
---@field insertion boolean
---@field below boolean whether an insertion is drawn below its row
---@field height integer virtual lines it is drawn with
---@field over integer those of them above its first row

---@type table<integer, table<integer, pi.review.Anchor>>
local anchors = {}

---@class (exact) pi.review.Look
---@field sign string
---@field sign_group string
---@field nr_group string

---@param hunk pi.review.Hunk
---@return pi.review.Look first, pi.review.Look rest
local function looks(hunk)
  local delete = { sign = '-', sign_group = 'PiReviewSignDelete', nr_group = 'PiReviewDeleteNr' }
  ---@type table<string, pi.review.Look?>
  local by_state = {
    accepted = { sign = 'ok', sign_group = 'PiReviewSignAccepted', nr_group = 'PiReviewAddNr' },
    rejected = { sign = 'x', sign_group = 'PiReviewSignRejected', nr_group = 'PiReviewRejected' },
    reverted = { sign = 'x', sign_group = 'PiReviewSignRejected', nr_group = 'PiReviewRejected' },
    stale = { sign = '!', sign_group = 'PiReviewSignStale', nr_group = 'PiReviewStale' },
  }
  local settled = by_state[hunk.state]
  if settled then
    local group, nr = settled.sign_group, settled.nr_group
    return settled, { sign = '', sign_group = group, nr_group = nr }
  end
  if hunk.count == 0 then
    return { sign = '+', sign_group = 'PiReviewSignAdd', nr_group = 'PiReviewAddNr' }, delete
  end
  if #hunk.new > 0 then
    return { sign = '~', sign_group = 'PiReviewSignChange', nr_group = 'PiReviewChangeNr' }, delete
  end
  return delete, delete
end

---Sets one mark; a row that does not exist any more is clamped, since core's next rows are on their way.
---@param buf integer
---@param row integer
---@param col integer
---@param opts vim.api.keyset.set_extmark
---@return integer
local function mark(buf, row, col, opts)
  opts.strict = false
  local last = api.nvim_buf_line_count(buf) - 1
  row = math.max(0, math.min(row, last))
  if opts.end_row then
    opts.end_row = math.max(row, math.min(opts.end_row, last + 1))
  end
  return api.nvim_buf_set_extmark(buf, ns, row, col, opts)
end

---@param buf integer
---@return boolean
local function in_diff(buf)
  for _, win in ipairs(vim.fn.win_findbuf(buf)) do
    if vim.wo[win].diff then
      return true
    end
  end
  return false
end

---@param buf integer
---@return integer? win
local function window_of(buf)
  local current = api.nvim_get_current_win()
  if api.nvim_win_get_buf(current) == buf then
    return current
  end
  return vim.fn.win_findbuf(buf)[1]
end

---@param buf integer
---@return pi.review.Paint
local function new_paint(buf)
  local paint = text.paint('add', buf)
  local win = window_of(buf)
  if win and vim.wo[win].wrap then
    paint.wrap = math.max(20, wins.text_width(win))
  else
    paint.width = vim.o.columns
  end
  return paint
end

---@param buf integer
---@param hunk pi.review.Hunk
local function draw_words(buf, hunk)
  local no_colour = options.no_colour()
  for i, line in ipairs(hunk.old) do
    for from, to in text.words(line) do
      mark(buf, hunk.row + i - 1, from, {
        end_col = to,
        hl_group = 'PiReviewDeleteWord',
        priority = 211,
      })
      if no_colour then
        local row = hunk.row + i - 1
        mark(buf, row, from, { virt_text = { { '[-' } }, virt_text_pos = 'inline' })
        mark(buf, row, to, { virt_text = { { '-]' } }, virt_text_pos = 'inline' })
      end
    end
  end
end

---@param buf integer
---@param hunk pi.review.Hunk
---@param from integer first row drawn
---@param to integer row after the last one drawn
local function draw_old(buf, hunk, from, to)
  local first, rest = looks(hunk)
  local group = 'PiReviewDelete'
  if hunk.state == 'rejected' or hunk.state == 'reverted' then
    group = 'PiReviewRejected'
  elseif hunk.state == 'stale' then
    group = 'PiReviewStale'
  end
  local undecided = hunk.state == 'pending' or hunk.state == 'accepted'
  for row = math.max(hunk.row, from), math.min(hunk.row + hunk.count, to) - 1 do
    local look = row == hunk.row and first or rest
    mark(buf, row, 0, {
      end_row = row + 1,
      end_col = 0,
      hl_group = group,
      hl_eol = undecided,
      priority = 210,
    })
    -- A mark of its own: the sign of a range is drawn on its last row as well.
    mark(buf, row, 0, {
      priority = 210,
      sign_text = look.sign ~= '' and look.sign or nil,
      sign_hl_group = look.sign_group,
      number_hl_group = look.nr_group,
    })
    if undecided and options.no_colour() then
      mark(
        buf,
        row,
        0,
        { virt_text = { { '- ' } }, virt_text_pos = 'inline', right_gravity = false }
      )
    end
  end
  if hunk.state == 'pending' then
    draw_words(buf, hunk)
  end
end

---@param hunk pi.review.Hunk
---@param paint pi.review.Paint
---@return pi.review.Chunk[][]
local function block(hunk, paint)
  local lines = {}
  if hunk.state == 'pending' or hunk.state == 'accepted' or hunk.state == 'stale' then
    paint.extra = hunk.state == 'accepted' and 'PiReviewAccepted'
      or (hunk.state == 'stale' and 'PiReviewStale' or nil)
    local colours = require('pi.review.syntax').of(hunk.id)
    for i, line in ipairs(hunk.new) do
      paint.syntax = hunk.state == 'pending' and colours and colours[i] or nil
      vim.list_extend(lines, text.virtual(line, paint))
    end
  end
  if hunk.note then
    for i, line in ipairs(vim.split(hunk.note, '\n')) do
      local lead = i == 1 and 'note: ' or '      '
      lines[#lines + 1] = { { lead .. text.printable(line), { 'PiReviewNote' } } }
    end
  end
  return lines
end

---@param hunk pi.review.Hunk
---@return string?
local function label_of(hunk)
  local label = hunk.label
  if hunk.edited then
    label = label and (label .. ', edited') or 'edited'
  end
  if label and options.ascii() then
    label = label:gsub('→', '->')
  end
  return label
end

---Where an insertion hangs: below the row before it, or above the first row.
---@param hunk pi.review.Hunk
---@return integer row
---@return boolean below
local function hook(hunk)
  if hunk.count > 0 then
    return hunk.row + hunk.count - 1, true
  end
  return math.max(0, hunk.row - 1), hunk.row > 0
end

---@param buf integer
---@param hunk pi.review.Hunk
---@return integer first
---@return integer last
local function written_rows(buf, hunk)
  local end_row = api.nvim_buf_line_count(buf) - 1
  local first = math.max(0, math.min(hunk.row, end_row))
  return first, math.min(first + math.max(#hunk.new, 1) - 1, end_row)
end

---Draws a change that is in the file already: new lines are real, old ones virtual.
---@param buf integer
---@param hunk pi.review.Hunk
local function draw_written(buf, hunk)
  local first, last = written_rows(buf, hunk)
  local taken_back = hunk.state == 'reverted'
  local look = looks(hunk)
  local paint = text.paint('delete', buf)
  paint.width = vim.o.columns
  local lines = {}
  for _, line in ipairs(taken_back and {} or hunk.old) do
    vim.list_extend(lines, text.virtual(line, paint))
  end
  if #lines > 0 then
    local past_end = hunk.row >= api.nvim_buf_line_count(buf)
    mark(buf, first, 0, {
      virt_lines = lines,
      virt_lines_above = not past_end,
      virt_lines_overflow = 'scroll',
      priority = 210,
    })
  end
  for row = first, #hunk.new > 0 and not taken_back and last or first - 1 do
    mark(buf, row, 0, {
      end_row = row + 1,
      end_col = 0,
      hl_group = 'PiReviewAdd',
      hl_eol = true,
      priority = 210,
    })
  end
  mark(buf, first, 0, {
    sign_text = look.sign,
    sign_hl_group = look.sign_group,
    number_hl_group = look.nr_group,
    priority = 210,
  })
  anchors[buf][hunk.id] = {
    mark = mark(buf, first, 0, { end_row = last, end_col = 0 }),
    insertion = false,
    below = true,
    height = #lines,
    over = #lines,
  }
end

---@param buf integer
---@param hunk pi.review.Hunk
---@param paint pi.review.Paint
---@param from integer
---@param to integer
local function draw_hunk(buf, hunk, paint, from, to)
  local row, below = hook(hunk)
  draw_old(buf, hunk, from, to)
  local lines = block(hunk, paint)
  if #lines > 0 then
    mark(buf, row, 0, {
      virt_lines = lines,
      virt_lines_above = not below,
      virt_lines_overflow = paint.wrap and 'trunc' or 'scroll',
      priority = 210,
    })
  end
  local first = looks(hunk)
  if hunk.count == 0 then
    mark(buf, row, 0, {
      sign_text = first.sign,
      sign_hl_group = first.sign_group,
      number_hl_group = first.nr_group,
      priority = 210,
    })
  end
  local label = label_of(hunk)
  if label then
    mark(buf, hunk.count > 0 and hunk.row or row, 0, {
      virt_text = { { ' ' .. label, 'PiReviewNote' } },
      virt_text_pos = 'eol',
      priority = 210,
    })
  end
  anchors[buf][hunk.id] = {
    mark = mark(buf, hunk.count > 0 and hunk.row or row, 0, { end_row = row, end_col = 0 }),
    insertion = hunk.count == 0,
    below = below,
    height = #lines,
    over = below and 0 or #lines,
  }
end

---Row ranges worth drawing: everything, or two screens around each window when there are very many hunks.
---@param buf integer
---@param hunks pi.review.Hunk[]
---@return [integer, integer][]
local function ranges(buf, hunks)
  if #hunks <= ALL_DRAWN then
    return { { 0, api.nvim_buf_line_count(buf) } }
  end
  local out = {}
  for _, win in ipairs(vim.fn.win_findbuf(buf)) do
    local info = wins.info(win)
    local margin = 2 * info.height
    out[#out + 1] = { info.topline - 1 - margin, info.botline + margin }
  end
  return out
end

---Draws the hunks of a file over its buffer; replaces what was drawn before.
---@param buf integer
---@param proposal pi.review.Proposal
function M.draw(buf, proposal)
  M.clear(buf)
  if proposal.view ~= 'inline' or not state.reviewable(proposal) or in_diff(buf) then
    return
  end
  anchors[buf] = {}
  local paint = new_paint(buf)
  for _, range in ipairs(ranges(buf, proposal.hunks)) do
    for _, hunk in ipairs(proposal.hunks) do
      local first, last = hunk.row - 1, hunk.row + math.max(hunk.count, #hunk.new)
      if first <= range[2] and last >= range[1] and not anchors[buf][hunk.id] then
        if state.is_written(proposal) then
          draw_written(buf, hunk)
        else
          draw_hunk(buf, hunk, paint, math.max(0, range[1]), range[2])
        end
      end
    end
  end
end

---Removes everything drawn over a buffer.
---@param buf integer
function M.clear(buf)
  anchors[buf] = nil
  if api.nvim_buf_is_valid(buf) then
    api.nvim_buf_clear_namespace(buf, ns, 0, -1)
    api.nvim_buf_clear_namespace(buf, hint_ns, 0, -1)
  end
end

---Where a hunk is drawn now: rows move with the text until core has merged again.
---@param buf integer
---@param hunk pi.review.Hunk
---@return integer first
---@return integer last
function M.rows(buf, hunk)
  local drawn = anchors[buf] and anchors[buf][hunk.id] ---@type pi.review.Anchor?
  if drawn then
    local first, last = wins.mark_rows(buf, ns, drawn.mark)
    if first and last then
      return first, last
    end
  end
  local row = hook(hunk)
  return hunk.count > 0 and hunk.row or row, row
end

---How many virtual lines a hunk is drawn with.
---@param buf integer
---@param hunk pi.review.Hunk
---@return integer over above its first row
---@return integer below its last row
function M.heights(buf, hunk)
  local drawn = anchors[buf] and anchors[buf][hunk.id] ---@type pi.review.Anchor?
  if not drawn then
    return 0, 0
  end
  return drawn.over, drawn.height - drawn.over
end

---@param win integer
---@param row integer
---@param hunk pi.review.Hunk
---@return integer free cells right of the text of a row
local function room(win, row, hunk)
  local used = api.nvim_win_call(win, function()
    return vim.fn.virtcol({ row + 1, '$' }) - 1
  end)
  if options.no_colour() and hunk.count > 0 then
    used = used + 2 + 2 * #(hunk.old[1] and hunk.old[1].w or {})
  end
  local width = wins.text_width(win)
  if vim.wo[win].wrap and used > 0 then
    -- The hint stands after the text, on the last of its screen lines.
    used = (used - 1) % width + 1
  end
  return math.floor(width - used - 2)
end

---The longest hint that fits, from the real keys.
---@param position string
---@param keys {key: string, word: string}[]
---@param cells integer
---@return [string, string][]?
local function hint_text(position, keys, cells)
  for count = #keys, 0, -1 do
    local chunks, width = { { position, 'PiReviewHint' } }, vim.fn.strdisplaywidth(position)
    for i, key in ipairs(keys) do
      if i > count then
        break
      end
      local word = '  ' .. key.word .. ' '
      chunks[#chunks + 1] = { word, 'PiReviewHint' }
      chunks[#chunks + 1] = { key.key, 'PiReviewKey' }
      width = width + vim.fn.strdisplaywidth(word .. key.key)
    end
    if width <= cells then
      return chunks
    end
  end
end

---@param proposal pi.review.Proposal
---@param hunk pi.review.Hunk
---@return string
local function position_of(proposal, hunk)
  local where = ('%d/%d'):format(hunk.index, #proposal.hunks)
  if hunk.state ~= 'pending' then
    where = where .. ' ' .. hunk.state
  end
  if proposal.notice then
    where = where .. '  ' .. text.printable(proposal.notice)
  elseif proposal.unsaved then
    where = where .. '  unsaved changes: accept will save them'
  end
  return where
end

---@type integer?
local echoed = nil

---Shows the hint in the message line, once a hunk, where the line has no room for it.
---@param hunk pi.review.Hunk
---@param chunks [string, string][]?
local function echo_hint(hunk, chunks)
  if chunks and echoed ~= hunk.id then
    echoed = hunk.id
    api.nvim_echo(chunks, false, {})
  end
end

---Draws what depends on the cursor: hint and emphasis of the hunk it is on, signs of closed folds that hide hunks.
---@param win integer
---@param proposal pi.review.Proposal
---@param current pi.review.Hunk?
---@param keys {key: string, word: string}[]
function M.draw_hint(win, proposal, current, keys)
  local buf = api.nvim_win_get_buf(win)
  api.nvim_buf_clear_namespace(buf, hint_ns, 0, -1)
  local wish = options.review().hint
  if not anchors[buf] then
    return
  end
  for _, hunk in ipairs(proposal.hunks) do
    if
      anchors[buf][hunk.id] and (hunk == current or (wish == 'all' and state.is_pending(hunk)))
    then
      local first, last = M.rows(buf, hunk)
      if hunk == current then
        api.nvim_buf_set_extmark(buf, hint_ns, first, 0, {
          end_row = last,
          strict = false,
          hl_group = 'PiReviewCurrent',
          number_hl_group = 'PiReviewCurrentNr',
          priority = 209,
        })
      end
      local usable = vim.tbl_filter(function(key)
        return hunk.state ~= 'stale' or key.word ~= 'accept'
      end, keys)
      local line = wish ~= 'none'
        and hint_text(position_of(proposal, hunk), usable, room(win, first, hunk))
      if line and #line == 1 and #usable > 0 and hunk == current then
        echo_hint(hunk, hint_text(position_of(proposal, hunk), usable, vim.o.columns - 12))
      end
      if line then
        api.nvim_buf_set_extmark(buf, hint_ns, first, 0, {
          virt_text = line,
          virt_text_pos = 'eol_right_align',
          hl_mode = 'combine',
          priority = 212,
        })
      end
    end
  end
  if #proposal.hunks <= ALL_DRAWN then
    M.mark_folds(win, proposal)
  end
end

---Puts a sign on closed folds that hide pending hunks.
---@param win integer
---@param proposal pi.review.Proposal
function M.mark_folds(win, proposal)
  local buf = api.nvim_win_get_buf(win)
  local marked = {} ---@type table<integer, true>
  api.nvim_win_call(win, function()
    for _, hunk in ipairs(proposal.hunks) do
      local fold = state.is_pending(hunk) and vim.fn.foldclosed(M.rows(buf, hunk) + 1) or -1
      if fold > 0 and not marked[fold] then
        marked[fold] = true
        api.nvim_buf_set_extmark(buf, hint_ns, fold - 1, 0, {
          sign_text = options.ascii() and '+-' or '±',
          sign_hl_group = 'PiReviewSignChange',
          priority = 213,
        })
      end
    end
  end)
end

---Whether a buffer shows hunks inline now.
---@param buf integer
---@return boolean
function M.is_drawn(buf)
  return anchors[buf] ~= nil
end

M.namespace = ns

return M
