-- after shared starting attempts
-- Begin the next attempt under the lease that was kept, once even if the call is repeated. Returns what a grant returns, the
-- pause or the drain in the way, 'lost', or 'late TIME'.
if is_late() then return 'late ' .. seconds(now) end

local function next_attempt(id, row)
  local lease = hash(own.lease)
  local waiting = lease.execution_id
  if waiting == id then
    local stop = stop_of(row.key, row.host)
    if stop.stop_kind then
      stop.answer, stop.host, stop.pid = 'stopped', row.host, row.pid
      return stop
    end
    local newest = newest_of(own, row.tick) or row
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
