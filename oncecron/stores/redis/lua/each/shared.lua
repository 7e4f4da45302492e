-- The items of a tick; oncecron_each/item_model.py says what the states mean. KEYS has the names of the list after those of the part, and then
-- the leases of all parts of its key:
--
--   list     hash   total, next (the next position to draw), loaded_at, keep; loading_...: the last load; slots: the number of
--                   parts; run_id: the server that knows the list; marked_STATE: how many marks have the state
--   items    hash   position -> the id, the identity, and a NUL with the payload where that differs. Positions above `total`
--                   belong to a load that has not ended
--   ids      hash   id -> position
--   marks    hash   position -> JSON: state, attempts, not_before, shard, execution_id, changed_at, reason; for items that are
--                   neither queued nor done at the first attempt
--   due      zset   positions of marks that are `queued` or `failed`, by not_before
--   lost     zset   positions of marks that are `lost`, by attempts
--   slots    hash   shard -> JSON: the execution that drew last, the number of its last batch, and, until that is settled, what
--                   it took: `size` positions from `first`, and the marks (a list of positions)
--   batches  hash   first -> JSON: size, execution_id, taken_at, settled_at

local list, FIRST_OF_SLOTS = named_keys(behind_own, {'list', 'items', 'ids', 'marks', 'due', 'lost', 'slots', 'batches'})
local SORTED = {queued = 'due', failed = 'due', lost = 'lost'}

-- The execution, if it has the lease of the part.
local function held()
  local lease, row = hash(own.lease), execution(given.execution_id)
  local mine = lease.owner == given.owner and lease.execution_id == given.execution_id and tonumber(lease.expires_at) > now
  return mine and row and row.outcome == 'running' and row
end

-- Whether an execution has the lease of its part.
local function is_living(shard, id)
  local name = KEYS[FIRST_OF_SLOTS + shard]
  if not name then return (execution(id) or {}).outcome == 'running' end
  local lease = hash(name)
  return lease.execution_id == id and tonumber(lease.expires_at) > now
end

local function mark_of(position)
  local text = redis.call('HGET', list.marks, position)
  return text and cjson.decode(text)
end

-- Write a mark; `before`: the state that it had.
local function write_mark(position, row, before)
  if before then
    redis.call('HINCRBY', list.list, 'marked_' .. before, -1)
    if SORTED[before] then redis.call('ZREM', list[SORTED[before]], position) end
  end
  redis.call('HINCRBY', list.list, 'marked_' .. row.state, 1)
  if SORTED[row.state] then redis.call('ZADD', list[SORTED[row.state]], row.not_before or row.attempts, position) end
  redis.call('HSET', list.marks, position, cjson.encode(row))
end

local function write_slot(shard, slot) redis.call('HSET', list.slots, shard, cjson.encode(slot)) end

-- How many items a slot has taken and not settled.
local function open_items(slot) return tonumber(slot.size or 0) + #(slot.marks or {}) end

local function write_batch(slot)
  if not slot.first then return end
  redis.call('HSET', list.batches, slot.first, cjson.encode({size = slot.size, execution_id = slot.execution_id,
    taken_at = slot.taken_at, settled_at = seconds(now)}))
end

-- What a dead execution has taken: an item that was drawn fewer times than this is queued again, others are lost.
local function doubt(shard, slot, below)
  local function put(position, row, before)
    row.state = tonumber(row.attempts) < below and 'queued' or 'lost'
    row.not_before = row.state == 'queued' and seconds(now) or nil
    write_mark(position, row, before)
  end
  for position = slot.first or 1, (slot.first or 1) + (slot.size or 0) - 1 do
    put(position, {attempts = '1', shard = shard, execution_id = slot.execution_id, changed_at = slot.taken_at})
  end
  for _, position in ipairs(slot.marks or {}) do put(position, mark_of(position), 'taken') end
  write_batch(slot)
  slot.first, slot.size, slot.marks = nil, nil, nil
  write_slot(shard, slot)
end

-- Turn what dead slots have taken into items that are queued again, or in doubt.
local function doubt_the_dead(below)
  for shard, text in pairs(hash(list.slots)) do
    local slot = cjson.decode(text)
    if open_items(slot) > 0 and not is_living(shard, slot.execution_id) then doubt(shard, slot, below) end
  end
end
