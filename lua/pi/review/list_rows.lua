---The lines of the review list, made from what core said: text with colours, and what each line stands for.

local options = require('pi.review.options')
local state = require('pi.review.state')
local status = require('pi.status')
local text = require('pi.review.text')

---@alias pi.review.Segment string[] text and, if it has one, its group

---@class (exact) pi.review.ListRow
---@field segments pi.review.Segment[]
---@field proposal integer?
---@field hunk integer?

local M = {}

---@type table<string, [string, string]>
local signs = {
  pending = { '?', 'PiReviewSignChange' },
  unreviewed = { '?', 'PiReviewSignChange' },
  accepted = { 'ok', 'PiReviewSignAccepted' },
  rejected = { 'x', 'PiReviewSignRejected' },
  stale = { '!', 'PiReviewSignStale' },
  reverted = { 'x', 'PiReviewSignRejected' },
}

---@param count integer
---@param word string
---@return string
local function plural(count, word)
  return ('%d %s%s'):format(count, word, count == 1 and '' or 's')
end

---@param proposals pi.review.Proposal[]
---@return table<string, integer>
local function totals(proposals)
  local sum = { hunks = 0, accepted = 0, rejected = 0, pending = 0 }
  for _, proposal in ipairs(proposals) do
    for _, hunk in ipairs(proposal.hunks) do
      sum.hunks = sum.hunks + 1
      local key = state.is_pending(hunk) and 'pending' or hunk.state
      sum[key] = (sum[key] or 0) + 1
    end
  end
  return sum
end

---@param cells string
---@param width integer
---@return string
local function fit(cells, width)
  cells = text.cut(cells, width)
  return cells .. (' '):rep(width - vim.fn.strdisplaywidth(cells))
end

---@param hunk pi.review.Hunk
---@return string
local function title(hunk)
  for _, line in ipairs(hunk.new) do
    if line.t:find('%S') then
      return vim.trim(line.t)
    end
  end
  local first = hunk.old[1]
  return #hunk.new == 0 and first and vim.trim(first.t) or '(blank lines)'
end

---@param added integer
---@param removed integer
---@return pi.review.Segment[]
local function counts(added, removed)
  local plus = added > 0 and ('+%d'):format(added) or ''
  local minus = removed > 0 and ('-%d'):format(removed) or ''
  return {
    { ('%5s '):format(plus), 'PiReviewSignAdd' },
    { ('%-5s'):format(minus), 'PiReviewSignDelete' },
  }
end

---@param proposal pi.review.Proposal
---@return string
local function progress(proposal)
  if proposal.state == 'waiting' then
    return proposal.after and ('waits for #%d'):format(proposal.after) or 'waits'
  elseif proposal.state == 'applying' then
    return 'writing'
  elseif proposal.unreviewed then
    return 'unreviewed'
  end
  local decided = #proposal.hunks - state.pending_count(proposal)
  return ('%d/%d'):format(decided, #proposal.hunks)
end

---From this width on there is room to say which call a change comes from.
local WIDE = 90
---Below this width hunks are shown without counts.
local NARROW = 70

---Cells right of the path: counts, the call, how far the review is.
---@param width integer
---@return integer
local function tail(width)
  return width >= WIDE and 40 or 28
end

---@param proposal pi.review.Proposal
---@param width integer
---@param is_folded boolean
---@return pi.review.ListRow
local function file_row(proposal, width, is_folded)
  local folded = is_folded or #proposal.hunks == 0
  ---@type string
  local path = proposal.display .. (proposal.link and ' -> ' .. proposal.link or '')
  local segments = {
    { folded and ' > ' or ' v ', 'PiReviewHint' },
    { proposal.kind .. ' ', proposal.kind == 'A' and 'PiReviewSignAdd' or 'PiReviewSignChange' },
    { fit(path, width - tail(width) - 6), 'PiReviewFile' },
    { ' ' },
  }
  vim.list_extend(segments, counts(proposal.added, proposal.removed))
  if width >= WIDE then
    local call = (' %s #%d'):format(proposal.tool, proposal.number)
    segments[#segments + 1] = { fit(call, 12), 'PiReviewHint' }
  end
  segments[#segments + 1] = { progress(proposal) }
  local remark = proposal.notice or (proposal.outside and 'outside the project') or nil
  if remark then
    segments[#segments + 1] = { '  ' .. remark, 'PiReviewStale' }
  end
  return { segments = segments, proposal = proposal.id }
end

---@param proposal pi.review.Proposal
---@param hunk pi.review.Hunk
---@param width integer
---@return pi.review.ListRow
local function hunk_row(proposal, hunk, width)
  local sign = signs[hunk.state] or signs.pending
  local narrow = width < NARROW
  local room = width - (narrow and 16 or tail(width) + 16)
  ---@type pi.review.Segment[]
  local segments = {
    { ('     %-3s'):format(sign[1]), sign[2] },
    { ('%5d  '):format((proposal.view == 'inline' and hunk.row or hunk.new_row) + 1), 'LineNr' },
    {
      fit(title(hunk), room),
      hunk.state == 'rejected' and 'PiReviewRejected' or 'Normal',
    },
    { ' ' },
  }
  if not narrow then
    vim.list_extend(segments, counts(#hunk.new, #hunk.old))
  end
  local remarks = {}
  if hunk.label then
    remarks[#remarks + 1] = options.ascii() and hunk.label:gsub('→', '->') or hunk.label
  end
  if hunk.edited then
    remarks[#remarks + 1] = 'edited'
  end
  if hunk.note then
    remarks[#remarks + 1] = 'note: ' .. text.printable((hunk.note:gsub('\n', ' ')))
  end
  if #remarks > 0 then
    segments[#segments + 1] = { ' ' .. table.concat(remarks, '  '), 'PiReviewNote' }
  end
  return { segments = segments, proposal = proposal.id, hunk = hunk.id }
end

---@param proposals pi.review.Proposal[]
---@return pi.review.ListRow
local function head_row(proposals)
  local sum = totals(proposals)
  local first = proposals[1] ---@type pi.review.Proposal?
  local known = first and status.of(first.session)
  local name = first and first.session_name or (known and known.name)
  local segments = { { ' Review ', 'PiReviewTitle' } } ---@type pi.review.Segment[]
  if name then
    segments[#segments + 1] = { ' ' .. name .. ' ', 'PiReviewFile' }
  end
  local line = ('  %s  %s   %d accepted  %d rejected  %d pending   mode: %s'):format(
    plural(#proposals, 'file'),
    plural(sum.hunks, 'hunk'),
    sum.accepted,
    sum.rejected + (sum.reverted or 0),
    sum.pending,
    state.mode()
  )
  segments[#segments + 1] = { line }
  return { segments = segments }
end

---Lays the list out for a window.
---@param width integer cells
---@param folded table<integer, boolean> proposals that show no hunks
---@return pi.review.ListRow[]
function M.rows(width, folded)
  local proposals = state.all()
  local out = { head_row(proposals) }
  for _, proposal in ipairs(proposals) do
    local is_folded = folded[proposal.id] == true
    out[#out + 1] = file_row(proposal, width, is_folded)
    if not is_folded then
      for _, hunk in ipairs(proposal.hunks) do
        out[#out + 1] = hunk_row(proposal, hunk, width)
      end
    end
  end
  if #proposals == 0 then
    out[#out + 1] = { segments = { { ' Nothing to review.', 'PiReviewHint' } } }
  end
  return out
end

return M
