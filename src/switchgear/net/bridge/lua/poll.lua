-- How far jobs are, without their outputs.  KEYS: jobs.  Returns status, dividend, divisor, ..., empty if unknown.
local answer = {}
for _, key in ipairs(KEYS) do
  local values = redis.call('HMGET', key, 'status', 'status:dividend', 'status:divisor')
  for index = 1, 3 do answer[#answer + 1] = values[index] or '' end
end
return answer
