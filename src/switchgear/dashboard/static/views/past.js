// What has been: the time machine, bulk actions and the audit.

import { html, nothing, panel, table, functionLink, jobLink, time, tile, empty, choice, setFilter, actionsColumn, pages, legend } from "../parts.js";
import { texts } from "../texts.js";
import { get, optional, remove } from "../api.js";
import { refine, refined } from "../router.js";
import { act, isOver } from "../actions.js";
import * as format from "../format.js";
import { recorded } from "../chart.js";

// What was it at 3 a.m.?
function historyView(t) {
  const RANGES = { 3600: "1 h", 21600: "6 h", 86400: "1 d", 604800: "7 d" };

  async function load(route, signal, previous) {
    const range = Number(route.query.range || 3600);
    const until = route.query.until ? Number(route.query.until) : format.now();
    const other = route.query.other ? Number(route.query.other) : null;
    const key = `${range} ${Math.floor(until / 10)}`;
    const series = previous?.key === key ? previous.series : recorded(await get("v1/series", { since: until - range, until }, signal));
    // Without a moment of the visitor's: the middle of what was recorded.
    const at = route.query.t ? Number(route.query.t) : ((series.times[0] ?? until - range) + until) / 2;
    const [moment, second] = await Promise.all([
      get("v1/at", { t: at }, signal),
      other ? get("v1/at", { t: other }, signal) : null,
    ]);
    return { key, series, moment, second, at, other, range, until };
  }

  function chosen(data, at) {
    refine({ t: Math.round(at), range: data.range, until: Math.round(data.until) }, { replace: true });
  }

  function chart(data) {
    const { series } = data;
    const per = (name) => (series.values[name] || []).map((value) => (value === null ? null : value / series.step));
    const from = series.times[0] ?? data.until - data.range;
    return html`<div class="inside">
      ${series.times.length > 1 ? html`<line-chart role="img" aria-label=${t.chart} @click=${(event) => { if (event.currentTarget.pointed) chosen(data, event.currentTarget.pointed); }}
        @point=${(event) => { event.currentTarget.pointed = event.detail.at; }}
        .chart=${{ times: series.times, height: 200, onRange: (a, b) => refine({ t: Math.round(a), other: Math.round(b), range: data.range, until: Math.round(data.until) }), series: [
          { label: texts.overview.chart.done, color: "running", values: per("done"), fill: true },
          { label: texts.overview.chart.failed, color: "failed", values: per("failed") },
          { label: texts.states.ready, color: "ready", values: series.values.ready || [], dash: [5, 4] }] }}></line-chart>` : html`<p class="muted">${t.noSeries}</p>`}
      ${legend([["running", t.donePerSecond], ["failed", t.failedPerSecond], ["ready", texts.states.ready, true]])}
      <input type="range" aria-label=${t.slider} aria-valuetext=${format.exact(data.at)} min=${Math.round(from)} max=${Math.round(data.until)} step=${series.step || 10} .value=${String(Math.round(data.at))} @change=${(event) => chosen(data, Number(event.target.value))}>
    </div>`;
  }

  const versus = (now, then) => (then === null || then === undefined ? nothing : html` <span class="muted">${t.versus(format.short(then))}</span>`);

  function tiles(moment, second) {
    const totals = moment.totals;
    if (!totals) return html`<section class="panel"><div class="empty"><h2>${t.notRecorded}</h2><p>${t.notRecordedText}</p></div></section>`;
    const other = second?.totals || {};
    const figure = (name, label, show = format.short) => tile({ label, value: show(totals[name]), note: second ? t.versus(show(other[name])) : "" });
    return html`<div class="tiles">
      ${figure("ready", texts.states.ready)}${figure("running", texts.states.running)}${figure("submitted", t.submitted(totals.step))}${figure("done", t.done(totals.step))}
      ${figure("failed", t.failed(totals.step))}${figure("oldest", texts.overview.tiles.oldest, format.brief)}${figure("workers", texts.columns.workers)}</div>`;
  }

  // For <input type=datetime-local>, which wants local time without a zone.
  function local(seconds) {
    const date = new Date(seconds * 1000);
    return new Date(date.getTime() - date.getTimezoneOffset() * 60000).toISOString().slice(0, 19);
  }

  return {
    load,
    everySeconds: 30,
    render({ data, at }) {
      const { moment, second } = data;
      const others = new Map((second?.functions || []).map((row) => [format.plain(row.function), row]));
      return html`<div class="stack">
        <div class="filters">
          <label class="field">${t.moment}<input type="datetime-local" step="1" .value=${local(data.at)} @change=${(event) => { if (event.target.value) refine({ t: Math.round(new Date(event.target.value).getTime() / 1000), until: "" }); }}></label>
          <div class="chips">${Object.entries(RANGES).map(([seconds, text]) => choice(Number(seconds) === data.range, refined({ range: seconds, until: "", t: "" }), text))}
          ${data.other ? setFilter(refined({ other: "" }), t.comparedWith(format.moment(data.other))) : html`<a class="chip" href=${refined({ t: Math.round(data.at), other: Math.round(data.at - 3600) })}>${t.compare}</a>`}</div>
        </div>
        ${panel(t.title(format.exact(data.at)), chart(data), html`<span class="muted">${t.help}</span>`)}
        ${tiles(moment, second)}
        <div class="columns">
          ${panel(texts.views.functions.name, table({
            caption: t.functions, at,
            columns: [
              { title: texts.columns.function, cell: (row) => functionLink(row.function), style: "grow", isHead: true },
              ...["ready", "running", "done", "failed", "workers"].map((name) => ({ title: texts.states[name] || texts.columns[name], style: "number", cell: (row) => html`${format.short(row[name])}${second ? versus(row[name], others.get(format.plain(row.function))?.[name]) : nothing}` })),
            ],
            rows: moment.functions.slice(0, 100).map((row) => ({ ...row, key: format.plain(row.function) })), fallback: html`<div class="empty"><h2>${t.nothing}</h2></div>`,
          }))}
          ${panel(t.running, table({
            caption: t.running,
            columns: [
              { title: texts.columns.job, cell: (row) => jobLink(row.handle), isHead: true },
              { title: texts.columns.function, cell: (row) => functionLink(row.function), style: "grow" },
              { title: texts.job.started, cell: (row) => time(row.started_at), style: "number" },
              { title: texts.job.took, cell: (row) => (row.ended_at ? format.span(row.ended_at - row.started_at) : "–"), style: "number" },
              { title: texts.job.outcome, cell: (row) => texts.states[row.outcome] || row.outcome || "–" },
            ],
            rows: moment.running.slice(0, 100).map((row) => ({ ...row, key: row.handle })),
            fallback: html`<div class="empty"><h2>${moment.running_from === "none" ? t.noLog : t.nothingRan}</h2></div>`,
          }), html`<span class="muted">${moment.running_complete ? "" : t.incomplete}</span>`)}
        </div>
      </div>`;
    },
  };
}

// Who cancelled that?
function auditView(t) {
  async function load(route, signal) {
    const [bulk, audit] = await Promise.all([get("v1/bulk", {}, signal), optional("v1/audit", { limit: 100, cursor: route.query.cursor }, signal)]);
    return { bulk, audit };
  }

  const progress = (run) => html`<span class="nowrap">${format.count(run.handled)} / ${format.count(run.matched)}</span>
    <progress aria-label=${texts.bulk.progress} max=${Math.max(1, run.matched)} value=${run.handled}></progress>`;

  return {
    everySeconds: 3,
    load,
    render({ route, data, at, can }) {
      const runs = [...data.bulk].sort((a, b) => b.created_at - a.created_at).map((run) => ({ ...run, key: run.id }));
      const isStored = data.audit?.stored;
      return html`<div class="stack">
        ${panel(t.bulk, table({
          caption: t.bulk, at,
          columns: [
            { title: t.action, cell: (run) => t.actions[run.action] || run.action, isHead: true },
            { title: texts.columns.state, cell: (run) => html`<span class="tag ${run.state === "aborted" ? "warn" : isOver(run) ? "" : "accent"}">${t.states[run.state] || run.state}</span>` },
            { title: t.progress, cell: progress, style: "grow2" },
            { title: t.changed, cell: (run) => format.count(run.changed), style: "number" },
            { title: t.example, cell: (run) => (run.examples[0] ? jobLink(run.examples[0]) : "–") },
            { title: texts.columns.when, cell: (run) => time(run.created_at), style: "number" },
            ...actionsColumn(can("operate"), (run) => (isOver(run) ? nothing : html`<button class="button small danger" aria-label=${`${t.abort} ${run.id}`} @click=${() => act(() => remove(`v1/bulk/${run.id}`), t.aborted)}>${t.abort}</button>`)),
          ],
          rows: runs, fallback: empty(t.noBulk, t.noBulkText),
        }))}
        ${data.audit ? panel(t.log, html`${table({
          caption: t.log,
          columns: [
            { title: t.what, cell: (entry) => entry.verb, isHead: true },
            { title: t.who, cell: (entry) => html`${entry.identity} <span class="muted">${entry.address}</span>`, style: "row" },
            { title: t.details, cell: (entry) => html`<span title=${entry.target}>${entry.target}</span>`, style: "grow2 two-lines" },
            { title: t.outcome, cell: (entry) => html`<span class=${entry.outcome === "done" ? "" : "bad"}>${entry.outcome}</span>` },
            { title: texts.columns.when, cell: (entry) => time(entry.at), style: "number" },
          ],
          rows: data.audit.entries.map((entry) => ({ ...entry, key: String(entry.id) })), fallback: isStored ? empty(t.noLog, t.noLogText) : empty(t.notStored, t.notStoredText),
        })}${data.audit.next || route.query.cursor ? html`<div class="paging"><span></span><div class="actions">${pages(route, data.audit.next)}</div></div>` : nothing}`) : nothing}
      </div>`;
    },
  };
}

export const views = { history: historyView(texts.history), audit: auditView(texts.audit) };
