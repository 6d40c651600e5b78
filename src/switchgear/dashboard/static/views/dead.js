// What needs a person?

import { html, nothing, table, functionLink, jobLink, since, empty, zero, toJob, actionsColumn } from "../parts.js";
import { texts } from "../texts.js";
import { get } from "../api.js";
import { link, refined } from "../router.js";
import { bulk, retryJob } from "../actions.js";
import * as format from "../format.js";

const t = texts.dead;
const selection = new Set();

export default {
  everySeconds: 5,
  opened() { selection.clear(); },
  load: (route, signal) => get("v1/jobs", { dead: true, function: route.query.function, cursor: route.query.cursor, limit: 50 }, signal),
  render({ route, data, at, can, update }) {
    const rows = data.jobs.map((job) => ({ ...job, key: job.handle }));
    const only = route.query.function;
    const pick = (row) => { if (!selection.delete(row.key)) selection.add(row.key); update(); };
    const chosen = [...selection];
    const retry = async (what) => { await bulk("retry", what); selection.clear(); update(); };
    const all = { filter: { dead: true, ...(only ? { function: only } : {}) } };
    return html`
      ${only ? html`<div class="filters"><a class="chip on" href=${refined({ function: "" })}><span class="text">${texts.columns.function}: ${only}</span> ✕</a></div>` : nothing}
      <section class="panel">
        ${table({
          caption: texts.views.dead.name, at, selection: can("operate") ? selection : null, pick,
          columns: [
            { title: texts.columns.job, cell: (job) => jobLink(job.handle), isHead: true },
            { title: texts.columns.function, cell: (job) => functionLink(job.function), style: "grow" },
            { title: t.reason, cell: (job) => html`<span class="bad" title=${format.plain(job.error)}>${format.lastLine(job.error) || t.lost}</span>`, style: "grow2" },
            { title: texts.columns.attempts, cell: (job) => job.attempts, style: "number" },
            { title: t.losses, cell: (job) => job.losses || zero("0"), style: "number" },
            { title: t.died, cell: (job) => since(job.finished_at), style: "number" },
            ...actionsColumn(can("operate"), (job) => html`<button class="button small" aria-label=${`${texts.retry.short} ${job.handle}`} @click=${() => retryJob(job.handle)}>${texts.retry.short}</button>`),
          ],
          rows, target: toJob,
          fallback: data.complete ? empty(t.none, t.noneText) : empty(texts.jobs.notYet, texts.jobs.notYetText(format.count(data.searched_to)), html`<a class="button first" href=${link("dead", "", { ...route.query, cursor: data.next })}>${texts.jobs.searchOn}</a>`),
        })}
        ${rows.length ? html`<div class="paging">
          <div class="actions">${can("operate") ? chosen.length
            ? html`<strong>${texts.jobs.selected(chosen.length)}</strong><button class="button small" @click=${() => retry({ handles: chosen })}>${texts.jobs.retrySelected}</button>`
            : html`<button class="button small" @click=${() => retry(all)}>${t.retryAll}</button>` : nothing}</div>
          <div class="actions">${route.query.cursor ? html`<a class="button small" href=${refined({})}>${texts.jobs.firstPage}</a>` : nothing}
            ${data.complete ? nothing : html`<a class="button small" href=${link("dead", "", { ...route.query, cursor: data.next })}>${texts.jobs.nextPage}</a>`}</div></div>` : nothing}
      </section>`;
  },
};
