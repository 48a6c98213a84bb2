--- The prompt: a buffer a person types in. Its text is cleared only after the backend took it.
local buffer = require('pi.buffer')
local config = require('pi.config')
local notice = require('pi.notice')
local rpc = require('pi.rpc')

local M = {}

---@class pi.prompt.State
---@field session string
---@field buf integer
---@field history string[]
---@field place integer? index in the history while walking through it
---@field draft string[]? what was typed before walking
---@field queue { kind: 'steer'|'after', text: string }[]
---@field sending boolean
---@field images integer pictures that go with the text
---@field aborted integer? when the last abort was asked for
---@field loaded boolean
---@field talk_back string? the first key of talking back during a review

---@type table<string, pi.prompt.State>
local states = {}

local ns = vim.api.nvim_create_namespace('pi.prompt')
local sign_ns = vim.api.nvim_create_namespace('pi.prompt.sign')

--- What was to be sent when there was no session to send it to; the next prompt shows it.
---@type string?
local kept

---@return pi.prompt.State?
local function here()
  local buf = vim.api.nvim_get_current_buf()
  for _, state in pairs(states) do
    if state.buf == buf then
      return state
    end
  end
  return states[vim.t.pi_session or '']
end

---@param state pi.prompt.State
---@return string
local function text_of(state)
  return table.concat(vim.api.nvim_buf_get_lines(state.buf, 0, -1, false), '\n')
end

--- Colours what the text mentions: files that are there, names that Neovim resolves, a command on the first line.
---@param state pi.prompt.State
---@param lines string[]
local function draw_mentions(state, lines)
  local info = require('pi.session').info(state.session)
  local names = require('pi.context').names()
  for row, line in ipairs(lines) do
    for place, word in line:gmatch('()@(%S+)') do
      local start = math.floor(tonumber(place) or 1)
      local before = start == 1 or line:sub(start - 1, start - 1):match('%s')
      local path = word:gsub(':[%d-]*$', ''):gsub('[,.;)]$', '')
      local found = vim.tbl_contains(names, path)
        or (info and vim.uv.fs_stat(vim.fs.joinpath(info.cwd, path)) ~= nil)
        or vim.uv.fs_stat(path) ~= nil
      if before then
        vim.api.nvim_buf_set_extmark(state.buf, ns, row - 1, start - 1, {
          end_col = start + #word,
          hl_group = found and 'PiMention' or 'PiMentionBad',
        })
      end
    end
  end
  local command = (lines[1] or ''):match('^[/!]%S*')
  if command then
    vim.api.nvim_buf_set_extmark(
      state.buf,
      ns,
      0,
      0,
      { end_col = #command, hl_group = 'PiCommand' }
    )
  end
end

--- Sign, placeholder, and the queue above the first line.
---@param state pi.prompt.State
local function draw(state)
  if not vim.api.nvim_buf_is_valid(state.buf) then
    return
  end
  vim.api.nvim_buf_clear_namespace(state.buf, ns, 0, -1)
  vim.api.nvim_buf_clear_namespace(state.buf, sign_ns, 0, -1)
  vim.api.nvim_buf_set_extmark(state.buf, sign_ns, 0, 0, {
    sign_text = config.ascii() and '>' or '❯',
    sign_hl_group = 'PiUser',
  })
  local lines = vim.api.nvim_buf_get_lines(state.buf, 0, 200, false)
  draw_mentions(state, lines)
  local empty = #lines <= 1 and (lines[1] or '') == ''
  if empty then
    local hint = '<C-s> sends, @ names a file, / a command'
    vim.api.nvim_buf_set_extmark(state.buf, ns, 0, 0, {
      virt_text = { { hint, 'PiPlaceholder' } },
      virt_text_pos = 'overlay',
    })
  end
  local below = {} ---@type [string, string][][]
  for i, line in ipairs(require('pi.attach').lines(table.concat(lines, '\n'), state.session)) do
    below[i] = { { line, 'PiAttachment' } }
  end
  state.images = #below
  if #below > 0 then
    local last = vim.api.nvim_buf_line_count(state.buf) - 1
    vim.api.nvim_buf_set_extmark(state.buf, ns, last, 0, { virt_lines = below })
  end
  local above = {} ---@type [string, string][][]
  for _, item in ipairs(state.queue) do
    local line = item.text:gsub('%s+', ' ')
    above[#above + 1] = { { item.kind .. ': ' .. line, 'PiQueue' } }
  end
  if state.talk_back then
    above[#above + 1] = { { state.talk_back, 'PiStatusAsk' } }
  end
  if #above > 0 then
    vim.api.nvim_buf_set_extmark(state.buf, ns, 0, 0, {
      virt_lines = above,
      virt_lines_above = true,
    })
    -- Lines above the first one are hidden unless the window is scrolled to them.
    for _, win in ipairs(vim.fn.win_findbuf(state.buf)) do
      vim.api.nvim_win_call(win, function()
        vim.fn.winrestview({ topline = 1, topfill = #above })
      end)
    end
  end
end

--- Grows the prompt with its text, up to part of the screen, and shrinks it again.
---@param state pi.prompt.State
local function fit(state)
  local lines = vim.api.nvim_buf_line_count(state.buf) + #state.queue + state.images
  local most = math.max(3, math.floor(vim.o.lines * 0.4))
  for _, win in ipairs(vim.fn.win_findbuf(state.buf)) do
    local least = require('pi.window').prompt_height()
    if least == 1 and win == vim.api.nvim_get_current_win() then
      least = math.min(3, lines)
    end
    local want = math.max(least, math.min(lines, most))
    if
      vim.api.nvim_win_get_config(win).relative == ''
      and vim.api.nvim_win_get_height(win) ~= want
    then
      vim.api.nvim_win_set_height(win, want)
    end
  end
end

---@param state pi.prompt.State
---@param lines string[]
local function set_text(state, lines)
  vim.api.nvim_buf_set_lines(state.buf, 0, -1, false, lines)
  for _, win in ipairs(vim.fn.win_findbuf(state.buf)) do
    local last = lines[#lines] or ''
    vim.api.nvim_win_set_cursor(win, { math.max(1, #lines), #last })
  end
  draw(state)
  fit(state)
end

---@type table<string, uv.uv_timer_t>
local draft_timers = {}

--- Keeps the draft with the backend, a moment after the last key.
---@param state pi.prompt.State
local function keep_draft(state)
  local timer = draft_timers[state.session] or vim.uv.new_timer()
  draft_timers[state.session] = timer
  timer:start(
    400,
    0,
    vim.schedule_wrap(function()
      if vim.api.nvim_buf_is_valid(state.buf) then
        rpc.notify('prompt.draft', { session = state.session, text = text_of(state) })
      end
    end)
  )
end

--- Loads draft and history once the backend is there.
---@param state pi.prompt.State
local function load(state)
  if state.loaded or not rpc.connected() then
    return
  end
  state.loaded = true
  rpc.request('prompt.load', { session = state.session }, function(err, result)
    if err or not vim.api.nvim_buf_is_valid(state.buf) then
      state.loaded = false
      return
    end
    state.history = result.history
    if result.draft ~= '' and text_of(state) == '' then
      set_text(state, vim.split(result.draft, '\n'))
    end
  end)
end

--- Whether a completion menu is open, Neovim's own or another plugin's.
---@return boolean
local function menu_open()
  return vim.fn.pumvisible() == 1
    or (package.loaded['cmp'] and require('cmp').visible())
    or (package.loaded['blink.cmp'] and require('blink.cmp').is_visible())
    or false
end

--- Walks through what was sent before; the draft is kept and comes back.
---@param step 1|-1
---@return boolean handled
local function history(step)
  local state = here()
  if not state or menu_open() then
    return false
  end
  local row = vim.api.nvim_win_get_cursor(0)[1]
  local last = vim.api.nvim_buf_line_count(state.buf)
  if (step < 0 and row > 1) or (step > 0 and row < last) or #state.history == 0 then
    return false
  end
  local place = state.place or #state.history + 1
  if place == #state.history + 1 then
    state.draft = vim.api.nvim_buf_get_lines(state.buf, 0, -1, false)
  end
  place = math.min(math.max(place + step, 1), #state.history + 1)
  state.place = place
  local text = state.history[place]
  set_text(state, text and vim.split(text, '\n') or state.draft or { '' })
  return true
end

--- Maps a key that does something here, and else what it always does.
---@param key string
---@param fn fun(): boolean
---@return fun()
local function or_else(key, fn)
  return function()
    if not fn() then
      local raw = vim.api.nvim_replace_termcodes(key, true, false, true)
      vim.api.nvim_feedkeys(raw, 'n', false)
    end
  end
end

--- Runs a slash command that the plugin itself knows; others go to the backend.
---@param text string
---@return boolean handled
local function slash(text)
  local name, rest = text:match('^/(%S+)%s*(.*)$')
  if not name or text:find('\n') then
    return false
  end
  return require('pi.command').slash(name, rest or '')
end

---@param state pi.prompt.State
---@param text string
---@param err string?
---@param result table?
local function sent(state, text, err, result)
  state.sending = false
  if err then
    notice.say(err, 'error')
    require('pi.login').wanted(state.session, err)
    return
  end
  if result and result.talk_back then
    state.talk_back = result.talk_back
    draw(state)
    return
  end
  state.talk_back = nil
  state.place, state.draft = nil, nil
  require('pi.attach').clear(state.session)
  -- What was typed since stays.
  if vim.api.nvim_buf_is_valid(state.buf) and text_of(state) == text then
    set_text(state, { '' })
  end
end

--- Sends what stands in the prompt of a session.
---@param session string
function M.send_from(session)
  local state = states[session]
  if state then
    M.send('send', state)
  end
end

--- Sends what stands in the prompt.
---@param how 'send'|'followup'
---@param state pi.prompt.State? the current one when absent
function M.send(how, state)
  state = state or here()
  if not state then
    return
  end
  local text = text_of(state)
  if vim.trim(text) == '' or state.sending then
    return
  end
  if slash(text) then
    set_text(state, { '' })
    return
  end
  state.sending = true
  local context = require('pi.context').gather(text)
  require('pi.session').request('prompt.send', {
    session = state.session,
    text = text,
    how = how,
    again = state.talk_back ~= nil,
    context = context,
    images = require('pi.attach').paths(text, state.session),
  }, function(err, result)
    sent(state, text, err, result)
  end)
end

--- Stops the run; a second time within a second also clears the queue.
local function abort()
  local state = here()
  local now = vim.uv.now()
  local again = state and state.aborted and now - state.aborted < 1000
  if state then
    state.aborted = now
  end
  require('pi.command').execute({ 'abort' }, { bang = again or false })
end

--- Takes the last queued message back for editing.
---@return boolean
function M.dequeue()
  local state = here()
  local last = state and state.queue[#state.queue]
  if not state or not last then
    return false
  end
  rpc.request('run.queue_clear', { session = state.session }, function(err, queue)
    if err then
      notice.say(err, 'error')
      return
    end
    local all = {} ---@type string[]
    vim.list_extend(all, queue.steering or {})
    vim.list_extend(all, queue.followUp or {})
    local now = text_of(state)
    if now ~= '' then
      all[#all + 1] = now
    end
    set_text(state, vim.split(table.concat(all, '\n\n'), '\n'))
  end)
  return true
end

---@type { [1]: string|string[], [2]: string, [3]: function, [4]: string }[]
M.keys = {
  {
    { 'n', 'i' },
    '<C-s>',
    function()
      M.send('send')
    end,
    'send, or steer a running agent',
  },
  {
    'n',
    '<CR>',
    function()
      M.send('send')
    end,
    'send',
  },
  {
    { 'n', 'i' },
    '<C-q>',
    function()
      M.send('followup')
    end,
    'send for after the run',
  },
  { { 'n', 'i' }, '<C-c>', abort, 'stop the run; twice clears the queue' },
  { 'i', '<Up>', or_else('<Up>', function()
    return history(-1)
  end), 'earlier prompt' },
  { 'i', '<Down>', or_else('<Down>', function()
    return history(1)
  end), 'later prompt' },
  { 'i', '<C-p>', or_else('<C-p>', function()
    return history(-1)
  end), 'earlier prompt' },
  { 'i', '<C-n>', or_else('<C-n>', function()
    return history(1)
  end), 'later prompt' },
  {
    'i',
    '<M-Up>',
    function()
      M.dequeue()
    end,
    'take queued messages back',
  },
  {
    'n',
    'q',
    function()
      require('pi.window').close()
    end,
    'hide',
  },
  {
    'n',
    '?',
    function()
      M.help()
    end,
    'these keys',
  },
}

function M.help()
  local list = {} ---@type { [1]: string, [2]: any, [3]: string }[]
  for _, key in ipairs(M.keys) do
    list[#list + 1] = { key[2], nil, key[4] }
  end
  require('pi.help').show('Prompt', list)
end

---@param buf integer
local function attach_keys(buf)
  for _, key in ipairs(M.keys) do
    vim.keymap.set(key[1], key[2], key[3], { buffer = buf, desc = 'Pi: ' .. key[4] })
  end
  if config.get().prompt.enter == 'send' then
    local enter = or_else('<CR>', function()
      if vim.fn.pumvisible() == 1 then
        return false
      end
      M.send('send')
      return true
    end)
    vim.keymap.set('i', '<CR>', enter, { buffer = buf, desc = 'Pi: send' })
    for _, key in ipairs({ '<S-CR>', '<C-j>' }) do
      vim.keymap.set('i', key, '<CR>', { buffer = buf, desc = 'Pi: new line' })
    end
  end
end

--- The prompt buffer of a session.
---@param session string
---@return integer buf
function M.buffer(session)
  local state = states[session]
  if state and vim.api.nvim_buf_is_valid(state.buf) then
    return state.buf
  end
  local buf =
    buffer.scratch('pi://prompt/' .. buffer.short(session), 'prompt', 'pi-prompt', session)
  vim.bo[buf].modifiable = true
  vim.bo[buf].textwidth = 0
  vim.bo[buf].omnifunc = "v:lua.require'pi.complete'.omni"
  state = {
    session = session,
    buf = buf,
    history = {},
    queue = {},
    sending = false,
    loaded = false,
    images = 0,
  }
  states[session] = state
  attach_keys(buf)
  require('pi.attach').watch_paste()
  local group = vim.api.nvim_create_augroup('pi.prompt.' .. buf, {})
  vim.api.nvim_create_autocmd({ 'TextChanged', 'TextChangedI', 'TextChangedP' }, {
    group = group,
    buffer = buf,
    callback = function()
      vim.bo[buf].modified = false
      state.talk_back = nil
      draw(state)
      fit(state)
      keep_draft(state)
    end,
  })
  vim.api.nvim_create_autocmd({ 'WinEnter', 'WinLeave' }, {
    group = group,
    buffer = buf,
    callback = vim.schedule_wrap(function()
      if vim.api.nvim_buf_is_valid(buf) then
        fit(state)
        draw(state)
      end
    end),
  })
  vim.api.nvim_create_autocmd('BufWipeout', {
    group = group,
    buffer = buf,
    callback = function()
      states[session] = nil
    end,
  })
  draw(state)
  return buf
end

--- Keeps a text that could not be sent because nothing runs; it stands in the prompt that is shown next.
---@param text string
function M.keep(text)
  local session = vim.t.pi_session
  if session and states[session] then
    M.prefill(session, text)
    return
  end
  kept = kept and kept ~= text and (kept .. '\n\n' .. text) or text
end

--- Called when a window begins to show a prompt.
---@param session string
function M.shown(session)
  local state = states[session]
  if state then
    if kept then
      local text = kept
      kept = nil
      M.prefill(session, text)
    end
    load(state)
    fit(state)
    draw(state)
  end
end

--- Puts text into the prompt of the current session, at its cursor.
---@param text string
function M.insert(text)
  local session = require('pi.session').current()
  if not session then
    return
  end
  M.buffer(session)
  local state = states[session] ---@type pi.prompt.State
  local old = text_of(state)
  local joined = old == '' and text or (old:gsub('%s*$', '') .. ' ' .. text)
  set_text(state, vim.split(joined, '\n'))
  keep_draft(state)
end

--- Replaces what stands in the prompt (a message taken out of the tree); what stood there stays above it.
---@param session string
---@param text string
function M.prefill(session, text)
  M.buffer(session)
  local state = states[session] ---@type pi.prompt.State
  local old = vim.trim(text_of(state))
  local joined = old == '' and text or (old .. '\n\n' .. text)
  set_text(state, vim.split(joined, '\n'))
  keep_draft(state)
end

--- What stands in the prompt of a session.
---@param session string
---@return string?
function M.text(session)
  local state = states[session]
  return state and vim.api.nvim_buf_is_valid(state.buf) and text_of(state) or nil
end

--- Puts another text in its place.
---@param session string
---@param text string
function M.replace(session, text)
  local state = states[session]
  if state then
    set_text(state, vim.split(text, '\n'))
    keep_draft(state)
  end
end

--- Draws a prompt anew: something beside its text changed.
---@param session string
function M.refresh(session)
  local state = states[session]
  if state then
    draw(state)
    fit(state)
  end
end

M.ops = {}

--- The queue as the backend has it; a message leaves it when it was delivered.
---@param op { session: string, steering: string[], follow_up: string[] }
function M.ops.queue(op)
  M.buffer(op.session)
  local state = states[op.session] ---@type pi.prompt.State
  state.queue = {}
  for _, text in ipairs(op.steering) do
    state.queue[#state.queue + 1] = { kind = 'steer', text = text }
  end
  for _, text in ipairs(op.follow_up) do
    state.queue[#state.queue + 1] = { kind = 'after', text = text }
  end
  fit(state)
  draw(state)
end

--- An extension puts a text into the prompt; what stood there stays above it.
---@param op { session: string, text: string }
function M.ops.set_text(op)
  if op.text ~= '' then
    M.prefill(op.session, op.text)
  end
end

--- A text that was sent, from wherever.
---@param op { session: string, text: string }
function M.ops.remember(op)
  local state = states[op.session]
  if state then
    state.history = vim.tbl_filter(function(it)
      return it ~= op.text
    end, state.history)
    state.history[#state.history + 1] = op.text
    state.place = nil
  end
end

---@return { kind: 'steer'|'after', text: string }[]
function M.queue()
  local state = here()
  return state and state.queue or {}
end

---@param buf integer
---@param name string
---@return boolean
function M.read(buf, name)
  for session, state in pairs(states) do
    if name == 'pi://prompt/' .. buffer.short(session) then
      state.buf, state.loaded = buf, false
      vim.bo[buf].modifiable = true
      load(state)
      return true
    end
  end
  return false
end

return M
