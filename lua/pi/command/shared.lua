--- What the sub-commands of `:Pi` share: asking the session, opening windows, mentions, picking.
local notice = require('pi.notice')

local M = {}

---@param list string[]
---@return fun(lead: string): string[]
function M.prefix_of(list)
  return function(lead)
    return vim.tbl_filter(function(it)
      return vim.startswith(it, lead)
    end, list)
  end
end

---@param err string?
function M.complain(err)
  if err then
    notice.say(err, 'error')
  end
end

--- Asks the session and complains when it cannot.
---@param name string
---@param params table?
---@param done fun(result: any)?
function M.ask(name, params, done)
  require('pi.session').request(name, params, function(err, result)
    M.complain(err)
    if not err and done then
      done(result)
    end
  end)
end

--- Makes sure the windows are there, then goes on.
---@param position string?
---@param done fun()?
---@param failed fun()?
function M.open(position, done, failed)
  require('pi.session').ensure(function(err)
    if err then
      notice.say(err, 'error')
      if failed then
        failed()
      end
      return
    end
    require('pi.window').open(position)
    if done then
      done()
    end
  end)
end

--- Remembers where the person is; the result says whether they still are there and not typing. A backend that starts
--- takes a moment, and in the meantime the person may have gone on with something else.
---@return fun(): boolean
function M.still_here()
  local win, tick = vim.api.nvim_get_current_win(), vim.b.changedtick
  return function()
    return vim.api.nvim_get_current_win() == win
      and vim.b.changedtick == tick
      and vim.api.nvim_get_mode().mode == 'n'
  end
end

--- Opens the windows and goes into one of them, unless the person went elsewhere meanwhile.
---@param position string?
---@param panel 'chat'|'prompt'
---@param insert boolean
---@param before fun()?
function M.open_and_focus(position, panel, insert, before)
  local here = M.still_here()
  M.open(position, function()
    if before then
      before()
    end
    if here() then
      require('pi.window').focus(panel, insert)
    end
  end)
end

--- A mention of the range, or nothing.
---@param cx pi.command.Context
---@return string?
function M.mention(cx)
  if not cx.range then
    return nil
  end
  local name = vim.api.nvim_buf_get_name(cx.buf)
  if name == '' then
    return table.concat(
      vim.api.nvim_buf_get_lines(cx.buf, cx.range[1] - 1, cx.range[2], false),
      '\n'
    )
  end
  local path = require('pi.context').path_of(cx.buf)
  return ('@%s:%d-%d'):format(path, cx.range[1], cx.range[2])
end

--- Lets the person pick one of a list.
---@param items any[]
---@param options { prompt: string, kind: string, format: fun(it: any): string }
---@param done fun(it: any)
function M.pick(items, options, done)
  if #items == 0 then
    notice.say('there is nothing to choose from', 'warn')
    return
  end
  vim.ui.select(items, {
    prompt = options.prompt,
    kind = options.kind,
    format_item = options.format,
  }, function(it)
    if it then
      done(it)
    end
  end)
end

---@return string[]
function M.file_words(lead)
  return vim.fn.getcompletion(lead, 'file')
end

return M
