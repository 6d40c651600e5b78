// Who idles, straggles, retries?

import { html, nothing, panel, table, jobLink, functionLink, time, empty, choice } from "../parts.js";
import { texts } from "../texts.js";
import { get, optional } from "../api.js";
import { link, refine } from "../router.js";
import { toast } from "../actions.js";
import { Lanes, colorOf } from "../lanes.js";
import * as format from "../format.js";
import { goneAfter } from "../stream_canvas.js";

const t = texts.stream;
const MOST_RUNS = 3000;
const SPANS = [86400, 3600, 300, 30, 1, 0.05, 0.001];
// Following the present, a window up to so wide shows what was watched; a wider one shows what the job log has.
const WATCHED_SECONDS = 600;

const present = new Lanes();
const past = new Lanes();
let asked = null; // what the job log was asked for, and has answered: {since, until, every, stored}
let isAsking = false;
let ofNode = []; // where the attempts are, if other servers of a cluster run jobs as well: theirs are not in the stream
let before = null; // how far the job log was asked for what was before the attempts that were watched; null: not at all
let pinned = null;
let heardAt = 0; // when the last event came, by the clock of the server
let tableAt = 0;
let tableRows = [];
let isTableOpen = false;
let written = ""; // the window as the URL has it
let timer = 0;

const element = () => document.querySelector("task-stream");
const usesLog = ({ isStill, seconds, from }) => (isStill || seconds > WATCHED_SECONDS) && from < present.from;
const source = (shown) => (usesLog(shown) && asked?.stored ? past : present);

// Whether the job log is to be asked: beyond what it was asked for, or for more detail.
function isNews({ from, end, seconds, isStill }) {
  if (!asked || from < asked.since) return true;
  if (end > asked.until && (isStill || end > asked.until + seconds / 50)) return true;
  return asked.every > 1 && seconds < (asked.until - asked.since) / 6;
}

async function ask(shown, update) {
  if (isAsking || !usesLog(shown) || !isNews(shown) || asked?.stored === false) return;
  isAsking = true;
  try {
    const { from, end, seconds } = shown;
    const until = Math.min(present.now(), end + seconds / 2);
    const found = await get("v1/runs", { since: (from - seconds / 2).toFixed(6), until: until.toFixed(6), limit: MOST_RUNS });
    past.offset = present.offset;
    past.takePast(found);
    asked = found;
  } catch (problem) {
    asked = { since: 0, until: Infinity, every: 1, stored: false, problem: problem.message };
  }
  isAsking = false;
  update();
}

// Following the present, what the window has from before somebody looked comes from the job log: no picture begins empty.
async function goBack(shown, update) {
  if (isAsking || shown.isStill || shown.seconds > WATCHED_SECONDS || !present.from || before === -Infinity) return;
  const until = before ?? present.from;
  if (shown.from >= until) return;
  const since = Math.max(shown.from - shown.seconds, until - WATCHED_SECONDS);
  isAsking = true;
  try {
    const found = await get("v1/runs", { since: since.toFixed(6), until: until.toFixed(6), limit: MOST_RUNS });
    before = found.stored ? since : -Infinity;
    present.addPast(found, until);
  } catch {
    before = -Infinity; // somebody who may not read it, or there is none: the picture begins with the present
  }
  isAsking = false;
  update();
}

// The window is in the URL, so that it can be sent as a link.
function onWindow(update) {
  const shown = element().window;
  ask(shown, update);
  goBack(shown, update);
  tableAt = 0;
  update();
  clearTimeout(timer);
  timer = setTimeout(() => {
    if (!element()) return;
    const query = { span: shown.seconds === 30 ? "" : String(Number(shown.seconds.toPrecision(4))), at: shown.isStill ? shown.end.toFixed(6) : "" };
    written = `${query.span}@${query.at}`;
    refine(query, { replace: true });
  }, 400);
}

function follow(route) {
  const { span = "", at = "" } = route.query;
  if (written === `${span}@${at}`) return;
  written = `${span}@${at}`;
  element().show(Number(span) || 30, Number(at) || null);
}

function download() {
  const file = URL.createObjectURL(new Blob([source(element().window).trace()], { type: "application/json" }));
  const anchor = document.createElement("a");
  anchor.href = file;
  anchor.download = `switchgear-${new Date().toISOString().slice(0, 19).replaceAll(":", "")}.json`;
  anchor.click();
  setTimeout(() => URL.revokeObjectURL(file), 10000);
  toast(t.exported);
}

// The table is for reading, so it stands still for some seconds at a time.
function latest(model, shown) {
  if (Date.now() - tableAt < 5000 && tableRows.length) return tableRows;
  tableAt = Date.now();
  tableRows = model.rowsIn(shown.from, shown.end, 100);
  return tableRows;
}

const stripes = (row) => (row.outcome === "failed" ? html`<span class="bad">✕ ${t.outcomes.failed}</span>` : t.outcomes[row.outcome] || row.outcome);

// What is to be known about the picture.
function notes(model, shown) {
  const said = [...ofNode];
  if (model === past) said.push(t.fromLog(asked.every));
  else if (usesLog(shown) && asked && !asked.stored) said.push(asked.problem || t.noLog);
  else if (present.sampled) said.push(t.sampled);
  else if (present.every > 1 && shown.from < present.from) said.push(t.fromLog(present.every));
  else if (present.dropped) said.push(t.dropped(present.dropped));
  return said.map((text) => html`<span class="tag warn">${text}</span>`);
}

const facts = (model, row) => html`<dl class="facts">
  <dt>${texts.columns.job}</dt><dd>${jobLink(row.job)}</dd><dt>${texts.columns.function}</dt><dd>${functionLink(row.function)}</dd>
  <dt>${texts.columns.worker}</dt><dd>${row.lane}</dd>
  <dt>${t.started}</dt><dd>${time(row.start)}</dd><dt>${t.took}</dt><dd>${format.span((row.end ?? model.now()) - row.start)}</dd>
  <dt>${t.outcome}</dt><dd>${stripes(row)}</dd></dl>`;

export const views = { stream: {
  topics: () => ["stream"],
  opened() {
    present.clear();
    past.clear();
    asked = pinned = before = null;
    tableRows = [];
    written = "@";
    ofNode = [];
  },
  load: async (route, signal, previous) => {
    if (previous) return previous;
    const known = await optional("v1/stream", { since: Math.floor(format.now() - 600) }, signal);
    if (known) present.take(known);
    heardAt = known?.at || 0;
    if (known?.node) {
      const nodes = await optional("v1/nodes", {}, signal, []);
      if (nodes.filter((node) => node.partitions).length > 1) ofNode = [t.ofOneNode(known.node)];
    }
    return true;
  },
  event({ update, live }, topic, kind, data) {
    if (topic !== "stream") return;
    // After a restart of the server its workers have other numbers; while the tab was hidden, nothing was heard.
    const isNew = kind === "snapshot" && present.from && (live.topics.overview?.uptime_seconds + 5 < present.now() - present.from || data.at - heardAt > 5);
    if (isNew) {
      present.clear();
      before = null;
      optional("v1/stream", { since: Math.floor(data.at - 600) }).then((known) => known && present.take(known)).catch(() => {});
    }
    heardAt = data.at;
    present.take(data);
    const shown = element()?.window;
    if (!shown || shown.isStill) return;
    ask(shown, update);
    // The log is written a moment later than the attempts are watched.
    if (present.now() > present.from + 1) goBack(shown, update);
  },
  drawn({ route }) {
    const drawn = element();
    if (!drawn) return;
    drawn.model = source(drawn.window);
    follow(route);
  },
  render({ update, at }) {
    const drawn = element();
    const shown = drawn?.window || { seconds: 30, isStill: false, end: present.now(), from: present.now() - 30 };
    const model = source(shown);
    const { lanes, all, isHeat } = model.shown(drawn?.only, shown.end - goneAfter(shown.seconds));
    const names = [...model.functions].filter(Boolean).slice(0, 16);
    const button = (text, run, isOn = false) => html`<button class="button small ${isOn ? "first" : ""}" @click=${run}>${text}</button>`;
    const go = (event) => { if (event.target.value) element().show(shown.seconds, new Date(event.target.value).getTime() / 1000 + shown.seconds / 2); };
    return html`<div class="stack">
      <div class="actions">
        ${button(shown.isStill ? t.resume : t.pause, () => element().still(!shown.isStill), shown.isStill)}
        ${button(t.back, () => element().pan(-0.5))}${button(t.forth, () => element().pan(0.5))}
        <input type="datetime-local" step="1" aria-label=${t.moment} @change=${go}>
        ${[["−", t.zoomOut, 2], ["+", t.zoomIn, 0.5]].map(([sign, text, factor]) => html`<button class="button small icon" aria-label=${text} title=${text} @click=${() => element().zoom(factor, 1)}>${sign}</button>`)}
        <span class="chips">${SPANS.map((span) => choice(span === shown.seconds, link("stream", "", { span: span === 30 ? "" : span, at: shown.isStill ? shown.end.toFixed(6) : "" }), format.span(span)))}</span>
        <span class="push"></span>${button(t.export, download)}
      </div>
      <section class="panel">
        <header><div class="legend">${names.map((name) => html`<span><i class="square" .style=${`color:${colorOf(name)[0]}`}></i><a href=${link("function", format.inPath(name))}>${format.brieflyNamed(name)}</a></span>`)}
          ${names.length ? nothing : html`<span>${t.none}</span>`}</div>
          <div class="more">${drawn?.only ? button(t.everybody, () => element().narrow(null)) : nothing}</div></header>
        <task-stream @pin=${(event) => { pinned = event.detail && { ...event.detail, lane: model.lane(event.detail.worker).name }; update(); }} @window=${() => onWindow(update)}></task-stream>
        <div class="paging small"><span>${isHeat ? t.heatHelp : t.help}</span>
          <span>${t.span(format.span(shown.seconds))} · ${isHeat ? t.groups(lanes.length, all) : t.lanes(all)}${shown.isStill ? html` · ${t.until(format.moment(shown.end))}` : nothing} ${notes(model, shown)}</span></div>
      </section>
      ${pinned ? panel(t.pinned, html`<div class="inside">${facts(model, pinned)}</div>`, button(t.unpin, () => { pinned = null; update(); })) : nothing}
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
          rows: latest(model, shown), target: (row) => link("job", encodeURIComponent(row.job)), fallback: empty(t.none, t.noneText),
        }) : nothing}</details></section>
    </div>`;
  },
} };
