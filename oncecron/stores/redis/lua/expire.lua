-- after shared fitness facts
-- Take away a lease that has expired, or an execution that runs without one, if nothing has changed since the look: the execution
-- that is lost, as names and values in turn; 0 if it has; or 'late TIME'.
if is_late() then return 'late ' .. seconds(now) end
local lease = hash(own.lease)
local lives = lease.owner and tonumber(lease.expires_at) > now
if lives or version_of(facts(hash(shared.namespace))) ~= given.if_version or is_recovering() then return 0 end
register() -- the first write: a full memory refuses it
local id = redis.call('HGET', own.key, 'running') or lease.execution_id
take_away('expired', given.note)
raise_fence()
local list, row = {}, execution(id)
if row and row.lost_at then
  add(list, '', {execution_id = id}, {'execution_id'})
  add(list, '', row, {'owner', 'tick', 'attempt', 'cause', 'outcome', 'exit_code', 'signal', 'lost_reason', 'requested_by', 'host',
    'pid', 'user', 'started_at', 'duration', 'note', 'shards'})
end
return list
