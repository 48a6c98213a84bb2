---@meta
-- For the type checker only, never loaded: libuv has no annotations in Neovim's runtime.

---@class uv.uv_timer_t
---@field start fun(self: uv.uv_timer_t, timeout: integer, every: integer, callback: fun())
---@field stop fun(self: uv.uv_timer_t)
---@field close fun(self: uv.uv_timer_t)
---@field is_active fun(self: uv.uv_timer_t): boolean

---@type any
vim.uv = nil
