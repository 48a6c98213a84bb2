--- Global maps, installed only with `keys.global = true` and never over a map that is there.
local M = {}

local maps = {
  { 'n', 'P', '<Plug>(pi-toggle)', 'toggle' },
  { { 'n', 'x' }, 'k', '<Plug>(pi-ask)', 'ask' },
  { { 'n', 'x' }, 'm', '<Plug>(pi-add)', 'add to the prompt' },
  { 'n', 't', '<Plug>(pi-tree)', 'session tree' },
  { 'n', 's', '<Plug>(pi-sessions)', 'sessions' },
  { 'n', 'q', '<Plug>(pi-attention)', 'answer what waits' },
}

function M.install()
  for _, map in ipairs(maps) do
    local lhs = '<leader>a' .. map[2]
    local modes = type(map[1]) == 'table' and map[1] or { map[1] } ---@type string[]
    for _, mode in ipairs(modes) do
      if vim.fn.maparg(lhs, mode) == '' then
        vim.keymap.set(mode, lhs, map[3], { desc = 'Pi: ' .. map[4], remap = true })
      end
    end
  end
end

return M
