-- Remove expired records, and those above the limit of a part; a few at a time. With `dry`, nothing is removed: each step counts
-- what a step would remove after those before it, which have counted `counted` executions and `page` pages of skips.

-- Only the log keeps named ticks unique, so a part keeps the newest ones however old they are.
local function oldest_kept_name(part, names)
  return tonumber(redis.call('ZREVRANGE', part.names, names - 1, names - 1, 'WITHSCORES')[2] or 0)
end

local function set_words(name, field, words)
  if words == '' then
    redis.call('HDEL', name, field)
  else
    redis.call('HSET', name, field, words)
  end
end

-- Returns whether other words are left.
local function remove_word(name, field, word)
  local words = ' ' .. (redis.call('HGET', name, field) or '') .. ' '
  local first, last = string.find(words, ' ' .. word .. ' ', 1, true)
  if first then words = string.sub(words, 1, first) .. string.sub(words, last + 1) end
  words = string.sub(words, 2, -2)
  set_words(name, field, words)
  return words ~= ''
end

-- An execution, if another program has not made it unreadable.
local function readable_execution(id)
  local readable, row = pcall(execution, id)
  local is_row = readable and type(row) == 'table' and row.key and row.owner and row.owner_attempt and tonumber(row.started_at)
  return is_row and row or nil
end

-- Whether the log has another execution of a row's tick with the row's number of parts: in this part or in another, the next one
-- first, which is removed last. The names of others are not among KEYS, but differ from this part's in the number alone, so a
-- cluster has them in the same slot.
local function is_divided_alike(part, row)
  local number, shards = string.match(part.ticks, '#(%d+)$'), row.shards or '1'
  for n = 1, shards do
    local ticks = string.gsub(part.ticks, '#%d+$', '#' .. whole((number + n) % shards))
    for id in string.gmatch(redis.call('HGET', ticks, row.tick) or '', '%d+') do
      local other = readable_execution(id)
      if other and (other.shards or '1') == shards then return true end
    end
  end
  return false
end

-- The number of parts of a tick goes with the last execution that has it. After a delivery, a tick may have several.
local function forget_division(part, row)
  local kept, division = {}, (row.shards or '1') .. ' ' .. row.tick
  for each in string.gmatch(redis.call('HGET', shared.divisions, row.key) or '', '%d+ %S+') do
    if each ~= division or is_divided_alike(part, row) then kept[#kept + 1] = each end
  end
  set_words(shared.divisions, row.key, table.concat(kept, ' '))
end

local function forget(part, id, row)
  redis.call('HDEL', shared.executions, id)
  redis.call('HDEL', shared.outputs, id)
  redis.call('ZREM', shared.given_up, id)
  redis.call('XDEL', part.log, id .. '-0')
  remove_word(part.owners, row.owner, row.owner_attempt .. ':' .. id)
  if not row.tick then return end
  if not remove_word(part.ticks, row.tick, id) then redis.call('ZREM', part.names, row.tick) end
  forget_division(part, row)
end

-- Only what started or happened before this time expires: older than the caller's age, and than the least retention.
local function kept_since(what)
  local least = redis.call('HGET', shared.namespace, 'least_' .. what) or given['least_' .. what]
  return now - math.max(given['keep_' .. what], least)
end

-- The search continues where the last one stopped, past executions that are kept although they are old. One that cannot be read
-- has no age, and stays.
local function expire_executions(part, most, names)
  local before, too_many = kept_since('executions'), redis.call('XLEN', part.log) - given.keep_most - (given.counted or 0)
  local kept_name = oldest_kept_name(part, names)
  local leased = redis.call('HGET', part.lease, 'execution_id') -- it may have ended, with a retry to follow
  local from = given.from or redis.call('HGET', part.key, 'retention_at') or '-'
  local entries = redis.call('XRANGE', part.log, from, '+', 'COUNT', most)
  local removed, next_from = 0, nil
  for _, entry in ipairs(entries) do
    local id = string.match(entry[1], '^%d+')
    local row = readable_execution(id)
    local due = not row or tonumber(row.started_at) < before or too_many > removed
    if not due then
      next_from = '-'
      break
    end
    local named = row and row.tick and not row.tick_instant and tonumber(id) >= kept_name
    if row and row.outcome ~= 'running' and id ~= leased and not named then
      if not given.dry then forget(part, id, row) end
      removed = removed + 1
    elseif not given.dry and not redis.call('HGET', shared.executions, id) then
      redis.call('XDEL', part.log, entry[1])
    end
    next_from = '(' .. entry[1]
  end
  if #entries < most then next_from = '-' end
  if not given.dry then redis.call('HSET', part.key, 'retention_at', next_from or '-') end
  return removed, next_from ~= nil and next_from ~= '-', next_from
end

-- Members of a set by time, and their rows. Returns how many.
local function expire_rows(set_name, rows, kept, most, count)
  local first = (given.page or 0) * most
  local members = redis.call('ZRANGEBYSCORE', set_name, '-inf', '(' .. seconds(kept_since('skips')), 'LIMIT', first, most)
  local too_many = redis.call('ZCARD', set_name) - kept - first
  if too_many > #members then
    members = redis.call('ZRANGE', set_name, first, first + math.min(too_many, most) - 1)
  end
  if #members == 0 then return 0 end
  local removed = count and count(redis.call('HMGET', rows, unpack(members))) or #members
  if given.dry then return removed end
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

local function ended_at(text)
  local stop = cjson.decode(text)
  local ended = tonumber(stop['until'])
  return ended and ended <= 0 and tonumber(string.sub(stop.past, -11)) or ended
end

-- The pauses and the drains that are over for so long that no tick of their time is made up.
local function forget_stops()
  for _, name in ipairs({shared.pauses, shared.drains}) do
    for field, text in pairs(hash(name)) do
      local readable, ended = pcall(ended_at, text)
      if readable and ended and now - ended > tonumber(given.pauses_kept) then redis.call('HDEL', name, field) end
    end
  end
end

-- The hosts that have not fired the part for long, and old pauses: once an hour, because all of them have to be read.
local function forget_old(part)
  local hour = whole(math.floor(now / 3600))
  if redis.call('HGET', part.key, 'hosts_at') == hour then return end
  redis.call('HSET', part.key, 'hosts_at', hour)
  forget_stops()
  for host, text in pairs(hash(part.hosts)) do
    local seen_at = tonumber(string.match(text, '^%S+'))
    if not seen_at or now - seen_at > tonumber(given.host_forgotten_after) then redis.call('HDEL', part.hosts, host) end
  end
end

-- At most so many executions and so many skips; the newest names are kept.
local function expire(part, most, most_skips, names)
  if not given.dry then forget_old(part) end
  local executions, more, next_from = expire_executions(part, most, names)
  return executions, expire_skips(part, most_skips), more, next_from
end
