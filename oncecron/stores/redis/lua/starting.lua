-- What a grant and a retry have in common: the start of an execution.

local function forget_ended_pauses(key)
  for _, name in ipairs({key, '*'}) do
    local text = redis.call('HGET', shared.pauses, name)
    if text and not in_force(text) then redis.call('HDEL', shared.pauses, name) end
  end
end

-- Insert an execution that starts now, with the next token, and write its start on the key.
local function start(told, key, attempt, cause)
  local row = row_of(told)
  row.exit_code, row.signal, row.finished_at, row.duration, row.lost_reason, row.request, row.requested_by = nil
  row.attempt, row.owner_attempt, row.outcome, row.started_at = attempt, attempt, 'running', seconds(now)
  row.fencing_token = next_token(key.fence)
  row.cause = cause
  local id = insert_execution(row)
  redis.call('HDEL', own.key, 'previous_start', 'previous_lateness')
  set(own.key, {fence = row.fencing_token, running = id, last_execution_id = id, last_start = row.started_at,
    last_lateness = seconds(row.fired_at % 60), previous_start = key.last_start, previous_lateness = key.last_lateness})
  forget_ended_pauses(row.key)
  return id, row
end

local function granted(id, row)
  return {answer = 'lease', execution_id = id, attempt = row.attempt, fencing_token = row.fencing_token,
    started_at = row.started_at, cause = row.cause, now = seconds(now), due = redis.call('ZRANGE', shared.parts, 0, 0)[1]}
end
