-- after shared
-- A retired key: this part of it is expected to run no more.
redis.call('HDEL', own.key, 'schedule', 'zone', 'expected_shards', 'starting_deadline', 'expected_since')
redis.call('HSET', own.key, 'forgotten_at', seconds(now), 'forgotten_by', given.author)
return 1
