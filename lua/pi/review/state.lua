---What core last said about each proposal. Lua keeps no other truth: it draws this and nothing else.

---@class (exact) pi.review.Line
---@field t string text without its ending; may hold control characters
---@field w integer[]? changed parts as byte columns: start, end, start, end …

---@class (exact) pi.review.Hunk
---@field id integer
---@field index integer position among the hunks of the file, from 1
---@field row integer 0-based row of the first old line in the file as it is now; for an insertion the row it stands before
---@field count integer number of old lines
---@field new_row integer 0-based row of the first new line in the proposed text
---@field state 'pending'|'accepted'|'rejected'|'stale'|'reverted'|'unreviewed'
---@field note string?
---@field label string?
---@field edited boolean
---@field edits integer[] edits of the call it comes from, from 1
---@field same boolean? `old` and `new` are those sent before
---@field old pi.review.Line[]
---@field new pi.review.Line[]

---@class (exact) pi.review.Proposal
---@field id integer
---@field version integer
---@field session string
---@field session_name string?
---@field path string absolute path
---@field real string real path
---@field display string path as people read it
---@field link string? real target when the path is a link
---@field outside boolean whether it lies outside the working directory
---@field tool 'edit'|'write'|'bash'
---@field number integer running number of the change in its session
---@field kind 'M'|'A'|'D' modified, added, emptied
---@field state 'waiting'|'open'|'applying'|'done'|'failed'|'cancelled'
---@field view 'inline'|'proposal'|'digest'
---@field notice string?
---@field unreviewed boolean
---@field unsaved boolean whether accepting also saves unsaved lines
---@field added integer
---@field removed integer
---@field after integer? number of the change it waits for
---@field hunks pi.review.Hunk[]

local M = {}

---@class (exact) pi.review.State
---@field proposals table<integer, pi.review.Proposal>
---@field order integer[]
---@field mode string
---@field seen table<integer, boolean> proposals that were displayed
---@field agreed table<integer, boolean> proposals whose question was answered with yes
local state = { proposals = {}, order = {}, mode = 'ask', seen = {}, agreed = {} }

---@param proposal pi.review.Proposal
---@param known pi.review.Proposal?
local function fill(proposal, known)
  local by_id = {} ---@type table<integer, pi.review.Hunk?>
  for _, hunk in ipairs(known and known.hunks or {}) do
    by_id[hunk.id] = hunk
  end
  for _, hunk in ipairs(proposal.hunks) do
    local before = by_id[hunk.id]
    if hunk.same and before then
      hunk.old, hunk.new = before.old, before.new
    end
    hunk.old, hunk.new = hunk.old or {}, hunk.new or {}
  end
end

---Takes over what core says; returns what was known before.
---@param proposal pi.review.Proposal
---@return pi.review.Proposal? before
function M.set(proposal)
  local before = state.proposals[proposal.id]
  fill(proposal, before)
  if not before then
    state.order[#state.order + 1] = proposal.id
    table.sort(state.order)
  end
  state.proposals[proposal.id] = proposal
  return before
end

---@param id integer
---@return pi.review.Proposal? before
function M.drop(id)
  local before = state.proposals[id]
  state.proposals[id] = nil
  state.seen[id], state.agreed[id] = nil, nil
  state.order = vim.tbl_filter(function(other)
    return other ~= id
  end, state.order)
  return before
end

---@param id integer
---@return pi.review.Proposal?
function M.get(id)
  return state.proposals[id]
end

---All proposals core still shows, oldest first.
---@param session string?
---@return pi.review.Proposal[]
function M.all(session)
  local found = {}
  for _, id in ipairs(state.order) do
    local proposal = state.proposals[id]
    if not session or proposal.session == session then
      found[#found + 1] = proposal
    end
  end
  return found
end

---Whether hunks of the proposal can be looked at and decided.
---@param proposal pi.review.Proposal
---@return boolean
function M.reviewable(proposal)
  return proposal.state == 'open' or proposal.state == 'applying' or proposal.unreviewed
end

---Whether the change is in the file already, still to be looked at.
---@param proposal pi.review.Proposal
---@return boolean
function M.is_written(proposal)
  return proposal.unreviewed and proposal.state == 'done'
end

---Whether a hunk still asks for a decision.
---@param hunk pi.review.Hunk
---@return boolean
function M.is_pending(hunk)
  return hunk.state == 'pending' or hunk.state == 'stale' or hunk.state == 'unreviewed'
end

---The reason a rejection carries: what the person says, or what makes the model propose it again.
---@param hunk pi.review.Hunk
---@param verb 'accept'|'reject'
---@param said string?
---@return string?
function M.reason(hunk, verb, said)
  if verb == 'reject' and hunk.state == 'stale' then
    return said or hunk.note or 'the file changed while the edit waited; read it again'
  end
  return said
end

---@param proposal pi.review.Proposal
---@return integer
function M.pending_count(proposal)
  local count = 0
  for _, hunk in ipairs(proposal.hunks) do
    count = count + (M.is_pending(hunk) and 1 or 0)
  end
  return count
end

---Reviewable proposals that have pending hunks, oldest first.
---@return pi.review.Proposal[]
function M.with_pending()
  return vim.tbl_filter(function(proposal)
    return M.reviewable(proposal) and M.pending_count(proposal) > 0
  end, M.all())
end

---@param id integer
---@return pi.review.Hunk?, pi.review.Proposal?
function M.hunk(id)
  for _, proposal in pairs(state.proposals) do
    for _, hunk in ipairs(proposal.hunks) do
      if hunk.id == id then
        return hunk, proposal
      end
    end
  end
end

---@param id integer
function M.mark_seen(id)
  state.seen[id] = true
end

---@param id integer
---@return boolean
function M.was_seen(id)
  return state.seen[id] == true
end

---@param id integer
function M.agree(id)
  state.agreed[id] = true
end

---@param id integer
---@return boolean
function M.has_agreed(id)
  return state.agreed[id] == true
end

---@param mode string
function M.set_mode(mode)
  state.mode = mode
end

---@return string
function M.mode()
  return state.mode
end

---Forgets everything: core is gone.
---@return pi.review.Proposal[] dropped
function M.clear()
  local dropped = M.all()
  state.proposals, state.order, state.seen, state.agreed = {}, {}, {}, {}
  return dropped
end

return M
