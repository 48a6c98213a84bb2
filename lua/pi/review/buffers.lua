---Loaded buffers as files: finding them by real path, describing them, following their changes.
---Nothing here decides anything; core asks, and is told when a watched buffer changed.

local api = vim.api

---@type table<string, fun(...): any>
local uv = vim.uv

---@class (exact) pi.review.BufferInfo
---@field buf integer
---@field changedtick integer
---@field modified boolean
---@field fileformat 'unix'|'dos'|'mac'
---@field bomb boolean
---@field endofline boolean
---@field encoding string 'fileencoding', lower case, 'utf-8' when empty
---@field modifiable boolean
---@field line_count integer 0 for a buffer that would be written as an empty file
---@field swap boolean whether another process holds a swap file for it
---@field insert boolean whether the user types in it right now
---@field stamp string the file on disk at this moment
---@field behind boolean whether the file on disk is another than the one the buffer was read from or written to

---@class (exact) pi.review.Watch
---@field path string
---@field dirty_first integer?
---@field dirty_last integer?
---@field reporting boolean whether core will hear of it soon

local M = {}

---@class (exact) pi.review.buffers.State
---@field real table<integer, {name: string, real: string}>
---@field watched table<integer, pi.review.Watch>
---@field seen table<integer, string> stamps of files when their buffers last were in step with them
---@field following boolean whether reading and writing of buffers is followed
---@field written table<string, boolean> files that were written: undoing that and saving is something core has to know
---@field on_change fun(change: {path: string, buf: integer, changedtick: integer, first: integer, last: integer})?
local state =
  { real = {}, watched = {}, seen = {}, following = false, written = {}, on_change = nil }

---How long changes of a buffer are collected before core hears of them.
local NOTIFY_MS = 100

---Returns the real path of a name; the parent is resolved when the file does not exist.
---@param name string
---@return string
function M.real_path(name)
  local real = uv.fs_realpath(name)
  if real then
    return real
  end
  name = vim.fs.abspath(name)
  local parent = uv.fs_realpath(vim.fs.dirname(name))
  return parent and vim.fs.joinpath(parent, vim.fs.basename(name)) or vim.fs.normalize(name)
end

---Returns the real path of the file a buffer is about, if it is about one.
---@param buf integer
---@return string?
function M.real_of(buf)
  local name = api.nvim_buf_get_name(buf)
  if name == '' or vim.bo[buf].buftype ~= '' or name:match('^%a[%w+.-]+://') then
    return nil
  end
  local known = state.real[buf]
  if not known or known.name ~= name then
    known = { name = name, real = M.real_path(name) }
    -- What does not exist yet may get another real path with the folders that are made for it.
    state.real[buf] = uv.fs_stat(name) and known or nil
  end
  return known.real
end

---Whether a buffer still is about a file, and writing it would write that file. A link on the way to it may lead elsewhere
---by now, and Neovim writes to the name as it was given where that is the shorter one.
---@param buf integer
---@param path string real path
---@return boolean
function M.is_about(buf, path)
  state.real[buf] = nil
  return M.real_of(buf) == path and M.real_path(vim.fn.bufname(buf)) == path
end

---A file at one moment: two equal stamps mean that nobody wrote to it in between. Empty when there is no file. Without
---the inode, which some network file systems make up anew.
---@param path string
---@return string
function M.stamp(path)
  local stat = uv.fs_stat(path)
  if not stat then
    return ''
  end
  local modified = ('%d.%09d'):format(stat.mtime.sec, stat.mtime.nsec)
  return ('%d:%s'):format(stat.size, modified)
end

---Remembers that a buffer and its file are in step.
---@param buf integer
function M.saw(buf)
  if M.real_of(buf) then
    state.seen[buf] = M.stamp(api.nvim_buf_get_name(buf))
  end
end

local function follow()
  if state.following then
    return
  end
  state.following = true
  api.nvim_create_autocmd(
    { 'BufReadPost', 'BufNewFile', 'BufWritePost', 'FileChangedShellPost', 'BufWipeout' },
    {
      group = api.nvim_create_augroup('pi.review.files', { clear = true }),
      callback = function(ev)
        if ev.event == 'BufWipeout' then
          state.seen[ev.buf] = nil
        elseif not vim.bo[ev.buf].modified then
          M.saw(ev.buf)
        end
      end,
    }
  )
end

---Asks Neovim whether it knows of a change of a file that it has not told yet. Its own warning would wait for a key.
---@param buf integer
---@return boolean
local function is_changed_outside(buf)
  local changed = false
  local id = api.nvim_create_autocmd('FileChangedShell', {
    buffer = buf,
    callback = function()
      changed = true
      vim.v.fcs_choice = ''
    end,
  })
  vim.cmd('silent! checktime ' .. buf)
  pcall(api.nvim_del_autocmd, id) -- gone already when somebody wiped the buffer
  return changed
end

---Whether the file is another than the one the buffer was read from or written to. Of a buffer that was modified before
---anybody looked, Neovim has to know it.
---@param buf integer
---@param stamp string the file now
---@return boolean
local function is_behind(buf, stamp)
  if not state.seen[buf] then
    local known = vim.bo[buf].modified and is_changed_outside(buf)
    state.seen[buf] = known and 'another' or stamp
  end
  return state.seen[buf] ~= stamp
end

---Returns the loaded buffer of a file, by real path.
---@param path string real path
---@return integer?
function M.find(path)
  for _, buf in ipairs(api.nvim_list_bufs()) do
    if api.nvim_buf_is_loaded(buf) and M.real_of(buf) == path and M.is_about(buf, path) then
      return buf
    end
  end
end

---Remembers that a change was written to a file.
---@param path string real path
function M.mark_written(path)
  state.written[path] = true
end

---@param path string real path
---@return boolean
function M.was_written(path)
  return state.written[path] == true
end

---Whether the user is in Insert or Replace mode in this buffer.
---@param buf integer
---@return boolean
function M.typing_in(buf)
  local mode = api.nvim_get_mode().mode
  return api.nvim_get_current_buf() == buf and (mode:match('^[iR]') or mode:match('^ni')) ~= nil
end

---@param buf integer
---@return integer
local function written_lines(buf)
  local count = api.nvim_buf_line_count(buf)
  if count == 1 and api.nvim_buf_get_lines(buf, 0, 1, false)[1] == '' then
    return api.nvim_buf_call(buf, function()
      return vim.fn.wordcount().bytes
    end) == 0 and 0 or 1
  end
  return count
end

---@param buf integer
---@return pi.review.BufferInfo
function M.describe(buf)
  local bo = vim.bo[buf]
  local stamp = M.stamp(api.nvim_buf_get_name(buf))
  return {
    buf = buf,
    changedtick = api.nvim_buf_get_changedtick(buf),
    modified = bo.modified,
    fileformat = bo.fileformat,
    bomb = bo.bomb,
    endofline = bo.endofline,
    encoding = bo.fileencoding == '' and 'utf-8' or bo.fileencoding:lower(),
    modifiable = bo.modifiable,
    line_count = written_lines(buf),
    swap = vim.b[buf].pi_swap == true,
    insert = M.typing_in(buf),
    stamp = stamp,
    behind = M.real_of(buf) ~= nil and is_behind(buf, stamp),
  }
end

---Describes the loaded buffer of a file; an unmodified one is compared with the disk first and reloaded when it is old.
---@param path string real path
---@return pi.review.BufferInfo? nil when no loaded buffer shows the file
function M.info(path)
  vim.validate('path', path, 'string')
  follow()
  local buf = M.find(path)
  if not buf then
    return nil
  end
  local may_reload = vim.o.autoread or vim.bo[buf].autoread
  if not vim.bo[buf].modified and may_reload and vim.fn.mode() ~= 'c' and not M.typing_in(buf) then
    vim.cmd('silent! checktime ' .. buf)
    if api.nvim_buf_is_loaded(buf) and not vim.bo[buf].modified then
      M.saw(buf)
    end
  end
  if not api.nvim_buf_is_loaded(buf) then
    return nil
  end
  return M.describe(buf)
end

---Real paths of all loaded buffers that have a file.
---@return string[]
function M.all_loaded()
  local found = {} ---@type string[]
  for _, buf in ipairs(api.nvim_list_bufs()) do
    local path = api.nvim_buf_is_loaded(buf) and M.real_of(buf) or nil
    if path then
      found[#found + 1] = path
    end
  end
  return found
end

---Describes all modified buffers that have a file.
---@return {path: string, info: pi.review.BufferInfo}[]
function M.all_modified()
  local found = {}
  for _, buf in ipairs(api.nvim_list_bufs()) do
    if api.nvim_buf_is_loaded(buf) and vim.bo[buf].modified then
      local path = M.real_of(buf)
      if path then
        found[#found + 1] = { path = path, info = M.describe(buf) }
      end
    end
  end
  return found
end

---@param buf integer
local function report(buf)
  local watch = state.watched[buf]
  if not watch or not watch.dirty_first then
    return
  end
  local first = watch.dirty_first
  local last = watch.dirty_last or first
  watch.dirty_first, watch.dirty_last = nil, nil
  if state.on_change and api.nvim_buf_is_valid(buf) then
    state.on_change({
      path = watch.path,
      buf = buf,
      changedtick = api.nvim_buf_get_changedtick(buf),
      first = first,
      last = last,
    })
  end
end

---@param buf integer
---@param first integer
---@param last integer
local function touch(buf, first, last)
  local watch = state.watched[buf]
  if not watch then
    return
  end
  watch.dirty_first = math.min(watch.dirty_first or first, first)
  watch.dirty_last = math.max(watch.dirty_last or last, last)
  if not watch.reporting then
    watch.reporting = true
    vim.defer_fn(function()
      watch.reporting = false
      report(buf)
    end, NOTIFY_MS)
  end
end

---Stops following a buffer.
---@param buf integer
function M.unwatch(buf)
  state.watched[buf] = nil
end

---Follows the changes of a buffer until `unwatch` or until it goes away.
---@param buf integer
---@param path string real path
function M.watch(buf, path)
  local known = state.watched[buf] ---@type pi.review.Watch?
  if known then
    known.path = path
    return
  end
  ---@type pi.review.Watch
  local mine = { path = path, reporting = false }
  state.watched[buf] = mine
  api.nvim_buf_attach(buf, false, {
    on_lines = function(_, _, _, first, _, last)
      if state.watched[buf] ~= mine then
        return true
      end
      touch(buf, first, last)
    end,
    on_reload = function()
      if state.watched[buf] == mine then
        touch(buf, 0, api.nvim_buf_line_count(buf))
      end
    end,
    on_detach = function()
      if state.watched[buf] == mine then
        M.unwatch(buf)
      end
    end,
  })
end

---Brings a loaded buffer up to date after core wrote its file.
---@param buf integer
function M.reload(buf)
  if not api.nvim_buf_is_loaded(buf) or vim.bo[buf].modified then
    return
  end
  local tick = api.nvim_buf_get_changedtick(buf)
  vim.cmd('silent! checktime ' .. buf)
  if api.nvim_buf_is_loaded(buf) and api.nvim_buf_get_changedtick(buf) == tick then
    -- A buffer made for a file that did not exist yet is not looked at by `checktime`.
    api.nvim_buf_call(buf, function()
      vim.cmd('silent! keepalt edit')
    end)
  end
end

---Sets who hears of changes.
---@param on_change fun(change: table)
function M.on_change(on_change)
  state.on_change = on_change
end

---Forgets what is cached about a buffer.
---@param buf integer
function M.forget(buf)
  state.real[buf], state.seen[buf] = nil, nil
  M.unwatch(buf)
end

return M
