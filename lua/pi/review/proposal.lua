---The proposal view: the proposed text as real, editable text; old lines are virtual.

local api = vim.api
local options = require('pi.review.options')
local port = require('pi.review.port')
local say = require('pi.review.say')
local state = require('pi.review.state')
local text = require('pi.review.text')
local wins = require('pi.review.win')

---@class (exact) pi.review.Text
---@field id integer
---@field version integer
---@field editable boolean
---@field lines string[]
---@field rows {hunk: integer, first: integer, last: integer}[]? where hunks stand, when the lines are only an extract
---@field base string[]? text before the change, when it was asked for

---@class (exact) pi.review.ProposalView
---@field buf integer
---@field version integer
---@field editable boolean
---@field rows table<integer, {first: integer, last: integer}>?
---@field marks table<integer, integer>
---@field taking boolean whether core is taking the text over: until it has, the buffer holds the only copy

local M = {}

local ns = api.nvim_create_namespace('pi.review.proposal')

---@type table<integer, pi.review.ProposalView>
local views = {}

---@type table<integer, fun(buf: integer)[]>
local waiting = {}

---@param proposal pi.review.Proposal
---@param kind 'proposal'|'base'
---@return string
local function name_of(proposal, kind)
  return ('pi://%s/%d/%s'):format(kind, proposal.id, proposal.display)
end

---Colours without the file's own plugins: no ftplugin, formatter or language server may start here.
---@param buf integer
---@param path string
function M.colour(buf, path)
  local filetype = vim.filetype.match({ filename = path, buf = buf })
  if not filetype then
    return
  end
  local lang = vim.treesitter.language.get_lang(filetype)
  -- Starts only where a parser and its queries are installed; otherwise plain syntax does.
  local ok = lang and pcall(vim.treesitter.start, buf, lang)
  if not ok then
    vim.bo[buf].syntax = filetype
  end
end

---@param buf integer
---@param proposal pi.review.Proposal
local function copy_indent(buf, proposal)
  local real = require('pi.review.buffers').find(proposal.real)
  if real then
    for _, name in ipairs({ 'tabstop', 'shiftwidth', 'expandtab', 'commentstring' }) do
      vim.bo[buf][name] = vim.bo[real][name]
    end
  end
end

---Gives the text as it stands to core, which takes it over and then does what was asked.
---@param buf integer
---@param next_action table?
function M.take_over(buf, next_action)
  local id = vim.b[buf].pi.proposal
  local view = views[id]
  if view then
    view.taking = true
  end
  vim.bo[buf].modified = false
  port.send({
    view = 'taken',
    proposal = id,
    buf = buf,
    version = view and view.version,
    next = next_action,
  })
end

---Gives core the text of a proposal that was changed in its buffer and not yet saved there.
---@param id integer
---@param except integer? a buffer whose text is taken over in another way
function M.save(id, except)
  local buf = M.buffer(id)
  if buf and buf ~= except and vim.bo[buf].modified then
    M.take_over(buf)
  end
end

---Whether the buffer holds text that core has not got.
---@param view pi.review.ProposalView
---@return boolean
local function is_ahead(view)
  return view.taking or (vim.bo[view.buf].modified and view.version >= 0)
end

---Core has taken the text over, or could not: then the buffer is modified as before.
---@param id integer
---@param ok boolean
function M.taken(id, ok)
  local view, proposal = views[id], state.get(id)
  if not view or not view.taking then
    return
  end
  view.taking = false
  if not api.nvim_buf_is_valid(view.buf) then
    return
  end
  if not ok then
    vim.bo[view.buf].modified = true
  elseif proposal then
    M.refresh(proposal)
  end
end

---Makes a scratch buffer under a `pi://` name.
---@param proposal pi.review.Proposal
---@param kind 'proposal'|'base'
---@return integer
function M.scratch(proposal, kind)
  local name = name_of(proposal, kind)
  local buf = vim.fn.bufnr('^' .. vim.fn.escape(name, '\\^$.*[]~{}?,') .. '$')
  if buf < 0 then
    buf = api.nvim_create_buf(false, false)
    api.nvim_buf_set_name(buf, name)
  end
  local bo = vim.bo[buf]
  bo.buftype = kind == 'proposal' and 'acwrite' or 'nofile'
  bo.swapfile, bo.undofile, bo.buflisted, bo.bufhidden = false, false, false, 'hide'
  bo.filetype = 'pi-proposal'
  vim.b[buf].pi = { kind = kind, session = proposal.session, proposal = proposal.id }
  return buf
end

---@param proposal pi.review.Proposal
---@return pi.review.ProposalView
local function create(proposal)
  local buf = M.scratch(proposal, 'proposal')
  copy_indent(buf, proposal)
  local group = api.nvim_create_augroup('pi.review.proposal.' .. buf, { clear = true })
  api.nvim_create_autocmd('BufWriteCmd', {
    group = group,
    buffer = buf,
    callback = function()
      M.take_over(buf)
      say.line('proposal updated, not accepted yet')
    end,
  })
  api.nvim_create_autocmd('BufWipeout', {
    group = group,
    buffer = buf,
    callback = function()
      views[proposal.id] = nil
      pcall(api.nvim_del_augroup_by_id, group) -- the group is gone when the buffer was wiped twice
    end,
  })
  require('pi.review').attach(buf)
  local view = { buf = buf, version = -1, editable = false, marks = {}, taking = false } ---@type pi.review.ProposalView
  views[proposal.id] = view
  return view
end

---@param buf integer
---@param lines string[]
---@param editable boolean
local function set_lines(buf, lines, editable)
  local bo = vim.bo[buf]
  bo.modifiable, bo.readonly = true, false
  local levels = bo.undolevels
  bo.undolevels = -1
  api.nvim_buf_set_lines(buf, 0, -1, false, lines)
  bo.undolevels = levels
  bo.modified, bo.modifiable = false, editable
end

---@param buf integer
---@param row integer
---@param opts vim.api.keyset.set_extmark
---@return integer
local function mark(buf, row, opts)
  opts.strict = false
  row = math.max(0, math.min(row, api.nvim_buf_line_count(buf) - 1))
  return api.nvim_buf_set_extmark(buf, ns, row, 0, opts)
end

---@param hunk pi.review.Hunk
---@return string sign, string sign_group, string group
local function look(hunk)
  if hunk.state == 'accepted' then
    return 'ok', 'PiReviewSignAccepted', 'PiReviewAdd'
  elseif hunk.state == 'rejected' or hunk.state == 'reverted' then
    return 'x', 'PiReviewSignRejected', 'PiReviewRejected'
  elseif hunk.state == 'stale' then
    return '!', 'PiReviewSignStale', 'PiReviewStale'
  elseif #hunk.new == 0 then
    return '-', 'PiReviewSignDelete', 'PiReviewDelete'
  elseif hunk.count == 0 then
    return '+', 'PiReviewSignAdd', 'PiReviewAdd'
  end
  return '~', 'PiReviewSignChange', 'PiReviewAdd'
end

---@param buf integer
---@param hunk pi.review.Hunk
---@param first integer
local function draw_words(buf, hunk, first)
  for i, line in ipairs(hunk.new) do
    for from, to in text.words(line) do
      api.nvim_buf_set_extmark(buf, ns, first + i - 1, from, {
        end_col = to,
        hl_group = 'PiReviewAddWord',
        priority = 211,
        strict = false,
      })
    end
  end
end

---@param buf integer
---@param hunk pi.review.Hunk
---@param first integer
local function draw_old(buf, hunk, first)
  if #hunk.old == 0 then
    return
  end
  local paint = text.paint('delete', buf)
  paint.width = vim.o.columns
  local lines = {}
  for _, line in ipairs(hunk.old) do
    vim.list_extend(lines, text.virtual(line, paint))
  end
  local past_end = first >= api.nvim_buf_line_count(buf)
  mark(buf, first, {
    virt_lines = lines,
    virt_lines_above = not past_end,
    virt_lines_overflow = 'scroll',
    priority = 210,
  })
end

---@type table<string, string> groups of an extract's lines, by their first sign
local extract_groups = { ['+'] = 'PiReviewAdd', ['-'] = 'PiReviewDelete', ['@'] = 'PiReviewHint' }

---@param buf integer
---@param first integer
---@param last integer
local function draw_extract(buf, first, last)
  for i, line in ipairs(api.nvim_buf_get_lines(buf, first, last + 1, false)) do
    local group = extract_groups[line:sub(1, 1)] ---@type string?
    if group then
      local row = first + i - 1
      mark(buf, row, { end_row = row + 1, hl_group = group, hl_eol = true, priority = 210 })
    end
  end
end

---@param buf integer
---@param hunk pi.review.Hunk
---@param first integer
local function draw_new(buf, hunk, first)
  local sign, sign_group, group = look(hunk)
  for row = first, first + #hunk.new - 1 do
    mark(buf, row, {
      end_row = row + 1,
      hl_group = group,
      hl_eol = hunk.state ~= 'rejected',
      priority = 210,
    })
    if row > first and #sign == 1 then
      mark(buf, row, { sign_text = '+', sign_hl_group = sign_group, priority = 210 })
    end
  end
  if hunk.state == 'pending' then
    draw_words(buf, hunk, first)
  end
end

---@param view pi.review.ProposalView
---@param hunk pi.review.Hunk
local function draw_hunk(view, hunk)
  local buf = view.buf
  local range = view.rows and view.rows[hunk.id]
  local first = range and range.first or hunk.new_row
  local last = range and range.last or hunk.new_row + math.max(#hunk.new, 1) - 1
  local sign, sign_group = look(hunk)
  if range then
    draw_extract(buf, first, last)
  else
    draw_old(buf, hunk, first)
    draw_new(buf, hunk, first)
  end
  mark(buf, first, { sign_text = sign, sign_hl_group = sign_group, priority = 211 })
  if hunk.note then
    local note = text.printable((hunk.note:gsub('\n', ' ')))
    mark(buf, last, { virt_lines = { { { 'note: ' .. note, 'PiReviewNote' } } } })
  end
  local end_row = math.max(first, math.min(last, api.nvim_buf_line_count(buf) - 1))
  view.marks[hunk.id] = mark(buf, first, { end_row = end_row, end_col = 0 })
end

---@param view pi.review.ProposalView
---@param proposal pi.review.Proposal
local function draw(view, proposal)
  api.nvim_buf_clear_namespace(view.buf, ns, 0, -1)
  view.marks = {}
  for _, hunk in ipairs(proposal.hunks) do
    draw_hunk(view, hunk)
  end
end

---Says above a proposal's window what it is, and how to decide about it.
---@param win integer
---@param proposal pi.review.Proposal
function M.head(win, proposal)
  local keys = require('pi.review.keys')
  local buf = api.nvim_win_get_buf(win)
  local what = proposal.kind == 'A' and 'new file' or 'proposed text'
  local parts = { ('%%#PiReviewTitle# %s %%#PiReviewHint#not written yet '):format(what) }
  for _, pair in ipairs({ { 'accept-file', 'accept file' }, { 'reject-file', 'reject file' } }) do
    local key = keys.key(buf, pair[1])
    if key then
      parts[#parts + 1] = (' %s %%#PiReviewKey#%s%%#PiReviewHint#'):format(
        pair[2],
        (key:gsub('%%', '%%%%'))
      )
    end
  end
  vim.wo[win][0].winbar = table.concat(parts, ' ')
end

---Draws the hunks of a proposal anew; fetches its text again when core has a newer one.
---@param proposal pi.review.Proposal
function M.refresh(proposal)
  local view = views[proposal.id]
  if not view or not api.nvim_buf_is_valid(view.buf) then
    return
  end
  if is_ahead(view) then
    return
  end
  draw(view, proposal)
  if view.version ~= proposal.version then
    port.send({ view = 'text', proposal = proposal.id, plain = options.review().plain })
  end
end

---@param lines string[]
---@param buf integer
---@return boolean
local function same_text(lines, buf)
  return vim.deep_equal(lines, api.nvim_buf_get_lines(buf, 0, -1, false))
end

---Takes the text core sent.
---@param data pi.review.Text
function M.text(data)
  local proposal = state.get(data.id)
  if not proposal then
    return
  end
  local view = views[data.id] or create(proposal)
  local buf = view.buf
  if not is_ahead(view) then
    if not same_text(data.lines, buf) then
      set_lines(buf, data.lines, data.editable)
    end
    vim.bo[buf].modifiable = data.editable
    view.rows = nil
    if data.rows then
      view.rows = {}
      for _, row in ipairs(data.rows) do
        view.rows[row.hunk] = { first = row.first, last = row.last }
      end
      vim.bo[buf].syntax = 'diff'
    elseif view.version < 0 then
      M.colour(buf, proposal.path)
    end
    view.editable, view.version = data.editable, data.version
    draw(view, proposal)
  end
  for _, done in ipairs(waiting[data.id] or {}) do
    done(buf)
  end
  waiting[data.id] = nil
end

---Opens the proposal view; `done` gets its buffer as soon as its text is there.
---@param proposal pi.review.Proposal
---@param done fun(buf: integer)
function M.open(proposal, done)
  local view = views[proposal.id]
  if view and view.version == proposal.version and api.nvim_buf_is_loaded(view.buf) then
    done(view.buf)
    return
  end
  waiting[proposal.id] = waiting[proposal.id] or {}
  table.insert(waiting[proposal.id], done)
  port.send({ view = 'text', proposal = proposal.id, plain = options.review().plain })
end

---Fills a buffer again from what core has, for `:edit!`.
---@param buf integer
---@param kind 'proposal'|'base'
---@return boolean
function M.read(buf, kind)
  local mine = vim.b[buf].pi
  local proposal = type(mine) == 'table' and state.get(mine.proposal)
  if not proposal then
    return false
  end
  vim.bo[buf].buftype = kind == 'proposal' and 'acwrite' or 'nofile'
  local view = views[proposal.id]
  if kind == 'proposal' and view then
    view.version, vim.bo[buf].modified = -1, false
  end
  port.send({ view = 'text', proposal = proposal.id, base = kind == 'base' })
  return true
end

---The buffer of a proposal view, when there is one.
---@param id integer
---@return integer?
function M.buffer(id)
  local view = views[id]
  return view and api.nvim_buf_is_valid(view.buf) and view.buf or nil
end

---Rows of a hunk in the proposal view.
---@param buf integer
---@param hunk pi.review.Hunk
---@return integer first
---@return integer last
function M.rows(buf, hunk)
  for _, view in pairs(views) do
    local id = view.buf == buf and view.marks[hunk.id]
    if id then
      local first, last = wins.mark_rows(buf, ns, id)
      if first and last then
        return first, last
      end
    end
  end
  return hunk.new_row, hunk.new_row + math.max(#hunk.new, 1) - 1
end

---Takes a settled proposal off the screen: its windows show the file itself, or what they showed before.
---@param proposal pi.review.Proposal
function M.close(proposal)
  local view = views[proposal.id]
  waiting[proposal.id], views[proposal.id] = nil, nil
  if not view or not api.nvim_buf_is_valid(view.buf) then
    return
  end
  local exists = vim.fn.filereadable(proposal.real) == 1
  for _, win in ipairs(vim.fn.win_findbuf(view.buf)) do
    local file = exists
      and proposal.state == 'done'
      and require('pi.review.files').load(proposal.real)
    api.nvim_win_call(win, function()
      local alternate = vim.fn.bufnr('#')
      if file then
        vim.bo[file].buflisted = true
        local at = vim.fn.winsaveview()
        vim.cmd('keepalt hide buffer ' .. file)
        vim.fn.winrestview({ lnum = at.lnum, topline = at.topline })
      elseif alternate > 0 and api.nvim_buf_is_loaded(alternate) and alternate ~= view.buf then
        vim.cmd('hide buffer ' .. alternate)
      else
        vim.cmd('hide enew')
      end
    end)
  end
  api.nvim_buf_delete(view.buf, { force = true })
end

return M
