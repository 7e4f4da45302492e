-- A spooled record: idempotent by (owner, attempt), turns `running` and `lost` into what really happened, releases only
-- its own lease, inserts what this server never saw, never fails on a conflict.
register()
if given.kind == 'skip' then
  count_skip(given, true)
  return 1
end
local id, row = execution_of(given.owner, given.attempt)
if row then
  if has_no_end(row) then
    if redis.call('HGET', own.lease, 'execution_id') == id then redis.call('DEL', own.lease) end
    end_execution(id, row, given, joined(row.note, given.note, 'recorded later'))
  end
  return 1
end
if given.outcome == 'not-started' then return 1 end
insert_late(row_of(given), joined(given.note, 'recorded later'))
return 1
