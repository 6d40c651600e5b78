-- The server is still at these jobs.
-- KEYS: claimed, holders.  ARGV: lease in ms, server, ids.  Returns how many it holds.
local time = redis.call('TIME')
local lease_end = string.format('%.0f', time[1] * 1000 + math.floor(time[2] / 1000) + ARGV[1])
local count = 0
for index = 3, #ARGV do
  local server = string.match(redis.call('HGET', KEYS[2], ARGV[index]) or '', '^(%S*) ')
  if server == ARGV[2] then
    redis.call('ZADD', KEYS[1], lease_end, ARGV[index])
    count = count + 1
  end
end
return count
