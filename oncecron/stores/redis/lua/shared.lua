-- The beginning of every step. Wall times are seconds since the epoch by this server's TIME, as text.
--
-- All names of a namespace share one hash tag, so one node of a cluster has them all, and a step may use any of them. KEYS are all
-- that a step can use: those of the namespace, then those of one part of a key, and of a second part (for a claim the key's first
-- part, for an end a part whose retention is due). Notifications about a part go to the channel `events:KEY#SHARD`, with the same
-- prefix:
--
--   namespace   hash     last_execution_id; newest_start; run_id, promotion, guard_from, largest_ttl: see fitness.lua;
--                        layout, oldest: the version of the data, and the oldest of a program that they serve;
--                        least_executions, least_skips: the least retention in seconds, where `init` has set it
--   parts       zset     every KEY#SHARD, by when its retention was last looked at
--   executions  hash     execution_id -> the row of the job-execution log, JSON of texts; absent is null
--   given_up    zset     execution_id of every attempt that ended without success where retries were to follow, by itself: `history
--                        --exhausted` looks at no other
--   outputs     hash     execution_id -> "CUT:TEXT": what was captured, and how many bytes before it were not
--   divisions   hash     KEY -> "SHARDS TICK ...": the number of parts of its last eight granted ticks
--   pauses      hash     KEY or * -> JSON: author, reason, at, until; past: `SINCE-UNTIL ` of each of the last 45 that are over, in
--                        whole seconds. One that has ended is over (at and until are 0), and one of the past
--   drains      hash     host -> JSON, as a pause
--   lists       zset     KEY#TICK of every list of items, by when it was loaded, 0 before that. One that was looked at and kept comes
--                        last of those that may expire
--   mark        hash     nothing; it is written before each WAIT
--   key         hash     fence, high_water, running, last_start ...: what retention may not remove
--   lease       hash     execution_id, owner, expires_at ...; the request to the holder. It has no TTL, because some policies
--                        evict keys with one: expires_at is compared with TIME
--   ticks       hash     tick -> "EXECUTION_ID ..." of its attempts in the log, the newest last
--   names       zset     ticks that are no instants, by their first execution_id
--   owners      hash     owner -> "ATTEMPT:EXECUTION_ID ..." as it counts them itself
--   log         stream   EXECUTION_ID-0: which executions there are, in order
--   skips       zset     JSON of [tick, host, reason], by when it last happened
--   skip_rows   hash     the same -> JSON: pid, holder_host, holder_pid, count, delivered
--   plain       zset     "WINDOW HOST" of plain skips (core/decision.py), by when the newest of them happened
--   plain_rows  hash     the same -> a word for each, see stores/reader.py
--   hosts       hash     host that fires the part -> "SEEN_AT TEXT": when its last firing told what, see core/presence.py

local function fields(flat)
  local found = {}
  for i = 1, #flat, 2 do found[flat[i]] = flat[i + 1] end
  return found
end

local function flat(values)
  local found = {}
  for field, value in pairs(values) do
    found[#found + 1] = field
    found[#found + 1] = value
  end
  return found
end

-- The names that KEYS has from `first` on, and where the next ones begin.
local function named_keys(first, names)
  local found = {}
  for i, name in ipairs(names) do found[name] = KEYS[first + i - 1] end
  return found, first + #names
end

local OF_PART = {'key', 'lease', 'ticks', 'names', 'owners', 'log', 'skips', 'skip_rows', 'hosts', 'plain', 'plain_rows'}
local shared, own_at =
  named_keys(1, {'namespace', 'parts', 'executions', 'outputs', 'divisions', 'pauses', 'drains', 'lists', 'given_up'})
local own, behind_own = named_keys(own_at, OF_PART)
local other = named_keys(behind_own, OF_PART)
local given = fields(ARGV)

local time = redis.call('TIME')
local now = time[1] + time[2] / 1000000
local microseconds = time[1] * 1000000 + time[2]

-- Whether the client has given up by now: after a freeze, the server reads what was sent to it meanwhile, and would grant or renew
-- a lease for nobody. `sent_at` is this server's time as the client knows it from an earlier answer. A client that still waits
-- learns the time from the answer and asks again.
local function is_late() return given.sent_at and now - given.sent_at > tonumber(given.waits) end

local function seconds(value) return string.format('%.6f', value) end
local function whole(value) return string.format('%.0f', value) end
local function hash(name) return fields(redis.call('HGETALL', name)) end

local function set(name, values) redis.call('HSET', name, unpack(flat(values))) end

-- The note of an execution that is lost because a later start of its key was recorded. Notes are for people only.
local UNFINISHED = 'its end was not recorded'

-- The notes as one text, without duplicates, of at most 10,000 bytes and whole characters.
local function joined(...)
  local text
  for i = 1, select('#', ...) do
    local note = select(i, ...)
    if note and note ~= '' and not (text and string.find(text, note, 1, true)) then
      text = text and text .. '; ' .. note or note
    end
  end
  if text and #text > 10000 then text = string.gsub(string.sub(text, 1, 10000), '[\192-\255][\128-\191]*$', '') end
  return text
end

-- A full memory refuses a write that needs more memory, but only as the first write of a script. A renewal or an end must not be
-- refused, so it begins with a write that needs none.
local function write_in_full_memory() redis.call('HDEL', shared.namespace, '') end

-- Notify the connections that listen to the part. For a user without the right to publish, everything else still works.
local function notify(what)
  redis.pcall('PUBLISH', string.gsub(shared.namespace, 'namespace$', 'events:') .. given.part, what)
end

-- A new namespace has the version of the program that writes first.
local function record_version()
  local is_new = redis.call('HSETNX', shared.namespace, 'layout', given.layout) == 1
  if is_new and given.oldest then redis.call('HSET', shared.namespace, 'oldest', given.oldest) end
end

local function register()
  record_version()
  redis.call('ZADD', shared.parts, 'NX', 0, given.part)
end

local function execution(id)
  local text = id and redis.call('HGET', shared.executions, id)
  return text and cjson.decode(text)
end

local GIVEN_UP = {failed = true, ['timed-out'] = true, lost = true}

local function write_execution(id, row)
  redis.call('HSET', shared.executions, id, cjson.encode(row))
  if GIVEN_UP[row.outcome] and (tonumber(row.retries) or 0) > 0 then
    redis.call('ZADD', shared.given_up, id, id)
  else
    redis.call('ZREM', shared.given_up, id)
  end
end

-- The newest attempt of a tick in the log.
local function newest_of(part, tick)
  local ids = tick and redis.call('HGET', part.ticks, tick)
  return execution(ids and string.match(ids, '%d+$'))
end

-- The execution of an owner by the owner's number; without a number its newest.
local function execution_of(owner, attempt)
  local found
  for number, id in string.gmatch(redis.call('HGET', own.owners, owner) or '', '(%d+):(%d+)') do
    if not attempt or number == attempt then found = id end
  end
  return found, execution(found)
end

-- An execution by the id that its owner knows, which is an old id if it was put back and the answer was lost.
local function execution_known_as(id, owner)
  local row = execution(id)
  if row and row.owner == owner then return id, row end
  for other in string.gmatch(redis.call('HGET', own.owners, owner) or '', ':(%d+)') do
    local found = execution(other)
    if found and found.was == id then return other, found end
  end
end

local function append(name, field, word)
  local words = redis.call('HGET', name, field)
  redis.call('HSET', name, field, words and words .. ' ' .. word or word)
end

local function insert_execution(row)
  local id = whole(redis.call('HINCRBY', shared.namespace, 'last_execution_id', 1))
  write_execution(id, row)
  redis.call('XADD', own.log, id .. '-0', 'id', id)
  append(own.owners, row.owner, row.owner_attempt .. ':' .. id)
  if row.tick then
    append(own.ticks, row.tick, id)
    if not row.tick_instant then redis.call('ZADD', own.names, 'NX', id, row.tick) end
  end
  return id
end

-- The row of an execution, from the arguments.
local function row_of(told)
  local row = {owner_attempt = told.attempt}
  for _, name in ipairs({'key', 'shard', 'tick', 'tick_instant', 'attempt', 'outcome', 'exit_code', 'signal', 'host', 'pid', 'user',
    'command', 'fired_at', 'started_at', 'finished_at', 'duration', 'fencing_token', 'owner', 'shards', 'retries', 'cause',
    'lost_reason', 'request', 'requested_by'}) do
    row[name] = told[name]
  end
  row.place = told.place or told.known_place
  return row
end

-- Whether only a clock that was wrong can have written a time (core/clock.py).
local function is_ahead(time) return time and tonumber(time) > now + given.max_skew end

-- Whether a tick's instant becomes the high-water mark. Far ahead it does not: every tick before it would be skipped. A claim
-- with such an instant is refused before (core/decision.py). A mark that far ahead counts as a day ago.
local function is_new_mark(instant, key)
  local mark = is_ahead(key.high_water) and now - 86400 or tonumber(key.high_water or '-inf')
  return instant and not is_ahead(instant) and tonumber(instant) > mark
end

-- The highest fencing token that this server believes, if it gets it from a client: tokens are its clock in microseconds, or the
-- last one plus one. A day more is the difference between the clocks of two servers.
local function believable_token(fence) return math.max(fence, microseconds) + 86400 * 1000000 end

-- What an execution writes on its key. What the wrong clock of its host has made up counts no further than this server believes it.
local function mark_key(row)
  local key = hash(own.key)
  local marks = {fence = whole(math.max(key.fence or 0, math.min(row.fencing_token or 0, believable_token(0))))}
  if row.outcome == 'not-started' then return set(own.key, marks) end
  if is_new_mark(row.tick_instant, key) then marks.high_water = row.tick_instant end
  local start = math.min(row.started_at, now) -- one in the future would block the gap until then
  if start > tonumber(key.last_start or '-inf') or is_ahead(key.last_start) then
    marks.last_start, marks.last_lateness = seconds(start), seconds(row.fired_at % 60)
    redis.call('HDEL', own.key, 'last_execution_id')
  end
  set(own.key, marks)
end

local function keep_output(id, ending)
  if ending.output then redis.call('HSET', shared.outputs, id, (ending.output_cut or '0') .. ':' .. ending.output) end
end

-- The number of parts of a tick, if one of them was granted; of several numbers one that differs from the given one.
local function division_of(key, tick, given_shards)
  local found
  for shards, name in string.gmatch(redis.call('HGET', shared.divisions, key) or '', '(%d+) (%S+)') do
    if name == tick and (not found or shards ~= given_shards) then found = shards end
  end
  return found
end

local function divide(row)
  if not row.tick then return end
  local known, new = {}, (row.shards or '1') .. ' ' .. row.tick
  for each in string.gmatch(redis.call('HGET', shared.divisions, row.key) or '', '%d+ %S+') do
    if each == new then return end
    known[#known + 1] = each
  end
  known[#known + 1] = new
  redis.call('HSET', shared.divisions, row.key, table.concat(known, ' ', math.max(1, #known - 7)))
end

-- Insert an execution that this server does not know, numbered above the other attempts of its tick.
local function insert_late(row, note)
  local newest = newest_of(own, row.tick)
  row.note, row.attempt, row.late = joined(row.note, note), row.attempt or '1', 'yes'
  row.owner_attempt = row.attempt
  if newest then row.attempt = whole(math.max(row.attempt, newest.attempt + 1)) end
  local id = insert_execution(row)
  keep_output(id, given)
  mark_key(row)
  divide(row)
  return id
end

local function extend(lease)
  set(own.lease, {heartbeat_at = seconds(now), expires_at = seconds(now + lease.ttl)})
end

-- A lease that ends later than any renewal can have set it: this server's clock was set back. Returns what it is now.
local function cut(lease)
  if not lease.owner or lease.expires_at - now <= tonumber(lease.ttl) then return lease end
  set(own.lease, {heartbeat_at = seconds(math.min(lease.heartbeat_at, now)), expires_at = seconds(now + lease.ttl)})
  return hash(own.lease)
end

local function grant_lease(id, row)
  set(own.lease, {execution_id = id, owner = row.owner, ttl = given.ttl, acquired_at = seconds(now),
    heartbeat_at = seconds(now), expires_at = seconds(now + given.ttl)})
end

local function forget_request()
  redis.call('HDEL', own.lease, 'request', 'requested_by', 'request_signal', 'request_grace', 'request_acknowledged_at')
end

local function next_token(fence) return whole(math.max((fence or 0) + 1, microseconds)) end

-- The job of an earlier execution then fails its fence check.
local function raise_fence() set(own.key, {fence = next_token(redis.call('HGET', own.key, 'fence') or 0)}) end

-- An execution that runs without a lease is lost: its job is dead by then.
local function declare_lost(reason, note)
  local id = redis.call('HGET', own.key, 'running')
  local row = execution(id)
  if row and row.outcome == 'running' then
    row.outcome, row.lost_at, row.lost_reason, row.note = 'lost', seconds(now), reason, joined(row.note, note)
    write_execution(id, row)
  end
  redis.call('HDEL', own.key, 'running')
  return row
end

-- Remove an expired lease: its execution is lost. If a retry was to follow, it was lost between two attempts.
local function take_away(reason, note)
  local lease, lost = hash(own.lease), declare_lost(reason, note)
  local kept = execution(lease.execution_id)
  if kept and kept.retrying and not kept.lost_at then
    kept.lost_at, kept.lost_reason, kept.note = seconds(now), reason, joined(kept.note, note)
    write_execution(lease.execution_id, kept)
  end
  redis.call('DEL', own.lease)
  return lost
end

-- The end of an execution that is `running` or `lost`. A start that did not happen is taken back, so that `recent` ignores it.
local function end_execution(id, row, ending, note)
  row.outcome, row.exit_code, row.signal, row.duration = ending.outcome, ending.exit_code, ending.signal, ending.duration
  row.finished_at, row.note, row.place = ending.finished_at, note, ending.place or row.place
  row.lost_reason = ending.lost_reason or row.lost_reason
  row.request, row.requested_by = ending.request or row.request, ending.requested_by or row.requested_by
  write_execution(id, row)
  keep_output(id, ending)
  local key = hash(own.key)
  if key.running == id then redis.call('HDEL', own.key, 'running') end
  if ending.outcome == 'not-started' and key.last_execution_id == id then
    redis.call('HDEL', own.key, 'last_execution_id', 'last_start', 'last_lateness')
    if key.previous_start then
      set(own.key, {last_start = key.previous_start, last_lateness = key.previous_lateness})
    end
  end
end

local function has_no_end(row) return row.outcome == 'running' or row.outcome == 'lost' and not row.duration end

-- The end of an execution from its owner, or the word that no retry follows the one that it kept. This is final, even without the
-- lease, unless another firing has taken over.
local function conclude(id, row, note)
  if has_no_end(row) then return end_execution(id, row, given, note) end
  row.retrying, row.note = nil, note
  write_execution(id, row)
end

-- Release the lease of an execution. Another attempt may have it: the next one, if its owner never got the answer and so did not
-- start it, or the last one before those that this server has lost.
local function let_go(lease, id)
  local other = lease.execution_id ~= (id or given.execution_id) and execution(lease.execution_id)
  if other and id and has_no_end(other) then
    end_execution(lease.execution_id, other, {outcome = 'not-started', duration = '0.0', finished_at = seconds(now)},
      joined(other.note, 'its owner never got the answer'))
  elseif other then
    declare_lost('superseded', UNFINISHED)
  end
  redis.call('DEL', own.lease)
  notify('ended')
end

-- Put back what this server has lost of a running holder, with its old token, but only if no other claim was granted since: its
-- execution and lease, or a later attempt under a lease that is still there. Its token becomes the key's, if it is believable.
local function put_back(lease)
  local known = execution_of(given.owner)
  local goes_on = known and lease.owner == given.owner
  local fence, token = tonumber(redis.call('HGET', own.key, 'fence') or 0), tonumber(given.fencing_token)
  if not given.host or (lease.owner or known) and not goes_on or fence >= token or token > believable_token(fence) then return end
  declare_lost('superseded', goes_on and UNFINISHED or 'running without a lease')
  local row = row_of(given)
  row.outcome, row.note, row.late = 'running', 'put back: the store had lost it', 'yes'
  row.was = given.execution_id
  local id = insert_execution(row)
  grant_lease(id, row)
  mark_key(row)
  set(own.key, {running = id, last_execution_id = id, fence = given.fencing_token})
  divide(row)
  register()
  return id, row
end

-- A skip is a row per (tick, host, reason) of a part, with a count. A delivered one is identified by its firing's owner, of 36
-- characters, and its host's clock may have been ahead; the row keeps the last eight owners.
local function count_skip(skip)
  local member = cjson.encode({skip.tick or '', skip.host, skip.reason})
  local row = cjson.decode(redis.call('HGET', own.skip_rows, member) or '{}')
  if skip.owner then
    if string.find(row.delivered or '', skip.owner, 1, true) then return end
    row.delivered = string.sub((row.delivered and row.delivered .. ' ' or '') .. skip.owner, 1 - 8 * 37)
  end
  row.count = whole(math.min((row.count or 0) + (skip.count or 1), 9007199254740991))
  row.pid, row.holder_host, row.holder_pid, row.detail = skip.pid, skip.holder_host, skip.holder_pid, skip.detail
  redis.call('ZADD', own.skips, 'GT', seconds(math.min(skip.at or now, now)), member)
  redis.call('HSET', own.skip_rows, member, cjson.encode(row))
end

-- What is known of the host; nothing if that cannot be read.
local function presence() return string.match(redis.call('HGET', own.hosts, given.host) or '', '^[%d.]+ (.+)$') end

local function see() redis.call('HSET', own.hosts, given.host, seconds(now) .. ' ' .. given.presence) end

-- A pause or a drain that has not ended.
local function in_force(text)
  local pause = text and cjson.decode(text)
  if pause and (not pause['until'] or tonumber(pause['until']) > now) then return pause end
end

-- The past of a pause, with this one if it is not over yet. What was due in it was not missed.
local function past_with(pause)
  local past, ended = pause.past or '', tonumber(pause['until'] or now)
  if ended <= 0 then return past end
  return string.sub(past .. string.format('%010d-%010d ', tonumber(pause.at), math.min(ended, now) + 1), -990)
end

local function end_pause(name, field, pause)
  local over = {author = pause.author, at = '0', ['until'] = '0', past = past_with(pause)}
  redis.call('HSET', name, field, cjson.encode(over))
end

-- What can keep a key from starting: its own pause, that of all keys, the drain of the host. What oncecron runs for itself tells
-- people of the last two: its own pause alone.
local function stops_of(key, host)
  local own = {'key', shared.pauses, key}
  if string.sub(key, 1, 9) == 'oncecron/' then return {own} end
  return {own, {'key', shared.pauses, '*'}, {'host', shared.drains, host}}
end

-- The first of them that is in force, as facts.
local function stop_of(key, host)
  for _, each in ipairs(stops_of(key, host)) do
    local stop = in_force(redis.call('HGET', each[2], each[3]))
    if stop then
      return {stop_kind = each[1], stop_author = stop.author, stop_reason = stop.reason, stop_since = stop.at}
    end
  end
  return {}
end
