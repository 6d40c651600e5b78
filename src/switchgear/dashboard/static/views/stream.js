// Who idles, straggles, retries?

import { html, nothing, panel, table, jobLink, functionLink, time, empty } from "../parts.js";
import { texts } from "../texts.js";
import { optional } from "../api.js";
import { link } from "../router.js";
import { toast } from "../actions.js";
import * as format from "../format.js";

// <task-stream>: lanes of workers over time, on a canvas.
//
// The model keeps the latest attempts of each worker.  The canvas draws those in the window: from a millisecond to a
// day wide, following the present or standing still.  Blocks that would be narrower than a pixel are drawn once for
// each pixel, so the cost of a frame depends on its pixels and not on the number of jobs.

const t = texts.stream;
const MOST_ROWS = 65536;
const MOST_LANES = 64;
// A lane is as high as there is room for, within these.
const LOWEST = 22;
const HIGHEST = 40;
const ROOM = 520;
const HEAD = 26;
const NARROWEST = 0.001;
const WIDEST = 86400;
// Hues that colour-blind eyes can tell apart (Okabe and Ito), and what is written on them.
const PALETTE = [["#0072b2", "#fff"], ["#e69f00", "#201400"], ["#009e73", "#00180f"], ["#cc79a7", "#240012"], ["#56b4e9", "#00182a"], ["#d55e00", "#fff"], ["#8a7a2a", "#fff"], ["#6f5bb5", "#fff"]];

class StreamModel {
  constructor() {
    this.clear();
  }

  clear() {
    this.colors = new Map();
    this.shared = new Map(); // worker id to the lane that it shares
    this.lanes = new Map(); // worker id to {id, name, protocol, rows, running, busy}
    this.count = 0;
    this.sampled = false;
    this.dropped = 0;
    this.since = 0;
    this.offset = 0; // the clock of the server minus this one
  }

  // An answer of /v1/stream, or an event of the topic.
  take(data) {
    const names = data.functions || [];
    for (const name of names) this.color(format.plain(name));
    for (const [id, worker] of Object.entries(data.workers || {})) {
      // Whoever takes single jobs over HTTP is a new worker each time, without a name: they share a lane.
      if (worker.protocol === "http" && !format.plain(worker.name)) this.shared.set(id, t.takers);
      const lane = this.lane(id);
      lane.name = this.shared.get(id) || format.plain(worker.name);
      lane.protocol = worker.protocol;
    }
    if (data.at) this.offset = data.at - Date.now() / 1000;
    this.sampled = Boolean(data.sampled);
    this.dropped += data.dropped || 0;
    if (data.recording_since) this.since = data.recording_since;
    for (const row of data.rows || []) this.add(names, row);
    for (const lane of this.lanes.values()) lane.running = [];
    for (const row of data.running || []) this.lane(String(row[0])).running.push(this.block(names, row));
    if (this.count > MOST_ROWS) this.forget();
  }

  lane(worker) {
    const id = this.shared.get(worker) || worker;
    let lane = this.lanes.get(id);
    if (!lane) this.lanes.set(id, (lane = { id, name: "", protocol: "", rows: [], running: [] }));
    return lane;
  }

  block(names, [worker, index, job, start, end, outcome]) {
    return { worker: String(worker), function: format.plain(names[index] ?? ""), job, start, end, outcome };
  }

  add(names, row) {
    const block = this.block(names, row);
    const rows = this.lane(block.worker).rows;
    for (let index = rows.length - 1; index >= Math.max(0, rows.length - 200); index -= 1) {
      if (rows[index].job === block.job && rows[index].start === block.start) return;
    }
    rows.push(block);
    this.count += 1;
  }

  forget() {
    for (const lane of this.lanes.values()) {
      const half = Math.floor(lane.rows.length / 2);
      lane.rows.splice(0, half);
      this.count -= half;
    }
  }

  color(name) {
    if (!this.colors.has(name)) this.colors.set(name, PALETTE[this.colors.size % PALETTE.length]);
    return this.colors.get(name);
  }

  now() {
    return Date.now() / 1000 + this.offset;
  }

  // The lanes to be shown: the busiest in the window if there are too many; in the order of their names.
  shown(from, until) {
    const all = [...this.lanes.values()].filter((lane) => lane.running.length || lane.rows.length);
    for (const lane of all) {
      lane.busy = 0;
      for (let index = lane.rows.length - 1; index >= 0 && lane.rows[index].end >= from; index -= 1) {
        const row = lane.rows[index];
        if (row.start < until) lane.busy += Math.min(until, row.end) - Math.max(from, row.start);
      }
      for (const row of lane.running) lane.busy += Math.max(0, until - Math.max(from, row.start));
    }
    const chosen = all.length > MOST_LANES ? [...all].sort((a, b) => b.busy - a.busy).slice(0, MOST_LANES) : all;
    const key = (lane) => lane.name || lane.id;
    return { lanes: chosen.sort((a, b) => key(a).localeCompare(key(b), "en", { numeric: true })), all: all.length };
  }

  // For chrome://tracing and Perfetto.
  trace() {
    const events = [];
    for (const lane of this.lanes.values()) {
      events.push({ ph: "M", name: "thread_name", pid: 1, tid: Number(lane.id) || 0, args: { name: lane.name || t.unnamed(lane.id) } });
      for (const row of lane.rows) {
        events.push({ ph: "X", name: row.function, cat: row.outcome, pid: 1, tid: Number(lane.id) || 0, ts: Math.round(row.start * 1e6), dur: Math.round((row.end - row.start) * 1e6), args: { job: row.job, outcome: row.outcome } });
      }
    }
    return JSON.stringify({ traceEvents: events });
  }
}

class TaskStream extends HTMLElement {
  #model = null;
  #seconds = 30;
  #end = null; // the right edge of a window that stands still
  #canvas = null;
  #tip = null;
  #blocks = [];
  #frame = 0;
  #drawnAt = 0;
  #drag = null;
  #sizes = new ResizeObserver(() => { this.#drawnAt = 0; });
  #isSlow = matchMedia("(prefers-reduced-motion: reduce)").matches;

  connectedCallback() {
    if (!this.#canvas) {
      this.className = "canvas-box";
      this.#canvas = document.createElement("canvas");
      this.#canvas.tabIndex = 0;
      this.#canvas.setAttribute("role", "img");
      this.#canvas.setAttribute("aria-label", t.canvas);
      this.#tip = document.createElement("div");
      this.#tip.className = "tip";
      this.#tip.hidden = true;
      this.append(this.#canvas, this.#tip);
      this.#listen();
    }
    this.#sizes.observe(this);
    this.#tick();
  }

  disconnectedCallback() {
    cancelAnimationFrame(this.#frame);
    this.#sizes.disconnect();
  }

  set model(model) { this.#model = model; }
  get window() { return { seconds: this.#seconds, isStill: this.#end !== null, end: this.#end ?? this.#model?.now() }; }

  still(isStill) {
    this.#end = isStill ? this.#model.now() : null;
    this.#changed();
  }

  zoom(factor, around = 0.5) {
    const before = this.#seconds;
    this.#seconds = Math.min(WIDEST, Math.max(NARROWEST, before * factor));
    if (this.#end !== null) this.#end -= (before - this.#seconds) * (1 - around);
    this.#changed();
  }

  pan(share) {
    this.#end = Math.min(this.#model.now(), (this.#end ?? this.#model.now()) + share * this.#seconds);
    this.#changed();
  }

  #changed() {
    this.#drawnAt = 0;
    this.dispatchEvent(new CustomEvent("window"));
  }

  #listen() {
    const canvas = this.#canvas;
    canvas.addEventListener("wheel", (event) => {
      if (!event.ctrlKey && Math.abs(event.deltaX) < Math.abs(event.deltaY) && !event.shiftKey && document.activeElement !== canvas) return;
      event.preventDefault();
      if (Math.abs(event.deltaX) > Math.abs(event.deltaY)) this.pan(event.deltaX / 600);
      else this.zoom(event.deltaY > 0 ? 1.25 : 0.8, event.offsetX / canvas.clientWidth);
    }, { passive: false });
    canvas.addEventListener("pointerdown", (event) => { this.#drag = { x: event.clientX, isMoved: false }; canvas.setPointerCapture(event.pointerId); });
    canvas.addEventListener("pointermove", (event) => {
      if (this.#drag && Math.abs(event.clientX - this.#drag.x) > 3) {
        this.pan((this.#drag.x - event.clientX) / canvas.clientWidth);
        this.#drag = { x: event.clientX, isMoved: true };
      } else {
        this.#hover(event);
      }
    });
    canvas.addEventListener("pointerup", (event) => {
      const drag = this.#drag;
      this.#drag = null;
      if (drag?.isMoved) return;
      const block = this.#at(event);
      this.dispatchEvent(new CustomEvent("pin", { detail: block }));
    });
    canvas.addEventListener("pointerleave", () => { this.#tip.hidden = true; });
    canvas.addEventListener("keydown", (event) => {
      const keys = {
        "+": () => this.zoom(0.5, 1), "=": () => this.zoom(0.5, 1), "-": () => this.zoom(2, 1), ArrowLeft: () => this.pan(-0.2), ArrowRight: () => this.pan(0.2),
        " ": () => this.still(this.#end === null), Home: () => this.still(false),
      };
      if (keys[event.key]) {
        event.preventDefault();
        event.stopPropagation();
        keys[event.key]();
      }
    });
  }

  #at(event) {
    for (let index = this.#blocks.length - 1; index >= 0; index -= 1) {
      const [x, y, width, height, row] = this.#blocks[index];
      if (event.offsetX >= x - 1 && event.offsetX <= x + width + 1 && event.offsetY >= y && event.offsetY <= y + height) return row;
    }
    return null;
  }

  #hover(event) {
    const row = this.#at(event);
    this.#tip.hidden = !row;
    if (!row) return;
    const end = row.end ?? this.#model.now();
    this.#tip.textContent = `${row.function} · ${row.job} · ${format.span(end - row.start)} · ${t.outcomes[row.outcome] || row.outcome}`;
    const isRight = event.offsetX > this.clientWidth / 2;
    this.#tip.style.left = isRight ? "" : `${event.offsetX + 14}px`;
    this.#tip.style.right = isRight ? `${this.clientWidth - event.offsetX + 14}px` : "";
    this.#tip.style.top = `${event.offsetY + 14}px`;
  }

  #tick() {
    this.#frame = requestAnimationFrame((at) => {
      const pause = this.#end !== null ? 500 : this.#isSlow ? 1000 : Math.max(33, (this.#seconds * 1000) / 2400);
      if (this.#model && this.clientWidth && at - this.#drawnAt >= pause) {
        this.#drawnAt = at;
        this.#draw();
      }
      this.#tick();
    });
  }

  #draw() {
    const model = this.#model;
    const until = this.#end ?? model.now();
    const from = until - this.#seconds;
    const { lanes } = model.shown(from, until);
    const width = this.clientWidth;
    const gutter = width < 560 ? 84 : 150;
    const high = Math.max(LOWEST, Math.min(HIGHEST, Math.floor(ROOM / Math.max(1, lanes.length))));
    const height = HEAD + Math.max(3, lanes.length) * high + 4;
    const scale = devicePixelRatio || 1;
    const canvas = this.#canvas;
    if (canvas.width !== Math.round(width * scale) || canvas.height !== Math.round(height * scale)) {
      canvas.width = Math.round(width * scale);
      canvas.height = Math.round(height * scale);
      canvas.style.height = `${height}px`;
    }
    const pen = canvas.getContext("2d");
    pen.setTransform(scale, 0, 0, scale, 0, 0);
    pen.clearRect(0, 0, width, height);
    const style = getComputedStyle(this);
    const probe = (name) => { this.#tip.style.color = `var(--${name})`; const color = getComputedStyle(this.#tip).color; this.#tip.style.color = ""; return color; };
    const ink = { line: probe("line"), text: style.color, muted: probe("muted"), panel: probe("panel"), failed: probe("failed") };
    const place = (time) => gutter + ((time - from) / this.#seconds) * (width - gutter);
    this.#axis(pen, from, until, place, { width, height, gutter, ink });
    this.#blocks = [];
    pen.font = "12px system-ui, sans-serif";
    lanes.forEach((lane, index) => this.#lane(pen, lane, HEAD + index * high, from, until, place, { width, gutter, ink, tall: high }));
  }

  #axis(pen, from, until, place, { width, height, gutter, ink }) {
    const steps = [0.0001, 0.0005, 0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1, 2, 5, 10, 30, 60, 300, 600, 1800, 3600, 7200, 21600];
    const step = steps.find((each) => (each / (until - from)) * (width - gutter) > 90) || 43200;
    pen.font = "12px system-ui, sans-serif";
    pen.textBaseline = "middle";
    for (let time = Math.ceil(from / step) * step; time <= until; time += step) {
      const x = Math.round(place(time)) + 0.5;
      pen.strokeStyle = ink.line;
      pen.beginPath();
      pen.moveTo(x, HEAD - 4);
      pen.lineTo(x, height);
      pen.stroke();
      pen.fillStyle = ink.muted;
      const date = new Date(time * 1000);
      const text = step >= 1 ? date.toTimeString().slice(0, step >= 60 ? 5 : 8) : `${date.toTimeString().slice(6, 8)}.${String(Math.round((time % 1) * 10000)).padStart(4, "0")}`;
      pen.fillText(text, x + 4, 12);
    }
  }

  #lane(pen, lane, top, from, until, place, { width, gutter, ink, tall }) {
    pen.strokeStyle = ink.line;
    pen.beginPath();
    pen.moveTo(0, top + tall + 0.5);
    pen.lineTo(width, top + tall + 0.5);
    pen.stroke();
    pen.save();
    pen.beginPath();
    pen.rect(0, top, gutter - 8, tall);
    pen.clip();
    pen.fillStyle = ink.text;
    pen.textBaseline = "middle";
    pen.fillText(lane.name || t.unnamed(lane.id), 16, top + tall / 2);
    pen.restore();
    const visible = [];
    for (let index = lane.rows.length - 1; index >= 0 && lane.rows[index].end >= from; index -= 1) {
      if (lane.rows[index].start < until) visible.push(lane.rows[index]);
    }
    visible.push(...lane.running.filter((row) => row.start < until));
    visible.sort((a, b) => a.start - b.start);
    const parts = subLanes(visible, this.#model.now());
    lane.parts = Math.max(lane.parts || 1, parts.count); // so that blocks keep their height
    const high = (tall - 6) / lane.parts;
    pen.save();
    pen.beginPath();
    pen.rect(gutter, top, width - gutter, tall);
    pen.clip();
    const lastPixel = new Array(parts.count).fill(-1);
    visible.forEach((row, index) => {
      const sub = parts.of[index];
      const x = place(row.start);
      const wide = Math.max(1, place(row.end ?? until) - x);
      if (wide <= 1 && Math.floor(x) === lastPixel[sub] && row.outcome === "done") return;
      lastPixel[sub] = Math.floor(x);
      this.#block(pen, row, x, top + 3 + sub * high, wide, Math.max(1, high - 1), ink, gutter);
    });
    pen.restore();
  }

  #block(pen, row, x, y, wide, high, ink, left) {
    const [fill, onFill] = this.#model.color(row.function);
    const isBad = row.outcome === "failed";
    const isOpen = ["cancelled", "expired", "requeued"].includes(row.outcome);
    pen.globalAlpha = row.outcome === "running" ? 0.62 : 1;
    pen.fillStyle = isOpen ? ink.panel : fill;
    pen.fillRect(x, y, wide, high);
    pen.globalAlpha = 1;
    if (isOpen || isBad) {
      pen.strokeStyle = isBad ? ink.failed : fill;
      pen.lineWidth = isBad ? 2 : 1.5;
      pen.strokeRect(x + 1, y + 1, Math.max(1, wide - 2), Math.max(1, high - 2));
      pen.lineWidth = 1;
    }
    if (isBad && wide > 4) hatch(pen, x, y, wide, high);
    if (wide > 56 && high > 13 && !isBad) {
      pen.save();
      pen.beginPath();
      pen.rect(x, y, wide - 4, high);
      pen.clip();
      pen.fillStyle = isOpen ? ink.text : row.outcome === "running" ? ink.text : onFill;
      pen.fillText(row.function, Math.max(x, left) + 6, y + high / 2 + 0.5);
      pen.restore();
    }
    this.#blocks.push([x, y, wide, high, row]);
  }
}

// Failure has a pattern besides its colour.
function hatch(pen, x, y, wide, high) {
  pen.save();
  pen.beginPath();
  pen.rect(x, y, wide, high);
  pen.clip();
  pen.strokeStyle = "#fff";
  pen.beginPath();
  for (let left = x - high; left < x + wide; left += 6) {
    pen.moveTo(left, y + high);
    pen.lineTo(left + high, y);
  }
  pen.stroke();
  pen.restore();
}

// A worker may run several jobs at once: each gets the first free part of the lane, of four at most.
function subLanes(rows, now) {
  const ends = [];
  const of = rows.map((row) => {
    let free = ends.findIndex((end) => end <= row.start + 1e-6);
    if (free < 0) free = ends.length < 4 ? ends.length : ends.indexOf(Math.min(...ends));
    ends[free] = row.end ?? now;
    return free;
  });
  return { of, count: Math.max(1, ends.length) };
}

customElements.define("task-stream", TaskStream);

// --- the view ---

const model = new StreamModel();
let pinned = null;
let tableAt = 0;
let tableRows = [];
let isTableOpen = false;

const element = () => document.querySelector("task-stream");

function download() {
  const file = URL.createObjectURL(new Blob([model.trace()], { type: "application/json" }));
  const anchor = document.createElement("a");
  anchor.href = file;
  anchor.download = `switchgear-${new Date().toISOString().slice(0, 19).replaceAll(":", "")}.json`;
  anchor.click();
  setTimeout(() => URL.revokeObjectURL(file), 10000);
  toast(t.exported);
}

// The table is for reading, so it stands still for some seconds at a time.
function latest() {
  if (Date.now() - tableAt < 5000 && tableRows.length) return tableRows;
  tableAt = Date.now();
  const rows = [];
  for (const lane of model.lanes.values()) {
    for (const row of [...lane.running, ...lane.rows.slice(-20)]) rows.push({ ...row, lane: lane.name || t.unnamed(lane.id), key: `${row.job} ${row.start}` });
  }
  tableRows = rows.sort((a, b) => b.start - a.start).slice(0, 100);
  return tableRows;
}

const stripes = (row) => (row.outcome === "failed" ? html`<span class="bad">✕ ${t.outcomes.failed}</span>` : t.outcomes[row.outcome] || row.outcome);

export default {
  topics: () => ["stream"],
  opened() {
    model.clear();
    pinned = null;
    tableRows = [];
  },
  load: async (route, signal) => {
    const past = await optional("v1/stream", { since: Math.floor(format.now() - 600) }, signal);
    if (past) model.take(past);
    return true;
  },
  event(context, topic, kind, data) {
    if (topic === "stream") model.take(data);
  },
  drawn() {
    const drawn = element();
    if (drawn) drawn.model = model;
  },
  render({ update, at }) {
    const view = element()?.window || { seconds: 30, isStill: false, end: model.now() };
    const { lanes, all } = model.shown(view.end - view.seconds, view.end);
    const names = [...model.colors].filter(([name]) => name).slice(0, 16);
    const button = (text, run, isOn = false) => html`<button class="button small ${isOn ? "first" : ""}" @click=${run}>${text}</button>`;
    return html`<div class="stack">
      <div class="actions">
        ${button(view.isStill ? t.resume : t.pause, () => { element().still(!view.isStill); update(); }, view.isStill)}
        ${button(t.zoomIn, () => element().zoom(0.5, 1))}${button(t.zoomOut, () => element().zoom(2, 1))}
        ${button(t.back, () => element().pan(-0.5))}${button(t.forth, () => element().pan(0.5))}
        ${button(t.export, download)}
        <span class="muted small">${t.span(format.span(view.seconds))} · ${t.lanes(lanes.length, all)}${view.isStill ? html` · ${t.paused}` : nothing}</span>
        ${model.sampled ? html`<span class="tag warn">${t.sampled}</span>` : nothing}
        ${model.dropped ? html`<span class="tag warn">${t.dropped(model.dropped)}</span>` : nothing}
      </div>
      <section class="panel">
        <header><div class="legend">${names.map(([name, [color]]) => html`<span><i class="square" .style=${`background:${color}`}></i><a href=${link("function", format.inPath(name))}>${name.length > 40 ? `${name.slice(0, 39)}…` : name}</a></span>`)}
          ${names.length ? nothing : html`<span>${t.none}</span>`}</div></header>
        <task-stream @pin=${(event) => { pinned = event.detail; update(); }} @window=${update}></task-stream>
        <div class="paging small"><span>${t.help}</span><span>${model.since ? t.recordedSince(format.moment(model.since)) : ""}</span></div>
      </section>
      ${pinned ? panel(t.pinned, html`<div class="inside"><dl class="facts">
        <dt>${texts.columns.job}</dt><dd>${jobLink(pinned.job)}</dd><dt>${texts.columns.function}</dt><dd>${functionLink(pinned.function)}</dd>
        <dt>${texts.columns.worker}</dt><dd>${model.lane(pinned.worker).name || t.unnamed(pinned.worker)}</dd>
        <dt>${t.started}</dt><dd>${time(pinned.start)}</dd><dt>${t.took}</dt><dd>${format.span((pinned.end ?? model.now()) - pinned.start)}</dd>
        <dt>${t.outcome}</dt><dd>${stripes(pinned)}</dd></dl></div>`, html`<button class="button small" @click=${() => { pinned = null; update(); }}>${t.unpin}</button>`) : nothing}
      <section class="panel"><details ?open=${isTableOpen} @toggle=${(event) => { isTableOpen = event.target.open; update(); }}><summary class="inside"><strong>${t.table}</strong></summary>
        ${isTableOpen ? table({
          caption: t.table, at,
          columns: [
            { title: texts.columns.job, cell: (row) => jobLink(row.job), isHead: true },
            { title: texts.columns.worker, cell: (row) => row.lane, style: "grow" },
            { title: texts.columns.function, cell: (row) => functionLink(row.function), style: "grow" },
            { title: t.started, cell: (row) => time(row.start), style: "number" },
            { title: t.took, cell: (row) => format.span((row.end ?? model.now()) - row.start), style: "number" },
            { title: t.outcome, cell: stripes },
          ],
          rows: latest(), target: (row) => link("job", encodeURIComponent(row.job)), fallback: empty(t.none, t.noneText),
        }) : nothing}</details></section>
    </div>`;
  },
};
