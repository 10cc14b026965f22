--- A buffer that follows what a job prints. Wiping it out ends the stream and touches no job.
local client = require('ostler.client')
local words = require('ostler.words')

local M = {}

--- Windows that show the end of a buffer, and are to go on doing so.
local function at_end(buffer)
  local last = vim.api.nvim_buf_line_count(buffer)
  return vim.tbl_filter(function(window)
    return vim.api.nvim_win_get_cursor(window)[1] >= last
  end, vim.fn.win_findbuf(buffer))
end

--- Adds lines at the end, and drops the oldest beyond what is kept.
local function append(buffer, lines)
  if not vim.api.nvim_buf_is_valid(buffer) then
    return
  end
  local following = at_end(buffer)
  local is_fresh = vim.api.nvim_buf_line_count(buffer) == 1 and vim.api.nvim_buf_get_lines(buffer, 0, 1, false)[1] == ''
  vim.bo[buffer].modifiable = true
  vim.api.nvim_buf_set_lines(buffer, is_fresh and 0 or -1, -1, false, lines)
  local count = vim.api.nvim_buf_line_count(buffer)
  local over = count - require('ostler').config.scrollback
  if over > 0 then
    vim.api.nvim_buf_set_lines(buffer, 0, over, false, {})
    count = count - over
  end
  vim.bo[buffer].modifiable = false
  vim.bo[buffer].modified = false
  for _, window in ipairs(following) do
    vim.api.nvim_win_set_cursor(window, { count, 0 })
  end
end

--- Whole lines of a page; a `plain` tail tells no others, but for the last one.
local function lines_of(page)
  local text = page.text or ''
  local lines = vim.split(text, '\n', { plain = true })
  if lines[#lines] == '' then
    table.remove(lines)
  end
  if page.lost and page.lost > 0 then
    table.insert(lines, 1, ('[%d bytes were lost here]'):format(page.lost))
  end
  return lines
end

local function show(name)
  local buffer = vim.fn.bufnr('^' .. vim.fn.escape(name, '[]*?\\') .. '$')
  if buffer ~= -1 then
    local window = vim.fn.win_findbuf(buffer)[1]
    if window then
      vim.api.nvim_set_current_win(window)
    else
      vim.cmd.sbuffer(buffer)
    end
    return buffer, true
  end
  vim.cmd('botright split')
  buffer = vim.api.nvim_create_buf(false, true)
  vim.api.nvim_win_set_buf(0, buffer)
  vim.api.nvim_buf_set_name(buffer, name)
  vim.bo[buffer].bufhidden = 'wipe'
  vim.bo[buffer].filetype = 'ostler-tail'
  vim.bo[buffer].modifiable = false
  return buffer, false
end

--- Follows a job in a buffer of its own.
---@param id string id, name or process id
function M.open(id)
  local root = client.root()
  local name = ('ostler://%s/%s'):format(vim.fs.basename(root), id)
  local buffer, known = show(name)
  if known and vim.b[buffer].ostler_follows then
    return
  end
  vim.b[buffer].ostler_follows = true
  local params = { id = id, follow = true, plain = true, lines = require('ostler').config.lines }
  local stop = client.stream('job/tail', params, function(value)
    if value.page then
      append(buffer, lines_of(value.page))
    end
  end, function(err, result)
    if not vim.api.nvim_buf_is_valid(buffer) then
      return
    end
    vim.b[buffer].ostler_follows = false
    if err then
      append(buffer, { '[' .. client.words(err) .. ']' })
    else
      append(buffer, { ('[%s %s]'):format(id, words.state(result.row)) })
    end
  end)
  vim.api.nvim_create_autocmd('BufWipeout', { buffer = buffer, once = true, callback = stop })
  local function key(keys, what, desc)
    vim.keymap.set('n', keys, what, { buffer = buffer, desc = desc, nowait = true })
  end
  key('q', '<cmd>bwipeout<cr>', 'close; the job goes on')
  key('S', function()
    client.execute('stop', { id })
  end, 'stop the job')
  key('i', function()
    require('ostler.command').ask_and_send(id)
  end, 'type a line into the job')
end

return M
