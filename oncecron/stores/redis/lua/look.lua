-- after shared fitness facts
-- Tell what is known of a key and a firing at this instant, names and values in turn. It writes nothing.
local recorded = hash(shared.namespace)
local wrong = is_wrong()
if wrong then return flat(wrong) end
local found = facts(recorded)
add(found, '', {version = version_of(found), now = seconds(now), recovering_for = recovering_for(recorded)},
  {'version', 'now', 'recovering_for'})
return found
