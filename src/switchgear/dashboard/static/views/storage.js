// Is the disk the limit?

import { html, nothing, tile, panel, bar } from "../parts.js";
import { texts } from "../texts.js";
import { get, optional } from "../api.js";
import * as format from "../format.js";
import "../chart.js";

const t = texts.storage;
const SECONDS = 600;
let points = { times: [], mean: [], waiting: [] };
let last = null;

// The mean of the commits since the last look; null if there were none.
function meanSince(figures) {
  const total = (figures.mean_commit_seconds || 0) * figures.commits;
  const before = last;
  last = { total, commits: figures.commits };
  return before && figures.commits > before.commits ? Math.max(0, (total - before.total) / (figures.commits - before.commits)) * 1000 : null;
}

async function load(route, signal) {
  const [figures, server] = await Promise.all([get("v1/storage", {}, signal), optional("v1/server", {}, signal)]);
  const at = format.now();
  points.times.push(at);
  points.mean.push(meanSince(figures));
  points.waiting.push(figures.waiting_changes);
  while (points.times[0] < at - SECONDS) for (const values of Object.values(points)) values.shift();
  return { figures, memory: server?.memory };
}

const atMost = (seconds) => (seconds ? `≤ ${format.span(seconds)}` : "–");

const PARTS = ["jobs", "held_keys", "limiters", "history", "drafts", "subscriptions", "schedules", "registrations", "input", "output"];

export default {
  everySeconds: 2,
  opened() {
    points = { times: [], mean: [], waiting: [] };
    last = null;
  },
  load,
  render({ data }) {
    const { figures, memory } = data;
    const log = figures.joblog;
    const held = memory ? PARTS.filter((name) => memory[name]).sort((a, b) => memory[b] - memory[a]) : [];
    return html`<div class="stack">
      ${figures.error ? html`<p class="alarm critical" role="alert"><span class="glyph">✕</span>${figures.error}</p>` : nothing}
      <div class="tiles">
        ${tile({ label: t.half, value: atMost(figures.p50_commit_seconds), note: t.halfNote })}
        ${tile({ label: t.mean, value: format.span(figures.mean_commit_seconds), note: t.commits(format.short(figures.commits)) })}
        ${tile({ label: t.p99, value: atMost(figures.p99_commit_seconds), note: t.halfNote })}
        ${tile({ label: t.waiting, value: format.short(figures.waiting_changes), note: t.waitingNote, tone: figures.waiting_changes > 100000 ? "warn" : "" })}
        ${tile({ label: t.size, value: format.bytes(figures.file_bytes), note: figures.is_durable ? t.durable : t.memory })}
      </div>
      ${panel(t.chart, html`<div class="inside">${points.times.length > 1 ? html`<line-chart role="img" aria-label=${t.chartLabel} .chart=${{ times: [...points.times], height: 180, series: [
        { label: t.inMilliseconds, color: "ready", values: [...points.mean], fill: true }, { label: t.waiting, color: "expired", values: [...points.waiting], dash: [4, 3] }] }}></line-chart>
        <div class="legend"><span><i .style=${"background:var(--ready)"}></i>${t.inMilliseconds}</span><span><i .style=${"background:var(--expired)"}></i>${t.waiting}</span></div>` : html`<p class="muted">${texts.overview.chart.soon}</p>`}</div>`)}
      <div class="columns">
        ${panel(t.store, html`<div class="inside"><dl class="facts">
          <dt>${t.where}</dt><dd class="mono">${figures.url}</dd>
          <dt>${t.state}</dt><dd>${figures.error ? html`<span class="bad">${figures.error}</span>` : html`<span class="good">${t.works}</span>`}</dd>
          <dt>${t.kept}</dt><dd>${figures.is_durable ? t.durable : t.memory}</dd></dl></div>`)}
        ${log ? panel(t.joblog, html`<div class="inside"><dl class="facts">
          <dt>${t.where}</dt><dd class="mono">${log.url}</dd>
          <dt>${t.written}</dt><dd>${format.count(log.written)}</dd>
          <dt>${t.behind}</dt><dd>${format.count(log.waiting)}</dd>
          <dt>${t.dropped}</dt><dd class=${log.dropped ? "bad" : ""}>${format.count(log.dropped)}</dd>
          <dt>${t.size}</dt><dd>${format.bytes(log.file_bytes)}</dd></dl></div>`) : panel(t.joblog, html`<div class="inside muted">${t.noJoblog}</div>`)}
        ${memory ? panel(t.memoryTitle, html`<div class="inside stack">
          <p>${format.bytes(memory.held)} <span class="muted">${memory.limit ? `${texts.overview.of} ${format.bytes(memory.limit)}` : t.noLimit}</span></p>
          ${memory.limit ? bar([["accent", memory.held, t.memoryTitle]], memory.limit) : nothing}
          <dl class="facts">${held.map((name) => html`<dt>${t.parts[name]}</dt><dd>${format.bytes(memory[name])}</dd>`)}</dl></div>`) : nothing}
      </div>
    </div>`;
  },
};
