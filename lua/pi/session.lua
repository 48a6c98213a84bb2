--- Sessions as this Neovim shows them: which tab page looks at which, and what is known of each.
local rpc = require('pi.rpc')

local M = {}

---@class pi.session.Info
---@field id string
---@field name string?
---@field file string?
---@field cwd string

---@type table<string, pi.session.Info>
local known = {}

---@param info pi.session.Info
local function remember(info)
  for key, value in pairs(info) do
    if value == vim.NIL then
      info[key] = nil
    end
  end
  known[info.id] = info
end

--- The session of a buffer of ours, else of this tab page.
---@return string? id
function M.current()
  local here = vim.b.pi
  return here and here.session or vim.t.pi_session
end

---@param id string?
---@return pi.session.Info?
function M.info(id)
  return known[id or M.current() or '']
end

---@return pi.session.Info[]
function M.all()
  return vim.tbl_values(known)
end

--- Makes this tab page look at a session.
---@param info pi.session.Info
function M.show(info)
  remember(info)
  local before = vim.t.pi_session
  vim.t.pi_session = info.id
  require('pi.window').switch(before, info.id)
  if before ~= info.id then
    require('pi.events').fire('PiSessionOpen', { session = info.id })
  end
end

--- Goes to the tab page that looks at a session, if there is one.
---@param id string
---@return boolean
function M.focus(id)
  for _, tab in ipairs(vim.api.nvim_list_tabpages()) do
    if vim.t[tab].pi_session == id then
      vim.api.nvim_set_current_tabpage(tab)
      require('pi.window').open()
      return true
    end
  end
  return false
end

---@param path string?
---@return boolean
local function focus_file(path)
  for id, info in pairs(known) do
    -- One that stopped is in its tab page still, and is opened anew.
    if path and info.file == path and require('pi.status').of(id) then
      return M.focus(id)
    end
  end
  return false
end

---@class pi.session.Hooks
---@field asked fun()? the person was asked something and may never answer
---@field before fun()? the session is there and will be shown

---@class pi.session.Gone
---@field missing string the directory that is gone
---@field path string the session file

--- Asks what to do about a session whose directory is gone. Without an answer nothing is opened.
---@param gone pi.session.Gone
---@param again fun(answer: 'here'|'fork')
local function ask_about_directory(gone, again)
  local short = vim.fn.fnamemodify(gone.missing, ':~')
  local here = vim.fn.fnamemodify(require('pi.backend').cwd(), ':~')
  local choices = {
    'continue in ' .. here .. ' (asks again next time)',
    'fork into ' .. here .. ' (a copy that belongs there)',
    'cancel',
  }
  local prompt = 'The directory of this session is gone: ' .. short
  -- Once the message that brought the question is over: a picker may wait for a key.
  vim.schedule(function()
    require('pi.dialog').choose(prompt, choices, function(_, index)
      if index == 1 then
        again('here')
      elseif index == 2 then
        again('fork')
      end
    end)
  end)
end

---@param request string
---@param params table
---@param callback fun(err: string?, info: pi.session.Info?)
---@param hooks pi.session.Hooks?
local function open(request, params, callback, hooks)
  hooks = hooks or {}
  require('pi.backend').start(function(err)
    if err then
      callback(err)
      return
    end
    local tab = vim.api.nvim_get_current_tabpage()
    rpc.request(request, params, function(failed, info)
      if failed then
        callback(failed)
        return
      end
      if info.missing then
        if hooks.asked then
          hooks.asked()
        end
        ask_about_directory(info, function(answer)
          local all = { path = info.path, cwd = require('pi.backend').cwd(), directory = answer }
          open('session.open', all, callback, hooks)
        end)
        return
      end
      remember(info)
      if hooks.before then
        hooks.before()
        tab = vim.api.nvim_get_current_tabpage()
      end
      -- The person may be in another tab page by now.
      if vim.api.nvim_tabpage_is_valid(tab) and tab == vim.api.nvim_get_current_tabpage() then
        M.show(info)
      elseif vim.api.nvim_tabpage_is_valid(tab) then
        vim.t[tab].pi_session = info.id
      end
      require('pi.login').offer_trust(info.cwd)
      callback(nil, info)
    end)
  end)
end

--- Those who wait for the session of a tab page to be there; it is asked for once.
---@type table<integer, (fun(err: string?, info: pi.session.Info?))[]>
local ensuring = {}

--- Makes sure that this tab page has a running session.
---@param callback fun(err: string?, info: pi.session.Info?)
function M.ensure(callback)
  local tab = vim.api.nvim_get_current_tabpage()
  local waiting = ensuring[tab]
  if waiting then
    waiting[#waiting + 1] = callback
    return
  end
  local mine = { callback }
  ensuring[tab] = mine
  local info = M.info(vim.t.pi_session)
  open('session.ensure', {
    session = info and info.id or nil,
    path = info and info.file or nil,
    cwd = info and info.cwd or require('pi.backend').cwd(),
  }, function(err, found)
    local all = ensuring[tab] or mine
    ensuring[tab] = nil
    for _, it in ipairs(all) do
      it(err, found)
    end
  end, {
    asked = function()
      -- The next one who wants the session asks again.
      ensuring[tab] = nil
    end,
  })
end

--- Opens another session in this tab page.
---@param request 'session.new'|'session.continue'|'session.open'|'session.ensure'
---@param params table
---@param callback fun(err: string?, info: pi.session.Info?)?
---@param before fun()? runs when the session is there, right before it is shown
function M.open(request, params, callback, before)
  if request == 'session.open' and focus_file(params.path) then
    if callback then
      callback(nil, M.info())
    end
    return
  end
  params.cwd = params.cwd or require('pi.backend').cwd()
  open(request, params, callback or function(err)
    if err then
      require('pi.notice').say(err, 'error')
    end
  end, { before = before })
end

--- Asks the running session of this tab page; starts one when there is none.
---@param name string
---@param params table?
---@param callback pi.rpc.Callback?
function M.request(name, params, callback)
  -- Meant is the session of now, also when another one is opened before this gets through.
  local meant = M.current()
  M.ensure(function(err, info)
    if err or not info then
      if callback then
        callback(err, nil)
      else
        require('pi.notice').say(err or 'no session', 'error')
      end
      return
    end
    local all = vim.tbl_extend('keep', params or {}, { session = meant or info.id })
    rpc.request(name, all, callback)
  end)
end

--- The backend ended: nothing runs any more, what is shown stays.
---@param reason string
function M.gone(reason)
  for id in pairs(known) do
    require('pi.chat').gone(id, reason)
    require('pi.status').forget(id)
  end
end

M.ops = {}

--- The backend went on to another session in the place of one.
---@param op { from: string, to: string, info: pi.session.Info }
function M.ops.moved(op)
  remember(op.info)
  for _, tab in ipairs(vim.api.nvim_list_tabpages()) do
    if vim.t[tab].pi_session == op.from then
      vim.t[tab].pi_session = op.to
      require('pi.window').switch(op.from, op.to, tab)
    end
  end
  if package.loaded['pi.tree'] then
    require('pi.tree').moved(op.from, op.to)
  end
end

---@param op { session: string }
function M.ops.stopped(op)
  if package.loaded['pi.attention'] then
    require('pi.attention').forget(op.session)
  end
  require('pi.chat').gone(op.session, 'this session was stopped; `:Pi resume` goes on with it')
  require('pi.status').forget(op.session)
  require('pi.events').fire('PiSessionClose', { session = op.session })
end

return M
