// Which queue grows?

import { html, nothing, table, functionLink, counted, empty, sparkline, sorted, bar, command, filterBox, zero, choice, jobsOf, actionsColumn } from "../parts.js";
import { texts } from "../texts.js";
import { get } from "../api.js";
import { rowsOf } from "../live.js";
import { link, refined } from "../router.js";
import { pauseFunction } from "../actions.js";
import * as format from "../format.js";

const t = texts.functions;
const PAGE = 200;
let shownRows = PAGE;

const KEYS = {
  name: (row) => format.plain(row.name).toLowerCase(),
  total: (row) => row.total,
  ready: (row) => row.ready,
  running: (row) => row.running,
  waiting: (row) => waitingOf(row),
  workers: (row) => row.workers,
  failed: (row) => row.failed,
  done: (row) => row.done,
  oldest: (row) => oldestOf(row) ?? -1,
};

const waitingOf = (row) => row.waiting_or_scheduled ?? row.waiting + row.scheduled;
const oldestOf = (row) => row.oldest_ready_seconds ?? (row.oldest_ready_at ? Math.max(0, format.now() - row.oldest_ready_at) : null);

const SHOWN = {
  all: () => true,
  queued: (row) => row.total > 0,
  starved: (row) => row.ready > 0 && !row.workers,
  paused: (row) => row.paused,
  failing: (row) => row.failed > 0,
};

const mark = (row) =>
  row.paused ? html` <span class="tag warn">${t.paused}</span>` : row.ready && !row.workers ? html` <span class="tag bad">${t.noWorker}</span>` : nothing;

export default {
  isLive: true,
  everySeconds: 5,
  topics: () => ["functions"],
  opened() { shownRows = PAGE; },
  load: async (route, signal) => ({ functions: rowsOf("functions") ? null : await get("v1/functions", {}, signal) }),
  render({ route, data, live, at, can, update }) {
    const all = rowsOf("functions") || data.functions || [];
    const { filter = "", show = "all", sort = "-total" } = route.query;
    if (!all.length) return html`<section class="panel">${empty(t.none, t.noneText, html`<div class="commands">${command("switchgear worker shout --exec 'tr a-z A-Z'")}${command("echo hello | switchgear submit shout")}</div>`)}</section>`;
    const word = filter.toLowerCase();
    const fitting = all.filter((row) => (SHOWN[show] || SHOWN.all)(row) && (!word || format.plain(row.name).toLowerCase().includes(word)));
    const rows = sorted(fitting, sort, KEYS);
    const longest = all.reduce((most, row) => Math.max(most, row.total), 0);
    const jobs = (row, state) => jobsOf(row.name, state);
    const history = (row) => live.history.get(typeof row.name === "string" ? row.name : JSON.stringify(row.name)) || [];
    return html`
      <div class="filters" role="search">
        ${filterBox(t.filter, filter)}
        <div class="chips">${Object.keys(SHOWN).map((each) => html`
          ${choice(each === show, refined({ show: each === "all" ? "" : each }), html`${t.show[each]} <span class="small">${format.short(all.filter(SHOWN[each]).length)}</span>`)}`)}</div>
      </div>
      <section class="panel">
        ${table({
          caption: texts.views.functions.name, sort, at,
          columns: [
            { title: texts.columns.function, cell: (row) => html`${functionLink(row.name)}${mark(row)}`, style: "grow", isHead: true, sort: "name" },
            { title: texts.columns.queue, cell: (row) => bar([["running", row.running, texts.states.running], ["ready", row.ready, texts.states.ready], ["waiting", waitingOf(row), texts.states.waiting]], longest), sort: "total" },
            { title: t.trend, cell: (row) => sparkline(history(row), t.trendLabel(format.plain(row.name))), style: "none" },
            { title: texts.states.ready, cell: (row) => counted(row.ready, jobs(row, "ready")), style: "number", sort: "ready" },
            { title: texts.states.running, cell: (row) => counted(row.running, jobs(row, "running")), style: "number", sort: "running" },
            { title: texts.states.waiting, cell: (row) => counted(waitingOf(row), jobs(row, "waiting,scheduled")), style: "number", sort: "waiting" },
            { title: t.oldest, cell: (row) => (oldestOf(row) === null ? zero() : format.span(Math.round(oldestOf(row)))), style: "number", sort: "oldest" },
            { title: texts.states.done, cell: (row) => counted(row.done, jobs(row, "done")), style: "number", sort: "done" },
            { title: texts.states.failed, cell: (row) => counted(row.failed, jobs(row, "failed"), "bad"), style: "number", sort: "failed" },
            { title: texts.columns.workers, cell: (row) => counted(row.workers, link("workers", "", { function: format.plain(row.name) })), style: "number", sort: "workers" },
            ...actionsColumn(can("operate"), (row) => html`
              <button class="button small" aria-label=${`${row.paused ? t.resume : t.pause} ${format.plain(row.name)}`} @click=${() => pauseFunction(row.name, !row.paused)}>${row.paused ? t.resume : t.pause}</button>`),
          ],
          rows: rows.slice(0, shownRows).map((row) => ({ ...row, key: format.plain(row.name) })),
          target: (row) => link("function", format.inPath(row.name)),
          fallback: empty(t.noMatch, "", html`<a class="button" href=${refined({ filter: "", show: "" })}>${texts.actions.clear}</a>`),
        })}
        ${rows.length ? html`<div class="paging"><span>${t.count(Math.min(shownRows, rows.length), rows.length)}</span>
          ${rows.length > shownRows ? html`<button class="button small" @click=${() => { shownRows += PAGE; update(); }}>${texts.actions.more}</button>` : nothing}</div>` : nothing}
      </section>`;
  },
};
