-- The draw itself.
local slot, stopped = slot_of(given.shard), nil
local number, last, wanted = tonumber(given.number), tonumber(slot.number), math.min(given.wanted, 1000)
if number ~= last and number ~= last + 1 then return {'gone'} end

if number > last then
  settle(slot)
  local stop = stop_of(row.key, row.host).stop_kind
  stopped = stop and (stop == 'key' and 'paused' or 'drained')
  if wanted > 0 and not stopped then take(slot, wanted) end
  if open_items(slot) > 0 then slot.number = whole(number) end
  write_slot(given.shard, slot)
  redis.call('HSET', list.list, 'slots', math.max(known.slots or 1, given.slots))
end

local answer = {'held', '', 0, stopped or '', {}, slot.first or '', '[]'}
if wanted > 0 and slot.first then
  local positions = {}
  for position = slot.first, slot.first + slot.size - 1 do positions[#positions + 1] = whole(position) end
  answer[7] = cjson.encode(redis.call('HMGET', list.items, unpack(positions)))
end
for _, position in ipairs(wanted > 0 and slot.marks or {}) do
  for _, part in ipairs({position, redis.call('HGET', list.items, position), mark_of(position).attempts}) do table.insert(answer[5], part) end
end
if #answer[5] > 0 or answer[7] ~= '[]' or stopped then return answer end

local due = redis.call('ZRANGE', list.due, 0, 0, 'WITHSCORES')[2]
if due then answer[2] = seconds(math.max(due - now, 0.001)) end
for shard, text in pairs(hash(list.slots)) do
  local other = cjson.decode(text)
  if shard ~= given.shard and open_items(other) > 0 and is_living(shard, other.execution_id) then answer[3] = answer[3] + open_items(other) end
end
return answer
