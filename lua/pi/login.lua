--- Keys of providers, trust in a project, and the files of settings.
local notice = require('pi.notice')
local rpc = require('pi.rpc')

local M = {}

--- Providers offered for completion; any other name works too.
M.PROVIDERS = {
  'anthropic',
  'openai',
  'google',
  'openrouter',
  'groq',
  'mistral',
  'deepseek',
  'xai',
  'cerebras',
}

--- Asks the backend, started first when it does not run.
---@param name string
---@param params table
---@param done fun(result: any)
local function ask(name, params, done)
  require('pi.backend').start(function(err)
    if err then
      notice.say(err, 'error')
      return
    end
    rpc.request(name, params, function(failed, result)
      if failed then
        notice.say(failed, 'error')
      else
        done(result)
      end
    end)
  end)
end

--- Selects a model of a provider when the session has none yet.
---@param provider string
---@param id string?
local function adopt(provider, id)
  local status = require('pi.status').data()
  if type(id) == 'string' and status and not status.model then
    require('pi.session').request('model.set', { provider = provider, id = id }, function(err)
      if err then
        notice.say(err, 'error')
      end
    end)
  end
end

---@param provider string?
function M.login(provider)
  if not provider then
    vim.ui.select(M.PROVIDERS, { prompt = 'Provider', kind = 'pi.provider' }, function(it)
      if it then
        M.login(it)
      end
    end)
    return
  end
  -- Not `vim.ui.input`: what is typed there is shown, and kept in a history.
  local key = vim.fn.inputsecret('Key for ' .. provider .. ': ')
  if key == '' then
    return
  end
  ask('auth.login', { provider = provider, key = key }, function(result)
    notice.say('the key for ' .. provider .. ' is stored')
    require('pi.attention').withdraw('login')
    adopt(provider, result.model)
  end)
end

---@param provider string?
function M.logout(provider)
  if provider then
    ask('auth.logout', { provider = provider }, function(result)
      notice.say(
        result.gone and ('the key for ' .. provider .. ' is removed') or 'there was no key'
      )
    end)
    return
  end
  ask('auth.status', {}, function(result)
    local names = {} ---@type string[]
    for _, row in ipairs(result.providers) do
      if row.configured then
        names[#names + 1] = row.provider
      end
    end
    if #names == 0 then
      notice.say('no provider has a key')
      return
    end
    vim.ui.select(names, { prompt = 'Remove the key of', kind = 'pi.provider' }, function(it)
      if it then
        M.logout(it)
      end
    end)
  end)
end

--- A number of tokens as people write it.
---@param count integer
---@return string
local function tokens(count)
  return count >= 1024 and ('%dk'):format(math.floor(count / 1024)) or tostring(count)
end

--- Looks for model servers on this machine and lets the person choose.
function M.local_models()
  ask('auth.local', {}, function(result)
    if #result.models == 0 then
      local asked = vim.tbl_map(function(it)
        return it.provider .. ' ' .. it.port
      end, result.asked)
      notice.say('no model server answers here: ' .. table.concat(asked, ', '), 'warn')
      return
    end
    vim.ui.select(result.models, {
      prompt = 'Local model',
      kind = 'pi.model',
      format_item = function(it)
        return ('%s/%s  (context %s)'):format(it.provider, it.id, tokens(it.context))
      end,
    }, function(it)
      if not it then
        return
      end
      local chosen = { provider = it.provider, id = it.id }
      require('pi.session').request('model.set', chosen, function(err)
        local done = ('model: %s/%s, until Neovim ends (`:Pi settings models` keeps one)'):format(
          it.provider,
          it.id
        )
        notice.say(err or done, err and 'error' or 'info')
      end)
    end)
  end)
end

---@return string
local function cwd()
  local info = require('pi.session').info()
  return info and info.cwd or require('pi.backend').cwd()
end

---@param dir string
---@param choice integer
local function answer(dir, choice)
  ask('trust.answer', { cwd = dir, choice = choice }, function(result)
    notice.say(result.trusted and 'this project is trusted' or 'this project is not trusted')
    if vim.t.pi_session then
      require('pi.command').execute({ 'reload' })
    end
  end)
end

--- The question about a project.
---@param dir string
---@param result { resources: string[], choices: string[] }
---@return pi.question.Question
local function question(dir, result)
  local names = vim.tbl_map(function(path)
    return vim.fn.fnamemodify(path, ':~:.')
  end, result.resources)
  return {
    id = 'trust:' .. dir,
    kind = 'trust',
    session = vim.t.pi_session or '',
    title = 'Trust this project?',
    message = 'It brings '
      .. table.concat(names, ', ')
      .. '. Nothing of it is loaded before you answer.',
    options = result.choices,
    asked = 0,
    answer = function(given)
      if given.index then
        answer(dir, given.index)
      end
    end,
  }
end

---@type table<string, true> directories that were asked about; dismissing the question is "later"
local asked = {}

--- Asks about a project whose own resources nobody has decided on; once for each directory.
---@param dir string
function M.offer_trust(dir)
  if asked[dir] then
    return
  end
  asked[dir] = true
  rpc.request('trust.ask', { cwd = dir }, function(err, result)
    if not err and result.ask then
      require('pi.attention').put(question(dir, result))
    end
  end)
end

local words = { yes = 1, once = 3, no = 4 }

--- Says what the project would have loaded, and takes the answer.
---@param word string?
function M.trust(word)
  if word then
    local choice = words[word]
    if choice then
      answer(cwd(), choice)
    else
      notice.say('`:Pi trust yes`, `once` or `no`', 'warn')
    end
    return
  end
  local dir = cwd()
  ask('trust.ask', { cwd = dir }, function(result)
    if #result.resources == 0 then
      notice.say('this project has nothing of its own that would be loaded')
      return
    end
    require('pi.attention').put_now(question(dir, result))
  end)
end

--- A prompt could not be sent because no model can be asked: what to do about it waits in the queue.
---@param session string
---@param err string
function M.wanted(session, err)
  if not err:find('[Nn]o API key') and not err:find('No model') then
    return
  end
  require('pi.attention').put({
    id = 'login',
    kind = 'login',
    session = session,
    title = 'Which model is to answer?',
    message = err,
    options = {
      'give a provider its key',
      'look for a server on this machine',
      'write a model of your own into models.json',
    },
    asked = 0,
    answer = function(given)
      local run = ({
        function()
          M.login()
        end,
        M.local_models,
        function()
          M.settings('models')
        end,
      })[given.index or 0]
      if run then
        vim.schedule(run)
      end
    end,
  }, true)
end

--- Opens a settings file.
---@param which string?
function M.settings(which)
  ask('settings.file', { which = which }, function(result)
    require('pi.window').edit(result.path)
  end)
end

return M
