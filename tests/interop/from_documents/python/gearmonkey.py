"""A GearMonkey worker, from the specification's text, with redis-py: HOST PORT NAME JOBS."""

import sys
import time
from typing import Any

import redis

SCRIPT = (
    "local item = redis.call('ZRANGEBYSCORE', KEYS[1], 0, ARGV[1], 'LIMIT', 0, 1); if (#item > 0) then "
    "redis.call('ZREM', KEYS[1], item[1]); return { KEYS[1],  item[1] }; end"
)
host, port, name, jobs = sys.argv[1], int(sys.argv[2]), sys.argv[3], int(sys.argv[4])
server: Any = redis.Redis(host=host, port=port)
digest = server.script_load(SCRIPT)
assert digest == "5231827cd49b540660ef44969b38cc858f157824"
server.incr(f"count:{name}")
while jobs:
    item = server.evalsha(digest, 1, f"queue:{name}:scheduled", int(time.time()))
    item = item or server.brpop([f"queue:{name}:{priority}" for priority in ("high", "normal", "low")], 1)
    if not item:
        continue
    job_id = item[1].decode()
    job = f"job:{name}:{job_id}"
    server.publish(f"channel:{name}", f"start:{job_id}")
    server.execute_command("HMSET", job, "status", "busy")
    given = server.hget(job, "input")
    server.execute_command("HMSET", job, "status:dividend", 1, "status:divisor", 2)
    server.execute_command("HMSET", job, "status", "success", "output", given.upper())
    server.expire(job, 90000)
    server.publish(f"channel:{name}", f"finish:{job_id}")
    server.lpush(f"lock:{name}:{job_id}", "OK")
    server.expire(f"lock:{name}:{job_id}", 10)
    jobs -= 1
server.decr(f"count:{name}")
server.close()
