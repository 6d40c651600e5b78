// What blocks the rest?

import { html, svg, nothing, panel, table, jobLink, state, empty, bar, functionLink, choice } from "../parts.js";
import { texts } from "../texts.js";
import { get } from "../api.js";
import { link, refine, refined } from "../router.js";
import * as format from "../format.js";

const t = texts.graph;
const WIDE = 190;
const HIGH = 54;
const GAP_X = 64;
const GAP_Y = 16;
const MOST_DRAWN = 300;

async function load(route, signal) {
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

function drawing(data, self) {
  const nodes = data.nodes.slice(0, MOST_DRAWN);
  const { layers, at } = layered(nodes, data.edges);
  const tallest = Math.max(...layers.map((ids) => ids.length), 1);
  const height = tallest * (HIGH + GAP_Y) + 20;
  const width = layers.length * (WIDE + GAP_X) - GAP_X + 20;
  const position = (id) => {
    const { layer, place } = at.get(id);
    const free = (tallest - layers[layer].length) * (HIGH + GAP_Y);
    return [10 + layer * (WIDE + GAP_X), 10 + free / 2 + place * (HIGH + GAP_Y)];
  };
  const open = nodes.filter((node) => node.states || !FINAL.includes(node.state));
  const path = criticalPath(open, data.edges, (node) => node.jobs || 1);
  const critical = new Set(path.map((id, index) => `${path[index - 1]}>${id}`));
  const line = ([from, to]) => {
    if (!at.has(from) || !at.has(to)) return nothing;
    const [x1, y1] = position(from);
    const [x2, y2] = position(to);
    const middle = (x1 + WIDE + x2) / 2;
    return svg`<path class=${critical.has(`${from}>${to}`) ? "critical" : ""} d=${`M${x1 + WIDE},${y1 + HIGH / 2} C${middle},${y1 + HIGH / 2} ${middle},${y2 + HIGH / 2} ${x2},${y2 + HIGH / 2}`}></path>`;
  };
  const box = (node) => {
    const [x, y] = position(node.id);
    const style = node.id === self ? "self" : isBad(node) ? "bad" : node.is_frontier || ["ready", "running"].includes(node.state) ? "front" : "";
    return svg`<a href=${target(node)}><g class="node ${style}"><title>${label(node)}: ${note(node)}</title>
      <rect x=${x} y=${y} width=${WIDE} height=${HIGH} rx="8"></rect>
      <text x=${x + 12} y=${y + 22}>${cut(label(node), 26)}</text><text class="soft" x=${x + 12} y=${y + 40}>${cut(note(node), 32)}</text></g></a>`;
  };
  return html`<div class="scroller" tabindex="0" role="region" aria-label=${t.picture}><svg class="graph" viewBox="0 0 ${width} ${height}" .style=${`width:${width}px;max-width:none`} role="group" aria-label=${t.picture}>
    ${data.edges.map(line)}${nodes.map(box)}</svg></div>`;
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

export default {
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
        ${panel(handle ? t.around(handle) : t.title(format.count(data.jobs)), drawing(data, handle), html`<span class="legend"><span><i class="square" .style=${"background:var(--running)"}></i>${t.front}</span><span><i .style=${"background:var(--failed)"}></i>${t.critical}</span></span>`)}
        ${data.complete ? nothing : html`<p class="muted">${t.incomplete}</p>`}
        ${listing(data, at)}</div>` : html`<section class="panel">${empty(t.none, t.noneText)}</section>`}`;
  },
};

// --- the layout ---
//
// Layers for a directed graph: longest path for the layers, barycentres for the order within them.

const SWEEPS = 4;

// nodes: [{id, layer?}], edges: [[from, to]].  Returns Map of id to {layer, place}, and the layers.
function layered(nodes, edges) {
  const known = new Map(nodes.map((node) => [node.id, { before: [], after: [], layer: node.layer ?? -1 }]));
  for (const [from, to] of edges) {
    if (!known.has(from) || !known.has(to) || from === to) continue;
    known.get(from).after.push(to);
    known.get(to).before.push(from);
  }
  if ([...known.values()].some((node) => node.layer < 0)) byLongestPath(known);
  const layers = [];
  for (const [id, node] of known) (layers[node.layer] ??= []).push(id);
  const full = layers.filter(Boolean);
  full.forEach((ids, layer) => ids.forEach((id) => { known.get(id).layer = layer; }));
  const place = new Map();
  full.forEach((ids) => ids.forEach((id, index) => place.set(id, index)));
  for (let sweep = 0; sweep < SWEEPS; sweep += 1) {
    const isDown = sweep % 2 === 0;
    for (const ids of isDown ? full : [...full].reverse()) {
      const middle = (id) => {
        const near = isDown ? known.get(id).before : known.get(id).after;
        return near.length ? near.reduce((sum, each) => sum + place.get(each), 0) / near.length : place.get(id);
      };
      const middles = new Map(ids.map((id) => [id, middle(id)]));
      ids.sort((a, b) => middles.get(a) - middles.get(b));
      ids.forEach((id, index) => place.set(id, index));
    }
  }
  return { layers: full, at: new Map([...known].map(([id, node]) => [id, { layer: node.layer, place: place.get(id) }])) };
}

// A cycle cannot be in a graph of jobs; if one is in groups of them, its nodes come last.
function byLongestPath(known) {
  const open = new Map([...known].map(([id, node]) => [id, node.before.length]));
  const next = [...open].filter(([, count]) => !count).map(([id]) => id);
  for (const node of known.values()) node.layer = 0;
  const done = new Set();
  while (next.length) {
    const id = next.shift();
    done.add(id);
    for (const each of known.get(id).after) {
      known.get(each).layer = Math.max(known.get(each).layer, known.get(id).layer + 1);
      open.set(each, open.get(each) - 1);
      if (!open.get(each)) next.push(each);
    }
  }
  const last = Math.max(0, ...[...done].map((id) => known.get(id).layer));
  for (const [id, node] of known) if (!done.has(id)) node.layer = last + 1;
}

// The longest chain of unfinished work: what the end of the whole waits for.
function criticalPath(nodes, edges, weight) {
  const { layers, at } = layered(nodes, edges);
  const best = new Map();
  const cameFrom = new Map();
  const weights = new Map(nodes.map((node) => [node.id, weight(node)]));
  for (const ids of layers) for (const id of ids) best.set(id, weights.get(id));
  const ordered = edges.filter(([from, to]) => at.has(from) && at.has(to)).sort((a, b) => at.get(a[0]).layer - at.get(b[0]).layer);
  for (const [from, to] of ordered) {
    if (at.get(from).layer >= at.get(to).layer) continue;
    const length = best.get(from) + weights.get(to);
    if (length > best.get(to)) {
      best.set(to, length);
      cameFrom.set(to, from);
    }
  }
  let end = null;
  for (const [id, length] of best) if (end === null || length > best.get(end)) end = id;
  const path = [];
  while (end !== null && end !== undefined) {
    path.unshift(end);
    end = cameFrom.get(end);
  }
  return path;
}
