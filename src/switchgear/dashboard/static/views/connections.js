// Who misbehaves?

import { html, nothing, table, empty, panel, sorted, filterBox, zero } from "../parts.js";
import { texts } from "../texts.js";
import { get, optional } from "../api.js";
import * as format from "../format.js";

const t = texts.connections;
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

export default {
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
          { title: t.protocol, cell: (row) => html`<span class="tag">${row.protocol}</span>`, sort: "protocol" },
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
