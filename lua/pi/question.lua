---How a question looks: a float with plain keys. What is asked and what becomes of the answer is `pi.attention`'s.

local api = vim.api
local options = require('pi.review.options')
local say = require('pi.review.say')
local text = require('pi.review.text')

---@class (exact) pi.question.Question
---@field id integer|string
---@field kind 'bash'|'confirm'|'select'|'input'|'editor'|'trust'|'login'
---@field session string
---@field session_name string?
---@field title string? what is asked; a command has its own
---@field message string?
---@field options string[]?
---@field placeholder string?
---@field prefill string?
---@field draft string? what was typed before it was put off
---@field timeout integer? ms
---@field tool string?
---@field command string?
---@field prefix string? leading words that can be allowed; none for a compound command
---@field cwd string?
---@field asked integer when it came, in ns
---@field answer fun(result: table) takes the answer

---@class (exact) pi.question.Dialog
---@field win integer
---@field buf integer
---@field id integer|string
---@field back integer
---@field opened integer when, in ns
---@field guarded boolean whether it came by itself: keys of somebody in the middle of typing must not answer it

---@class (exact) pi.question.Handlers
---@field reply fun(result: table)
---@field later fun()
---@field dialog fun(): pi.question.Dialog?

local M = {}

local ns = api.nvim_create_namespace('pi.attention')

---For so long after a dialog came by itself its keys do nothing.
local GUARD_NS = 0.5 * 1e9

---@param question pi.question.Question
---@return boolean
function M.is_text(question)
  return question.kind == 'input' or question.kind == 'editor'
end

---What a line about the question says.
---@param question pi.question.Question
---@return string
function M.summary(question)
  if question.kind == 'bash' then
    local line = text.cut(vim.split(question.command or '', '\n')[1] or '', 60)
    return 'asks to run: ' .. line
  end
  return 'asks: ' .. text.cut(text.printable((question.title or ''):gsub('%s+', ' ')), 60)
end

---The part of a line that has room, cut between words where that is possible.
---@param line string
---@param room integer
---@param words boolean
---@return string
local function part_of(line, room, words)
  local part = vim.fn.strcharpart(line, 0, room)
  local shorter = words and #part < #line and part:match('^(.*%s)%S*$')
  return shorter and vim.trim(shorter) ~= '' and shorter or part
end

---Adds a text, broken at the width.
---@param lines string[]
---@param given string
---@param width integer
---@param first string before the first line
---@param words boolean whether lines are broken between words
local function add_wrapped(lines, given, width, first, words)
  local all = vim.split(given, '\n')
  for i, line in ipairs(all) do
    if i > 12 then
      lines[#lines + 1] = (' %d more lines: :Pi attention print'):format(#all - 12)
      return
    end
    line = text.printable(line)
    repeat
      local part = part_of(line, width - 4, words)
      lines[#lines + 1] = (#lines == 0 and first or (' '):rep(#first)) .. part
      line = line:sub(#part + 1)
    until line == ''
  end
end

---@param question pi.question.Question
---@param width integer
---@return string[] lines
---@return integer head lines of what it is about
local function lines_of(question, width)
  local lines = {} ---@type string[]
  if question.kind == 'bash' then
    add_wrapped(lines, question.command or '', width, ' $ ', false)
  elseif question.message and question.message ~= '' then
    add_wrapped(lines, question.message, width, ' ', true)
  end
  local head = #lines
  if head > 0 then
    lines[#lines + 1] = ''
  end
  if question.kind == 'bash' then
    lines[#lines + 1] = ' y  run it once'
    if question.prefix then
      local dots = options.ascii() and '...' or '…'
      lines[#lines + 1] = (' p  always in this session: %s %s'):format(question.prefix, dots)
    end
    lines[#lines + 1] = ' n  no'
    lines[#lines + 1] = ' N  no, and tell the model why'
  elseif question.kind == 'confirm' then
    vim.list_extend(lines, { ' y  yes', ' n  no' })
  else
    for i, option in ipairs(question.options or {}) do
      local key = i <= 9 and tostring(i) or ' '
      lines[#lines + 1] = (' %s  %s'):format(key, text.cut(text.printable(option), width - 6))
    end
    if question.kind == 'select' then
      lines[#lines + 1] = ' c  none of these'
    end
  end
  return lines, head
end

---@param buf integer
---@param lines string[]
---@param head integer
---@param group string
local function paint(buf, lines, head, group)
  vim.bo[buf].modifiable = true
  api.nvim_buf_set_lines(buf, 0, -1, false, lines)
  vim.bo[buf].modifiable = false
  for row, line in ipairs(lines) do
    local mark = { end_col = #line, hl_group = group }
    if row > head and line ~= '' then
      mark = { end_col = 2, hl_group = 'PiReviewKey' }
    end
    api.nvim_buf_set_extmark(buf, ns, row - 1, row > head and math.min(1, #line) or 0, mark)
  end
end

---What stands in the lower edge: its place in the queue, the time that is left, how to put it off.
---@param question pi.question.Question
---@param place integer
---@param count integer
---@return string
function M.footer(question, place, count)
  local parts = {} ---@type string[]
  if count > 1 then
    parts[1] = ('%d of %d'):format(place, count)
  end
  local left = M.left(question)
  if left then
    parts[#parts + 1] = ('%ds left'):format(left)
  end
  if question.kind == 'editor' then
    parts[#parts + 1] = 'Ctrl-S sends'
  elseif question.kind == 'input' then
    parts[#parts + 1] = 'Enter sends'
  end
  parts[#parts + 1] = 'Esc: later'
  return ' ' .. table.concat(parts, options.ascii() and ' | ' or ' · ') .. ' '
end

---Seconds that are left; `nil` for a question that waits for ever.
---@param question pi.question.Question
---@return integer?
function M.left(question)
  if not question.timeout then
    return nil
  end
  local gone = (vim.uv.hrtime() - question.asked) / 1e6
  return math.max(0, math.ceil((question.timeout - gone) / 1000))
end

---@param question pi.question.Question
---@param reply fun(result: table)
local function allow_prefix(question, reply)
  if not question.prefix then
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

---@param question pi.question.Question
---@param buf integer
---@param handlers pi.question.Handlers
---@param head integer
local function define_keys(question, buf, handlers, head)
  local function map(lhs, desc, run)
    vim.keymap.set('n', lhs, function()
      local dialog = handlers.dialog()
      if dialog and dialog.guarded and vim.uv.hrtime() - dialog.opened < GUARD_NS then
        return
      end
      run()
    end, { buffer = buf, nowait = true, desc = 'Pi: ' .. desc })
  end
  ---@param lhs string
  ---@param desc string
  ---@param result table
  local function answer(lhs, desc, result)
    map(lhs, desc, function()
      handlers.reply(result)
    end)
  end
  map('<Esc>', 'later', handlers.later)
  map('q', 'later', handlers.later)
  if question.kind == 'bash' then
    answer('y', 'run it once', { answer = 'once' })
    answer('n', 'no', { answer = 'refused' })
    map('p', 'allow for the session', function()
      allow_prefix(question, handlers.reply)
    end)
    map('N', 'no, with a reason', function()
      require('pi.review.note').ask('Why not? The model reads this', nil, function(reason)
        handlers.reply({ answer = 'refused', reason = reason ~= '' and reason or nil })
      end)
    end)
  elseif question.kind == 'confirm' then
    answer('y', 'yes', { confirmed = true })
    answer('n', 'no', { confirmed = false })
  else
    for i, option in ipairs(question.options or {}) do
      if i <= 9 then
        answer(tostring(i), 'choose', { value = option, index = i })
      end
    end
    if question.kind == 'select' then
      answer('c', 'none of these', { cancelled = true })
    end
    map('<CR>', 'choose', function()
      local i = api.nvim_win_get_cursor(0)[1] - (head > 0 and head + 1 or 0)
      if question.options and question.options[i] then
        handlers.reply({ value = question.options[i], index = i })
      end
    end)
  end
end

---A line or a text to be typed.
---@param question pi.question.Question
---@param buf integer
---@param handlers pi.question.Handlers
local function define_text(question, buf, handlers)
  local given = question.draft or question.prefill or ''
  api.nvim_buf_set_lines(buf, 0, -1, false, vim.split(given, '\n'))
  local function typed()
    return table.concat(api.nvim_buf_get_lines(buf, 0, -1, false), '\n')
  end
  local function hint()
    api.nvim_buf_clear_namespace(buf, ns, 0, -1)
    if question.placeholder and typed() == '' then
      api.nvim_buf_set_extmark(buf, ns, 0, 0, {
        virt_text = { { text.printable(question.placeholder), 'PiPlaceholder' } },
        virt_text_pos = 'overlay',
      })
    end
    question.draft = typed()
  end
  api.nvim_create_autocmd({ 'TextChanged', 'TextChangedI' }, { buffer = buf, callback = hint })
  hint()
  local function map(modes, lhs, desc, run)
    vim.keymap.set(modes, lhs, run, { buffer = buf, nowait = true, desc = 'Pi: ' .. desc })
  end
  local function submit()
    vim.cmd.stopinsert()
    handlers.reply({ value = typed() })
  end
  map({ 'n', 'i' }, '<C-s>', 'send', submit)
  if question.kind == 'input' then
    map({ 'n', 'i' }, '<CR>', 'send', submit)
  end
  map({ 'n', 'i' }, '<C-c>', 'no answer', function()
    vim.cmd.stopinsert()
    handlers.reply({ cancelled = true })
  end)
  map('n', '<Esc>', 'later', handlers.later)
  map('n', 'q', 'later', handlers.later)
end

---@param question pi.question.Question
---@return string
local function title_of(question)
  local name = question.session_name and question.session_name .. ': ' or ''
  local title = question.kind == 'bash' and 'Run this command?' or (question.title or '')
  local room = math.max(20, vim.o.columns - 16)
  return (' %s%s '):format(name, text.cut(text.printable((title:gsub('%s+', ' '))), room))
end

---Opens the float and goes into it.
---@param question pi.question.Question
---@param guarded boolean
---@param footer string
---@param handlers pi.question.Handlers
---@return pi.question.Dialog
function M.show(question, guarded, footer, handlers)
  require('pi.review.highlights').apply()
  local width = math.max(30, math.min(76, vim.o.columns - 8))
  local buf = api.nvim_create_buf(false, true)
  vim.bo[buf].bufhidden, vim.bo[buf].filetype = 'wipe', 'pi-question'
  vim.b[buf].pi = { kind = 'question', session = question.session }
  local height, first = question.kind == 'editor' and 8 or 1, 1
  if M.is_text(question) then
    define_text(question, buf, handlers)
  else
    local lines, head = lines_of(question, width)
    height, first = #lines, head > 0 and head + 2 or 1
    paint(buf, lines, head, question.kind == 'bash' and 'PiApprovalCommand' or 'Normal')
    define_keys(question, buf, handlers, head)
  end
  local back = api.nvim_get_current_win()
  if api.nvim_get_mode().mode:match('^i') then
    vim.cmd.stopinsert()
  end
  height = math.max(1, math.min(height, math.max(5, vim.o.lines - 6)))
  local win = api.nvim_open_win(buf, true, {
    relative = 'editor',
    width = width,
    height = height,
    row = math.max(0, math.floor((vim.o.lines - height) / 2) - 2),
    col = math.floor((vim.o.columns - width) / 2) - 1,
    style = 'minimal',
    border = options.ascii() and { '+', '-', '+', '|', '+', '-', '+', '|' } or 'rounded',
    title = { { title_of(question), 'PiApprovalTitle' } },
    footer = { { footer, 'PiReviewHint' } },
    footer_pos = 'right',
    zindex = 60,
  })
  vim.wo[win][0].wrap = question.kind == 'editor'
  vim.wo[win][0].winhighlight = 'FloatBorder:PiApprovalBorder'
  if M.is_text(question) then
    vim.cmd('startinsert!')
  elseif question.options then
    api.nvim_win_set_cursor(win, { first, 1 })
  end
  return {
    win = win,
    buf = buf,
    id = question.id,
    back = back,
    opened = vim.uv.hrtime(),
    guarded = guarded,
  }
end

return M
