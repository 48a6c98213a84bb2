--- What is known of each tree window: its buffers, its rows, where the cursor is.
local M = {}

M.FILTERS = { 'default', 'no-tools', 'user-only', 'labeled-only', 'all' }

--- The head above the rows.
M.HEAD = 1

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
---@field drawn table<integer, string> what stands in the buffer, by number of the row
---@field asked table<integer, boolean> pages that were asked for
---@field len integer
---@field total integer
---@field leaf integer?
---@field leaf_id string?
---@field filter string
---@field query string
---@field at string? entry the person looks at
---@field landed string? entry the cursor was put on because `at` has no row
---@field show_preview boolean
---@field show_times boolean when labels were set
---@field before integer[]? windows of the tab page before the tree was opened
---@field rest string? what brings their sizes back

---@type table<string, pi.tree.View>
local views = {}

---@param session string
---@return pi.tree.View?
function M.of(session)
  return views[session]
end

---@return table<string, pi.tree.View>
function M.all()
  return views
end

---@param view pi.tree.View
function M.add(view)
  views[view.session] = view
end

---@param session string
function M.forget(session)
  views[session] = nil
end

--- The view of the current buffer.
---@return pi.tree.View?
function M.here()
  local buf = vim.api.nvim_get_current_buf()
  for _, view in pairs(views) do
    if view.buf == buf then
      return view
    end
  end
end

---@param view pi.tree.View
---@return integer? win
function M.window(view)
  return vim.fn.win_findbuf(view.buf)[1]
end

--- The row under the cursor.
---@param view pi.tree.View
---@return pi.tree.Row?
---@return integer number
function M.current(view)
  local win = M.window(view)
  local number = win and vim.api.nvim_win_get_cursor(win)[1] - 1 - M.HEAD or 0
  return view.rows[number], number
end

--- Whether the conversation goes on right behind a row: it is where one is, or only bookkeeping stands between.
---@param view pi.tree.View
---@param number integer
---@return boolean
function M.is_here(view, number)
  local row = view.rows[number]
  local everything = view.query == '' and (view.filter == 'default' or view.filter == 'all')
  return row ~= nil and (row.is_leaf or (everything and number == view.leaf))
end

--- View and row of the current buffer, when there is one.
---@return pi.tree.View?
---@return pi.tree.Row?
function M.under_cursor()
  local view = M.here()
  if view then
    return view, (M.current(view))
  end
end

--- Takes in where the person is. An entry without a row stays the one they mean until they move away from where the
--- cursor was put instead.
---@param view pi.tree.View
function M.look(view)
  local row = M.current(view)
  if row and row.id ~= view.landed then
    view.at, view.landed = row.id, nil
  end
end

---@param view pi.tree.View
---@param number integer
function M.put_cursor(view, number)
  local win = M.window(view)
  if not win then
    return
  end
  local last = vim.api.nvim_buf_line_count(view.buf)
  vim.api.nvim_win_set_cursor(win, { math.min(math.max(number + 1 + M.HEAD, 1 + M.HEAD), last), 0 })
end

return M
