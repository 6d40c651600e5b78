// Work that waits, has failed, or comes by itself: why waiting, errors, schedules.

import { html, nothing, functionLink, jobLink, empty, panel, counted, jobsOf, table, since, zero, choice, onlyFunction, actionsColumn, state, time, command, filterBox, sparkline, waits } from "../parts.js";
import { texts } from "../texts.js";
import { get, optional, post, remove } from "../api.js";
import { link, refined } from "../router.js";
import { reasonBox, bulk, act, confirm } from "../actions.js";
import * as format from "../format.js";

// Why does nothing run?
function whyView(t) {
  const MOST = 12;

  const blocked = (row) => row.ready + row.waiting_or_scheduled;

  // A function is asked about by one of its jobs: the newest that is ready, or else the newest that waits for others.
  async function explained(row, signal) {
    const state = row.ready ? "ready" : "waiting,scheduled";
    const page = await get("v1/jobs", { function: format.plain(row.name), state, limit: 1 }, signal);
    if (!page.jobs.length) return { row, job: null, reasons: [] };
    const job = page.jobs[0];
    const explanation = await optional(`v1/jobs/${encodeURIComponent(job.handle)}/explain`, {}, signal, { reasons: [] });
    return { row, job, reasons: waits(explanation) ? explanation.reasons : [] };
  }

  async function load(route, signal) {
    const functions = (await get("v1/functions", {}, signal)).filter((row) => blocked(row) && typeof row.name === "string").sort((a, b) => blocked(b) - blocked(a));
    return { all: functions.length, found: await Promise.all(functions.slice(0, MOST).map((row) => explained(row, signal))) };
  }

  return {
    everySeconds: 10,
    load,
    render({ data, can }) {
      if (!data.found.length) return html`<section class="panel">${empty(t.none, t.noneText)}</section>`;
      const to = (row, state) => jobsOf(row.name, state);
      return html`<div class="stack">
        <div class="columns">
        ${data.found.map(({ row, job, reasons }) => panel(functionLink(row.name), html`
          ${reasons.length ? reasons.map((reason) => reasonBox(reason, job, can)) : html`<div class="reason muted">${t.gone}</div>`}
          <div class="reason small muted"><span>${job ? html`${t.example} ${jobLink(job.handle)}` : nothing}</span></div>`,
          html`${counted(row.ready, to(row, "ready"))} ${t.ready}${row.waiting_or_scheduled ? html`, ${counted(row.waiting_or_scheduled, to(row, "waiting,scheduled"))} ${t.waiting}` : nothing}`))}
        </div>
        ${data.all > MOST ? html`<p class="muted">${t.more(data.all - MOST)} <a href=${link("functions", "", { show: "queued" })}>${texts.overview.allFunctions}</a></p>` : nothing}
      </div>`;
    },
  };
}

// What broke since the deploy?
function errorsView(t) {
  const RANGES = { 3600: t.ranges.hour, 86400: t.ranges.day, 604800: t.ranges.week };

  // What an example and all others of its group have in common: the longest piece of the error without what was masked.
  function commonText(group) {
    const pieces = group.error.split(/[#…]+/).map((piece) => piece.trim()).sort((a, b) => b.length - a.length);
    const example = format.plain(group.example_error);
    return pieces.find((piece) => piece.length > 3 && example.includes(piece)) || "";
  }

  return {
    everySeconds: 5,
    load: (route, signal) => get("v1/errors", {
      function: route.query.function, since: route.query.range ? format.now() - Number(route.query.range) : undefined, limit: 100,
    }, signal),
    render({ route, data, at, can }) {
      const { range = "", function: only = "" } = route.query;
      const chips = html`<div class="filters"><div class="chips">
        <a class="chip ${range ? "" : "on"}" href=${refined({ range: "" })}>${t.ranges.all}</a>
        ${Object.entries(RANGES).map(([seconds, text]) => choice(seconds === range, refined({ range: seconds }), text))}
        ${onlyFunction(only)}</div></div>`;
      const to = (group) => link("jobs", "", { function: format.plain(group.function), state: "failed", error: commonText(group) });
      return html`${chips}
        <section class="panel">
          ${table({
            caption: texts.views.errors.name, at,
            columns: [
              { title: texts.columns.error, cell: (group) => html`<a href=${to(group)} title=${format.plain(group.example_error)}>${group.error || t.unnamed}</a>`, style: "grow2 two-lines", isHead: true },
              { title: texts.columns.function, cell: (group) => functionLink(group.function), style: "short" },
              { title: texts.columns.count, cell: (group) => html`<a href=${to(group)}>${format.short(group.count)}</a>`, style: "number" },
              { title: texts.states.dead, cell: (group) => (group.dead ? html`<span class="bad">${format.short(group.dead)}</span>` : zero("0")), style: "number" },
              { title: t.trend, cell: (group) => (group.trend ? sparkline(group.trend, t.trendLabel(group.error, format.count(group.trend.reduce((sum, each) => sum + each, 0)))) : zero()), style: "none" },
              { title: t.first, cell: (group) => since(group.first_at), style: "number none" },
              { title: t.last, cell: (group) => since(group.last_at), style: "number" },
              { title: t.example, cell: (group) => jobLink(group.examples[0]) },
              ...actionsColumn(can("operate"), (group) => html`
                <button class="button small" aria-label=${t.retryLabel(group.error)} @click=${() => bulk("retry", { filter: { function: format.plain(group.function), states: ["failed"], ...(commonText(group) ? { error: commonText(group) } : {}) } })}>${t.retry}</button>`),
            ],
            rows: data.groups.map((group, index) => ({ ...group, key: `${index}` })),
            target: to,
            fallback: empty(t.none, range || only ? t.noneHere : t.noneText),
          })}
          ${data.groups.length ? html`<div class="paging"><span>${data.complete ? t.searched(format.count(data.searched)) : t.searchedTo(format.count(data.searched), format.count(data.searched_to))}</span></div>` : nothing}
        </section>`;
    },
  };
}

// Did cron fire?
function schedulesView(t) {
  const path = (row) => `v1/schedules/${format.inPath(row.name)}`;
  const run = (row) => act(() => post(`${path(row)}/run`), (job) => html`${t.ran(format.plain(row.name))} ${jobLink(job?.handle)}`);

  // Not by declaring it again: its payload may be redacted here.
  function pause(row, isPaused) {
    const verb = isPaused ? "pause_schedule" : "resume_schedule";
    return act(() => post(`v1/verbs/${verb}`, { name: format.plain(row.name) }), isPaused ? t.pausedNow(format.plain(row.name)) : t.resumedNow(format.plain(row.name)));
  }

  async function drop(row) {
    const name = format.plain(row.name);
    if (await confirm({ title: t.dropTitle(name), text: t.dropText, button: t.drop })) await act(() => remove(path(row)), t.dropped(name));
  }

  return {
    everySeconds: 5,
    load: (route, signal) => get("v1/schedules", {}, signal),
    render({ route, data, at, can }) {
      if (!data.length) return html`<section class="panel">${empty(t.none, t.noneText, html`<div class="commands">${command("switchgear schedule add nightly report --cron '0 3 * * *'")}</div>`)}</section>`;
      const word = (route.query.filter || "").toLowerCase();
      const rows = data.filter((row) => !word || `${format.plain(row.name)} ${format.plain(row.function)}`.toLowerCase().includes(word))
        .sort((a, b) => (a.next_at ?? Infinity) - (b.next_at ?? Infinity)).map((row) => ({ ...row, key: format.plain(row.name) }));
      const figures = (row) => html`${format.count(row.fired)}${row.skipped ? html` <span class="tag">${t.skipped(row.skipped)}</span>` : nothing}${row.missed ? html` <span class="tag warn">${t.missed(row.missed)}</span>` : nothing}${row.refused ? html` <span class="tag bad">${t.refused(row.refused)}</span>` : nothing}`;
      return html`
        <div class="filters" role="search">${filterBox(t.filter, route.query.filter || "")}</div>
        <section class="panel">${table({
          caption: texts.views.schedules.name, at,
          columns: [
            { title: t.name, cell: (row) => html`<span title=${row.key}>${row.key}</span>`, style: "grow", isHead: true },
            { title: texts.columns.function, cell: (row) => functionLink(row.function), style: "short" },
            { title: t.spec, cell: (row) => html`<span class="mono">${row.spec}</span> <span class="muted small">${row.timezone}</span>`, style: "row wrap" },
            { title: t.next, cell: (row) => (row.paused ? html`<span class="tag warn">${texts.functions.paused}</span>` : since(row.next_at)), style: "number" },
            { title: t.last, cell: (row) => (row.last_at ? html`${time(row.last_at)} ${row.last_job ? html`<a href=${link("job", encodeURIComponent(row.last_job))} title=${row.last_job}>${row.last_state ? state(row.last_state) : row.last_job}</a>` : nothing}` : zero(t.never)), style: "row" },
            { title: t.fired, cell: figures, style: "number" },
            ...actionsColumn(can("operate"), (row) => html`<span class="actions" .style=${"flex-wrap:nowrap;justify-content:flex-end"}>
              <button class="button small" aria-label=${`${t.run} ${row.key}`} @click=${() => run(row)}>${t.run}</button>
              <button class="button small" aria-label=${`${row.paused ? texts.functions.resume : texts.functions.pause} ${row.key}`} @click=${() => pause(row, !row.paused)}>${row.paused ? texts.functions.resume : texts.functions.pause}</button>
              <button class="button small danger" aria-label=${`${t.drop} ${row.key}`} @click=${() => drop(row)}>${t.drop}</button></span>`),
          ],
          rows, fallback: empty(t.noMatch),
        })}</section>
        ${rows.some((row) => row.held_up) ? html`<br><ul class="alarms">${rows.filter((row) => row.held_up).map((row) => html`<li class="alarm"><span class="glyph">!</span><p>${row.key}: ${row.held_up}</p></li>`)}</ul>` : nothing}`;
    },
  };
}

export const views = { why: whyView(texts.why), errors: errorsView(texts.errors), schedules: schedulesView(texts.schedules) };
