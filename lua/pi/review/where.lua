---What the cursor is on: the proposal and hunk of the current window.

local api = vim.api
local buffers = require('pi.review.buffers')
local inline = require('pi.review.inline')
local state = require('pi.review.state')
local wins = require('pi.review.win')

---@class (exact) pi.review.Here
---@field win integer
---@field buf integer
---@field proposal pi.review.Proposal
---@field view 'inline'|'proposal'

local M = {}

---The proposal a buffer is about: the one being decided, else the oldest one written without asking.
---@param buf integer
---@return pi.review.Proposal?
---@return 'inline'|'proposal'|nil view
function M.proposal_of(buf)
  local mine = vim.b[buf].pi
  if type(mine) == 'table' and mine.proposal then
    return state.get(mine.proposal), 'proposal'
  end
  local real = buffers.real_of(buf)
  local written ---@type pi.review.Proposal?
  for _, proposal in ipairs(state.all()) do
    if proposal.real == real and state.reviewable(proposal) then
      if not state.is_written(proposal) then
        return proposal, 'inline'
      end
      written = written or proposal
    end
  end
  if written then
    return written, 'inline'
  end
end

---@return pi.review.Here?
function M.here()
  local win = api.nvim_get_current_win()
  local buf = api.nvim_win_get_buf(win)
  local proposal, view = M.proposal_of(buf)
  if not proposal or not view then
    return nil
  end
  return { win = win, buf = buf, proposal = proposal, view = view }
end

---Rows of a hunk in the buffer that shows it.
---@param here pi.review.Here
---@param hunk pi.review.Hunk
---@return integer first
---@return integer last
function M.rows(here, hunk)
  if here.view == 'proposal' then
    return require('pi.review.proposal').rows(here.buf, hunk)
  end
  return inline.rows(here.buf, hunk)
end

---Hunks that touch a range of rows.
---@param here pi.review.Here
---@param from integer 0-based
---@param to integer 0-based, last
---@return pi.review.Hunk[]
function M.touching(here, from, to)
  return vim.tbl_filter(function(hunk)
    local first, last = M.rows(here, hunk)
    return first <= to and last >= from
  end, here.proposal.hunks)
end

---The hunk under the cursor: insertions have no row of their own, so the rows beside a hunk count as well.
---@param here pi.review.Here
---@return pi.review.Hunk?
function M.hunk(here)
  local row = wins.row(here.win)
  local best ---@type pi.review.Hunk?
  local distance = 2 ---@type number
  for _, hunk in ipairs(here.proposal.hunks) do
    local first, last = M.rows(here, hunk)
    local off = row < first and first - row or (row > last and row - last or 0)
    if off < distance then
      best, distance = hunk, off
    end
  end
  return best
end

return M
