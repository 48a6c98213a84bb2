---Pending hunks as a quickfix or location list of our own, kept current while it exists.

local api = vim.api
local state = require('pi.review.state')
local text = require('pi.review.text')

local M = {}

---@type {id: integer, win: integer?}[]
local lists = {}

---Text of the entries, for 'quickfixtextfunc'.
---@param info {quickfix: integer, winid: integer, id: integer, start_idx: integer, end_idx: integer}
---@return string[]
function M.textfunc(info)
  local what = { id = info.id, items = 0 }
  local items = info.quickfix == 1 and vim.fn.getqflist(what).items
    or vim.fn.getloclist(info.winid, what).items
  local lines = {}
  for i = info.start_idx, info.end_idx do
    local item = items[i]
    local name = item.bufnr > 0 and vim.fn.fnamemodify(api.nvim_buf_get_name(item.bufnr), ':.')
      or ''
    lines[#lines + 1] = ('%s|%d| %s'):format(name, item.lnum, item.text)
  end
  return lines
end

---@return table[]
local function items()
  local found = {}
  for _, proposal in ipairs(state.with_pending()) do
    for _, hunk in ipairs(proposal.hunks) do
      if state.is_pending(hunk) then
        local line = hunk.new[1] or hunk.old[1]
        found[#found + 1] = {
          filename = proposal.real,
          lnum = hunk.row + 1,
          text = ('+%d -%d %s'):format(
            #hunk.new,
            #hunk.old,
            line and text.cut(vim.trim(line.t), 100) or ''
          ),
          user_data = { pi_hunk = hunk.id },
        }
      end
    end
  end
  return found
end

---@param action ' '|'r'
---@param what table
---@param win integer?
local function set(action, what, win)
  if win then
    vim.fn.setloclist(win, {}, action, what)
  else
    vim.fn.setqflist({}, action, what)
  end
end

---Makes a new list of the pending hunks and opens it.
---@param kind 'qf'|'loc'
function M.export(kind)
  local win = kind == 'loc' and api.nvim_get_current_win() or nil
  local first = state.with_pending()[1]
  set(' ', {
    title = 'Pi review: ' .. (first and (first.session_name or first.session:sub(1, 8)) or ''),
    items = items(),
    quickfixtextfunc = "v:lua.require'pi.review.qf'.textfunc",
  }, win)
  local id = win and vim.fn.getloclist(win, { id = 0 }).id or vim.fn.getqflist({ id = 0 }).id
  lists[#lists + 1] = { id = id, win = win }
  vim.cmd(win and 'lopen' or 'copen')
end

---Brings our lists up to date without moving the selection.
function M.refresh()
  lists = vim.tbl_filter(function(list)
    if list.win and not api.nvim_win_is_valid(list.win) then
      return false
    end
    local what = { id = list.id, idx = 0 }
    local now = list.win and vim.fn.getloclist(list.win, what) or vim.fn.getqflist(what)
    if now.id ~= list.id then
      return false
    end
    set('r', { id = list.id, items = items(), idx = math.max(1, now.idx or 1) }, list.win)
    return true
  end, lists)
end

return M
