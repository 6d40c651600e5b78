-- The result of a pushed job.  From now on its mark lives no longer than the result, whatever becomes of the server.
-- KEYS: mark, job.  ARGV: seconds that the mark is kept.  Returns status and output.
local result = redis.call('HMGET', KEYS[2], 'status', 'output')
if result[1] == 'success' or result[1] == 'error' then redis.call('EXPIRE', KEYS[1], ARGV[1]) end
return result
