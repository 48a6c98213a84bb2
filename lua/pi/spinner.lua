--- One timer for everything that runs: a spinner and the time behind the header of each running block that is shown.
local config = require('pi.config')

local M = {}

local ns = vim.api.nvim_create_namespace('pi.chat.running')
local frames = { '⠋', '⠙', '⠹', '⠸', '⠼', '⠴', '⠦', '⠧', '⠇', '⠏' }
local ascii_frames = { '|', '/', '-', '\\' }

---@type table<integer, pi.chat.View> by buffer
local active = {}
---@type uv.uv_timer_t?
local timer
local step = 0

---@return integer
local function now_ms()
  local seconds, micros = vim.uv.gettimeofday()
  return math.floor(seconds * 1000 + micros / 1000)
end

---@param block pi.chat.Block
---@return string?
local function text(block)
  local now = now_ms()
  if block.until_ms then
    return ('in %ds'):format(math.max(0, math.ceil((block.until_ms - now) / 1000)))
  end
  if not block.running then
    return nil
  end
  local list = config.ascii() and ascii_frames or frames
  local sign = config.get().ui.animate and (list[step % #list + 1] .. ' ') or ''
  local seconds = math.floor((now - block.running) / 1000)
  return sign .. (seconds > 0 and (seconds .. 's') or '')
end

---@param view pi.chat.View
---@return boolean any
local function draw(view)
  vim.api.nvim_buf_clear_namespace(view.buf, ns, 0, -1)
  local any = false
  -- What runs stands near the end.
  for i = #view.blocks, math.max(1, #view.blocks - 50), -1 do
    local block = view.blocks[i]
    local shown = block and text(block)
    if block and shown then
      any = true
      pcall(vim.api.nvim_buf_set_extmark, view.buf, ns, block.first, 0, {
        virt_text = { { shown, 'PiTime' } },
        virt_text_pos = 'eol',
      })
    end
  end
  return any
end

local function stop()
  if timer then
    timer:stop()
    timer:close()
    timer = nil
  end
end

local function tick()
  step = step + 1
  for buf, view in pairs(active) do
    local valid = vim.api.nvim_buf_is_valid(buf)
    if not valid or (#vim.fn.win_findbuf(buf) > 0 and not draw(view)) then
      active[buf] = nil
    end
  end
  if next(active) == nil then
    stop()
  end
end

--- Shows what runs in a view; starts and stops the timer.
---@param view pi.chat.View
function M.update(view)
  if not draw(view) then
    active[view.buf] = nil
    if next(active) == nil then
      stop()
    end
    return
  end
  active[view.buf] = view
  if not timer then
    local every = config.get().ui.animate and 120 or 1000
    timer = vim.uv.new_timer()
    timer:start(every, every, vim.schedule_wrap(tick))
  end
end

return M
