--- `:Pi`: sub-commands, their completion, and the slash commands that mean the same.
local config = require('pi.config')
local notice = require('pi.notice')
local shared = require('pi.command.shared')

local M = {}

---@class pi.command.Context
---@field bang boolean
---@field range [integer, integer]? first and last line
---@field buf integer
---@field rest string the arguments as they were typed

---@class pi.command.Sub
---@field run fun(args: string[], cx: pi.command.Context)
---@field complete (fun(lead: string, before: string[]): string[])?
---@field slash string? what it does, when it also is a slash command

---@type table<string, pi.command.Sub>
M.subs = {}
for _, name in ipairs({ 'windows', 'talk', 'sessions', 'models', 'program' }) do
  for sub, it in pairs(require('pi.command.' .. name)) do
    M.subs[sub] = it
  end
end

---@return string[]
local function names()
  local list = vim.tbl_keys(M.subs)
  table.sort(list)
  return list
end

--- Runs a sub-command given as words.
---@param words string[]
---@param given { bang: boolean?, range: [integer, integer]?, rest: string? }?
function M.execute(words, given)
  given = given or {}
  -- `:Pi edit! ...` is the same as `:Pi! edit ...`.
  local plain = words[1] and words[1]:match('^(%a+)!$')
  local sub = M.subs[plain or words[1] or 'toggle']
  if not sub then
    local near = config.nearest(words[1], names())
    notice.say(
      ('`:Pi %s` is no command; did you mean `:Pi %s`?'):format(words[1], tostring(near)),
      'error'
    )
    return
  end
  local args = vim.list_slice(words, 2)
  sub.run(args, {
    bang = given.bang or plain ~= nil,
    range = given.range,
    buf = vim.api.nvim_get_current_buf(),
    rest = given.rest or table.concat(args, ' '),
  })
end

--- The user command.
---@param opts vim.api.keyset.create_user_command.command_args
function M.run(opts)
  require('pi.highlights').setup()
  local text = vim.trim(opts.args)
  local name, rest = text:match('^(%S+)%s*(.*)$')
  local range = opts.range > 0 and { opts.line1, opts.line2 } or nil
  if name and vim.startswith(name, '/') then
    if not M.slash(name:sub(2), rest or '') then
      M.execute({ 'ask' }, { rest = text })
    end
    return
  end
  local words = vim.split(text, '%s+', { trimempty = true })
  M.execute(words, { bang = opts.bang, range = range, rest = rest or '' })
end

--- Runs a slash command that is one of ours; others belong to the backend.
---@param name string
---@param rest string
---@return boolean handled
function M.slash(name, rest)
  local sub = M.subs[name]
  if not sub or not sub.slash then
    return false
  end
  local words = vim.split(rest, '%s+', { trimempty = true })
  table.insert(words, 1, name)
  M.execute(words, { rest = rest })
  return true
end

--- Names and meanings of our own slash commands.
---@return [string, string][]
function M.slashes()
  local list = {} ---@type [string, string][]
  for _, name in ipairs(names()) do
    if M.subs[name].slash then
      list[#list + 1] = { name, M.subs[name].slash }
    end
  end
  return list
end

--- Completion of `:Pi`, from what is known already.
---@param lead string
---@param line string
---@param pos integer
---@return string[]
function M.complete(lead, line, pos)
  local before = line:sub(1, pos):gsub('^.-Pi!?%s*', '', 1)
  local words = vim.split(before, '%s+', { trimempty = true })
  if lead ~= '' then
    table.remove(words)
  end
  if #words == 0 then
    if vim.startswith(lead, '/') then
      local found = {} ---@type string[]
      for _, it in ipairs(M.slashes()) do
        found[#found + 1] = '/' .. it[1]
      end
      for _, it in ipairs(require('pi.complete').commands()) do
        found[#found + 1] = '/' .. it.name
      end
      return shared.prefix_of(found)(lead)
    end
    return shared.prefix_of(names())(lead)
  end
  local sub = M.subs[words[1]]
  if not sub or not sub.complete then
    return {}
  end
  local ok, found = pcall(sub.complete, lead, vim.list_slice(words, 2))
  return ok and found or {}
end

return M
