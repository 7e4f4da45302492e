-- after shared each/shared each/durability
-- Settle the last batch of a slot, and take the next one. A number that the slot has had returns that batch, and a number out of
-- turn nothing: the server has lost a batch, or the call comes late. 'gone': not held; 'forgotten'; or 'held', seconds until the
-- next retry, how many items others have, why nothing was taken, of each item that was drawn before: position, value, attempt;
-- and the position of the first one that was not, with the values of all those as JSON, which a client reads sooner than as many
-- replies.
write_in_full_memory()
local row, known = held(), hash(list.list)
if not row then return {'gone'} end
if not known.loaded_at then return {'held', '', 0, '', {}, '', '[]'} end
if has_forgotten(known) then return {'forgotten'} end

local function slot_of(shard)
  local text = redis.call('HGET', list.slots, shard)
  local slot = text and cjson.decode(text)
  if slot and slot.execution_id == given.execution_id then return slot end
  if slot and open_items(slot) > 0 then doubt(shard, slot, 0) end
  return {execution_id = given.execution_id, number = '0'}
end

local function settle(slot)
  local first, open = tonumber(slot.first or 1), {}
  for _, position in ipairs(slot.marks or {}) do open[position] = true end
  for _, result in ipairs(cjson.decode(given.results)) do
    local position = whole(result.position)
    local is_first = result.position >= first and result.position < first + (slot.size or 0)
    if is_first or open[position] then
      local mark = open[position] and mark_of(position) or {attempts = '1', shard = given.shard, execution_id = given.execution_id}
      mark.state, mark.changed_at, mark.reason = result.state, seconds(now), result.reason
      mark.not_before = result.state == 'failed' and seconds(now + (result.delay or 0)) or nil
      write_mark(position, mark, open[position] and 'taken')
      open[position] = nil
    end
  end
  for position in pairs(open) do
    local mark = mark_of(position)
    mark.state, mark.changed_at = 'done', seconds(now)
    write_mark(position, mark, 'taken')
  end
  write_batch(slot)
  slot.first, slot.size, slot.marks = nil, nil, nil
end

local function take(slot, wanted)
  if tonumber(given.redraw_below) > 0 then
    doubt_the_dead(tonumber(given.redraw_below))
    for _, position in ipairs(redis.call('ZRANGEBYSCORE', list.lost, '-inf', '(' .. given.redraw_below)) do
      local mark = mark_of(position)
      mark.state, mark.not_before = 'queued', seconds(now)
      write_mark(position, mark, 'lost')
    end
  end
  slot.marks, slot.taken_at = {}, seconds(now)
  for i, position in ipairs(redis.call('ZRANGEBYSCORE', list.due, '-inf', seconds(now), 'LIMIT', 0, wanted)) do
    local mark = mark_of(position)
    local before = mark.state
    mark.state, mark.not_before, mark.attempts, mark.shard = 'taken', nil, whole(mark.attempts + 1), given.shard
    mark.execution_id, mark.changed_at = given.execution_id, seconds(now)
    write_mark(position, mark, before)
    slot.marks[i] = position
  end
  local size = math.min(wanted - #slot.marks, known.total - known.next + 1)
  if size > 0 then
    slot.first, slot.size = known.next, whole(size)
    redis.call('HINCRBY', list.list, 'next', whole(size))
  end
end

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
