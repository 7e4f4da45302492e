-- after shared
-- Send a request to the holder of an execution, in place of an earlier one. 0: the execution has no lease.
local signal, grace = tonumber(given.signal), tonumber(given.grace or 0)
if not (signal and signal >= 1 and signal <= 64 and grace and grace >= 0 and grace <= 3653 * 86400) then
  return redis.error_reply('ERR signal or grace is out of range')
end
local lease = hash(own.lease)
if lease.execution_id ~= given.execution_id then return 0 end
forget_request()
local row = execution(given.execution_id)
if row then
  row.request, row.requested_by = given.kind, given.author
  write_execution(given.execution_id, row)
end
set(own.lease, {request = given.kind, requested_by = given.author, request_signal = given.signal, request_grace = given.grace})
notify('asked')
return 1
