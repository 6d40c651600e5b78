// Who is starved?

import { html, table, functionLink, empty, bar, counted, panel, zero, actionsColumn } from "../parts.js";
import { texts } from "../texts.js";
import { get, optional } from "../api.js";
import { link } from "../router.js";
import { changeLimits } from "../actions.js";
import * as format from "../format.js";

const t = texts.limits;
const MOST_WITH_KEYS = 6;

const rateText = (rate) => (rate ? `${rate[0]} / ${format.span(rate[1])}` : "–");

async function load(route, signal) {
  const limited = (await get("v1/functions", {}, signal)).filter((row) => row.policy);
  const withKeys = limited.filter((row) => row.keys_waiting).sort((a, b) => b.keys_waiting - a.keys_waiting).slice(0, MOST_WITH_KEYS);
  const keys = await Promise.all(withKeys.map(async (row) => ({ row, keys: await optional(`v1/functions/${format.inPath(row.name)}/keys`, { limit: 20 }, signal) })));
  return { limited, keys: keys.filter((each) => each.keys) };
}

export default {
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
        { title: t.rate, cell: (row) => rateText(row.policy.rate), style: "number" },
        { title: t.eachKey, cell: (row) => [row.policy.key_concurrency ? `${row.policy.key_concurrency} ${t.atOnce}` : "", row.policy.key_rate ? rateText(row.policy.key_rate) : "", row.policy.fair ? t.inTurn : ""].filter(Boolean).join(", ") || zero() },
        { title: t.keys, cell: (row) => (row.keys_waiting ? format.count(row.keys_waiting) : zero("0")), style: "number" },
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
