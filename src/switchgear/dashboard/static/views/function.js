// Why is it slow?

import { html, nothing, tile, panel, table, jobLink, state, since, more, choice, toJob } from "../parts.js";
import { texts } from "../texts.js";
import { get, optional } from "../api.js";
import { link, readable, refined } from "../router.js";
import { bulk, changeLimits, pauseFunction, submitJob } from "../actions.js";
import * as format from "../format.js";
import { recorded } from "../chart.js";

const t = texts.function;
const RANGES = { 900: t.ranges.quarter, 3600: t.ranges.hour, 21600: t.ranges.six, 86400: t.ranges.day };

// Only some functions have series of their own, and a new one has none yet.
async function seriesOf(name, range, signal) {
  const named = await optional("v1/series", { names: "yes" }, signal);
  if (!named || !named.functions.some((each) => format.plain(each) === name)) return null;
  return recorded(await get("v1/series", { function: name, since: format.now() - range }, signal));
}

async function load(route, signal) {
  const name = readable(route.key);
  const [figures, series, errors, jobs, times] = await Promise.all([
    get(`v1/functions/${route.key}`, {}, signal),
    seriesOf(name, Number(route.query.range || 3600), signal),
    optional("v1/errors", { function: name, limit: 5 }, signal),
    optional("v1/jobs", { function: name, limit: 10 }, signal, { jobs: [] }),
    optional(`v1/functions/${route.key}/times`, {}, signal),
  ]);
  const waiting = jobs.jobs.find((job) => job.state === "ready") || jobs.jobs.find((job) => job.state === "waiting");
  const reasons = waiting ? await optional(`v1/jobs/${encodeURIComponent(waiting.handle)}/explain`, {}, signal) : null;
  return { figures, series, errors, jobs: jobs.jobs, reasons, times };
}

function histogram(title, bounds, counts) {
  const most = Math.max(...counts, 1);
  const all = counts.reduce((sum, value) => sum + value, 0);
  return html`<h3 class="small muted">${title}</h3>
    <div class="scroller" tabindex="0" role="region" aria-label=${title}><table><caption class="hidden-text">${title}</caption>
      <thead class="hidden-text"><tr><th scope="col">${t.times.upTo}</th><th scope="col">${t.times.share}</th><th scope="col">${texts.columns.jobs}</th></tr></thead>
      <tbody>${counts.map((value, index) => (value || all === 0 ? html`<tr>
        <td class="number">≤ ${bounds[index] === undefined ? "∞" : format.span(bounds[index])}</td>
        <td class="grow2"><div class="bar"><i class="accent" .style=${`width:${(value / most) * 100}%`}></i></div></td>
        <td class="number">${format.short(value)}</td></tr>` : nothing))}</tbody></table></div>`;
}

function charts(series) {
  if (!series || series.times.length < 2) return html`<div class="inside muted">${t.noSeries}</div>`;
  const per = (key) => (series.values[key] || []).map((value) => (value === null ? null : value / series.step));
  const legend = (parts) => html`<div class="legend">${parts.map(([color, text]) => html`<span><i .style=${`background:var(--${color})`}></i>${text}</span>`)}</div>`;
  return html`<div class="inside columns">
    <div><line-chart role="img" aria-label=${t.rateChart} .chart=${{ times: series.times, height: 180, series: [
      { label: texts.overview.chart.submitted, color: "ready", values: per("submitted"), dash: [5, 4] },
      { label: texts.overview.chart.done, color: "running", values: per("done"), fill: true },
      { label: texts.overview.chart.failed, color: "failed", values: per("failed") }] }}></line-chart>
      ${legend([["ready", texts.overview.chart.submitted], ["running", texts.overview.chart.done], ["failed", texts.overview.chart.failed]])}</div>
    <div><line-chart role="img" aria-label=${t.queueChart} .chart=${{ times: series.times, height: 180, series: [
      { label: texts.states.ready, color: "ready", values: series.values.ready || [], fill: true },
      { label: texts.states.running, color: "running", values: series.values.running || [] },
      { label: texts.columns.workers, color: "scheduled", values: series.values.workers || [], dash: [2, 3] }] }}></line-chart>
      ${legend([["ready", texts.states.ready], ["running", texts.states.running], ["scheduled", texts.columns.workers]])}</div>
  </div>`;
}

const rateText = (rate) => (rate ? `${rate[0]} / ${format.span(rate[1])}` : t.any);

export default {
  title: (route) => readable(route.key),
  everySeconds: 4,
  load,
  render({ route, data, can, at }) {
    const { figures, series, errors, jobs, reasons, times } = data;
    const name = figures.name;
    const policy = figures.policy;
    const to = (query) => link("jobs", "", { function: format.plain(name), ...query });
    const range = route.query.range || "3600";
    return html`<div class="stack">
      <div class="actions">
        ${can("operate") ? html`
          <button class="button ${figures.paused ? "first" : ""}" @click=${() => pauseFunction(name, !figures.paused)}>${figures.paused ? texts.functions.resume : texts.functions.pause}</button>
          <button class="button" @click=${() => changeLimits(name, policy)}>${t.changeLimits}</button>` : nothing}
        ${can("submit") ? html`<button class="button" @click=${() => submitJob({ function: format.plain(name) })}>${texts.submit.title}</button>` : nothing}
        <a class="button" href=${to({})}>${t.allJobs}</a>
        ${can("operate") && figures.failed ? html`<button class="button" @click=${() => bulk("retry", { filter: { function: format.plain(name), states: ["failed"] } })}>${t.retryFailed}</button>` : nothing}
        ${figures.paused ? html`<span class="tag warn">${texts.functions.paused}</span>` : nothing}
      </div>
      <div class="tiles">
        ${tile({ label: texts.states.ready, value: format.short(figures.ready), href: to({ state: "ready" }), note: figures.oldest_ready_seconds === null ? t.nothingReady : t.oldest(format.span(figures.oldest_ready_seconds)) })}
        ${tile({ label: texts.states.running, value: format.short(figures.running), href: to({ state: "running" }), note: policy?.concurrency ? t.ofLimit(policy.concurrency) : "" })}
        ${tile({ label: t.waiting, value: format.short(figures.waiting_or_scheduled), href: to({ state: "waiting,scheduled" }), note: t.waitingNote })}
        ${tile({ label: texts.columns.workers, value: format.short(figures.workers), tone: figures.ready && !figures.workers ? "bad" : "", href: link("workers", "", { function: format.plain(name) }) })}
        ${tile({ label: texts.states.done, value: format.short(figures.done), href: to({ state: "done" }), note: t.sinceStart })}
        ${tile({ label: texts.states.failed, value: format.short(figures.failed), tone: figures.failed ? "bad" : "", href: to({ state: "failed" }), note: figures.requeued ? t.requeued(format.short(figures.requeued)) : t.sinceStart })}
      </div>
      ${reasons ? panel(t.why, html`${reasons.reasons.map((reason) => html`<div class="reason"><p>${reason.text}</p></div>`)}`, jobLink(reasons.handle)) : nothing}
      ${panel(t.rates, charts(series), html`<span class="chips">${Object.entries(RANGES).map(([seconds, text]) => choice(seconds === range, refined({ range: seconds }), text))}</span>`)}
      <div class="columns">
        ${times ? panel(t.times.title, html`<div class="inside stack">${histogram(t.times.wait, times.bounds, times.wait.counts)}${histogram(t.times.run, times.bounds, times.run.counts)}</div>`) : nothing}
        ${panel(t.limits, html`<div class="inside"><dl class="facts">
          <dt>${texts.limits.fields.concurrency}</dt><dd>${policy?.concurrency || t.any}</dd>
          <dt>${texts.limits.fields.rate}</dt><dd>${rateText(policy?.rate)}</dd>
          <dt>${texts.limits.fields.key_concurrency}</dt><dd>${policy?.key_concurrency || t.any}</dd>
          <dt>${texts.limits.fields.key_rate}</dt><dd>${rateText(policy?.key_rate)}</dd>
          <dt>${t.turns}</dt><dd>${policy?.fair ? t.fair : t.inOrder}${figures.keys_waiting ? html`, ${t.keysWaiting(figures.keys_waiting)}` : nothing}</dd>
        </dl></div>`)}
        ${errors && errors.groups.length ? panel(t.errors, table({
          caption: t.errors,
          columns: [
            { title: texts.columns.error, cell: (row) => html`<span title=${format.plain(row.example_error)}>${row.error}</span>`, style: "grow2", isHead: true },
            { title: texts.columns.count, cell: (row) => format.short(row.count), style: "number" },
            { title: texts.errors.last, cell: (row) => since(row.last_at), style: "number" },
          ],
          rows: errors.groups.map((row) => ({ ...row, key: row.error })),
        }), more(link("errors", "", { function: format.plain(name) }), texts.overview.allErrors)) : nothing}
      </div>
      ${panel(t.jobs, table({
        caption: t.jobs, at,
        columns: [
          { title: texts.columns.job, cell: (job) => jobLink(job.handle), isHead: true },
          { title: texts.columns.state, cell: (job) => state(job.state, job.dead) },
          { title: texts.columns.attempts, cell: (job) => job.attempts, style: "number" },
          { title: texts.columns.error, cell: (job) => format.lastLine(job.error), style: "grow2 none" },
          { title: texts.columns.created, cell: (job) => since(job.created_at), style: "number" },
        ],
        rows: jobs.map((job) => ({ ...job, key: job.handle })),
        target: toJob,
        fallback: html`<div class="empty"><h2>${t.noJobs}</h2></div>`,
      }), more(to({}), t.allJobs))}
    </div>`;
  },
};
