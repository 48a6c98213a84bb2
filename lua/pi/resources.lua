--- `:Pi skills` and `:Pi templates`: what there is, to pick from.
local M = {}

--- Lets the person pick one; its command is put into the prompt.
---@param source 'skill'|'prompt'
function M.pick(source)
  require('pi.session').request('session.commands', {}, function(err, result)
    if err then
      require('pi.notice').say(err, 'error')
      return
    end
    local items = vim.tbl_filter(function(it)
      return it.source == source
    end, result.commands or {})
    if #items == 0 then
      local what = source == 'skill' and 'skills' or 'templates'
      require('pi.notice').say('there are no ' .. what .. ' here; `:help pi` says where they go')
      return
    end
    vim.ui.select(items, {
      prompt = source == 'skill' and 'Skill' or 'Template',
      kind = 'pi.command',
      format_item = function(it)
        local about = type(it.description) == 'string' and it.description or ''
        return ('%-24s %s'):format(it.name, about)
      end,
    }, function(it)
      if it then
        require('pi.prompt').insert('/' .. it.name .. ' ')
        require('pi.window').focus('prompt', true)
      end
    end)
  end)
end

return M
