-- The end of a claimed job, in the document's order.  The first result counts.
-- KEYS: job, lock, claimed, holders, scheduled, high, normal, low.
-- ARGV: id, status, output, channel, seconds that the job is kept, seconds that the lock is kept.
-- Returns 1 if this was the first result.
local status = redis.call('HGET', KEYS[1], 'status')
local first = status and status ~= 'success' and status ~= 'error'
if first then
  redis.call('HMSET', KEYS[1], 'status', ARGV[2], 'output', ARGV[3])
  redis.call('EXPIRE', KEYS[1], ARGV[5])
  redis.call('PUBLISH', ARGV[4], 'finish:' .. ARGV[1])
  redis.call('LPUSH', KEYS[2], 'OK')
  redis.call('EXPIRE', KEYS[2], ARGV[6])
end
redis.call('HDEL', KEYS[4], ARGV[1])
if redis.call('ZREM', KEYS[3], ARGV[1]) == 0 and first then
  -- The lease had passed, and the job was offered again.
  redis.call('ZREM', KEYS[5], ARGV[1])
  for index = 6, 8 do redis.call('LREM', KEYS[index], 0, ARGV[1]) end
end
return first and 1 or 0
