-- after shared each/shared
-- The counts of a list: total, queued, taken, done, failed, lost, dead; then when it was loaded. Nothing: it has not been loaded.
local known = hash(list.list)
if not known.loaded_at then return {} end
local marked, all = {}, 0
for _, state in ipairs({'queued', 'taken', 'done', 'failed', 'lost', 'dead'}) do
  marked[state] = tonumber(known['marked_' .. state] or 0)
  all = all + marked[state]
end
local taken, in_doubt, first_time = 0, 0, 0
for shard, text in pairs(hash(list.slots)) do
  local slot = cjson.decode(text)
  first_time = first_time + (slot.size or 0)
  if is_living(shard, slot.execution_id) then
    taken = taken + open_items(slot)
  else
    in_doubt = in_doubt + open_items(slot)
  end
end
return {tonumber(known.total), known.total - known.next + 1 + marked.queued, taken, known.next - 1 - first_time - all + marked.done,
  marked.failed, marked.lost + in_doubt, marked.dead, known.loaded_at}
