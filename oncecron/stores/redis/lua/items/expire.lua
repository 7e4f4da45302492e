-- after shared items/shared items/leftovers
-- One step of retention for a list: 0 if it has to stay, else how many of its items are left, and 1 more. The last KEYS are the
-- ticks of the parts that drew from it, instead of their leases.
local function has_executions()
  for i = FIRST_OF_SLOTS, #KEYS do
    if redis.call('HGET', KEYS[i], given.tick) then return true end
  end
end

local known = hash(list.list)
if known.loaded_at then
  local least = redis.call('HGET', shared.namespace, 'least_executions') or given.least_executions
  local kept = math.max(given.keep_executions, least)
  if now - known.loaded_at < math.max(kept, known.keep or 0) or has_executions() then
    redis.call('ZADD', shared.lists, 'XX', seconds(now - kept), given.list) -- the next end looks at another one first
    return 0
  end
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
