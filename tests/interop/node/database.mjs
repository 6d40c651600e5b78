// usage: node database.mjs PORT: a client that was told to use database 1, and ignores that it is refused.
import Redis from "ioredis";

const client = new Redis({ port: Number(process.argv[2]), db: 1, retryStrategy: null, maxRetriesPerRequest: 1 });
const heard = [];
client.on("error", (error) => heard.push(error.message));
let answer;
try {
  answer = await client.incr("count:node");
} catch (error) {
  answer = `error: ${error.message}`;
}
client.disconnect();
console.log(JSON.stringify({ heard, answer }));
