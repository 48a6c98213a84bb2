--- Sub-commands that say something to the agent: prompts, the queue, edits of a range, shell commands.
local notice = require('pi.notice')
local shared = require('pi.command.shared')

---@param how 'send'|'followup'
---@return fun(args: string[], cx: pi.command.Context)
local function sender(how)
  return function(_, cx)
    local at = shared.mention(cx)
    local text = vim.trim(cx.rest)
    if text == '' then
      shared.open_and_focus(nil, 'prompt', true, function()
        if at then
          require('pi.prompt').insert(at .. ' ')
        end
      end)
      return
    end
    if at then
      text = text .. '\n\n' .. at
    end
    shared.open(nil, function()
      require('pi.session').request('prompt.send', {
        text = text,
        how = how,
        context = require('pi.context').gather(text),
        images = require('pi.attach').paths(text, vim.t.pi_session or ''),
      }, function(err, result)
        shared.complain(err)
        if err then
          require('pi.login').wanted(vim.t.pi_session or '', err)
        end
        -- What could not be sent is not lost, and when a review waits the person decides in the prompt what becomes of it.
        local talk_back = type(result) == 'table' and result.talk_back
        if err or talk_back then
          require('pi.prompt').insert(text)
        end
        if talk_back then
          require('pi.window').focus('prompt', false)
          notice.say(talk_back)
        end
      end)
    end, function()
      require('pi.prompt').keep(text)
    end)
  end
end

---@type table<string, pi.command.Sub>
return {
  ask = { run = sender('send') },
  steer = { run = sender('send') },
  followup = { run = sender('followup') },
  send = {
    run = function(args)
      require('pi.prompt').send(args[1] == 'followup' and 'followup' or 'send')
    end,
    complete = shared.prefix_of({ 'followup' }),
  },
  add = {
    run = function(args, cx)
      local words = {} ---@type string[]
      local at = shared.mention(cx)
      if at then
        words[1] = at
      end
      for _, path in ipairs(args) do
        words[#words + 1] = '@' .. vim.fn.fnamemodify(path, ':.')
      end
      if #words == 0 then
        local name = vim.api.nvim_buf_get_name(cx.buf)
        words[1] = name ~= '' and '@' .. vim.fn.fnamemodify(name, ':.') or nil
      end
      shared.open(nil, function()
        require('pi.prompt').insert(table.concat(words, ' ') .. ' ')
      end)
    end,
    complete = shared.file_words,
  },
  detach = {
    run = function(args)
      require('pi.attach').detach(args)
    end,
    complete = function(lead)
      return require('pi.attach').complete(lead)
    end,
  },
  queue = {
    run = function(args)
      if args[1] == 'edit' then
        if not require('pi.prompt').dequeue() then
          notice.say('nothing is queued')
        end
      elseif args[1] == 'clear' then
        shared.ask('run.queue_clear')
      else
        local lines = {} ---@type string[]
        for _, item in ipairs(require('pi.prompt').queue()) do
          lines[#lines + 1] = item.kind .. ': ' .. item.text
        end
        notice.say(#lines > 0 and table.concat(lines, '\n') or 'nothing is queued')
      end
    end,
    complete = shared.prefix_of({ 'clear', 'edit' }),
  },
  abort = {
    run = function(_, cx)
      if require('pi.rpc').connected() then
        shared.ask('run.abort', { clear = cx.bang })
      end
    end,
  },
  compact = {
    run = function(_, cx)
      shared.ask('run.compact', { instructions = cx.rest ~= '' and cx.rest or nil })
    end,
    slash = 'summarise the older part of this session',
  },
  bash = {
    run = function(_, cx)
      if cx.rest == '' then
        notice.say('`:Pi bash {command}`', 'warn')
        return
      end
      shared.open(nil, function()
        shared.ask('run.bash', { command = cx.rest, exclude = cx.bang })
      end)
    end,
    complete = function(lead)
      return vim.fn.getcompletion(lead, 'shellcmd')
    end,
  },
  edit = {
    run = function(_, cx)
      require('pi.edit').run(vim.trim(cx.rest), cx)
    end,
  },
}
