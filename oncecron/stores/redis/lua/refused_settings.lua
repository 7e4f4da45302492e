-- Which settings of the server are refused: those by which it could forget a lease that lives.  A replica refuses the
-- first write by itself (READONLY); `explain` says what is said then.

local INFO = {}
local function info(section)
  if not INFO[section] then
    INFO[section] = {}
    for name, value in string.gmatch(redis.call('INFO', section), '([%w_]+):([^\r\n]*)') do
      INFO[section][name] = value
    end
  end
  return INFO[section]
end

local function refused_settings()
  local policy = info('memory').maxmemory_policy
  if string.sub(policy, 1, 7) == 'allkeys' then return {answer = 'wrong', what = 'eviction', found = policy} end
end
