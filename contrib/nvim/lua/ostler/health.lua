--- `:checkhealth ostler`
local M = {}

function M.check()
  local health = vim.health
  health.start('ostler')
  if vim.fn.has('nvim-0.11') == 0 then
    health.error('Neovim 0.11 or newer is needed')
  end
  local program = require('ostler').config.cmd[1]
  if vim.fn.executable(program) == 0 then
    health.error(('no program %q'):format(program), 'put it on your PATH, or set cmd in require("ostler").setup')
    return
  end
  local version = vim.system({ program, '--version' }, { text = true }):wait(5000)
  health.ok(vim.trim(version.stdout or ''))
  -- It changes nothing, and needs no supervisor.
  local doctor = vim.system({ program, 'doctor' }, { text = true }):wait(10000)
  local tell = doctor.code == 0 and health.ok or health.error
  tell(vim.trim((doctor.stdout or '') .. (doctor.stderr or '')))
end

return M
