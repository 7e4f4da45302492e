-- after shared each/shared each/leftovers each/durability
-- One step of a load: new items come after the last one, in their order. With the last step they become visible. 'gone': the lease
-- is lost, or another load has begun; 'again': call the same step again; 'turn NUMBER': the last step; or the counts.
if not held() then return {'gone'} end
register()
local number = tonumber(given.number)

if redis.call('HGET', list.list, 'loading_execution') ~= given.execution_id then
  if number > 0 then return {'gone'} end
  redis.call('HDEL', list.list, 'loading_execution')
  if remove_leftovers(10000) > 0 then return {'again'} end
  local from = redis.call('HGET', list.list, 'total') or '0'
  set(list.list, {loading_execution = given.execution_id, loading_number = '-1', loading_from = from, loading_until = from,
    loading_known = '0', loading_repeated = '0', loading_lease = own.lease})
  redis.call('ZADD', shared.lists, 'NX', 0, given.list) -- so that retention finds it, should this load be cut off
end

local load = hash(list.list)
local last, from, upto = tonumber(load.loading_number), tonumber(load.loading_from), tonumber(load.loading_until)
local known, repeated = tonumber(load.loading_known), tonumber(load.loading_repeated)
if number ~= last and number ~= last + 1 then return {'turn', last} end

if number > last then
  for _, item in ipairs(cjson.decode(given.items)) do
    local id, value = item[1], item[2]
    local place = tonumber(redis.call('HGET', list.ids, id) or nil)
    if not place then
      upto = upto + 1
      redis.call('HSET', list.ids, id, upto)
      redis.call('HSET', list.items, upto, id .. value)
    elseif place <= from then
      known = known + 1
    else
      repeated = repeated + 1
    end
  end
  set(list.list, {loading_number = number, loading_until = upto, loading_known = known, loading_repeated = repeated})
  if given.is_last then
    local server = server_identity()
    set(list.list, {total = upto, next = load.next or '1', loaded_at = seconds(now), run_id = server.run_id,
      promotion = server.promotion, keep = whole(math.max(load.keep or 0, given.keep or 0))})
    redis.call('ZADD', shared.lists, seconds(now), given.list)
  end
end
return {'loaded', upto - from, known, repeated, upto}
