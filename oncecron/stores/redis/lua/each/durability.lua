-- Whether this server may have forgotten which items were drawn: it has restarted without its log of writes since the list was
-- loaded, or it is a replica that was promoted, whose master may not have sent it the last draws.

local function server_identity()
  local server, replication = redis.call('INFO', 'server'), redis.call('INFO', 'replication')
  local offset = string.match(replication, 'second_repl_offset:(%-?%d+)') or '-1'
  return {
    run_id = string.match(server, 'run_id:(%w+)'),
    promotion = tonumber(offset) < 0 and '' or string.match(replication, 'master_replid2:(%w+)') .. ':' .. offset}
end

local function has_forgotten(known)
  local server = server_identity()
  local restarted = server.run_id ~= known.run_id
  if restarted and not string.find(redis.call('INFO', 'persistence'), 'aof_enabled:1') then return true end
  local promoted = server.promotion ~= '' and server.promotion ~= known.promotion
  if promoted and not given.is_replicated then return true end
  if restarted or promoted then set(list.list, server) end
  return false
end
