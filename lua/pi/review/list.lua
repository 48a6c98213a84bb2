---The review list: every file and hunk that is waiting, with one key for each decision.

local api = vim.api
local buffers = require('pi.review.buffers')
local files = require('pi.review.files')
local options = require('pi.review.options')
local port = require('pi.review.port')
local state = require('pi.review.state')
local text = require('pi.review.text')

local M = {}

local ns = api.nvim_create_namespace('pi.review.list')

---@alias pi.review.Segment [string, string?]

---@class (exact) pi.review.ListRow
---@field segments pi.review.Segment[]
---@field proposal integer?
---@field hunk integer?

---@class (exact) pi.review.List
---@field buf integer?
---@field rows pi.review.ListRow[]
---@field folded table<integer, boolean>
---@field session string?
---@field sizes string? how the other windows were before
local list = { buf = nil, rows = {}, folded = {}, session = nil, sizes = nil }

local HEIGHT = 10

---@type table<string, [string, string]>
local signs = {
  pending = { '?', 'PiReviewSignChange' },
  unreviewed = { '?', 'PiReviewSignChange' },
  accepted = { 'ok', 'PiReviewSignAccepted' },
  rejected = { 'x', 'PiReviewSignRejected' },
  stale = { '!', 'PiReviewSignStale' },
  reverted = { 'x', 'PiReviewSignRejected' },
}

---@param count integer
---@param word string
---@return string
local function plural(count, word)
  return ('%d %s%s'):format(count, word, count == 1 and '' or 's')
end

---@param proposals pi.review.Proposal[]
---@return table<string, integer>
local function totals(proposals)
  local sum = { hunks = 0, accepted = 0, rejected = 0, pending = 0 }
  for _, proposal in ipairs(proposals) do
    for _, hunk in ipairs(proposal.hunks) do
      sum.hunks = sum.hunks + 1
      local key = state.is_pending(hunk) and 'pending' or hunk.state
      sum[key] = (sum[key] or 0) + 1
    end
  end
  return sum
end

---@param cells string
---@param width integer
---@return string
local function fit(cells, width)
  cells = text.cut(cells, width)
  return cells .. (' '):rep(width - vim.fn.strdisplaywidth(cells))
end

---@param hunk pi.review.Hunk
---@return string
local function title(hunk)
  for _, line in ipairs(hunk.new) do
    if line.t:find('%S') then
      return vim.trim(line.t)
    end
  end
  local first = hunk.old[1]
  return #hunk.new == 0 and first and vim.trim(first.t) or '(blank lines)'
end

---@param added integer
---@param removed integer
---@return pi.review.Segment[]
local function counts(added, removed)
  local plus = added > 0 and ('+%d'):format(added) or ''
  local minus = removed > 0 and ('-%d'):format(removed) or ''
  return {
    { ('%5s '):format(plus), 'PiReviewSignAdd' },
    { ('%-5s'):format(minus), 'PiReviewSignDelete' },
  }
end

---@param proposal pi.review.Proposal
---@return string
local function progress(proposal)
  if proposal.state == 'waiting' then
    return proposal.after and ('waits for #%d'):format(proposal.after) or 'waits'
  elseif proposal.state == 'applying' then
    return 'writing'
  elseif proposal.unreviewed then
    return 'unreviewed'
  end
  local decided = #proposal.hunks - state.pending_count(proposal)
  return ('%d/%d'):format(decided, #proposal.hunks)
end

---@param proposal pi.review.Proposal
---@param width integer
---@return pi.review.ListRow
local function file_row(proposal, width)
  local folded = list.folded[proposal.id] or #proposal.hunks == 0
  local path = proposal.display .. (proposal.link and ' -> ' .. proposal.link or '')
  local segments = {
    { folded and ' > ' or ' v ', 'PiReviewHint' },
    { proposal.kind .. ' ', proposal.kind == 'A' and 'PiReviewSignAdd' or 'PiReviewSignChange' },
    { fit(path, width - 46), 'PiReviewFile' },
    { ' ' },
  }
  vim.list_extend(segments, counts(proposal.added, proposal.removed))
  segments[#segments + 1] =
    { fit((' %s #%d'):format(proposal.tool, proposal.number), 12), 'PiReviewHint' }
  segments[#segments + 1] = { progress(proposal) }
  local remark = proposal.notice or (proposal.outside and 'outside the project') or nil
  if remark then
    segments[#segments + 1] = { '  ' .. remark, 'PiReviewStale' }
  end
  return { segments = segments, proposal = proposal.id }
end

---@param proposal pi.review.Proposal
---@param hunk pi.review.Hunk
---@param width integer
---@return pi.review.ListRow
local function hunk_row(proposal, hunk, width)
  local sign = signs[hunk.state] or signs.pending
  local segments = {
    { ('     %-3s'):format(sign[1]), sign[2] },
    { ('%5d  '):format((proposal.view == 'inline' and hunk.row or hunk.new_row) + 1), 'LineNr' },
    { fit(title(hunk), width - 56), hunk.state == 'rejected' and 'PiReviewRejected' or nil },
    { ' ' },
  }
  vim.list_extend(segments, counts(#hunk.new, #hunk.old))
  local remarks = {}
  if hunk.label then
    remarks[#remarks + 1] = options.ascii() and hunk.label:gsub('→', '->') or hunk.label
  end
  if hunk.edited then
    remarks[#remarks + 1] = 'edited'
  end
  if hunk.note then
    remarks[#remarks + 1] = 'note: ' .. text.printable((hunk.note:gsub('\n', ' ')))
  end
  if #remarks > 0 then
    segments[#segments + 1] = { ' ' .. table.concat(remarks, '  '), 'PiReviewNote' }
  end
  return { segments = segments, proposal = proposal.id, hunk = hunk.id }
end

---@param proposals pi.review.Proposal[]
---@return pi.review.ListRow
local function head_row(proposals)
  local sum = totals(proposals)
  local name = proposals[1] and proposals[1].session_name
  local segments = { { ' Review ', 'PiReviewTitle' } }
  if name then
    segments[#segments + 1] = { ' ' .. name .. ' ', 'PiReviewFile' }
  end
  local line = ('  %s  %s   %d accepted  %d rejected  %d pending   mode: %s'):format(
    plural(#proposals, 'file'),
    plural(sum.hunks, 'hunk'),
    sum.accepted,
    sum.rejected + (sum.reverted or 0),
    sum.pending,
    state.mode()
  )
  segments[#segments + 1] = { line }
  return { segments = segments }
end

---@param width integer
---@return pi.review.ListRow[]
local function rows(width)
  local proposals = state.all(list.session)
  local out = { head_row(proposals) }
  for _, proposal in ipairs(proposals) do
    out[#out + 1] = file_row(proposal, width)
    if not list.folded[proposal.id] then
      for _, hunk in ipairs(proposal.hunks) do
        out[#out + 1] = hunk_row(proposal, hunk, width)
      end
    end
  end
  if #proposals == 0 then
    out[#out + 1] = { segments = { { ' Nothing to review.', 'PiReviewHint' } } }
  end
  return out
end

---@param buf integer
local function paint(buf)
  local lines = {}
  for i, row in ipairs(list.rows) do
    local parts = {}
    for j, segment in ipairs(row.segments) do
      parts[j] = segment[1]
    end
    lines[i] = (table.concat(parts):gsub('%s+$', ''))
  end
  local bo = vim.bo[buf]
  bo.modifiable = true
  api.nvim_buf_set_lines(buf, 0, -1, false, lines)
  bo.modifiable, bo.modified = false, false
  api.nvim_buf_clear_namespace(buf, ns, 0, -1)
  for i, row in ipairs(list.rows) do
    local col = 0
    for _, segment in ipairs(row.segments) do
      local stop = col + #segment[1]
      if segment[2] then
        api.nvim_buf_set_extmark(buf, ns, i - 1, math.min(col, #lines[i]), {
          end_col = math.min(stop, #lines[i]),
          hl_group = segment[2],
        })
      end
      col = stop
    end
  end
end

---@return integer? win
local function window()
  return list.buf and vim.fn.win_findbuf(list.buf)[1]
end

---@param row pi.review.ListRow?
---@return integer? lnum
local function find_row(row)
  for i, other in ipairs(list.rows) do
    if row and other.proposal == row.proposal and other.hunk == row.hunk then
      return i
    end
  end
end

---Draws the list anew; the cursor stays on its hunk.
function M.refresh()
  local buf, win = list.buf, window()
  if not buf or not win or not api.nvim_buf_is_valid(buf) then
    return
  end
  local lnum = api.nvim_win_get_cursor(win)[1]
  local on = list.rows[lnum]
  list.rows = rows(api.nvim_win_get_width(win))
  paint(buf)
  local stay = find_row(on) or math.min(lnum, #list.rows)
  api.nvim_win_set_cursor(win, { math.max(1, stay), 0 })
end

---@return pi.review.Proposal?, pi.review.Hunk?
local function at_cursor()
  local row = list.rows[api.nvim_win_get_cursor(0)[1]]
  local proposal = row and row.proposal and state.get(row.proposal)
  if not proposal then
    return nil, nil
  end
  local hunk = row.hunk and state.hunk(row.hunk) or nil
  return proposal, hunk
end

---@param verb 'accept'|'reject'
---@param reason string?
local function decide(verb, reason)
  local proposal, hunk = at_cursor()
  if hunk then
    port.send({ action = verb, hunks = { hunk.id }, note = reason })
    M.next_pending(hunk.id)
  elseif proposal then
    port.send({ action = verb .. 'File', proposal = proposal.id, note = reason })
  end
end

---Moves the cursor to the next pending hunk in the list.
---@param without integer
function M.next_pending(without)
  if not options.review().advance then
    return
  end
  local lnum = api.nvim_win_get_cursor(0)[1]
  for offset = 1, #list.rows do
    local at = (lnum - 1 + offset) % #list.rows + 1
    local row = list.rows[at]
    local hunk = row.hunk and row.hunk ~= without and state.hunk(row.hunk)
    if hunk and state.is_pending(hunk) then
      api.nvim_win_set_cursor(0, { at, 0 })
      return
    end
  end
end

---@param focus boolean
local function show(focus)
  local proposal, hunk = at_cursor()
  if not proposal then
    return
  end
  if proposal.state == 'waiting' then
    require('pi.review.say').line('waits for an earlier change of the same file')
    return
  end
  hunk = hunk or proposal.hunks[1]
  if hunk then
    require('pi.review.jump').to(proposal, hunk, focus)
  end
end

---@param scope 'fileForRun'|'run'|'session'
local function grant(scope)
  local proposal = at_cursor()
  if proposal then
    port.send({ action = 'grant', scope = scope, session = proposal.session, path = proposal.real })
  end
end

local function note()
  local _, hunk = at_cursor()
  if hunk then
    require('pi.review.note').ask('Note to the model', hunk.note, function(line)
      port.send({ action = 'note', hunk = hunk.id, note = line ~= '' and line or nil })
    end)
  end
end

local function edit()
  local proposal, hunk = at_cursor()
  if proposal and proposal.state ~= 'waiting' then
    require('pi.review.jump').show_proposal(proposal, hunk or proposal.hunks[1], true)
  end
end

local function fold()
  local proposal = at_cursor()
  if proposal then
    list.folded[proposal.id] = not list.folded[proposal.id]
    M.refresh()
  end
end

---@param verb 'accept'|'reject'
local function whole_file(verb)
  local proposal = at_cursor()
  if proposal then
    port.send({ action = verb .. 'File', proposal = proposal.id })
  end
end

---@param name string
---@return fun()
local function action(name)
  return function()
    require('pi.review.actions')[name]()
  end
end

---@type [string, string, fun()][]
local keys = {
  {
    'a',
    'accept',
    function()
      decide('accept')
    end,
  },
  {
    'r',
    'reject',
    function()
      decide('reject')
    end,
  },
  { 'n', 'note', note },
  { 'e', 'edit the proposal', edit },
  {
    'A',
    'accept the file',
    function()
      whole_file('accept')
    end,
  },
  {
    'R',
    'reject the file',
    function()
      whole_file('reject')
    end,
  },
  { 'ga', 'accept all', action('accept_all') },
  { 'gr', 'reject all and stop', action('reject_all') },
  {
    'gf',
    'accept this file until the run ends',
    function()
      grant('fileForRun')
    end,
  },
  {
    'gt',
    'accept everything until the run ends',
    function()
      grant('run')
    end,
  },
  {
    'gs',
    'accept everything in this session',
    function()
      grant('session')
    end,
  },
  { 'u', 'undo the last decision', action('undo') },
  {
    '<CR>',
    'go to the hunk',
    function()
      show(true)
    end,
  },
  {
    'p',
    'preview',
    function()
      show(false)
    end,
  },
  {
    'd',
    'split diff',
    function()
      require('pi.review.split').toggle(at_cursor())
    end,
  },
  { 'za', 'fold', fold },
  {
    'q',
    'close',
    function()
      M.close()
    end,
  },
  {
    '?',
    'help',
    function()
      M.help()
    end,
  },
}

---Lists the keys.
function M.help()
  local lines = {}
  for _, key in ipairs(keys) do
    lines[#lines + 1] = { ('%-5s %s\n'):format(key[1], key[2]) }
  end
  api.nvim_echo(lines, false, {})
end

---Fills a buffer that was made for the list's name.
---@param buf integer
---@return boolean
function M.read(buf)
  if buf ~= list.buf then
    return false
  end
  M.refresh()
  return true
end

---@return integer
local function buffer()
  if list.buf and api.nvim_buf_is_valid(list.buf) then
    return list.buf
  end
  local buf = api.nvim_create_buf(false, true)
  list.buf = buf
  api.nvim_buf_set_name(buf, 'pi://review')
  local bo = vim.bo[buf]
  bo.bufhidden, bo.swapfile, bo.undolevels = 'hide', false, -1
  bo.filetype = 'pi-review'
  vim.b[buf].pi = { kind = 'review' }
  for _, key in ipairs(keys) do
    vim.keymap.set(
      'n',
      key[1],
      key[3],
      { buffer = buf, nowait = true, desc = 'Pi review: ' .. key[2] }
    )
  end
  local group = api.nvim_create_augroup('pi.review.list', { clear = true })
  api.nvim_create_autocmd('CursorHold', {
    group = group,
    buffer = buf,
    callback = function()
      local proposal, hunk = at_cursor()
      if hunk and proposal and proposal.view == 'inline' and buffers.find(proposal.real) then
        require('pi.review.jump').to(proposal, hunk, false)
      end
    end,
  })
  api.nvim_create_autocmd('WinResized', { group = group, callback = M.refresh })
  return buf
end

---Opens the list below the code; other windows keep their sizes.
---@param focus boolean
function M.open(focus)
  local win = window()
  if not win then
    local buf = buffer()
    local code = files.target_window(-1)
    list.sizes = vim.fn.winrestcmd()
    local equal = vim.o.equalalways
    vim.o.equalalways = false
    local height = math.max(3, math.min(HEIGHT, api.nvim_win_get_height(code) - 11))
    win = api.nvim_open_win(buf, false, { split = 'below', win = code, height = height })
    vim.o.equalalways = equal
    local wo = vim.wo[win][0]
    wo.number, wo.relativenumber, wo.signcolumn, wo.foldcolumn = false, false, 'no', '0'
    wo.wrap, wo.cursorline, wo.spell, wo.list = false, true, false, false
    wo.winfixheight, wo.winfixbuf = true, true
    local hint = 'a accept  r reject  n note  e edit  A/R file  ga/gr all  u undo  d diff  ? help'
    wo.statusline = ' ' .. hint
    list.rows = {}
    M.refresh()
    if #list.rows > 2 then
      api.nvim_win_set_cursor(win, { 3, 0 })
    end
  end
  if focus then
    api.nvim_set_current_win(win)
  end
end

---Closes the list; nothing is decided by that.
function M.close()
  local win = window()
  if not win or #api.nvim_tabpage_list_wins(0) == 1 then
    return
  end
  local equal = vim.o.equalalways
  vim.o.equalalways = false
  api.nvim_win_close(win, true)
  vim.o.equalalways = equal
  if list.sizes then
    vim.cmd('silent! ' .. list.sizes)
  end
end

function M.toggle()
  if window() then
    M.close()
  else
    M.open(true)
  end
end

return M
