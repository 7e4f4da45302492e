-- Record the end and release the lease, if it is this execution's; then a little retention.
-- 1: in time; 0: after the lease was lost. An execution that this server had lost is put in, unless it is a stranger's.
write_in_full_memory()
local lease = hash(own.lease)
local id, row = execution_known_as(given.execution_id, given.owner)
local mine = lease.owner == given.owner and lease.execution_id == (id or given.execution_id)
if mine then redis.call('DEL', own.lease) end
if not row then
  if given.host and not execution_of(given.owner) and given.outcome ~= 'not-started' then
    given.finished_at = seconds(now)
    insert_late(row_of(given), joined(given.note, 'the store had lost it'))
    register()
  end
  return 0
end
if has_no_end(row) then
  if not mine then row.lost_at = row.lost_at or seconds(now) end
  given.finished_at = seconds(now)
  end_execution(id, row, given,
    joined(row.note, given.note, not mine and 'ended after its lease was lost' or nil))
end
for _, part in ipairs({own, part_at(14)}) do
  if part.key then expire(part, 100, 1000) end
end
redis.call('ZADD', shared.parts, seconds(now), given.part)
if given.due then redis.call('ZADD', shared.parts, 'XX', seconds(now), given.due) end
return row.lost_at and 0 or 1
