// The server and who is connected: workers, limits and keys, connections, storage.

import { html, nothing, table, jobLink, functionLink, since, empty, sorted, command, filterBox, zero, choice, onlyFunction, bar, counted, panel, actionsColumn, tile, legend } from "../parts.js";
import { texts } from "../texts.js";
import { get, optional } from "../api.js";
import { live, rowsOf } from "../live.js";
import { link, refined } from "../router.js";
import { changeLimits } from "../actions.js";
import * as format from "../format.js";
import "../chart.js";

// Who is stuck?
function workersView(t) {
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
    share: (row) => share(row),
  };
  // The share of looks at a worker, while this page was open, at which it was busy.
  const share = (row) => {
    const [looks, busy] = live.busy.get(row.id) || [0, 0];
    return looks > 2 ? busy / looks : null;
  };
  const age = (row) => (row.job_started_at ? Math.max(0, format.now() - row.job_started_at) : null);
  const SHOWN = {
    all: () => true, busy: (row) => row.count > 0, idle: (row) => !row.count,
    long: (row) => (age(row) ?? 0) > STUCK_SECONDS,
  };

  return {
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
              { title: t.protocol, cell: (row) => html`<span class="tag">${row.protocol}</span>`, style: "beside", sort: "protocol" },
              { title: t.state, cell: (row) => (row.count ? html`<span class="state running" data-glyph="▶">${t.busy}</span>` : html`<span class="state waiting" data-glyph="◌">${row.asleep ? t.asleep : t.idle}</span>`) },
              { title: t.job, cell: (row) => (row.job ? html`${jobLink(row.job)}${row.count > 1 ? html` <span class="muted">${t.andOthers(row.count - 1)}</span>` : nothing}` : zero()), sort: "running" },
              ...(hasAges ? [
                { title: texts.columns.function, cell: (row) => (row.job_function ? functionLink(row.job_function) : zero()), style: "grow" },
                { title: t.age, cell: (row) => (age(row) === null ? zero() : html`<span class=${age(row) > STUCK_SECONDS ? "warn" : ""}>${format.span(age(row) < 60 ? Math.round(age(row)) : age(row))}</span>`), style: "number", sort: "age" },
              ] : []),
              ...(live.busy.size && !only ? [{ title: html`<span title=${t.shareHelp}>${t.share}</span>`, label: t.share, cell: (row) => (share(row) === null ? zero() : format.percent(share(row))), style: "number", sort: "share" }] : []),
              { title: t.offers, cell: (row) => (row.offers ? html`<span title=${row.offers.map(format.plain).join(", ")}>${row.offers.slice(0, 3).map((name, index) => html`${index ? ", " : ""}${functionLink(name)}`)}${row.offered > 3 ? html` <span class="muted">+${row.offered - 3}</span>` : nothing}</span>` : format.count(row.offered)), style: hasAges ? "number" : "grow" },
              { title: t.address, cell: (row) => (row.address ? html`<span class="mono">${row.address}</span>` : zero()), style: "row" },
              { title: t.connected, cell: (row) => since(row.connected_at), style: "number row", sort: "connected" },
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
}

// Who is starved?
function limitsView(t) {
  const MOST_WITH_KEYS = 6;

  const rateText = (rate) => (rate ? `${rate[0]} / ${format.span(rate[1])}` : "–");

  async function load(route, signal) {
    const limited = (await get("v1/functions", {}, signal)).filter((row) => row.policy);
    const withKeys = limited.filter((row) => row.keys_waiting).sort((a, b) => b.keys_waiting - a.keys_waiting).slice(0, MOST_WITH_KEYS);
    const keys = await Promise.all(withKeys.map(async (row) => ({ row, keys: await optional(`v1/functions/${format.inPath(row.name)}/keys`, { limit: 20 }, signal) })));
    return { limited, keys: keys.filter((each) => each.keys) };
  }

  return {
    everySeconds: 4,
    load,
    render({ data, at, can }) {
      const rows = [...data.limited].sort((a, b) => b.ready - a.ready).map((row) => ({ ...row, key: format.plain(row.name) }));
      return html`<div class="stack"><section class="panel">${table({
        caption: texts.views.limits.name, at,
        columns: [
          { title: texts.columns.function, cell: (row) => functionLink(row.name), style: "grow", isHead: true },
          { title: t.fill, cell: (row) => (row.policy.concurrency ? html`<span class="line">${bar([["running", row.running, texts.states.running]], Math.max(row.policy.concurrency, row.running))}</span>` : zero()) },
          { title: t.fields.concurrency, cell: (row) => html`${counted(row.running, link("jobs", "", { function: row.key, state: "running" }))} <span class="muted">/ ${row.policy.concurrency || "∞"}</span>`, style: "number" },
          { title: t.rate, cell: (row) => (row.policy.rate ? rateText(row.policy.rate) : zero()), style: "number" },
          { title: t.eachKey, cell: (row) => [row.policy.key_concurrency ? `${row.policy.key_concurrency} ${t.atOnce}` : "", row.policy.key_rate ? rateText(row.policy.key_rate) : "", row.policy.fair ? t.inTurn : ""].filter(Boolean).join(", ") || zero(), style: "row" },
          { title: t.keys, cell: (row) => counted(row.keys_waiting, link("function", format.inPath(row.name))), style: "number" },
          { title: t.ready, cell: (row) => counted(row.ready, link("jobs", "", { function: row.key, state: "ready" })), style: "number" },
          ...actionsColumn(can("operate"), (row) => html`<button class="button small" aria-label=${`${t.change} ${row.key}`} @click=${() => changeLimits(row.name, row.policy)}>${t.change}</button>`),
        ],
        rows, target: (row) => link("function", format.inPath(row.name)),
        fallback: empty(t.none, t.noneText, html`<a class="button" href=${link("functions")}>${t.all}</a>`),
      })}</section>
      ${data.keys.map(({ row, keys }) => panel(t.keysOf(format.plain(row.name)), table({
        caption: t.keysOf(format.plain(row.name)),
        columns: [
          { title: t.key, cell: (each) => html`<span class="mono">${format.plain(each.key)}</span>`, style: "grow", isHead: true },
          { title: t.waiting, cell: (each) => format.count(each.ready), style: "number" },
          { title: t.running, cell: (each) => format.count(each.running), style: "number" },
        ],
        rows: keys.keys, fallback: html`<div class="inside muted">${t.noKeys}</div>`,
      })))}</div>`;
    },
  };
}

// Who misbehaves?
function connectionsView(t) {
  const SLOW_BYTES = 256 * 1024;

  const KEYS = {
    address: (row) => row.address, protocol: (row) => row.protocol, held: (row) => row.held, output: (row) => row.output,
    input: (row) => row.input, received: (row) => row.received, running: (row) => row.running, subscriptions: (row) => row.subscriptions,
  };
  const amount = (value) => (value ? html`<span title=${format.count(value)}>${format.bytes(value)}</span>` : zero("0"));
  const number = (value) => (value ? format.count(value) : zero("0"));

  async function load(route, signal) {
    const [list, server] = await Promise.all([get("v1/connections", { limit: 200 }, signal), optional("v1/server", {}, signal)]);
    return { ...list, server };
  }

  return {
    everySeconds: 3,
    load,
    render({ route, data, at }) {
      const { filter = "", sort = "-held" } = route.query;
      const word = filter.toLowerCase();
      const named = data.connections.filter((row) => !word || `${row.address} ${row.protocol} ${format.plain(row.client_id)}`.toLowerCase().includes(word));
      const rows = sorted(named, sort, KEYS).map((row, index) => ({ ...row, key: `${row.address} ${index}` }));
      const events = data.server?.events || {};
      const refused = Object.entries(events).filter(([name, value]) => value && /refus|bad_|reject|closed|slow|foreign|limit/.test(name));
      return html`<div class="stack">
        ${data.server ? html`<section class="panel"><header><h2>${t.listeners}</h2></header>${table({
          caption: t.listeners,
          columns: [
            { title: t.listener, cell: (row) => html`<span class="mono">${row.url}</span>`, style: "grow2", isHead: true },
            { title: texts.views.connections.name, cell: (row) => number(row.connections), style: "number" },
            { title: t.input, cell: (row) => amount(row.input), style: "number" },
            { title: t.output, cell: (row) => amount(row.output), style: "number" },
            { title: t.largest, cell: (row) => (row.largest ? html`<span class="mono">${row.largest.address}</span>` : zero()) },
          ],
          rows: data.server.listeners.map((row) => ({ ...row, key: row.url })),
        })}</section>` : nothing}
        <div class="filters" role="search">${filterBox(t.filter, filter)}</div>
        <section class="panel">${table({
          caption: texts.views.connections.name, at, sort,
          columns: [
            { title: t.address, cell: (row) => html`<span class="mono">${row.address || "–"}</span>${row.output > SLOW_BYTES ? html` <span class="tag bad">${t.slow}</span>` : nothing}`, isHead: true, sort: "address" },
            { title: t.protocol, cell: (row) => html`<span class="tag">${row.protocol}</span>`, style: "beside", sort: "protocol" },
            { title: t.name, cell: (row) => html`<span title=${format.plain(row.client_id)}>${format.plain(row.client_id) || "–"}</span>`, style: "grow" },
            { title: t.held, cell: (row) => amount(row.held), style: "number", sort: "held" },
            { title: t.output, cell: (row) => amount(row.output), style: "number", sort: "output" },
            { title: t.input, cell: (row) => amount(row.input), style: "number", sort: "input" },
            { title: t.received, cell: (row) => amount(row.received), style: "number", sort: "received" },
            { title: texts.states.running, cell: (row) => number(row.running), style: "number", sort: "running" },
            { title: t.subscriptions, cell: (row) => number(row.subscriptions), style: "number", sort: "subscriptions" },
          ],
          rows, fallback: empty(t.noMatch),
        })}${data.count > data.connections.length ? html`<div class="paging">${t.shown(data.connections.length, data.count)}</div>` : nothing}</section>
        ${refused.length ? panel(t.refused, html`<div class="inside"><dl class="facts">${refused.map(([name, value]) => html`<dt>${name.replaceAll("_", " ")}</dt><dd>${format.count(value)}</dd>`)}</dl></div>`) : nothing}
      </div>`;
    },
  };
}

// Is the disk the limit?
function storageView(t) {
  const SECONDS = 600;
  let points = { times: [], mean: [], waiting: [] };
  let last = null;

  // The mean of the commits since the last look; null if there were none.
  function meanSince(figures) {
    const total = (figures.mean_commit_seconds || 0) * figures.commits;
    const before = last;
    last = { total, commits: figures.commits };
    return before && figures.commits > before.commits ? Math.max(0, (total - before.total) / (figures.commits - before.commits)) * 1000 : null;
  }

  async function load(route, signal) {
    const [figures, server] = await Promise.all([get("v1/storage", {}, signal), optional("v1/server", {}, signal)]);
    const at = format.now();
    points.times.push(at);
    points.mean.push(meanSince(figures));
    points.waiting.push(figures.waiting_changes);
    while (points.times[0] < at - SECONDS) for (const values of Object.values(points)) values.shift();
    return { figures, memory: server?.memory };
  }

  const atMost = (seconds) => (seconds ? `≤ ${format.span(seconds)}` : "–");

  const PARTS = ["jobs", "held_keys", "limiters", "history", "failures", "drafts", "subscriptions", "schedules", "series", "registrations", "input", "output"];

  return {
    everySeconds: 2,
    opened() {
      points = { times: [], mean: [], waiting: [] };
      last = null;
    },
    load,
    render({ data }) {
      const { figures, memory } = data;
      const log = figures.joblog;
      const held = memory ? PARTS.filter((name) => memory[name]).sort((a, b) => memory[b] - memory[a]) : [];
      return html`<div class="stack">
        ${figures.error ? html`<p class="alarm critical" role="alert"><span class="glyph">✕</span>${figures.error}</p>` : nothing}
        <div class="tiles">
          ${tile({ label: t.half, value: atMost(figures.p50_commit_seconds), note: t.halfNote })}
          ${tile({ label: t.mean, value: format.span(figures.mean_commit_seconds), note: t.commits(format.short(figures.commits)) })}
          ${tile({ label: t.p99, value: atMost(figures.p99_commit_seconds), note: t.halfNote })}
          ${tile({ label: t.waiting, value: format.short(figures.waiting_changes), note: t.waitingNote, tone: figures.waiting_changes > 100000 ? "warn" : "" })}
          ${tile({ label: t.size, value: format.bytes(figures.file_bytes), note: figures.is_durable ? t.durable : t.memory })}
        </div>
        ${panel(t.chart, html`<div class="inside">${points.times.length > 1 ? html`<line-chart role="img" aria-label=${t.chartLabel} .chart=${{ times: [...points.times], height: 180, series: [
          { label: t.inMilliseconds, color: "ready", values: [...points.mean], fill: true }, { label: t.waiting, color: "expired", values: [...points.waiting], dash: [4, 3] }] }}></line-chart>
          ${legend([["ready", t.inMilliseconds], ["expired", t.waiting, true]])}` : html`<p class="muted">${texts.overview.chart.soon}</p>`}</div>`)}
        <div class="columns thirds">
          ${panel(t.store, html`<div class="inside"><dl class="facts">
            <dt>${t.where}</dt><dd class="mono">${figures.url}</dd>
            <dt>${t.state}</dt><dd>${figures.error ? html`<span class="bad">${figures.error}</span>` : html`<span class="good">${t.works}</span>`}</dd>
            <dt>${t.kept}</dt><dd>${figures.is_durable ? t.durable : t.memory}</dd></dl></div>`)}
          ${log ? panel(t.joblog, html`<div class="inside"><dl class="facts">
            <dt>${t.where}</dt><dd class="mono">${log.url}</dd>
            <dt>${t.written}</dt><dd>${format.count(log.written)}</dd>
            <dt>${t.behind}</dt><dd>${format.count(log.waiting)}</dd>
            <dt>${t.dropped}</dt><dd class=${log.dropped ? "bad" : ""}>${format.count(log.dropped)}</dd>
            <dt>${t.size}</dt><dd>${format.bytes(log.file_bytes)}</dd></dl></div>`) : panel(t.joblog, html`<div class="inside muted">${t.noJoblog}</div>`)}
          ${memory ? panel(t.memoryTitle, html`<div class="inside stack">
            <p>${format.bytes(memory.held)} <span class="muted">${memory.limit ? `${texts.overview.of} ${format.bytes(memory.limit)}` : t.noLimit}</span></p>
            ${memory.limit ? bar([["accent", memory.held, t.memoryTitle]], memory.limit) : nothing}
            <dl class="facts">${held.map((name) => html`<dt>${t.parts[name]}</dt><dd>${format.bytes(memory[name])}</dd>`)}</dl></div>`) : nothing}
        </div>
      </div>`;
    },
  };
}

// Who owns the jobs?
function nodesView(t) {
  return {
    everySeconds: 2,
    load: (route, signal) => get("v1/nodes", {}, signal),
    render({ data, at }) {
      const shares = data.filter((node) => node.partitions).length > 1;
      const role = (node) => html`<span class="state ${node.role === "gone" ? "failed" : node.role === "owner" ? "running" : "waiting"}" data-glyph=${node.role === "gone" ? "✕" : node.role === "owner" ? "▶" : "◌"}>${shares && node.role === "owner" ? t.ownsSome : t.roles[node.role] || node.role}</span>`;
      return html`<section class="panel">${table({
        caption: texts.views.nodes.name, at,
        columns: [
          { title: t.name, cell: (node) => node.name, isHead: true, style: "grow" },
          { title: t.role, cell: role },
          { title: t.address, cell: (node) => html`<span class="mono">${node.address}</span>` },
          { title: t.version, cell: (node) => node.version },
          ...(shares ? [{ title: t.partitions, cell: (node) => node.partitions || zero("0"), style: "number" }] : []),
          { title: t.silent, cell: (node) => html`<span class=${node.silent_seconds > 10 ? "bad" : ""}>${format.span(node.silent_seconds)}</span>`, style: "number" },
        ],
        rows: data.map((node) => ({ ...node, key: node.name })),
        fallback: empty(t.none, t.noneText, html`<div class="commands">${command("switchgear serve --store postgresql://jobs@db/jobs --set cluster.enabled=true --set cluster.name=$(hostname)")}</div>`),
      })}</section>`;
    },
  };
}

export const views = { workers: workersView(texts.workers), limits: limitsView(texts.limits), connections: connectionsView(texts.connections), storage: storageView(texts.storage), nodes: nodesView(texts.nodes) };
