-- Ask the holder of an execution for something, in place of what it was asked before. 0: that execution has no lease any more.
local lease = hash(own.lease)
if lease.execution_id ~= given.execution_id then return 0 end
forget_request()
set(own.lease, {request = given.kind, requested_by = given.author, request_signal = given.signal, request_grace = given.grace})
stir('asked')
return 1
