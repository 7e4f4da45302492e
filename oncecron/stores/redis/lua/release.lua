-- after shared
-- Free a part whose lease has expired or is missing: {'free' | 'alive' | 'other', seconds until the lease expires}.
local lease = hash(own.lease)
if not lease.owner and not redis.call('ZSCORE', shared.parts, given.part) then return {'free', '0'} end -- never claimed
local holder = lease.execution_id or redis.call('HGET', own.key, 'running') or given.execution_id
if holder ~= given.execution_id then return {'other', '0'} end
lease = cut(lease)
if lease.owner and tonumber(lease.expires_at) > now then return {'alive', seconds(lease.expires_at - now)} end
take_away('released', 'released by ' .. given.author)
raise_fence()
register()
notify('ended')
return {'free', '0'}
