--- Markdown colours in the chat. Each answer is parsed by itself: a command or a path in a header is never taken for
--- Markdown, and a long chat costs no more than the block that changed.
local M = {}

local ns = vim.api.nvim_create_namespace('pi.chat.markdown')

local parsed = { assistant = true, summary = true }

--- A block longer than this stays plain.
local MAX_BYTES = 200 * 1024
--- A streaming block is coloured this often, in ms.
local EVERY = 150

---@type table<integer, table<string, boolean>> ids of blocks to colour, by buffer
local dirty = {}
---@type table<integer, boolean>
local waiting = {}
local missing = false

--- Draws one capture.
---@param buf integer
---@param row integer row of the block's text
---@param range integer[]
---@param lang string
---@param name string
---@param metadata table
local function mark(buf, row, range, lang, name, metadata)
  if name:sub(1, 1) == '_' or name == 'spell' or name == 'nospell' then
    return
  end
  local conceal = metadata.conceal
  -- A mark that does not fit (the text is a moment older than the buffer) is left out.
  pcall(vim.api.nvim_buf_set_extmark, buf, ns, row + range[1], range[2], {
    end_row = row + range[3],
    end_col = range[4],
    hl_group = name ~= 'conceal' and ('@' .. name .. '.' .. lang) or nil,
    conceal = conceal,
    conceal_lines = metadata.conceal_lines,
    priority = math.floor(tonumber(metadata.priority) or 100),
    strict = false,
  })
end

---@param view pi.chat.View
---@param block pi.chat.Block
local function colour(view, block)
  local first, last = block.first + 1, block.first + block.count
  vim.api.nvim_buf_clear_namespace(view.buf, ns, first, last)
  local text = table.concat(vim.api.nvim_buf_get_lines(view.buf, first, last, false), '\n') .. '\n'
  if #text > MAX_BYTES then
    return
  end
  local ok, parser = pcall(vim.treesitter.get_string_parser, text, 'markdown')
  if not ok then
    missing = true
    return
  end
  parser:parse(true)
  parser:for_each_tree(function(tree, language_tree)
    local lang = language_tree:lang()
    local found, query = pcall(vim.treesitter.query.get, lang, 'highlights')
    if not found or not query then
      return
    end
    for id, node, metadata in query:iter_captures(tree:root(), text) do
      local own = metadata[id] or {}
      local range = { node:range() }
      mark(view.buf, first, range, lang, query.captures[id] or '', {
        conceal = own.conceal or metadata.conceal,
        conceal_lines = own.conceal_lines or metadata.conceal_lines,
        priority = own.priority or metadata.priority,
      })
    end
  end)
end

---@param view pi.chat.View
local function run(view)
  local ids = dirty[view.buf] or {}
  dirty[view.buf] = nil
  if not vim.api.nvim_buf_is_valid(view.buf) then
    return
  end
  for id in pairs(ids) do
    local block = view.blocks[view.index[id] or 0]
    if block and not missing then
      colour(view, block)
    end
  end
end

--- Says that the text of a block changed; it is coloured a moment later.
---@param view pi.chat.View
---@param block pi.chat.Block
function M.touch(view, block)
  if missing or not parsed[block.kind] or block.count < 2 then
    return
  end
  local ids = dirty[view.buf] or {}
  dirty[view.buf] = ids
  ids[block.id] = true
  if waiting[view.buf] then
    return
  end
  waiting[view.buf] = true
  vim.defer_fn(function()
    waiting[view.buf] = nil
    run(view)
  end, EVERY)
end

return M
