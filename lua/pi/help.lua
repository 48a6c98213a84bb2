--- A list of keys in a small float; the same list is what the maps are made from.
local M = {}

---@param title string
---@param keys { [1]: string, [2]: any, [3]: string }[]
function M.show(title, keys)
  local lines = {} ---@type string[]
  local width = #title + 4
  for _, key in ipairs(keys) do
    local line = (' %-8s %s '):format(key[1], key[3])
    lines[#lines + 1] = line
    width = math.max(width, vim.fn.strdisplaywidth(line))
  end
  local buf = vim.api.nvim_create_buf(false, true)
  vim.api.nvim_buf_set_lines(buf, 0, -1, false, lines)
  vim.bo[buf].modifiable = false
  vim.bo[buf].bufhidden = 'wipe'
  local height = math.min(#lines, vim.o.lines - 4)
  vim.api.nvim_open_win(buf, true, {
    relative = 'editor',
    row = math.max(0, math.floor((vim.o.lines - height) / 2) - 1),
    col = math.max(0, math.floor((vim.o.columns - width) / 2)),
    width = math.min(width, vim.o.columns - 4),
    height = height,
    style = 'minimal',
    border = 'single',
    title = ' ' .. title .. ' ',
  })
  for _, key in ipairs({ 'q', '<Esc>', '?' }) do
    vim.keymap.set('n', key, '<Cmd>close<CR>', { buffer = buf, nowait = true })
  end
end

return M
