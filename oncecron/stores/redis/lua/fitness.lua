-- What a claim asks of the server itself: whether it may lose a lease, and whether it may have lost one already.

local INFO = {}
local function info(section)
  if not INFO[section] then
    INFO[section] = {}
    for name, value in string.gmatch(redis.call('INFO', section), '([%w_]+):([^\r\n]*)') do
      INFO[section][name] = value
    end
  end
  return INFO[section]
end

-- What a replica knows may be old. It refuses a write by itself (READONLY), with a message from `explain`.
local function is_wrong()
  if info('replication').role ~= 'master' then return {answer = 'wrong', what = 'replica'} end
end

-- Settings that could make the server forget a lease.
local function has_wrong_settings()
  local policy = info('memory').maxmemory_policy
  if string.sub(policy, 1, #given.evicting) == given.evicting then return {answer = 'wrong', what = 'eviction', found = policy} end
end

-- After a restart, or the promotion of a replica, the server may have forgotten a lease. Then no lease is granted until every lease
-- that may have been granted before has expired. The first grant that is tried after it records from when that counts
-- (`guard_from`). `run_id` is the server's process; `promotion` is its last promotion, which the server forgets after a while, and
-- that changes nothing.
local function last_promotion()
  local replication = info('replication')
  if tonumber(replication.second_repl_offset or -1) < 0 then return '' end
  return replication.master_replid2 .. ':' .. replication.second_repl_offset
end

local function is_known(recorded)
  local promotion = last_promotion()
  return recorded.run_id == info('server').run_id and (promotion == '' or promotion == recorded.promotion)
end

local function guard_left(recorded)
  local largest = math.max(tonumber(recorded.largest_ttl or 0), tonumber(given.ttl))
  return (recorded.guard_from or 0) + largest - now
end

-- Seconds until this server may grant, as far as that is recorded; nil if nothing is known to be in the way.
local function recovering_for(recorded)
  local left = guard_left(recorded)
  return left > 0 and is_known(recorded) and not is_ahead(recorded.guard_from) and seconds(left) or nil
end

-- The same for a write, which records it.
local function is_recovering()
  local recorded = hash(shared.namespace)
  if not is_known(recorded) or is_ahead(recorded.guard_from) then
    local promotion, server = last_promotion(), info('server')
    if promotion ~= '' then
      recorded.guard_from = seconds(now)
    elseif recorded.run_id or info('persistence').aof_enabled ~= '1' then
      recorded.guard_from = seconds(now - math.max(server.uptime_in_seconds, 0) + 1) -- negative: the clock was set back
    else
      recorded.guard_from = '0'
    end
    record_version()
    set(shared.namespace, {run_id = server.run_id, promotion = promotion, guard_from = recorded.guard_from})
  end
  return guard_left(recorded) > 0
end
