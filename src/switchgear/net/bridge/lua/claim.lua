-- Take waiting jobs, in the order in which a GearMonkey worker looks for them.  An id that leaves its queue is in the
-- claimed set from the same moment on, with the end of its lease as its score.
-- KEYS: scheduled, high, normal, low, claimed, holders.  ARGV: how many, lease in ms, server.  Returns id, queue, ...
local time = redis.call('TIME')
local lease_end = string.format('%.0f', time[1] * 1000 + math.floor(time[2] / 1000) + ARGV[2])
local most = tonumber(ARGV[1])
local answer = {}

local function claim(id, queue)
  -- An id that was queued twice is claimed already, and is not run twice.
  if redis.call('ZADD', KEYS[5], 'NX', lease_end, id) == 1 then
    redis.call('HSET', KEYS[6], id, ARGV[3] .. ' ' .. queue)
    answer[#answer + 1] = id
    answer[#answer + 1] = queue
  end
end

for _, id in ipairs(redis.call('ZRANGEBYSCORE', KEYS[1], 0, time[1], 'LIMIT', 0, most)) do
  redis.call('ZREM', KEYS[1], id)
  claim(id, 'scheduled')
end
for index, queue in ipairs({'high', 'normal', 'low'}) do
  while #answer < 2 * most do
    local id = redis.call('RPOP', KEYS[index + 1])
    if not id then break end
    claim(id, queue)
  end
end
return answer
