-- Defines :Pi, the <Plug> maps and two autocommands. Nothing else is loaded until one of them is used.
if vim.g.loaded_pi then
  return
end
vim.g.loaded_pi = 1

if vim.fn.has('nvim-0.11') == 0 then
  local text = 'pi.nvim needs Neovim 0.11 or newer; nothing was set up'
  vim.api.nvim_create_user_command('Pi', function()
    vim.notify(text, vim.log.levels.ERROR, { title = 'pi' })
  end, { nargs = '*', range = true, bang = true })
  return
end

if vim.fn.exists(':Pi') == 2 then
  vim.g.pi_command_was_taken = true
end

vim.api.nvim_create_user_command('Pi', function(args)
  require('pi.command').run(args)
end, {
  nargs = '*',
  range = true,
  bang = true,
  desc = 'Pi, the coding agent',
  complete = function(lead, line, pos)
    return require('pi.command').complete(lead, line, pos)
  end,
})

--- Names of the `<Plug>` maps and what they do: a `:Pi` command, or a function of a module for operators.
local plugs = {
  toggle = 'toggle',
  open = 'open',
  ['focus-prompt'] = 'focus prompt',
  ask = 'ask',
  add = 'add',
  edit = 'edit',
  abort = 'abort',
  send = 'send',
  ['send-followup'] = 'send followup',
  dequeue = 'queue edit',
  tree = 'tree',
  sessions = 'sessions',
  new = 'new',
  model = 'model',
  thinking = 'thinking',
  attention = 'attention',
  ['review-next'] = 'review next',
  ['review-prev'] = 'review prev',
  ['review-next-file'] = 'review next file',
  ['review-prev-file'] = 'review prev file',
  ['review-accept'] = 'review accept',
  ['review-reject'] = 'review reject',
  ['review-note'] = 'review note',
  ['review-edit'] = 'review edit',
  ['review-accept-file'] = 'review accept file',
  ['review-reject-file'] = 'review reject file',
  ['review-accept-all'] = 'review accept all',
  ['review-reject-all'] = 'review reject all',
  ['review-undo'] = 'review undo',
  ['review-diff'] = 'review diff',
  ['review-list'] = 'review open',
}
for name, command in pairs(plugs) do
  vim.keymap.set('n', '<Plug>(pi-' .. name .. ')', '<Cmd>Pi ' .. command .. '<CR>')
end
for _, name in ipairs({ 'ask', 'add', 'edit', 'review-accept', 'review-reject' }) do
  vim.keymap.set('x', '<Plug>(pi-' .. name .. ')', ':Pi ' .. plugs[name] .. '<CR>')
end
for _, name in ipairs({ 'ask', 'add' }) do
  vim.keymap.set('n', '<Plug>(pi-' .. name .. '-operator)', function()
    return require('pi.operator').start(name)
  end, { expr = true })
end
vim.keymap.set({ 'o', 'x' }, '<Plug>(pi-review-textobject)', function()
  require('pi.review').textobject()
end)

local group = vim.api.nvim_create_augroup('pi', {})
vim.api.nvim_create_autocmd('BufReadCmd', {
  group = group,
  pattern = 'pi://*',
  callback = function(ev)
    require('pi.buffer').read(ev.buf, ev.match)
  end,
})
vim.api.nvim_create_autocmd('VimEnter', {
  group = group,
  callback = function()
    local user = vim.g.pi
    if type(user) == 'table' and (user.autostart or (user.keys or {}).global) then
      require('pi').start()
    end
  end,
})
