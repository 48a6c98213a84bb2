--- Keys of the chat buffer.
local M = {}

---@return pi.chat.View?
local function view()
  return require('pi.chat').view(0)
end

---@return pi.chat.View?
---@return pi.chat.Block?
---@return integer? place
local function here()
  local it = view()
  if not it then
    return
  end
  local row = vim.api.nvim_win_get_cursor(0)[1] - 1
  local block, place = require('pi.chat').block_at(it, row)
  return it, block, place
end

--- Signs show whether a block is folded.
local function refresh_signs()
  local it = view()
  if not it then
    return
  end
  local win = vim.api.nvim_get_current_win()
  for _, block in ipairs(it.blocks) do
    if block.kind == 'tool' then
      require('pi.chat').draw_sign(it, block, win)
    end
  end
end

--- Makes the folds a person asks for; streaming texts have none until then.
---@param block pi.chat.Block
local function ensure_fold(block)
  local row = block.first + 1
  if block.count > 1 and vim.fn.foldlevel(row) == 0 then
    vim.cmd(('silent! %d,%dfold'):format(row, row + block.count - 1))
    vim.cmd(('silent! %dfoldopen'):format(row))
  end
end

---@param key string
local function folding(key)
  local _, block = here()
  if block then
    ensure_fold(block)
  end
  vim.cmd('silent! normal! ' .. key)
  refresh_signs()
end

---@param key 'zM'|'zR'
local function fold_all(key)
  local it = view()
  for _, block in ipairs(it and it.blocks or {}) do
    ensure_fold(block)
  end
  vim.cmd('silent! %fold' .. (key == 'zM' and 'close' or 'open'))
  refresh_signs()
end

--- Goes to the next (or previous) block of a kind.
---@param kind string
---@param step 1|-1
local function go(kind, step)
  local it, _, place = here()
  if not it then
    return
  end
  local row = vim.api.nvim_win_get_cursor(0)[1] - 1
  local i = place or #it.blocks
  local left = vim.v.count1
  while it.blocks[i] do
    local block = it.blocks[i] ---@type pi.chat.Block
    local beyond = step > 0 and block.first > row or step < 0 and block.first < row
    if block.kind == kind and beyond then
      left = left - 1
      if left == 0 then
        vim.cmd("normal! m'")
        vim.api.nvim_win_set_cursor(0, { block.first + 1, 0 })
        return
      end
    end
    i = i + step
  end
end

--- Asks for the entries above the first one shown.
local function earlier()
  local it = view()
  if it and it.earlier > 0 then
    require('pi.session').request('chat.earlier', { session = it.session })
  end
end

--- Shows all that is known of the block under the cursor.
local function details()
  local it, block = here()
  if not it or not block then
    return
  end
  local params = { session = it.session, block = block.id }
  require('pi.session').request('chat.details', params, function(err, result)
    if err then
      require('pi.notice').say(err, 'warn')
      return
    end
    local lines = {} ---@type string[]
    if result.arguments then
      vim.list_extend(lines, vim.split(result.arguments, '\n'))
      lines[#lines + 1] = ''
    end
    vim.list_extend(lines, result.text)
    local id = (block.entry or block.id):gsub('[^%w]', '-')
    require('pi.buffer').show('pi://entry/' .. id, lines, 'markdown')
  end)
end

--- Opens the file under the cursor, or the one a tool call is about.
local function open_file()
  local it, block = here()
  local info = it and require('pi.session').info(it.session)
  local row = vim.api.nvim_win_get_cursor(0)[1] - 1
  local path, line ---@type string?, integer?
  if block and block.target and (row == block.first or block.kind == 'tool') then
    path, line = block.target[1], block.target[2]
  else
    path = vim.fn.expand('<cfile>') --[[@as string]]
    local number = vim.api.nvim_get_current_line():match(vim.pesc(path) .. ':(%d+)')
    line = number and math.floor(tonumber(number) or 1)
  end
  if not path or path == '' then
    return
  end
  if info and not vim.startswith(path, '/') then
    path = vim.fs.joinpath(info.cwd, (path:gsub('^@', '')))
  end
  if vim.uv.fs_stat(path) then
    require('pi.window').edit(path, line)
  end
end

--- `<CR>`: on a header it folds, on a line about something left out it shows that, elsewhere it opens the file.
local function enter()
  local it, block = here()
  local row = vim.api.nvim_win_get_cursor(0)[1] - 1
  local line = vim.api.nvim_get_current_line()
  if it and row < it.top then
    earlier()
  elseif line:match('^… %d+ lines') then
    details()
  elseif block and row == block.first and block.count > 1 then
    folding('za')
  else
    open_file()
  end
end

--- Copies the code block around the cursor.
local function yank_code()
  local row = vim.api.nvim_win_get_cursor(0)[1]
  local lines = vim.api.nvim_buf_get_lines(0, 0, -1, false)
  local first, stop = row, row + 1
  while first > 0 and not lines[first]:match('^%s*```') do
    first = first - 1
  end
  while stop <= #lines and not lines[stop]:match('^%s*```%s*$') do
    stop = stop + 1
  end
  if first > 0 and stop <= #lines and stop > first + 1 then
    vim.fn.setreg(vim.v.register, vim.list_slice(lines, first + 1, stop - 1), 'V')
    require('pi.notice').say(('%d lines copied'):format(stop - first - 1))
  end
end

--- Goes on from the block under the cursor: the conversation continues there, the old branch stays in the tree.
---@param send boolean whether a message of the person is sent again at once
local function branch_here(send)
  local it, block = here()
  if not it or not block or not block.entry then
    require('pi.notice').say('this block is not stored; use `:Pi tree`', 'warn')
    return
  end
  if send and block.kind ~= 'user' then
    require('pi.notice').say('put the cursor on a message of yours', 'warn')
    return
  end
  local session = it.session
  require('pi.rpc').request(
    'tree.jump',
    { session = session, entry = block.entry },
    function(err, result)
      if err then
        require('pi.notice').say(err, 'error')
      elseif type(result.prefill) == 'string' then
        require('pi.prompt').prefill(session, result.prefill)
        if send then
          require('pi.prompt').send_from(session)
        end
      end
    end
  )
end

---@param insert boolean
local function to_prompt(insert)
  require('pi.window').focus('prompt', insert)
end

--- All keys, for the maps and for `?`.
---@type { [1]: string, [2]: function, [3]: string }[]
M.keys = {
  { '<CR>', enter, 'fold or open what the line is about' },
  { 'gf', open_file, 'open the file' },
  { 'K', details, 'show everything about this block' },
  {
    ']]',
    function()
      go('user', 1)
    end,
    'next message of yours',
  },
  {
    '[[',
    function()
      go('user', -1)
    end,
    'previous message of yours',
  },
  {
    ']t',
    function()
      go('tool', 1)
    end,
    'next tool call',
  },
  {
    '[t',
    function()
      go('tool', -1)
    end,
    'previous tool call',
  },
  {
    'za',
    function()
      folding('za')
    end,
    'fold or unfold',
  },
  {
    'zo',
    function()
      folding('zo')
    end,
    'unfold',
  },
  {
    'zc',
    function()
      folding('zc')
    end,
    'fold',
  },
  {
    'zM',
    function()
      fold_all('zM')
    end,
    'fold everything',
  },
  {
    'zR',
    function()
      fold_all('zR')
    end,
    'unfold everything',
  },
  {
    'gg',
    function()
      if vim.v.count == 0 then
        earlier()
      end
      vim.cmd('normal! ' .. (vim.v.count > 0 and vim.v.count or '') .. 'gg')
    end,
    'first line; loads earlier entries',
  },
  { 'gy', yank_code, 'copy the code block' },
  {
    'gb',
    function()
      branch_here(false)
    end,
    'go on from here',
  },
  {
    'gR',
    function()
      branch_here(true)
    end,
    'send this message again',
  },
  {
    'i',
    function()
      to_prompt(true)
    end,
    'to the prompt',
  },
  {
    'a',
    function()
      to_prompt(true)
    end,
    'to the prompt',
  },
  {
    'o',
    function()
      to_prompt(true)
    end,
    'to the prompt',
  },
  {
    '<C-c>',
    function()
      require('pi.command').execute({ 'abort' })
    end,
    'stop the run',
  },
  {
    'R',
    function()
      require('pi.session').request('chat.redraw')
    end,
    'draw again',
  },
  {
    '?',
    function()
      require('pi.help').show('Chat', M.keys)
    end,
    'these keys',
  },
  {
    'q',
    function()
      require('pi.window').close()
    end,
    'hide',
  },
}

---@param buf integer
function M.attach(buf)
  for _, key in ipairs(M.keys) do
    vim.keymap.set('n', key[1], key[2], { buffer = buf, nowait = true, desc = 'Pi: ' .. key[3] })
  end
end

return M
