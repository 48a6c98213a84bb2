---What keys and commands do: find the hunk, tell core. Core decides and answers with new drawing.

local api = vim.api
local consent = require('pi.review.consent')
local jump = require('pi.review.jump')
local note = require('pi.review.note')
local options = require('pi.review.options')
local port = require('pi.review.port')
local proposal_view = require('pi.review.proposal')
local say = require('pi.review.say')
local state = require('pi.review.state')
local where = require('pi.review.where')

local M = {}

---Runs the motion Neovim itself has, in diff windows.
---@param keys string
---@return boolean
local function native(keys)
  if not vim.wo.diff then
    return false
  end
  vim.cmd(('normal! %d%s'):format(vim.v.count1, keys))
  return true
end

---@param found boolean
local function or_say(found)
  if not found then
    say.line('nothing to review')
  end
end

function M.next()
  if not native(']c') then
    or_say(jump.hunk(1, vim.v.count1))
  end
end

function M.prev()
  if not native('[c') then
    or_say(jump.hunk(-1, vim.v.count1))
  end
end

function M.next_file()
  or_say(jump.file(1, vim.v.count1))
end

function M.prev_file()
  or_say(jump.file(-1, vim.v.count1))
end

---@return pi.review.Here?, pi.review.Hunk?
local function at_cursor()
  local here = where.here()
  local hunk = here and where.hunk(here)
  if not here or not hunk then
    say.line('no hunk under the cursor')
    return nil, nil
  end
  return here, hunk
end

---Sends a decision; in a proposal the person has changed, the text is taken over first and the rows name the hunks.
---@param here pi.review.Here
---@param hunks pi.review.Hunk[]
---@param verb 'accept'|'reject'
---@param reason string?
local function decide(here, hunks, verb, reason)
  if here.view == 'proposal' and vim.bo[here.buf].modified then
    local first, last = math.huge, 0
    for _, hunk in ipairs(hunks) do
      local from, to = where.rows(here, hunk)
      first, last = math.min(first, from), math.max(last, to)
    end
    proposal_view.take_over(here.buf, { verb = verb, from = first, to = last, note = reason })
    return
  end
  local ids = vim.tbl_map(function(hunk)
    return hunk.id
  end, hunks)
  port.send({ action = verb, hunks = ids, note = reason })
end

---Asks whether a read-only file is to be written all the same.
---@param proposal pi.review.Proposal
local function ask_force(proposal)
  vim.ui.select({ 'yes', 'no' }, {
    prompt = proposal.display .. ' is read-only. Write it anyway?',
    kind = 'pi.confirm',
  }, function(answer)
    if answer == 'yes' then
      consent.before('accept', { proposal }, function()
        port.send({ action = 'force', proposal = proposal.id })
      end)
    end
  end)
end

---@param here pi.review.Here
---@param hunk pi.review.Hunk
---@param verb 'accept'|'reject'
---@param reason string?
local function decide_one(here, hunk, verb, reason)
  if here.proposal.state == 'waiting' then
    say.line('this change waits for an earlier one of the same file')
    return
  end
  local notice = here.proposal.notice or ''
  if verb == 'accept' and notice:find('write anyway?', 1, true) then
    ask_force(here.proposal)
    return
  end
  consent.before(verb, { here.proposal }, function()
    decide(here, { hunk }, verb, state.reason(hunk, verb, reason))
    if options.review().advance then
      jump.hunk(1, 1, hunk.id)
    end
  end, here.buf)
end

function M.accept()
  local here, hunk = at_cursor()
  if here and hunk then
    decide_one(here, hunk, 'accept')
  end
end

---Rejects the hunk under the cursor; with a count or when the user wants it always, a reason is asked for.
---@param with_reason boolean?
function M.reject(with_reason)
  local here, hunk = at_cursor()
  if not here or not hunk then
    return
  end
  if with_reason or vim.v.count > 0 or options.review().reject_prompt then
    note.ask('Why reject this hunk?', hunk.note, function(reason)
      decide_one(here, hunk, 'reject', reason)
    end)
    return
  end
  decide_one(here, hunk, 'reject')
end

---@param here pi.review.Here
---@param verb 'accept'|'reject'
---@param from integer 1-based
---@param to integer 1-based
---@param hunks pi.review.Hunk[] those of the range
local function decide_range(here, verb, from, to, hunks)
  if here.view == 'inline' then
    decide(here, hunks, verb)
    return
  end
  if vim.bo[here.buf].modified then
    proposal_view.take_over(here.buf, { verb = verb, from = from - 1, to = to - 1 })
    return
  end
  for _, hunk in ipairs(hunks) do
    local first, last = where.rows(here, hunk)
    local low, high = math.max(first, from - 1), math.min(last, to - 1)
    if low == first and high == last then
      port.send({ action = verb, hunks = { hunk.id } })
    else
      local action = verb == 'accept' and 'acceptLines' or 'rejectLines'
      -- Rows of the text on the screen, which may be older than what is known of the hunk.
      local from_row = hunk.new_row + low - first
      local to_row = hunk.new_row + high + 1 - first
      port.send({ action = action, hunk = hunk.id, from = from_row, to = to_row })
    end
  end
end

---Decides the lines of a range: whole hunks inline, exactly the chosen lines in the proposal view.
---@param verb 'accept'|'reject'
---@param from integer 1-based
---@param to integer 1-based
function M.range(verb, from, to)
  local here = where.here()
  if not here then
    say.line('nothing to review here')
    return
  end
  local hunks = where.touching(here, from - 1, to - 1)
  if #hunks == 0 then
    say.line('no hunk in these lines')
    return
  end
  consent.before(verb, { here.proposal }, function()
    decide_range(here, verb, from, to, hunks)
  end, here.buf)
end

---@param verb 'accept'|'reject'
function M.visual(verb)
  local from, to = vim.fn.line('v'), vim.fn.line('.')
  api.nvim_feedkeys(vim.keycode('<Esc>'), 'nx', false)
  M.range(verb, math.min(from, to), math.max(from, to))
end

function M.note()
  local _, hunk = at_cursor()
  if hunk then
    note.ask('Note to the model', hunk.note, function(line)
      port.send({ action = 'note', hunk = hunk.id, note = line ~= '' and line or nil })
    end)
  end
end

function M.edit()
  local here, hunk = at_cursor()
  if here and here.view == 'inline' then
    state.mark_seen(here.proposal.id)
    jump.show_proposal(here.proposal, hunk, true)
  end
end

---@return pi.review.Here?
local function here_or_say()
  local here = where.here()
  if not here then
    say.line('nothing to review here')
  end
  return here
end

---Decides the rest of the file under the cursor.
---@param verb 'accept'|'reject'
---@param reason string?
function M.file(verb, reason)
  local here = here_or_say()
  if not here then
    return
  end
  consent.before(verb, { here.proposal }, function()
    if here.view == 'proposal' and vim.bo[here.buf].modified then
      proposal_view.take_over(here.buf, { verb = verb .. 'File', note = reason })
      return
    end
    port.send({ action = verb .. 'File', proposal = here.proposal.id, note = reason })
  end, here.buf)
end

---Does something to the proposal of the current window as a whole.
---@param action 'force'|'dropStale'
function M.whole(action)
  local here = here_or_say()
  if not here then
    return
  end
  consent.before(action == 'force' and 'accept' or 'reject', { here.proposal }, function()
    port.send({ action = action, proposal = here.proposal.id })
  end)
end

---@return integer hunks, integer files, integer unseen
local function open_now()
  local hunks, files, unseen = 0, 0, 0
  for _, proposal in ipairs(state.with_pending()) do
    if proposal.state == 'open' or proposal.unreviewed then
      hunks, files = hunks + state.pending_count(proposal), files + 1
      unseen = unseen + (state.was_seen(proposal.id) and 0 or 1)
    end
  end
  return hunks, files, unseen
end

---@param count integer
---@param word string
---@return string
local function plural(count, word)
  return ('%d %s%s'):format(count, word, count == 1 and '' or 's')
end

---The state a second press refers to; anything that changes in between asks again.
---@type string?
local armed = nil

---Accepts everything that is open. When a file of it was never looked at, a second press is needed.
function M.accept_all()
  local hunks, files, unseen = open_now()
  if hunks == 0 then
    say.line('nothing to review')
    return
  end
  local what = ('%s in %s'):format(plural(hunks, 'hunk'), plural(files, 'file'))
  local ticket = table.concat({ what, unseen, vim.fn.line('.'), api.nvim_get_current_buf() }, ' ')
  if unseen > 0 and armed ~= ticket then
    armed = ticket
    say.line(('%s, %s never shown: once more to accept all'):format(what, plural(unseen, 'file')))
    return
  end
  armed = nil
  consent.before('accept', state.with_pending(), function()
    port.send({ action = 'acceptAll' })
    say.line('accepted ' .. what)
  end)
end

---Rejects everything pending and stops the run; asks only when more than one file is concerned.
function M.reject_all()
  local _, files = open_now()
  local sessions = {} ---@type table<string, true>
  for _, proposal in ipairs(state.all()) do
    sessions[proposal.session] = true
  end
  local stop = function()
    port.send({ action = 'rejectAll' })
    for session in pairs(sessions) do
      port.abort(session)
    end
  end
  if files <= 1 then
    stop()
    return
  end
  vim.ui.select({ 'yes', 'no' }, {
    prompt = ('Reject %s and stop the run?'):format(plural(files, 'file')),
    kind = 'pi.confirm',
  }, function(answer)
    if answer == 'yes' then
      stop()
    end
  end)
end

---@param verb 'accept'|'reject'
function M.all(verb)
  if verb == 'accept' then
    M.accept_all()
  else
    M.reject_all()
  end
end

function M.undo()
  port.send({ action = 'undo' })
end

function M.diff()
  local here = where.here()
  require('pi.review.split').toggle(here and here.proposal, here and where.hunk(here) or nil)
end

function M.list()
  require('pi.review.list').toggle()
end

---Selects the hunk under the cursor.
function M.textobject()
  local here, hunk = at_cursor()
  if not here or not hunk then
    return
  end
  local first, last = where.rows(here, hunk)
  if vim.fn.mode():match('^[vV\22]') then
    api.nvim_feedkeys(vim.keycode('<Esc>'), 'nx', false)
  end
  vim.cmd(('normal! %dGV%dG'):format(first + 1, last + 1))
end

return M
