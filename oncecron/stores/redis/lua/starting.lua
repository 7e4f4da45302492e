-- What a claim and a retry have in common: the checks before a start, and the start itself.

local function refused(reason, row, since, detail)
  row = row or {}
  return {answer = 'refused', reason = reason, holder_host = row.host, holder_pid = row.pid, holder_user = row.user,
    since = since or row.started_at, detail = detail}
end

-- A skip that cannot be written, because of memory or rights, never changes the answer.
local function record_refusal(answer, asker)
  pcall(function()
    register()
    count_skip({tick = asker.tick, host = asker.host, reason = answer.reason, pid = asker.pid, detail = answer.detail,
      holder_host = answer.holder_host, holder_pid = answer.holder_pid})
  end)
end

local function stopped_by_people(key, host)
  for _, name in ipairs({key, '*'}) do
    local pause = redis.call('HGET', shared.pauses, name)
    pause = pause and cjson.decode(pause)
    if pause and (not pause['until'] or tonumber(pause['until']) > now) then
      return refused('paused', nil, pause.at, 'by ' .. pause.author .. (pause.reason and ': ' .. pause.reason or ''))
    end
    if pause then redis.call('HDEL', shared.pauses, name) end -- it has ended; a full memory allows a removal
  end
  local drain = redis.call('HGET', shared.drains, host)
  if drain then
    drain = cjson.decode(drain)
    return refused('drained', nil, drain.at, 'by ' .. drain.author)
  end
end

-- Insert an execution that starts now, with the next token, and write its start on the key.
local function start(told, key, attempt, cause)
  local row = row_of(told)
  row.exit_code, row.signal, row.finished_at, row.duration, row.lost_reason, row.request, row.requested_by = nil
  row.attempt, row.owner_attempt, row.outcome, row.started_at = attempt, attempt, 'running', seconds(now)
  row.fencing_token = whole(math.max((key.fence or 0) + 1, microseconds))
  row.cause = cause
  local id = insert_execution(row)
  redis.call('HDEL', own.key, 'previous_start', 'previous_lateness')
  set(own.key, {fence = row.fencing_token, running = id, last_execution_id = id, last_start = row.started_at,
    last_lateness = seconds(row.fired_at % 60), previous_start = key.last_start, previous_lateness = key.last_lateness})
  return id, row
end

local function granted(id, row)
  return {answer = 'lease', execution_id = id, attempt = row.attempt, fencing_token = row.fencing_token,
    started_at = row.started_at, cause = row.cause, now = seconds(now), due = redis.call('ZRANGE', shared.parts, 0, 0)[1]}
end
