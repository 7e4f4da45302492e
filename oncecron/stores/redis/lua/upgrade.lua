-- after shared
-- Record the version of the data in a new namespace, or bring older data to it: by steps, each a function by its number. Returns the
-- version that was found, or 'rights'. A script is not rolled back, so a step writes with `write`, which keeps what was there, and an
-- error puts all of it back.
local saved = {}
local function write(command, name, ...)
  if saved[name] == nil then saved[name] = redis.call('DUMP', name) end
  return redis.call(command, name, ...)
end

local function put_back()
  for name, before in pairs(saved) do
    redis.call('DEL', name)
    if before then redis.call('RESTORE', name, 0, before) end
  end
end

-- Whether this user may put something back: the answer is then that the key is there.
local function may_put_back()
  return string.find(redis.pcall('RESTORE', shared.namespace, 0, '-').err, 'BUSYKEY')
end

local steps = {}
-- {steps}
local function upgrade(found)
  for number = found + 1, tonumber(given.layout) do steps[number]() end
  write('HSET', shared.namespace, 'layout', given.layout)
  write('HDEL', shared.namespace, 'oldest')
  if given.oldest then write('HSET', shared.namespace, 'oldest', given.oldest) end
end

record_version()
local found = redis.call('HGET', shared.namespace, 'layout')
if tonumber(found) < tonumber(given.layout) then
  if not may_put_back() then return 'rights' end
  local done, problem = pcall(upgrade, found)
  if not done then
    put_back()
    return redis.error_reply('ERR not upgraded: ' .. (type(problem) == 'table' and problem.err or tostring(problem)))
  end
end
return found
