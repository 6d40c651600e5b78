// A WMP worker, from docs/protocols/wmp.md: HOST PORT NAME JOBS.
import { randomBytes } from "node:crypto";
import { argv } from "node:process";
import { decode, encode } from "@msgpack/msgpack";
import { Dealer } from "zeromq";

const role = argv[4];
let jobs = Number(argv[5]);
let pauseMs = 100;
const dealer = new Dealer({ routingId: `node-${randomBytes(8).toString("hex")}`, receiveTimeout: pauseMs });
dealer.connect(`tcp://${argv[2]}:${argv[3]}`);
const send = (command, headers, ...payload) => dealer.send(["", "WMP1", command, encode(headers), ...payload]);
const ready = () => send("READY", { roles: [role], lease: 30, slots: 1 });

await ready();
while (jobs) {
  dealer.receiveTimeout = pauseMs;
  let frames;
  try {
    frames = await dealer.receive();
  } catch (error) {
    if (error.code !== "EAGAIN") throw error;
    await ready(); // the manager may have forgotten the last one
    pauseMs = Math.min(2 * pauseMs, 10_000);
    continue;
  }
  pauseMs = 100;
  const [, , command, packed, payload] = frames;
  const headers = decode(packed);
  if (command.toString() === "WAKE") {
    await send("GIVE", { to: headers.path, roles: [role], lease: 30 });
  } else if (command.toString() === "TAKE") {
    const about = { to: headers.path, job: headers.job, manager: headers.manager };
    await send("STATUS", { ...about, numerator: 1, denominator: 2 });
    await send("DONE", about, payload.toString().toUpperCase());
    jobs -= 1;
    if (jobs) await ready();
  } else if (command.toString() === "NO") {
    await ready();
  }
}
dealer.close();
