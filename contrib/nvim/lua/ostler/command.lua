--- `:Ostler VERB …`, and what completes it.
local client = require('ostler.client')
local words = require('ostler.words')

local M = {}

--- How long a press of Tab may take.
local PATIENCE = 300

local function fail(text)
  client.say(text, vim.log.levels.ERROR)
end

--- Sits down before a job's terminal, in a terminal of Neovim's.
---@param id string
function M.attach(id)
  local program = require('ostler').config.cmd[1]
  local root = client.root()
  local session = client.now(2000)
  -- A bare id is of Neovim's session, and the command line has its own.
  if session and not id:find('/') and not id:find('^proc_') then
    id = client.session(session).id .. '/' .. id
  end
  vim.cmd('botright new')
  vim.fn.jobstart({ program, 'attach', id }, { term = true, cwd = root })
  vim.cmd.startinsert()
end

--- Texts for each job that were typed before the last one was taken: requests are served side by side, and what is typed
--- later must not come earlier.
---@type table<string, string[]>
local typed = {}

table.insert(client.gone, function()
  typed = {}
end)

local function send_next(id)
  local text = typed[id] and table.remove(typed[id], 1)
  if not text then
    typed[id] = nil
    return
  end
  local asked = client.execute('send', { id, text }, function(written)
    if not written.complete then
      fail(('%s took %d bytes only%s'):format(id, written.bytes, written.closed and ': its input is closed' or ''))
    end
    send_next(id)
  end, function(err)
    typed[id] = nil
    fail(client.words(err))
  end)
  if not asked then
    typed[id] = nil
  end
end

--- Types into a job, as it is.
---@param id string
---@param text string
function M.send(id, text)
  if typed[id] then
    table.insert(typed[id], text)
    return
  end
  typed[id] = { text }
  send_next(id)
end

--- The same with a line that is asked for.
---@param id string
function M.ask_and_send(id)
  vim.ui.input({ prompt = 'line for ' .. id .. ': ' }, function(line)
    if line then
      M.send(id, line .. '\n')
    end
  end)
end

--- What each verb does with its words. `ids`: they are ids, and complete as such.
local verbs = {}

verbs.start = {
  line = true,
  run = function(line)
    client.execute('start', { line }, function(row, of)
      local name = words.titled(row, client.session(of))
      if row.state == 'exited' and row.outcome ~= 'exited' then
        fail(('%s %s'):format(name, words.state(row)))
      else
        client.say(('%s %s: %s'):format(name, words.state(row), line))
      end
    end)
  end,
}

verbs.run = {
  line = true,
  run = function(line)
    client.execute('run', { line }, function(result, of)
      local name = words.label(result, client.session(of))
      local level = result.ok == true and vim.log.levels.INFO or vim.log.levels.WARN
      client.say(('%s %s: %s'):format(name, words.state(result), line), level)
      if result.ok ~= true then
        require('ostler.tail').open(name)
      end
    end)
  end,
}

verbs.list = {
  run = function(rest)
    require('ostler.list').open(rest[1] == 'all')
  end,
  complete = { 'all' },
}

verbs.tail = {
  ids = 'one',
  run = function(ids)
    require('ostler.tail').open(ids[1])
  end,
}

verbs.attach = {
  ids = 'one',
  run = function(ids)
    M.attach(ids[1])
  end,
}

verbs.stop = {
  ids = 'many',
  run = function(ids)
    client.execute('stop', ids, function(summary, of)
      for _, receipt in ipairs(summary.jobs) do
        local name = words.titled(receipt.row, client.session(of))
        if receipt.survivors and #receipt.survivors > 0 then
          fail(('%s not ended: %d processes are left'):format(name, #receipt.survivors))
        elseif receipt.alreadyFinished then
          client.say(('%s was over: %s'):format(name, words.state(receipt.row)))
        else
          client.say(('%s stopped, %d processes'):format(name, receipt.ended))
        end
      end
      for _, id in ipairs(summary.unknown or {}) do
        fail('no job ' .. id)
      end
    end)
  end,
}

verbs.send = {
  ids = 'first',
  run = function(_, rest, bang)
    local id, text = rest:match('^(%S+)%s(.*)$')
    if not id then
      return fail('send needs an id and a text: :Ostler send web y')
    end
    M.send(id, bang and text or text .. '\n')
  end,
}

local function names()
  local all = vim.tbl_keys(verbs)
  table.sort(all)
  return all
end

--- Runs what was typed.
---@param args table as Neovim hands it to a command
function M.run(args)
  local verb, rest = args.args:match('^%s*(%S*)%s*(.-)%s*$')
  if verb == '' then
    verb = 'list'
  end
  local found = verbs[verb]
  if not found then
    return fail(('no verb %s: %s'):format(verb, table.concat(names(), ', ')))
  end
  if found.line then
    if rest == '' then
      return fail(('%s needs a line: :Ostler %s npm run dev'):format(verb, verb))
    end
    return found.run(rest)
  end
  local all = vim.split(rest, '%s+', { trimempty = true })
  if found.ids and #all == 0 then
    return fail(('%s needs an id; :Ostler list has them'):format(verb))
  end
  if found.ids == 'one' and #all > 1 then
    return fail(('%s takes one id'):format(verb))
  end
  found.run(all, rest, args.bang)
end

--- Ids and names of jobs, the live ones first.
local function ids()
  local of = client.now(PATIENCE)
  local answer = of and of:request_sync('job/list', { root = client.root() }, PATIENCE)
  if not (answer and answer.result) then
    return {}
  end
  local found = {}
  for _, row in ipairs(answer.result.jobs) do
    table.insert(found, words.label(row, client.session(of)))
    if words.there(row.name) and row.session.id == client.session(of).id then
      table.insert(found, row.name)
    end
  end
  return found
end

--- Completes verbs, and ids where they stand.
---@param lead string
---@param line string
---@return string[]
function M.complete(lead, line)
  local given = vim.split(line, '%s+')
  local known
  if #given <= 2 then
    known = names()
  else
    local verb = verbs[given[2]] or {}
    local place = #given - 2
    if verb.ids and (verb.ids == 'many' or place == 1) then
      known = ids()
    else
      known = verb.complete or {}
    end
  end
  return vim.tbl_filter(function(word)
    return vim.startswith(word, lead)
  end, known)
end

return M
