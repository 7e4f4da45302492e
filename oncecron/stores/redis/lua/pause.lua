-- after shared
-- Pause a key or all keys (`*`), drain a host, or end that: one field of one hash. Returns the new value and the old one.
local name, field = shared.pauses, given.key
if given.drained then name, field = shared.drains, given.drained end

local before = redis.call('HGET', name, field)
before = in_force(before) and before or ''
if not given.author then
  redis.call('HDEL', name, field)
  return {'', before}
end
local present = cjson.encode({author = given.author, reason = given.reason, at = seconds(now),
  ['until'] = given.seconds and seconds(now + given.seconds)})
record_version()
redis.call('HSET', name, field, present)
return {present, before}
