-- The demo without a terminal: presses what a person would press, with decisions stated here, and writes what was seen to
-- $PI_DEMO_OUT/transcript.txt. Leaves with 1 when something does not come in time.
local out = assert(vim.env.PI_DEMO_OUT, 'PI_DEMO_OUT names the folder for the transcript')
local report = {}

local function say(...)
  report[#report + 1] = string.format(...)
end

local function finish(code)
  local chat
  for _, buf in ipairs(vim.api.nvim_list_bufs()) do
    if vim.api.nvim_buf_get_name(buf):find('pi://chat/', 1, true) then
      chat = vim.api.nvim_buf_get_lines(buf, 0, -1, false)
    end
  end
  local lines = { '== transcript ==' }
  vim.list_extend(lines, chat or { '(no chat)' })
  vim.list_extend(lines, { '', '== hunks and decisions ==' })
  vim.list_extend(lines, report)
  vim.fn.writefile(lines, out .. '/transcript.txt')
  vim.fn.writefile(vim.split(vim.fn.execute('messages'), '\n'), out .. '/messages.txt')
  vim.cmd(code == 0 and 'qall!' or 'cquit 1')
end

local function wait_for(what, seconds, check)
  if not vim.wait(seconds * 1000, check, 10) then
    say('demo: gave up waiting for %s', what)
    finish(1)
    error('stop')
  end
end

-- What happens, as other plugins would hear of it.
local settled, proposals = false, {}
vim.api.nvim_create_autocmd('User', {
  pattern = 'Pi*',
  callback = function(ev)
    local data = ev.data or {}
    if ev.match == 'PiRunEnd' then
      settled = true
    elseif ev.match == 'PiReviewOpen' then
      proposals[vim.fn.fnamemodify(data.path, ':.')] = data
    elseif ev.match == 'PiReviewDecision' then
      say('hunk %s: %s%s', data.hunk, data.decision, data.note and (' (' .. data.note .. ')') or '')
    elseif ev.match == 'PiFileWritten' then
      say('written: %s', vim.fn.fnamemodify(data.path, ':.'))
    end
  end,
})

local review = require('pi.review')

local function press(keys)
  vim.api.nvim_feedkeys(vim.keycode(keys), 'xt', false)
end

-- Allows the command that is asked about, once.
local function allow_command()
  local attention = require('pi.attention')
  wait_for('a question about a command', 20, function()
    return attention.count() > 0
  end)
  vim.cmd('Pi attention')
  press('y')
  wait_for('the answer to be taken', 10, function()
    return attention.count() == 0
  end)
  say('command: allowed once')
end

local function go_to(path, count)
  wait_for('hunks in ' .. path, 20, function()
    return proposals[path] ~= nil
  end)
  vim.cmd('hide edit ' .. path)
  local buf = vim.api.nvim_get_current_buf()
  if count then
    wait_for('the hunks to be drawn', 10, function()
      return review.pending(buf) == count
    end)
  end
  return buf
end

local function run()
  vim.cmd('Pi ask The tests of this shop fail. Find out why and put it right.')
  allow_command()

  -- Both hunks of one file at once.
  local money = go_to('shop/money.py', 2)
  say('shop/money.py: the whole file')
  vim.cmd('Pi review accept file')
  wait_for('shop/money.py to be written', 10, function()
    return review.pending(money) == 0 and not vim.bo[money].modified
  end)

  -- Three hunks: yes, no with a reason, yes.
  local cart = go_to('shop/cart.py', 3)
  say('shop/cart.py: yes, no with a reason, yes')
  vim.api.nvim_win_set_cursor(0, { 1, 0 })
  press(']c')
  vim.cmd('Pi review accept')
  wait_for('the first decision', 10, function()
    return review.pending(cart) == 2
  end)
  vim.fn.search('percent / 100', 'w')
  vim.cmd('Pi! review reject')
  vim.cmd.stopinsert()
  vim.api.nvim_buf_set_lines(0, 0, -1, false, { 'no floats where money is concerned' })
  press('<CR>')
  wait_for('the second decision', 10, function()
    return review.pending(cart) == 1
  end)
  press(']c')
  vim.cmd('Pi review accept')
  wait_for('the third decision', 10, function()
    return review.pending(cart) == 0
  end)

  -- The new file, without looking at it.
  say('CHANGES.md: everything that is open')
  vim.cmd('Pi review accept all')
  vim.wait(200)
  if review.pending() > 0 then
    vim.cmd('Pi review accept all')
  end
  wait_for('CHANGES.md', 10, function()
    return vim.uv.fs_stat('CHANGES.md') ~= nil
  end)

  -- The tests again, what failed because of the rejection, and the other way the agent then proposes.
  proposals = {}
  allow_command()
  go_to('shop/cart.py', 1)
  say('shop/cart.py: yes to the other way')
  vim.cmd('Pi review accept file')
  wait_for('the second version to be written', 10, function()
    return review.pending() == 0
  end)
  allow_command()
  wait_for('the run to end', 20, function()
    return settled
  end)
end

vim.schedule(function()
  local ok, err = pcall(run)
  if not ok and not tostring(err):find('stop') then
    say('demo: %s', err)
  end
  finish(ok and 0 or 1)
end)
