// <task-stream>: lanes of workers over time, on a canvas.
//
// The window is from a millisecond to a day wide, follows the present or stands still.  What is in it is drawn to a
// picture a few times a second, somewhat further than the present; in between, the picture is only moved.  Blocks that
// would be narrower than a pixel are drawn once for each pixel.  Of very many workers, neighbours share a lane, which
// shows how busy they are.  So the cost of a frame depends on its pixels, and not on the number of jobs or workers.

import { texts } from "./texts.js";
import { colorOf, visible } from "./lanes.js";
import * as format from "./format.js";

const t = texts.stream;
// A lane is as high as there is room for, within these.
const LOWEST = 22;
const HIGHEST = 40;
const ROOM = 520;
const HEAD = 26;
const NARROWEST = 0.001;
const WIDEST = 86400;
// Between two pictures; and how much further than the present one goes.
const PICTURE_MS = 180;
const AHEAD_PIXELS = 64;
const CELL = 6;
const FONT = "12px system-ui, sans-serif";

// A worker that has done nothing for so long, seen from the end of a window, has no lane in it.
export const goneAfter = (seconds) => Math.max(600, 2 * seconds);

class TaskStream extends HTMLElement {
  #model = null;
  #seconds = 30;
  #end = null; // the right edge of a window that stands still
  #canvas = null;
  #tip = null;
  #picture = document.createElement("canvas");
  #drawn = null; // of the picture: {until, revision, at, cost, labels, gutter, perSecond}
  #moved = -1;
  #blocks = [];
  #frame = 0;
  #drag = null;
  #sizes = new ResizeObserver(() => { this.#drawn = null; });
  #isSlow = matchMedia("(prefers-reduced-motion: reduce)").matches;
  #redraw = () => { this.#drawn = null; };
  only = null; // the first and the last worker of a group

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
    addEventListener("theme", this.#redraw);
    this.#tick();
  }

  disconnectedCallback() {
    cancelAnimationFrame(this.#frame);
    this.#sizes.disconnect();
    removeEventListener("theme", this.#redraw);
  }

  set model(model) {
    if (this.#model !== model) this.#drawn = null;
    this.#model = model;
  }

  get window() {
    const end = this.#end ?? this.#model?.now() ?? format.now();
    return { seconds: this.#seconds, isStill: this.#end !== null, end, from: end - this.#seconds };
  }

  // Show a window: `end` is null to follow the present.
  show(seconds, end) {
    this.#seconds = Math.min(WIDEST, Math.max(NARROWEST, seconds));
    this.#end = end === null ? null : Math.min(end, this.#model.now());
    this.#drawn = null;
    this.dispatchEvent(new CustomEvent("window"));
  }

  still(isStill) { this.show(this.#seconds, isStill ? this.#model.now() : null); }

  zoom(factor, around = 0.5) {
    const seconds = Math.min(WIDEST, Math.max(NARROWEST, this.#seconds * factor));
    this.show(seconds, this.#end === null ? null : this.#end - (this.#seconds - seconds) * (1 - around));
  }

  pan(share) { this.show(this.#seconds, this.window.end + share * this.#seconds); }

  narrow(only) {
    this.only = only;
    this.#redraw();
    this.dispatchEvent(new CustomEvent("window"));
  }

  #listen() {
    const canvas = this.#canvas;
    const wide = () => canvas.clientWidth - this.#gutter();
    canvas.addEventListener("wheel", (event) => {
      if (!event.ctrlKey && Math.abs(event.deltaX) < Math.abs(event.deltaY) && !event.shiftKey && document.activeElement !== canvas) return;
      event.preventDefault();
      if (Math.abs(event.deltaX) > Math.abs(event.deltaY)) this.pan(event.deltaX / 600);
      else this.zoom(event.deltaY > 0 ? 1.25 : 0.8, Math.max(0, (event.offsetX - this.#gutter()) / wide()));
    }, { passive: false });
    canvas.addEventListener("pointerdown", (event) => { this.#drag = { x: event.clientX, isMoved: false }; canvas.setPointerCapture(event.pointerId); });
    canvas.addEventListener("pointermove", (event) => {
      if (this.#drag && Math.abs(event.clientX - this.#drag.x) > 3) {
        this.pan((this.#drag.x - event.clientX) / wide());
        this.#drag = { x: event.clientX, isMoved: true };
      } else {
        this.#hover(event);
      }
    });
    canvas.addEventListener("pointerup", (event) => {
      const drag = this.#drag;
      this.#drag = null;
      if (drag?.isMoved) return;
      const found = this.#at(event);
      if (found?.only) this.narrow(found.only);
      else this.dispatchEvent(new CustomEvent("pin", { detail: found }));
    });
    canvas.addEventListener("pointerleave", () => { this.#tip.hidden = true; });
    canvas.addEventListener("keydown", (event) => {
      const keys = {
        "+": () => this.zoom(0.5, 1), "=": () => this.zoom(0.5, 1), "-": () => this.zoom(2, 1), ArrowLeft: () => this.pan(-0.2), ArrowRight: () => this.pan(0.2),
        " ": () => this.still(this.#end === null), Home: () => this.still(false), Escape: () => this.narrow(null),
      };
      if (!keys[event.key]) return;
      event.preventDefault();
      event.stopPropagation();
      keys[event.key]();
    });
  }

  #gutter() { return this.clientWidth < 560 ? 84 : 150; }

  #at(event) {
    const moved = Math.max(0, this.#moved);
    for (let index = this.#blocks.length - 1; index >= 0; index -= 1) {
      const [x, y, width, height, found] = this.#blocks[index];
      const left = event.offsetX - this.#gutter() + moved;
      if (left >= x - 1 && left <= x + width + 1 && event.offsetY >= y && event.offsetY <= y + height) return found;
    }
    return null;
  }

  #hover(event) {
    const found = this.#at(event);
    this.#tip.hidden = !found;
    if (!found) return;
    this.#tip.textContent = found.only ? t.heat(found) : `${found.function} · ${found.job} · ${format.span((found.end ?? this.#model.now()) - found.start)} · ${t.outcomes[found.outcome] || found.outcome}`;
    const isRight = event.offsetX > this.clientWidth / 2;
    this.#tip.style.left = isRight ? "" : `${event.offsetX + 14}px`;
    this.#tip.style.right = isRight ? `${this.clientWidth - event.offsetX + 14}px` : "";
    this.#tip.style.top = `${event.offsetY + 14}px`;
  }

  #tick() {
    this.#frame = requestAnimationFrame((at) => {
      if (this.#model && this.clientWidth) {
        const last = this.#drawn;
        const age = last ? at - last.at : Infinity;
        const pause = this.#end === null && this.#isSlow ? 1000 : Math.max(PICTURE_MS, 6 * (last?.cost || 0));
        const isOver = this.#end === null && last && this.#shift() >= AHEAD_PIXELS;
        if (!last || (age >= pause && (isOver || last.revision !== this.#model.revision))) this.#paint(at);
        this.#show();
      }
      this.#tick();
    });
  }

  // By how many pixels the present has gone on since the picture.
  #shift() {
    if (this.#end !== null || this.#isSlow) return 0;
    return Math.min(AHEAD_PIXELS, Math.floor((this.#model.now() - this.#drawn.until) * this.#drawn.perSecond));
  }

  #show() {
    const moved = this.#shift();
    if (moved === this.#moved) return;
    this.#moved = moved;
    const { gutter, labels } = this.#drawn;
    const scale = devicePixelRatio || 1;
    const pen = this.#canvas.getContext("2d");
    const { width, height } = this.#canvas;
    const left = Math.round(gutter * scale);
    pen.setTransform(1, 0, 0, 1, 0, 0);
    pen.clearRect(left, 0, width - left, height);
    pen.drawImage(this.#picture, Math.round(moved * scale), 0, width - left, height, left, 0, width - left, height);
    pen.setTransform(scale, 0, 0, scale, 0, 0);
    pen.font = FONT;
    pen.textBaseline = "middle";
    // The names of blocks that begin before the window stay where they are.
    for (const [text, y, end, color] of labels) {
      if (end - moved < 60) continue;
      pen.fillStyle = color;
      pen.fillText(text, gutter + 6, y);
    }
  }

  // --- the picture ---

  #paint(at) {
    const begun = performance.now();
    const model = this.#model;
    const until = this.#end ?? model.now();
    const from = until - this.#seconds;
    const { lanes, isHeat } = model.shown(this.only, until - goneAfter(this.#seconds));
    const gutter = this.#gutter();
    const width = this.clientWidth - gutter;
    const perSecond = width / this.#seconds;
    const ahead = this.#end === null ? AHEAD_PIXELS : 0;
    const high = Math.max(LOWEST, Math.min(HIGHEST, Math.floor(ROOM / Math.max(1, lanes.length))));
    const height = HEAD + Math.max(3, lanes.length) * high + 4;
    const scale = devicePixelRatio || 1;
    const size = (canvas, wide) => {
      canvas.width = Math.round(wide * scale);
      canvas.height = Math.round(height * scale);
      const pen = canvas.getContext("2d");
      pen.setTransform(scale, 0, 0, scale, 0, 0);
      pen.font = FONT;
      pen.textBaseline = "middle";
      return pen;
    };
    const frame = { from, end: until + ahead / perSecond, width: width + ahead, height, perSecond, high, ink: this.#ink(), labels: [], place: (time) => (time - from) * perSecond };
    const names = size(this.#canvas, width + gutter);
    this.#canvas.style.height = `${height}px`;
    const pen = size(this.#picture, width + ahead);
    this.#axis(pen, frame);
    this.#blocks = [];
    lanes.forEach((lane, index) => {
      const top = HEAD + index * high;
      for (const [each, wide] of [[pen, frame.width], [names, gutter]]) {
        each.fillStyle = frame.ink.line;
        each.fillRect(0, top + high, wide, 1);
      }
      names.fillStyle = frame.ink.text;
      names.fillText(cut(names, lane.name, gutter - 24), 16, top + high / 2);
      if (isHeat) this.#heat(pen, lane, top, frame);
      else this.#lane(pen, lane, top, frame);
    });
    this.#moved = -1;
    this.#drawn = { until, revision: model.revision, at, cost: performance.now() - begun, labels: frame.labels, gutter, perSecond };
  }

  #ink() {
    const probe = (name) => { this.#tip.style.color = `var(--${name})`; const color = getComputedStyle(this.#tip).color; this.#tip.style.color = ""; return color; };
    return { line: probe("line"), text: getComputedStyle(this).color, muted: probe("muted"), panel: probe("panel"), failed: probe("failed") };
  }

  #axis(pen, { from, end, height, perSecond, ink, place }) {
    const steps = [0.0001, 0.0005, 0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1, 2, 5, 10, 30, 60, 300, 600, 1800, 3600, 7200, 21600];
    const step = steps.find((each) => each * perSecond > 90) || 43200;
    for (let time = Math.ceil(from / step) * step; time <= end; time += step) {
      const x = Math.round(place(time));
      pen.fillStyle = ink.line;
      pen.fillRect(x, HEAD - 4, 1, height);
      pen.fillStyle = ink.muted;
      const date = new Date(time * 1000);
      const text = step >= 1 ? date.toTimeString().slice(0, step >= 60 ? 5 : 8) : `${date.toTimeString().slice(6, 8)}.${String(Math.round((time % 1) * 10000)).padStart(4, "0")}`;
      pen.fillText(text, x + 4, 12);
    }
  }

  #lane(pen, lane, top, frame) {
    const { from, end, high, place } = frame;
    const rows = [...visible(lane, from, end)].sort((a, b) => a.start - b.start);
    const parts = subLanes(rows, end);
    lane.parts = Math.max(lane.parts || 1, parts.count); // so that blocks keep their height
    const tall = (high - 6) / lane.parts;
    const lastPixel = new Array(parts.count).fill(-1);
    rows.forEach((row, index) => {
      const sub = parts.of[index];
      const x = place(row.start);
      const wide = Math.max(1, place(row.end ?? end) - x);
      if (wide <= 1 && Math.floor(x) === lastPixel[sub] && row.outcome === "done") return;
      lastPixel[sub] = Math.floor(x);
      this.#block(pen, row, x, top + 3 + sub * tall, wide, Math.max(1, tall - 1), frame);
    });
  }

  #block(pen, row, start, y, whole, tall, { width, ink, labels }) {
    // Of a block that is far wider than the window only the part in it is drawn.
    const x = Math.max(start, -4);
    const wide = Math.min(start + whole, width + 4) - x;
    const [fill, onFill] = colorOf(row.function);
    const isBad = row.outcome === "failed";
    const isOpen = ["cancelled", "expired", "requeued"].includes(row.outcome);
    pen.globalAlpha = row.outcome === "running" ? 0.62 : 1;
    pen.fillStyle = isOpen ? ink.panel : fill;
    pen.fillRect(x, y, wide, tall);
    pen.globalAlpha = 1;
    if (isOpen || isBad) {
      pen.strokeStyle = isBad ? ink.failed : fill;
      pen.lineWidth = isBad ? 2 : 1.5;
      pen.strokeRect(x + 1, y + 1, Math.max(1, wide - 2), Math.max(1, tall - 2));
      pen.lineWidth = 1;
    }
    if (isBad && wide > 4) hatch(pen, x, y, wide, tall);
    if (wide > 56 && tall > 13 && !isBad) {
      const color = isOpen || row.outcome === "running" ? ink.text : onFill;
      const text = cut(pen, row.function, wide - 12);
      if (start < 0) {
        labels.push([text, y + tall / 2 + 0.5, x + wide, color]);
      } else {
        pen.fillStyle = color;
        pen.fillText(text, x + 6, y + tall / 2 + 0.5);
      }
    }
    this.#blocks.push([x, y, wide, tall, row]);
  }

  // How busy the workers of a group are: the share as strength, the function that takes most as hue.
  #heat(pen, group, top, { from, end, width, high, perSecond, ink }) {
    const each = CELL / perSecond;
    const count = Math.ceil(width / CELL);
    const busy = new Float32Array(count);
    const most = new Float32Array(count);
    const failed = new Uint32Array(count);
    const functions = new Array(count).fill("");
    for (const lane of group.members) {
      for (const row of visible(lane, from, end)) {
        const stop = Math.min(end, row.end ?? end);
        const last = Math.min(count - 1, Math.floor((stop - from) / each));
        for (let cell = Math.max(0, Math.floor((row.start - from) / each)); cell <= last; cell += 1) {
          const share = (Math.min(stop, from + (cell + 1) * each) - Math.max(row.start, from + cell * each)) * row.weight;
          busy[cell] += share;
          if (share > most[cell] || !functions[cell]) {
            most[cell] = share;
            functions[cell] = row.function;
          }
        }
        if (row.outcome === "failed" && last >= 0) failed[last] += 1;
      }
    }
    for (let cell = 0; cell < count; cell += 1) {
      if (!functions[cell]) continue;
      const share = Math.min(1, busy[cell] / (each * group.members.length));
      pen.globalAlpha = 0.12 + 0.88 * share;
      pen.fillStyle = colorOf(functions[cell])[0];
      pen.fillRect(cell * CELL, top + 2, CELL, high - 4);
      pen.globalAlpha = 1;
      if (failed[cell]) {
        pen.fillStyle = ink.failed;
        pen.fillRect(cell * CELL, top + high - 6, CELL - 1, 4);
      }
      this.#blocks.push([cell * CELL, top, CELL - 2, high, { only: group.only, range: group.range, share, failed: failed[cell], function: functions[cell] }]);
    }
  }
}

// A text that fits.
function cut(pen, text, width) {
  if (pen.measureText(text).width <= width) return text;
  let length = Math.min(text.length, Math.ceil(width / 4));
  while (length > 1 && pen.measureText(`${text.slice(0, length)}…`).width > width) length -= 1;
  return `${text.slice(0, length)}…`;
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
