-- Defines :Ostler. Everything else is loaded when it is first typed.
if vim.g.loaded_ostler then
  return
end
vim.g.loaded_ostler = true

vim.api.nvim_create_user_command('Ostler', function(args)
  require('ostler.command').run(args)
end, {
  nargs = '*',
  bang = true,
  desc = 'Background jobs of ostler',
  complete = function(lead, line)
    return require('ostler.command').complete(lead, line)
  end,
})
