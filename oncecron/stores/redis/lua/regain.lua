-- after shared starting
-- Renew the lease of an owner who claims again. Returns names and values in turn ('changed': look again), or 'late TIME'.
if is_late() then return 'late ' .. seconds(now) end
write_in_full_memory()
local lease, row = hash(own.lease), execution(given.execution_id)
if not row or lease.owner ~= given.owner or lease.execution_id ~= given.execution_id then return {'answer', 'changed'} end
extend(lease)
return flat(granted(given.execution_id, row))
