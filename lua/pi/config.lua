--- Options: defaults, what a person set in `vim.g.pi` or `setup()`, and the check of both.
local M = {}

---@class pi.Config
---@field bin string? path of the backend
---@field autostart boolean start the backend with Neovim
---@field window pi.config.Window
---@field prompt { enter: 'newline'|'send', history: integer }
---@field chat { show_thinking: boolean, tool_output_lines: integer, max_entries: integer, timestamps: boolean }
---@field review table<string, any> see `:help pi-config-review`
---@field tools { approve: table<string, string> }
---@field sessions { scope: 'cwd'|'all' }
---@field tree { filter: string?, preview: boolean }
---@field keys false|{ prefix: string, global: boolean }
---@field ui { ascii: 'auto'|boolean, animate: boolean, announce: boolean, notify: boolean }

---@class pi.config.Window
---@field position 'right'|'left'|'bottom'|'top'|'float'|'tab'|'here'
---@field size number part of the width or height
---@field min integer columns
---@field max integer columns
---@field prompt_height integer lines
---@field skip_filetypes string[] windows never used to show a file

---@type pi.Config
local defaults = {
  bin = nil,
  autostart = false,
  window = {
    position = 'right',
    size = 0.4,
    min = 60,
    max = 100,
    prompt_height = 5,
    skip_filetypes = {
      'NvimTree',
      'neo-tree',
      'oil',
      'fern',
      'dashboard',
      'alpha',
      'snacks_dashboard',
      'aerial',
      'Outline',
      'trouble',
      'qf',
    },
  },
  prompt = { enter = 'newline', history = 200 },
  chat = { show_thinking = false, tool_output_lines = 5, max_entries = 200, timestamps = true },
  review = {
    mode = 'ask',
    view = 'inline',
    open = 'idle',
    hint = 'current',
    advance = true,
    join = 1,
    rules = {},
    unsaved = 'buffer',
    on_save = true,
    on_reject = 'continue',
    reject_prompt = false,
    list_open = 'multi',
    max_bytes = 2e6,
    max_lines = 20000,
    plain = false,
  },
  tools = { approve = { bash = 'ask' } },
  sessions = { scope = 'cwd' },
  tree = { filter = nil, preview = true },
  keys = { prefix = '<localleader>', global = false },
  ui = { ascii = 'auto', animate = true, announce = false, notify = true },
}

--- Keys whose default is `nil`, and tables whose keys are a person's own.
local optional = { ['bin'] = true, ['tree.filter'] = true }
local free = { ['review.rules'] = true, ['tools.approve'] = true, ['window.skip_filetypes'] = true }

---@type pi.Config?
local current
---@type table?
local from_setup

--- Length of the shortest way from one word to the other, by single letters.
---@param a string
---@param b string
---@return integer
local function distance(a, b)
  local row = {} ---@type integer[]
  for j = 0, #b do
    row[j] = j
  end
  for i = 1, #a do
    local diagonal = row[0] or 0
    row[0] = i
    for j = 1, #b do
      local above = row[j] or 0
      local cost = a:byte(i) == b:byte(j) and 0 or 1
      row[j] = math.min(above + 1, (row[j - 1] or 0) + 1, diagonal + cost)
      diagonal = above
    end
  end
  return row[#b] or 0
end

--- The known word that is most like the given one.
---@param word string
---@param known string[]
---@return string?
function M.nearest(word, known)
  local best, least = nil, math.huge
  for _, candidate in ipairs(known) do
    local far = distance(word:lower(), candidate:lower())
    if far < least then
      best, least = candidate, far
    end
  end
  return best
end

---@param given table
---@param known table
---@param path string
---@param problems string[]
local function check(given, known, path, problems)
  for key, value in pairs(given) do
    local full = path == '' and tostring(key) or (path .. '.' .. tostring(key))
    local default = known[key]
    if default == nil and not optional[full] then
      local near = M.nearest(tostring(key), vim.tbl_keys(known))
      problems[#problems + 1] = ('unknown option %s; did you mean %s?'):format(full, tostring(near))
    elseif type(default) == 'table' and not free[full] and not vim.islist(default) then
      if type(value) == 'table' then
        check(value, default --[[@as table]], full, problems)
      elseif not (full == 'keys' and value == false) then
        problems[#problems + 1] = ('option %s has to be a table'):format(full)
      end
    elseif default ~= nil and full ~= 'ui.ascii' and type(value) ~= type(default) then
      problems[#problems + 1] = ('option %s has to be a %s, not a %s'):format(
        full,
        type(default),
        type(value)
      )
    end
  end
end

--- Drops what is not usable, so that a typing error costs one option and not all.
---@param given table
---@param known table
---@param path string
---@return table
local function usable(given, known, path)
  local out = {}
  for key, value in pairs(given) do
    local full = path == '' and tostring(key) or (path .. '.' .. tostring(key))
    local default = known[key]
    if type(default) == 'table' and type(value) == 'table' and not free[full] then
      out[key] = vim.islist(default) and value or usable(value, default, full)
    elseif
      optional[full]
      or full == 'ui.ascii'
      or (full == 'keys' and value == false)
      or type(value) == type(default)
    then
      out[key] = value
    end
  end
  return out
end

---@param given any
---@return table
local function resolve(given)
  if type(given) == 'function' then
    local ok, value = pcall(given)
    given = ok and value or {}
  end
  return type(given) == 'table' and given or {}
end

--- Merges options given to `setup()`; they win over `vim.g.pi`.
---@param options table?
function M.setup(options)
  from_setup = options or {}
  current = nil
  M.get()
end

---@return pi.Config
function M.get()
  if current then
    return current
  end
  local given = vim.tbl_deep_extend('force', {}, resolve(vim.g.pi), from_setup or {}) --[[@as table]]
  local problems = {} ---@type string[]
  check(given, defaults, '', problems)
  current = vim.tbl_deep_extend('force', vim.deepcopy(defaults), usable(given, defaults, ''))
  if #problems > 0 then
    vim.schedule(function()
      vim.notify(table.concat(problems, '\n'), vim.log.levels.WARN, { title = 'pi' })
    end)
  end
  return current
end

--- Whether only ASCII may be drawn.
---@return boolean
function M.ascii()
  if vim.g.pi_ascii == 1 or vim.g.pi_ascii == true then
    return true
  end
  local wish = M.get().ui.ascii
  if wish ~= 'auto' then
    return wish == true
  end
  return vim.o.encoding ~= 'utf-8' or vim.env.TERM == 'linux'
end

return M
