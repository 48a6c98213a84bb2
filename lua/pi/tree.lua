--- The session tree in a split. Rows come from the backend a page at a time; the cursor stays on its entry.
local buffer = require('pi.buffer')
local config = require('pi.config')
local dialog = require('pi.dialog')
local draw = require('pi.tree.draw')
local notice = require('pi.notice')
local preview = require('pi.tree.preview')
local rpc = require('pi.rpc')
local views = require('pi.tree.view')
local windows = require('pi.window')

local M = {}

M.FILTERS = views.FILTERS

local PAGE = 500
--- How long the cursor rests before the preview follows.
local REST_MS = 80

---@param value any
---@return any
local function some(value)
  return value ~= vim.NIL and value or nil
end

---@class pi.tree.Rows
---@field rows any[][]
---@field first integer
---@field len integer
---@field total integer
---@field leaf integer?
---@field leaf_id string?
---@field here integer?
---@field filter string

--- The row to put the cursor on. The person may have moved on since the rows were asked for.
---@param view pi.tree.View
---@param result pi.tree.Rows
---@param from string? the row under the cursor then
---@return integer
local function landing(view, result, from)
  local now = views.current(view)
  if now and now.id ~= from then
    for i, row in ipairs(result.rows) do
      if row[1] == now.id then
        view.at = now.id
        return result.first + i - 1
      end
    end
  end
  return some(result.here) or 0
end

---@param view pi.tree.View
---@param result pi.tree.Rows
---@param clean boolean
---@param from string?
local function take(view, result, clean, from)
  local number = landing(view, result, from)
  view.rows, view.asked = {}, {}
  view.len, view.total, view.filter = result.len, result.total, result.filter
  view.leaf, view.leaf_id = some(result.leaf), some(result.leaf_id)
  draw.size(view, clean)
  draw.head(view)
  draw.rows(view, result.first, result.rows)
  views.put_cursor(view, number)
  local row = view.rows[number]
  view.landed = row and row.id or nil
  view.at = view.at or view.landed
end

--- Draws everything anew. What is asked for besides (`filter`, `query`, `fold`) changes the layout.
---@param view pi.tree.View
---@param params table?
---@param done fun()?
function M.refresh(view, params, done)
  if view.at then
    views.look(view)
  end
  local row = views.current(view)
  local all = vim.tbl_extend('force', { session = view.session, at = view.at }, params or {})
  rpc.request('tree.rows', all, function(err, result)
    if err then
      notice.say(err, 'error')
      return
    end
    if not vim.api.nvim_buf_is_valid(view.buf) then
      return
    end
    take(view, result, params ~= nil and next(params) ~= nil, row and row.id)
    M.fill(view)
    preview.update(view)
    if done then
      done()
    end
  end)
end

--- Asks for the rows in sight that are not there yet.
---@param view pi.tree.View
function M.fill(view)
  local win = views.window(view)
  if not win then
    return
  end
  local top = math.max(0, vim.fn.line('w0', win) - 1 - views.HEAD)
  local bottom = math.min(view.len - 1, vim.fn.line('w$', win) - 1 - views.HEAD)
  for _, number in ipairs({ top, bottom }) do
    local page = math.floor(number / PAGE)
    if number >= 0 and number < view.len and not view.rows[number] and not view.asked[page] then
      view.asked[page] = true
      local params = { session = view.session, first = page * PAGE }
      rpc.request('tree.rows', params, function(err, result)
        if not err and vim.api.nvim_buf_is_valid(view.buf) and result.len == view.len then
          draw.rows(view, result.first, result.rows)
        end
      end)
    end
  end
end

--- Labels an entry: the one under the cursor of the tree, else the leaf.
---@param text string? asked for when absent
function M.label(text)
  local view, row = views.under_cursor()
  local session = view and view.session or require('pi.session').current()
  if not session then
    notice.say('there is nothing to label yet', 'warn')
    return
  end
  local function send(entry, label)
    rpc.request('tree.label', { session = session, entry = entry, label = label }, function(err)
      if err then
        notice.say(err, 'error')
      elseif view then
        M.refresh(view)
      end
    end)
  end
  local function set(label)
    if row then
      send(row.id, label)
      return
    end
    rpc.request('tree.rows', { session = session }, function(err, result)
      if err or result.leaf_id == vim.NIL then
        notice.say(err or 'there is nothing to label yet', 'warn')
      else
        send(result.leaf_id, label)
      end
    end)
  end
  if text and text ~= '' then
    set(text)
  else
    dialog.line('Label: ', row and row.label or '', set)
  end
end

--- Closes the tree and its preview, and gives their room back.
---@param view pi.tree.View
function M.close(view)
  windows.keeping_sizes(function()
    for _, buf in ipairs({ view.preview, view.buf }) do
      for _, win in ipairs(vim.fn.win_findbuf(buf)) do
        pcall(vim.api.nvim_win_close, win, true)
      end
    end
  end)
  -- With other windows than before their sizes are the person's own.
  if view.rest and vim.deep_equal(view.before, vim.api.nvim_tabpage_list_wins(0)) then
    vim.cmd('silent! ' .. view.rest)
  end
end

---@param view pi.tree.View
---@param resting uv.uv_timer_t?
local function follow(view, resting)
  local group = vim.api.nvim_create_augroup('pi.tree.' .. view.buf, {})
  ---@param events string|string[]
  ---@param callback fun(ev: vim.api.keyset.create_autocmd.callback_args)
  local function on(events, callback)
    vim.api.nvim_create_autocmd(events, { group = group, buffer = view.buf, callback = callback })
  end
  on('CursorMoved', function()
    views.look(view)
    if resting then
      resting:start(
        REST_MS,
        0,
        vim.schedule_wrap(function()
          preview.update(view)
        end)
      )
    end
  end)
  on('WinScrolled', function()
    M.fill(view)
  end)
  on('BufWipeout', function()
    views.forget(view.session)
    vim.api.nvim_del_augroup_by_id(group)
    if resting then
      resting:close()
    end
  end)
  vim.api.nvim_create_autocmd('User', {
    group = group,
    pattern = { 'PiTreeChanged', 'PiRunEnd', 'PiSessionRename' },
    callback = function(ev)
      if ev.data.session == view.session and views.window(view) then
        M.refresh(view)
      end
    end,
  })
  -- New entries of a run come in bursts: one look a little later shows them all.
  local soon = false
  vim.api.nvim_create_autocmd('User', {
    group = group,
    pattern = 'PiMessage',
    callback = function(ev)
      if soon or ev.data.session ~= view.session or not views.window(view) then
        return
      end
      soon = true
      vim.defer_fn(function()
        soon = false
        if vim.api.nvim_buf_is_valid(view.buf) and views.window(view) then
          M.refresh(view)
        end
      end, 100)
    end,
  })
end

---@param session string
---@return pi.tree.View
local function make(session)
  local view = views.of(session)
  if view and vim.api.nvim_buf_is_valid(view.buf) then
    return view
  end
  local name = buffer.short(session)
  ---@type pi.tree.View
  local it = {
    session = session,
    buf = buffer.scratch('pi://tree/' .. name, 'tree', 'pi-tree', session),
    preview = buffer.scratch('pi://tree-preview/' .. name, 'preview', 'pi-preview', session),
    rows = {},
    drawn = {},
    asked = {},
    len = 0,
    total = 0,
    filter = 'default',
    query = '',
    show_preview = config.get().tree.preview,
    show_times = false,
  }
  views.add(it)
  for _, key in ipairs(require('pi.tree.keys').keys) do
    vim.keymap.set('n', key[1], key[2], { buffer = it.buf, nowait = true, desc = 'Pi: ' .. key[3] })
  end
  follow(it, vim.uv.new_timer())
  return it
end

--- Opens a window for the tree and goes there.
---@param view pi.tree.View
local function show(view)
  view.before, view.rest = vim.api.nvim_tabpage_list_wins(0), vim.fn.winrestcmd()
  local width = math.min(50, math.max(30, math.floor(vim.o.columns * 0.4)))
  local win = windows.keeping_sizes(function()
    return vim.api.nvim_open_win(view.buf, true, { split = 'left', win = -1, width = width })
  end)
  buffer.win_options(win, {
    winfixbuf = true,
    winfixwidth = true,
    number = false,
    relativenumber = false,
    signcolumn = 'no',
    foldcolumn = '0',
    wrap = false,
    cursorline = true,
    spell = false,
    list = false,
    statusline = ' tree%= <CR> go on from here  ? keys ',
    fillchars = 'eob: ',
  })
  if view.show_preview then
    preview.open(view)
  end
end

--- Opens the tree of this tab page's session, or goes to it.
---@param filter string?
function M.open(filter)
  local session = require('pi.session').current()
  if not session then
    return
  end
  local view = make(session)
  local win = views.window(view)
  if win then
    vim.api.nvim_set_current_win(win)
  else
    show(view)
  end
  M.refresh(view, { filter = filter })
end

--- The backend went on to another session in the place of one: a tree that shows the old one shows the new one.
---@param from string
---@param to string
function M.moved(from, to)
  local old = views.of(from)
  local win = old and views.window(old)
  if not old or not win then
    return
  end
  local view = make(to)
  view.before, view.rest, view.show_preview = old.before, old.rest, old.show_preview
  windows.set_buffer(win, view.buf)
  for _, below in ipairs(vim.fn.win_findbuf(old.preview)) do
    windows.set_buffer(below, view.preview)
  end
  view.at = nil
  M.refresh(view, { filter = old.filter })
end

--- `BufReadCmd` of a tree.
---@param buf integer
---@param name string
---@return boolean
function M.read(buf, name)
  for session, view in pairs(views.all()) do
    if name == 'pi://tree/' .. buffer.short(session) then
      view.buf, view.drawn = buf, {}
      M.refresh(view, { redraw = true })
      return true
    end
  end
  return false
end

return M
