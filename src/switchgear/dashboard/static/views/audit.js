// Who cancelled that?

import { html, nothing, table, jobLink, time, empty, panel, actionsColumn } from "../parts.js";
import { texts } from "../texts.js";
import { get, optional, remove } from "../api.js";
import { act, isOver } from "../actions.js";
import * as format from "../format.js";

const t = texts.audit;

async function load(route, signal) {
  const [bulk, audit] = await Promise.all([get("v1/bulk", {}, signal), optional("v1/audit", { limit: 100 }, signal)]);
  return { bulk, audit };
}

const progress = (run) => html`<span class="nowrap">${format.count(run.handled)} / ${format.count(run.matched)}</span>
  <progress aria-label=${texts.bulk.progress} max=${Math.max(1, run.matched)} value=${run.handled}></progress>`;

export default {
  everySeconds: 3,
  load,
  render({ data, at, can }) {
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
      ${data.audit ? panel(t.log, table({
        caption: t.log,
        columns: [
          { title: t.what, cell: (entry) => entry.verb, isHead: true },
          { title: t.who, cell: (entry) => html`${entry.identity} <span class="muted">${entry.address}</span>` },
          { title: t.details, cell: (entry) => html`<span title=${entry.target}>${entry.target}</span>`, style: "grow2" },
          { title: t.outcome, cell: (entry) => html`<span class=${entry.outcome === "done" ? "" : "bad"}>${entry.outcome}</span>` },
          { title: texts.columns.when, cell: (entry) => time(entry.at), style: "number" },
        ],
        rows: data.audit.entries.map((entry) => ({ ...entry, key: String(entry.id) })), fallback: isStored ? empty(t.noLog, t.noLogText) : empty(t.notStored, t.notStoredText),
      })) : nothing}
    </div>`;
  },
};
