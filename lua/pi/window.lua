--- Windows: where the chat and the prompt are shown. Only windows made here are changed or closed here.
local config = require('pi.config')

local M = {}

---@class pi.window.Layout
---@field chat integer? window
---@field prompt integer? window
---@field back integer? where the person was before
---@field here boolean the chat took a window of the person's own
---@field before integer[]? windows of the tab page before ours were opened
---@field rest string? what brings their sizes back

---@type table<integer, pi.window.Layout>
local layouts = {}

---@param win integer?
---@return boolean
local function valid(win)
  return win ~= nil and vim.api.nvim_win_is_valid(win)
end

---@param tab integer?
---@return pi.window.Layout
local function layout(tab)
  tab = tab or vim.api.nvim_get_current_tabpage()
  local it = layouts[tab] or { here = false }
  layouts[tab] = it
  if not valid(it.chat) then
    it.chat = nil
  end
  if not valid(it.prompt) then
    it.prompt = nil
  end
  return it
end

--- A window narrower than this is of no use for reading.
local NARROW = 30

--- Whether a window of the person became too narrow to read.
---@param before pi.review.WinSizes
---@return boolean
local function squeezed(before)
  for win, size in pairs(before) do
    if
      vim.api.nvim_win_is_valid(win)
      and size.width >= NARROW
      and vim.api.nvim_win_get_width(win) < NARROW
    then
      return true
    end
  end
  return false
end

--- Runs a function without Neovim evening out the sizes of other windows, unless one would be left without room.
---@generic T
---@param fn fun(): T
---@return T
function M.keeping_sizes(fn)
  local before = require('pi.review.win').sizes()
  local equal = vim.o.equalalways
  vim.o.equalalways = false
  local ok, result = pcall(fn)
  -- Setting the option evens out at once.
  local sizes = not squeezed(before) and vim.fn.winrestcmd() or ''
  vim.o.equalalways = equal
  if equal and sizes ~= '' then
    vim.cmd('silent! ' .. sizes)
  end
  if not ok then
    error(result, 0)
  end
  return result
end

--- Shows a buffer in a window, whatever it held before (`nvim_win_set_buf` fails there under 'nohidden').
---@param win integer
---@param buf integer
function M.set_buffer(win, buf)
  if vim.api.nvim_win_get_buf(win) == buf then
    return
  end
  local fixed = vim.wo[win].winfixbuf
  vim.wo[win].winfixbuf = false
  vim.api.nvim_win_call(win, function()
    vim.cmd('hide buffer ' .. buf)
  end)
  vim.wo[win].winfixbuf = fixed
end

---@return 'right'|'left'|'bottom'|'top'|'float'|'tab'|'here'
local function position(wish)
  local want = wish or config.get().window.position
  if (want == 'right' or want == 'left') and vim.o.columns < 140 then
    -- Side by side would leave too little room for code.
    return 'bottom'
  end
  return want
end

---@param where string
---@return integer
local function size(where)
  local options = config.get().window
  if where == 'right' or where == 'left' then
    local columns = math.floor(vim.o.columns * options.size)
    local half = math.floor(vim.o.columns / 2)
    return math.min(math.max(columns, math.min(options.min, half)), options.max)
  end
  return math.max(8, math.floor(vim.o.lines * options.size))
end

--- Rows of the prompt: one on a low screen until it is used.
---@return integer
function M.prompt_height()
  if vim.o.lines < 30 then
    return 1
  end
  if vim.o.lines < 45 and position() == 'bottom' then
    return 3
  end
  return config.get().window.prompt_height
end

local common = {
  number = false,
  relativenumber = false,
  spell = false,
  list = false,
  cursorline = false,
  colorcolumn = '',
  foldcolumn = '0',
  statuscolumn = '',
}

---@param win integer
---@param fixed boolean
local function dress_chat(win, fixed)
  require('pi.buffer').win_options(
    win,
    vim.tbl_extend('force', common, {
      wrap = true,
      linebreak = true,
      breakindent = true,
      signcolumn = 'yes:1',
      foldmethod = 'manual',
      foldenable = true,
      foldtext = '',
      foldminlines = 0,
      conceallevel = 2,
      concealcursor = 'nvic',
      scrolloff = 0,
      winfixbuf = fixed,
      winfixwidth = fixed,
      winbar = "%{%v:lua.require'pi.status'.winbar()%}",
      statusline = ' chat%= ? keys %P ',
      winhighlight = 'Folded:PiFolded',
      fillchars = 'fold: ,eob: ',
    })
  )
end

---@param win integer
local function dress_prompt(win)
  require('pi.buffer').win_options(
    win,
    vim.tbl_extend('force', common, {
      wrap = true,
      linebreak = true,
      signcolumn = 'yes:1',
      winfixbuf = true,
      winfixheight = true,
      winfixwidth = true,
      winbar = '',
      statusline = ' prompt%=<C-s> send  <C-c> stop %<',
      fillchars = 'eob: ',
      scrolloff = 0,
    })
  )
end

---@param where string
---@param buf integer
---@return integer win
local function open_chat(where, buf)
  if where == 'here' then
    local win = vim.api.nvim_get_current_win()
    M.set_buffer(win, buf)
    return win
  end
  if where == 'tab' then
    vim.cmd('tab split')
    local win = vim.api.nvim_get_current_win()
    M.set_buffer(win, buf)
    return win
  end
  if where == 'float' then
    local width = math.min(vim.o.columns - 4, 100)
    local height = math.max(6, vim.o.lines - 8 - M.prompt_height())
    return vim.api.nvim_open_win(buf, false, {
      relative = 'editor',
      width = width,
      height = height,
      row = 1,
      col = math.floor((vim.o.columns - width) / 2),
      border = 'single',
    })
  end
  local split = ({ right = 'right', left = 'left', bottom = 'below', top = 'above' })[where]
  local sized = (where == 'right' or where == 'left') and { width = size(where) }
    or { height = size(where) }
  return vim.api.nvim_open_win(
    buf,
    false,
    vim.tbl_extend('force', { split = split, win = -1 }, sized)
  )
end

---@param chat integer
---@param buf integer
---@return integer win
local function open_prompt(chat, buf)
  local around = vim.api.nvim_win_get_config(chat)
  if around.relative ~= '' then
    return vim.api.nvim_open_win(buf, false, {
      relative = 'editor',
      width = around.width,
      height = M.prompt_height(),
      row = (around.row or 0) + (around.height or 0) + 2,
      col = around.col,
      border = 'single',
    })
  end
  return vim.api.nvim_open_win(buf, false, {
    split = 'below',
    win = chat,
    height = M.prompt_height(),
  })
end

--- Shows chat and prompt of this tab page's session.
---@param wish string? position
function M.open(wish)
  local id = vim.t.pi_session
  if not id then
    return
  end
  local it = layout()
  if it.chat and it.prompt then
    return
  end
  local here = vim.api.nvim_get_current_win()
  if here ~= it.chat and here ~= it.prompt then
    it.back = here
  end
  if not it.chat and not it.prompt then
    it.before = vim.api.nvim_tabpage_list_wins(0)
    it.rest = vim.fn.winrestcmd()
  end
  local chat_buf = require('pi.chat').buffer(id)
  local prompt_buf = require('pi.prompt').buffer(id)
  M.keeping_sizes(function()
    local where = position(wish)
    if not it.chat then
      it.here = where == 'here' or where == 'tab'
      it.chat = open_chat(where, chat_buf)
      if where == 'tab' then
        -- The layout belongs to the new tab page.
        layouts[vim.api.nvim_get_current_tabpage()] = it
        vim.t.pi_session = id
      end
      dress_chat(it.chat, where ~= 'here')
    end
    it.prompt = open_prompt(it.chat, prompt_buf)
    dress_prompt(it.prompt)
  end)
  require('pi.chat').shown(id, it.chat or 0)
  require('pi.prompt').shown(id)
end

--- Hides both; what runs goes on.
function M.close()
  local it = layout()
  M.keeping_sizes(function()
    for _, win in ipairs({ it.prompt or 0, it.here and 0 or it.chat or 0 }) do
      if win ~= 0 then
        -- The last window of a tab page cannot be closed.
        pcall(vim.api.nvim_win_close, win, false)
      end
    end
    if it.here and it.chat then
      vim.wo[it.chat].winfixbuf = false
      vim.api.nvim_win_call(it.chat, function()
        vim.cmd('silent! buffer #')
      end)
      it.chat = nil
    end
  end)
  -- With other windows than before their sizes are the person's own.
  if it.rest and vim.deep_equal(it.before, vim.api.nvim_tabpage_list_wins(0)) then
    vim.cmd('silent! ' .. it.rest)
  end
end

---@return boolean
function M.is_open()
  local it = layout()
  return it.chat ~= nil or it.prompt ~= nil
end

--- Moves into the chat or the prompt.
---@param panel 'chat'|'prompt'
---@param insert boolean?
function M.focus(panel, insert)
  local here = vim.api.nvim_get_current_win()
  M.open()
  local it = layout()
  local win = panel == 'chat' and it.chat or it.prompt
  if not win then
    return
  end
  if here ~= it.chat and here ~= it.prompt then
    it.back = here
  end
  vim.api.nvim_set_current_win(win)
  if insert and panel == 'prompt' then
    vim.cmd('startinsert!')
  end
end

--- Goes back to where the person was.
function M.leave()
  local it = layout()
  local target = valid(it.back) and it.back or M.target()
  if target then
    vim.api.nvim_set_current_win(target)
  end
end

--- Shows another session in the windows of a tab page.
---@param before string?
---@param id string
---@param tab integer?
function M.switch(before, id, tab)
  if before == id then
    return
  end
  local it = layout(tab)
  if it.chat then
    M.set_buffer(it.chat, require('pi.chat').buffer(id))
    require('pi.chat').shown(id, it.chat)
  end
  if it.prompt then
    M.set_buffer(it.prompt, require('pi.prompt').buffer(id))
    require('pi.prompt').shown(id)
  end
end

--- Chat and prompt windows of the current tab page.
---@return integer? chat
---@return integer? prompt
function M.windows()
  local it = layout()
  return it.chat, it.prompt
end

--- Whether a window may be used to show a file.
---@param win integer
---@return boolean
function M.is_normal(win)
  local buf = vim.api.nvim_win_get_buf(win)
  return vim.api.nvim_win_get_config(win).relative == ''
    and not vim.wo[win].winfixbuf
    and not vim.wo[win].previewwindow
    and not vim.wo[win].diff
    and vim.bo[buf].buftype == ''
    and not vim.tbl_contains(config.get().window.skip_filetypes, vim.bo[buf].filetype)
end

--- The window to show a file in: one that shows it, else the last one the person used, else any, else none.
---@param buf integer?
---@return integer? win
function M.target(buf)
  local windows = vim.api.nvim_tabpage_list_wins(0)
  for _, win in ipairs(windows) do
    if buf and vim.api.nvim_win_get_buf(win) == buf and M.is_normal(win) then
      return win
    end
  end
  local last = vim.fn.win_getid(vim.fn.winnr('#'))
  for _, win in ipairs({ vim.api.nvim_get_current_win(), last, layout().back or 0 }) do
    if win ~= 0 and vim.api.nvim_win_is_valid(win) and M.is_normal(win) then
      return win
    end
  end
  for _, win in ipairs(windows) do
    if M.is_normal(win) then
      return win
    end
  end
  return nil
end

--- Opens a file in a window that is not ours and goes there.
---@param path string
---@param line integer?
function M.edit(path, line)
  local buf = vim.fn.bufadd(path)
  local ok = pcall(vim.fn.bufload, buf)
  if not ok then
    require('pi.notice').say('cannot open ' .. path, 'error')
    return
  end
  vim.bo[buf].buflisted = true
  local win = M.target(buf)
  if not win then
    local chat = layout().chat
    win = M.keeping_sizes(function()
      return vim.api.nvim_open_win(buf, false, { split = 'left', win = chat or 0 })
    end)
  end
  M.set_buffer(win, buf)
  vim.api.nvim_set_current_win(win)
  if line then
    local last = vim.api.nvim_buf_line_count(buf)
    vim.api.nvim_win_set_cursor(win, { math.min(math.max(line, 1), last), 0 })
    vim.cmd('silent! normal! zvzz')
  end
end

--- Shows a buffer in a split of its own, below what the person looks at.
---@param buf integer
---@return integer win
function M.show_below(buf)
  for _, win in ipairs(vim.api.nvim_tabpage_list_wins(0)) do
    if vim.api.nvim_win_get_buf(win) == buf then
      vim.api.nvim_set_current_win(win)
      return win
    end
  end
  local win = M.keeping_sizes(function()
    return vim.api.nvim_open_win(buf, true, {
      split = 'below',
      win = -1,
      height = math.max(6, math.floor(vim.o.lines * 0.35)),
    })
  end)
  vim.keymap.set('n', 'q', '<Cmd>close<CR>', { buffer = buf, desc = 'Close' })
  require('pi.buffer').win_options(win, { winfixbuf = true, number = false, wrap = true })
  return win
end

return M
