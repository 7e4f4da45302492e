-- after shared fitness facts starting
-- Grant (key, tick) if nothing has changed since the look. Returns names and values in turn ('changed': look again), or
-- 'late TIME'.
if is_late() then return 'late ' .. seconds(now) end

-- Whatever was decided: one lease for a part, one running execution, and each attempt of a tick once.
local function is_taken(key)
  if redis.call('EXISTS', own.lease) == 1 or key.running then return true end
  local newest = newest_of(own, given.tick)
  return newest and tonumber(newest.attempt) >= tonumber(given.attempt)
end

-- What the key is expected to run by from now on, if the firing has a schedule.
local function expectation(key)
  if not given.schedule then return {} end
  local shards = given.shards or '1'
  local same = key.schedule == given.schedule and key.zone == given.zone and key.expected_shards == shards
    and not is_ahead(key.expected_since)
  redis.call('HDEL', own.key, 'zone', 'starting_deadline')
  return {schedule = given.schedule, zone = given.zone, expected_shards = shards,
    starting_deadline = given.expected_within, expected_since = same and key.expected_since or seconds(now)}
end

local function grant(key)
  given.place = (execution(given.follows) or {}).place
  local id, row = start(given, key, given.attempt, given.cause)
  grant_lease(id, row)
  local marks = expectation(key)
  if is_new_mark(given.tick_instant, key) then marks.high_water = given.tick_instant end
  if next(marks) then set(own.key, marks) end
  divide(row)
  if tonumber(given.ttl) > tonumber(redis.call('HGET', shared.namespace, 'largest_ttl') or 0) then
    set(shared.namespace, {largest_ttl = given.ttl})
  end
  see()
  notify('granted')
  return granted(id, row)
end

local key = hash(own.key)
if version_of(facts(hash(shared.namespace))) ~= given.if_version or is_taken(key) then return {'answer', 'changed'} end
local wrong = has_wrong_settings()
if wrong then return flat(wrong) end
if is_recovering() then return {'answer', 'changed'} end
register() -- the first write: a full memory refuses it, and with it the claim
return flat(grant(key))
