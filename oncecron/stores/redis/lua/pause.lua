-- Pause a key or all keys (`*`), drain a host, or end that: one field of one hash. Returns the new value and the old one.
local name, field = shared.pauses, given.key
if given.drained then name, field = shared.drains, given.drained end

local function living(text)
  local ends = text and cjson.decode(text)['until']
  return text and not (ends and tonumber(ends) <= now) and text or ''
end

local before = living(redis.call('HGET', name, field))
if not given.author then
  redis.call('HDEL', name, field)
  return {'', before}
end
local present = cjson.encode({author = given.author, reason = given.reason, at = seconds(now),
  ['until'] = given.seconds and seconds(now + given.seconds)})
redis.call('HSET', name, field, present)
return {present, before}
