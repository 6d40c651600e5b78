// What happens now: the overview, and who submits to whom.

import { html, nothing, tile, panel, more, table, command, functionLink, jobLink, state, since, bar, counted, workersOf, jobsOf, empty, zero, legend } from "../parts.js";
import { texts } from "../texts.js";
import { get, optional } from "../api.js";
import { rowsOf } from "../live.js";
import { link, refined } from "../router.js";
import * as format from "../format.js";
import { recorded } from "../chart.js";

// Is it healthy?
function overviewView(t) {
  const CHART_SECONDS = 900;
  let chart = { times: [], submitted: [], done: [], failed: [] };
  let point = null;

  function addPoint(overview, at) {
    const rates = overview.rates;
    if (!rates || rates.done === null) return;
    const last = chart.times[chart.times.length - 1] || 0;
    if (at - last < 1) return;
    chart.times.push(at);
    for (const key of ["submitted", "done", "failed"]) chart[key].push(rates[key]);
    while (chart.times.length && chart.times[0] < at - CHART_SECONDS) {
      for (const values of Object.values(chart)) values.shift();
    }
  }

  const perSecond = (values, step) => values.map((value) => (value === null ? null : value / step));

  // Overviews of servers without /v1/overview are made of what every server has.
  async function load(route, signal, previous, live) {
    const overview = live.topics.overview || (await get("v1/overview", {}, signal));
    if (!previous) {
      const series = await optional("v1/series", { metrics: "submitted,done,failed", since: format.now() - CHART_SECONDS }, signal);
      chart = { times: [], submitted: [], done: [], failed: [] };
      if (series) {
        const known = recorded(series);
        chart.times = [...known.times];
        for (const key of ["submitted", "done", "failed"]) chart[key] = perSecond(known.values[key], series.step);
      }
    }
    const [failures, functions] = await Promise.all([
      optional("v1/jobs", { state: "failed", limit: 5 }, signal, { jobs: [] }),
      rowsOf("functions") ? null : optional("v1/functions", {}, signal, []),
    ]);
    return { overview, failures: failures.jobs, functions };
  }

  const remedies = {
    no_worker: (alarm) => link("why", "", {}),
    paused: () => link("functions", "", { show: "paused" }),
    dead_letters: () => link("dead"),
    slow_readers: () => link("connections"),
    store_down: () => link("storage"),
    joblog_behind: () => link("storage"),
    schedule_missed: () => link("schedules"),
    oldest_wait: () => link("why"),
  };

  const alarmLine = (alarm) => html`
    <li class="alarm ${alarm.level}">
      <span class="glyph" aria-hidden="true">${alarm.level === "critical" ? "✕" : "!"}</span>
      <p title=${alarm.text}><span class="hidden-text">${t.levels[alarm.level] || alarm.level}: </span>${alarm.text.replace(format.plain(alarm.function), format.brieflyNamed)}</p>
      ${alarm.function ? html`<a class="button small" href=${link("function", format.inPath(alarm.function))}>${t.look}</a>`
        : remedies[alarm.code] ? html`<a class="button small" href=${remedies[alarm.code](alarm)}>${t.look}</a>` : nothing}
    </li>`;

  const firstRun = () => html`
    <section class="panel"><div class="empty">
      <h2>${t.first.title}</h2>
      <p>${t.first.text}</p>
      <div class="commands">${t.first.commands.map(([label, text]) => html`<p class="small">${label}</p>${command(text)}`)}</div>
      <p class="small">${t.first.more}</p>
    </div></section>`;

  function rateChart() {
    const series = [
      { label: t.chart.submitted, color: "ready", values: chart.submitted, dash: [5, 4] },
      { label: t.chart.done, color: "running", values: chart.done, fill: true },
      { label: t.chart.failed, color: "failed", values: chart.failed },
    ];
    const at = point && point.at !== null ? point : null;
    const index = chart.times.length - 1;
    const value = (number) => format.rate(at ? at.values[number] : index >= 0 ? series[number].values[index] : null);
    return panel(t.chart.title, html`
      <div class="inside">
        ${chart.times.length > 1
          ? html`<line-chart role="img" aria-label=${t.chart.label} .chart=${{ times: chart.times, series, height: 210 }} @point=${(event) => { point = event.detail; event.target.closest("section").querySelector(".legend").hidden = false; }}></line-chart>`
          : html`<p class="muted">${t.chart.soon}</p>`}
        ${legend([["ready", `${t.chart.submitted} ${value(0)}`, true], ["running", `${t.chart.done} ${value(1)}`], ["failed", `${t.chart.failed} ${value(2)}`]])}
      </div>`, html`<span class="muted">${t.chart.unit}</span>`);
  }

  function queues(functions) {
    const busiest = functions.filter((each) => each.total > 0).sort((a, b) => b.total - a.total).slice(0, 8);
    return panel(t.queues, table({
      caption: t.queues,
      columns: [
        { title: texts.columns.function, cell: (row) => functionLink(row.name), style: "grow", isHead: true },
        { title: texts.columns.queue, cell: (row) => bar([["running", row.running, texts.states.running], ["ready", row.ready, texts.states.ready], ["waiting", row.total - row.ready - row.running, texts.states.waiting]], busiest[0].total), style: "bare" },
        { title: texts.states.running, cell: (row) => counted(row.running, jobsOf(row.name, "running")), style: "number" },
        { title: texts.states.ready, cell: (row) => counted(row.ready, jobsOf(row.name, "ready")), style: "number" },
        { title: texts.columns.workers, cell: (row) => workersOf(row, true), style: "number" },
      ],
      rows: busiest.map((row) => ({ ...row, key: format.plain(row.name) })),
      target: (row) => link("function", format.inPath(row.name)),
      fallback: html`<div class="empty"><h2>${t.idle}</h2><p>${t.idleText}</p></div>`,
    }), more(link("functions"), t.allFunctions));
  }

  const recentFailures = (jobs) => panel(t.failures, jobs.length ? html`<ul>${jobs.map((job) => html`
    <li class="entry">
      <div class="line"><span>${jobLink(job.handle)} <span class="muted">${format.plain(job.function)}</span></span><span class="muted nowrap">${since(job.finished_at)}</span></div>
      <div class="cut" title=${format.plain(job.error)}>${format.lastLine(job.error) || t.noText}</div>
    </li>`)}</ul>` : html`<div class="empty"><h2>${t.noFailures}</h2></div>`, more(link("errors"), t.allErrors));

  return {
    isLive: true,
    everySeconds: 5,
    topics: () => ["functions"],
    load,
    opened() {
      chart = { times: [], submitted: [], done: [], failed: [] };
      point = null;
    },
    event(context, topic, kind, data, at) {
      if (topic === "overview") addPoint(context.live.topics.overview, at);
    },
    render({ data, live }) {
      const overview = live.topics.overview || data.overview;
      const functions = rowsOf("functions") || data.functions || [];
      const { jobs, rates, counts, workers } = overview;
      const seldom = rates.done !== null;
      if (!counts.submitted && !jobs.total && !workers.total) return firstRun();
      const oldest = overview.oldest_ready;
      return html`<div class="stack">
        ${overview.alarms.length ? html`<ul class="alarms" aria-label=${t.alarms}>${overview.alarms.map(alarmLine)}</ul>` : nothing}
        <div class="tiles">
          ${tile({ label: t.tiles.done, value: format.rate(rates.done), unit: t.perSecond, note: t.notes.submitted(format.rate(rates.submitted)), href: link("jobs", "", { state: "done" }) })}
          ${tile({ label: t.tiles.failed, value: format.rate(rates.failed), unit: t.perSecond, tone: rates.failed ? "bad" : "", note: t.notes.failed(format.count(counts.failed)), href: link("errors") })}
          ${tile({ label: texts.states.running, value: format.short(jobs.running), note: t.notes.workers(workers.busy, workers.total), href: link("jobs", "", { state: "running" }) })}
          ${tile({ label: texts.states.ready, value: format.short(jobs.ready), note: t.notes.waiting(format.short(jobs.waiting), format.short(jobs.scheduled)), href: link("jobs", "", { state: "ready" }) })}
          ${tile({ label: t.tiles.oldest, value: oldest ? format.brief(oldest.seconds) : "–", note: oldest ? html`${t.notes.in} ${format.plain(oldest.function)}` : t.notes.noneReady, href: oldest ? link("function", format.inPath(oldest.function)) : link("functions") })}
          ${tile({ label: t.tiles.drain, value: overview.drain_seconds === null ? "∞" : format.brief(overview.drain_seconds), note: overview.drain_seconds === null ? t.notes.nothingEnds : seldom ? t.notes.atThisRate : "", href: link("why") })}
          ${tile({ label: t.tiles.dead, value: format.short(counts.dead), tone: counts.dead ? "bad" : "", note: t.notes.needPerson, href: link("dead") })}
        </div>
        <div class="two-one">
          <div class="stack">${rateChart()}${queues(functions)}</div>
          <div class="stack">
            ${panel(t.server, html`<div class="inside"><dl class="facts">
              <dt>${t.facts.workers}</dt><dd><a href=${link("workers")}>${format.count(workers.total)}</a> ${Object.entries(workers.by_protocol).map(([name, number]) => html`<span class="tag">${name} ${number}</span> `)}</dd>
              <dt>${t.facts.connections}</dt><dd><a href=${link("connections")}>${format.count(overview.connections.total)}</a></dd>
              <dt>${t.facts.functions}</dt><dd><a href=${link("functions")}>${format.count(overview.functions)}</a>${overview.paused_functions ? html` <a class="tag warn" href=${link("functions", "", { show: "paused" })}>${t.pausedCount(overview.paused_functions)}</a>` : nothing}</dd>
              <dt>${t.facts.store}</dt><dd><a href=${link("storage")} class=${overview.store.error ? "bad" : ""}>${overview.store.error || overview.store.url.split(":")[0]}</a> ${overview.store.is_durable ? nothing : html`<span class="tag warn">${t.notDurable}</span>`}</dd>
              <dt>${t.facts.memory}</dt><dd>${format.bytes(overview.memory.held)}${overview.memory.limit ? html` <span class="muted">${t.of} ${format.bytes(overview.memory.limit)}</span>` : nothing}</dd>
              <dt>${t.facts.uptime}</dt><dd>${format.span(overview.uptime_seconds)}</dd>
            </dl></div>`)}
            ${recentFailures(data.failures)}
          </div>
        </div>
      </div>`;
    },
  };
}

// Who submits to whom?
function flowsView(t) {
  const name = (word) => t.names[word] || word;

  function cell(flow, most) {
    if (!flow) return html`<td class="flow zero">·</td>`;
    const share = Math.round(6 + 28 * Math.sqrt((flow.done + flow.failed) / most));
    const said = t.cell(name(flow.submitter), name(flow.worker), format.count(flow.done), format.count(flow.failed));
    return html`<td class="flow" .style=${`background:color-mix(in srgb, var(--accent) ${share}%, transparent)`} title=${said}>
      <a href=${refined({ submitter: flow.submitter, worker: flow.worker })}><span class="hidden-text">${said}: </span><strong>${flow.rate === null ? format.short(flow.done) : `${format.rate(flow.rate)}/s`}</strong>
      ${flow.failed ? html`<br><span class="small">✕ ${format.short(flow.failed)}</span>` : nothing}</a></td>`;
  }

  return {
    everySeconds: 3,
    load: (route, signal) => get("v1/flows", {}, signal),
    render({ route, data, at }) {
      if (!data.flows.length) return html`<section class="panel">${empty(t.none, t.noneText)}</section>`;
      const { submitter = "", worker = "" } = route.query;
      const flowOf = (from, to) => data.flows.find((flow) => flow.submitter === from && flow.worker === to);
      const most = Math.max(...data.flows.map((flow) => flow.done + flow.failed), 1);
      const rows = data.flows.filter((flow) => (!submitter || flow.submitter === submitter) && (!worker || flow.worker === worker))
        .sort((a, b) => b.done + b.failed - a.done - a.failed).map((flow) => ({ ...flow, key: `${flow.submitter} ${flow.worker}` }));
      const idle = data.submitters.filter((from) => data.flows.every((flow) => flow.submitter !== from || flow.rate === 0));
      return html`<div class="stack">
        ${panel(t.matrix, html`<div class="scroller" tabindex="0" role="region" aria-label=${t.matrix}><table class="matrix">
          <caption class="hidden-text">${t.matrix}</caption>
          <thead><tr><th scope="col">${t.corner}</th>${data.workers.map((to) => html`<th scope="col" .style=${"text-align:center"}>${name(to)}</th>`)}</tr></thead>
          <tbody>${data.submitters.map((from) => html`<tr><th scope="row">${name(from)}</th>${data.workers.map((to) => cell(flowOf(from, to), most))}</tr>`)}</tbody>
        </table></div>`, html`<span class="muted">${t.since(format.moment(data.since))}</span>`)}
        ${submitter || worker ? html`<div class="chips"><a class="chip on" href=${refined({ submitter: "", worker: "" })}><span class="text">${name(submitter)} → ${name(worker)}</span> ✕</a></div>` : nothing}
        <section class="panel">${table({
          caption: texts.views.flows.name, at,
          columns: [
            { title: t.submitter, cell: (flow) => name(flow.submitter), isHead: true },
            { title: t.worker, cell: (flow) => name(flow.worker) },
            { title: t.rate, cell: (flow) => (flow.rate === null ? "–" : `${format.rate(flow.rate)}/s`), style: "number" },
            { title: texts.states.done, cell: (flow) => format.count(flow.done), style: "number" },
            { title: texts.states.failed, cell: (flow) => (flow.failed ? html`<span class="bad">${format.count(flow.failed)}</span>` : zero("0")), style: "number" },
            { title: t.share, cell: (flow) => format.percent(flow.failed / Math.max(1, flow.done + flow.failed)), style: "number" },
            { title: t.mean, cell: (flow) => format.span(flow.mean_seconds), style: "number" },
            { title: t.p99, cell: (flow) => (flow.p99_seconds === null ? "–" : `≤ ${format.span(flow.p99_seconds)}`), style: "number" },
          ],
          rows,
        })}</section>
        ${idle.length ? html`<p class="muted">${t.idle(idle.map(name).join(", "))}</p>` : nothing}
      </div>`;
    },
  };
}

export const views = { overview: overviewView(texts.overview), flows: flowsView(texts.flows) };
