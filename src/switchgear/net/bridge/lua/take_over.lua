-- A server that was started again goes on with a job that it held before, unless somebody else has it by now.
-- KEYS: claimed, holders.  ARGV: lease in ms, its name before, its name now, id.  Returns 1 if it has the job.
local time = redis.call('TIME')
local lease_end = string.format('%.0f', time[1] * 1000 + math.floor(time[2] / 1000) + ARGV[1])
local server, queue = string.match(redis.call('HGET', KEYS[2], ARGV[4]) or '', '^(%S*) (%S*)$')
if server ~= ARGV[2] then return 0 end
redis.call('HSET', KEYS[2], ARGV[4], ARGV[3] .. ' ' .. queue)
redis.call('ZADD', KEYS[1], lease_end, ARGV[4])
return 1
