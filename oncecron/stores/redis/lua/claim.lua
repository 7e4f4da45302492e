-- Claim (key, tick), in the numbered steps of oncecron.stores.api. Returns names and values in turn, or 'late TIME'.

-- Seconds until this server may grant. After a restart, or the promotion of a replica, the server may have forgotten a lease.
-- Then no lease is granted until every lease that may have been granted before has expired. `run_id` is the server's process;
-- `promotion` is its last promotion, which the server forgets after a while, and that changes nothing.
local function guarded_for()
  local recorded = hash(shared.namespace)
  local server, replication = info('server'), info('replication')
  local promotion = ''
  if tonumber(replication.second_repl_offset or -1) >= 0 then
    promotion = replication.master_replid2 .. ':' .. replication.second_repl_offset
  end
  local known = recorded.run_id == server.run_id and (promotion == '' or promotion == recorded.promotion)
  if not known then
    if promotion ~= '' then
      recorded.guard_from = seconds(now)
    elseif recorded.run_id or info('persistence').aof_enabled ~= '1' then
      recorded.guard_from = seconds(now - server.uptime_in_seconds + 1)
    else
      recorded.guard_from = '0'
    end
    set(shared.namespace,
      {layout = given.layout, run_id = server.run_id, promotion = promotion, guard_from = recorded.guard_from})
  end
  local largest = math.max(tonumber(recorded.largest_ttl or 0), tonumber(given.ttl))
  return recorded.guard_from + largest - now
end

-- The number of parts of the tick; for a tick before the last eight, from the execution of its first part.
local function divided()
  local shards = division_of(given.key, given.tick, given.shards)
  if shards then return shards end
  local first = other.ticks or own.ticks
  local row = execution(redis.call('HGET', first, given.tick))
  return row and (row.shards or '1')
end

-- 1. Paused or drained; clocks too far apart, or an instant too far ahead; another number of parts.
local function gate()
  local refusal = stopped_by_people(given.key, given.host)
  if refusal then return refusal end
  local off = 0
  if given.rule == 'schedule' or given.rule == 'minute' then
    off = given.host_now - now
  elseif given.rule == 'name' and given.tick_instant then
    off = math.max(0, given.tick_instant - now)
  end
  if math.abs(off) > tonumber(given.max_skew) then return {answer = 'clocks', off = seconds(off)} end
  local shards = given.tick and divided()
  if shards and shards ~= given.shards then return {answer = 'parts', found = shards} end
end

-- 2. A lease that has not expired: `held`, or for another tick perhaps that of a dead holder.
local function blocked_by(lease)
  local row = execution(lease.execution_id) or {}
  local same_tick = given.tick and given.tick == row.tick
  local silent = now - lease.heartbeat_at > 2 * lease.ttl / given.heartbeats
  local answer = refused('held', row)
  answer.execution_id, answer.ends_in, answer.watched = lease.execution_id, seconds(lease.expires_at - now), lease.heartbeat_at
  answer.same_tick = given.tick == row.tick and 'yes' or nil
  if same_tick or not silent then return answer end
  answer.answer, answer.why = 'again', 'orphaned'
  answer.after = seconds(math.min(lease.expires_at - now, lease.ttl / given.heartbeats))
  return answer
end

-- Whether failover takes over after an attempt: its end is unknown, or a retry was to follow.
local function resumes(row)
  local unfollowed = row.retrying and (row.outcome == 'failed' or row.outcome == 'timed-out')
  return given.failover and (row.outcome == 'lost' or unfollowed)
end

-- Of the execution that a firing without a tick has waited for and those without a tick since: the newest that may have started,
-- else the newest.
local function awaited()
  local row = given.failover and execution(given.awaited)
  if not row or row.tick then return end
  local newest, from, entries
  repeat
    entries = redis.call('XREVRANGE', own.log, from or '+', given.awaited .. '-0', 'COUNT', 100)
    for _, entry in ipairs(entries) do
      from = '(' .. entry[1]
      local found = execution(string.match(entry[1], '^%d+'))
      if found and not found.tick then
        if found.outcome ~= 'not-started' then return found end
        newest = newest or found
      end
    end
  until #entries < 100
  return newest
end

-- The newest attempt of the tick that counts; without a tick, what became of the awaited execution.
local function newest()
  if given.tick then return attempt_that_counts(given.tick) end
  return awaited()
end

-- 2. The tick has an execution, or is older than the newest claimed tick; without a tick, the awaited execution has ended.
local function already_ran(key)
  if given.again then return end
  if not given.tick then
    local row = awaited()
    local was_to_end = row and row.outcome ~= 'running' and row.outcome ~= 'not-started' and not resumes(row)
    if was_to_end and (row.outcome ~= 'stopped' or row.requested_by) then return refused('done', row, nil, row.outcome) end
    return
  end
  local row = attempt_that_counts(given.tick)
  if row and row.outcome == 'running' then return end
  local started = row and row.outcome ~= 'not-started'
  if started and not resumes(row) then return refused('done', row, nil, row.outcome) end
  local instant, high_water = tonumber(given.tick_instant), tonumber(key.high_water)
  if instant and high_water and (instant < high_water or instant == high_water and not row) then
    return refused('passed', nil, nil, 'by tick ' .. key.high_water_tick)
  end
  if started and tonumber(row.attempt) > tonumber(given.retries) then return refused('exhausted', row, nil, row.outcome) end
end

-- The attempt that this firing takes over, if it is not a new start.
local function attempt_to_follow()
  if given.again or not given.failover then return end
  local row = newest()
  return row and resumes(row) and row
end

-- 6. The gap, which a takeover ignores, unless another start without a tick came since; and the deadline.
local function is_recent(key, before)
  local gap, last = tonumber(given.min_gap), tonumber(key.last_start)
  local by_itself = before and (given.tick or last and last <= tonumber(before.started_at))
  if gap and last and not given.again and not by_itself then
    local late_in_its_minute = given.rule == 'minute' and tonumber(key.last_lateness) > 60 - gap
    if math.max(0, now - last) < gap and (given.rule == 'none' or late_in_its_minute) then
      return refused('recent', execution(key.last_execution_id), key.last_start)
    end
  end
  local instant, limit = tonumber(given.tick_instant), tonumber(given.starting_deadline)
  if instant and limit and now - instant > limit then return refused('late', nil, given.tick_instant) end
end

-- Whether the newest attempt has no recorded end, or waits for its next one, and its lease has expired.
local function has_unknown_end(lease)
  local row, leased = newest(), execution(lease.execution_id)
  local is_leased = row and leased and leased.owner == row.owner and leased.owner_attempt == row.owner_attempt
  return row and (row.outcome == 'running' or is_leased)
end

-- 7. Granted.
local function grant(key, before)
  local newest = given.tick and execution(redis.call('HGET', own.ticks, given.tick))
  local attempt = whole((newest and newest.attempt or 0) + 1)
  local id, row = start(given, key, attempt, given.again and 'manual' or before and 'takeover' or 'schedule')
  grant_lease(id, row)
  local marks = {schedule = given.schedule, zone = given.zone}
  if given.tick_instant and tonumber(given.tick_instant) > tonumber(key.high_water or '-inf') then
    marks.high_water, marks.high_water_tick = given.tick_instant, given.tick
  end
  redis.call('HDEL', own.key, 'schedule', 'zone')
  if next(marks) then set(own.key, marks) end
  divide(row)
  if tonumber(given.ttl) > tonumber(redis.call('HGET', shared.namespace, 'largest_ttl') or 0) then
    set(shared.namespace, {largest_ttl = given.ttl})
  end
  notify('granted')
  return granted(id, row)
end

local function decide()
  local layout = redis.call('HGET', shared.namespace, 'layout') or given.layout
  if layout ~= given.layout then return {answer = 'wrong', what = 'layout', found = layout} end
  if info('replication').role ~= 'master' then return {answer = 'wrong', what = 'replica'} end
  local lease = hash(own.lease)
  local id, row = execution_of(given.owner) -- 0
  if row then
    local goes_on = row.outcome == 'running' or row.retrying
    if not goes_on or lease.owner ~= given.owner or lease.execution_id ~= id then
      return refused('done', row, nil, row.outcome)
    end
    extend(lease)
    return granted(id, row)
  end
  local refusal = gate() -- 1
  if refusal then return refusal end
  if lease.owner and lease.expires_at - now > tonumber(lease.ttl) then -- 2: the server's clock was set back
    extend(lease)
    lease = hash(own.lease)
  end
  if lease.owner and tonumber(lease.expires_at) > now then return blocked_by(lease) end
  local key = hash(own.key)
  local unknown = has_unknown_end(lease)
  local before = attempt_to_follow()
  refusal = not unknown and (already_ran(key) or is_recent(key, before))
  if refusal then return refusal end
  local wrong = refused_settings()
  if wrong then return wrong end
  local guarded = guarded_for()
  if guarded > 0 then
    return {answer = 'again', why = 'recovering', after = seconds(guarded), ends_in = seconds(guarded)}
  end
  register() -- the first write: a full memory refuses it, and with it the claim
  local lost = take_away('expired', 'its lease ended, found by ' .. given.host) -- 5
  if lost or lease.owner then
    key.fence = whole(math.max((key.fence or 0) + 1, microseconds))
    set(own.key, {fence = key.fence})
  end
  if unknown then
    before = attempt_to_follow()
    refusal = already_ran(key) or is_recent(key, before)
  end
  return refusal or grant(key, before)
end

if is_late() then return 'late ' .. seconds(now) end
local answer = decide()
if answer.answer == 'refused' and not (answer.reason == 'held' and given.awaited) then
  record_refusal(answer, given)
end
return flat(answer)
