---Showing files: the window that may be used, and loading without prompts.

local api = vim.api
local buffers = require('pi.review.buffers')
local window = require('pi.window')

local M = {}

---Whether a window may be used to show a file: a normal one, or one that shows a proposal.
---@param win integer
---@return boolean
function M.is_normal(win)
  local ours = vim.startswith(api.nvim_buf_get_name(api.nvim_win_get_buf(win)), 'pi://proposal/')
  return window.is_normal(win) or (ours and not vim.wo[win].diff)
end

---The window for a file: one that shows it, the last used normal one, any normal one, or a new split.
---@param buf integer
---@return integer
function M.target_window(buf)
  local wins = api.nvim_tabpage_list_wins(0)
  local current = api.nvim_get_current_win()
  local order = { current, vim.fn.win_getid(vim.fn.winnr('#')) }
  vim.list_extend(order, wins)
  for _, win in ipairs(order) do
    if api.nvim_win_is_valid(win) and api.nvim_win_get_buf(win) == buf then
      return win
    end
  end
  for _, win in ipairs(order) do
    if api.nvim_win_is_valid(win) and M.is_normal(win) then
      return win
    end
  end
  return api.nvim_open_win(buf, false, { split = 'left', win = wins[1] })
end

---Shows a buffer in the window for it and goes there. Nothing modified is ever lost: the old buffer is hidden.
---@param buf integer
---@param focus boolean
---@return integer win
function M.show(buf, focus)
  local win = M.target_window(buf)
  if api.nvim_win_get_buf(win) ~= buf then
    window.set_buffer(win, buf)
  end
  if focus then
    api.nvim_set_current_win(win)
  end
  return win
end

---Whether a running process other than this one has a swap file for a loaded buffer: ours then has another ending.
---@param buf integer
---@return boolean
local function is_open_elsewhere(buf)
  local ours = vim.fn.swapname(buf)
  if ours == '' or ours:match('%.swp$') then
    return false
  end
  local first = vim.fn.swapinfo((ours:gsub('%.sw%a$', '.swp')))
  return (first.pid or 0) > 0
end

---Loads a file without asking anything. A file that another Neovim has open is loaded all the same and remembered.
---@param real string real path
---@return integer? buf
---@return string? err
function M.load(real)
  local known = buffers.find(real)
  if known then
    return known
  end
  local buf = vim.fn.bufadd(vim.fn.fnamemodify(real, ':.'))
  local shortmess = vim.o.shortmess
  vim.opt.shortmess:append('A')
  -- Loading runs other people's autocommands, and the file may be unreadable.
  local ok, err = pcall(vim.fn.bufload, buf)
  vim.o.shortmess = shortmess
  if not ok then
    return nil, tostring(err)
  end
  if is_open_elsewhere(buf) then
    vim.b[buf].pi_swap = true
  end
  return buf
end

return M
