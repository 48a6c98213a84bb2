--- Completion, always answered from what is known already; what is not known is asked for in the background.
local rpc = require('pi.rpc')

local M = {}

---@class pi.complete.Cache
---@field files table<string, string[]> by directory
---@field asked table<string, integer> when something was last asked for
---@field models { provider: string, id: string, name: string }[]
---@field levels string[]
---@field commands { name: string, description: string?, source: string }[]
---@field sessions table[]

---@type pi.complete.Cache
local cache = { files = {}, asked = {}, models = {}, levels = {}, commands = {}, sessions = {} }

---@param what string
---@param every integer ms
---@return boolean
local function due(what, every)
  local now = vim.uv.now()
  if cache.asked[what] and now - cache.asked[what] < every then
    return false
  end
  cache.asked[what] = now
  return true
end

---@param request string
---@param field string
---@param take fun(list: any)
local function refresh(request, field, take)
  local session = require('pi.session').current()
  if not session or not rpc.connected() or not due(request, 5000) then
    return
  end
  rpc.request(request, { session = session }, function(err, result)
    if not err and type(result) == 'table' then
      take(result[field] or {})
    end
  end)
end

---@return { provider: string, id: string, name: string }[]
function M.models()
  refresh('model.list', 'models', function(list)
    cache.models = list
  end)
  return cache.models
end

---@return string[]
function M.levels()
  refresh('thinking.list', 'levels', function(list)
    cache.levels = list
  end)
  return #cache.levels > 0 and cache.levels or { 'off', 'minimal', 'low', 'medium', 'high' }
end

---@return { name: string, description: string?, source: string }[]
function M.commands()
  refresh('session.commands', 'commands', function(list)
    cache.commands = list
  end)
  return cache.commands
end

---@return table[]
function M.sessions()
  refresh('session.list', 'sessions', function(list)
    cache.sessions = list
  end)
  return cache.sessions
end

--- Files below a directory, ignore files respected where git is there.
---@param cwd string
---@return string[]
function M.files(cwd)
  if due('files:' .. cwd, 10000) then
    local command = { 'git', 'ls-files', '--cached', '--others', '--exclude-standard' }
    local ok = pcall(vim.system, command, { cwd = cwd, text = true }, function(out)
      if out.code == 0 then
        cache.files[cwd] = vim.split(out.stdout or '', '\n', { trimempty = true })
        return
      end
      vim.schedule(function()
        local found = {} ---@type string[]
        for name, kind in vim.fs.dir(cwd, { depth = 4 }) do
          if kind == 'file' and not name:match('^%.') and #found < 5000 then
            found[#found + 1] = name
          end
        end
        cache.files[cwd] = found
      end)
    end)
    if not ok then
      cache.files[cwd] = {}
    end
  end
  return cache.files[cwd] or {}
end

---@param items string[]
---@param lead string
---@return string[]
function M.match(items, lead)
  if lead == '' then
    return vim.list_slice(items, 1, 200)
  end
  local ok, found = pcall(vim.fn.matchfuzzy, items, lead, { limit = 200 })
  return ok and found --[[@as any]] or {}
end

---@param items table[]
---@param lead string
---@return table[]
local function match_items(items, lead)
  if lead == '' then
    return vim.list_slice(items, 1, 200)
  end
  local ok, found = pcall(vim.fn.matchfuzzy, items, lead, { key = 'word', limit = 200 })
  return ok and found --[[@as any]] or {}
end

---@return table[]
local function slash_items()
  local items = {} ---@type table[]
  for _, name in ipairs(require('pi.command').slashes()) do
    items[#items + 1] = { word = '/' .. name[1], menu = name[2], kind = 'c' }
  end
  for _, command in ipairs(M.commands()) do
    items[#items + 1] = {
      word = '/' .. command.name,
      menu = (command.description ~= vim.NIL and command.description or '')
        .. ' ['
        .. command.source
        .. ']',
      kind = 'c',
    }
  end
  return items
end

---@return table[]
local function mention_items()
  local items = {} ---@type table[]
  for _, name in ipairs(require('pi.context').names()) do
    local doc = require('pi.context').kinds[name]
    items[#items + 1] = { word = '@' .. name, menu = doc, kind = 'v' }
  end
  local info = require('pi.session').info()
  for _, file in ipairs(M.files(info and info.cwd or vim.fn.getcwd())) do
    items[#items + 1] = { word = '@' .. file, kind = 'f' }
  end
  return items
end

--- 'omnifunc' of the prompt.
---@param findstart integer
---@param base string
---@return integer|table[]
function M.omni(findstart, base)
  if findstart == 1 then
    local column = vim.api.nvim_win_get_cursor(0)[2]
    local before = vim.api.nvim_get_current_line():sub(1, column)
    local start = before:match('.*()[@/]%S*$') or before:match('.*%s()%S*$') or 1
    -- A slash inside a path belongs to the mention that holds it.
    local mention = before:match('.*()@%S*$')
    return math.floor((tonumber(mention) or tonumber(start) or 1) - 1)
  end
  if vim.startswith(base, '/') then
    return match_items(slash_items(), base)
  end
  if vim.startswith(base, '@') then
    return match_items(mention_items(), base)
  end
  return {}
end

return M
