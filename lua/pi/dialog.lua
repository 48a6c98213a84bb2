--- The questions that all panels ask in the same way. Leaving one without an answer changes nothing.
local M = {}

--- Lets the person choose one of some words; `done` is only called with an answer.
---@param prompt string
---@param choices string[]
---@param done fun(choice: string, index: integer)
function M.choose(prompt, choices, done)
  vim.ui.select(choices, { prompt = prompt, kind = 'pi.confirm' }, function(choice, index)
    if choice and index then
      done(choice, index)
    end
  end)
end

--- Asks before something that cannot simply be taken back: the way out stands first.
---@param prompt string
---@param yes string what is done
---@param no string what stays
---@param done fun()
function M.confirm(prompt, yes, no, done)
  M.choose(prompt, { no, yes }, function(choice)
    if choice == yes then
      done()
    end
  end)
end

--- Asks for a line of text; an empty one is an answer, leaving is none.
---@param prompt string
---@param default string?
---@param done fun(text: string)
function M.line(prompt, default, done)
  vim.ui.input({ prompt = prompt, default = default }, function(text)
    if text then
      done(text)
    end
  end)
end

--- Asks for a line of text that is not empty.
---@param prompt string
---@param default string?
---@param done fun(text: string)
function M.words(prompt, default, done)
  M.line(prompt, default, function(text)
    text = vim.trim(text)
    if text ~= '' then
      done(text)
    end
  end)
end

return M
