--- Sub-commands about the program itself.
local notice = require('pi.notice')
local shared = require('pi.command.shared')

---@type table<string, pi.command.Sub>
return {
  status = {
    run = function()
      local info = require('pi.backend').info()
      local it = require('pi.status').data()
      local lines = {
        info.running
            and ('backend: process %d, version %s'):format(info.pid or 0, info.version or '?')
          or 'backend: not running',
        'binary: ' .. (info.path or 'not found'),
      }
      if it then
        lines[#lines + 1] = ('session: %s, %s, review mode %s'):format(
          it.name or it.session,
          it.state,
          it.mode
        )
        lines[#lines + 1] = 'directory: ' .. it.cwd
        lines[#lines + 1] = 'model: ' .. (it.model or 'none')
      end
      notice.say(table.concat(lines, '\n'))
    end,
  },
  log = {
    run = function()
      require('pi.log').open()
    end,
  },
  restart = {
    run = function()
      require('pi.backend').restart()
    end,
  },
  stop = {
    run = function()
      require('pi.backend').stop()
    end,
  },
  install = {
    run = function(args)
      require('pi.build').install(args[1])
    end,
    complete = function(lead)
      local words = shared.file_words(lead)
      table.insert(words, 1, 'source')
      return words
    end,
  },
  version = {
    run = function()
      local backend = require('pi.backend')
      notice.say(
        ('pi.nvim %s, backend %s'):format(backend.VERSION, backend.info().version or 'not running')
      )
    end,
  },
  help = {
    run = function()
      vim.cmd('help pi')
    end,
  },
}
