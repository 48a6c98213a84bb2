--- Sub-commands that choose model, thinking, tools, resources and credentials.
local notice = require('pi.notice')
local shared = require('pi.command.shared')

---@param model { provider: string, id: string }
local function set_model(model)
  shared.ask('model.set', { provider = model.provider, id = model.id }, function()
    notice.say('model: ' .. model.provider .. '/' .. model.id)
  end)
end

---@param it { provider: string, id: string }
---@return string
local function model_name(it)
  return it.provider .. '/' .. it.id
end

--- Those of `list` that a pattern means: the exact one, else all that match.
---@generic T: { provider: string, id: string }
---@param list T[]
---@param pattern string
---@return T[]
local function matching(list, pattern)
  if pattern == '' then
    return list
  end
  local exact = vim.tbl_filter(function(it)
    return it.id == pattern or model_name(it) == pattern
  end, list)
  if #exact > 0 then
    return exact
  end
  local names = require('pi.complete').match(vim.tbl_map(model_name, list), pattern)
  return vim.tbl_filter(function(it)
    return vim.tbl_contains(names, model_name(it))
  end, list)
end

--- Shows why the other providers cannot be used; choosing one asks for its key.
---@param providers { provider: string, why: string }[]
local function show_others(providers)
  shared.pick(providers, {
    prompt = 'Not usable yet; choose one to store a key',
    kind = 'pi.provider',
    format = function(it)
      return it.provider .. ': ' .. it.why
    end,
  }, function(it)
    require('pi.login').login(it.provider)
  end)
end

--- Says why no model that can be used is meant by a pattern.
---@param pattern string
---@param others { provider: string, id: string, why: string }[]
local function say_why_not(pattern, others)
  local found = matching(others, pattern)
  if #found == 0 then
    notice.say('no model matches ' .. pattern .. '; `:Pi model` lists them', 'error')
    return
  end
  local name = #found == 1 and model_name(found[1]) or found[1].provider
  notice.say(name .. ': ' .. found[1].why, 'error')
end

---@param list { provider: string, id: string }[]
---@param others { provider: string, why: string }[]
local function choose(list, others)
  local rows = vim.list_extend({}, list) ---@type table[]
  if #others > 0 then
    rows[#rows + 1] = { others = others }
  end
  shared.pick(rows, {
    prompt = #list > 0 and 'Model' or 'No model yet',
    kind = 'pi.model',
    format = function(it)
      return it.others and ('%d providers that cannot be used, and why'):format(#others)
        or model_name(it)
    end,
  }, function(it)
    if it.others then
      show_others(others)
    else
      set_model(it)
    end
  end)
end

---@param args string[]
local function model(args)
  local pattern = table.concat(args, ' ')
  if pattern == 'local' then
    require('pi.login').local_models()
    return
  end
  shared.ask('model.list', {}, function(result)
    local list = matching(result.models or {}, pattern)
    if pattern ~= '' and #list == 1 then
      set_model(list[1])
      return
    end
    shared.ask('model.others', {}, function(others)
      if pattern == '' then
        choose(list, others.providers)
      elseif #list == 0 then
        say_why_not(pattern, others.models)
      else
        choose(list, {})
      end
    end)
  end)
end

---@param args string[]
local function thinking(args)
  local function set(level)
    shared.ask('thinking.set', { level = level }, function()
      notice.say('thinking: ' .. level)
    end)
  end
  if args[1] then
    set(args[1])
    return
  end
  shared.ask('thinking.list', {}, function(result)
    local format = function(it)
      return it
    end
    shared.pick(
      result.levels or {},
      { prompt = 'Thinking', kind = 'pi.thinking', format = format },
      set
    )
  end)
end

---@type table<string, pi.command.Sub>
return {
  model = {
    run = model,
    complete = function(lead)
      return require('pi.complete').match(
        vim.tbl_map(model_name, require('pi.complete').models()),
        lead
      )
    end,
    slash = 'choose the model',
  },
  thinking = {
    run = thinking,
    complete = function(lead)
      return shared.prefix_of(require('pi.complete').levels())(lead)
    end,
    slash = 'choose how much to think',
  },
  tools = {
    run = function(args)
      require('pi.tools').command(args)
    end,
  },
  skills = {
    run = function()
      require('pi.resources').pick('skill')
    end,
  },
  templates = {
    run = function()
      require('pi.resources').pick('prompt')
    end,
  },
  login = {
    run = function(args)
      require('pi.login').login(args[1])
    end,
    complete = function(lead)
      return shared.prefix_of(require('pi.login').PROVIDERS)(lead)
    end,
    slash = 'give a provider its key',
  },
  logout = {
    run = function(args)
      require('pi.login').logout(args[1])
    end,
    complete = function(lead)
      return shared.prefix_of(require('pi.login').PROVIDERS)(lead)
    end,
    slash = 'forget the key of a provider',
  },
  trust = {
    run = function(args)
      require('pi.login').trust(args[1])
    end,
    complete = shared.prefix_of({ 'yes', 'no', 'once' }),
  },
  settings = {
    run = function(args)
      require('pi.login').settings(args[1])
    end,
    complete = shared.prefix_of({ 'models' }),
    slash = 'open the settings file',
  },
  reload = {
    run = function()
      shared.ask('session.reload', {}, function()
        notice.say('resources were read again')
      end)
    end,
    slash = 'read settings, skills and prompts again',
  },
}
