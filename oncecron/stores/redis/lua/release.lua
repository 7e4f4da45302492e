-- Free a part whose lease has expired or is missing: {'free' | 'alive' | 'other', seconds until the lease expires}.
local lease = hash(own.lease)
if not lease.owner and not redis.call('ZSCORE', shared.parts, given.part) then return {'free', '0'} end -- never claimed
local holder = lease.execution_id or redis.call('HGET', own.key, 'running') or given.execution_id
if holder ~= given.execution_id then return {'other', '0'} end
if lease.owner and lease.expires_at - now > tonumber(lease.ttl) then -- the server's clock was set back
  extend(lease)
  lease = hash(own.lease)
end
if lease.owner and tonumber(lease.expires_at) > now then return {'alive', seconds(lease.expires_at - now)} end
take_away('released', 'released by ' .. given.author)
local fence = redis.call('HGET', own.key, 'fence') or 0
set(own.key, {fence = whole(math.max(fence + 1, microseconds))})
register()
notify('ended')
return {'free', '0'}
