-- Plays a person in Neovim: `nvim --clean --headless -l neovim.lua PLUGIN SCENE [WORD]...`. Ends with a code that is not 0 when
-- something is not as it should be.
local plugin, scene = arg[1], arg[2]
local words = vim.list_slice(arg, 3)
local puppet = vim.env.PUPPET

vim.opt.runtimepath:append(plugin)
vim.cmd.runtime('plugin/ostler.lua')
vim.o.columns, vim.o.lines = 120, 40

local said = {}
vim.notify = function(text)
  table.insert(said, text)
end

local function lines()
  return vim.api.nvim_buf_get_lines(0, 0, -1, false)
end

local function text()
  return table.concat(lines(), '\n')
end

local function await(what, is)
  if not vim.wait(20000, is, 5) then
    error(('%s did not come\nsaid: %s\nbuffer %s:\n%s'):format(what, vim.inspect(said), vim.api.nvim_buf_get_name(0), text()), 0)
  end
end

local function told(pattern)
  await('"' .. pattern .. '"', function()
    return vim.iter(said):any(function(line)
      return line:find(pattern) ~= nil
    end)
  end)
end

local function shows(pattern)
  await('a buffer with "' .. pattern .. '"', function()
    return text():find(pattern) ~= nil
  end)
end

local function equal(a, b)
  if not vim.deep_equal(a, b) then
    error(('%s is not %s'):format(vim.inspect(a), vim.inspect(b)), 2)
  end
end

local function press(keys)
  vim.api.nvim_feedkeys(vim.keycode(keys), 'xt', false)
end

local function complete(line)
  return vim.fn.getcompletion(line, 'cmdline')
end

local scenes = {}

-- A server: started, seen in the list, followed, stopped.
function scenes.server()
  vim.cmd('Ostler start exec ' .. puppet .. ' say ready , sleep')
  told('^ostler: t1 running: exec ')
  vim.cmd('Ostler')
  shows('t1 +running')
  equal(vim.bo.filetype, 'ostler-list')
  vim.cmd('Ostler start echo second')
  -- It is kept up to date.
  shows('t2 +exited 0 ')
  vim.fn.search('^t1')
  press('<CR>')
  equal(vim.bo.filetype, 'ostler-tail')
  shows('ready')
  press('S')
  shows('%[t1 stopped%]')
  press('q')
  shows('t1 +stopped')
  press('q')
  equal(vim.fn.bufnr('ostler://jobs'), -1)
end

-- A job of the command line of the same project: found by completion, typed into, followed while it prints.
function scenes.other()
  equal(complete('Ostler ta'), { 'tail' })
  equal(complete('Ostler tail '), { 'f/t1' })
  equal(complete('Ostler send f/t1 '), {})
  equal(complete('Ostler list '), { 'all' })
  vim.cmd('Ostler tail f/t1')
  shows('ready')
  vim.cmd('Ostler send f/t1 hello  there')
  shows('\nhello  there')
  vim.cmd('Ostler! send f/t1 no enter')
  vim.cmd('Ostler send f/t1 .')
  shows('\nno enter%.')
  -- Who looks further up stays there, who is at the end follows.
  equal(vim.api.nvim_win_get_cursor(0)[1], #lines())
  vim.api.nvim_win_set_cursor(0, { 1, 0 })
  vim.cmd('Ostler send f/t1 more')
  shows('\nmore')
  equal(vim.api.nvim_win_get_cursor(0)[1], 1)
  -- The same buffer, not a second one.
  vim.cmd('Ostler tail f/t1')
  equal(#vim.fn.win_findbuf(vim.api.nvim_get_current_buf()), 1)
  vim.cmd('Ostler stop f/t1')
  told('^ostler: f/t1 %(web%) stopped, 1 processes')
  shows('%[f/t1 stopped%]')
end

-- Progress, and how a run ends.
function scenes.run()
  local kinds = {}
  vim.api.nvim_create_autocmd('LspProgress', {
    callback = function(event)
      table.insert(kinds, event.data.params.value.kind)
    end,
  })
  vim.cmd('Ostler run exec ' .. puppet .. ' say middle , await ' .. words[1] .. ' , sayerr broken , exit 3')
  await('its last line', function()
    return require('ostler').status():find('^run: exec .*: middle$') ~= nil
  end)
  vim.fn.writefile({}, words[1], 'a')
  told('^ostler: t1 exited 3: exec ')
  shows('broken\n%[t1 exited 3%]')
  await('the end of the progress', function()
    return vim.list_contains(kinds, 'end')
  end)
  equal(kinds[1], 'begin')
  equal(require('ostler').status(), '')
  vim.cmd('Ostler run true')
  told('^ostler: t2 exited 0: true')
end

-- Its own end of the bridge dies: that is said where somebody follows, and the next command has a new one.
function scenes.bridge()
  vim.cmd('Ostler start exec ' .. puppet .. ' say here , sleep')
  told('^ostler: t1 running')
  vim.cmd('Ostler tail t1')
  shows('here')
  local client = vim.lsp.get_clients({ name = 'ostler' })[1]
  client:stop(true)
  shows('%[ostler lsp ended%]')
  vim.cmd('bwipeout')
  await('the end of the client', function()
    return #vim.lsp.get_clients({ name = 'ostler' }) == 0
  end)
  vim.cmd('Ostler tail t1')
  shows('here')
end

-- What is wrong is said.
function scenes.wrong()
  vim.cmd('Ostler fly')
  told('no verb fly: attach, list, run, send, start, stop, tail$')
  vim.cmd('Ostler start')
  told('start needs a line')
  vim.cmd('Ostler stop')
  told('stop needs an id')
  vim.cmd('Ostler send web')
  told('send needs an id and a text')
  vim.cmd('Ostler stop t9')
  told('no job t9 in this session %(ostler ls%)')
  vim.cmd('Ostler tail t9')
  shows('%[no job t9 in this session %(ostler ls%)%]')
  equal(pcall(require('ostler').setup, { colour = 'red' }), false)
  equal(pcall(require('ostler').setup, { lines = 'many' }), false)
  require('ostler').setup({ cmd = { 'no-such-ostler', 'lsp' } })
  vim.cmd('Ostler start true')
  told('no program "no%-such%-ostler"')
end

-- Two jobs, one of them a run; then it waits to be killed.
function scenes.killed()
  vim.cmd('Ostler start exec ' .. puppet .. ' sleep')
  told('^ostler: t1 running')
  vim.cmd('Ostler run exec ' .. puppet .. ' say up , sleep')
  await('the run', function()
    return require('ostler').status():find(': up$') ~= nil
  end)
  io.stdout:write('ready\n')
  io.stdout:flush()
  vim.wait(120000)
end

-- A window that is opened again.
function scenes.again()
  vim.cmd('Ostler list')
  shows('t1 +running')
end

-- A terminal of a job, in one of Neovim's.
function scenes.attach()
  vim.cmd('Ostler attach f/t1')
  shows('ready')
  vim.fn.chansend(vim.bo.channel, 'typed\r')
  shows('typed')
  vim.cmd('bwipeout!')
end

-- A supervisor that is replaced is not noticed.
function scenes.replaced()
  vim.cmd('Ostler start exec ' .. puppet .. ' say one , await ' .. words[1] .. ' , say two , sleep')
  told('^ostler: t1 running')
  vim.cmd('Ostler tail t1')
  shows('one')
  io.stdout:write('ready\n')
  io.stdout:flush()
  shows('one\ntwo$')
end

scenes[scene]()
-- As a person leaves it: its clients are shut down.
vim.cmd('qall!')
