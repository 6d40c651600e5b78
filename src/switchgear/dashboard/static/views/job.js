// What happened?

import { html, nothing, panel, state, functionLink, jobLink, time, table } from "../parts.js";
import { texts } from "../texts.js";
import { get, optional } from "../api.js";
import { link, readable } from "../router.js";
import { cancelJob, remedies, retryJob, submitJob } from "../actions.js";
import { payloadPanel } from "../payload.js";
import * as format from "../format.js";

const t = texts.job;
const MOST_CONTENT = 512 * 1024;
const FINAL = ["done", "failed", "cancelled", "expired"];

async function load(route, signal, previous, live) {
  const path = `v1/jobs/${route.key}`;
  const [figures, attempts, reasons, graph] = await Promise.all([
    get(path, {}, signal),
    optional(`${path}/attempts`, {}, signal, { attempts: [] }),
    optional(`${path}/explain`, {}, signal, { reasons: [] }),
    optional(`${path}/graph`, { depth: 1 }, signal, { nodes: [], edges: [], complete: true }),
  ]);
  let contents = previous?.contents;
  if (!contents || previous.figures.state !== figures.state) {
    contents = figures.payload_bytes > MOST_CONTENT ? null : await optional(path, { contents: true }, signal);
  }
  return { figures, attempts: attempts.attempts, reasons: reasons.reasons, graph, contents };
}

const TONES = {
  taken: "good", succeeded: "end", settled: "end", ended_badly: "bad", worker_lost: "bad", timed_out: "bad", exhausted: "bad",
  server_lost: "bad", doomed: "bad", cancelled: "", expired: "bad",
};
const GLYPHS = { good: "▶", end: "✓", bad: "✕", "": "●" };

// The life of a job: each change of state, with the time between them.
function timeline(job) {
  const log = job.log;
  return html`<ol class="timeline">${log.map((change, index) => {
    const tone = TONES[change.cause] ?? "";
    const next = log[index + 1];
    const until = next ? next.at : FINAL.includes(job.state) ? null : format.now();
    return html`<li class=${tone} data-glyph=${GLYPHS[tone]}>
      <div><strong>${t.causes[change.cause] || change.cause.replaceAll("_", " ")}</strong>
        ${until ? html`<div class="muted small">${next ? t.then(format.span(until - change.at)) : t.forNow(format.span(Math.round(until - change.at)))}</div>` : nothing}</div>
      <div class="muted">${time(change.at)}</div></li>`;
  })}</ol>`;
}

const facts = (job) => {
  const rows = [
    [texts.columns.function, functionLink(job.function)],
    [t.facts.priority, texts.priorities[job.priority] || job.priority],
    [t.facts.attempts, html`${job.attempts}${job.attempts_limit ? ` ${texts.overview.of} ${job.attempts_limit}` : ""}`],
    [t.facts.created, html`${time(job.created_at)} <span class="muted">${format.ago(job.created_at)}</span>`],
    job.run_at && [t.facts.runAt, html`${time(job.run_at)} <span class="muted">${format.ago(job.run_at)}</span>`],
    job.expires_at && [t.facts.expires, time(job.expires_at)],
    job.finished_at && [t.facts.finished, html`${time(job.finished_at)} <span class="muted">${format.ago(job.finished_at)}</span>`],
    job.timeout && [t.facts.timeout, format.span(job.timeout)],
    format.plain(job.unique) && [t.facts.unique, html`<a class="mono" href=${link("jobs", "", { unique: format.plain(job.unique) })}>${format.plain(job.unique)}</a>`],
    format.plain(job.name) && format.plain(job.name) !== job.handle && [t.facts.name, html`<span class="mono">${format.plain(job.name)}</span>`],
    format.plain(job.key) && [t.facts.key, html`<span class="mono">${format.plain(job.key)}</span>`],
    format.plain(job.schedule) && [t.facts.schedule, html`<a href=${link("schedules", "", { filter: format.plain(job.schedule) })}>${format.plain(job.schedule)}</a>`],
    job.requires.length && [t.facts.requires, job.requires.map((each) => html`<span class="tag">${each}</span> `)],
    job.losses && [t.facts.losses, html`<span class="bad">${job.losses}</span>`],
    job.origin && [t.facts.origin, job.origin],
    [t.facts.delivery, t.deliveries[job.delivery] || job.delivery],
  ];
  return html`<dl class="facts">${rows.filter(Boolean).map(([name, value]) => html`<dt>${name}</dt><dd>${value}</dd>`)}</dl>`;
};

function neighbours(data, handle) {
  const { nodes, edges } = data.graph;
  if (nodes.length < 2) return nothing;
  const byHandle = new Map(nodes.map((node) => [node.handle, node]));
  const list = (handles) => html`<ul>${handles.slice(0, 20).map((each) => {
    const node = byHandle.get(each);
    return html`<li>${node ? state(node.state) : nothing} ${jobLink(each)} <span class="muted">${node ? format.plain(node.name) || format.plain(node.function) : ""}</span></li>`;
  })}${handles.length > 20 ? html`<li class="muted">${t.andMore(handles.length - 20)}</li>` : nothing}</ul>`;
  const before = edges.filter(([, to]) => to === handle).map(([from]) => from);
  const after = edges.filter(([from]) => from === handle).map(([, to]) => to);
  return panel(t.neighbours, html`<div class="inside columns">
    ${before.length ? html`<div><h3 class="muted small">${t.waitsFor}</h3>${list(before)}</div>` : nothing}
    ${after.length ? html`<div><h3 class="muted small">${t.awaitedBy}</h3>${list(after)}</div>` : nothing}
  </div>`, html`<a href=${link("graph", "", { handle })}>${t.showGraph}</a>`);
}

export default {
  title: (route) => readable(route.key),
  everySeconds: 2,
  load,
  render({ data, can, update, at }) {
    const { figures, attempts, reasons, contents } = data;
    const isOver = FINAL.includes(figures.state);
    const handle = figures.handle;
    const error = format.plain(figures.error);
    const path = `v1/jobs/${encodeURIComponent(handle)}`;
    return html`<div class="stack">
      <div class="actions">
        ${state(figures.state, figures.dead)}
        ${figures.denominator ? html`<progress aria-label=${t.progress} .style=${"width:160px"} max=${figures.denominator} value=${figures.numerator}></progress><span>${figures.numerator} / ${figures.denominator}</span>` : nothing}
        ${format.plain(figures.message) ? html`<span class="muted">${format.plain(figures.message)}</span>` : nothing}
        <span class="push"></span>
        ${can("operate") && !isOver ? html`<button class="button danger" @click=${() => cancelJob(handle)}>${texts.cancel.short}</button>` : nothing}
        ${can("operate") && isOver && figures.state !== "done" ? html`<button class="button first" @click=${() => retryJob(handle)}>${texts.retry.short}</button>` : nothing}
        ${can("submit") && contents && typeof contents.payload === "string" ? html`<button class="button" @click=${() => submitJob({ function: format.plain(figures.function), payload: contents.payload })}>${t.again}</button>` : nothing}
      </div>
      ${error && figures.state !== "done" ? panel(texts.columns.error, html`<div class="payload" tabindex="0" role="region" aria-label=${texts.columns.error}><pre class="bad">${error}</pre></div>`,
        html`<a href=${link("jobs", "", { function: format.plain(figures.function), error: format.lastLine(figures.error).slice(0, 80) })}>${t.sameError}</a>`) : nothing}
      <div class="columns">
        <div class="stack">
          ${reasons.length ? panel(isOver ? t.howEnded : figures.state === "running" ? t.whereRuns : t.whyWaits, html`${reasons.map((reason) => html`
            <div class="reason"><p>${reason.text}</p>${remedies(reason, figures, can)}</div>`)}`) : nothing}
          ${panel(t.life, html`<div class="inside">${timeline(figures)}</div>`)}
        </div>
        ${panel(t.about, html`<div class="inside">${facts(figures)}</div>`)}
      </div>
      ${attempts.length ? panel(t.attempts, table({
        caption: t.attempts, at,
        columns: [
          { title: t.attempt, cell: (row) => row.attempt, isHead: true },
          { title: t.started, cell: (row) => time(row.started_at) },
          { title: t.took, cell: (row) => (row.ended_at ? format.span(row.ended_at - row.started_at) : format.span(Math.round(format.now() - row.started_at))), style: "number" },
          ...(attempts.some((row) => row.worker) ? [{ title: texts.columns.worker, cell: (row) => format.plain(row.worker) || "–" }] : []),
          { title: t.outcome, cell: (row) => html`<span class=${TONES[row.outcome] === "bad" ? "bad" : TONES[row.outcome] === "end" ? "good" : ""}>${t.causes[row.outcome] || row.outcome}</span>`, style: "grow2" },
        ],
        rows: attempts.map((row) => ({ ...row, key: String(row.attempt) })),
      })) : nothing}
      ${neighbours(data, handle)}
      <div class="columns">
        ${contents ? payloadPanel({ title: t.payload, value: contents.payload, size: figures.payload_bytes, download: `${path}/payload`, update })
          : panel(t.payload, html`<div class="inside"><p class="muted">${t.tooLong(format.bytes(figures.payload_bytes))}</p><a class="button" href=${`${path}/payload`} download>${texts.payload.download}</a></div>`)}
        ${figures.state === "done" && contents ? payloadPanel({ title: t.result, value: contents.result, download: `${path}/result`, update }) : nothing}
        ${contents && format.plain(contents.warnings) ? panel(t.warnings, html`<div class="payload" tabindex="0" role="region" aria-label=${t.warnings}><pre>${format.plain(contents.warnings)}</pre></div>`) : nothing}
      </div>
    </div>`;
  },
};
