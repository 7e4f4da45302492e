-- after shared
-- Marks that lie ahead of this server's clock, further than any claim may be, count no further than now. They stand for a clock that
-- was wrong. Returns the high-water mark and the last start if they were changed, else ''.
local key, marks, changed = hash(own.key), {}, {'', ''}
for i, name in ipairs({'high_water', 'last_start', 'previous_start'}) do
  if is_ahead(key[name]) then
    marks[name] = seconds(now)
    if i < 3 then changed[i] = key[name] end
  end
end
if next(marks) then set(own.key, marks) end
return changed
