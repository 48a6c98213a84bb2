---Going to hunks: which comes next, in which view, and how the window is scrolled.

local api = vim.api
local files = require('pi.review.files')
local inline = require('pi.review.inline')
local options = require('pi.review.options')
local say = require('pi.review.say')
local state = require('pi.review.state')
local where = require('pi.review.where')
local wins = require('pi.review.win')

local M = {}

---Whether the hunks of a proposal can be looked at in the real buffer.
---@param proposal pi.review.Proposal
---@param height integer of the window
---@return boolean
local function fits_inline(proposal, height)
  if state.is_written(proposal) then
    return true
  end
  local review = options.review()
  if proposal.view ~= 'inline' or review.view == 'proposal' or review.plain then
    return false
  end
  for _, hunk in ipairs(proposal.hunks) do
    if #hunk.new > math.max(4, height - 4) then
      return false
    end
  end
  return true
end

---@param win integer
---@param lnum integer
---@return integer row on the screen where the line ends, 0 when it is not shown
local function end_of_line(win, lnum)
  local column = vim.wo[win].wrap and math.max(1, vim.fn.col({ lnum, '$' }) - 1) or 1
  return vim.fn.screenpos(win, lnum, column).row
end

---@param over integer virtual lines above `lnum`
---@param lnum integer
---@param last integer
---@param below integer virtual lines after `last`
---@return boolean
local function visible(over, lnum, last, below)
  local win = api.nvim_get_current_win()
  local info = wins.info(win)
  local top = vim.fn.screenpos(win, lnum, 1).row
  local bottom = end_of_line(win, last)
  local first_row = info.winrow + info.winbar
  local fits = bottom + below < first_row + info.height - info.winbar
  return top - over >= first_row and bottom > 0 and fits
end

---Puts the hunk at a third of the window; one that does not fit below that starts at the top.
---@param first integer 1-based
---@param last integer 1-based
---@param over integer virtual lines above it
---@param below integer virtual lines after it
local function scroll(first, last, over, below)
  if visible(over, first, last, below) then
    return
  end
  local height = wins.info(api.nvim_get_current_win()).height
  local third = math.max(1, first - math.floor(height / 3))
  vim.fn.winrestview({ topline = third, topfill = third == 1 and first == 1 and over or 0 })
  if not visible(over, first, last, below) then
    vim.fn.winrestview({ topline = first, topfill = over })
  end
end

---@param buf integer
---@param row integer
---@return integer lnum
local function clamp(buf, row)
  return math.max(1, math.min(row + 1, api.nvim_buf_line_count(buf)))
end

---@param proposal pi.review.Proposal
---@param hunk pi.review.Hunk
---@param focus boolean
local function show_inline(proposal, hunk, focus)
  local buf, err = files.load(proposal.real)
  if not buf then
    say.warn(('cannot open %s: %s'):format(proposal.display, err or ''))
    return
  end
  if vim.b[buf].pi_swap then
    say.warn(
      proposal.display .. ' is open in another Neovim: its file will be written, not this buffer'
    )
    M.show_proposal(proposal, hunk, focus)
    return
  end
  vim.bo[buf].buflisted = true
  local win = files.show(buf, focus)
  require('pi.review').refresh(buf)
  api.nvim_win_call(win, function()
    vim.cmd("normal! m'")
    local first, last = inline.rows(buf, hunk)
    api.nvim_win_set_cursor(win, { clamp(buf, first), 0 })
    vim.cmd('silent! normal! zv')
    scroll(clamp(buf, first), clamp(buf, last), inline.heights(buf, hunk))
  end)
end

---@param proposal pi.review.Proposal
---@param hunk pi.review.Hunk?
---@param focus boolean
function M.show_proposal(proposal, hunk, focus)
  local view = require('pi.review.proposal')
  view.open(proposal, function(buf)
    local win = files.show(buf, focus)
    view.head(win, proposal)
    if not hunk then
      return
    end
    api.nvim_win_call(win, function()
      local first, last = view.rows(buf, hunk)
      api.nvim_win_set_cursor(win, { clamp(buf, first), 0 })
      if first == 0 and #hunk.old > 0 then
        vim.fn.winrestview({ topline = 1, topfill = #hunk.old })
      elseif not visible(0, clamp(buf, first), clamp(buf, last), 0) then
        local height = api.nvim_win_get_height(win)
        vim.fn.winrestview({ topline = math.max(1, first + 1 - math.floor(height / 3)) })
      end
    end)
  end)
end

---Shows a hunk in the view that suits it.
---@param proposal pi.review.Proposal
---@param hunk pi.review.Hunk
---@param focus boolean whether to go there
function M.to(proposal, hunk, focus)
  state.mark_seen(proposal.id)
  local win = files.target_window(-1)
  if options.review().view == 'split' and focus then
    require('pi.review.split').open(proposal, hunk)
  elseif fits_inline(proposal, api.nvim_win_get_height(win)) then
    show_inline(proposal, hunk, focus)
  else
    M.show_proposal(proposal, hunk, focus)
  end
end

---@alias pi.review.Stop {proposal: pi.review.Proposal, hunk: pi.review.Hunk}

---All pending hunks in the order of their files and rows.
---@param without integer? hunk that was just decided
---@return pi.review.Stop[]
local function stops(without)
  local found = {}
  for _, proposal in ipairs(state.with_pending()) do
    for _, hunk in ipairs(proposal.hunks) do
      if state.is_pending(hunk) and hunk.id ~= without then
        found[#found + 1] = { proposal = proposal, hunk = hunk }
      end
    end
  end
  return found
end

---@param found pi.review.Stop[]
---@param here pi.review.Here
---@param step 1|-1
---@return integer index of the next stop seen from the cursor
local function next_index(found, here, step)
  local row = wins.row(here.win)
  local current = where.hunk(here)
  local from, to = 1, #found
  if step < 0 then
    from, to = to, from
  end
  for i = from, to, step do
    local stop = found[i]
    if stop.proposal.id == here.proposal.id then
      local first = where.rows(here, stop.hunk)
      local beyond = step > 0 and first > row or (step < 0 and first < row)
      if stop.hunk ~= current and beyond then
        return i
      end
    elseif (stop.proposal.id - here.proposal.id) * step > 0 then
      return i
    end
  end
  return from
end

---@param stop pi.review.Stop
---@param here pi.review.Here?
local function go(stop, here)
  if here and stop.proposal.id ~= here.proposal.id then
    say.line((options.ascii() and '-> ' or '→ ') .. stop.proposal.display)
  end
  M.to(stop.proposal, stop.hunk, true)
end

---Goes to another pending hunk; past the last one of a file the next file follows, and after the last the first.
---@param step 1|-1
---@param count integer
---@param without integer? hunk that was just decided
---@return boolean whether there was one
function M.hunk(step, count, without)
  local found = stops(without)
  if #found == 0 then
    return false
  end
  local here = where.here()
  local index = here and next_index(found, here, step) or (step > 0 and 1 or #found)
  index = (index - 1 + step * (count - 1)) % #found + 1
  go(found[index], here)
  return true
end

---Goes to the first pending hunk of another file.
---@param step 1|-1
---@param count integer
---@return boolean
function M.file(step, count)
  local pending = state.with_pending()
  if #pending == 0 then
    return false
  end
  local here = where.here()
  local at = step > 0 and 0 or 1
  for i, proposal in ipairs(pending) do
    if here and proposal.id == here.proposal.id then
      at = i
    end
  end
  local proposal = pending[(at - 1 + step * count) % #pending + 1]
  for _, hunk in ipairs(proposal.hunks) do
    if state.is_pending(hunk) then
      go({ proposal = proposal, hunk = hunk }, here)
      return true
    end
  end
  return false
end

return M
