-- Put claimed jobs back to the front of the queues that they came from.
-- KEYS: scheduled, high, normal, low, claimed, holders.
-- ARGV: a server and ids that it holds; or nothing and how many, for those whose lease has passed.
-- Returns how many were put back.
local time = redis.call('TIME')
local ids
if ARGV[1] == '' then
  local now_ms = string.format('%.0f', time[1] * 1000 + math.floor(time[2] / 1000))
  ids = redis.call('ZRANGEBYSCORE', KEYS[5], '-inf', now_ms, 'LIMIT', 0, ARGV[2])
else
  ids = {unpack(ARGV, 2)}
end
local lists = {high = KEYS[2], normal = KEYS[3], low = KEYS[4]}
local count = 0
for _, id in ipairs(ids) do
  local server, queue = string.match(redis.call('HGET', KEYS[6], id) or '', '^(%S*) (%S*)$')
  if ARGV[1] == '' or server == ARGV[1] then
    redis.call('ZREM', KEYS[5], id)
    redis.call('HDEL', KEYS[6], id)
    if queue == 'scheduled' then
      redis.call('ZADD', KEYS[1], time[1], id)
    else
      redis.call('RPUSH', lists[queue] or KEYS[3], id)
    end
    count = count + 1
  end
end
return count
