-- after shared retention
-- One step of retention for one part: how many executions and skips were removed, and whether more may be due.
local executions, skips, more = expire(own, tonumber(given.most), tonumber(given.most), tonumber(given.names))
return {executions, skips, (more or skips > 0) and 1 or 0}
