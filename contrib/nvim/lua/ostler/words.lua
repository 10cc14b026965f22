--- Words for what is true of a job.
local M = {}

--- Neovim has two ways to say that there is none.
local function there(value)
  return value ~= nil and value ~= vim.NIL
end
M.there = there

--- `running`, `exited 101`, `stopped`.
---@param row table
---@return string
function M.state(row)
  if not there(row.outcome) then
    return row.state
  end
  if row.outcome == 'exited' and there(row.exitCode) then
    return ('exited %d'):format(row.exitCode)
  end
  if row.outcome == 'signaled' and there(row.signal) then
    return 'died of ' .. row.signal
  end
  return (row.outcome:gsub('_', ' '))
end

--- `42s`, `12m`, `3h`.
---@param ms number
---@return string
function M.age(ms)
  local s = math.max(0, math.floor(ms / 1000))
  if s < 60 then
    return s .. 's'
  elseif s < 3600 then
    return math.floor(s / 60) .. 'm'
  elseif s < 172800 then
    return math.floor(s / 3600) .. 'h'
  end
  return math.floor(s / 86400) .. 'd'
end

--- The command as one line; of a line for a shell the line.
---@param row table
---@return string
function M.command(row)
  local args = row.args
  local line = #args == 3 and args[1] == '/bin/sh' and args[2] == '-c' and args[3] or table.concat(args, ' ')
  return (line:gsub('%c', ' '))
end

--- How a job is called here: `t1`, or `claude-7k2/t3` for another session's.
---@param row table
---@param session table of this editor
---@return string
function M.label(row, session)
  if row.session.id == session.id then
    return row.id
  end
  return row.session.name .. '/' .. row.id
end

--- The same with its name.
---@param row table
---@param session table
---@return string
function M.titled(row, session)
  local name = there(row.name) and (' (%s)'):format(row.name) or ''
  return M.label(row, session) .. name
end

return M
