-- Remove expired records, and those above the limit of a part; a few at a time.

-- Only the log keeps named ticks unique, so a part keeps the newest ones however old they are.
local function oldest_kept_name(part, names)
  return tonumber(redis.call('ZREVRANGE', part.names, names - 1, names - 1, 'WITHSCORES')[2] or 0)
end

-- Write a list of words, or remove it when it is empty.
local function set_words(name, field, words)
  if #words > 0 then
    redis.call('HSET', name, field, table.concat(words, ' '))
  else
    redis.call('HDEL', name, field)
  end
end

-- Whether another part of the key still has executions of the tick: the next ones first, which are removed last. Their names are
-- not among KEYS, but differ from this part's in the number alone, so a cluster has them in the same slot.
local function is_known_elsewhere(part, row)
  local number, shards = string.match(part.ticks, '#(%d+)$'), tonumber(row.shards or '1')
  for n = 1, shards - 1 do
    local ticks = string.gsub(part.ticks, '#%d+$', '#' .. whole((number + n) % shards))
    if redis.call('HEXISTS', ticks, row.tick) == 1 then return true end
  end
  return false
end

-- Without its executions a tick has no number of parts either.
local function forget_division(row)
  local gone, kept = (row.shards or '1') .. ' ' .. row.tick, {}
  for each in string.gmatch(redis.call('HGET', shared.divisions, row.key) or '', '%d+ %S+') do
    if each ~= gone then kept[#kept + 1] = each end
  end
  set_words(shared.divisions, row.key, kept)
end

local function forget(part, id, row)
  redis.call('HDEL', shared.executions, id)
  redis.call('HDEL', shared.outputs, id)
  redis.call('XDEL', part.log, id .. '-0')
  local others = {}
  for number in string.gmatch(redis.call('HGET', part.owners, row.owner) or '', '%S+') do
    if not string.find(number, ':' .. id .. '$') then others[#others + 1] = number end
  end
  set_words(part.owners, row.owner, others)
  local newest_id = row.tick and redis.call('HGET', part.ticks, row.tick)
  if newest_id == id then
    redis.call('HDEL', part.ticks, row.tick)
    redis.call('ZREM', part.names, row.tick)
    if not is_known_elsewhere(part, row) then forget_division(row) end
  elseif newest_id then
    -- As on the other stores: an attempt that is gone may have started.
    local newest = execution(newest_id)
    if newest and not newest.earlier then
      newest.earlier = id
      write_execution(newest_id, newest)
    end
  end
end

-- Only what started or happened before this time expires: older than the caller's age, and than the least retention.
local function kept_since(what)
  local least = redis.call('HGET', shared.namespace, 'least_' .. what) or given['least_' .. what]
  return now - math.max(given['keep_' .. what], least)
end

-- The search continues where the last one stopped, past executions that are kept although they are old.
local function expire_executions(part, most, names)
  local before, too_many = kept_since('executions'), redis.call('XLEN', part.log) - given.keep_most
  local kept_name = oldest_kept_name(part, names)
  local leased = redis.call('HGET', part.lease, 'execution_id') -- it may have ended, with a retry to follow
  local from = redis.call('HGET', part.key, 'retention_at') or '-'
  local entries = redis.call('XRANGE', part.log, from, '+', 'COUNT', most)
  local removed, next_from = 0, nil
  for _, entry in ipairs(entries) do
    local id = string.match(entry[1], '^%d+')
    local row = execution(id)
    local due = not row or tonumber(row.started_at) < before or too_many > removed
    if not due then
      next_from = '-'
      break
    end
    local named = row and row.tick and not row.tick_instant and tonumber(id) >= kept_name
    if row and row.outcome ~= 'running' and id ~= leased and not named then
      forget(part, id, row)
      removed = removed + 1
    elseif not row then
      redis.call('XDEL', part.log, entry[1])
    end
    next_from = '(' .. entry[1]
  end
  if #entries < most then next_from = '-' end
  redis.call('HSET', part.key, 'retention_at', next_from or '-')
  return removed, next_from ~= nil and next_from ~= '-'
end

-- Members of a set by time, and their rows. Returns how many.
local function expire_rows(set_name, rows, kept, most, count)
  local members = redis.call('ZRANGEBYSCORE', set_name, '-inf', '(' .. seconds(kept_since('skips')), 'LIMIT', 0, most)
  local too_many = redis.call('ZCARD', set_name) - kept
  if too_many > #members then
    members = redis.call('ZRANGE', set_name, 0, math.min(too_many, most) - 1)
  end
  if #members == 0 then return 0 end
  local removed = count and count(redis.call('HMGET', rows, unpack(members))) or #members
  redis.call('ZREM', set_name, unpack(members))
  redis.call('HDEL', rows, unpack(members))
  return removed
end

local function words_in(texts)
  local _, found = string.gsub(table.concat(texts), ' ', ' ')
  return found
end

-- The plain skips of a window take the memory of four other skips.
local function expire_skips(part, most)
  return expire_rows(part.skips, part.skip_rows, given.keep_most, most)
    + expire_rows(part.plain, part.plain_rows, math.ceil(given.keep_most / 4), math.min(most, 100), words_in)
end

-- The hosts that have not fired the part for long: once an hour, because all of them have to be read.
local function forget_hosts(part)
  local hour = whole(math.floor(now / 3600))
  if redis.call('HGET', part.key, 'hosts_at') == hour then return end
  redis.call('HSET', part.key, 'hosts_at', hour)
  for host, text in pairs(hash(part.hosts)) do
    local readable, silent_for = pcall(function() return now - cjson.decode(text).seen_at end)
    if not readable or silent_for > tonumber(given.host_forgotten_after) then redis.call('HDEL', part.hosts, host) end
  end
end

-- At most so many executions and so many skips; the newest names are kept.
local function expire(part, most, most_skips, names)
  forget_hosts(part)
  local executions, more = expire_executions(part, most, names)
  return executions, expire_skips(part, most_skips), more
end
