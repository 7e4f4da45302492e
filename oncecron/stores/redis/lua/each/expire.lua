-- after shared each/shared each/leftovers
-- One step of retention for a list that has expired, or whose first load was cut off: 0 if it has to stay, else how many of its
-- items are left, and 1 more. The part is the first of its key. The names of others are not among KEYS, but in the same slot.

local function has_lease(name, id)
  local lease = hash(name)
  return lease.execution_id and lease.execution_id == id and tonumber(lease.expires_at) > now
end

-- Whether an execution of a part that drew from the list keeps it. That of a host that has died is `running` until its key is
-- claimed again, which may be never: it keeps no list that is older than this.
local function has_executions(parts, before)
  for n = 0, parts - 1 do
    local ticks, lease = string.gsub(own.ticks, '#0$', '#' .. whole(n)), string.gsub(own.lease, '#0$', '#' .. whole(n))
    for id in string.gmatch(redis.call('HGET', ticks, given.tick) or '', '%d+') do
      local readable, row = pcall(execution, id)
      local is_dead = readable and row and row.outcome == 'running' and tonumber(row.started_at) < before and not has_lease(lease, id)
      if not is_dead then return true end
    end
  end
end

local known = hash(list.list)
local least = redis.call('HGET', shared.namespace, 'least_executions') or given.least_executions
local kept = math.max(given.keep_executions, least)
local stays
if known.loaded_at then
  stays = now - known.loaded_at < math.max(kept, known.keep or 0) or has_executions(known.slots or 1, now - kept)
else
  stays = known.loading_lease and has_lease(known.loading_lease, known.loading_execution)
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
