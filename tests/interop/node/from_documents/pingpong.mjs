// A PingPongWorker, from the document's text: HOST PORT NAME JOBS.
import { argv } from "node:process";
import { Dealer } from "zeromq";

const BROKER_TIMEOUT_MS = 1000, N_TIMEOUTS = 3;
let jobs = Number(argv[5]);

async function connect() {
  const frontend = new Dealer({ receiveTimeout: BROKER_TIMEOUT_MS });
  frontend.connect(`tcp://${argv[2]}:${argv[3]}`);
  await frontend.send(["", "READY"]);
  return frontend;
}

let frontend = await connect();
let timeouts = 0;
while (jobs) {
  let message;
  try {
    [, message] = await frontend.receive();
  } catch (error) {
    if (error.code !== "EAGAIN") throw error;
    timeouts += 1;
    if (timeouts > N_TIMEOUTS) {
      frontend.close();
      frontend = await connect();
      timeouts = 0;
    } else {
      await frontend.send(["", "PING"]);
    }
    continue;
  }
  timeouts = 0;
  if (message.toString() !== "PONG") {
    await frontend.send(["", message.toString().toUpperCase()]);
    jobs -= 1;
  }
}
frontend.close();
