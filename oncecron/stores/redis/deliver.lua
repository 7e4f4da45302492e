-- A record told late, or told to the log beside another store: idempotent by (owner, attempt), turns `running` and `lost` into
-- what really happened, releases only its own lease, inserts what this server never saw, never fails on a conflict.
register()
if given.kind == 'skip' then
  count_skip(given)
  return 1
end
local late = given.late and 'recorded later'
if given.outcome ~= 'running' and given.keep_executions then expire(own, 100, 1000) end
local id, row = execution_of(given.owner, given.attempt)
if row then
  local lease = hash(own.lease)
  local mine = lease.execution_id == id
  local is_last = row.retrying and mine -- its end was told before, but nothing follows it after all
  if given.outcome == 'running' or not has_no_end(row) and not is_last then return 1 end
  if mine then
    row.requested_by = lease.requested_by
    redis.call('DEL', own.lease)
    stir('ended')
  end
  local note = joined(row.note, given.note, late)
  if has_no_end(row) then
    end_execution(id, row, given, note)
  else
    row.retrying, row.note = nil, note
    write_execution(id, row)
  end
  return 1
end
if given.outcome == 'not-started' and not given.fencing_token then return 1 end
-- A higher token: the key has passed on, and whoever had it before and has no lease here has ended unheard.
local fence, token = tonumber(redis.call('HGET', own.key, 'fence') or 0), tonumber(given.fencing_token or 0)
local has_lease = redis.call('EXISTS', own.lease) == 1
local unfinished = 'its end was not recorded'
if given.fencing_token and token >= fence and not has_lease then declare_lost(unfinished) end
row = row_of(given)
if given.outcome == 'running' and (token < fence or redis.call('HEXISTS', own.key, 'running') == 1) then
  row.outcome, row.note = 'lost', unfinished
end
local again = given.again and tonumber(given.attempt or 1) > 1 and 'by --again'
id = insert_late(row, joined(again, given.note, row.note, late))
if row.outcome == 'running' then redis.call('HSET', own.key, 'running', id) end
return 1
