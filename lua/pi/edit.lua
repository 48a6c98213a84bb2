--- `:Pi edit`: a change of a range or a file, asked for in one line.
local notice = require('pi.notice')

local M = {}

--- What an edit is about: its file, and the lines of the range as they stand in the buffer.
---@param cx pi.command.Context
---@return { mention: string, text: string }?
local function subject(cx)
  local name = vim.api.nvim_buf_get_name(cx.buf)
  if name == '' or vim.bo[cx.buf].buftype ~= '' then
    return nil
  end
  local path = require('pi.context').path_of(cx.buf)
  if not cx.range then
    return { mention = '@' .. path, text = path }
  end
  local first, last = cx.range[1], cx.range[2]
  local lines = vim.api.nvim_buf_get_lines(cx.buf, first - 1, last, false)
  return {
    mention = ('@%s:%d-%d'):format(path, first, last),
    text = require('pi.context').capped(
      ('%s, lines %d to %d:\n%s'):format(path, first, last, table.concat(lines, '\n'))
    ),
  }
end

--- What the model is told besides the instruction.
local TASK = 'Make this change now with the edit tool, or write for a new file, and keep to the lines named unless '
  .. 'it needs others. Then answer with one short sentence.'

---@param text string
---@param cx pi.command.Context
local function run(text, cx)
  local about = subject(cx)
  if not about then
    notice.say('`:Pi edit` changes a file, and this buffer is none', 'error')
    return
  end
  text = text .. '\n\n' .. about.mention
  local context = require('pi.context').gather(text)
  if cx.range then
    context[#context + 1] = { name = 'range', text = about.text }
  end
  context[#context + 1] = { name = 'task', text = TASK }
  require('pi.session').request('edit.run', {
    text = text,
    context = context,
    apart = cx.bang,
  }, function(err)
    if not err then
      require('pi.review.say').line('at work on ' .. about.mention)
    else
      notice.say(err, 'error')
      require('pi.prompt').keep(text)
    end
  end)
end

---@param text string
---@param cx pi.command.Context
function M.run(text, cx)
  if text ~= '' then
    run(text, cx)
    return
  end
  vim.ui.input({ prompt = 'Edit: ' }, function(given)
    if given and vim.trim(given) ~= '' then
      run(vim.trim(given), cx)
    end
  end)
end

M.ops = {}

--- An edit is over: said where its conversation is not on the screen.
---@param op { session: string, level: 'error'|'info', text: string }
function M.ops.done(op)
  local buf = require('pi.chat').buffer(op.session)
  if op.text ~= '' and #vim.fn.win_findbuf(buf) == 0 then
    notice.say('pi: ' .. op.text, op.level)
  end
end

--- The session of a thrown-away edit is gone, and its buffer with it.
---@param op { session: string }
function M.ops.gone(op)
  require('pi.attention').forget(op.session)
  require('pi.status').forget(op.session)
  local buf = require('pi.chat').buffer(op.session)
  if #vim.fn.win_findbuf(buf) == 0 then
    vim.api.nvim_buf_delete(buf, { force = true })
  end
end

return M
