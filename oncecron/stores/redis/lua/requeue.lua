-- Queue items again that are in one of the states; all of them, or one by its id. Returns how many.
local wanted, queued = {}, 0
for _, state in ipairs(cjson.decode(given.states)) do wanted[state] = true end
if wanted.lost then doubt_the_dead(0) end
local marks = {}
if given.id then
  local position = redis.call('HGET', list.ids, given.id)
  local text = position and redis.call('HGET', list.marks, position)
  if text then marks[position] = text end
else
  marks = hash(list.marks)
end
for position, text in pairs(marks) do
  local mark = cjson.decode(text)
  local before = mark.state
  if wanted[before] and (before == 'lost' or before == 'dead' or before == 'failed') then
    mark.state, mark.not_before, mark.changed_at = 'queued', seconds(now), seconds(now)
    write_mark(position, mark, before)
    queued = queued + 1
  end
end
return queued
