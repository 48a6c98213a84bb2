--- Sub-commands that show, hide and focus windows.
local shared = require('pi.command.shared')

local positions = { 'right', 'left', 'bottom', 'top', 'float', 'tab', 'here' }
local panels = { 'chat', 'prompt', 'review', 'tree' }

---@type table<string, pi.command.Sub>
return {
  toggle = {
    run = function(args)
      local window = require('pi.window')
      if window.is_open() and not args[1] then
        window.close()
      else
        shared.open_and_focus(args[1], 'prompt', false)
      end
    end,
    complete = shared.prefix_of(positions),
  },
  open = {
    run = function(args)
      shared.open(args[1])
    end,
    complete = shared.prefix_of(positions),
  },
  close = {
    run = function()
      require('pi.window').close()
    end,
  },
  focus = {
    run = function(args)
      local panel = args[1] or 'prompt'
      if panel == 'review' or panel == 'tree' then
        require('pi.command').execute({ panel })
        return
      end
      shared.open_and_focus(nil, panel == 'chat' and 'chat' or 'prompt', panel ~= 'chat')
    end,
    complete = shared.prefix_of(panels),
  },
  review = {
    run = function(args, cx)
      require('pi.review').command(args, cx)
    end,
    complete = function(lead, before)
      return require('pi.review').complete(lead, before)
    end,
  },
  attention = {
    run = function(args)
      require('pi.attention').command(args)
    end,
    complete = shared.prefix_of({ 'print' }),
  },
  tree = {
    run = function(args)
      shared.open(nil, function()
        require('pi.tree').open(args[1])
      end)
    end,
    complete = function(lead)
      return shared.prefix_of(require('pi.tree').FILTERS)(lead)
    end,
    slash = 'the session tree',
  },
}
