--- The session tree in a split. Rows come from the backend a page at a time; the cursor stays on its entry.
local buffer = require('pi.buffer')
local config = require('pi.config')
local notice = require('pi.notice')
local rpc = require('pi.rpc')
local windows = require('pi.window')

local M = {}

M.FILTERS = { 'default', 'no-tools', 'user-only', 'labeled-only', 'all' }

---@class pi.tree.Row
---@field id string
---@field prefix string
---@field kind string
---@field label string?
---@field text string
---@field on_path boolean
---@field is_leaf boolean
---@field folded boolean
---@field foldable boolean
---@field hidden integer
---@field time integer?
---@field label_time integer?

---@class pi.tree.View
---@field session string
---@field buf integer
---@field preview integer buffer
---@field rows table<integer, pi.tree.Row> by number, from 0
---@field asked table<integer, boolean> pages that were asked for
---@field len integer
---@field total integer
---@field leaf integer?
---@field leaf_id string?
---@field filter string
---@field query string
---@field at string? entry under the cursor
---@field show_preview boolean
---@field show_times boolean when labels were set
---@field before integer[]? windows of the tab page before the tree was opened
---@field rest string? what brings their sizes back

---@type table<string, pi.tree.View>
local views = {}

local ns = vim.api.nvim_create_namespace('pi.tree')
local HEAD = 1
local PAGE = 500

---@return pi.tree.View?
local function here()
  local buf = vim.api.nvim_get_current_buf()
  for _, view in pairs(views) do
    if view.buf == buf then
      return view
    end
  end
end

---@param view pi.tree.View
---@return integer? win
local function window(view)
  return vim.fn.win_findbuf(view.buf)[1]
end

---@param view pi.tree.View
---@return pi.tree.Row?
---@return integer number
local function current(view)
  local win = window(view)
  local number = win and vim.api.nvim_win_get_cursor(win)[1] - 1 - HEAD or 0
  return view.rows[number], number
end

---@param list any[]
---@return pi.tree.Row
local function unpack_row(list)
  local function some(value)
    return value ~= vim.NIL and value or nil
  end
  return {
    id = list[1],
    prefix = list[2],
    kind = list[3],
    label = some(list[4]),
    text = list[5],
    on_path = list[6],
    is_leaf = list[7],
    folded = list[8],
    foldable = list[9],
    hidden = list[10],
    time = some(list[11]),
    label_time = some(list[12]),
  }
end

---@param row pi.tree.Row
---@param times boolean?
---@return string line
---@return [integer, integer, string][] marks
local function render(row, times)
  local line, marks = '', {} ---@type string, [integer, integer, string][]
  local function add(text, group)
    if text ~= '' then
      marks[#marks + 1] = { #line, #line + #text, group }
      line = line .. text
    end
  end
  add(' ' .. row.prefix, 'PiTreeGuide')
  add(row.on_path and (config.ascii() and '* ' or '• ') or '  ', 'PiTreePath')
  if row.label then
    local time = times
        and row.label_time
        and os.date(' %d %b %H:%M', math.floor(row.label_time / 1000))
      or ''
    add('[' .. row.label .. time .. '] ', 'PiTreeLabel')
  end
  local role, rest = row.text:match('^(%[?[%w ]+%]?: )(.*)$')
  if not role then
    role, rest = '', row.text
  end
  add(role, 'PiTreeRole')
  add(rest or '', row.is_leaf and 'PiTreeLeaf' or (row.on_path and 'Normal' or 'Comment'))
  return line, marks
end

---@param view pi.tree.View
local function draw_head(view)
  local name = (require('pi.session').info(view.session) or {}).name or ''
  local count = view.len == view.total and tostring(view.len) or (view.len .. '/' .. view.total)
  local head = (' Session tree%s  %s  %s%s'):format(
    name ~= '' and ('  ' .. name) or '',
    view.filter,
    count,
    view.query ~= '' and ('  /' .. view.query) or ''
  )
  buffer.set(view.buf, { head }, 0, 1)
  vim.api.nvim_buf_clear_namespace(view.buf, ns, 0, 1)
  vim.api.nvim_buf_set_extmark(view.buf, ns, 0, 0, {
    end_col = #head,
    hl_group = 'PiUser',
    virt_text = { { '? help ', 'PiTime' } },
    virt_text_pos = 'right_align',
  })
end

---@param view pi.tree.View
---@param first integer
---@param list any[][]
local function draw_rows(view, first, list)
  local lines, all = {}, {} ---@type string[], [integer, integer, string][][]
  for i, it in ipairs(list) do
    local row = unpack_row(it)
    view.rows[first + i - 1] = row
    lines[i], all[i] = render(row, view.show_times)
  end
  buffer.set(view.buf, lines, HEAD + first, HEAD + first + #lines)
  vim.api.nvim_buf_clear_namespace(view.buf, ns, HEAD + first, HEAD + first + #lines)
  for i, marks in ipairs(all) do
    local row = view.rows[first + i - 1]
    local note = row and row.is_leaf and ' <- you are here '
      or (row and row.hidden > 0 and (' %d hidden '):format(row.hidden))
    if note then
      -- At the edge, so that a long text does not push it out of sight.
      vim.api.nvim_buf_set_extmark(view.buf, ns, HEAD + first + i - 1, 0, {
        virt_text = { { note, row.is_leaf and 'PiTreeLeaf' or 'PiTreeGuide' } },
        virt_text_pos = 'right_align',
      })
    end
    for _, mark in ipairs(marks) do
      vim.api.nvim_buf_set_extmark(view.buf, ns, HEAD + first + i - 1, mark[1], {
        end_col = mark[2],
        hl_group = mark[3],
      })
    end
  end
end

---@param view pi.tree.View
---@param row integer
local function put_cursor(view, row)
  local win = window(view)
  if not win then
    return
  end
  local last = vim.api.nvim_buf_line_count(view.buf)
  vim.api.nvim_win_set_cursor(win, { math.min(math.max(row + 1 + HEAD, 1 + HEAD), last), 0 })
end

--- Shows what the entry under the cursor holds; never changes anything.
---@param view pi.tree.View
local function preview(view)
  local row = current(view)
  if not row or not view.show_preview or #vim.fn.win_findbuf(view.preview) == 0 then
    return
  end
  rpc.request('tree.preview', { session = view.session, entry = row.id }, function(err, result)
    if err or not vim.api.nvim_buf_is_valid(view.preview) then
      return
    end
    local time = row.time and os.date(' · %d %b %H:%M', math.floor(row.time / 1000)) or ''
    local lines = { 'preview: ' .. row.kind .. time }
    vim.list_extend(lines, result.lines)
    buffer.set(view.preview, lines)
    vim.api.nvim_buf_clear_namespace(view.preview, ns, 0, -1)
    vim.api.nvim_buf_set_extmark(view.preview, ns, 0, 0, { line_hl_group = 'PiTime' })
  end)
end

--- Draws everything anew. What is asked for besides (`filter`, `query`, `fold`) changes the layout.
---@param view pi.tree.View
---@param params table?
---@param done fun()?
function M.refresh(view, params, done)
  local all = vim.tbl_extend('force', { session = view.session, at = view.at }, params or {})
  rpc.request('tree.rows', all, function(err, result)
    if err then
      notice.say(err, 'error')
      return
    end
    if not vim.api.nvim_buf_is_valid(view.buf) then
      return
    end
    view.rows, view.asked = {}, {}
    view.len, view.total, view.filter = result.len, result.total, result.filter
    view.leaf = result.leaf ~= vim.NIL and result.leaf or nil
    view.leaf_id = result.leaf_id ~= vim.NIL and result.leaf_id or nil
    local blanks = { '' } ---@type string[]
    for i = 1, math.max(view.len, 1) do
      blanks[i + 1] = ''
    end
    if view.len == 0 then
      blanks[2] = '   nothing to show with this filter'
    end
    buffer.set(view.buf, blanks)
    draw_head(view)
    draw_rows(view, result.first, result.rows)
    put_cursor(view, result.here ~= vim.NIL and result.here or 0)
    M.fill(view)
    preview(view)
    if done then
      done()
    end
  end)
end

--- Asks for the rows in sight that are not there yet.
---@param view pi.tree.View
function M.fill(view)
  local win = window(view)
  if not win then
    return
  end
  local top = math.max(0, vim.fn.line('w0', win) - 1 - HEAD)
  local bottom = math.min(view.len - 1, vim.fn.line('w$', win) - 1 - HEAD)
  for _, number in ipairs({ top, bottom }) do
    local page = math.floor(number / PAGE)
    if number >= 0 and number < view.len and not view.rows[number] and not view.asked[page] then
      view.asked[page] = true
      local params = { session = view.session, first = page * PAGE }
      rpc.request('tree.rows', params, function(err, result)
        if not err and vim.api.nvim_buf_is_valid(view.buf) and result.len == view.len then
          draw_rows(view, result.first, result.rows)
        end
      end)
    end
  end
end

---@param view pi.tree.View
---@param entry string
---@param how { summary: boolean?, instructions: string? }
local function jump(view, entry, how)
  local params = vim.tbl_extend('force', { session = view.session, entry = entry }, how)
  rpc.request('tree.jump', params, function(err, result)
    if err then
      notice.say(err, 'error')
      return
    end
    if result.cancelled == true then
      return
    end
    view.at = nil
    M.refresh(view)
    if type(result.prefill) == 'string' then
      require('pi.prompt').prefill(view.session, result.prefill)
    end
  end)
end

--- Says how many files a jump leaves as they are.
---@param files integer
---@return string?
local function about_files(files)
  if files == 0 then
    return nil
  end
  local what = files == 1 and '1 file was' or files .. ' files were'
  return what .. ' written after this point; a jump does not touch files, :Pi restore does'
end

--- Asks how to leave the branch, then jumps.
---@param view pi.tree.View
---@param row pi.tree.Row
---@param files integer
local function ask_and_jump(view, row, files)
  local note = about_files(files)
  local choices = {
    { 'go there', {} },
    { 'go there, with a summary of what is left', { summary = true } },
    { 'go there, with a summary after instructions', { summary = true, ask = true } },
  }
  vim.ui.select(choices, {
    prompt = 'Leave this branch' .. (note and ' (' .. note .. ')' or ''),
    kind = 'pi.tree',
    format_item = function(it)
      return it[1]
    end,
  }, function(it)
    if not it then
      return
    end
    if not it[2].ask then
      jump(view, row.id, it[2])
      return
    end
    vim.ui.input({ prompt = 'Summarise with regard to: ' }, function(text)
      if text then
        jump(view, row.id, { summary = true, instructions = text })
      end
    end)
  end)
end

--- Jumps; asks before when there is something to summarise and the person wants to be asked.
---@param view pi.tree.View
---@param row pi.tree.Row
local function jump_or_ask(view, row)
  local params = { session = view.session, entry = row.id }
  rpc.request('tree.leaves', params, function(err, result)
    if err then
      notice.say(err, 'error')
    elseif result.content and not result.skip then
      ask_and_jump(view, row, result.files)
    else
      jump(view, row.id, {})
      local note = about_files(result.files)
      if note then
        notice.say(note)
      end
    end
  end)
end

---@param view pi.tree.View
---@param go fun()
local function unless_running(view, go)
  local status = require('pi.status').of(view.session)
  if not status or not status.running then
    go()
    return
  end
  vim.ui.select(
    { 'stop the run and go', 'stay' },
    { prompt = 'The agent is running', kind = 'pi.confirm' },
    function(it)
      if it == 'stop the run and go' then
        rpc.request('run.abort', { session = view.session }, function(err)
          if err then
            notice.say(err, 'error')
          else
            go()
          end
        end)
      end
    end
  )
end

---@param how 'ask'|'summary'|'instructions'
local function leap(how)
  local view = here()
  local row = view and current(view)
  if not view or not row then
    return
  end
  if row.is_leaf and row.kind ~= 'user' then
    notice.say('you are here already')
    return
  end
  unless_running(view, function()
    if how == 'summary' then
      jump(view, row.id, { summary = true })
    elseif how == 'instructions' then
      vim.ui.input({ prompt = 'Summarise with regard to: ' }, function(text)
        if text then
          jump(view, row.id, { summary = true, instructions = text })
        end
      end)
    else
      jump_or_ask(view, row)
    end
  end)
end

--- Labels an entry: the one under the cursor of the tree, else the leaf.
---@param text string? asked for when absent
function M.label(text)
  local view = here()
  local row = view and current(view)
  local session = view and view.session or require('pi.session').current()
  local function set(label)
    if not label or not session then
      return
    end
    local function send(entry)
      rpc.request('tree.label', { session = session, entry = entry, label = label }, function(err)
        if err then
          notice.say(err, 'error')
        elseif view then
          M.refresh(view)
        end
      end)
    end
    if row then
      send(row.id)
    else
      rpc.request('tree.rows', { session = session }, function(err, result)
        if err or result.leaf_id == vim.NIL then
          notice.say(err or 'there is nothing to label yet', 'warn')
        else
          send(result.leaf_id)
        end
      end)
    end
  end
  if text and text ~= '' then
    set(text)
  else
    vim.ui.input({ prompt = 'Label: ', default = row and row.label or '' }, set)
  end
end

---@param folded boolean? nil: the other way round
local function fold(folded)
  local view = here()
  local row = view and current(view)
  if not view or not row or not row.foldable then
    return
  end
  local want = folded
  if want == nil then
    want = not row.folded
  end
  M.refresh(view, { fold = row.id, folded = want })
end

---@param folded boolean
local function fold_all(folded)
  local view = here()
  if view then
    M.refresh(view, { fold_all = folded })
  end
end

---@param filter string
local function set_filter(filter)
  local view = here()
  if view then
    M.refresh(view, { filter = filter })
  end
end

---@param step integer
local function cycle(step)
  local view = here()
  if not view then
    return
  end
  for i, name in ipairs(M.FILTERS) do
    if name == view.filter then
      set_filter(M.FILTERS[(i - 1 + step) % #M.FILTERS + 1] or 'default')
      return
    end
  end
end

--- Filters by text while it is typed.
local function search()
  local view = here()
  if not view then
    return
  end
  vim.ui.input({ prompt = 'Show rows with: ', default = view.query }, function(text)
    if text then
      view.query = text
      M.refresh(view, { query = text })
    end
  end)
end

--- Goes along the active path.
---@param step 1|-1
local function along(step)
  local view = here()
  if not view then
    return
  end
  local _, number = current(view)
  local i = number + step
  while view.rows[i] do
    if view.rows[i].on_path then
      put_cursor(view, i)
      return
    end
    i = i + step
  end
end

--- Goes to where the branch beside this one ends; back from an end to the branch point.
---@param next_one boolean
local function beside(next_one)
  local view = here()
  local row = view and current(view)
  if not view or not row then
    return
  end
  local params = { session = view.session, entry = row.id, next = next_one }
  rpc.request('tree.beside', params, function(err, result)
    if err then
      notice.say(err, 'error')
    elseif result.row ~= vim.NIL and vim.api.nvim_buf_is_valid(view.buf) then
      put_cursor(view, result.row)
      M.fill(view)
    end
  end)
end

local function toggle_times()
  local view = here()
  if view then
    view.show_times = not view.show_times
    M.refresh(view)
  end
end

local function restore_files()
  local view = here()
  local row = view and current(view)
  if view and row then
    require('pi.command').execute({ 'restore', row.id })
  end
end

local function to_leaf()
  local view = here()
  if view and view.leaf then
    put_cursor(view, view.leaf)
    M.fill(view)
  end
end

---@param whole boolean
local function open_entry(whole)
  local view = here()
  local row = view and current(view)
  if not view or not row then
    return
  end
  local params = { session = view.session, entry = row.id, whole = whole }
  rpc.request('tree.preview', params, function(err, result)
    if err then
      notice.say(err, 'error')
    else
      buffer.show('pi://entry/' .. row.id, result.lines, 'markdown')
    end
  end)
end

local function copy_text()
  local view = here()
  local row = view and current(view)
  if view and row then
    local params = { session = view.session, entry = row.id, whole = true }
    rpc.request('tree.preview', params, function(err, result)
      if not err then
        vim.fn.setreg(vim.v.register, table.concat(vim.list_slice(result.lines, 2), '\n'))
        notice.say('copied')
      end
    end)
  end
end

local function fork()
  local view = here()
  local row = view and current(view)
  if view and row then
    require('pi.command').execute({ 'fork', row.id })
  end
end

---@param view pi.tree.View
local function show_preview(view)
  local win = window(view)
  if not win or #vim.fn.win_findbuf(view.preview) > 0 then
    return
  end
  local height = math.max(4, math.floor(vim.api.nvim_win_get_height(win) * 0.3))
  local below = windows.keeping_sizes(function()
    return vim.api.nvim_open_win(view.preview, false, {
      split = 'below',
      win = win,
      height = height,
    })
  end)
  buffer.win_options(below, {
    winfixbuf = true,
    winfixheight = true,
    number = false,
    relativenumber = false,
    signcolumn = 'no',
    wrap = true,
    linebreak = true,
    statusline = ' preview ',
    fillchars = 'eob: ',
  })
end

local function toggle_preview()
  local view = here()
  if not view then
    return
  end
  local shown = vim.fn.win_findbuf(view.preview)
  view.show_preview = #shown == 0
  if view.show_preview then
    show_preview(view)
    preview(view)
  else
    for _, win in ipairs(shown) do
      pcall(vim.api.nvim_win_close, win, true)
    end
  end
end

local function close()
  local view = here()
  if not view then
    return
  end
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

---@type { [1]: string, [2]: function, [3]: string }[]
M.keys = {
  {
    '<CR>',
    function()
      leap('ask')
    end,
    'go on from here',
  },
  {
    's',
    function()
      leap('summary')
    end,
    'go there with a summary of what is left',
  },
  {
    'S',
    function()
      leap('instructions')
    end,
    'the same, after instructions',
  },
  {
    'L',
    function()
      M.label()
    end,
    'label (empty removes)',
  },
  { 'T', toggle_times, 'when labels were set, on or off' },
  { 'r', restore_files, 'put files back to this point, as a review' },
  { 'f', fork, 'new session from this message' },
  {
    'c',
    function()
      require('pi.command').execute({ 'clone' })
    end,
    'copy this branch as a session',
  },
  {
    'n',
    function()
      vim.ui.input({ prompt = 'Name of this session: ' }, function(text)
        if text and text ~= '' then
          require('pi.command').execute({ 'name' }, { rest = text })
        end
      end)
    end,
    'name the session',
  },
  {
    'za',
    function()
      fold()
    end,
    'fold or unfold',
  },
  {
    '<Left>',
    function()
      fold(true)
    end,
    'fold',
  },
  {
    '<Right>',
    function()
      fold(false)
    end,
    'unfold',
  },
  {
    'zM',
    function()
      fold_all(true)
    end,
    'fold everything',
  },
  {
    'zR',
    function()
      fold_all(false)
    end,
    'unfold everything',
  },
  {
    'J',
    function()
      along(1)
    end,
    'next on the active path',
  },
  {
    'K',
    function()
      along(-1)
    end,
    'previous on the active path',
  },
  {
    'h',
    function()
      beside(false)
    end,
    'end of the previous branch; from an end to the branch point',
  },
  {
    'l',
    function()
      beside(true)
    end,
    'end of the next branch',
  },
  { '.', to_leaf, 'to where you are' },
  { 'gs', search, 'show only rows with some words' },
  {
    'F',
    function()
      cycle(1)
    end,
    'next filter',
  },
  {
    '<C-o>',
    function()
      cycle(1)
    end,
    'next filter',
  },
  { 'v', toggle_preview, 'preview on or off' },
  { 'y', copy_text, 'copy the text' },
  {
    'o',
    function()
      open_entry(true)
    end,
    'open the entry',
  },
  {
    'R',
    function()
      local view = here()
      if view then
        M.refresh(view)
      end
    end,
    'draw again',
  },
  {
    '?',
    function()
      require('pi.help').show('Session tree', M.keys)
    end,
    'these keys',
  },
  { 'q', close, 'close' },
}
for i, name in ipairs(M.FILTERS) do
  M.keys[#M.keys + 1] = {
    tostring(i),
    function()
      set_filter(name)
    end,
    'filter ' .. name,
  }
end

---@param session string
---@return pi.tree.View
local function make(session)
  local view = views[session]
  if view and vim.api.nvim_buf_is_valid(view.buf) then
    return view
  end
  local name = buffer.short(session)
  local buf = buffer.scratch('pi://tree/' .. name, 'tree', 'pi-tree', session)
  local it = {
    session = session,
    buf = buf,
    preview = buffer.scratch('pi://tree-preview/' .. name, 'preview', 'pi-preview', session),
    rows = {},
    asked = {},
    len = 0,
    total = 0,
    filter = 'default',
    query = '',
    show_preview = config.get().tree.preview,
    show_times = false,
  }
  views[session] = it
  for _, key in ipairs(M.keys) do
    vim.keymap.set('n', key[1], key[2], { buffer = buf, nowait = true, desc = 'Pi: ' .. key[3] })
  end
  local group = vim.api.nvim_create_augroup('pi.tree.' .. buf, {})
  local resting = vim.uv.new_timer()
  vim.api.nvim_create_autocmd('CursorMoved', {
    group = group,
    buffer = buf,
    callback = function()
      local row = current(it)
      it.at = row and row.id or it.at
      if resting then
        resting:start(
          80,
          0,
          vim.schedule_wrap(function()
            preview(it)
          end)
        )
      end
    end,
  })
  vim.api.nvim_create_autocmd('WinScrolled', {
    group = group,
    buffer = buf,
    callback = function()
      M.fill(it)
    end,
  })
  vim.api.nvim_create_autocmd('User', {
    group = group,
    pattern = { 'PiTreeChanged', 'PiRunEnd', 'PiSessionRename' },
    callback = function(ev)
      if ev.data.session == session and window(it) then
        M.refresh(it)
      end
    end,
  })
  vim.api.nvim_create_autocmd('BufWipeout', {
    group = group,
    buffer = buf,
    callback = function()
      views[session] = nil
      vim.api.nvim_del_augroup_by_id(group)
      if resting then
        resting:close()
      end
    end,
  })
  return it
end

--- Opens the tree of this tab page's session, or goes to it.
---@param filter string?
function M.open(filter)
  local session = require('pi.session').current()
  if not session then
    return
  end
  local view = make(session)
  local win = window(view)
  if win then
    vim.api.nvim_set_current_win(win)
  else
    view.before, view.rest = vim.api.nvim_tabpage_list_wins(0), vim.fn.winrestcmd()
    local width = math.min(50, math.max(30, math.floor(vim.o.columns * 0.4)))
    win = windows.keeping_sizes(function()
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
      show_preview(view)
    end
  end
  M.refresh(view, { filter = filter })
end

---@param buf integer
---@param name string
---@return boolean
function M.read(buf, name)
  for session, view in pairs(views) do
    if name == 'pi://tree/' .. buffer.short(session) then
      view.buf = buf
      M.refresh(view)
      return true
    end
  end
  return false
end

return M
