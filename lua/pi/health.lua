--- `:checkhealth pi`
local M = {}

local h = vim.health

local function neovim()
  h.start('Neovim')
  local version = vim.fn.execute('version'):match('v[%d.]+') or '?'
  if vim.fn.has('nvim-0.11') == 1 then
    h.ok('version ' .. version)
  else
    h.error('version ' .. version, 'pi.nvim needs Neovim 0.11 or newer')
  end
  if pcall(vim.treesitter.language.add, 'markdown') then
    h.ok('treesitter parser for Markdown')
  else
    h.info('no treesitter parser for Markdown: answers are shown plain')
  end
  -- No option of Neovim's own, so `vim.o` does not have it.
  local colours = tonumber(vim.fn.eval('&t_Co')) or 256
  if not vim.o.termguicolors and colours < 16 then
    h.info('few terminal colours: signs and words carry the meaning')
  end
  for _, name in ipairs({ 'blink.cmp', 'cmp', 'mini.completion', 'telescope', 'snacks' }) do
    if package.loaded[name] then
      h.info('found ' .. name)
    end
  end
end

local function conflicts()
  h.start('Conflicts')
  local found = false
  local function warn(text, advice)
    found = true
    h.warn(text, advice)
  end
  if vim.g.pi_command_was_taken then
    warn('another plugin had defined :Pi', 'its command was replaced; see `:verbose command Pi`')
  end
  if #vim.api.nvim_get_runtime_file('lua/pi/init.lua', true) > 1 then
    warn('two plugins bring lua/pi/', 'only the first on the runtimepath is used')
  end
  if vim.o.autowriteall then
    warn(
      "'autowriteall' is set",
      'files are written when you leave them; pending hunks are never in the file'
    )
  end
  if vim.fn.exists('+shellslash') == 1 and vim.o.shellslash then
    warn("'shellslash' is set", 'paths may not be recognised')
  end
  if not found then
    h.ok('none known')
  end
end

local function keys()
  h.start('Review keys')
  local buf = vim.fn.bufnr('#') > 0 and vim.fn.bufnr('#') or vim.api.nvim_get_current_buf()
  local facts = require('pi.review.keys').facts(buf)
  if not facts.prefix then
    h.info('none are set; every action has its `:Pi review` command and `<Plug>` map')
    return
  end
  local prefix = vim.fn.keytrans(facts.prefix)
  h.ok(('prefix %s: %sa accepts a hunk, %sr rejects it'):format(prefix, prefix, prefix))
  if facts.why then
    h.info(('not the one you chose, because %s'):format(facts.why))
  end
  if #facts.left_out > 0 then
    local names = vim.tbl_map(vim.fn.keytrans, facts.left_out)
    h.warn('not mapped, other maps are in the way: ' .. table.concat(names, ' '))
  end
end

local function programs()
  h.start('Programs')
  for _, name in ipairs({ 'bash', 'git' }) do
    if vim.fn.executable(name) == 1 then
      h.ok(name .. ': ' .. vim.fn.exepath(name))
    else
      h.warn(name .. ' was not found')
    end
  end
  h.info('searching is built in; rg and fd are not needed')
end

---@param facts table
---@param took number
local function backend_facts(facts, took)
  h.ok(('version %s for %s, answered in %.0f ms'):format(facts.version, facts.target, took))
  for _, dir in ipairs({ facts.agent_dir, facts.state_dir }) do
    local writable = vim.fn.filewritable(dir) == 2 or vim.fn.isdirectory(dir) == 0
    if writable then
      h.ok(dir)
    else
      h.error(dir .. ' cannot be written', 'give yourself the right to write there')
    end
  end
  local problems =
    vim.list_extend(vim.list_extend({}, facts.settings_problems), facts.model_problems)
  for _, line in ipairs(problems) do
    h.error(line)
  end
  if #facts.providers > 0 then
    local models = facts.models == 1 and '1 model' or ('%d models'):format(facts.models)
    h.ok(('%s of %s'):format(models, table.concat(facts.providers, ', ')))
  else
    h.warn(
      'no provider has a key',
      { '`:Pi login {provider}`', '`:Pi model local`', '`:Pi settings models`' }
    )
  end
  h.info(('sessions take %.1f MB'):format(facts.sessions_bytes / 1e6))
  if facts.untrusted then
    h.info('this project brings settings of its own that are not loaded; `:Pi trust` decides')
  end
end

local function backend()
  h.start('Backend')
  local it = require('pi.backend')
  local path = it.find()
  if not path then
    h.error('no pi-nvim was found', { '`:Pi install source`', '`:Pi install {file}`' })
    return
  end
  h.ok('binary: ' .. path)
  local failed, facts, done
  local begin = vim.uv.hrtime()
  it.start(function(err)
    if err then
      failed, done = err, true
      return
    end
    require('pi.rpc').request('health.facts', { cwd = it.cwd() }, function(err2, result)
      failed, facts, done = err2, result, true
    end)
  end)
  vim.wait(5000, function()
    return done == true
  end, 5)
  if facts then
    backend_facts(facts, (vim.uv.hrtime() - begin) / 1e6)
  else
    h.error(failed or 'it did not answer for 5 s', '`:Pi log` has what it said')
  end
end

local function log()
  local lines = require('pi.log').lines()
  if #lines > 0 then
    h.start('Log')
    for _, line in ipairs(vim.list_slice(lines, math.max(1, #lines - 9))) do
      h.info(line)
    end
  end
end

function M.check()
  neovim()
  backend()
  programs()
  keys()
  conflicts()
  log()
end

return M
