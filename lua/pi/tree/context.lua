--- What the model reads of an entry: as it is, left out, or put otherwise. The entry itself never changes.
local notice = require('pi.notice')
local rpc = require('pi.rpc')

local M = {}

---@class pi.tree.Content
---@field text string what the model reads, or would read
---@field edited 'left_out'|'replaced'|nil

---@param view pi.tree.View
---@param row pi.tree.Row
---@param done fun(content: pi.tree.Content)
local function content(view, row, done)
  rpc.request('tree.content', { session = view.session, entry = row.id }, function(err, result)
    if err then
      notice.say(err, 'warn')
    else
      done({ text = result.text, edited = result.edited ~= vim.NIL and result.edited or nil })
    end
  end)
end

---@param view pi.tree.View
---@param entry string
---@param what 'omit'|'original'|'replace'
---@param text string?
---@param done fun()
local function edit(view, entry, what, text, done)
  local params = { session = view.session, entry = entry, what = what, text = text }
  rpc.request('tree.edit', params, function(err)
    if err then
      notice.say(err, 'error')
      return
    end
    if vim.api.nvim_buf_is_valid(view.buf) then
      require('pi.tree').refresh(view)
    end
    done()
  end)
end

--- Leaves an entry out for the model, or has it read again as it is.
---@param view pi.tree.View
---@param row pi.tree.Row
function M.toggle(view, row)
  content(view, row, function(it)
    local what = it.edited and 'original' or 'omit'
    edit(view, row.id, what, nil, function()
      notice.say(
        it.edited and 'the model reads this entry as it is again'
          or 'left out for the model; the same key takes it back'
      )
    end)
  end)
end

---@param view pi.tree.View
---@param entry string
---@param text string
---@return integer buf
local function open(view, entry, text)
  local buf = vim.api.nvim_create_buf(false, true)
  vim.api.nvim_buf_set_name(buf, ('pi://reads/%s/%d'):format(entry, buf))
  vim.api.nvim_buf_set_lines(buf, 0, -1, false, vim.split(text, '\n', { plain = true }))
  local options = vim.bo[buf]
  options.buftype, options.bufhidden, options.swapfile = 'acwrite', 'wipe', false
  options.filetype, options.modified = 'markdown', false
  vim.b[buf].pi = { kind = 'reads', session = view.session }
  vim.api.nvim_create_autocmd('BufWriteCmd', {
    buffer = buf,
    callback = function()
      local lines = vim.api.nvim_buf_get_lines(buf, 0, -1, false)
      edit(view, entry, 'replace', table.concat(lines, '\n'), function()
        if vim.api.nvim_buf_is_valid(buf) then
          vim.bo[buf].modified = false
        end
        notice.say('the model reads this from now on; x in the tree takes it back')
      end)
    end,
  })
  return buf
end

--- Opens what the model reads of an entry; writing the buffer makes it read that instead.
---@param view pi.tree.View
---@param row pi.tree.Row
function M.replace(view, row)
  content(view, row, function(it)
    require('pi.window').show_below(open(view, row.id, it.text))
  end)
end

return M
