-- What a worker says on the way, if the server still holds the job.
-- KEYS: job, holders.  ARGV: id, server, channel, event or nothing, field, value, ...  Returns 1 if it was said.
local server = string.match(redis.call('HGET', KEYS[2], ARGV[1]) or '', '^(%S*) ')
if server ~= ARGV[2] then return 0 end
if ARGV[4] ~= '' then redis.call('PUBLISH', ARGV[3], ARGV[4]) end
redis.call('HMSET', KEYS[1], unpack(ARGV, 5))
return 1
