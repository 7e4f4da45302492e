-- after shared
-- Count a skip that the store did not decide, or a plain one: then the word is added to those of its host and window.
register()
if given.word then
  local words = redis.call('HGET', own.plain_rows, given.window)
  redis.call('HSET', own.plain_rows, given.window, (words or '') .. given.word)
  redis.call('ZADD', own.plain, 'GT', seconds(now), given.window)
else
  count_skip(given)
end
if given.oncecron then see(0, 1) end
return 1
