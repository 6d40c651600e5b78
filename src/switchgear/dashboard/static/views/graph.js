// What blocks the rest?

import { html, svg, nothing, panel, table, jobLink, state, empty, bar, functionLink, choice } from "../parts.js";
import { texts } from "../texts.js";
import { get, Problem } from "../api.js";
import { link, refine, refined } from "../router.js";
import * as format from "../format.js";

const t = texts.graph;
const WIDE = 190;
const HIGH = 54;
const GAP_X = 64;
const GAP_Y = 16;
const BEND = 14; // what an edge takes that passes a layer

// --- the layout, which a worker of the browser makes ---

let worker = null;
let asked = 0;
const waiting = new Map();

function arranged(nodes, edges) {
  if (!worker) {
    worker = new Worker(new URL("../layout.js", import.meta.url), { type: "module" });
    worker.onmessage = ({ data }) => {
      waiting.get(data.id)?.resolve(data);
      waiting.delete(data.id);
    };
    worker.onerror = () => {
      for (const each of waiting.values()) each.reject(new Problem(0, { detail: texts.problems.newVersion }));
      waiting.clear();
      worker = null;
    };
  }
  asked += 1;
  worker.postMessage({ id: asked, edges, nodes: nodes.map((node) => ({ id: node.id, layer: node.layer, weight: node.jobs || 1, isOpen: Boolean(node.states) || !FINAL.includes(node.state) })) });
  return new Promise((resolve, reject) => { waiting.set(asked, { resolve, reject }); });
}

async function load(route, signal) {
  const data = await found(route, signal);
  return { ...data, places: data.nodes.length ? await arranged(data.nodes, data.edges) : null };
}

async function found(route, signal) {
  const { handle, function: name, name: prefix, depth = "2" } = route.query;
  if (handle) {
    const near = await get(`v1/jobs/${encodeURIComponent(handle)}/graph`, { depth }, signal);
    return { kind: "jobs", nodes: near.nodes.map((node) => ({ ...node, id: node.handle })), edges: near.edges, complete: near.complete };
  }
  // All that belongs together, collapsed by the server: it is found by one of the jobs that wait.
  const jobs = (await get("v1/jobs", { state: "waiting", limit: 200 }, signal)).jobs.filter((job) => typeof job.function === "string");
  const waiting = [...new Set(jobs.map((job) => job.function))].slice(0, 12);
  const chosen = prefix ? "" : name || waiting[0];
  if (!chosen && !prefix) return { kind: "groups", nodes: [], edges: [], complete: true, waiting };
  const one = jobs.find((job) => job.function === chosen);
  const whole = await get("v1/graph", one ? { handle: one.handle } : { function: chosen, name: prefix }, signal);
  return { waiting, chosen, kind: "groups", nodes: whole.groups, edges: whole.edges.map((edge) => [edge.before, edge.after, edge.jobs]), complete: whole.complete, stuck: whole.stuck || [], jobs: whole.jobs };
}

const FINAL = ["done", "failed", "cancelled", "expired"];
const isBad = (node) => (node.states ? Boolean(node.states.failed) : ["failed", "cancelled", "expired"].includes(node.state));
const label = (node) => format.plain(node.label ?? node.name) || node.handle || format.plain(node.function);
const cut = (text, length) => (text.length > length ? `${text.slice(0, length - 1)}…` : text);

function note(node) {
  if (node.states) return t.jobsIn(node.jobs, Object.entries(node.states).filter(([, count]) => count).map(([name, count]) => `${format.short(count)} ${texts.states[name]?.toLowerCase() || name}`).join(", "));
  return `${texts.states[node.state]} · ${format.plain(node.function)}`;
}

function target(node) {
  if (node.handle) return link("job", encodeURIComponent(node.handle));
  return node.jobs === 1 && node.examples[0] ? link("job", encodeURIComponent(node.examples[0])) : link("graph", "", { handle: node.examples[0] });
}

function drawing({ nodes, edges, places: { layers, bends, path } }, self) {
  const isNode = new Set(nodes.map((node) => node.id));
  const tall = (id) => (isNode.has(id) ? HIGH + GAP_Y : BEND);
  const heights = layers.map((ids) => ids.reduce((sum, id) => sum + tall(id), 0));
  const height = Math.max(...heights, HIGH + GAP_Y) + 20 - GAP_Y;
  const width = layers.length * (WIDE + GAP_X) - GAP_X + 20;
  const at = new Map(); // left edge and middle of each
  layers.forEach((ids, layer) => {
    let y = (height + GAP_Y - heights[layer]) / 2;
    for (const id of ids) {
      at.set(id, [10 + layer * (WIDE + GAP_X), y + (tall(id) - (isNode.has(id) ? GAP_Y : 0)) / 2]);
      y += tall(id);
    }
  });
  const critical = new Set(path.map((id, index) => `${path[index - 1]}>${id}`));
  const line = ([from, to], index) => {
    if (!at.has(from) || !at.has(to)) return nothing;
    let [x1, y1] = at.get(from);
    let d = `M${x1 + WIDE},${y1}`;
    for (const id of [...bends[index], to]) {
      const [x2, y2] = at.get(id);
      const middle = (x1 + WIDE + x2) / 2;
      d += ` C${middle},${y1} ${middle},${y2} ${x2},${y2}${id === to ? "" : ` H${x2 + WIDE}`}`;
      [x1, y1] = [x2, y2];
    }
    return svg`<path class=${critical.has(`${from}>${to}`) ? "critical" : ""} d=${d}></path>`;
  };
  const box = (node) => {
    const [x, middle] = at.get(node.id);
    const y = middle - HIGH / 2;
    const style = node.id === self ? "self" : isBad(node) ? "bad" : node.is_frontier || ["ready", "running"].includes(node.state) ? "front" : "";
    return svg`<a href=${target(node)}><g class="node ${style}"><title>${label(node)}: ${note(node)}</title>
      <rect x=${x} y=${y} width=${WIDE} height=${HIGH} rx="8"></rect>
      <text x=${x + 12} y=${y + 22}>${cut(label(node), 26)}</text><text class="soft" x=${x + 12} y=${y + 40}>${cut(note(node), 32)}</text></g></a>`;
  };
  return html`<div class="scroller" tabindex="0" role="region" aria-label=${t.picture}><svg class="graph" viewBox="0 0 ${width} ${height}" .style=${`width:${width}px;max-width:none`} role="group" aria-label=${t.picture}>
    ${edges.map(line)}${nodes.map(box)}</svg></div>`;
}

function listing(data, at) {
  return panel(t.table, table({
    caption: t.table, at,
    columns: data.kind === "jobs" ? [
      { title: texts.columns.job, cell: (node) => jobLink(node.handle), isHead: true },
      { title: texts.columns.state, cell: (node) => state(node.state) },
      { title: texts.columns.function, cell: (node) => functionLink(node.function), style: "grow" },
      { title: t.name, cell: (node) => format.plain(node.name), style: "grow" },
      { title: t.away, cell: (node) => node.distance, style: "number" },
    ] : [
      { title: t.group, cell: (node) => html`<a href=${target(node)}>${label(node)}</a>`, style: "grow", isHead: true },
      { title: texts.columns.function, cell: (node) => functionLink(node.function), style: "grow" },
      { title: texts.columns.queue, cell: (node) => bar(Object.entries(node.states).map(([name, count]) => [name, count, texts.states[name]])) },
      { title: texts.columns.jobs, cell: (node) => format.count(node.jobs), style: "number" },
      { title: t.layer, cell: (node) => node.layer, style: "number" },
    ],
    rows: data.nodes.map((node) => ({ ...node, key: String(node.id) })), target,
  }));
}

export const views = { graph: {
  everySeconds: 5,
  load,
  render({ route, data, at }) {
    const { handle, function: name = "", depth = "2" } = route.query;
    const find = (event) => {
      event.preventDefault();
      const form = new FormData(event.target);
      refine({ handle: "", function: "", name: "", [form.get("by")]: form.get("word").trim() });
    };
    return html`
      <form class="filters" role="search" @submit=${find}>
        <select name="by" aria-label=${texts.jobs.by}>${Object.entries(t.by).map(([key, text]) => html`<option value=${key} ?selected=${Boolean(route.query[key])}>${text}</option>`)}</select>
        <input type="search" name="word" aria-label=${t.find} placeholder=${`${t.find}  ( / )`} .value=${handle || name || route.query.name || data.chosen || ""}>
        <button class="button">${t.show}</button>
        ${!handle && data.waiting.length > 1 ? html`<div class="chips">${data.waiting.map((each) => choice(each === data.chosen, link("graph", "", { function: each }), each))}</div>` : nothing}
        ${handle ? html`<div class="chips">${["1", "2", "4", "8"].map((each) => choice(each === depth, refined({ depth: each }), t.depth(each)))}<a class="chip" href=${link("graph")}>${t.whole}</a></div>` : nothing}
      </form>
      ${data.nodes.length ? html`<div class="stack">
        ${data.stuck?.length ? html`<ul class="alarms" aria-label=${t.stuck}>${data.stuck.slice(0, 8).map((each) => html`<li class="alarm"><span class="glyph" aria-hidden="true">!</span><p>${jobLink(each.handle)} ${each.text}</p></li>`)}</ul>` : nothing}
        ${panel(handle ? t.around(handle) : t.title(format.count(data.jobs)), drawing(data, handle), html`<span class="legend"><span><i class="square" .style=${"color:var(--running)"}></i>${t.front}</span><span><i .style=${"color:var(--failed)"}></i>${t.critical}</span></span>`)}
        ${data.complete ? nothing : html`<p class="muted">${t.incomplete}</p>`}
        ${listing(data, at)}</div>` : html`<section class="panel">${empty(t.none, t.noneText)}</section>`}`;
  },
} };
