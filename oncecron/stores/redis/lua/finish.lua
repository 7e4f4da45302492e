-- after shared retention
-- Record the end and release the lease, if it is this execution's; then a little retention, unless it had ended before.
-- 1: in time; 0: after the lease was lost. If a list of items may have expired: a list of the same, and its name. An execution that this server has lost is inserted, unless its id has another owner.
write_in_full_memory()
local lease = hash(own.lease)
local id, row = execution_known_as(given.execution_id, given.owner)
local is_its = id or lease.execution_id == given.execution_id or not execution_of(given.owner, given.attempt)
local mine = lease.owner == given.owner and is_its
local ends = row and (has_no_end(row) or row.retrying)

if mine then let_go(lease, id) end
if row then
  if has_no_end(row) then
    if not mine then row.lost_at, row.lost_reason = row.lost_at or seconds(now), row.lost_reason or 'revoked' end
    given.finished_at = seconds(now)
    conclude(id, row, joined(row.note, given.note, not mine and 'ended after its lease was lost' or nil))
  elseif row.retrying then
    conclude(id, row, joined(row.note, given.note))
  end
elseif given.host and not execution_of(given.owner, given.attempt) and given.outcome ~= 'not-started' then
  given.finished_at = seconds(now)
  row = row_of(given)
  insert_late(row, joined(given.note, 'the store had lost it'))
  register()
end
if not id then return 0 end
if ends then
  for _, part in ipairs({own, other}) do
    if part.key then expire(part, 100, 1000, 1000) end
  end
  redis.call('ZADD', shared.parts, seconds(now), given.part)
  if given.due then redis.call('ZADD', shared.parts, 'XX', seconds(now), given.due) end
end
local answer = row.lost_at and 0 or 1
local list, loaded_at = unpack(redis.call('ZRANGE', shared.lists, 0, 0, 'WITHSCORES'))
if list and ends and tonumber(loaded_at) < kept_since('executions') then return {answer, list} end
return answer
