--- Background jobs in Neovim: commands, dev servers and shells that outlive a window, shared with the command line.
---
---   command   what is typed: :Ostler and its completion
---   list      a buffer with the jobs of this project, and keys for them
---   tail      a buffer that follows a job
---   client    `ostler lsp` as an LSP client: requests, streams, progress
local M = {}

--- What can be set; see |ostler-setup|.
---@class ostler.Config
---@field cmd string[] the program, and how it speaks with an editor
---@field root string|nil folder of the project; found by its .git, .jj or .hg when absent
---@field keep boolean jobs stay when Neovim is gone, not only for five minutes
---@field progress boolean show what jobs print last at the bottom of the screen
---@field lines integer lines of a job that a new tail begins with
---@field scrollback integer lines that a tail keeps
M.config = {
  cmd = { 'ostler', 'lsp' },
  root = nil,
  keep = false,
  progress = true,
  lines = 200,
  scrollback = 10000,
}

--- Changes the configuration. Not needed for the defaults.
---@param config ostler.Config|nil
function M.setup(config)
  local known = vim.tbl_extend('keep', { root = '' }, M.config)
  for name, value in pairs(config or {}) do
    if known[name] == nil then
      error(('ostler: no setting %q; :help ostler-setup has them all'):format(name))
    end
    vim.validate(name, value, type(known[name]))
  end
  M.config = vim.tbl_extend('force', M.config, config or {})
end

--- What the last command with progress is doing, for a status line; empty when there is none.
---@return string
function M.status()
  return require('ostler.client').status
end

--- Starts a line for a shell in the background.
---@param line string
---@param done fun(row: table)|nil called with the job
function M.start(line, done)
  require('ostler.client').execute('start', { line }, done)
end

--- Runs a line for a shell; it ends with Neovim.
---@param line string
---@param done fun(result: table)|nil called with its result
function M.run(line, done)
  require('ostler.client').execute('run', { line }, done)
end

--- Stops jobs, by ids or names.
---@param ids string[]
---@param done fun(summary: table)|nil
function M.stop(ids, done)
  require('ostler.client').execute('stop', ids, done)
end

--- Types into a job, as it is, behind what was typed before.
---@param id string
---@param text string
function M.send(id, text)
  require('ostler.command').send(id, text)
end

return M
