-- Begin the next attempt under the lease that was kept, once even if the call is repeated. Returns what a claim returns, or 'lost'.
if is_late() then return 'late ' .. seconds(now) end

local function next_attempt(id, row)
  local lease = hash(own.lease)
  local waiting = lease.execution_id
  if waiting == id then
    local refusal = stopped_by_people(row.key, row.host)
    if refusal then
      record_refusal(refusal, row)
      return refusal
    end
    local newest = row.tick and execution(redis.call('HGET', own.ticks, row.tick)) or row
    waiting = start(row, hash(own.key), whole(newest.attempt + 1), 'retry')
    forget_request()
    set(own.lease, {execution_id = waiting})
  end
  extend(lease)
  return granted(waiting, execution(waiting))
end

register() -- the first write: a full memory refuses it, and with it the attempt
local id, row = kept()
return flat(id and next_attempt(id, row) or {answer = 'lost'})
