// What to do about a reason: the word of each reason of `explain` has its remedies.

import { html, nothing, jobLink, command } from "./parts.js";
import { texts } from "./texts.js";
import { link } from "./router.js";
import { cancelJob, changeLimits, pauseFunction, retryJob } from "./actions.js";
import { get } from "./api.js";
import * as format from "./format.js";

const t = texts.remedies;

const limitsOf = async (name) => changeLimits(name, (await get(`v1/functions/${format.inPath(name)}`)).policy);

const REMEDIES = {
  paused: (data, job, can) => (can("operate") ? html`<button class="button small first" @click=${() => pauseFunction(job.function, false)}>${texts.functions.resume}</button>` : nothing),
  limit: (data, job, can) => (can("operate") ? html`<button class="button small" @click=${() => limitsOf(job.function)}>${texts.function.changeLimits}</button>` : nothing),
  no_worker: (data, job) => command(`switchgear worker ${quoted(format.plain(job.function))} --exec COMMAND`),
  missing_tag: () => html`<a class="button small" href=${link("workers")}>${t.workers}</a>`,
  missing_resource: () => html`<a class="button small" href=${link("workers")}>${t.workers}</a>`,
  resources_in_use: (data, job) => html`<a class="button small" href=${link("workers", "", { function: format.plain(job.function) })}>${t.workers}</a>`,
  workers_busy: (data, job) => html`<a class="button small" href=${link("workers", "", { function: format.plain(job.function) })}>${t.workers}</a>
    <a class="button small" href=${link("jobs", "", { function: format.plain(job.function), state: "running" })}>${t.running}</a>`,
  workers_absent: (data, job) => html`<a class="button small" href=${link("workers", "", { function: format.plain(job.function) })}>${t.workers}</a>`,
  waiting_for: (data, job, can) => html`${jobLink(data.handle || data.job || "", data.handle || t.thatJob)}
    ${can("operate") && ["failed", "cancelled", "expired"].includes(data.state) ? html`
      ${data.handle ? html`<button class="button small first" @click=${() => retryJob(data.handle)}>${t.retryThat}</button>` : nothing}
      <button class="button small danger" @click=${() => cancelJob(job.handle)}>${t.cancelThis}</button>` : nothing}`,
  stuck: (data, job) => html`<a class="button small" href=${link("graph", "", { function: format.plain(job.function) })}>${texts.job.showGraph}</a>`,
  storage: () => html`<a class="button small" href=${link("storage")}>${texts.views.storage.name}</a>`,
  running: (data) => (data.worker_id ? html`<a class="button small" href=${link("workers", "", { filter: format.plain(data.worker) || String(data.worker_id) })}>${t.worker}</a>` : nothing),
  dead: (data, job, can) => (can("operate") ? html`<button class="button small first" @click=${() => retryJob(job.handle)}>${texts.retry.short}</button>` : nothing),
  failed: (data, job, can) => (can("operate") ? html`<button class="button small first" @click=${() => retryJob(job.handle)}>${texts.retry.short}</button>` : nothing),
};

const quoted = (text) => (/^[\w.:/-]+$/.test(text) ? text : `'${text.replaceAll("'", "'\\''")}'`);

export function remedies(reason, job, can) {
  const remedy = REMEDIES[reason.word];
  const shown = remedy ? remedy(reason.data || {}, job, can) : nothing;
  return shown === nothing ? nothing : html`<div class="actions">${shown}</div>`;
}
