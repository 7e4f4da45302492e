-- Remove the last items above `total`, which a load has left that was cut off, or retention; at most so many. Returns how many are
-- left.
local function remove_leftovers(most)
  local total, upto = unpack(redis.call('HMGET', list.list, 'total', 'loading_until'))
  total, upto = tonumber(total or 0), tonumber(upto or 0)
  local from = math.max(total, upto - most)
  for position = from + 1, upto do
    local value = redis.call('HGET', list.items, position)
    if value then
      redis.call('HDEL', list.ids, string.sub(value, 1, 22))
      redis.call('HDEL', list.items, position)
    end
  end
  redis.call('HSET', list.list, 'loading_until', from)
  return from - total
end
