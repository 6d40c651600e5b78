-- Take a pushed job back, if nobody has begun it.
-- KEYS: mark, job, queue.  ARGV: id, ZREM or LREM, and whether to let go of it in any case (yes or no).
-- Returns 1 if it is withdrawn, or was before, and 0 if somebody has it.
local withdrawn = redis.call('EXISTS', KEYS[2]) == 0
if not withdrawn and redis.call('HGET', KEYS[2], 'status') == 'idle' then
  local removed
  if ARGV[2] == 'ZREM' then
    removed = redis.call('ZREM', KEYS[3], ARGV[1])
  else
    removed = redis.call('LREM', KEYS[3], 1, ARGV[1])
  end
  if removed == 1 then
    redis.call('DEL', KEYS[2])
    withdrawn = true
  end
end
if (withdrawn or ARGV[3] == 'yes') and redis.call('GET', KEYS[1]) == ARGV[1] then redis.call('DEL', KEYS[1]) end
return withdrawn and 1 or 0
