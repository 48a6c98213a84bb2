---Questions before an accepted change may be written: at most one a proposal, and only where more than the change itself
---is at stake.

local buffers = require('pi.review.buffers')
local options = require('pi.review.options')
local proposal_view = require('pi.review.proposal')
local state = require('pi.review.state')

local M = {}

---@param proposal pi.review.Proposal
---@return string? question
local function question(proposal)
  if state.is_written(proposal) then
    return nil
  end
  local buf = buffers.find(proposal.real)
  if not buf then
    return nil
  end
  if vim.b[buf].pi_swap then
    return proposal.display .. ' is open in another Neovim. Write the file all the same?'
  end
  if options.review().unsaved == 'ask' and vim.bo[buf].modified then
    return proposal.display .. ' has unsaved changes. Save them with the accepted ones?'
  end
end

---Runs a function when the person agrees to everything that accepting these proposals means. What they changed in the
---proposed texts counts, saved or not.
---@param verb 'accept'|'reject'
---@param proposals pi.review.Proposal[]
---@param go fun()
---@param own integer? a buffer whose text `go` gives to core itself
function M.before(verb, proposals, go, own)
  for _, proposal in ipairs(verb == 'accept' and proposals or {}) do
    local text = not state.has_agreed(proposal.id) and question(proposal)
    if text then
      vim.ui.select({ 'yes', 'no' }, { prompt = text, kind = 'pi.confirm' }, function(answer)
        if answer == 'yes' then
          state.agree(proposal.id)
          M.before(verb, proposals, go, own)
        end
      end)
      return
    end
  end
  for _, proposal in ipairs(verb == 'accept' and proposals or {}) do
    proposal_view.save(proposal.id, own)
  end
  go()
end

return M
