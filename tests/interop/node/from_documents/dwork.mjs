// A dwork worker, from the document's text, with protobufjs: HOST PORT NAME JOBS.
import { argv } from "node:process";
import { setTimeout as sleep } from "node:timers/promises";
import protobuf from "protobufjs";
import { Request } from "zeromq";

const { root } = protobuf.parse(`
  syntax = "proto2";
  message Dep { required string name = 1; optional string location = 2; }
  message TaskMsg { required string name = 1; required string origin = 2; repeated Dep pred = 4; repeated Dep succ = 5; }
  message QueryMsg {
    enum Type { Create = 0; Steal = 1; Complete = 2; Transfer = 3; Lookup = 4; NotFound = 5; OK = 6; Exit = 7; Error = 8; }
    required Type type = 1;
    repeated TaskMsg task = 2;
    optional string name = 3;
    optional int32 n = 4;
    optional string location = 6;
  }`);
const QueryMsg = root.lookupType("QueryMsg");
const { Steal, Complete, Transfer, NotFound, OK, Exit } = root.lookupEnum("QueryMsg.Type").values;
const server = new Request();
server.connect(`tcp://${argv[2]}:${argv[3]}`);
const location = "node-worker";
let jobs = Number(argv[5]);

async function ask(query) {
  await server.send(QueryMsg.encode(QueryMsg.create({ ...query, location })).finish());
  const [answer] = await server.receive();
  return QueryMsg.decode(answer);
}

while (jobs) {
  const answer = await ask({ type: Steal, n: 2 });
  if (answer.type === Transfer) {
    const task = answer.task.map(({ name, origin }) => ({ name, origin }));
    if ((await ask({ type: Complete, task })).type !== OK) throw new Error("Complete was not answered with OK");
    jobs -= task.length;
  } else {
    if (![NotFound, Exit].includes(answer.type)) throw new Error(`Steal was answered with ${answer.type}`);
    await sleep(20);
  }
}
await ask({ type: Exit });
server.close();
