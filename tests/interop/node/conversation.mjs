// A GearMonkey client and a worker, written with a library for Redis: node conversation.mjs LIBRARY RESP-VERSION PORT
// Prints what they heard as JSON.

import { argv, exit } from "node:process";

const [library, version, port] = [argv[2], Number(argv[3]), Number(argv[4])];
const SCRIPT =
  "local item = redis.call('ZRANGEBYSCORE', KEYS[1], 0, ARGV[1], 'LIMIT', 0, 1); " +
  "if (#item > 0) then redis.call('ZREM', KEYS[1], item[1]); return { KEYS[1],  item[1] }; end";
const SHA = "5231827cd49b540660ef44969b38cc858f157824";
const TRIO = ["queue:node:high", "queue:node:normal", "queue:node:low"];

// One face for both libraries: send a command, subscribe, and the error of a command as text.
async function connect() {
  if (library === "ioredis") {
    const { default: Redis } = await import("ioredis");
    const redis = new Redis({ port, host: "127.0.0.1", retryStrategy: null, connectionName: "judge" });
    return {
      send: (...words) => redis.call(...words.map(String)),
      pipeline: async (...commands) => {
        const results = await redis.pipeline(commands.map((words) => ["call", ...words.map(String)])).exec();
        return results.map(([error, result]) => (error ? `error: ${error.message}` : result));
      },
      subscribe: async (channel, heard) => {
        redis.on("message", (_, message) => heard(message));
        await redis.subscribe(channel);
      },
      close: () => redis.quit(),
    };
  }
  const { createClient } = await import("@redis/client");
  const client = createClient({
    socket: { port, host: "127.0.0.1", reconnectStrategy: false },
    RESP: version,
    name: "judge",
    clientInfoTag: "test",
  });
  client.on("error", (error) => {
    console.error(error);
    exit(1);
  });
  await client.connect();
  const send = (...words) => client.sendCommand(words.map(String));
  return {
    send,
    pipeline: (...commands) =>
      Promise.all(commands.map((words) => send(...words).catch((error) => `error: ${error.message}`))),
    subscribe: (channel, heard) => client.subscribe(channel, heard),
    close: () => client.close(),
  };
}

// A table comes as a list in RESP2, and as an object, with a prototype or without, in RESP3.
function table(reply) {
  if (!Array.isArray(reply)) return { ...reply };
  return Object.fromEntries(reply.map((_, at) => reply.slice(at, at + 2)).filter((_, at) => at % 2 === 0));
}

async function run() {
  const [client, worker, listener] = [await connect(), await connect(), await connect()];
  const heard = { messages: [] };
  await listener.subscribe("channel:node", (message) => heard.messages.push(message));

  heard.rollCall = [await client.send("GET", "count:node"), await worker.send("INCR", "count:node")];
  heard.script = await worker.send("SCRIPT", "LOAD", SCRIPT);
  const waiting = worker.send("BRPOP", ...TRIO, 5);

  const id = await client.send("INCR", "uid:node");
  heard.created = await client.pipeline(
    ["HMSET", `job:node:${id}`, "status", "idle", "input", "häll\r\nö"],
    ["PUBLISH", "channel:node", "create"],
    ["LPUSH", "queue:node:normal", id],
    ["NONSENSE"],
    ["PING"],
  );
  const ended = client.send("BRPOP", `lock:node:${id}`, 5);

  const [key, popped] = await waiting;
  heard.popped = [key, Number(popped) === Number(id)];
  heard.input = await worker.send("HGET", `job:node:${id}`, "input");
  heard.finished = await worker.pipeline(
    ["HMSET", `job:node:${id}`, "status", "busy", "status:dividend", 1, "status:divisor", 2],
    ["HMSET", `job:node:${id}`, "status", "success", "output", "done"],
    ["EXPIRE", `job:node:${id}`, 90000],
    ["PUBLISH", "channel:node", "finish"],
    ["LPUSH", `lock:node:${id}`, "OK"],
    ["EXPIRE", `lock:node:${id}`, 10],
  );
  heard.lock = (await ended)[1];
  heard.job = table(await client.send("HGETALL", `job:node:${id}`));
  heard.nothing = [
    await worker.send("EVALSHA", SHA, 1, "queue:node:scheduled", 1700000000),
    await worker.send("BRPOP", ...TRIO, 0.01),
    await client.send("HGET", "job:node:999999", "status"),
  ];
  heard.left = await worker.send("DECR", "count:node");
  await Promise.all([client.close(), worker.close(), listener.close()]);
  console.log(JSON.stringify(heard));
}

await run();
