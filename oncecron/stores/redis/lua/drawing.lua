-- The draw itself.
local slot, stopped = slot_of(given.shard), nil
local number, last, wanted = tonumber(given.number), tonumber(slot.number), math.min(given.wanted, 1000)
if number ~= last and number ~= last + 1 then return {'gone'} end

if number > last then
  settle(slot)
  stopped = pause_of(row.key) and 'paused' or drain_of(row.host) and 'drained' or nil
  if wanted > 0 and not stopped then take(slot, wanted) end
  if open_items(slot) > 0 then slot.number = whole(number) end
  write_slot(given.shard, slot)
  redis.call('HSET', list.list, 'slots', math.max(known.slots or 1, given.slots))
end

local answer = {'held', '', 0, stopped or ''}
local function add(position, attempts)
  answer[#answer + 1] = position
  answer[#answer + 1] = redis.call('HGET', list.items, position)
  answer[#answer + 1] = attempts
end
if wanted > 0 then
  for _, position in ipairs(slot.marks or {}) do add(position, mark_of(position).attempts) end
  for position = slot.first or 1, (slot.first or 1) + (slot.size or 0) - 1 do add(whole(position), 1) end
end
if #answer > 4 or stopped then return answer end

local due = redis.call('ZRANGE', list.due, 0, 0, 'WITHSCORES')[2]
if due then answer[2] = seconds(math.max(due - now, 0.001)) end
for shard, text in pairs(hash(list.slots)) do
  local other = cjson.decode(text)
  if shard ~= given.shard and open_items(other) > 0 and is_living(shard, other.execution_id) then answer[3] = answer[3] + open_items(other) end
end
return answer
