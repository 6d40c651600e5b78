// A GearMonkey worker, from the specification's text, with ioredis: HOST PORT NAME JOBS.
import { argv } from "node:process";
import Redis from "ioredis";

const SCRIPT =
  "local item = redis.call('ZRANGEBYSCORE', KEYS[1], 0, ARGV[1], 'LIMIT', 0, 1); " +
  "if (#item > 0) then redis.call('ZREM', KEYS[1], item[1]); return { KEYS[1],  item[1] }; end";
const name = argv[4];
let jobs = Number(argv[5]);
const server = new Redis(Number(argv[3]), argv[2]);
const digest = await server.script("LOAD", SCRIPT);
if (digest !== "5231827cd49b540660ef44969b38cc858f157824") throw new Error(digest);
await server.incr(`count:${name}`);
while (jobs) {
  const item =
    (await server.evalsha(digest, 1, `queue:${name}:scheduled`, Math.floor(Date.now() / 1000))) ??
    (await server.brpop(`queue:${name}:high`, `queue:${name}:normal`, `queue:${name}:low`, 1));
  if (!item) continue;
  const id = item[1];
  const job = `job:${name}:${id}`;
  await server.publish(`channel:${name}`, `start:${id}`);
  await server.hmset(job, "status", "busy");
  const input = await server.hget(job, "input");
  await server.hmset(job, "status:dividend", "1", "status:divisor", "2");
  await server.hmset(job, "status", "success", "output", input.toUpperCase());
  await server.expire(job, 90000);
  await server.publish(`channel:${name}`, `finish:${id}`);
  await server.lpush(`lock:${name}:${id}`, "OK");
  await server.expire(`lock:${name}:${id}`, 10);
  jobs -= 1;
}
await server.decr(`count:${name}`);
await server.quit();
