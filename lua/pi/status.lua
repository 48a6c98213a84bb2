--- What the statusline and the winbar say. Everything is answered from the last state the backend sent.
local M = {}

---@class pi.Status
---@field session string
---@field name string?
---@field state 'run'|'ask'|'idle'|'err'
---@field running boolean
---@field model string?
---@field provider string?
---@field thinking string
---@field cwd string
---@field context_pct number?
---@field context_window integer?
---@field tokens_in integer
---@field tokens_out integer
---@field cost number
---@field queue integer
---@field pending_hunks integer
---@field unreviewed integer
---@field attention integer
---@field mode string
---@field retry [integer, integer]?
---@field compaction boolean

---@type table<string, pi.Status>
local states = {}
---@type table<string, string>
local texts = {}
local last_redraw, waiting = 0, false

--- At most four times a second.
function M.redraw()
  if waiting then
    return
  end
  waiting = true
  local wait = math.floor(math.max(0, 250 - (vim.uv.now() - last_redraw)))
  vim.defer_fn(function()
    waiting = false
    last_redraw = vim.uv.now()
    vim.cmd('redrawstatus!')
  end, wait)
end

---@param it pi.Status
---@return string
local function describe(it)
  local parts = { 'pi' }
  parts[#parts + 1] = it.state
  if it.attention and it.attention > 0 then
    parts[#parts + 1] = it.attention .. '?'
  end
  if it.pending_hunks and it.pending_hunks > 0 then
    parts[#parts + 1] = it.pending_hunks .. ' hunks'
  end
  if it.queue > 0 then
    parts[#parts + 1] = it.queue .. ' queued'
  end
  if it.context_pct then
    parts[#parts + 1] = ('%d%%'):format(it.context_pct)
  end
  return table.concat(parts, ' ')
end

--- What was said last of each session, with the option `ui.announce`.
---@type table<string, string>
local said = {}

--- Says a change of state as a message: numbers that grow while something runs are no change.
---@param session string
---@param it pi.Status?
local function announce(session, it)
  if not require('pi.config').get().ui.announce then
    return
  end
  local line ---@type string?
  if it then
    local words =
      { idle = 'idle', run = 'running', ask = 'waits for you', err = 'stopped by an error' }
    local parts = { words[it.state] or it.state }
    if it.retry then
      parts[#parts + 1] = ('retry %d of %d'):format(it.retry[1], it.retry[2])
    end
    if it.compaction then
      parts[#parts + 1] = 'compacting'
    end
    if (it.pending_hunks or 0) > 0 then
      parts[#parts + 1] = ('%d to review'):format(it.pending_hunks)
    end
    line = table.concat(parts, ', ')
  end
  local before = said[session]
  said[session] = line
  -- That a new session is idle is no news.
  if line and line ~= before and not (before == nil and line == 'idle') then
    local name = it and it.name and it.name .. ': ' or ''
    vim.schedule(function()
      vim.api.nvim_echo({ { 'pi: ' .. name .. line } }, true, {})
    end)
  end
end

---@param session string
local function changed(session)
  local it = states[session]
  announce(session, it)
  texts[session] = it and describe(it) or ''
  vim.g.pi_status = texts[session]
  M.redraw()
end

--- One line for the statusline; an empty one when nothing runs.
---@return string
function M.text()
  return texts[require('pi.session').current() or ''] or ''
end

---@return pi.Status?
function M.data()
  return states[require('pi.session').current() or '']
end

---@param session string
---@return pi.Status?
function M.of(session)
  return states[session]
end

--- Adds facts known on this side (how many hunks and questions wait).
---@param session string
---@param facts table
function M.patch(session, facts)
  local it = states[session]
  if not it then
    return
  end
  for key, value in pairs(facts) do
    it[key] = value
  end
  changed(session)
end

---@param session string
function M.forget(session)
  states[session] = nil
  changed(session)
end

---@param text string
---@return string
local function escaped(text)
  return (text:gsub('%%', '%%%%'))
end

---@param percent number
---@return string
local function colour(percent)
  return percent >= 90 and 'PiStatusErr' or percent >= 70 and 'PiStatusWarn' or 'PiTime'
end

---@return string
function M.winbar()
  local buf = vim.api.nvim_win_get_buf(vim.g.statusline_winid or 0)
  local session = (vim.b[buf].pi or {}).session
  local it = states[session or '']
  if not it then
    return '%#PiTime# pi: not running'
  end
  local place = vim.fn.fnamemodify(it.cwd, ':~')
  -- In full where there is room: the directory is the session's own, whatever `:cd` says.
  if vim.fn.strdisplaywidth(place) > 30 then
    place = vim.fn.pathshorten(place)
  end
  local parts = { '%#PiUser# ' .. escaped(it.name or place) }
  local function add(text, group)
    if text and text ~= '' then
      parts[#parts + 1] = ('%%#%s#%s'):format(group or 'PiTime', escaped(text))
    end
  end
  if it.name then
    add(place)
  end
  add(it.model or 'no model', it.model and 'PiTime' or 'PiStatusWarn')
  if it.model and it.thinking ~= '' and it.thinking ~= 'off' then
    add(it.thinking)
  end
  if it.context_pct then
    add(('%d%%'):format(it.context_pct), colour(it.context_pct))
  end
  if it.cost and it.cost > 0 then
    add(('$%.2f'):format(it.cost))
  end
  add(it.mode)
  if it.retry then
    add(('retry %d/%d'):format(it.retry[1], it.retry[2]), 'PiStatusWarn')
  elseif it.compaction then
    add('compacting', 'PiStatusRun')
  elseif it.state == 'ask' then
    add('waits for you', 'PiStatusAsk')
  elseif it.pending_hunks and it.pending_hunks > 0 then
    add(('%d to review'):format(it.pending_hunks), 'PiStatusAsk')
  elseif it.running then
    add('running', 'PiStatusRun')
  end
  local view = require('pi.chat').view(buf)
  if view and view.unseen > 0 then
    add(('v %d new lines'):format(view.unseen), 'PiStatusAsk')
  end
  -- In a narrow window the middle goes first, not the name.
  parts[1] = parts[1] .. '%<'
  local gap = require('pi.config').ascii() and ' | ' or ' · '
  return table.concat(parts, '%#PiTime#' .. gap) .. '%*'
end

M.ops = {}

---@param op table
function M.ops.set(op)
  local old = states[op.session] or {}
  local it =
    { pending_hunks = old.pending_hunks, attention = old.attention, unreviewed = old.unreviewed }
  for key, value in pairs(op) do
    if value ~= vim.NIL then
      it[key] = value
    end
  end
  states[op.session] = it --[[@as pi.Status]]
  local info = require('pi.session').info(op.session)
  if info then
    info.name = it.name
  end
  changed(op.session)
end

return M
