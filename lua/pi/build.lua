--- Puts the backend in place: built from source, or a file the person has. Also the build hook of plugin managers.
local notice = require('pi.notice')

local M = {}

---@return string
local function root()
  local info = debug.getinfo(1, 'S')
  local here = vim.fs.abspath(info and info.source:sub(2) or '')
  return vim.fs.dirname(vim.fs.dirname(vim.fs.dirname(here)))
end

--- Where it goes: beside the plugin, or to Neovim's data directory when that cannot be written.
---@return string dir
local function target()
  local beside = root() .. '/bin'
  vim.fn.mkdir(beside, 'p')
  if vim.fn.filewritable(beside) == 2 then
    return beside
  end
  return vim.fn.stdpath('data') .. '/pi/bin/' .. require('pi.backend').VERSION
end

--- Puts a file in place at once, also while the old one runs.
---@param file string
---@return string? err
local function place(file)
  local dir = target()
  vim.fn.mkdir(dir, 'p')
  local new = dir .. '/pi-nvim.new'
  local copied, err = vim.uv.fs_copyfile(file, new)
  if not copied then
    return ('copy %s: %s'):format(file, err or '?')
  end
  vim.uv.fs_chmod(new, 493)
  local moved, failed = vim.uv.fs_rename(new, dir .. '/pi-nvim')
  if not moved then
    return ('replace %s/pi-nvim: %s'):format(dir, failed or '?')
  end
  return nil
end

---@param file string
local function finish(file)
  local err = place(file)
  if err then
    notice.say(err, 'error')
  else
    notice.say('pi-nvim is in place; `:Pi restart` uses it')
  end
end

local function from_source()
  if vim.fn.executable('cargo') == 0 then
    notice.say('cargo was not found: install stable Rust, or `:Pi install {file}`', 'error')
    return
  end
  local where = vim.fn.stdpath('cache') .. '/pi/target'
  local command = { 'cargo', 'build', '--release', '--locked', '--target-dir', where }
  notice.say('building pi-nvim; this takes some minutes')
  local last = ''
  local function progress(_, data)
    for line in (data or ''):gmatch('[^\n]+') do
      last = line
      require('pi.log').add(line)
    end
  end
  vim.system(command, { cwd = root(), text = true, stderr = progress }, function(out)
    vim.schedule(function()
      if out.code == 0 then
        finish(where .. '/release/pi-nvim')
      else
        notice.say('the build failed: ' .. last .. '\n`:Pi log` has the rest', 'error')
      end
    end)
  end)
end

---@param what string? `source`, or a file
function M.install(what)
  if not what then
    notice.say('`:Pi install source` builds it, `:Pi install {file}` takes a binary', 'warn')
  elseif what == 'source' then
    from_source()
  elseif vim.fn.filereadable(what) == 1 then
    finish(vim.fs.abspath(what))
  else
    notice.say(what .. ' cannot be read', 'error')
  end
end

return M
