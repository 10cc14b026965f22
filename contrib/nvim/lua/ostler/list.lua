--- A buffer with the jobs of this project, kept up to date while it is shown, and keys for the one under the cursor.
local client = require('ostler.client')
local words = require('ostler.words')

local M = {}

local NAME = 'ostler://jobs'
--- Events come in bursts; one look is enough for each.
local PAUSE = 50

local HELP = 'Enter follow   S stop   a attach   i type a line   R refresh   q close'

--- What is shown: the rows in their order, and whose jobs.
local shown = { rows = {}, params = {}, session = {} }

--- Columns of text, each as wide as its widest cell.
local function columns(table_of_cells)
  local widths = {}
  for _, cells in ipairs(table_of_cells) do
    for i, cell in ipairs(cells) do
      widths[i] = math.max(widths[i] or 0, vim.fn.strdisplaywidth(cell))
    end
  end
  return vim.tbl_map(function(cells)
    local line = {}
    for i, cell in ipairs(cells) do
      local pad = i < #cells and widths[i] - vim.fn.strdisplaywidth(cell) or 0
      table.insert(line, cell .. (' '):rep(pad))
    end
    return table.concat(line, '  ')
  end, table_of_cells)
end

local function render(buffer)
  local cells = { { 'ID', 'NAME', 'STATE', 'AGE', 'COMMAND' } }
  local now = os.time() * 1000
  for _, row in ipairs(shown.rows) do
    table.insert(cells, {
      words.label(row, shown.session),
      words.there(row.name) and row.name or '',
      words.state(row),
      words.age(now - row.startedAt),
      words.command(row),
    })
  end
  local lines = columns(cells)
  if #shown.rows == 0 then
    table.insert(lines, 'no jobs: :Ostler start npm run dev')
  end
  table.insert(lines, '')
  table.insert(lines, HELP)
  vim.bo[buffer].modifiable = true
  vim.api.nvim_buf_set_lines(buffer, 0, -1, false, lines)
  vim.bo[buffer].modifiable = false
  vim.bo[buffer].modified = false
end

--- Job under the cursor.
local function current()
  return shown.rows[vim.api.nvim_win_get_cursor(0)[1] - 1]
end

local function refresh(buffer)
  client.request('job/list', shown.params, function(result, of)
    if not vim.api.nvim_buf_is_valid(buffer) then
      return
    end
    shown.rows, shown.session = result.jobs, client.session(of)
    render(buffer)
  end)
end

--- Looks again whenever something happens to a job.
local function watch(buffer)
  local due = false
  return client.stream('session/watch', { all = true }, function()
    if due then
      return
    end
    due = true
    vim.defer_fn(function()
      due = false
      if vim.api.nvim_buf_is_valid(buffer) then
        refresh(buffer)
      end
    end, PAUSE)
  end, function() end)
end

local function keys(buffer)
  local function key(lhs, desc, act)
    vim.keymap.set('n', lhs, function()
      local row = current()
      if row then
        act(row)
      end
    end, { buffer = buffer, desc = desc, nowait = true })
  end
  key('<cr>', 'follow the job', function(row)
    require('ostler.tail').open(words.label(row, shown.session))
  end)
  key('S', 'stop the job', function(row)
    client.execute('stop', { row.processId })
  end)
  key('a', 'sit down before its terminal', function(row)
    require('ostler.command').attach(row.processId)
  end)
  key('i', 'type a line into the job', function(row)
    require('ostler.command').ask_and_send(row.processId)
  end)
  vim.keymap.set('n', 'R', function()
    refresh(buffer)
  end, { buffer = buffer, desc = 'refresh', nowait = true })
  vim.keymap.set('n', 'q', '<cmd>bwipeout<cr>', { buffer = buffer, desc = 'close', nowait = true })
end

--- Shows the jobs of this project, or all of the user.
---@param all boolean
function M.open(all)
  shown.params = all and { all = true } or { root = client.root() }
  local buffer = vim.fn.bufnr('^' .. NAME .. '$')
  if buffer ~= -1 then
    local window = vim.fn.win_findbuf(buffer)[1]
    if window then
      vim.api.nvim_set_current_win(window)
      refresh(buffer)
      return
    end
    vim.api.nvim_buf_delete(buffer, { force = true })
  end
  vim.cmd('botright split')
  buffer = vim.api.nvim_create_buf(false, true)
  vim.api.nvim_win_set_buf(0, buffer)
  vim.api.nvim_buf_set_name(buffer, NAME)
  vim.bo[buffer].bufhidden = 'wipe'
  vim.bo[buffer].filetype = 'ostler-list'
  vim.bo[buffer].modifiable = false
  vim.wo[0][0].cursorline = true
  vim.wo[0][0].wrap = false
  keys(buffer)
  -- The watch begins with a word of its own, so that the first list comes by itself.
  local stop = watch(buffer)
  vim.api.nvim_create_autocmd('BufWipeout', { buffer = buffer, once = true, callback = stop })
end

return M
