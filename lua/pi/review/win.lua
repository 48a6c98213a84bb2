---Facts about windows that the editor gives in roundabout ways.

local api = vim.api

local M = {}

---@param win integer
---@return vim.fn.getwininfo.ret.item
function M.info(win)
  return vim.fn.getwininfo(win)[1]
end

---@param win integer
---@return integer row of the cursor, from 0
function M.row(win)
  local at = api.nvim_win_get_cursor(win)
  return at[1] - 1
end

---Cells of a window that hold text.
---@param win integer
---@return integer
function M.text_width(win)
  local info = M.info(win)
  return info.width - info.textoff
end

---@alias pi.review.WinSizes table<integer, {width: integer, height: integer}>

---Sizes of the windows of this tab page, floats left out.
---@return pi.review.WinSizes
function M.sizes()
  local sizes = {} ---@type pi.review.WinSizes
  for _, win in ipairs(api.nvim_tabpage_list_wins(0)) do
    if api.nvim_win_get_config(win).relative == '' then
      sizes[win] = { width = api.nvim_win_get_width(win), height = api.nvim_win_get_height(win) }
    end
  end
  return sizes
end

---Gives windows their sizes back, whatever 'equalalways' made of them.
---@param sizes pi.review.WinSizes
---@param without integer? the window that lends its room
function M.restore_sizes(sizes, without)
  for win, size in pairs(sizes) do
    if win ~= without and api.nvim_win_is_valid(win) then
      api.nvim_win_set_width(win, size.width)
      api.nvim_win_set_height(win, size.height)
    end
  end
end

---Where an extmark that covers rows stands now.
---@param buf integer
---@param ns integer
---@param id integer
---@return integer? first
---@return integer? last
function M.mark_rows(buf, ns, id)
  local at = api.nvim_buf_get_extmark_by_id(buf, ns, id, { details = true }) --[[@as any[] ]]
  local first, details = at[1], at[3]
  if not first then
    return nil, nil
  end
  return first, details and details.end_row or first
end

return M
