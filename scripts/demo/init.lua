-- A plain Neovim for the demo: nothing but the plugin, and a line that says what to do.
vim.o.termguicolors = true
vim.o.number = true
vim.o.signcolumn = 'yes'
vim.g.mapleader = ' '
vim.g.maplocalleader = ','
vim.o.swapfile = false
vim.cmd.runtime('plugin/pi.lua')
-- PI_DEMO_OUT: a driver gives the prompt itself.
if (vim.env.PI_DEMO_OUT or '') == '' then
  vim.api.nvim_create_autocmd('VimEnter', {
    once = true,
    callback = function()
      vim.schedule(function()
        vim.cmd('Pi ask The tests of this shop fail. Find out why and put it right.')
      end)
    end,
  })
end
