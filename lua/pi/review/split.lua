---The split view: base and proposal side by side in a tab page of their own, with Neovim's own diff.

local api = vim.api
local port = require('pi.review.port')
local proposal_view = require('pi.review.proposal')
local say = require('pi.review.say')
local where = require('pi.review.where')

local M = {}

---@class (exact) pi.review.Split
---@field tab integer
---@field back integer window to return to
---@field proposal integer

---@type pi.review.Split?
local open = nil

---@type {proposal: pi.review.Proposal, hunk: pi.review.Hunk?}?
local wanted = nil

---Closes the tab page and goes back.
function M.close()
  local was = open
  open = nil
  if not was then
    return
  end
  if api.nvim_tabpage_is_valid(was.tab) and #api.nvim_list_tabpages() > 1 then
    vim.cmd('tabclose ' .. api.nvim_tabpage_get_number(was.tab))
  end
  if api.nvim_win_is_valid(was.back) then
    api.nvim_set_current_win(was.back)
  end
end

---@param proposal pi.review.Proposal
---@param lines string[]
---@return integer
local function base_buffer(proposal, lines)
  local buf = proposal_view.scratch(proposal, 'base')
  local bo = vim.bo[buf]
  bo.modifiable, bo.readonly = true, false
  api.nvim_buf_set_lines(buf, 0, -1, false, lines)
  bo.modified, bo.modifiable, bo.readonly = false, false, true
  bo.bufhidden = 'wipe'
  proposal_view.colour(buf, proposal.path)
  return buf
end

---Builds the tab page once the texts are there.
---@param data pi.review.Text
function M.text(data)
  local want = wanted
  if not want or want.proposal.id ~= data.id or not data.base then
    return
  end
  wanted = nil
  local right = proposal_view.buffer(data.id)
  if not right then
    return
  end
  local back = api.nvim_get_current_win()
  local left = base_buffer(want.proposal, data.base)
  vim.cmd('tab split')
  vim.cmd('keepalt hide buffer ' .. left)
  vim.cmd('diffthis')
  local base_win = api.nvim_get_current_win()
  local win = api.nvim_open_win(right, true, { split = 'right', win = base_win })
  vim.cmd('diffthis')
  open = { tab = api.nvim_get_current_tabpage(), back = back, proposal = data.id }
  if want.hunk then
    local first = proposal_view.rows(right, want.hunk)
    api.nvim_win_set_cursor(win, { math.min(first + 1, api.nvim_buf_line_count(right)), 0 })
    vim.cmd('silent! normal! zvzz')
  end
end

---@param proposal pi.review.Proposal
---@param hunk pi.review.Hunk?
function M.open(proposal, hunk)
  wanted = { proposal = proposal, hunk = hunk }
  port.send({ view = 'text', proposal = proposal.id, base = true })
end

---Opens the split view of a proposal, or closes the one that is open.
---@param proposal pi.review.Proposal?
---@param hunk pi.review.Hunk?
function M.toggle(proposal, hunk)
  if open and api.nvim_tabpage_is_valid(open.tab) then
    M.close()
    return
  end
  local here = where.here()
  proposal = proposal or (here and here.proposal)
  if not proposal then
    say.line('nothing to review here')
    return
  end
  M.open(proposal, hunk)
end

---Closes the view when its proposal is settled.
---@param id integer
function M.gone(id)
  if open and open.proposal == id then
    M.close()
  end
end

return M
