--- The list of sessions: stored and running ones.
local buffer = require('pi.buffer')
local config = require('pi.config')
local dialog = require('pi.dialog')
local list = require('pi.sessions.list')
local notice = require('pi.notice')
local rpc = require('pi.rpc')

local M = {}

--- How long the cursor rests before the preview follows.
local REST_MS = 80

--- Reads the list anew. Rows are drawn as they come.
function M.refresh()
  local state = list.state
  local stream = state.stream + 1
  state.stream, state.reading = stream, true
  rpc.request('session.list', {
    cwd = require('pi.backend').cwd(),
    all = state.all,
    named = state.named,
    query = state.query,
    stream = stream,
  }, function(err, result)
    if stream ~= state.stream then
      return
    end
    state.reading = false
    if err then
      notice.say(err, 'error')
    elseif not result.cancelled then
      list.take(result.sessions)
    end
    list.draw()
    require('pi.sessions.preview').update()
  end)
end

M.ops = {}

--- The list so far.
---@param op { stream: integer, sessions: table[] }
function M.ops.part(op)
  if op.stream == list.state.stream and list.state.reading then
    list.take(op.sessions)
    list.draw()
  end
end

function M.close()
  require('pi.sessions.preview').close()
  for _, win in ipairs(vim.fn.win_findbuf(list.state.buf or -1)) do
    pcall(vim.api.nvim_win_close, win, true)
  end
end

--- Deletes a stored session, after a question.
---@param path string
---@param name string?
function M.delete(path, name)
  local what = vim.fn.strcharpart((name or vim.fs.basename(path)):gsub('%s+', ' '), 0, 60)
  dialog.confirm(('Delete the session "%s"?'):format(what), 'delete', 'keep', function()
    rpc.request('session.delete', { path = path }, function(err, result)
      if err then
        notice.say(err, 'error')
        return
      end
      notice.say(result.trashed and 'moved to the trash' or 'deleted')
      if list.state.buf then
        M.refresh()
      end
    end)
  end)
end

---@param buf integer
local function prepare(buf)
  list.state.buf = buf
  for _, key in ipairs(require('pi.sessions.keys').keys) do
    vim.keymap.set('n', key[1], key[2], { buffer = buf, nowait = true, desc = 'Pi: ' .. key[3] })
  end
  local group = vim.api.nvim_create_augroup('pi.sessions', {})
  local resting = vim.uv.new_timer()
  vim.api.nvim_create_autocmd('CursorMoved', {
    group = group,
    buffer = buf,
    callback = function()
      list.look()
      if resting then
        resting:start(
          REST_MS,
          0,
          vim.schedule_wrap(function()
            require('pi.sessions.preview').update()
          end)
        )
      end
    end,
  })
  vim.api.nvim_create_autocmd('BufWipeout', {
    group = group,
    buffer = buf,
    callback = function()
      list.state.buf = nil
      if resting then
        resting:close()
        resting = nil
      end
    end,
  })
  -- What runs changes its state while one looks.
  vim.api.nvim_create_autocmd('User', {
    group = group,
    pattern = { 'PiRunStart', 'PiRunEnd', 'PiReviewOpen', 'PiSessionClose', 'PiSessionRename' },
    callback = function()
      if list.state.buf and #vim.fn.win_findbuf(list.state.buf) > 0 then
        M.refresh()
      end
    end,
  })
end

--- Opens the list.
---@param scope string? `all`, `cwd`, `named` or `live`
function M.open(scope)
  local state = list.state
  state.all = scope == 'all'
    or scope == 'live'
    or (scope == nil and config.get().sessions.scope == 'all')
  state.named, state.live = scope == 'named', scope == 'live'
  state.query, state.rows = '', {}
  list.begin()
  local buf = buffer.scratch('pi://sessions', 'sessions', 'pi-sessions')
  if state.buf ~= buf then
    prepare(buf)
  end
  local win = require('pi.window').show_below(buf)
  vim.keymap.set('n', 'q', M.close, { buffer = buf, nowait = true, desc = 'Pi: close' })
  buffer.win_options(win, {
    cursorline = true,
    wrap = false,
    number = false,
    relativenumber = false,
    signcolumn = 'no',
    spell = false,
    list = false,
    fillchars = 'eob: ',
    statusline = ' sessions%= <CR> open  v preview  ? keys ',
  })
  if state.preview then
    require('pi.sessions.preview').open()
  end
  M.refresh()
end

--- `BufReadCmd` of the list.
---@param buf integer
---@return boolean
function M.read(buf)
  list.state.buf = buf
  M.refresh()
  return true
end

return M
