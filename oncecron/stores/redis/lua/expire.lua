-- after shared fitness facts
-- Take away a lease that has expired, or an execution that runs without one, if nothing has changed since the look: 1; 0 if it has;
-- or 'late TIME'.
if is_late() then return 'late ' .. seconds(now) end
local lease = hash(own.lease)
local lives = lease.owner and tonumber(lease.expires_at) > now
if lives or version_of(facts(hash(shared.namespace))) ~= given.if_version or is_recovering() then return 0 end
register() -- the first write: a full memory refuses it
take_away('expired', given.note)
raise_fence()
return 1
