// Live data: one stream of events for all tabs of a browser.
//
// A browser opens six connections to a server at most, so a seventh tab with a stream of its own would hang.  One tab,
// which holds the lock, has the stream, with the topics of all visible tabs; it passes every event on over a
// BroadcastChannel.  A hidden tab wants nothing and gives the lock away, so a forgotten tab costs the server nothing.
// Where there are no locks (plain http to another machine), each visible tab has its own stream.

import { address } from "./api.js";
import { serverTime } from "./format.js";

const LOCK = "switchgear.events";
const HISTORY = 60;
const SILENT_MS = 20000; // there is an event every half second: a connection that is silent for longer is lost
const tab = crypto.getRandomValues(new Uint32Array(2)).join("-");
const channel = "BroadcastChannel" in globalThis ? new BroadcastChannel(`switchgear ${new URL(".", document.baseURI).pathname}`) : null;
const hasLocks = Boolean(navigator.locks && channel);

// What is known of each topic: an object for `overview` and `job:…`, {columns, rows: Map} for tables.
// `history` has the course of each function since the page is open: its ready jobs, and how many had ended at two times;
// `busy` how often each worker was looked at, and was busy.
export const live = { status: "idle", topics: {}, history: new Map(), busy: new Map() };

let mine = [];
let listener = () => {};
let wanted = new Map(); // the topics of all tabs; only in the tab that leads
let source = null;
let open = "";
let giveUpLead = null;
let restart = 0;
const RETRY_MS = 3000;
let refused = 0; // how often in a row the server has refused the stream

// --- what a view uses ---

export function watch(topics, onEvent) {
  listener = onEvent;
  mine = topics;
  for (const topic of Object.keys(live.topics)) if (!topics.includes(topic)) delete live.topics[topic];
  if (!topics.includes("functions")) live.history.clear();
  if (!topics.includes("workers")) live.busy.clear();
  announce();
}

export const rowsOf = (topic) => (live.topics[topic] ? [...live.topics[topic].rows.values()] : null);

// --- events into state ---

function keyOf(value) {
  return typeof value === "object" && value !== null ? JSON.stringify(value) : value;
}

function asRow(columns, values) {
  const row = {};
  columns.forEach((column, index) => { row[column] = values[index]; });
  return row;
}

function applyTable(topic, kind, data) {
  if (kind === "snapshot") live.topics[topic] = { columns: data.columns, rows: new Map() };
  const known = live.topics[topic];
  for (const values of data.rows) known.rows.set(keyOf(values[0]), asRow(known.columns, values));
  for (const key of data.gone || []) known.rows.delete(keyOf(key));
}

// How the queue of each function went while this page was open, for its small curve and the time that it takes.
function remember() {
  const at = Date.now() / 1000;
  for (const [key, row] of live.topics.functions?.rows || []) {
    const now = { at, ended: row.done + row.failed + row.cancelled + row.expired };
    let known = live.history.get(key);
    // After a restart of the server it counts from zero, and after a night asleep the curve would have a gap.
    if (!known || now.ended < known.ended || at - known.at > SILENT_MS / 1000) live.history.set(key, (known = { ready: [], since: now, next: now }));
    if (at - known.next.at > HISTORY * 2) Object.assign(known, { since: known.next, next: now });
    Object.assign(known, now);
    known.ready.push(row.ready);
    if (known.ready.length > HISTORY) known.ready.shift();
    known.rate = at - known.since.at > 5 ? Math.max(0, (now.ended - known.since.ended) / (at - known.since.at)) : null;
  }
  for (const [key, row] of live.topics.workers?.rows || []) {
    const [looks, busy] = live.busy.get(key) || [0, 0];
    live.busy.set(key, [looks + 1, busy + (row.running ? 1 : 0)]);
  }
  for (const key of live.busy.keys()) if (!live.topics.workers?.rows.has(key)) live.busy.delete(key);
}

// A tab that has just come hears of changes before it gets its own snapshot; it cannot use them.
function apply(topic, message) {
  const { kind, data } = message;
  if (kind === "delta" && !live.topics[topic]) return;
  if (topic === "functions" || topic === "workers") applyTable(topic, kind, data);
  else if (topic === "overview") live.topics.overview = { ...(kind === "snapshot" ? {} : live.topics.overview), ...data };
  else live.topics[topic] = topic === "stream" ? true : data;
  serverTime(message.at);
  listener(topic, kind, data, message.at);
}

setInterval(() => { if (live.status === "live" && (mine.includes("functions") || mine.includes("workers"))) { remember(); listener("history"); } }, 2000);

function setStatus(status) {
  if (live.status === status) return;
  live.status = status;
  listener("status");
}

// --- between tabs ---

function announce() {
  const topics = document.hidden ? [] : mine;
  if (!topics.length) setStatus(document.hidden ? "hidden" : "idle");
  if (!hasLocks) {
    connect(topics);
    return;
  }
  if (giveUpLead) {
    hear({ type: "want", tab, topics });
    if (document.hidden) giveUpLead();
  } else {
    channel.postMessage({ type: "want", tab, topics });
    if (!document.hidden) lead();
  }
}

let isQueued = false;
function lead() {
  if (isQueued) return;
  isQueued = true;
  navigator.locks.request(LOCK + channel.name, () => new Promise((release) => {
    wanted = new Map();
    giveUpLead = () => {
      giveUpLead = null;
      isQueued = false;
      disconnect();
      release();
    };
    if (document.hidden) {
      giveUpLead();
      return;
    }
    wanted.set(tab, mine);
    channel.postMessage({ type: "who" });
    reconnectSoon();
  })).catch(() => { isQueued = false; });
}

export function tellTabs(message) {
  channel?.postMessage(message);
}

function hear(message) {
  if (message.type === "identity") { // somebody has logged in or out in another tab: this one has the same cookie
    location.reload();
  } else if (message.type === "want" && giveUpLead) {
    const known = wanted.get(message.tab) || [];
    if (message.topics.length) wanted.set(message.tab, message.topics);
    else wanted.delete(message.tab);
    const isNew = message.topics.some((topic) => !known.includes(topic));
    reconnectSoon(isNew && message.tab !== tab);
  } else if (message.type === "who" && !document.hidden) {
    channel.postMessage({ type: "want", tab, topics: mine });
  } else if (message.type === "event" && mine.includes(message.topic) && !document.hidden) {
    setStatus("live");
    apply(message.topic, message.message);
  } else if (message.type === "status" && !document.hidden && mine.length) {
    setStatus(message.status);
  }
}

if (channel) channel.onmessage = (event) => hear(event.data);
addEventListener("pagehide", () => {
  if (channel) channel.postMessage({ type: "want", tab, topics: [] });
  disconnect();
});
document.addEventListener("visibilitychange", announce);

// --- the stream ---

// A tab that wants a topic needs a snapshot of it, and only a new stream begins with one.
let isForced = false;
let heardAt = 0;
function reconnectSoon(force = false) {
  isForced ||= force;
  clearTimeout(restart);
  restart = setTimeout(() => {
    const topics = [...new Set([...wanted.values()].flat())].sort();
    if (isForced) open = "";
    isForced = false;
    connect(topics);
  }, 30);
}

function disconnect() {
  clearTimeout(restart);
  if (source) source.close();
  source = null;
  open = "";
}

function connect(topics) {
  const text = topics.join(",");
  if (text === open && source) return;
  disconnect();
  if (!text) return;
  open = text;
  source = new EventSource(address("v1/events", { topics: text }));
  heardAt = Date.now();
  const tell = (status) => {
    if (mine.length && !document.hidden) setStatus(status);
    if (hasLocks && giveUpLead) channel.postMessage({ type: "status", status });
  };
  tell("connecting");
  source.onopen = () => { refused = 0; };
  source.onerror = () => {
    tell("lost");
    if (source && source.readyState === EventSource.CLOSED) {
      source = null;
      open = "";
      // After a session has ended, each attempt is a refusal in the log of the server.
      const pause = RETRY_MS * 2 ** Math.min(refused, 4);
      refused += 1;
      if (!hasLocks) restart = setTimeout(announce, pause);
      if (giveUpLead) restart = setTimeout(reconnectSoon, pause);
    }
  };
  for (const kind of ["overview", "functions", "workers", "stream", "job"]) {
    source.addEventListener(kind, (event) => {
      if (!event.data) return;
      const message = JSON.parse(event.data);
      heardAt = Date.now();
      if (live.status !== "live") tell("live");
      const topic = kind === "job" ? `job:${message.data.handle}` : kind;
      if (mine.includes(topic)) apply(topic, message);
      if (hasLocks) channel.postMessage({ type: "event", topic, message });
    });
  }
}

// The computer was asleep, or something between here and the server is: an EventSource does not notice.
setInterval(() => {
  if (!source || Date.now() - heardAt < SILENT_MS) return;
  setStatus("lost");
  if (hasLocks) channel.postMessage({ type: "status", status: "lost" });
  disconnect();
  if (hasLocks) reconnectSoon();
  else announce();
}, 5000);
