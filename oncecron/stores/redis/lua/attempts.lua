-- The attempts of one tick under one lease.

-- Records the end of an execution that a retry is to follow; does nothing if its lease is lost for good. An execution whose end,
-- or all of it, this server has lost is restored.
local function kept()
  local lease = hash(own.lease)
  local id, row = execution_known_as(given.execution_id, given.owner)
  if id and lease.owner ~= given.owner then return end
  if not id then id, row = put_back(lease) end
  if not id then return end
  if has_no_end(row) and given.outcome then
    given.finished_at, row.retrying = seconds(now), 'yes'
    end_execution(id, row, given, joined(row.note, given.note))
  elseif has_no_end(row) then
    declare_lost('superseded', UNFINISHED)
  end
  return id, row
end
