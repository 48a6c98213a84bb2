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

---@param args string[]
local function model(args)
  local pattern = table.concat(args, ' ')
  if pattern == 'local' then
    require('pi.login').local_models()
    return
  end
  shared.ask('model.list', {}, function(result)
    local list = result.models or {} ---@type table[]
    if pattern ~= '' then
      local exact = vim.tbl_filter(function(it)
        return it.id == pattern or model_name(it) == pattern
      end, list)
      local names = require('pi.complete').match(vim.tbl_map(model_name, list), pattern)
      list = #exact > 0 and exact
        or vim.tbl_filter(function(it)
          return vim.tbl_contains(names, model_name(it))
        end, list)
    end
    if pattern ~= '' and #list == 0 then
      notice.say('no model matches ' .. pattern .. '; `:Pi model` lists them', 'error')
    elseif pattern ~= '' and #list == 1 then
      set_model(list[1])
    elseif #list == 0 then
      notice.say(
        'No model yet: `:Pi login {provider}`, or `:Pi settings models` for a local server',
        'warn'
      )
    else
      shared.pick(list, { prompt = 'Model', kind = 'pi.model', format = model_name }, set_model)
    end
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
