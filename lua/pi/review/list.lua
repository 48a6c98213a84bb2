---The review list: every file and hunk that is waiting, with one key for each decision.

local api = vim.api
local buffers = require('pi.review.buffers')
local consent = require('pi.review.consent')
local files = require('pi.review.files')
local list_rows = require('pi.review.list_rows')
local options = require('pi.review.options')
local port = require('pi.review.port')
local say = require('pi.review.say')
local state = require('pi.review.state')
local window_of = require('pi.window')
local wins = require('pi.review.win')

local M = {}

local ns = api.nvim_create_namespace('pi.review.list')

---@class (exact) pi.review.List
---@field buf integer?
---@field rows pi.review.ListRow[]
---@field folded table<integer, boolean>
---@field sizes pi.review.WinSizes? how the other windows were before
---@field lent {win: integer, buf: integer}? the chat's window, on small screens, and what it showed
local list = { buf = nil, rows = {}, folded = {}, sizes = nil, lent = nil }

local HEIGHT = 10
---On a screen with fewer lines, or beside a code window with fewer, the list takes the chat's window.
local SMALL, SMALL_CODE = 30, 16

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
  local lnum = wins.row(win) + 1
  local on = list.rows[lnum] ---@type pi.review.ListRow?
  list.rows = list_rows.rows(api.nvim_win_get_width(win), list.folded)
  paint(buf)
  local stay = find_row(on) or math.min(lnum, #list.rows) ---@type integer
  api.nvim_win_set_cursor(win, { math.max(1, stay), 0 })
end

---@return pi.review.Proposal?, pi.review.Hunk?
local function at_cursor()
  local row = list.rows[wins.row(0) + 1] ---@type pi.review.ListRow?
  local proposal = row and row.proposal and state.get(row.proposal)
  if not row or not proposal then
    return nil, nil
  end
  local hunk = row.hunk and state.hunk(row.hunk) or nil
  return proposal, hunk
end

---@param verb 'accept'|'reject'
local function decide(verb)
  local proposal, hunk = at_cursor()
  if not proposal then
    say.line('no change in this line')
    return
  end
  consent.before(verb, { proposal }, function()
    if hunk then
      port.send({ action = verb, hunks = { hunk.id }, note = state.reason(hunk, verb) })
      M.next_pending(hunk.id)
    else
      port.send({ action = verb .. 'File', proposal = proposal.id })
    end
  end)
end

---Moves the cursor to the next pending hunk in the list.
---@param without integer
function M.next_pending(without)
  if not options.review().advance then
    return
  end
  local lnum = wins.row(0) + 1
  for offset = 1, #list.rows do
    local at = (lnum - 1 + offset) % #list.rows + 1 ---@type integer
    local row = list.rows[at] ---@type pi.review.ListRow?
    local hunk = row and row.hunk and row.hunk ~= without and state.hunk(row.hunk)
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
    say.line('waits for an earlier change of the same file')
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
  if not proposal then
    say.line('no change in this line')
    return
  end
  -- What is open already falls under it at once.
  local covered = vim.tbl_filter(function(other)
    return scope ~= 'fileForRun' or other.real == proposal.real
  end, state.all(proposal.session))
  consent.before('accept', covered, function()
    port.send({ action = 'grant', scope = scope, session = proposal.session, path = proposal.real })
  end)
end

local function note()
  local _, hunk = at_cursor()
  if hunk then
    require('pi.review.note').ask('Note to the model', hunk.note, function(line)
      port.send({ action = 'note', hunk = hunk.id, note = line ~= '' and line or nil })
    end)
  else
    say.line('no hunk in this line')
  end
end

local function edit()
  local proposal, hunk = at_cursor()
  if proposal and proposal.state ~= 'waiting' then
    require('pi.review.jump').show_proposal(proposal, hunk or proposal.hunks[1], true)
  else
    say.line(
      proposal and 'waits for an earlier change of the same file' or 'no change in this line'
    )
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
  if not proposal then
    say.line('no change in this line')
    return
  end
  consent.before(verb, { proposal }, function()
    port.send({ action = verb .. 'File', proposal = proposal.id })
  end)
end

---@param name 'accept_all'|'reject_all'|'undo'
---@return fun()
local function action(name)
  return function()
    local run = require('pi.review.actions')[name] ---@type fun()
    run()
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

---Shows the list in the chat's window when the screen is small.
---@param buf integer
---@return integer? win
local function borrow(buf)
  local code = files.target_window(-1)
  local small = vim.o.lines < SMALL or api.nvim_win_get_height(code) < SMALL_CODE
  local chat = window_of.windows()
  if not small or not chat then
    return nil
  end
  list.lent = { win = chat, buf = api.nvim_win_get_buf(chat) }
  window_of.set_buffer(chat, buf)
  return chat
end

---@param buf integer
---@return integer win
local function split_below(buf)
  local code = files.target_window(-1)
  list.sizes = wins.sizes()
  local height = math.max(3, math.min(HEIGHT, api.nvim_win_get_height(code) - 11))
  local win = api.nvim_open_win(buf, false, { split = 'below', win = code, height = height })
  wins.restore_sizes(list.sizes, code)
  api.nvim_win_set_height(win, height)
  return win
end

---Opens the list below the code; other windows keep their sizes.
---@param focus boolean
function M.open(focus)
  local win = window()
  if not win then
    local buf = buffer()
    win = borrow(buf) or split_below(buf)
    local wo = vim.wo[win][0]
    wo.number, wo.relativenumber, wo.signcolumn, wo.foldcolumn = false, false, 'no', '0'
    wo.wrap, wo.cursorline, wo.spell, wo.list = false, true, false, false
    wo.winfixheight, wo.winfixbuf = true, true
    local hint = 'a accept  r reject  n note  e edit  A/R file  ga/gr all  u undo  d diff  ? help'
    wo.statusline = ' ' .. hint .. '%<'
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
  local lent = list.lent
  list.lent = nil
  if win and lent and lent.win == win and api.nvim_buf_is_valid(lent.buf) then
    window_of.set_buffer(lent.win, lent.buf)
    return
  end
  if not win or #api.nvim_tabpage_list_wins(0) == 1 then
    return
  end
  api.nvim_win_close(win, true)
  if list.sizes then
    wins.restore_sizes(list.sizes)
    list.sizes = nil
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
