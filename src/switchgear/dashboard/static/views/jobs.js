// Where is my job?

import { html, nothing, table, functionLink, jobLink, state, since, empty, GLYPHS, toJob, onlyFunction, zero, actionsColumn } from "../parts.js";
import { texts } from "../texts.js";
import { get } from "../api.js";
import { link, refine, refined, go } from "../router.js";
import { bulk, retryJob } from "../actions.js";
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
    else refine({ [by]: by === "since" ? String(Date.now() / 1000 - Number(word) * 3600) : word });
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
export const jobsView = (isDead) => ({
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
            { title: texts.columns.state, cell: (job) => html`${state(job.state, job.dead)}${job.state === "running" && job.denominator ? html` <span class="muted small">${Math.round((100 * job.numerator) / job.denominator)} %</span>` : nothing}` },
            { title: texts.columns.function, cell: (job) => functionLink(job.function), style: "short" },
            { title: texts.columns.detail, cell: (job) => detail(job), style: "grow2" },
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
            ${route.query.cursor ? html`<a class="button small" href=${refined({})}>${t.firstPage}</a>` : nothing}
            ${data.complete ? nothing : html`<a class="button small" rel="next" href=${here({ ...asked.query, cursor: data.next })}>${t.nextPage}</a>`}
          </div></div>` : nothing}
      </section>`;
  },
});

export default jobsView(false);

// The most telling thing about a job: its error, its message, its keys.
function detail(job) {
  if (job.error && job.state !== "done") return html`<span class="bad" title=${format.plain(job.error)}>${format.lastLine(job.error)}</span>`;
  const name = format.plain(job.name);
  const words = [format.plain(job.message), name === job.handle ? "" : name, job.unique ? format.plain(job.unique) : "", format.plain(job.key)].filter(Boolean);
  return words.length ? html`<span class="muted" title=${words.join(" · ")}>${words.join(" · ")}</span>` : nothing;
}
