--- Highlight groups, all of them defaults that a colour scheme or a person may override.
local M = {}

local links = {
  PiUser = 'Title',
  PiAssistant = 'Title',
  PiThinking = 'Comment',
  PiTool = 'Function',
  PiToolOk = 'DiagnosticOk',
  PiToolError = 'DiagnosticError',
  PiToolOutput = 'Normal',
  PiCompaction = 'Special',
  PiError = 'DiagnosticError',
  PiNotice = 'DiagnosticInfo',
  PiFolded = 'Normal',
  PiTime = 'NonText',
  PiMention = 'Identifier',
  PiMentionBad = 'DiagnosticDeprecated',
  PiCommand = 'Keyword',
  PiQueue = 'Comment',
  PiPlaceholder = 'NonText',
  PiAttachment = 'Directory',
  PiTreePath = 'Special',
  PiTreeLeaf = 'CursorLineNr',
  PiTreeGuide = 'NonText',
  PiTreeLabel = 'DiagnosticWarn',
  PiTreeRole = 'Statement',
  PiTreeFold = 'Folded',
  PiTreeMatch = 'Search',
  PiStatus = 'StatusLine',
  PiStatusRun = 'DiagnosticInfo',
  PiStatusAsk = 'DiagnosticWarn',
  PiStatusWarn = 'DiagnosticWarn',
  PiStatusErr = 'DiagnosticError',
}

local done = false

local function apply()
  for group, target in pairs(links) do
    vim.api.nvim_set_hl(0, group, { link = target, default = true })
  end
end

--- Defines the groups, once and again with each colour scheme.
function M.setup()
  if done then
    return
  end
  done = true
  apply()
  vim.api.nvim_create_autocmd('ColorScheme', {
    group = vim.api.nvim_create_augroup('pi.highlights', {}),
    callback = apply,
  })
end

return M
