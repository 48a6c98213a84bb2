--- `:Pi tools`: which tools the model may use.
local notice = require('pi.notice')

local M = {}

---@param args string[] `+name` and `-name`; without any the list is shown
function M.command(args)
  local session = require('pi.session')
  session.request('session.all_tools', {}, function(err, result)
    if err then
      notice.say(err, 'error')
      return
    end
    local active, lines = {}, {} ---@type table<string, boolean>, string[]
    for _, tool in ipairs(result.tools) do
      active[tool.name] = tool.active == true
    end
    for _, arg in ipairs(args) do
      local sign, name = arg:match('^([+-])(.+)$')
      if not sign or active[name] == nil then
        notice.say(('`%s` is no tool; write +name or -name'):format(arg), 'error')
        return
      end
      active[name] = sign == '+'
    end
    if #args == 0 then
      for _, tool in ipairs(result.tools) do
        lines[#lines + 1] = (tool.active and '+ ' or '- ') .. tool.name
      end
      notice.say(table.concat(lines, '\n'))
      return
    end
    local names = {} ---@type string[]
    for _, tool in ipairs(result.tools) do
      if active[tool.name] then
        names[#names + 1] = tool.name
      end
    end
    session.request('session.tools', { names = names }, function(failed)
      notice.say(failed or ('tools: ' .. table.concat(names, ', ')), failed and 'error' or 'info')
    end)
  end)
end

return M
