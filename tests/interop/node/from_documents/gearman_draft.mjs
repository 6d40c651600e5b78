// A worker of the Gearman draft of 2005, from its text: HOST PORT NAME JOBS.
import net from "node:net";
import { argv } from "node:process";

const [host, port, name] = [argv[2], Number(argv[3]), argv[4]];
let jobs = Number(argv[5]);
const NOOP = 0, CONNECT = 1, DISCONNECT = 2, SLEEP = 3, ASSIGN_REQ = 6, ASSIGN_RES = 7, STATUS = 8, COMPLETE = 11;
const server = net.connect(port, host);
let asleep = false;
let unread = Buffer.alloc(0);

function send(type, body = Buffer.alloc(0)) {
  const header = Buffer.alloc(9);
  header.write("\0JOB", "latin1");
  header.writeUInt8(type, 4);
  header.writeUInt32BE(body.length, 5);
  server.write(Buffer.concat([header, body]));
}

function receive(type, body) {
  if (type === ASSIGN_RES) {
    const args = body.subarray(body.indexOf(0) + 1);
    const status = Buffer.alloc(12);
    [1, 2, 3].forEach((figure, index) => status.writeUInt32BE(figure, 4 * index));
    send(STATUS, status);
    send(COMPLETE, Buffer.concat([Buffer.from([0]), Buffer.from(args.toString("latin1").toUpperCase(), "latin1")]));
    jobs -= 1;
    asleep = false;
    send(jobs ? ASSIGN_REQ : DISCONNECT);
  } else if (type === NOOP && jobs) {
    asleep = !asleep;
    send(asleep ? SLEEP : ASSIGN_REQ);
  }
}

server.on("connect", () => {
  send(CONNECT, Buffer.from(name));
  send(ASSIGN_REQ);
});
server.on("data", (data) => {
  unread = Buffer.concat([unread, data]);
  while (unread.length >= 9 && unread.length >= 9 + unread.readUInt32BE(5)) {
    const length = unread.readUInt32BE(5);
    const [type, body] = [unread[4], unread.subarray(9, 9 + length)];
    unread = unread.subarray(9 + length);
    receive(type, body);
  }
});
