-- One step of retention for a list, whose own part is the first one of its key: 0 if it has to stay, else how many of its items
-- are left, and 1 more.
local known = hash(list.list)
if known.loaded_at then
  local least = redis.call('HGET', shared.namespace, 'least_executions') or given.least_executions
  local kept = math.max(given.keep_executions, least, known.keep or 0)
  if now - known.loaded_at < kept or redis.call('HGET', own.ticks, given.tick) then return 0 end
  redis.call('DEL', list.list, list.marks, list.due, list.lost, list.slots, list.batches)
  set(list.list, {total = 0, loading_until = math.max(known.total, known.loading_until or 0)})
  redis.call('ZADD', shared.lists, 0, given.list)
end
local left = remove_leftovers(tonumber(given.most))
if left == 0 then
  redis.call('DEL', list.list, list.items, list.ids)
  redis.call('ZREM', shared.lists, given.list)
end
return left + 1
