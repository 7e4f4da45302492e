-- after shared retention
-- Delivers a spooled record, or a record for a log store: idempotent by (owner, attempt), replaces `running` and `lost` by what
-- happened, releases only its own lease, inserts what this server never saw, never fails on a conflict. Then a little retention,
-- if it ends an execution.
register()
if given.kind == 'skip' then
  count_skip(given)
  return 1
end
local late = given.late and 'recorded later'
local id, row = execution_of(given.owner, given.attempt)
if row then
  if given.outcome == 'running' or not has_no_end(row) and not row.retrying then return 1 end
  local lease = hash(own.lease)
  local mine = lease.execution_id == id or row.retrying and lease.owner == given.owner
  if mine then let_go(lease, id) end
  conclude(id, row, joined(row.note, given.note, late))
  if given.keep_executions then expire(own, 100, 1000, 1000) end
  return 1
end
if given.outcome == 'not-started' and not given.fencing_token then return 1 end
-- A higher token: a later start has the key. An earlier one without a lease here ended without a record.
local fence, token = tonumber(redis.call('HGET', own.key, 'fence') or 0), tonumber(given.fencing_token or 0)
local has_lease = redis.call('EXISTS', own.lease) == 1
if given.fencing_token and token >= fence and not has_lease then declare_lost('superseded', UNFINISHED) end
row = row_of(given)
local unfinished
local beside = has_lease or redis.call('HGET', own.key, 'running')
if given.outcome == 'running' and (token < fence or beside) then
  row.outcome, row.lost_reason, unfinished = 'lost', 'superseded', UNFINISHED
end
id = insert_late(row, joined(given.note, unfinished, late))
if row.outcome == 'running' then redis.call('HSET', own.key, 'running', id) end
if given.outcome ~= 'running' and given.keep_executions then expire(own, 100, 1000, 1000) end
return 1
