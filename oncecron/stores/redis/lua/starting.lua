-- What a grant and a retry have in common: the start of an execution.

-- One that has ended by itself does not come back when the clock is set back.
local function end_stops(key, host)
  for _, each in ipairs(stops_of(key, host)) do
    local text = redis.call('HGET', each[2], each[3])
    local stop = text and cjson.decode(text)
    if stop and tonumber(stop['until'] or 0) > 0 and not in_force(text) then end_pause(each[2], each[3], stop) end
  end
end

-- Whether the clock was set back since the newest start, by a day at most: else it was wrong before, and the order begins anew.
-- Reports rely on it: only what is late started before an execution with a lower id.
local function is_out_of_order()
  local back = (tonumber(redis.call('HGET', shared.namespace, 'newest_start')) or 0) - now
  if back > 0 and back <= 86400 then return true end
  redis.call('HSET', shared.namespace, 'newest_start', seconds(now))
end

-- Insert an execution that starts now, with the next token, and write its start on the key.
local function start(told, key, attempt, cause)
  local row = row_of(told)
  row.exit_code, row.signal, row.finished_at, row.duration, row.lost_reason, row.request, row.requested_by = nil
  row.attempt, row.owner_attempt, row.outcome, row.started_at = attempt, attempt, 'running', seconds(now)
  row.fencing_token = next_token(key.fence)
  row.cause, row.late = cause, is_out_of_order() and 'yes' or nil
  local id = insert_execution(row)
  redis.call('HDEL', own.key, 'previous_start', 'previous_lateness')
  set(own.key, {fence = row.fencing_token, running = id, last_execution_id = id, last_start = row.started_at,
    last_lateness = seconds(row.fired_at % 60), previous_start = key.last_start, previous_lateness = key.last_lateness})
  end_stops(row.key, row.host)
  return id, row
end

local function granted(id, row)
  return {answer = 'lease', execution_id = id, attempt = row.attempt, fencing_token = row.fencing_token,
    started_at = row.started_at, cause = row.cause, place = row.place, now = seconds(now), due = redis.call('ZRANGE', shared.parts, 0, 0)[1]}
end
