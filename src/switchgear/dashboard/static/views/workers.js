// Who is stuck?

import { html, nothing, table, jobLink, functionLink, since, empty, sorted, command, filterBox, zero, choice, onlyFunction } from "../parts.js";
import { texts } from "../texts.js";
import { get } from "../api.js";
import { rowsOf } from "../live.js";
import { link, refined } from "../router.js";
import * as format from "../format.js";

const t = texts.workers;
const PAGE = 200;
const STUCK_SECONDS = 600;
let shownRows = PAGE;

// A worker of the live stream and one of /v1/workers in one form.
const unified = (row) => ({
  ...row,
  key: String(row.id),
  name: format.plain(row.name),
  count: Array.isArray(row.running) ? row.running_count : row.running,
  job: Array.isArray(row.running) ? row.running[0] || null : row.job,
  offers: Array.isArray(row.functions) ? row.functions : null,
  offered: Array.isArray(row.functions) ? row.functions_count : row.functions,
});

const KEYS = {
  name: (row) => row.name.toLowerCase(), protocol: (row) => row.protocol, running: (row) => row.count,
  age: (row) => row.job_started_at ? -row.job_started_at : null, connected: (row) => row.connected_at,
};
const age = (row) => (row.job_started_at ? Math.max(0, format.now() - row.job_started_at) : null);
const SHOWN = {
  all: () => true, busy: (row) => row.count > 0, idle: (row) => !row.count,
  long: (row) => (age(row) ?? 0) > STUCK_SECONDS,
};

export default {
  isLive: true,
  everySeconds: 5,
  topics: (route) => (route.query.function ? [] : ["workers"]),
  opened() { shownRows = PAGE; },
  // The live rows have no lists of functions; for the workers of one function they are asked for.
  load: async (route, signal) => ({ workers: rowsOf("workers") && !route.query.function ? null : await get("v1/workers", {}, signal) }),
  render({ route, data, at, update }) {
    const { filter = "", show = "all", sort = "-age", function: only = "" } = route.query;
    let all = ((!only && rowsOf("workers")) || data.workers || []).map(unified);
    if (only) all = all.filter((row) => row.offers?.some((name) => format.plain(name) === only));
    if (!all.length && !only) return html`<section class="panel">${empty(t.none, t.noneText, html`<div class="commands">${command("switchgear worker shout --exec 'tr a-z A-Z'")}${command("switchgear worker hello:app")}</div>`)}</section>`;
    const word = filter.toLowerCase();
    const fitting = all.filter((row) => (SHOWN[show] || SHOWN.all)(row) && (!word || `${row.name} ${row.address} ${row.protocol} ${row.id}`.toLowerCase().includes(word)));
    const rows = sorted(fitting, sort, KEYS);
    const hasAges = rows.some((row) => row.job_started_at);
    return html`
      <div class="filters" role="search">
        ${filterBox(t.filter, filter)}
        <div class="chips">${Object.keys(SHOWN).map((each) => html`${choice(each === show, refined({ show: each === "all" ? "" : each }), html`${t.show[each]} <span class="small">${format.short(all.filter(SHOWN[each]).length)}</span>`)}`)}
          ${onlyFunction(only)}</div>
      </div>
      <section class="panel">
        ${table({
          caption: texts.views.workers.name, sort, at,
          columns: [
            { title: texts.columns.worker, cell: (row) => html`<span title=${row.name}>${row.name || t.unnamed(row.id)}</span>`, style: "grow", isHead: true, sort: "name" },
            { title: t.protocol, cell: (row) => html`<span class="tag">${row.protocol}</span>`, sort: "protocol" },
            { title: t.state, cell: (row) => (row.count ? html`<span class="state running" data-glyph="▶">${t.busy}</span>` : html`<span class="state waiting" data-glyph="◌">${row.asleep ? t.asleep : t.idle}</span>`) },
            { title: t.job, cell: (row) => (row.job ? html`${jobLink(row.job)}${row.count > 1 ? html` <span class="muted">${t.andOthers(row.count - 1)}</span>` : nothing}` : zero()), sort: "running" },
            ...(hasAges ? [
              { title: texts.columns.function, cell: (row) => (row.job_function ? functionLink(row.job_function) : zero()), style: "grow" },
              { title: t.age, cell: (row) => (age(row) === null ? zero() : html`<span class=${age(row) > STUCK_SECONDS ? "warn" : ""}>${format.span(age(row) < 60 ? Math.round(age(row)) : age(row))}</span>`), style: "number", sort: "age" },
            ] : []),
            { title: t.offers, cell: (row) => (row.offers ? html`<span title=${row.offers.map(format.plain).join(", ")}>${row.offers.slice(0, 3).map((name, index) => html`${index ? ", " : ""}${functionLink(name)}`)}${row.offered > 3 ? html` <span class="muted">+${row.offered - 3}</span>` : nothing}</span>` : format.count(row.offered)), style: hasAges ? "number" : "grow" },
            { title: t.address, cell: (row) => html`<span class="mono">${row.address || "–"}</span>` },
            { title: t.connected, cell: (row) => since(row.connected_at), style: "number", sort: "connected" },
          ],
          rows: rows.slice(0, shownRows),
          target: (row) => (row.job ? link("job", encodeURIComponent(row.job)) : ""),
          fallback: empty(only ? t.noneFor(only) : t.noMatch, "", html`<a class="button" href=${link("workers")}>${texts.actions.clear}</a>`),
        })}
        ${rows.length ? html`<div class="paging"><span>${t.count(Math.min(shownRows, rows.length), rows.length)}</span>
          ${rows.length > shownRows ? html`<button class="button small" @click=${() => { shownRows += PAGE; update(); }}>${texts.actions.more}</button>` : nothing}</div>` : nothing}
      </section>`;
  },
};
