---Review of a model's edits: draws what core says, and tells core what the person presses.

local api = vim.api
local actions = require('pi.review.actions')
local attention = require('pi.attention')
local buffers = require('pi.review.buffers')
local highlights = require('pi.review.highlights')
local inline = require('pi.review.inline')
local jump = require('pi.review.jump')
local keys = require('pi.review.keys')
local list = require('pi.review.list')
local log = require('pi.log')
local options = require('pi.review.options')
local port = require('pi.review.port')
local proposal_view = require('pi.review.proposal')
local qf = require('pi.review.qf')
local say = require('pi.review.say')
local split = require('pi.review.split')
local state = require('pi.review.state')
local status = require('pi.status')
local syntax = require('pi.review.syntax')
local where = require('pi.review.where')

local M = {}

---@type table<integer, boolean> buffers that show a review now
local attached = {}

local ready = false

---@param buf integer
local function update_hint(buf)
  local here = where.here()
  if not here or here.buf ~= buf then
    return
  end
  if here.view == 'inline' then
    inline.draw_hint(here.win, here.proposal, where.hunk(here), keys.hints(buf))
  end
end

---@param buf integer
---@param proposal pi.review.Proposal
local function count_in(buf, proposal)
  local counts = { pending = 0, accepted = 0, rejected = 0 }
  for _, hunk in ipairs(proposal.hunks) do
    local key = state.is_pending(hunk) and 'pending' or hunk.state
    counts[key] = (counts[key] or 0) + 1
  end
  vim.b[buf].pi_review = counts
end

---Gives a buffer the review maps and follows the cursor in it.
---@param buf integer
function M.attach(buf)
  keys.install(buf)
  if attached[buf] then
    return
  end
  attached[buf] = true
  local group = api.nvim_create_augroup('pi.review.buffer.' .. buf, { clear = true })
  api.nvim_create_autocmd({ 'CursorMoved', 'BufEnter', 'InsertLeave' }, {
    group = group,
    buffer = buf,
    callback = function()
      update_hint(buf)
    end,
  })
  api.nvim_create_autocmd('BufUnload', {
    group = group,
    buffer = buf,
    callback = function()
      M.detach(buf)
    end,
  })
end

---Takes maps, drawing and autocommands off a buffer.
---@param buf integer
function M.detach(buf)
  if not attached[buf] then
    return
  end
  attached[buf] = nil
  api.nvim_create_augroup('pi.review.buffer.' .. buf, { clear = true })
  inline.clear(buf)
  keys.remove(buf)
  buffers.unwatch(buf)
  if api.nvim_buf_is_valid(buf) then
    vim.b[buf].pi_review = nil
  end
end

---@param buf integer
---@param proposal pi.review.Proposal
local function draw(buf, proposal)
  inline.draw(buf, proposal)
  update_hint(buf)
  syntax.request(buf, proposal, function()
    if state.get(proposal.id) == proposal and attached[buf] then
      inline.draw(buf, proposal)
      update_hint(buf)
    end
  end)
end

---Brings one code buffer up to date with what core said about its file.
---@param buf integer
function M.refresh(buf)
  local proposal, view = where.proposal_of(buf)
  if not proposal then
    M.detach(buf)
  elseif view == 'inline' then
    M.attach(buf)
    buffers.watch(buf, proposal.real)
    count_in(buf, proposal)
    draw(buf, proposal)
    if #vim.fn.win_findbuf(buf) > 0 then
      state.mark_seen(proposal.id)
    end
  end
end

local function refresh_all()
  for _, buf in ipairs(api.nvim_list_bufs()) do
    if api.nvim_buf_is_loaded(buf) and (attached[buf] or where.proposal_of(buf)) then
      M.refresh(buf)
    end
  end
end

---A buffer was loaded or read again: core has to look at it, and it may have to be drawn.
---@param buf integer
local function on_read(buf)
  local proposal, view = where.proposal_of(buf)
  if proposal and view == 'inline' then
    port.send({ view = 'changed', path = proposal.real })
    M.refresh(buf)
  elseif not proposal and attached[buf] then
    -- It has another name now.
    M.detach(buf)
  end
end

local function define_autocmds()
  local group = api.nvim_create_augroup('pi.review', { clear = true })
  api.nvim_create_autocmd({ 'BufReadPost', 'BufNewFile', 'BufFilePost' }, {
    group = group,
    callback = function(ev)
      on_read(ev.buf)
    end,
  })
  api.nvim_create_autocmd('BufWritePost', {
    group = group,
    callback = function(ev)
      if vim.b[ev.buf].pi_writing then
        return
      end
      local path = buffers.real_of(ev.buf)
      if not path then
        return
      end
      if attached[ev.buf] or buffers.was_written(path) then
        port.send({ view = 'changed', path = path })
      end
    end,
  })
  api.nvim_create_autocmd('BufWipeout', {
    group = group,
    callback = function(ev)
      buffers.forget(ev.buf)
    end,
  })
  api.nvim_create_autocmd('WinScrolled', {
    group = group,
    callback = function()
      local here = where.here()
      if here and here.view == 'inline' and #here.proposal.hunks > 500 then
        inline.draw(here.buf, here.proposal)
        update_hint(here.buf)
      end
    end,
  })
  api.nvim_create_autocmd({ 'WinResized', 'VimResized' }, { group = group, callback = refresh_all })
  api.nvim_create_autocmd('OptionSet', {
    group = group,
    pattern = { 'wrap', 'diff' },
    callback = vim.schedule_wrap(refresh_all),
  })
end

---Prepares what every review needs; done once, at the first proposal.
local function prepare()
  if ready then
    return
  end
  ready = true
  highlights.setup()
  define_autocmds()
  buffers.on_change(function(change)
    port.send({ view = 'changed', path = change.path })
  end)
end

---@param buf integer?
---@return boolean whether a window of this tab page shows it
local function on_screen(buf)
  for _, win in ipairs(buf and vim.fn.win_findbuf(buf) or {}) do
    if api.nvim_win_get_tabpage(win) == api.nvim_get_current_tabpage() then
      return true
    end
  end
  return false
end

---Whether another proposal is being looked at: a new one must not push it away.
---@param proposal pi.review.Proposal
---@return boolean
local function other_on_screen(proposal)
  for _, other in ipairs(state.with_pending()) do
    local shown = on_screen(buffers.find(other.real)) or on_screen(proposal_view.buffer(other.id))
    if other.id ~= proposal.id and shown then
      return true
    end
  end
  return false
end

---A proposal has become open: show it if that disturbs nobody, else raise attention.
---@param proposal pi.review.Proposal
local function arrive(proposal)
  say.event('PiReviewOpen', {
    session = proposal.session,
    proposal = proposal.id,
    path = proposal.path,
    hunks = #proposal.hunks,
  })
  local review = options.review()
  local shown = proposal.view == 'inline' and on_screen(buffers.find(proposal.real))
  local idle = attention.idle(proposal.session)
  local welcome = review.open == 'always' or (review.open == 'idle' and idle)
  if not shown and welcome and not other_on_screen(proposal) then
    local first = proposal.hunks[1]
    if first then
      jump.to(proposal, first, false)
      shown = true
    end
  end
  if shown then
    state.mark_seen(proposal.id)
  end
  local pending = state.with_pending()
  local many = review.list_open == 'always' or (review.list_open == 'multi' and #pending >= 2)
  if many and (idle or review.open == 'always') then
    list.open(false)
  end
  attention.review(proposal, shown)
end

---@param proposal pi.review.Proposal
local function update(proposal)
  local buf = buffers.find(proposal.real)
  if buf then
    M.refresh(buf)
  end
  proposal_view.refresh(proposal)
  list.refresh()
  qf.refresh()
  local counts = {} ---@type table<string, integer>
  counts[proposal.session] = 0
  for _, other in ipairs(state.with_pending()) do
    counts[other.session] = (counts[other.session] or 0) + state.pending_count(other)
  end
  for session, count in pairs(counts) do
    status.patch(session, { pending_hunks = count })
  end
  attention.pending(#state.with_pending())
end

---What core may say; each is one op of a batch.
M.ops = {}

---@param op {proposal: pi.review.Proposal}
function M.ops.set(op)
  prepare()
  local proposal = op.proposal
  local before = state.set(proposal)
  if before then
    syntax.forget_changed(before, proposal)
  end
  update(proposal)
  if state.reviewable(proposal) and not (before and state.reviewable(before)) then
    arrive(proposal)
  end
end

---@param op {id: integer, state: string, applied: integer, rejected: integer}
function M.ops.drop(op)
  local proposal = state.drop(op.id)
  if not proposal then
    return
  end
  proposal.state = op.state --[[@as any]]
  syntax.forget(proposal)
  split.gone(op.id)
  proposal_view.close(proposal)
  update(proposal)
  say.event('PiReviewDone', {
    session = proposal.session,
    proposal = op.id,
    path = proposal.path,
    applied = op.applied,
    rejected = op.rejected,
  })
  if #state.all() == 0 then
    list.close()
  end
end

---@param op pi.review.Text
function M.ops.text(op)
  proposal_view.text(op)
  split.text(op)
end

---@param op {id: integer, ok: boolean}
function M.ops.taken(op)
  proposal_view.taken(op.id, op.ok)
end

---@param op {proposal: integer, hunk: integer, state: string, note: string?}
function M.ops.decided(op)
  local proposal = state.get(op.proposal)
  say.event('PiReviewDecision', {
    session = proposal and proposal.session,
    proposal = op.proposal,
    hunk = op.hunk,
    decision = op.state,
    note = op.note,
  })
end

---@param op {path: string, by: string}
function M.ops.written(op)
  prepare()
  buffers.mark_written(op.path)
  local buf = buffers.find(op.path)
  say.event('PiFileWritten', { path = op.path, buf = buf, by = op.by })
end

---@param op {mode: string}
function M.ops.mode(op)
  state.set_mode(op.mode)
  list.refresh()
  say.event('PiModeChanged', { mode = op.mode })
end

---@param op {line: string, level: 'line'|'info'}
function M.ops.say(op)
  if op.level == 'line' then
    say.line(op.line)
  else
    say.tell(op.line)
  end
end

---@param proposal pi.review.Proposal
local function log_not_applied(proposal)
  local lines = { ('not applied: %s'):format(proposal.display) }
  for _, hunk in ipairs(proposal.hunks) do
    lines[#lines + 1] = ('@@ line %d @@'):format(hunk.row + 1)
    for _, line in ipairs(hunk.old) do
      lines[#lines + 1] = '-' .. line.t
    end
    for _, line in ipairs(hunk.new) do
      lines[#lines + 1] = '+' .. line.t
    end
  end
  log.add(table.concat(lines, '\n'))
end

---Core is gone: everything leaves the screen, and what was not applied is listed once in the log.
---@return integer hunks that were not applied
function M.lost()
  local dropped = state.clear()
  local count = 0
  for _, proposal in ipairs(dropped) do
    if not state.is_written(proposal) then
      log_not_applied(proposal)
      count = count + #proposal.hunks
    end
    proposal.state = 'cancelled'
    split.gone(proposal.id)
    proposal_view.close(proposal)
  end
  refresh_all()
  list.close()
  attention.clear()
  return count
end

---Runs an action of the review by its name.
M.next, M.prev = actions.next, actions.prev
M.accept, M.reject, M.note = actions.accept, actions.reject, actions.note
M.undo, M.list, M.edit, M.diff = actions.undo, actions.list, actions.edit, actions.diff
M.textobject = actions.textobject

---Number of pending hunks of a buffer, or of everything.
---@param buf integer?
---@return integer
function M.pending(buf)
  local count = 0
  for _, proposal in ipairs(state.with_pending()) do
    if not buf or buffers.find(proposal.real) == buf then
      count = count + state.pending_count(proposal)
    end
  end
  return count
end

---Returns the review mode, or asks core for another one.
---@param mode string?
---@return string
function M.mode(mode)
  if mode then
    port.send({ action = 'setMode', mode = mode })
  end
  return state.mode()
end

---@type string[]
local modes = { 'ask', 'auto', 'readonly', 'off' }

---@param verb 'accept'|'reject'
---@param rest string[]
---@param range [integer, integer]?
---@param bang boolean
local function decide(verb, rest, range, bang)
  if rest[1] == 'file' then
    actions.file(verb, rest[2] and table.concat(rest, ' ', 2) or nil)
  elseif rest[1] == 'all' then
    actions.all(verb)
  elseif range then
    actions.range(verb, range[1], range[2])
  elseif verb == 'reject' then
    actions.reject(bang)
  else
    actions.accept()
  end
end

---@type table<string, fun(rest: string[], range: [integer, integer]?, bang: boolean)>
local commands = {
  open = function()
    list.open(true)
  end,
  list = actions.list,
  next = function(rest)
    actions[rest[1] == 'file' and 'next_file' or 'next']()
  end,
  prev = function(rest)
    actions[rest[1] == 'file' and 'prev_file' or 'prev']()
  end,
  accept = function(rest, range, bang)
    decide('accept', rest, range, bang)
  end,
  reject = function(rest, range, bang)
    decide('reject', rest, range, bang)
  end,
  note = actions.note,
  edit = actions.edit,
  undo = actions.undo,
  diff = actions.diff,
  qf = function()
    qf.export('qf')
  end,
  loc = function()
    qf.export('loc')
  end,
  force = function()
    actions.whole('force')
  end,
  drop = function()
    actions.whole('dropStale')
  end,
  mode = function(rest)
    if rest[1] and not vim.list_contains(modes, rest[1]) then
      say.warn(('no review mode %s; there are %s'):format(rest[1], table.concat(modes, ', ')))
    elseif rest[1] then
      M.mode(rest[1])
    else
      say.line('review mode: ' .. state.mode())
    end
  end,
}

---Runs `:Pi review …`.
---@param args string[] words after `review`
---@param opts {range: [integer, integer]?, bang: boolean?}?
function M.command(args, opts)
  vim.validate('args', args, 'table')
  opts = opts or {}
  local run = commands[args[1] or 'open']
  if not run then
    local names = vim.tbl_keys(commands)
    table.sort(names)
    say.warn(('no review command %s; there are %s'):format(args[1], table.concat(names, ', ')))
    return
  end
  run(vim.list_slice(args, 2), opts.range, opts.bang or false)
end

---Completes the words after `:Pi review`.
---@param lead string
---@param before string[] words before the one being completed
---@return string[]
function M.complete(lead, before)
  local words = vim.tbl_keys(commands)
  if before[1] == 'accept' or before[1] == 'reject' then
    words = { 'file', 'all' }
  elseif before[1] == 'next' or before[1] == 'prev' then
    words = { 'file' }
  elseif before[1] == 'mode' then
    words = vim.deepcopy(modes)
  elseif before[1] then
    words = {}
  end
  table.sort(words)
  return vim.tbl_filter(function(word)
    return vim.startswith(word, lead)
  end, words)
end

M.setup = prepare

---Draws `pi://review` anew, for `:edit`.
---@param buf integer
---@return boolean
function M.read(buf)
  return list.read(buf)
end

return M
