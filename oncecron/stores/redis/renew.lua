-- Extend the lease: compare-and-set on (execution, owner). It sets the expiry, it never takes the later one.
-- 'renewed', 'lost' for good, 'late TIME', or the new execution_id of an execution that this server had lost: it is put back with its old
-- token, but only if nobody has claimed since.
if is_late() then return 'late ' .. seconds(now) end
write_in_full_memory()
local lease = hash(own.lease)
if lease.owner == given.owner and lease.execution_id == given.execution_id then
  extend(lease)
  return 'renewed'
end
local known = execution_known_as(given.execution_id, given.owner)
if known and lease.owner == given.owner and lease.execution_id == known then
  extend(lease)
  return known
end
local fence = redis.call('HGET', own.key, 'fence') or 0
if not given.host or lease.owner or execution_of(given.owner) or tonumber(fence) >= tonumber(given.fencing_token) then
  return 'lost'
end
declare_lost('running without a lease')
local row = row_of(given)
row.outcome, row.note, row.late = 'running', 'put back: the store had lost it', 'yes'
row.was = given.execution_id
local id = insert_execution(row)
grant_lease(id, row)
mark_key(row)
set(own.key, {running = id, last_execution_id = id})
register()
return id
