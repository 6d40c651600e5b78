// The list of functions, and the page of one.

import { html, nothing, table, functionLink, counted, workersOf, empty, sparkline, sorted, bar, command, filterBox, zero, choice, jobsOf, actionsColumn, tile, panel, jobLink, state, since, more, toJob, legend, waits } from "../parts.js";
import { texts } from "../texts.js";
import { get, optional } from "../api.js";
import { rowsOf } from "../live.js";
import { link, refined, readable } from "../router.js";
import { pauseFunction, bulk, changeLimits, submitJob } from "../actions.js";
import * as format from "../format.js";
import { recorded } from "../chart.js";

// Which queue grows?
function functionsView(t) {
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
    row.paused ? html` <span class="tag warn">${t.paused}</span>` : nothing;

  return {
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
      const history = (row) => live.history.get(typeof row.name === "string" ? row.name : JSON.stringify(row.name)) || { ready: [], rate: null };
      // How long the ready jobs take at the pace of the last minutes.
      const drain = (row) => {
        const { rate } = history(row);
        if (!row.ready || rate === null || rate === undefined) return zero();
        return rate ? format.brief(row.ready / rate) : html`<span class="warn" title=${texts.overview.notes.nothingEnds}>∞</span>`;
      };
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
              { title: texts.columns.function, cell: (row) => html`<span class="named">${functionLink(row.name)}${mark(row)}</span>`, style: "grow", isHead: true, sort: "name" },
              { title: texts.columns.queue, cell: (row) => bar([["running", row.running, texts.states.running], ["ready", row.ready, texts.states.ready], ["waiting", waitingOf(row), texts.states.waiting]], longest), sort: "total" },
              { title: t.trend, cell: (row) => sparkline(history(row).ready, t.trendLabel(format.plain(row.name))), style: "none" },
              { title: texts.states.ready, cell: (row) => counted(row.ready, jobs(row, "ready")), style: "number", sort: "ready" },
              { title: texts.states.running, cell: (row) => counted(row.running, jobs(row, "running")), style: "number", sort: "running" },
              { title: texts.states.waiting, cell: (row) => counted(waitingOf(row), jobs(row, "waiting,scheduled")), style: "number", sort: "waiting" },
              { title: t.oldest, cell: (row) => (oldestOf(row) === null ? zero() : format.span(Math.round(oldestOf(row)))), style: "number", sort: "oldest" },
              { title: t.drain, cell: drain, style: "number" },
              { title: texts.states.done, cell: (row) => counted(row.done, jobs(row, "done")), style: "number", sort: "done" },
              { title: texts.states.failed, cell: (row) => counted(row.failed, jobs(row, "failed"), "bad"), style: "number", sort: "failed" },
              { title: texts.columns.workers, cell: (row) => workersOf(row, row.ready), style: "number", sort: "workers" },
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
}

// Why is it slow?
function functionView(t) {
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
      ${all ? html`<div class="scroller" tabindex="0" role="region" aria-label=${title}><table><caption class="hidden-text">${title}</caption>
        <thead class="hidden-text"><tr><th scope="col">${t.times.upTo}</th><th scope="col">${t.times.share}</th><th scope="col">${texts.columns.jobs}</th></tr></thead>
        <tbody>${counts.map((value, index) => (value ? html`<tr>
          <td class="number">${bounds[index] === undefined ? `> ${format.span(bounds.at(-1))}` : `≤ ${format.span(bounds[index])}`}</td>
          <td class="grow2"><div class="bar"><i class="accent" .style=${`width:${(value / most) * 100}%`}></i></div></td>
          <td class="number">${format.short(value)}</td></tr>` : nothing))}</tbody></table></div>` : zero()}`;
  }

  function charts(series) {
    if (!series || series.times.length < 2) return html`<div class="inside muted">${t.noSeries}</div>`;
    const per = (key) => (series.values[key] || []).map((value) => (value === null ? null : value / series.step));
    return html`<div class="inside columns">
      <div><line-chart role="img" aria-label=${t.rateChart} .chart=${{ times: series.times, height: 180, series: [
        { label: texts.overview.chart.submitted, color: "ready", values: per("submitted"), dash: [5, 4] },
        { label: texts.overview.chart.done, color: "running", values: per("done"), fill: true },
        { label: texts.overview.chart.failed, color: "failed", values: per("failed") }] }}></line-chart>
        ${legend([["ready", texts.overview.chart.submitted, true], ["running", texts.overview.chart.done], ["failed", texts.overview.chart.failed]])}</div>
      <div><line-chart role="img" aria-label=${t.queueChart} .chart=${{ times: series.times, height: 180, series: [
        { label: texts.states.ready, color: "ready", values: series.values.ready || [], fill: true },
        { label: texts.states.running, color: "running", values: series.values.running || [] },
        { label: texts.columns.workers, color: "scheduled", values: series.values.workers || [], dash: [2, 3] }] }}></line-chart>
        ${legend([["ready", texts.states.ready], ["running", texts.states.running], ["scheduled", texts.columns.workers, true]])}</div>
    </div>`;
  }

  const rateText = (rate) => (rate ? `${rate[0]} / ${format.span(rate[1])}` : t.any);

  return {
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
          ${tile({ label: texts.states.ready, value: format.short(figures.ready), href: to({ state: "ready" }), note: figures.oldest_ready_seconds === null ? t.nothingReady : t.oldest(format.brief(figures.oldest_ready_seconds)) })}
          ${tile({ label: texts.states.running, value: format.short(figures.running), href: to({ state: "running" }), note: policy?.concurrency ? t.ofLimit(policy.concurrency) : "" })}
          ${tile({ label: t.waiting, value: format.short(figures.waiting_or_scheduled), href: to({ state: "waiting,scheduled" }), note: t.waitingNote })}
          ${tile({ label: texts.columns.workers, value: format.short(figures.workers), tone: figures.ready && !figures.workers ? "bad" : "", href: link("workers", "", { function: format.plain(name) }) })}
          ${tile({ label: texts.states.done, value: format.short(figures.done), href: to({ state: "done" }), note: t.sinceStart })}
          ${tile({ label: texts.states.failed, value: format.short(figures.failed), tone: figures.failed ? "bad" : "", href: to({ state: "failed" }), note: figures.requeued ? t.requeued(format.short(figures.requeued)) : t.sinceStart })}
        </div>
        ${reasons && waits(reasons) ? panel(t.why, html`${reasons.reasons.map((reason) => html`<div class="reason"><p>${reason.text}</p></div>`)}`, jobLink(reasons.handle)) : nothing}
        ${panel(t.rates, charts(series), html`<span class="chips">${Object.entries(RANGES).map(([seconds, text]) => choice(seconds === range, refined({ range: seconds }), text))}</span>`)}
        <div class="columns">
          ${times ? panel(t.times.title, html`<div class="inside stack">${histogram(t.times.wait, times.bounds, times.wait.counts)}${histogram(t.times.run, times.bounds, times.run.counts)}</div>`) : nothing}
          ${panel(t.limits, html`<div class="inside"><dl class="facts">
            <dt>${texts.limits.fields.concurrency}</dt><dd>${policy?.concurrency || t.any}</dd>
            <dt>${texts.limits.fields.rate}</dt><dd>${rateText(policy?.rate)}</dd>
            <dt>${texts.limits.fields.key_concurrency}</dt><dd>${policy?.key_concurrency || t.any}</dd>
            <dt>${texts.limits.fields.key_rate}</dt><dd>${rateText(policy?.key_rate)}</dd>
            ${figures.ready ? html`<dt>${texts.columns.priority}</dt><dd>${["high", "normal", "low"].map((name, index) => [name, figures.ready_by_priority?.[index]]).filter(([, count]) => count).map(([name, count], index) => html`${index ? ", " : ""}<a href=${to({ state: "ready" })}>${format.count(count)}</a> ${texts.priorities[name]}`)}</dd>` : nothing}
            <dt>${t.turns}</dt><dd>${policy?.fair ? t.fair : t.inOrder}${figures.keys_waiting ? html`, ${t.keysWaiting(figures.keys_waiting)}` : nothing}</dd>
          </dl></div>`)}
          ${errors && errors.groups.length ? panel(t.errors, table({
            caption: t.errors,
            columns: [
              { title: texts.columns.error, cell: (row) => html`<span title=${format.plain(row.example_error)}>${row.error}</span>`, style: "grow2", isHead: true },
              { title: texts.columns.count, cell: (row) => counted(row.count, link("errors", "", { function: format.plain(name) })), style: "number" },
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
}

export const views = { functions: functionsView(texts.functions), function: functionView(texts.function) };
