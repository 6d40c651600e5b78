-- Queue a job for GearMonkey workers, once.
-- KEYS: mark, job, queue.  ARGV: origin, id, input, channel, seconds that the mark is kept, ZADD's score or nothing,
-- the trace context or nothing.
-- Returns the job's id, which is an older one if it was pushed before.
local pushed = redis.call('GET', KEYS[1])
if pushed then return pushed end
redis.call('SET', KEYS[1], ARGV[2], 'EX', ARGV[5])
redis.call('HMSET', KEYS[2], 'status', 'idle', 'input', ARGV[3], 'origin', ARGV[1])
if ARGV[7] ~= '' then
  redis.call('HSET', KEYS[2], 'traceparent', ARGV[7])
end
redis.call('PUBLISH', ARGV[4], 'create:' .. ARGV[2])
if ARGV[6] == '' then
  redis.call('LPUSH', KEYS[3], ARGV[2])
else
  redis.call('ZADD', KEYS[3], ARGV[6], ARGV[2])
end
return ARGV[2]
