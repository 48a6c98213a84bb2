-- Measures the plugin inside a Neovim: load time, start to answered handshake, the cost of a long streamed answer.
-- Writes one JSON object to $PI_BENCH_OUT.
local out = assert(vim.env.PI_BENCH_OUT, 'PI_BENCH_OUT names the result file')
local uv = vim.uv
local result = {}

local function ms(since)
  return (uv.hrtime() - since) / 1e6
end

local function wait_for(what, seconds, check)
  if not vim.wait(seconds * 1000, check, 1) then
    vim.fn.writefile({ vim.json.encode({ error = 'gave up waiting for ' .. what }) }, out)
    vim.cmd('cquit 1')
  end
end

---CPU seconds of a process so far, and its resident memory in MB.
local function usage(pid)
  local stat = vim.fn.readfile('/proc/' .. pid .. '/stat')[1]:gsub('^.*%) ', '')
  local fields = vim.split(stat, ' ')
  local status = table.concat(vim.fn.readfile('/proc/' .. pid .. '/status'), '\n')
  return (tonumber(fields[12]) + tonumber(fields[13])) / 100,
    tonumber(status:match('VmRSS:%s+(%d+)')) / 1024
end

---CPU nanoseconds the scheduler counted: finer than the ticks of `stat`.
local function cpu_ms(pid)
  local total = 0
  for task in vim.fs.dir('/proc/' .. pid .. '/task') do
    -- A thread may end between the look and the reading.
    local read, lines = pcall(vim.fn.readfile, ('/proc/%d/task/%s/schedstat'):format(pid, task))
    total = total + (read and tonumber((lines[1] or '0'):match('^%d+')) or 0)
  end
  return total / 1e6
end

-- A long session: from the command to rows on the screen, and a change of the filter.
local function measure_tree()
  local before = vim.t.pi_session
  vim.cmd('Pi resume ' .. vim.fn.fnameescape(vim.env.PI_BENCH_SESSION))
  wait_for('the long session', 60, function()
    return vim.t.pi_session ~= before
  end)
  local at = uv.hrtime()
  vim.cmd('Pi tree')
  wait_for('the tree', 60, function()
    return vim.bo.filetype == 'pi-tree' and vim.api.nvim_get_current_line() ~= ''
  end)
  result.tree_open_ms = ms(at)
  local view = assert(require('pi.tree.view').of(vim.t.pi_session))
  local rows = view.len
  at = uv.hrtime()
  vim.api.nvim_feedkeys('3', 'xt', false)
  wait_for('the filter', 60, function()
    return view.len ~= rows
  end)
  result.tree_filter_ms = ms(at)
end

local function run()
  local at = uv.hrtime()
  vim.cmd.source(vim.env.PI_NVIM_ROOT .. '/plugin/pi.lua')
  result.plugin_load_ms = ms(at)

  local ready = false
  local settled = false
  vim.api.nvim_create_autocmd('User', {
    pattern = 'Pi*',
    callback = function(ev)
      ready = ready or ev.match == 'PiReady'
      settled = settled or ev.match == 'PiRunEnd'
    end,
  })
  at = uv.hrtime()
  vim.cmd('Pi open')
  wait_for('the handshake', 20, function()
    return ready
  end)
  result.handshake_ms = ms(at)
  local pid = require('pi.backend').info().pid
  result.handshake_cpu_ms = cpu_ms(pid)
  vim.wait(500)
  local _, idle = usage(pid)
  result.idle_mb = idle

  -- Every batch we draw blocks the editor for as long as it takes.
  local rpc = require('pi.rpc')
  local batch, batches, longest = rpc.batch, 0, 0
  rpc.batch = function(...)
    local from = uv.hrtime()
    local answer = batch(...)
    batches, longest = batches + 1, math.max(longest, ms(from))
    return answer
  end
  at = uv.hrtime()
  local before = cpu_ms(pid)
  vim.cmd('Pi ask stream a long answer')
  wait_for('the answer', 120, function()
    return settled
  end)
  local seconds = ms(at) / 1000
  result.stream_seconds = seconds
  result.batches_per_second = batches / seconds
  result.longest_batch_ms = longest
  result.cpu_us_per_token = (cpu_ms(pid) - before) * 1000 / 50000
  rpc.batch = batch
  measure_tree()
  vim.fn.writefile({ vim.json.encode(result) }, out)
  vim.cmd('qall!')
end

vim.schedule(function()
  local ok, err = pcall(run)
  if not ok then
    vim.fn.writefile({ vim.json.encode({ error = tostring(err) }) }, out)
    vim.cmd('cquit 1')
  end
end)
