-- A server counts itself once among a function's workers, and takes back what dead servers have left in the count.
-- KEYS: count, counted.  ARGV: server, lease in ms, or nothing to count itself out.
-- Returns how many of the workers are servers.
local time = redis.call('TIME')
local now_ms = time[1] * 1000 + math.floor(time[2] / 1000)
if ARGV[2] ~= '' then
  local lease_end = string.format('%.0f', now_ms + ARGV[2])
  if redis.call('ZADD', KEYS[2], lease_end, ARGV[1]) == 1 then redis.call('INCR', KEYS[1]) end
elseif redis.call('ZREM', KEYS[2], ARGV[1]) == 1 then
  redis.call('DECR', KEYS[1])
end
local dead = redis.call('ZREMRANGEBYSCORE', KEYS[2], '-inf', string.format('%.0f', now_ms))
if dead > 0 then redis.call('DECRBY', KEYS[1], dead) end
local servers = redis.call('ZCARD', KEYS[2])
-- Somebody else may have lost count, but it cannot be below what is known.
if tonumber(redis.call('GET', KEYS[1]) or '0') < servers then redis.call('SET', KEYS[1], servers) end
return servers
