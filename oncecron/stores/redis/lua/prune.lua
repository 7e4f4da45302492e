-- after shared retention
-- One step of retention for one part: how many executions and skips were removed, whether more may be due, and where the
-- search for executions goes on.
local executions, skips, more, next_from = expire(own, tonumber(given.most), tonumber(given.most), tonumber(given.names))
return {executions, skips, (more or skips > 0) and 1 or 0, next_from or ''}
