-- after shared
-- Pause a key or all keys (`*`), drain a host, or end that: one field of one hash. Returns the new value and the old one.
local name, field = shared.pauses, given.key
if given.drained then name, field = shared.drains, given.drained end

local known = redis.call('HGET', name, field)
local before, last = in_force(known) and known or '', known and cjson.decode(known)
if not given.author then
  if last then end_pause(name, field, last) end
  return {'', before}
end
local present = cjson.encode({author = given.author, reason = given.reason, at = seconds(now), past = last and past_with(last),
  ['until'] = given.seconds and seconds(now + given.seconds)})
record_version()
redis.call('HSET', name, field, present)
return {present, before}
