--- Keys of the tree.
local buffer = require('pi.buffer')
local dialog = require('pi.dialog')
local notice = require('pi.notice')
local rpc = require('pi.rpc')
local views = require('pi.tree.view')

local M = {}

---@param view pi.tree.View
---@param params table?
local function refresh(view, params)
  require('pi.tree').refresh(view, params)
end

---@param how 'ask'|'summary'|'instructions'
---@return fun()
local function leap(how)
  return function()
    require('pi.tree.jump').leap(how)
  end
end

--- A function that gets the row under the cursor.
---@param fn fun(view: pi.tree.View, row: pi.tree.Row)
---@return fun()
local function on_row(fn)
  return function()
    local view, row = views.under_cursor()
    if view and row then
      fn(view, row)
    end
  end
end

--- A function that gets the view.
---@param fn fun(view: pi.tree.View)
---@return fun()
local function on_view(fn)
  return function()
    local view = views.here()
    if view then
      fn(view)
    end
  end
end

---@param folded boolean? nil: the other way round
---@return fun()
local function fold(folded)
  return on_row(function(view, row)
    if not row.foldable then
      notice.say('only branches fold; h and l go from one to the next')
      return
    end
    local want = folded
    if want == nil then
      want = not row.folded
    end
    refresh(view, { fold = row.id, folded = want })
  end)
end

---@param folded boolean
---@return fun()
local function fold_all(folded)
  return on_view(function(view)
    refresh(view, { fold_all = folded })
  end)
end

---@param filter string
---@return fun()
local function set_filter(filter)
  return on_view(function(view)
    refresh(view, { filter = filter })
  end)
end

local cycle = on_view(function(view)
  for i, name in ipairs(views.FILTERS) do
    if name == view.filter then
      refresh(view, { filter = views.FILTERS[i % #views.FILTERS + 1] })
      return
    end
  end
end)

--- Goes along the active path.
---@param step 1|-1
---@return fun()
local function along(step)
  return on_view(function(view)
    local _, number = views.current(view)
    local at = number + step
    while view.rows[at] do
      if view.rows[at].on_path then
        views.put_cursor(view, at)
        return
      end
      at = at + step
    end
  end)
end

--- Goes to where the branch beside this one ends; back from an end to the branch point.
---@param next_one boolean
---@return fun()
local function beside(next_one)
  return on_row(function(view, row)
    local params = { session = view.session, entry = row.id, next = next_one }
    rpc.request('tree.beside', params, function(err, result)
      if err then
        notice.say(err, 'error')
      elseif result.row ~= vim.NIL and vim.api.nvim_buf_is_valid(view.buf) then
        views.put_cursor(view, result.row)
        require('pi.tree').fill(view)
      end
    end)
  end)
end

---@param view pi.tree.View
---@param row pi.tree.Row
---@param done fun(lines: string[])
local function whole_entry(view, row, done)
  local params = { session = view.session, entry = row.id, whole = true }
  rpc.request('tree.preview', params, function(err, result)
    if err then
      notice.say(err, 'error')
    else
      done(result.lines)
    end
  end)
end

---@param name string of a sub-command
---@return fun()
local function command_on_row(name)
  return on_row(function(_, row)
    require('pi.command').execute({ name, row.id })
  end)
end

---@param what 'toggle'|'replace'
---@return fun()
local function in_context(what)
  return on_row(function(view, row)
    require('pi.tree.context')[what](view, row)
  end)
end

---@type { [1]: string, [2]: function, [3]: string }[]
M.keys = {
  { '<CR>', leap('ask'), 'go on from here' },
  { 's', leap('summary'), 'go there with a summary of what is left' },
  { 'S', leap('instructions'), 'the same, after instructions' },
  {
    'L',
    function()
      require('pi.tree').label()
    end,
    'label (empty removes)',
  },
  {
    'T',
    on_view(function(view)
      view.show_times = not view.show_times
      refresh(view)
    end),
    'when labels were set, on or off',
  },
  { 'r', command_on_row('restore'), 'put files back to this point, as a review' },
  {
    'D',
    on_row(function(view, row)
      require('pi.tree.diff').open(view.session, row.id)
    end),
    'compare files of now with those at this point',
  },
  { 'x', in_context('toggle'), 'leave this out for the model, or take that back' },
  { 'e', in_context('replace'), 'change what the model reads of this' },
  { 'f', command_on_row('fork'), 'new session from this message of yours' },
  {
    'c',
    function()
      require('pi.command').execute({ 'clone' })
    end,
    'copy this branch as a session',
  },
  {
    'n',
    on_view(function(view)
      local name = (require('pi.session').info(view.session) or {}).name
      dialog.words('Name of this session: ', name, function(text)
        require('pi.command').execute({ 'name' }, { rest = text })
      end)
    end),
    'name the session',
  },
  { 'za', fold(), 'fold or unfold a branch' },
  { '<Left>', fold(true), 'fold' },
  { '<Right>', fold(false), 'unfold' },
  { 'zM', fold_all(true), 'fold everything' },
  { 'zR', fold_all(false), 'unfold everything' },
  { 'J', along(1), 'next on the active path' },
  { 'K', along(-1), 'previous on the active path' },
  { 'h', beside(false), 'end of the previous branch; from an end to the branch point' },
  { 'l', beside(true), 'end of the next branch' },
  {
    '.',
    on_view(function(view)
      if view.leaf then
        views.put_cursor(view, view.leaf)
        require('pi.tree').fill(view)
      end
    end),
    'to where you are',
  },
  {
    'gs',
    function()
      require('pi.tree.search').open()
    end,
    'show only rows with some words',
  },
  { 'F', cycle, 'next filter' },
  { '<C-o>', cycle, 'next filter' },
  {
    'v',
    on_view(function(view)
      require('pi.tree.preview').toggle(view)
    end),
    'preview on or off',
  },
  {
    'y',
    on_row(function(view, row)
      local register = vim.v.register
      whole_entry(view, row, function(lines)
        vim.fn.setreg(register, table.concat(vim.list_slice(lines, 2), '\n'))
        notice.say('copied')
      end)
    end),
    'copy the text',
  },
  {
    'o',
    on_row(function(view, row)
      whole_entry(view, row, function(lines)
        buffer.show('pi://entry/' .. row.id, lines, 'markdown')
      end)
    end),
    'open the whole entry',
  },
  { 'R', on_view(refresh), 'draw again' },
  {
    '?',
    function()
      require('pi.help').show('Session tree', M.keys)
    end,
    'these keys',
  },
  {
    'q',
    on_view(function(view)
      require('pi.tree').close(view)
    end),
    'close',
  },
}
for i, name in ipairs(views.FILTERS) do
  M.keys[#M.keys + 1] = { tostring(i), set_filter(name), 'filter ' .. name }
end

return M
