// The list of jobs, the dead ones of them, and the page of one.

import { html, nothing, table, functionLink, jobLink, state, since, empty, GLYPHS, toJob, onlyFunction, zero, pages, actionsColumn, panel, time } from "../parts.js";
import { texts } from "../texts.js";
import { get, optional } from "../api.js";
import { link, refine, refined, go, readable } from "../router.js";
import { bulk, retryJob, cancelJob, reasonBox, submitJob } from "../actions.js";
import { payloadPanel } from "../payload.js";
import * as format from "../format.js";

const t = texts.jobs;
const PAGE = 50;
const STATES = ["ready", "running", "waiting", "scheduled", "done", "failed", "cancelled", "expired"];
const SAVED = "switchgear.saved";
const selection = new Set();

const statesOf = (route) => (route.query.state || "").split(",").filter(Boolean);

function load(route, signal, isDead) {
  const { function: name, unique, name: jobName, error, since: from, dead, cursor } = route.query;
  return get("v1/jobs", { function: name, state: statesOf(route), unique, name: jobName, error, since: from, dead: isDead || Boolean(dead), cursor, limit: PAGE }, signal);
}

// What the filter is for a bulk action; null if it says nothing, because nobody means all jobs by that.
function filterOf(route) {
  const { function: name, unique, name: jobName, error, since: from, dead } = route.query;
  const filter = {};
  if (name) filter.function = name;
  if (unique) filter.unique = unique;
  if (jobName) filter.name = jobName;
  if (error) filter.error = error;
  if (from) filter.since = Number(from);
  if (dead) filter.dead = true;
  const states = statesOf(route);
  if (states.length) filter.states = states;
  return Object.keys(filter).length ? filter : null;
}

const UNFINISHED = ["ready", "running", "waiting", "scheduled"];
const ENDED_BADLY = ["failed", "cancelled", "expired"];

// An action takes only some states; others in the filter would be refused.
function offered(route, possible) {
  const states = statesOf(route);
  return !states.length || states.every((each) => possible.includes(each));
}

function saved() {
  try {
    return JSON.parse(localStorage.getItem(SAVED) || "[]");
  } catch {
    return [];
  }
}

function save(list) {
  try {
    localStorage.setItem(SAVED, JSON.stringify(list.slice(-12)));
  } catch {
    // Saved views are a convenience.
  }
}

function toggleState(route, name) {
  const states = statesOf(route);
  return refined({ state: states.includes(name) ? states.filter((each) => each !== name) : [...states, name] });
}

function filters(route, update) {
  const states = statesOf(route);
  const query = route.query;
  const others = ["function", "unique", "name", "error", "since", "dead"].filter((key) => query[key]);
  const search = (event) => {
    event.preventDefault();
    const form = new FormData(event.target);
    const word = form.get("word").trim();
    const by = form.get("by");
    if (!word) return;
    if (by === "handle") go(link("job", encodeURIComponent(word)));
    else refine({ [by]: by === "since" ? String(format.now() - Number(word) * 3600) : word });
    event.target.reset();
  };
  return html`
    <form class="filters" role="search" @submit=${search}>
      <select name="by" aria-label=${t.by}>${Object.entries(t.filters).map(([key, text]) => html`<option value=${key}>${text}</option>`)}</select>
      <input type="search" name="word" aria-label=${t.search} placeholder=${`${t.search}  ( / )`}>
      <button class="button">${t.find}</button>
      ${others.length || states.length ? html`
        <a class="button" href=${link("jobs")}>${texts.actions.clear}</a>
        <button type="button" class="button" @click=${() => { save([...saved().filter((each) => each !== location.hash), location.hash]); update(); }}>${t.save}</button>` : nothing}
    </form>
    <div class="filters">
      <div class="chips">
        ${STATES.map((name) => html`<a class="chip ${states.includes(name) ? "on" : ""}" aria-current=${states.includes(name) ? "true" : nothing} href=${toggleState(route, name)}><span aria-hidden="true">${GLYPHS[name]}</span>${texts.states[name]}</a>`)}
        ${others.map((key) => html`<a class="chip on" href=${refined({ [key]: "" })} title=${t.removeFilter(t.chips[key])}><span class="text">${t.chips[key]}${key === "dead" ? "" : html`: ${key === "since" ? format.moment(Number(query[key])) : query[key]}`}</span> ✕</a>`)}
      </div>
    </div>
    ${saved().length ? html`<div class="filters"><span class="muted small">${t.savedViews}</span><div class="chips">
      ${saved().map((hash) => html`<a class="chip" href=${hash}><span class="text">${decodeURIComponent(hash.split("?")[1] || hash).replaceAll("&", ", ").replaceAll("=", " ")}</span></a>`)}
      <button class="chip" @click=${() => { save([]); update(); }}>${t.forget}</button></div></div>` : nothing}`;
}

function bulkBar(route, update) {
  const filter = filterOf(route);
  const chosen = [...selection];
  const run = async (action, what) => {
    await bulk(action, what);
    selection.clear();
    update();
  };
  return html`<div class="actions">
    ${chosen.length ? html`<strong>${t.selected(chosen.length)}</strong>
      ${route.query.dead ? nothing : html`<button class="button small danger" @click=${() => run("cancel", { handles: chosen })}>${t.cancelSelected}</button>`}
      <button class="button small" @click=${() => run("retry", { handles: chosen })}>${t.retrySelected}</button>
      <button class="button small" @click=${() => { selection.clear(); update(); }}>${t.selectNone}</button>` : nothing}
    ${!chosen.length && filter ? html`
      ${!route.query.dead && offered(route, UNFINISHED) ? html`<button class="button small danger" @click=${() => run("cancel", { filter })}>${t.cancelAll}</button>` : nothing}
      ${offered(route, ENDED_BADLY) ? html`<button class="button small" @click=${() => run("retry", { filter })}>${t.retryAll}</button>` : nothing}` : nothing}
  </div>`;
}

// The list of jobs; with `isDead`, of those that need a person.
const jobsView = (isDead) => ({
  everySeconds: 5,
  load: (route, signal) => load(route, signal, isDead),
  opened() { selection.clear(); },
  render({ route: asked, data, at, can, update }) {
    const route = isDead ? { ...asked, query: { ...asked.query, dead: "1" } } : asked;
    const here = (query) => link(route.view, "", query);
    const rows = data.jobs.map((job) => ({ ...job, key: job.handle }));
    const pick = (row) => {
      if (!selection.delete(row.key)) selection.add(row.key);
      update();
    };
    const hasFilter = filterOf(asked) !== null;
    const nothingThere = data.complete
      ? empty(hasFilter ? t.noMatch : isDead ? texts.dead.none : t.none, hasFilter ? t.noMatchText : isDead ? texts.dead.noneText : t.noneText, hasFilter ? html`<a class="button" href=${here({})}>${texts.actions.clear}</a>` : nothing)
      : empty(t.notYet, t.notYetText(format.count(data.searched_to)), html`<a class="button first" href=${here({ ...asked.query, cursor: data.next })}>${t.searchOn}</a>`);
    return html`
      ${isDead ? html`<div class="filters">${onlyFunction(route.query.function)}</div>` : filters(route, update)}
      <section class="panel">
        ${table({
          caption: texts.views[route.view].name, at, selection: can("operate") ? selection : null, pick,
          columns: [
            { title: texts.columns.job, cell: (job) => jobLink(job.handle), isHead: true },
            { title: texts.columns.state, cell: (job) => html`${state(job.state, job.dead)}${job.state === "running" && job.denominator ? html` <span class="muted small">${Math.round((100 * job.numerator) / job.denominator)} %</span>` : nothing}`, style: "beside" },
            { title: texts.columns.function, cell: (job) => functionLink(job.function), style: "short" },
            { title: texts.columns.detail, cell: (job) => detail(job), style: isDead ? "grow2 two-lines" : "grow2" },
            { title: texts.columns.attempts, cell: (job) => html`${job.attempts}${job.attempts_limit ? html`<span class="muted">/${job.attempts_limit}</span>` : nothing}`, style: "number" },
            ...(isDead ? [{ title: texts.dead.losses, cell: (job) => job.losses || zero("0"), style: "number" }] : []),
            { title: texts.columns.priority, cell: (job) => (job.priority === "normal" ? html`<span class="zero">${texts.priorities.normal}</span>` : texts.priorities[job.priority] || job.priority), style: "none" },
            { title: isDead ? texts.dead.died : texts.columns.created, cell: (job) => since(isDead ? job.finished_at : job.created_at), style: "number" },
            ...actionsColumn(isDead && can("operate"), (job) => html`<button class="button small" aria-label=${`${texts.retry.short} ${job.handle}`} @click=${() => retryJob(job.handle)}>${texts.retry.short}</button>`),
          ],
          rows, target: toJob, fallback: nothingThere,
        })}
        ${rows.length ? html`<div class="paging">
          ${can("operate") ? bulkBar(route, update) : html`<span></span>`}
          <div class="actions">
            <span>${data.complete ? t.counted(rows.length) : t.down(format.count(data.searched_to))}</span>
            ${pages(route, data.complete ? "" : data.next)}
          </div></div>` : nothing}
      </section>`;
  },
});

// The most telling thing about a job: its label (Django's task), its error, its message, its keys.
function detail(job) {
  if (job.error && job.state !== "done") return html`${format.plain(job.label)} <span class="bad" title=${format.plain(job.error)}>${format.lastLine(job.error)}</span>`;
  const words = [job.label, job.message, job.name, job.unique, job.key].map(format.plain).filter((word, index, all) => word && word !== job.handle && all.indexOf(word) === index);
  return words.length ? html`<span class="muted" title=${words.join(" · ")}>${words.join(" · ")}</span>` : nothing;
}

// What happened?
function jobView(t) {
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
      format.plain(job.label) && [t.facts.label, format.plain(job.label)],
      job.trace && [t.facts.trace, html`<span class="mono">${job.trace.split("-")[1] || job.trace}</span>`],
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

  return {
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
          ${can("submit") && contents && !contents.redacted && typeof contents.payload === "string" ? html`<button class="button" @click=${() => submitJob({ function: format.plain(figures.function), payload: contents.payload })}>${t.again}</button>` : nothing}
        </div>
        ${error && figures.state !== "done" ? panel(texts.columns.error, html`<div class="payload" tabindex="0" role="region" aria-label=${texts.columns.error}><pre class="bad">${error}</pre></div>`,
          html`<a href=${link("jobs", "", { function: format.plain(figures.function), error: format.lastLine(figures.error).slice(0, 80) })}>${t.sameError}</a>`) : nothing}
        <div class="columns">
          <div class="stack">
            ${reasons.length && !(isOver && error) ? panel(isOver ? t.howEnded : figures.state === "running" ? t.whereRuns : t.whyWaits, html`${reasons.map((reason) => reasonBox(reason, figures, can))}`) : nothing}
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
          ${contents ? payloadPanel({ title: t.payload, value: contents.payload, isRedacted: contents.redacted, size: figures.payload_bytes, download: `${path}/payload`, update })
            : panel(t.payload, html`<div class="inside"><p class="muted">${t.tooLong(format.bytes(figures.payload_bytes))}</p><a class="button" href=${`${path}/payload`} download>${texts.payload.download}</a></div>`)}
          ${figures.state === "done" && contents ? payloadPanel({ title: t.result, value: contents.result, isRedacted: contents.redacted, download: `${path}/result`, update }) : nothing}
          ${contents && format.plain(contents.warnings) ? panel(t.warnings, html`<div class="payload" tabindex="0" role="region" aria-label=${t.warnings}><pre>${format.plain(contents.warnings)}</pre></div>`) : nothing}
        </div>
      </div>`;
    },
  };
}

// What is dead needs a person.
export const views = { jobs: jobsView(false), dead: jobsView(true), job: jobView(texts.job) };
