-- after shared
-- Write what a channel was notified of, if its version is still the given one. Returns whether it was; nil: there are too many.
-- KEYS has the name behind those of the namespace:
--
--   notices  hash  channel -> "VERSION:DOCUMENT": what `oncecron notify` has notified it of
local notices = KEYS[own_at]
local before = redis.call('HGET', notices, given.channel)
local version = before and string.match(before, '^(%d+):') or '0'
if version ~= given.version then return 0 end
if not before and redis.call('HLEN', notices) >= tonumber(given.most) then return nil end
record_version()
redis.call('HSET', notices, given.channel, whole(version + 1) .. ':' .. given.document)
return 1
