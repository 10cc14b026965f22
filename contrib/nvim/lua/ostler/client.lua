--- `ostler lsp` as an LSP client: one for each project, started with the first thing that is asked of it.
local M = {}

--- What the last command with progress is doing.
M.status = ''

--- Streams that are being told, by their tokens: to whom, by which client, and who is told of the end.
---@type table<string, { tell: fun(value: table), done: fun(err: table|nil), client: integer|nil }>
local streams = {}

--- Called when a client is gone, whose requests nobody answers any more.
---@type fun()[]
M.gone = {}

--- What waits for a client that is on its way, by its id.
---@type table<integer, fun(client: vim.lsp.Client)[]>
local waiting = {}

--- What each work is called, by its token.
---@type table<string|integer, string>
local titles = {}

local tokens = 0

--- Says something to the person.
---@param words string
---@param level integer|nil of vim.log.levels
function M.say(words, level)
  vim.notify('ostler: ' .. words, level or vim.log.levels.INFO)
end

--- What is wrong, with what to do next.
---@param err table error of a request
---@return string
function M.words(err)
  local hint = type(err.data) == 'table' and err.data.hint
  return err.message .. (hint and (' (' .. hint .. ')') or '')
end

--- Folder of the project.
---@return string
function M.root()
  local own = require('ostler').config.root
  local root = own or vim.fs.root(0, { '.git', '.jj', '.hg' }) or vim.fn.getcwd()
  return vim.fs.normalize(root)
end

--- Pages and events go to whoever asked for them, everything else to Neovim, which shows progress.
local function on_progress(err, params, context)
  local stream = streams[params.token]
  if stream then
    stream.tell(params.value)
    return vim.NIL
  end
  local value = params.value
  if type(value) == 'table' and value.kind then
    local words = value.message and (': ' .. value.message) or ''
    titles[params.token] = value.title or titles[params.token]
    M.status = value.kind == 'end' and '' or (titles[params.token] or '') .. words
    if value.kind == 'end' then
      titles[params.token] = nil
    end
    if require('ostler').config.progress then
      local shown = value.kind == 'end' and (value.message or '') or M.status
      local most = math.max(vim.o.columns - 20, 20)
      vim.api.nvim_echo({ { 'ostler: ' .. vim.fn.strcharpart(shown, 0, most) } }, false, {})
    end
  end
  return vim.lsp.handlers['$/progress'](err, params, context)
end

local function start()
  local config = require('ostler').config
  if vim.fn.executable(config.cmd[1]) == 0 then
    M.say(('no program %q: put it on your PATH, or set cmd'):format(config.cmd[1]), vim.log.levels.ERROR)
    return nil
  end
  return vim.lsp.start({
    name = 'ostler',
    cmd = config.cmd,
    root_dir = M.root(),
    init_options = { keep = config.keep },
    handlers = { ['$/progress'] = on_progress },
    on_init = function(client)
      local queue = waiting[client.id] or {}
      waiting[client.id] = nil
      for _, call in ipairs(queue) do
        call(client)
      end
    end,
    on_exit = function(code, _, id)
      waiting[id] = nil
      vim.schedule(function()
        M.status = ''
        for token, stream in pairs(streams) do
          if stream.client == id then
            streams[token] = nil
            stream.done({ message = 'ostler lsp ended' })
          end
        end
        for _, tell in ipairs(M.gone) do
          tell()
        end
        if code ~= 0 then
          M.say(('%s ended with code %d: :checkhealth ostler'):format(table.concat(config.cmd, ' '), code), vim.log.levels.ERROR)
        end
      end)
    end,
  }, { attach = false })
end

--- Calls with the client of this project, when it is there. False: it cannot be started, which was said.
---@param call fun(client: vim.lsp.Client)
---@return boolean
function M.with(call)
  local id = start()
  local client = id and vim.lsp.get_client_by_id(id)
  if not client then
    return false
  end
  if client.initialized then
    call(client)
  else
    waiting[client.id] = waiting[client.id] or {}
    table.insert(waiting[client.id], call)
  end
  return true
end

--- The client of this project if it is there within some milliseconds, for what cannot wait.
---@param patience integer
---@return vim.lsp.Client|nil
function M.now(patience)
  local found
  M.with(function(client)
    found = client
  end)
  vim.wait(patience, function()
    return found ~= nil
  end, 5)
  return found
end

--- The session of Neovim in this project.
---@param client vim.lsp.Client
---@return table session with id and name
function M.session(client)
  local told = client.server_capabilities.experimental
  return told and told.ostler.session or {}
end

--- Asks; what goes wrong is said to the person.
---@param method string
---@param params table
---@param done fun(result: table, client: vim.lsp.Client)|nil
---@param failed fun(err: table)|nil instead of saying it
---@return boolean
function M.request(method, params, done, failed)
  return M.with(function(client)
    client:request(method, params, function(err, result)
      if err then
        if failed then
          failed(err)
        else
          M.say(M.words(err), vim.log.levels.ERROR)
        end
      elseif done then
        done(result, client)
      end
    end)
  end)
end

--- Executes a command of ostler.
---@param verb string without the `ostler.`
---@param arguments table texts, or one table with the fields of the method
---@param done fun(result: table, client: vim.lsp.Client)|nil
---@param failed fun(err: table)|nil instead of saying it
---@return boolean
function M.execute(verb, arguments, done, failed)
  return M.request('workspace/executeCommand', { command = 'ostler.' .. verb, arguments = arguments }, done, failed)
end

--- Asks for a stream. Returns a function that ends it.
---@param method string
---@param params table
---@param tell fun(value: table) called with each value
---@param done fun(err: table|nil, result: table|nil) called at the end
---@return fun()
function M.stream(method, params, tell, done)
  tokens = tokens + 1
  local token = ('ostler-nvim-%d'):format(tokens)
  local over, ended, asked = false, false, nil
  local stream = { tell = tell, done = done }
  streams[token] = stream
  M.with(function(client)
    if over then
      return
    end
    stream.client = client.id
    params.partialResultToken = token
    local _, id = client:request(method, params, function(err, result)
      streams[token], ended = nil, true
      if not over then
        done(err, result)
      end
    end)
    asked = { client = client, id = id }
  end)
  return function()
    over, streams[token] = true, nil
    if asked and asked.id and not ended then
      asked.client:cancel_request(asked.id)
    end
  end
end

return M
