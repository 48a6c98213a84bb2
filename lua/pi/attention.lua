---What waits for the user: questions as floats with plain keys, and a badge when now is not the time for them.

local api = vim.api

---@type table<string, fun(...): any>
local uv = vim.uv
local port = require('pi.review.port')
local question_view = require('pi.question')
local say = require('pi.review.say')
local status = require('pi.status')

local M = {}

---@class (exact) pi.attention.State
---@field queue pi.question.Question[]
---@field dialog pi.question.Dialog?
---@field reviews integer files with pending hunks
---@field told table<string, integer> when a session last notified, in ns
---@field timer uv.uv_timer_t? counts down while a question has a limit
local state = { queue = {}, dialog = nil, reviews = 0, told = {}, timer = nil }

---A session notifies at most this often.
local QUIET_NS = 30 * 1e9

---Whether the user sits in the empty prompt of a session and does nothing.
---@param session string
---@return boolean
function M.idle(session)
  local buf = api.nvim_get_current_buf()
  local mine = vim.b[buf].pi
  if vim.bo[buf].filetype ~= 'pi-prompt' or vim.fn.pumvisible() == 1 then
    return false
  end
  local other = type(mine) == 'table' and mine.session and not vim.startswith(session, mine.session)
  local mode = api.nvim_get_mode().mode
  if other or (mode ~= 'n' and mode ~= 'i') then
    return false
  end
  local lines = api.nvim_buf_get_lines(buf, 0, -1, false)
  return vim.trim(table.concat(lines)) == ''
end

---Number of things that wait.
---@return integer
function M.count()
  return #state.queue + state.reviews
end

local function changed()
  vim.g.pi_attention = M.count()
  for session in pairs(state.told) do
    local waiting = vim.tbl_filter(function(question)
      return question.session == session
    end, state.queue)
    status.patch(session, { attention = #waiting })
  end
end

---@param session string
---@param kind string
---@param line string
local function tell(session, kind, line)
  changed()
  say.event('PiAttention', { session = session, kind = kind, count = M.count() })
  local now = uv.hrtime()
  if now - (state.told[session] or -QUIET_NS) >= QUIET_NS then
    state.told[session] = now
    say.tell(line)
  end
end

---A proposal is open; when it could not be shown the user hears of it.
---@param proposal pi.review.Proposal
---@param shown boolean
function M.review(proposal, shown)
  if not shown then
    local hunks = #proposal.hunks
    tell(
      proposal.session,
      'review',
      ('%s: %d hunk%s to review (:Pi review)'):format(
        proposal.display,
        hunks,
        hunks == 1 and '' or 's'
      )
    )
  end
  changed()
end

---@param files integer
function M.pending(files)
  if files ~= state.reviews then
    state.reviews = files
    changed()
  end
end

local function close()
  local dialog = state.dialog
  state.dialog = nil
  if not dialog then
    return
  end
  local focused = api.nvim_get_current_win() == dialog.win
  if api.nvim_win_is_valid(dialog.win) then
    api.nvim_win_close(dialog.win, true)
  end
  if focused and api.nvim_win_is_valid(dialog.back) then
    api.nvim_set_current_win(dialog.back)
  end
end

---@param id integer|string
---@return pi.question.Question?
local function take(id)
  for i, question in ipairs(state.queue) do
    if question.id == id then
      return table.remove(state.queue, i)
    end
  end
end

---Takes a question off the queue and gives it its answer.
---@param id integer|string
---@param result table
local function settle(id, result)
  if state.dialog and state.dialog.id == id then
    close()
  end
  local question = take(id)
  changed()
  if question then
    question.answer(result)
  end
end

---@param result table
local function reply(result)
  local dialog = state.dialog
  if not dialog then
    return
  end
  settle(dialog.id, result)
  if #state.queue > 0 and not state.dialog then
    M.open()
  end
end

---@param question pi.question.Question
---@return string
local function footer(question)
  local place = 1
  for i, other in ipairs(state.queue) do
    if other.id == question.id then
      place = i
    end
  end
  return question_view.footer(question, place, #state.queue)
end

---@type fun()
local tick

---Counts down where a question has a limit, and stops when none has.
local function keep_time()
  local limited = false
  for _, question in ipairs(state.queue) do
    limited = limited or question.timeout ~= nil
  end
  if limited and not state.timer then
    state.timer = uv.new_timer()
    state.timer:start(
      250,
      250,
      vim.schedule_wrap(function()
        tick()
      end)
    )
  elseif not limited and state.timer then
    state.timer:stop()
    state.timer:close()
    state.timer = nil
  end
end

tick = function()
  for _, question in ipairs(vim.list_slice(state.queue)) do
    if question_view.left(question) == 0 then
      settle(question.id, { cancelled = true })
      say.line('no answer in time: ' .. (question.title or ''))
    elseif state.dialog and state.dialog.id == question.id then
      if api.nvim_win_is_valid(state.dialog.win) then
        api.nvim_win_set_config(state.dialog.win, {
          footer = { { footer(question), 'PiReviewHint' } },
          footer_pos = 'right',
        })
      end
    end
  end
  keep_time()
end

---@param question pi.question.Question
---@param guarded boolean
local function show(question, guarded)
  local dialog = question_view.show(question, guarded, footer(question), {
    reply = reply,
    later = close,
    dialog = function()
      return state.dialog
    end,
  })
  state.dialog = dialog
  api.nvim_create_autocmd('WinClosed', {
    pattern = tostring(dialog.win),
    once = true,
    callback = function()
      if state.dialog and state.dialog.win == dialog.win then
        state.dialog = nil
      end
    end,
  })
end

---Opens the oldest question; without one, goes to the next pending hunk.
function M.open()
  local dialog = state.dialog
  if dialog and api.nvim_win_is_valid(dialog.win) then
    api.nvim_set_current_win(dialog.win)
    return
  end
  local question = state.queue[1]
  if question then
    show(question, false)
  elseif not require('pi.review.jump').hunk(1, 1) then
    say.line('nothing waits for you')
  end
end

---Takes a question in: shown at once to somebody who is idle in its session, else told of.
---@param question pi.question.Question
---@param quiet boolean? told already in another way
function M.put(question, quiet)
  question.asked = uv.hrtime()
  take(question.id)
  state.queue[#state.queue + 1] = question
  state.told[question.session] = state.told[question.session] or -QUIET_NS
  changed()
  keep_time()
  -- A text field would take the keys of somebody in the middle of typing as its text.
  local opens = not question_view.is_text(question) and M.idle(question.session)
  if not state.dialog and opens then
    show(question, true)
    say.event(
      'PiAttention',
      { session = question.session, kind = question.kind, count = M.count() }
    )
  elseif not quiet then
    local line = question_view.summary(question) .. ' (:Pi attention)'
    tell(question.session, question.kind, line)
  end
end

---Opens a question that the person asked for themselves.
---@param question pi.question.Question
function M.put_now(question)
  question.asked = uv.hrtime()
  take(question.id)
  table.insert(state.queue, 1, question)
  state.told[question.session] = state.told[question.session] or -QUIET_NS
  changed()
  close()
  M.open()
end

---A question is answered elsewhere, or nobody waits for it any more.
---@param id integer|string
function M.withdraw(id)
  take(id)
  if state.dialog and state.dialog.id == id then
    close()
  end
  changed()
  keep_time()
end

---Runs `:Pi attention [print]`.
---@param args string[]
function M.command(args)
  if args[1] == 'print' then
    M.print()
  else
    M.open()
  end
end

---Prints what waits, as text.
function M.print()
  local lines = {} ---@type [string][]
  for _, question in ipairs(state.queue) do
    local age = math.floor((uv.hrtime() - question.asked) / 1e9)
    local left = question_view.left(question)
    local what = question.command or question.title or ''
    if question.kind == 'bash' then
      what = ('%s wants to run: %s'):format(question.tool, what)
    end
    local when = ('asked %ds ago'):format(age) .. (left and (', %ds left'):format(left) or '')
    lines[#lines + 1] = { ('%s (%s)\n'):format(what, when) }
    if question.message then
      lines[#lines + 1] = { question.message .. '\n' }
    end
  end
  if state.reviews > 0 then
    local files = state.reviews == 1 and '1 file has' or ('%d files have'):format(state.reviews)
    lines[#lines + 1] = { files .. ' hunks to review\n' }
  end
  api.nvim_echo(lines, false, {})
end

M.ops = {}

---@param op pi.question.Question
function M.ops.ask(op)
  op.answer = function(result)
    port.send({ view = 'answer', id = op.id, answer = result })
  end
  M.put(op)
end

---@param op {id: integer}
function M.ops.gone(op)
  M.withdraw(op.id)
end

---A dialog of an extension; the answer goes to the session it belongs to.
---@param op pi.question.Question
function M.ops.dialog(op)
  op.answer = function(result)
    result.index = nil
    require('pi.rpc').request('dialog.answer', {
      session = op.session,
      id = op.id,
      answer = result,
    })
  end
  M.put(op)
end

---A session has ended: nobody waits for answers to its questions.
---@param session string
function M.forget(session)
  for _, question in ipairs(vim.list_slice(state.queue)) do
    if question.session == session then
      M.withdraw(question.id)
    end
  end
end

---Core is gone: nothing waits any more.
function M.clear()
  state.queue, state.reviews = {}, 0
  close()
  changed()
  keep_time()
end

return M
