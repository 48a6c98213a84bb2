--- Going on from another entry: what is asked before, and what is told.
local dialog = require('pi.dialog')
local notice = require('pi.notice')
local rpc = require('pi.rpc')
local views = require('pi.tree.view')

local M = {}

---@class pi.tree.Leaves
---@field content boolean whether a summary could say something
---@field files integer how many were written after the point where both branches part
---@field skip boolean the person does not want to be asked

---@param view pi.tree.View
---@param entry string
---@param how { summary: boolean?, instructions: string? }
local function jump(view, entry, how)
  if how.summary then
    notice.say('summarising the branch that is left; `:Pi abort` stops that')
  end
  local params = vim.tbl_extend('force', { session = view.session, entry = entry }, how)
  rpc.request('tree.jump', params, function(err, result)
    if err then
      notice.say(err, 'error')
      return
    end
    if result.cancelled == true then
      notice.say('you are still where you were')
      return
    end
    view.at, view.landed = nil, nil
    require('pi.tree').refresh(view)
    if type(result.prefill) == 'string' then
      require('pi.prompt').prefill(view.session, result.prefill)
    end
  end)
end

--- Says how many files a jump leaves as they are.
---@param files integer
---@return string?
local function about_files(files)
  if files == 0 then
    return nil
  end
  local what = files == 1 and '1 file was' or files .. ' files were'
  return what .. ' written after this point and stay as they are; r puts them back'
end

---@param view pi.tree.View
---@param entry string
local function jump_with_words(view, entry)
  dialog.line('Summarise with regard to: ', nil, function(text)
    jump(view, entry, { summary = true, instructions = text ~= '' and text or nil })
  end)
end

--- Asks how to leave the branch, then jumps.
---@param view pi.tree.View
---@param row pi.tree.Row
---@param note string?
local function ask_and_jump(view, row, note)
  ---@type { text: string, go: fun() }[]
  local choices = {
    {
      text = 'go there',
      go = function()
        jump(view, row.id, {})
      end,
    },
    {
      text = 'go there, with a summary of what is left',
      go = function()
        jump(view, row.id, { summary = true })
      end,
    },
    {
      text = 'go there, with a summary after instructions',
      go = function()
        jump_with_words(view, row.id)
      end,
    },
  }
  vim.ui.select(choices, {
    prompt = 'Leave this branch' .. (note and ' (' .. note .. ')' or ''),
    kind = 'pi.tree',
    format_item = function(it)
      return it.text
    end,
  }, function(it)
    if it then
      it.go()
    end
  end)
end

--- Jumps; asks before when there is something to summarise and the person wants to be asked.
---@param view pi.tree.View
---@param row pi.tree.Row
local function jump_or_ask(view, row)
  local params = { session = view.session, entry = row.id }
  rpc.request('tree.leaves', params, function(err, result)
    ---@cast result pi.tree.Leaves
    if err then
      notice.say(err, 'error')
      return
    end
    local note = about_files(result.files)
    if result.content and not result.skip then
      ask_and_jump(view, row, note)
      return
    end
    jump(view, row.id, {})
    if note then
      notice.say(note)
    end
  end)
end

--- Goes on at once, or after the person agreed to stop what runs. What waits for a decision then is dropped.
---@param view pi.tree.View
---@param go fun()
local function unless_running(view, go)
  local status = require('pi.status').of(view.session)
  if not status or not status.running then
    go()
    return
  end
  local pending = status.pending_hunks or 0
  local prompt = 'The agent is running'
    .. (pending > 0 and (' and %d hunk(s) wait for you'):format(pending) or '')
  local yes = pending > 0 and 'stop the run, drop the hunks, go there' or 'stop the run, go there'
  dialog.confirm(prompt, yes, 'stay', function()
    rpc.request('run.abort', { session = view.session }, function(err)
      if err then
        notice.say(err, 'error')
      else
        go()
      end
    end)
  end)
end

--- Jumps to the row under the cursor.
---@param how 'ask'|'summary'|'instructions'
function M.leap(how)
  local view, row = views.under_cursor()
  if not view or not row then
    return
  end
  local _, number = views.current(view)
  if views.is_here(view, number) and row.kind ~= 'user' then
    notice.say('you are here already')
    return
  end
  unless_running(view, function()
    if how == 'summary' then
      jump(view, row.id, { summary = true })
    elseif how == 'instructions' then
      jump_with_words(view, row.id)
    else
      jump_or_ask(view, row)
    end
  end)
end

return M
