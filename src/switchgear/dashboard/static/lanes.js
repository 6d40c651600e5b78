// What the task stream shows: the attempts of each worker, of the present or from the job log.

import { texts } from "./texts.js";
import * as format from "./format.js";

const t = texts.stream;
const MOST_ROWS = 65536;
const MOST_LANES = 64;
const MOST_SHARED = 4096;
const GROUPS = 48;
// Hues that colour-blind eyes can tell apart (Okabe and Ito), and what is written on them.
const PALETTE = [["#0072b2", "#fff"], ["#e69f00", "#201400"], ["#009e73", "#00180f"], ["#cc79a7", "#240012"], ["#56b4e9", "#00182a"], ["#d55e00", "#fff"], ["#8a7a2a", "#fff"], ["#6f5bb5", "#fff"]];
const colors = new Map();

export function colorOf(name) {
  if (!colors.has(name)) colors.set(name, PALETTE[colors.size % PALETTE.length]);
  return colors.get(name);
}

const names = new Intl.Collator("en", { numeric: true });

export class Lanes {
  constructor() {
    this.clear();
  }

  clear() {
    this.lanes = new Map(); // by worker: {id, name, rows, running}; rows in the order of their ends
    this.functions = new Set();
    this.count = 0;
    this.revision = 0; // changes with the rows
    this.sampled = false;
    this.dropped = 0;
    this.from = 0; // since when attempts are recorded
    this.latest = 0; // the last end
    this.offset = 0; // the clock of the server minus this one
    this.ordered = null;
    this.shared = new Map(); // workers that share a lane
    this.logged = new Map(); // lanes that only the job log knows, by the name of their worker
    this.every = 1; // of the runs from the job log, one in so many is here
  }

  // An answer of /v1/stream, or an event of the topic.
  take(data) {
    for (const [id, worker] of Object.entries(data.workers)) this.worker(id, worker);
    this.offset = data.at - Date.now() / 1000;
    this.sampled = data.sampled;
    this.dropped += data.dropped;
    this.from ||= Math.max(data.recording_since, data.at - 600);
    // Where some were left out, each of the others stands for several.
    const weight = data.rows.length ? 1 + data.dropped / data.rows.length : 1;
    const mixed = new Set();
    for (const row of data.rows) {
      const block = this.block(data.functions, row, weight);
      const lane = this.lane(block.worker);
      if (block.end <= this.latest) {
        if (lane.rows.some((each) => each.job === block.job && each.start === block.start)) continue;
        mixed.add(lane);
      }
      lane.rows.push(block);
      this.count += 1;
    }
    for (const lane of mixed) lane.rows.sort((a, b) => a.end - b.end);
    if (data.rows.length) this.latest = Math.max(this.latest, data.rows.at(-1)[4]);
    for (const lane of this.lanes.values()) lane.running = [];
    const share = data.running.length ? Math.max(1, (data.running_count || 0) / data.running.length) : 1;
    for (const row of data.running) this.lane(String(row[0])).running.push(this.block(data.functions, row, share));
    if (this.count > MOST_ROWS) this.thin();
    if (this.shared.size > MOST_SHARED) this.forget();
    this.revision += 1;
  }

  // Takers of single jobs over HTTP come and go for as long as the page is open: most of their numbers mean nothing any more.
  forget() {
    for (const [id, lane] of this.shared) {
      if (this.shared.size <= MOST_SHARED / 2) break;
      if (lane === t.takers) this.shared.delete(id);
    }
  }

  // An answer of /v1/runs, which replaces what was there.
  takePast(data) {
    const { revision, offset } = this;
    this.clear();
    Object.assign(this, { revision: revision + 1, offset, from: data.since });
    data.workers.forEach((worker, index) => this.worker(String(index), worker));
    for (const row of data.rows) {
      const block = this.block(data.functions, row, data.every);
      if (block.end === null && block.outcome !== "running") block.end = block.start; // when it ended is not known
      const lane = this.lane(block.worker);
      (block.end === null ? lane.running : lane.rows).push(block);
      this.count += 1;
    }
    for (const lane of this.lanes.values()) lane.rows.sort((a, b) => a.end - b.end);
  }

  // An answer of /v1/runs that goes on before what is there: the lanes of the present begin earlier.
  addPast(data, until) {
    const names = data.workers.map(({ name, protocol }) => laneName(name, protocol) || format.plain(name) || t.nameless);
    const byName = new Map([...this.lanes.values()].map((lane) => [lane.name, lane]));
    const older = new Map();
    for (const row of data.rows) {
      const block = this.block(data.functions, row, data.every);
      if (block.end === null || block.end > until) continue; // it is among those that were watched
      const name = names[row[0]];
      let lane = byName.get(name);
      if (!lane) {
        lane = this.lane(name === t.takers ? name : `log ${name}`);
        lane.name = name;
        byName.set(name, lane);
        this.logged.set(name, lane.id);
      }
      block.worker = lane.id;
      if (!older.has(lane)) older.set(lane, []);
      older.get(lane).push(block);
      this.count += 1;
    }
    for (const [lane, rows] of older) lane.rows = [...rows.sort((a, b) => a.end - b.end), ...lane.rows];
    this.every = Math.max(this.every, data.every);
    this.revision += 1;
  }

  lane(worker) {
    const id = this.shared.get(worker) || worker;
    let lane = this.lanes.get(id);
    if (!lane) {
      this.lanes.set(id, (lane = { id, name: t.unnamed(id), rows: [], running: [] }));
      this.ordered = null;
    }
    return lane;
  }

  worker(id, { name, protocol }) {
    const shared = laneName(name, protocol);
    const known = shared || format.plain(name);
    if (shared) this.shared.set(id, shared);
    // The job log knows workers by their names; the first that comes with one goes on in its lane.
    else if (this.logged.has(known) && !this.lanes.has(id)) this.shared.set(id, this.logged.get(known));
    if (!shared) this.logged.delete(known);
    const lane = this.lane(id);
    if (!known || known === lane.name) return;
    lane.name = known;
    this.ordered = null;
  }

  block(functions, [worker, index, job, start, end, outcome], weight) {
    const name = format.plain(functions[index] ?? "");
    this.functions.add(name);
    const id = String(worker);
    return { worker: this.shared.get(id) || id, function: name, job, start, end, outcome, weight };
  }

  // Of the older three quarters of each lane every second row goes, and the others count double: what is long ago is
  // known in less detail, and the memory stays the same.
  thin() {
    for (const [id, lane] of this.lanes) {
      const old = Math.floor((lane.rows.length * 3) / 4);
      const kept = lane.rows.filter((row, index) => index >= old || index % 2 === 0 || row.outcome === "failed");
      for (let index = 0; index < old / 2; index += 1) kept[index].weight *= 2;
      this.count -= lane.rows.length - kept.length;
      this.dropped += lane.rows.length - kept.length;
      lane.rows = kept;
      if (!kept.length && !lane.running.length) {
        this.lanes.delete(id);
        this.ordered = null;
      }
    }
  }

  now() {
    return Date.now() / 1000 + this.offset;
  }

  // The lanes to be shown, by name: workers, or groups of neighbours if there are too many.  `only` are the first and the
  // last of a group; workers of which nothing was heard since some time are gone.
  shown(only, since = -Infinity) {
    this.ordered ??= [...this.lanes.values()].sort((a, b) => names.compare(a.name, b.name) || names.compare(a.id, b.id));
    const first = only ? this.ordered.findIndex((lane) => lane.id === only[0]) : -1;
    const last = only ? this.ordered.findIndex((lane) => lane.id === only[1]) : -1;
    const all = (first >= 0 && last >= 0 ? this.ordered.slice(first, last + 1) : this.ordered).filter((lane) => lane.running.length || !(lane.rows.at(-1)?.end < since));
    if (all.length <= MOST_LANES) return { lanes: all, all: all.length, isHeat: false };
    const size = Math.ceil(all.length / GROUPS);
    const lanes = [];
    for (let at = 0; at < all.length; at += size) {
      const members = all.slice(at, at + size);
      const [one, other] = [members[0], members.at(-1)];
      lanes.push({ name: `${one.name} +${members.length - 1}`, range: `${one.name} … ${other.name}`, members, only: [one.id, other.id] });
    }
    return { lanes, all: all.length, isHeat: true };
  }

  // What ran in a window, by its start, the newest first.
  rowsIn(from, until, most) {
    const found = [];
    for (const lane of this.lanes.values()) {
      found.push(...[...visible(lane, from, until)].slice(0, most).map((row) => ({ ...row, lane: lane.name, key: `${row.job} ${row.start}` })));
    }
    return found.sort((a, b) => b.start - a.start).slice(0, most);
  }

  // For chrome://tracing and Perfetto.
  trace() {
    const events = [];
    [...this.lanes.values()].forEach((lane, tid) => {
      events.push({ ph: "M", name: "thread_name", pid: 1, tid, args: { name: lane.name } });
      for (const row of lane.rows) {
        events.push({ ph: "X", name: row.function, cat: row.outcome, pid: 1, tid, ts: Math.round(row.start * 1e6), dur: Math.round((row.end - row.start) * 1e6), args: { job: row.job, outcome: row.outcome } });
      }
    });
    return JSON.stringify({ traceEvents: events });
  }
}

// Whoever takes single jobs over HTTP is a new worker each time, without a name: they share a lane, which this names.
const laneName = (name, protocol) => (protocol === "http" && /^(worker \d+)?$/.test(format.plain(name)) ? t.takers : "");

// The attempts of a lane in a window, the newest first.
export function* visible(lane, from, until) {
  for (const row of lane.running) if (row.start < until) yield row;
  for (let index = lane.rows.length - 1; index >= 0 && lane.rows[index].end >= from; index -= 1) {
    if (lane.rows[index].start < until) yield lane.rows[index];
  }
}
