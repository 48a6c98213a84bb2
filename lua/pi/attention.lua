---What waits for the user: questions as floats with plain keys, and a badge when now is not the time for them.

local api = vim.api

---@type table<string, fun(...): any>
local uv = vim.uv
local options = require('pi.review.options')
local port = require('pi.review.port')
local say = require('pi.review.say')
local status = require('pi.status')
local text = require('pi.review.text')

---@class (exact) pi.attention.Question
---@field id integer
---@field kind 'bash'
---@field session string
---@field session_name string?
---@field tool string
---@field command string
---@field prefix string? leading words that can be allowed; none for a compound command
---@field cwd string?
---@field asked integer when it came, in ns

---@class (exact) pi.attention.Dialog
---@field win integer
---@field buf integer
---@field id integer
---@field back integer
---@field opened integer when, in ns
---@field guarded boolean whether it came by itself: keys of somebody in the middle of typing must not answer it

local M = {}

local ns = api.nvim_create_namespace('pi.attention')

---@class (exact) pi.attention.State
---@field queue pi.attention.Question[]
---@field dialog pi.attention.Dialog?
---@field reviews integer files with pending hunks
---@field told table<string, integer> when a session last notified, in ns
local state = { queue = {}, dialog = nil, reviews = 0, told = {} }

---A session notifies at most this often.
local QUIET_NS = 30 * 1e9
---For so long after a dialog came by itself its keys do nothing.
local GUARD_NS = 0.5 * 1e9

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

---@param id integer
---@return pi.attention.Question?
local function take(id)
  for i, question in ipairs(state.queue) do
    if question.id == id then
      return table.remove(state.queue, i)
    end
  end
end

---@param answer table
local function reply(answer)
  local dialog = state.dialog
  if not dialog then
    return
  end
  local id = dialog.id
  close()
  if take(id) then
    port.send({ view = 'answer', id = id, answer = answer })
  end
  changed()
  if #state.queue > 0 then
    M.open()
  end
end

---@return pi.attention.Question?
local function shown()
  for _, question in ipairs(state.queue) do
    if state.dialog and question.id == state.dialog.id then
      return question
    end
  end
end

local function allow_prefix()
  local question = shown()
  if not question or not question.prefix then
    say.line('only a single simple command can be allowed for the session')
    return
  end
  vim.ui.input({
    prompt = 'Allow for this session, commands that begin with: ',
    default = question.prefix,
  }, function(prefix)
    if prefix and vim.trim(prefix) ~= '' then
      reply({ answer = 'prefix', prefix = vim.trim(prefix) })
    end
  end)
end

local function refuse_with_reason()
  require('pi.review.note').ask('Why not? The model reads this', nil, function(reason)
    reply({ answer = 'refused', reason = reason ~= '' and reason or nil })
  end)
end

---@param question pi.attention.Question
---@param width integer
---@return string[] lines
---@return integer command_lines
local function lines_of(question, width)
  local lines = {}
  local command = vim.split(question.command, '\n')
  for i, line in ipairs(command) do
    if i > 12 then
      lines[#lines + 1] = (' %d more lines: :Pi attention print'):format(#command - 12)
      break
    end
    line = text.printable(line)
    repeat
      local part = vim.fn.strcharpart(line, 0, width - 4)
      lines[#lines + 1] = (i == 1 and #lines == 0 and ' $ ' or '   ') .. part
      line = line:sub(#part + 1)
    until line == ''
  end
  local commands = #lines
  lines[#lines + 1] = ''
  lines[#lines + 1] = ' y  run it once'
  if question.prefix then
    lines[#lines + 1] = (' p  always in this session: %s …'):format(question.prefix)
    if options.ascii() then
      lines[#lines] = lines[#lines]:gsub(' …', ' ...')
    end
  end
  lines[#lines + 1] = ' n  no'
  lines[#lines + 1] = ' N  no, and tell the model why'
  return lines, commands
end

---@param buf integer
---@param lines string[]
---@param commands integer
local function paint(buf, lines, commands)
  vim.bo[buf].modifiable = true
  api.nvim_buf_set_lines(buf, 0, -1, false, lines)
  vim.bo[buf].modifiable = false
  for row, line in ipairs(lines) do
    if row <= commands then
      api.nvim_buf_set_extmark(
        buf,
        ns,
        row - 1,
        0,
        { end_col = #line, hl_group = 'PiApprovalCommand' }
      )
    elseif line ~= '' then
      api.nvim_buf_set_extmark(buf, ns, row - 1, 1, { end_col = 2, hl_group = 'PiReviewKey' })
    end
  end
end

---@param buf integer
local function define_keys(buf)
  local function map(lhs, desc, run)
    vim.keymap.set('n', lhs, function()
      local dialog = state.dialog
      if dialog and dialog.guarded and uv.hrtime() - dialog.opened < GUARD_NS then
        return
      end
      run()
    end, { buffer = buf, nowait = true, desc = 'Pi: ' .. desc })
  end
  map('y', 'run it once', function()
    reply({ answer = 'once' })
  end)
  map('p', 'allow for the session', allow_prefix)
  map('n', 'no', function()
    reply({ answer = 'refused' })
  end)
  map('N', 'no, with a reason', refuse_with_reason)
  map('<Esc>', 'later', close)
  map('q', 'later', close)
end

---@param question pi.attention.Question
---@param guarded boolean
local function show(question, guarded)
  require('pi.review.highlights').apply()
  local width = math.max(30, math.min(76, vim.o.columns - 8))
  local lines, commands = lines_of(question, width)
  local buf = api.nvim_create_buf(false, true)
  vim.bo[buf].bufhidden, vim.bo[buf].filetype = 'wipe', 'pi-question'
  vim.b[buf].pi = { kind = 'question', session = question.session }
  paint(buf, lines, commands)
  local back = api.nvim_get_current_win()
  if api.nvim_get_mode().mode:match('^i') then
    vim.cmd.stopinsert()
  end
  local more = #state.queue > 1 and (' 1 of %d '):format(#state.queue) or ' Esc: later '
  local name = question.session_name and question.session_name .. ': ' or ''
  local height = math.min(#lines, math.max(5, vim.o.lines - 6))
  local win = api.nvim_open_win(buf, true, {
    relative = 'editor',
    width = width,
    height = height,
    row = math.max(0, math.floor((vim.o.lines - height) / 2) - 2),
    col = math.floor((vim.o.columns - width) / 2) - 1,
    style = 'minimal',
    border = options.ascii() and { '+', '-', '+', '|', '+', '-', '+', '|' } or 'rounded',
    title = { { (' %sRun this command? '):format(name), 'PiApprovalTitle' } },
    footer = { { more, 'PiReviewHint' } },
    footer_pos = 'right',
    zindex = 60,
  })
  vim.wo[win][0].wrap = false
  vim.wo[win][0].winhighlight = 'FloatBorder:PiApprovalBorder'
  local opened = uv.hrtime()
  state.dialog =
    { win = win, buf = buf, id = question.id, back = back, opened = opened, guarded = guarded }
  define_keys(buf)
  api.nvim_create_autocmd('WinClosed', {
    pattern = tostring(win),
    once = true,
    callback = function()
      if state.dialog and state.dialog.win == win then
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
  local lines = {}
  for _, question in ipairs(state.queue) do
    lines[#lines + 1] = { ('%s wants to run: %s\n'):format(question.tool, question.command) }
  end
  lines[#lines + 1] = { ('%d file(s) with hunks to review\n'):format(state.reviews) }
  api.nvim_echo(lines, false, {})
end

M.ops = {}

---@param op pi.attention.Question
function M.ops.ask(op)
  op.asked = uv.hrtime()
  state.queue[#state.queue + 1] = op
  state.told[op.session] = state.told[op.session] or -QUIET_NS
  changed()
  if not state.dialog and M.idle(op.session) then
    show(op, true)
    say.event('PiAttention', { session = op.session, kind = op.kind, count = M.count() })
  else
    local line = text.cut(vim.split(op.command, '\n')[1] or '', 60)
    tell(op.session, op.kind, ('asks to run: %s (:Pi attention)'):format(line))
  end
end

---@param op {id: integer}
function M.ops.gone(op)
  take(op.id)
  if state.dialog and state.dialog.id == op.id then
    close()
  end
  changed()
end

---Core is gone: nothing waits any more.
function M.clear()
  state.queue, state.reviews = {}, 0
  close()
  changed()
end

return M
