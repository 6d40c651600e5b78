// Who submits to whom?

import { html, nothing, empty, panel, table, zero } from "../parts.js";
import { texts } from "../texts.js";
import { get } from "../api.js";
import { refined } from "../router.js";
import * as format from "../format.js";

const t = texts.flows;

const name = (word) => t.names[word] || word;

function cell(flow, most) {
  if (!flow) return html`<td class="cell zero">·</td>`;
  const share = Math.round(6 + 28 * Math.sqrt((flow.done + flow.failed) / most));
  const said = t.cell(name(flow.submitter), name(flow.worker), format.count(flow.done), format.count(flow.failed));
  return html`<td class="cell" .style=${`background:color-mix(in srgb, var(--accent) ${share}%, transparent)`} title=${said}>
    <a href=${refined({ submitter: flow.submitter, worker: flow.worker })}><span class="hidden-text">${said}: </span><strong>${flow.rate === null ? format.short(flow.done) : `${format.rate(flow.rate)}/s`}</strong>
    ${flow.failed ? html`<br><span class="small">✕ ${format.short(flow.failed)}</span>` : nothing}</a></td>`;
}

export default {
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
