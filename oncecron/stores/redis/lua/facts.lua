-- What a claim has to know of a key and a firing: the facts of oncecron.core.facts. oncecron.core.decision alone says what follows.

-- Add values to a list of names and values in turn, without those that are absent.
local function add(list, prefix, values, names)
  for _, name in ipairs(names) do
    if values[name] then
      list[#list + 1] = prefix .. name
      list[#list + 1] = values[name]
    end
  end
end

-- A number of parts with which the tick was granted, other than the firing's; for a tick before the last eight, from the
-- execution of its first part.
local function other_shards()
  if not given.tick then return end
  local shards = division_of(given.key, given.tick, given.shards)
  if not shards then
    local row = newest_of(other.ticks and other or own, given.tick)
    shards = row and (row.shards or '1')
  end
  return shards and shards ~= given.shards and shards or nil
end

-- Of the awaited execution and those without a tick since: the newest that may have started, else the newest.
local function newest_awaited()
  local row = execution(given.awaited)
  if not row or row.tick then return end
  local newest, newest_id, from, entries
  repeat
    entries = redis.call('XREVRANGE', own.log, from or '+', given.awaited .. '-0', 'COUNT', 100)
    for _, entry in ipairs(entries) do
      from = '(' .. entry[1]
      local id = string.match(entry[1], '^%d+')
      local found = execution(id)
      if found and not found.tick then
        if found.outcome ~= 'not-started' then return id, found end
        if not newest then newest_id, newest = id, found end
      end
    end
  until #entries < 100
  return newest_id, newest
end

-- The newest attempt of the tick that may have started, else the newest; the highest number of an attempt; and whether retention
-- has removed one, which may have started.
local function newest_of_tick()
  local ids, newest, newest_id = {}, nil, nil
  for id in string.gmatch(redis.call('HGET', own.ticks, given.tick) or '', '%d+') do ids[#ids + 1] = id end
  for i = #ids, 1, -1 do
    local row = execution(ids[i])
    if not newest then newest, newest_id = row, ids[i] end
    if row and row.outcome ~= 'not-started' then return ids[i], row, newest.attempt end
  end
  if newest then return newest_id, newest, newest.attempt, #ids < tonumber(newest.attempt) and 'yes' end
end

local ATTEMPT = {'attempt', 'outcome', 'retrying', 'requested_by', 'started_at', 'host', 'pid', 'user', 'fencing_token', 'cause'}

local function add_attempt(list, prefix, id, row)
  if not row then return end
  add(list, prefix, {execution_id = id}, {'execution_id'})
  add(list, prefix, row, ATTEMPT)
end

local function add_own(list, lease)
  local id, row = execution_of(given.owner)
  add_attempt(list, 'own_', id, row)
  add(list, 'own_', row or {}, {'place'})
  local has_lease = row and lease.owner == given.owner and lease.execution_id == id and (row.outcome == 'running' or row.retrying)
  add(list, 'own_', {has_lease = has_lease and 'yes'}, {'has_lease'})
end

local function add_lease(list, lease)
  if not lease.owner then return end
  local row = execution(lease.execution_id) or {started_at = lease.acquired_at}
  add(list, 'lease_', lease, {'execution_id', 'owner', 'ttl', 'heartbeat_at', 'expires_at'})
  add(list, 'lease_', row, {'tick', 'started_at', 'host', 'pid', 'user'})
end

-- All facts that are not time itself, in a fixed order: names and values in turn. `recorded`: what the namespace has on record.
local function facts(recorded)
  local list, key, lease = {}, hash(own.key), hash(own.lease)
  add(list, '', recorded, {'layout', 'oldest'})
  add_own(list, lease)
  add(list, '', stop_of(given.key, given.host), {'stop_kind', 'stop_author', 'stop_reason', 'stop_since'})
  add(list, '', {other_shards = other_shards()}, {'other_shards'})
  add_lease(list, lease)
  local id, row, attempts, forgotten
  if given.tick then
    id, row, attempts, forgotten = newest_of_tick()
  else
    id, row = newest_awaited()
  end
  add_attempt(list, 'newest_', id, row)
  add(list, '', {attempts = attempts, forgotten = forgotten}, {'attempts', 'forgotten'})
  add(list, '', key, {'high_water', 'last_start', 'last_lateness', 'running', 'fence'})
  add(list, 'last_', execution(key.last_execution_id) or {}, {'host', 'pid', 'user'})
  add(list, '', {presence = presence()}, {'presence'})
  return list
end

-- What two looks have in common if nothing has changed between them.
local function version_of(list) return redis.sha1hex(table.concat(list, '\0')) end
