-- Record the end and release the lease, if it is this execution's; then a little retention.
-- 1: in time; 0: after the lease was lost. An execution that this server had lost is put in, unless it is a stranger's.
write_in_full_memory()
local lease = hash(own.lease)
local id, row = execution_known_as(given.execution_id, given.owner)
local is_its = id or lease.execution_id == given.execution_id or not execution_of(given.owner, given.attempt)
local mine = lease.owner == given.owner and is_its

-- Another attempt has the lease: the next one, of which its owner has not heard and that it has not begun, or the last one
-- before those that this server has lost.
local function end_the_other()
  local other = mine and lease.execution_id ~= (id or given.execution_id) and execution(lease.execution_id)
  if other and id and has_no_end(other) then
    end_execution(lease.execution_id, other, {outcome = 'not-started', duration = '0.0', finished_at = seconds(now)},
      joined(other.note, 'nobody heard that it was granted'))
  elseif other then
    declare_lost('its end was not recorded')
  end
end

local function record_end()
  if mine then row.requested_by = lease.requested_by end
  if has_no_end(row) then
    if not mine then row.lost_at = row.lost_at or seconds(now) end
    given.finished_at = seconds(now)
    end_execution(id, row, given,
      joined(row.note, given.note, not mine and 'ended after its lease was lost' or nil))
  elseif row.retrying then -- and nothing follows it
    if mine then row.retrying = nil end
    row.note = joined(row.note, given.note)
    write_execution(id, row)
  end
end

end_the_other()
if mine then
  redis.call('DEL', own.lease)
  stir('ended')
end
if row then
  record_end()
elseif given.host and not execution_of(given.owner, given.attempt) and given.outcome ~= 'not-started' then
  given.finished_at = seconds(now)
  row = row_of(given)
  row.requested_by = mine and lease.requested_by or nil
  insert_late(row, joined(given.note, 'the store had lost it'))
  register()
end
if not id then return 0 end
for _, part in ipairs({own, due}) do
  if part.key then expire(part, 100, 1000) end
end
redis.call('ZADD', shared.parts, seconds(now), given.part)
if given.due then redis.call('ZADD', shared.parts, 'XX', seconds(now), given.due) end
return (row.lost_at or row.retrying) and 0 or 1
