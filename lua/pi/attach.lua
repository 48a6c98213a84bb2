--- Pictures that go with a prompt: pasted by their path, or mentioned in the text. Shown as `[image 1: shot.png 84 KB]`.
local notice = require('pi.notice')

local M = {}

---@class pi.attach.Image
---@field path string
---@field size integer
---@field word string? the word of the text that names it; none for a pasted one

---@type table<string, true>
local endings = { png = true, jpg = true, jpeg = true, gif = true, webp = true }

---@type table<string, string[]> paths that were pasted, by session
local pasted = {}

---@param path string
---@param session string
---@return string? path absolute, of a file that is there and named like a picture
---@return integer? size
local function picture(path, session)
  if not endings[(path:match('%.(%w+)$') or ''):lower()] then
    return nil
  end
  local info = require('pi.session').info(session)
  if path:match('^~') then
    path = vim.fs.normalize(path)
  elseif not vim.startswith(path, '/') then
    path = vim.fs.joinpath(info and info.cwd or vim.fn.getcwd(), path)
  end
  local stat = vim.uv.fs_stat(path)
  if stat and stat.type == 'file' then
    return path, stat.size
  end
end

--- What goes with a text: pasted ones first, then those it mentions.
---@param text string
---@param session string
---@return pi.attach.Image[]
function M.list(text, session)
  local images, seen = {}, {} ---@type pi.attach.Image[], table<string, true>
  ---@param given string
  ---@param word string?
  local function add(given, word)
    local path, size = picture(given, session)
    if path and size and not seen[path] then
      seen[path] = true
      images[#images + 1] = { path = path, size = size, word = word }
    end
  end
  for _, path in ipairs(pasted[session] or {}) do
    add(path)
  end
  for word in text:gmatch('%S+') do
    add((word:gsub('^@', ''):gsub('^[\'"]', ''):gsub('[\'",;]$', '')), word)
  end
  return images
end

---@param text string
---@param session string
---@return string[]
function M.paths(text, session)
  return vim.tbl_map(function(image)
    return image.path
  end, M.list(text, session))
end

---@param bytes integer
---@return string
local function size_text(bytes)
  if bytes < 1000 then
    return bytes .. ' B'
  elseif bytes < 1e6 then
    return ('%.0f KB'):format(bytes / 1e3)
  end
  return ('%.1f MB'):format(bytes / 1e6)
end

---@param text string
---@param session string
---@return string[]
function M.lines(text, session)
  local lines = {} ---@type string[]
  for i, image in ipairs(M.list(text, session)) do
    lines[i] = ('[image %d: %s %s]'):format(i, vim.fs.basename(image.path), size_text(image.size))
  end
  return lines
end

--- The pasted ones were sent.
---@param session string
function M.clear(session)
  pasted[session] = nil
end

--- A path as a terminal or a file manager pastes it: quoted, with escaped blanks, or as a `file:` address.
---@param line string
---@return string
local function unquoted(line)
  line = vim.trim(line)
  local inner = line:match("^'(.*)'$") or line:match('^"(.*)"$')
  if inner then
    return inner
  end
  if vim.startswith(line, 'file://') then
    return vim.uri_to_fname(line)
  end
  return (line:gsub('\\(.)', '%1'))
end

--- Attaches what was pasted when it is nothing but paths of pictures.
---@param lines string[]
---@param session string
---@return boolean
function M.paste(lines, session)
  local found = {} ---@type string[]
  for _, line in ipairs(lines) do
    if vim.trim(line) ~= '' then
      local ok, given = pcall(unquoted, line)
      local path = ok and picture(given, session) or nil
      if not path then
        return false
      end
      found[#found + 1] = path
    end
  end
  if #found == 0 then
    return false
  end
  pasted[session] = vim.list_extend(pasted[session] or {}, found)
  return true
end

local watching = false

--- Looks at what is pasted into a prompt from now on; everything else goes the way it went before.
function M.watch_paste()
  if watching then
    return
  end
  watching = true
  local before = vim.paste
  vim.paste = function(lines, phase)
    local here = vim.b.pi
    local session = type(here) == 'table' and here.kind == 'prompt' and here.session
    if session and phase == -1 and M.paste(lines, session) then
      require('pi.prompt').refresh(session)
      return true
    end
    return before(lines, phase)
  end
end

--- `:Pi detach {n}`: takes a picture off the prompt, and its mention out of the text.
---@param args string[]
function M.detach(args)
  local session = require('pi.session').current()
  local prompt = require('pi.prompt')
  local text = session and prompt.text(session)
  if not session or not text then
    notice.say('no prompt is open', 'warn')
    return
  end
  local images = M.list(text, session)
  local number = args[1] and tonumber(args[1]) or (#images == 1 and 1 or nil)
  local image = images[number or 0]
  if not image then
    local there = #images == 0 and 'no picture is attached'
      or ('`:Pi detach {1-%d}`'):format(#images)
    notice.say(there, 'warn')
    return
  end
  pasted[session] = vim.tbl_filter(function(path)
    return path ~= image.path
  end, pasted[session] or {})
  if image.word then
    local word = vim.pesc(image.word)
    prompt.replace(session, (text:gsub('%s?' .. word, '', 1)))
  else
    prompt.refresh(session)
  end
end

--- Numbers for completion.
---@param lead string
---@return string[]
function M.complete(lead)
  local session = require('pi.session').current()
  local text = session and require('pi.prompt').text(session)
  local numbers = {} ---@type string[]
  for i = 1, session and text and #M.list(text, session) or 0 do
    if vim.startswith(tostring(i), lead) then
      numbers[#numbers + 1] = tostring(i)
    end
  end
  return numbers
end

return M
