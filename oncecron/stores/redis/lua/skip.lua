-- after shared
-- Count a skip that the store did not decide, or a plain one: then the word is added to those of its host and window. 0: what is
-- known of the host is no longer what was looked at, and nothing was written.
if given.presence and presence() ~= given.presence_before then return 0 end
register()
if given.word then
  local words = redis.call('HGET', own.plain_rows, given.window)
  redis.call('HSET', own.plain_rows, given.window, (words or '') .. given.word)
  redis.call('ZADD', own.plain, 'GT', seconds(now), given.window)
else
  count_skip(given)
end
if given.presence then see() end
return 1
