-- after shared each/shared
-- Queue items again that are in one of the states, or mark them as done; all of them, or some by their ids. Returns how many.
local wanted, mended = {}, 0
for _, state in ipairs(cjson.decode(given.states)) do wanted[state] = true end
if wanted.lost then doubt_the_dead(0) end
local marks = {}
if given.ids then
  for _, id in ipairs(cjson.decode(given.ids)) do
    local position = redis.call('HGET', list.ids, id)
    local text = position and redis.call('HGET', list.marks, position)
    if text then marks[position] = text end
  end
else
  marks = hash(list.marks)
end
for position, text in pairs(marks) do
  local mark = cjson.decode(text)
  local before = mark.state
  if wanted[before] and (before == 'lost' or before == 'dead' or before == 'failed') then
    mark.state, mark.changed_at, mark.reason = given.state, seconds(now), given.reason
    mark.not_before = given.state == 'queued' and seconds(now) or nil
    write_mark(position, mark, before)
    mended = mended + 1
  end
end
return mended
