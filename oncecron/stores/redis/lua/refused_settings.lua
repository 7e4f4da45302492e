-- Refuse a server whose settings could make it forget a lease.  A replica refuses the first write by itself (READONLY), with a
-- message from `explain`.

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
