--- Markdown colours in the chat: only the texts of people and models are parsed, each by itself, so that a command or a
--- path in a header is never taken for Markdown and a long chat costs no more than its last block.
local M = {}

---@class pi.markdown.State
---@field parser vim.treesitter.LanguageTree?
---@field shape string

---@type table<integer, pi.markdown.State>
local states = {}

local parsed = { user = true, assistant = true, thinking = true, summary = true }

--- Starts the highlighter of a chat buffer.
---@param buf integer
function M.attach(buf)
  vim.treesitter.language.register('markdown', 'pi-chat')
  local ok, parser = pcall(vim.treesitter.get_parser, buf, 'markdown')
  if not ok or not parser or type(parser.set_included_regions) ~= 'function' then
    return
  end
  parser:set_included_regions({ { { 0, 0, 0, 0, 0, 0 } } })
  if pcall(vim.treesitter.start, buf, 'markdown') then
    states[buf] = { parser = parser, shape = '' }
  end
  vim.api.nvim_create_autocmd('BufWipeout', {
    buffer = buf,
    callback = function()
      states[buf] = nil
    end,
  })
end

--- Tells the parser which rows hold Markdown.
---@param view pi.chat.View
function M.update(view)
  local state = states[view.buf]
  local parser = state and state.parser
  if not state or not parser then
    return
  end
  local regions, shape = {}, {}
  for _, block in ipairs(view.blocks) do
    if parsed[block.kind] and block.count > 1 then
      local first, last = block.first + 1, block.first + block.count
      shape[#shape + 1] = first .. '-' .. last
      regions[#regions + 1] = { { first, 0, last, 0 } }
    end
  end
  local now = table.concat(shape, ' ')
  if now == state.shape then
    return
  end
  state.shape = now
  for _, region in ipairs(regions) do
    local range = region[1]
    local offset = vim.api.nvim_buf_get_offset
    region[1] = {
      range[1],
      0,
      offset(view.buf, range[1]),
      range[3],
      0,
      offset(view.buf, math.min(range[3], vim.api.nvim_buf_line_count(view.buf))),
    }
  end
  if #regions == 0 then
    regions = { { { 0, 0, 0, 0, 0, 0 } } }
  end
  parser:set_included_regions(regions)
end

return M
