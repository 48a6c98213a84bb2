--- Buffers of our own: how they are made, named and filled.
local M = {}

---@class pi.BufferInfo
---@field kind string
---@field session string?

---@type table<string, string> sessions by the short form of their id
local shorts = {}

--- What stands for a session in buffer names: the first 8 characters of its id. Ids begin with the time, so two sessions
--- of one minute begin alike: the later one then goes by its whole id.
---@param session string
---@return string
function M.short(session)
  local short = session:sub(1, 8)
  local owner = shorts[short] or session
  shorts[short] = owner
  return owner == session and short or session
end

--- Makes (or finds) an unlisted buffer that no file stands behind.
---@param name string
---@param kind string
---@param filetype string
---@param session string?
---@return integer buf
function M.scratch(name, kind, filetype, session)
  local buf = vim.fn.bufnr('^' .. vim.fn.escape(name, '\\*?[]{}~,') .. '$')
  if buf < 0 then
    buf = vim.api.nvim_create_buf(false, true)
    vim.api.nvim_buf_set_name(buf, name)
  elseif not vim.api.nvim_buf_is_loaded(buf) then
    vim.fn.bufload(buf)
  end
  local options = vim.bo[buf]
  options.buftype = 'nofile'
  options.bufhidden = 'hide'
  options.buflisted = false
  options.swapfile = false
  options.undofile = false
  vim.b[buf].pi = { kind = kind, session = session }
  if options.filetype ~= filetype then
    options.filetype = filetype
  end
  return buf
end

--- Replaces lines of a buffer that a person cannot edit; leaves no undo history.
---@param buf integer
---@param lines string[]
---@param first integer?
---@param last integer?
function M.set(buf, lines, first, last)
  local options = vim.bo[buf]
  if options.undolevels ~= -1 then
    options.undolevels = -1
  end
  options.modifiable = true
  vim.api.nvim_buf_set_lines(buf, first or 0, last or -1, false, lines)
  options.modifiable = false
  options.modified = false
end

--- What a window option should be while our buffer is in that window only.
---@param win integer
---@param options table<string, any>
function M.win_options(win, options)
  for name, value in pairs(options) do
    vim.api.nvim_set_option_value(name, value, { win = win, scope = 'local' })
  end
end

--- Shows lines of text in a buffer of its own, below the current window.
---@param name string
---@param lines string[]
---@param filetype string
function M.show(name, lines, filetype)
  local buf = M.scratch(name, 'entry', filetype)
  M.set(buf, lines)
  require('pi.window').show_below(buf)
end

--- `BufReadCmd` of `pi://*`: draws the buffer anew.
---@param buf integer
---@param name string
function M.read(buf, name)
  local kind = name:match('^pi://(%w+)')
  vim.bo[buf].buftype = 'nofile'
  vim.bo[buf].swapfile = false
  if kind and require('pi.rpc').connected() then
    local ok, drawn = pcall(function()
      return require('pi.' .. kind).read(buf, name)
    end)
    if ok and drawn then
      return
    end
  end
  M.set(buf, { 'Pi is not running here; `:Pi` starts it.' })
end

return M
