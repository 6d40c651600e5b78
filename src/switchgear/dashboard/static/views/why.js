// Why does nothing run?

import { html, nothing, functionLink, jobLink, empty, panel, counted, jobsOf } from "../parts.js";
import { texts } from "../texts.js";
import { get, optional } from "../api.js";
import { link } from "../router.js";
import { remedies } from "../actions.js";
import * as format from "../format.js";

const t = texts.why;
const MOST = 12;

const blocked = (row) => row.ready + row.waiting_or_scheduled;

// A function is asked about by one of its jobs: the newest that is ready, or else the newest that waits for others.
async function explained(row, signal) {
  const state = row.ready ? "ready" : "waiting,scheduled";
  const page = await get("v1/jobs", { function: format.plain(row.name), state, limit: 1 }, signal);
  if (!page.jobs.length) return { row, job: null, reasons: [] };
  const job = page.jobs[0];
  const explanation = await optional(`v1/jobs/${encodeURIComponent(job.handle)}/explain`, {}, signal, { reasons: [] });
  return { row, job, reasons: explanation.reasons };
}

async function load(route, signal) {
  const functions = (await get("v1/functions", {}, signal)).filter((row) => blocked(row) && typeof row.name === "string").sort((a, b) => blocked(b) - blocked(a));
  return { all: functions.length, found: await Promise.all(functions.slice(0, MOST).map((row) => explained(row, signal))) };
}

export default {
  everySeconds: 10,
  load,
  render({ data, can }) {
    if (!data.found.length) return html`<section class="panel">${empty(t.none, t.noneText)}</section>`;
    const to = (row, state) => jobsOf(row.name, state);
    return html`<div class="stack">
      <div class="columns">
      ${data.found.map(({ row, job, reasons }) => panel(functionLink(row.name), html`
        ${reasons.length ? reasons.map((reason) => html`<div class="reason"><p>${reason.text}</p>${remedies(reason, job, can)}</div>`) : html`<div class="reason muted">${t.gone}</div>`}
        <div class="reason small muted"><span>${job ? html`${t.example} ${jobLink(job.handle)}` : nothing}</span></div>`,
        html`${counted(row.ready, to(row, "ready"))} ${t.ready}${row.waiting_or_scheduled ? html`, ${counted(row.waiting_or_scheduled, to(row, "waiting,scheduled"))} ${t.waiting}` : nothing}`))}
      </div>
      ${data.all > MOST ? html`<p class="muted">${t.more(data.all - MOST)} <a href=${link("functions", "", { show: "queued" })}>${texts.overview.allFunctions}</a></p>` : nothing}
    </div>`;
  },
};
