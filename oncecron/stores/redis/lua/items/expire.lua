-- after shared items/shared items/leftovers
-- One step of retention for a list that has expired, or whose first load was cut off: 0 if it has to stay, else how many of its items are left, and 1 more. The last KEYS are the
-- ticks of the parts that drew from it, instead of their leases.
local function has_executions()
  for i = FIRST_OF_SLOTS, #KEYS do
    if redis.call('HGET', KEYS[i], given.tick) then return true end
  end
end

-- Whether the execution of the last load has its lease, which is none of KEYS, but in the slot of all names of the namespace.
local function is_loading(known)
  local lease = known.loading_lease and hash(known.loading_lease) or {}
  return lease.execution_id and lease.execution_id == known.loading_execution and tonumber(lease.expires_at) > now
end

local known = hash(list.list)
local least = redis.call('HGET', shared.namespace, 'least_executions') or given.least_executions
local kept = math.max(given.keep_executions, least)
local stays
if known.loaded_at then
  stays = now - known.loaded_at < math.max(kept, known.keep or 0) or has_executions()
else
  stays = is_loading(known)
end
if stays then
  redis.call('ZADD', shared.lists, 'XX', seconds(now - kept), given.list) -- the next end looks at another one first
  return 0
end
if known.loaded_at then
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
