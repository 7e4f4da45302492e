-- after shared attempts
-- Record the end of an attempt that a retry is to follow; keep the lease and renew it. 1; 0 if it is lost; or 'late TIME'.
if is_late() then return 'late ' .. seconds(now) end
write_in_full_memory()
local id = kept()
local lease = hash(own.lease)
if not id or lease.execution_id ~= id then return 0 end
extend(lease)
return 1
