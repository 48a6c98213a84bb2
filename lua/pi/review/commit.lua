---The one call that changes a loaded buffer and writes it: everything, or nothing at all.

local api = vim.api
local buffers = require('pi.review.buffers')
local options = require('pi.review.options')
local port = require('pi.review.port')
local say = require('pi.review.say')

---@class (exact) pi.review.LineEdit
---@field start integer 0-based first replaced line
---@field stop integer line after the last replaced one
---@field lines string[]

---@class (exact) pi.review.CommitRequest
---@field buf integer
---@field path string real path of the file that is to be written
---@field stamp string the file on disk when core last looked
---@field changedtick integer of the text core merged against
---@field edits pi.review.LineEdit[] sorted by position
---@field empty_before boolean whether the buffer stands for an empty file
---@field empty_after boolean whether the target is an empty file
---@field endofline boolean
---@field bomb boolean
---@field fileformat 'unix'|'dos'|'mac'
---@field force boolean write although the buffer is read-only

---@class (exact) pi.review.CommitAnswer
---@field status 'done'|'moved'|'busy'|'failed'
---@field code 'readonly'|'write'|nil
---@field message string?

local M = {}

---Options that decide which bytes are written, and their values.
---@alias pi.review.WriteOptions {endofline: boolean, fixendofline: boolean, bomb: boolean, fileformat: string}

---@param buf integer
---@return pi.review.WriteOptions
local function write_options(buf)
  local bo = vim.bo[buf]
  return {
    endofline = bo.endofline,
    fixendofline = bo.fixendofline,
    bomb = bo.bomb,
    fileformat = bo.fileformat,
  }
end

---@param buf integer
---@param values pi.review.WriteOptions
local function set_write_options(buf, values)
  for name, value in pairs(values) do
    if vim.bo[buf][name] ~= value then
      vim.bo[buf][name] = value --[[@as any]]
    end
  end
end

---Ends the undo block that may be open in the buffer. Without it two changes of a buffer that is not current join.
---@param buf integer
local function undo_break(buf)
  api.nvim_buf_call(buf, function()
    vim.cmd('noautocmd let &l:undolevels = &l:undolevels')
  end)
end

---@param buf integer
---@return table<integer, vim.fn.winsaveview.ret>
local function views_of(buf)
  local views = {}
  for _, win in ipairs(vim.fn.win_findbuf(buf)) do
    views[win] = api.nvim_win_call(win, vim.fn.winsaveview)
  end
  return views
end

---@param views table<integer, vim.fn.winsaveview.ret>
local function restore_views(views)
  for win, view in pairs(views) do
    if api.nvim_win_is_valid(win) then
      api.nvim_win_call(win, function()
        vim.fn.winrestview(view)
      end)
    end
  end
end

---@param request pi.review.CommitRequest
local function edit_text(request)
  local buf = request.buf
  if request.empty_after then
    api.nvim_buf_set_lines(buf, 0, -1, true, {})
    return
  end
  if request.empty_before then
    local lines = request.edits[1] and request.edits[1].lines or {}
    api.nvim_buf_set_lines(buf, 0, -1, true, lines)
    return
  end
  for i = #request.edits, 1, -1 do
    local edit = request.edits[i]
    api.nvim_buf_set_lines(buf, edit.start, edit.stop, true, edit.lines)
  end
end

---@class (exact) pi.review.Attempt
---@field begun boolean whether it came as far as Neovim's own write

---@param request pi.review.CommitRequest
---@param attempt pi.review.Attempt
local function write(request, attempt)
  local buf = request.buf
  edit_text(request)
  set_write_options(buf, {
    endofline = request.endofline,
    fixendofline = false,
    bomb = request.bomb,
    fileformat = request.fileformat,
  })
  vim.fn.mkdir(vim.fs.dirname(api.nvim_buf_get_name(buf)), 'p')
  vim.b[buf].pi_writing = true
  -- Taken away by the write itself, before the hooks that follow it.
  vim.bo[buf].modified = true
  attempt.begun = true
  local command = 'silent lockmarks keepalt write!'
  api.nvim_buf_call(buf, function()
    vim.cmd(options.review().on_save and command or ('noautocmd ' .. command))
  end)
end

---Whether the file was written, whatever hooks did after that: raise an error, change the buffer again, wipe it.
---@param request pi.review.CommitRequest
---@param name string
---@return boolean
local function has_written(request, name)
  local saved = api.nvim_buf_is_loaded(request.buf) and not vim.bo[request.buf].modified
  return saved or buffers.stamp(name) ~= request.stamp
end

---What has to be put back when the write does not work.
---@class (exact) pi.review.Before
---@field seq integer undo sequence number right after the break
---@field modified boolean
---@field options pi.review.WriteOptions
---@field views table<integer, vim.fn.winsaveview.ret>
---@field lines string[]? the old text, kept only where there is no undo

---@param request pi.review.CommitRequest
---@return pi.review.Before
local function remember(request)
  local buf = request.buf
  undo_break(buf)
  local no_undo = vim.bo[buf].undolevels == -1
    or (vim.bo[buf].undolevels == -123456 and vim.o.undolevels == -1)
  return {
    seq = vim.fn.undotree(buf).seq_cur,
    modified = vim.bo[buf].modified,
    options = write_options(buf),
    views = views_of(buf),
    lines = no_undo and api.nvim_buf_get_lines(buf, 0, -1, false) or nil,
  }
end

---@param buf integer
---@param before pi.review.Before
local function roll_back(buf, before)
  if before.lines then
    api.nvim_buf_set_lines(buf, 0, -1, false, before.lines)
  elseif vim.fn.undotree(buf).seq_cur ~= before.seq then
    api.nvim_buf_call(buf, function()
      vim.cmd('silent lockmarks undo! ' .. before.seq)
    end)
  end
  set_write_options(buf, before.options)
  vim.bo[buf].modified = before.modified
  restore_views(before.views)
end

---@param message string
---@return string
local function plain(message)
  local text = tostring(message):gsub('^.-(E%d+:)', '%1', 1):gsub('\nstack traceback:.*', '')
  return vim.split(vim.trim(text), '\n')[1] or 'unknown error'
end

---Tells core when the buffer can be changed again: after Insert mode, or when nothing locks texts any more.
---@param buf integer
---@param events string[]
local function when_ready(buf, events)
  local group = api.nvim_create_augroup('pi.review.commit.' .. buf, { clear = true })
  local function go()
    api.nvim_create_augroup('pi.review.commit.' .. buf, { clear = true })
    vim.schedule(function()
      port.send({ view = 'ready', buf = buf })
    end)
  end
  local pattern = events[1] == 'ModeChanged' and '*:n*' or nil
  api.nvim_create_autocmd(events, { group = group, pattern = pattern, callback = go })
  api.nvim_create_autocmd(
    { 'BufLeave', 'BufUnload' },
    { group = group, buffer = buf, callback = go }
  )
end

---@param lines string[]
---@param encoding string
---@return boolean
local function have_form(lines, encoding)
  for _, line in ipairs(lines) do
    local there = vim.iconv(line, 'utf-8', encoding)
    if not there or vim.iconv(there, encoding, 'utf-8') ~= line then
      return false
    end
  end
  return true
end

---Whether all new lines, and those the person has not saved yet, have a form in the buffer's encoding: `write!` would put
---other characters in their place.
---@param request pi.review.CommitRequest
---@return boolean
local function is_mappable(request)
  local encoding = vim.bo[request.buf].fileencoding
  if encoding == '' or encoding:lower() == 'utf-8' then
    return true
  end
  for _, edit in ipairs(request.edits) do
    if not have_form(edit.lines, encoding) then
      return false
    end
  end
  return not vim.bo[request.buf].modified
    or have_form(api.nvim_buf_get_lines(request.buf, 0, -1, false), encoding)
end

---Puts everything back after a write that did not happen; says why it did not.
---@param buf integer
---@param before pi.review.Before
---@param err string?
---@return pi.review.CommitAnswer
local function not_written(buf, before, err)
  local message = err and plain(err) or 'the buffer is still modified after the write'
  -- A hook may have wiped or locked the buffer.
  local ok, why = pcall(roll_back, buf, before)
  if not ok then
    message = ('%s; the old text could not be put back: %s'):format(message, plain(tostring(why)))
  end
  return { status = 'failed', code = 'write', message = message }
end

---@param buf integer
---@param before pi.review.Before
---@param name string
---@param err string? of a hook
local function after_write(buf, before, name, err)
  if api.nvim_buf_is_loaded(buf) then
    vim.bo[buf].fixendofline = before.options.fixendofline
    undo_break(buf)
    buffers.saw(buf)
  end
  if err then
    local what = vim.fn.fnamemodify(name, ':~:.')
    vim.schedule(function()
      say.warn(('%s is written; a hook failed after that: %s'):format(what, plain(err)))
    end)
  end
end

---Changes and writes a buffer. `busy` means: ask again after the message `ready`.
---@param request pi.review.CommitRequest
---@return pi.review.CommitAnswer
function M.apply(request)
  vim.validate('request', request, 'table')
  local buf = request.buf
  if not api.nvim_buf_is_loaded(buf) then
    return { status = 'moved' }
  end
  if api.nvim_buf_get_changedtick(buf) ~= request.changedtick then
    return { status = 'moved' }
  end
  local name = api.nvim_buf_get_name(buf)
  if not buffers.is_about(buf, request.path) or buffers.stamp(name) ~= request.stamp then
    -- A link leads elsewhere by now, or another program wrote to the file: core has to look again.
    return { status = 'moved' }
  end
  if buffers.typing_in(buf) then
    when_ready(buf, { 'ModeChanged' })
    return { status = 'busy' }
  end
  if vim.bo[buf].readonly and not request.force then
    return {
      status = 'failed',
      code = 'readonly',
      message = 'the buffer is read-only, write anyway?',
    }
  end
  if not is_mappable(request) then
    local message = 'some characters have no form in ' .. vim.bo[buf].fileencoding
    return { status = 'failed', code = 'write', message = message }
  end
  local before = remember(request)
  -- The write runs other people's autocommands, and the editor may refuse any change: whatever fails, put it back.
  local attempt = { begun = false } ---@type pi.review.Attempt
  local ok, err = pcall(write, request, attempt)
  local failure = not ok and tostring(err) or nil
  if api.nvim_buf_is_valid(buf) then
    vim.b[buf].pi_writing = nil
  end
  if not (attempt.begun and has_written(request, name)) then
    local untouched = api.nvim_buf_is_valid(buf)
      and api.nvim_buf_get_changedtick(buf) == request.changedtick
    if untouched and failure and plain(failure):match('^E565') then
      -- Somebody's mapping or completion holds all texts; nothing was changed.
      when_ready(buf, { 'SafeState' })
      return { status = 'busy' }
    end
    return not_written(buf, before, failure)
  end
  after_write(buf, before, name, failure)
  -- Here and not when core says so: the person may undo and save before that.
  require('pi.review').setup()
  buffers.mark_written(request.path)
  return { status = 'done' }
end

return M
