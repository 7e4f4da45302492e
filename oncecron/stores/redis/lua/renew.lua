-- after shared
-- Renew the lease: compare-and-set on (execution, owner). It sets the expiry, even if the old one was later. A place is that of the
-- execution, also of one that is put back.
-- 'renewed', 'lost' for good, 'late TIME', or the new execution_id of an execution that this server had lost. With a request to
-- the holder: a list of the same, and the request.
if is_late() then return 'late ' .. seconds(now) end
write_in_full_memory()

local function renewed(lease, answer)
  extend(lease)
  local row = given.place and execution(lease.execution_id)
  if row and row.place ~= given.place then
    row.place = given.place
    write_execution(lease.execution_id, row)
  end
  if not lease.request then return answer end
  redis.call('HSETNX', own.lease, 'request_acknowledged_at', seconds(now))
  return {answer, lease.request, lease.requested_by, lease.request_signal, lease.request_grace or ''}
end

local lease = hash(own.lease)
local mine = lease.owner == given.owner
if mine and lease.execution_id == given.execution_id then return renewed(lease, 'renewed') end
local known = execution_known_as(given.execution_id, given.owner)
if mine and lease.execution_id == known then return renewed(lease, known) end
local id = not known and put_back(lease)
return id and renewed(hash(own.lease), id) or 'lost'
