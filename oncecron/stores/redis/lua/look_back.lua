-- after shared
-- Tell what is known of the time since an instant, for a firing that may have ticks to make up: rows of core/making_up.py, as JSON.
local rows, since = {}, tonumber(given.since)
local function add(kind, name, detail, from, to)
  rows[#rows + 1] = {kind, name or cjson.null, detail or cjson.null, from or cjson.null, to or cjson.null}
end

local function add_stop(kind, name, field)
  local text = redis.call('HGET', name, field)
  local stop = text and cjson.decode(text)
  if stop then add(kind, field, stop.past, stop.at, stop['until']) end
end

local key = hash(own.key)
if key.schedule then add('plan', key.schedule, key.zone, key.expected_since) end
add_stop('pause', shared.pauses, given.key)
add_stop('pause', shared.pauses, '*')
for host in pairs(hash(own.hosts)) do
  add('host', host)
  add_stop('drain', shared.drains, host)
end
for _, text in ipairs(redis.call('ZRANGEBYSCORE', own.skips, given.since, '+inf')) do
  if string.find(text, '"paused"]', 1, true) or string.find(text, '"drained"]', 1, true) then
    local skip = cjson.decode(text)
    add(skip[3], skip[1], skip[2])
  end
end
for _, entry in ipairs(redis.call('XREVRANGE', own.log, '+', '-', 'COUNT', 100)) do
  local row = execution(string.match(entry[1], '^%d+'))
  local is_run = row and row.finished_at and row.outcome ~= 'not-started' and row.outcome ~= 'unclaimed'
  if is_run and tonumber(row.finished_at) > since then add('run', nil, nil, row.started_at, row.finished_at) end
end
return #rows > 0 and cjson.encode(rows) or '[]'
