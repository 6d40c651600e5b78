// Did cron fire?

import { html, nothing, table, functionLink, jobLink, state, since, time, empty, command, filterBox, actionsColumn } from "../parts.js";
import { texts } from "../texts.js";
import { get, post, put, remove } from "../api.js";
import { link } from "../router.js";
import { act, confirm } from "../actions.js";
import * as format from "../format.js";

const t = texts.schedules;

const path = (row) => `v1/schedules/${format.inPath(row.name)}`;
const run = (row) => act(() => post(`${path(row)}/run`), (job) => html`${t.ran(format.plain(row.name))} ${jobLink(job?.handle)}`);

// A schedule is changed by declaring it again, so all of it is sent.
function pause(row, isPaused) {
  const isCron = !/^every /i.test(row.spec);
  const seconds = isCron ? 0 : readSeconds(row.spec);
  const declared = {
    function: format.plain(row.function), payload: row.payload, timezone: row.timezone === "UTC" && !isCron ? "" : row.timezone,
    catch_up: row.catch_up, overlap: row.overlap, options: row.options, paused: isPaused,
    ...(isCron ? { cron: row.spec } : { every_seconds: seconds, timezone: "" }),
  };
  return act(() => put(path(row), declared), isPaused ? t.pausedNow(format.plain(row.name)) : t.resumedNow(format.plain(row.name)));
}

export function readSeconds(spec) {
  const found = /^every ([\d.]+) s$/.exec(spec);
  return found ? Number(found[1]) : 0;
}

async function drop(row) {
  const name = format.plain(row.name);
  if (await confirm({ title: t.dropTitle(name), text: t.dropText, button: t.drop })) await act(() => remove(path(row)), t.dropped(name));
}

export default {
  everySeconds: 5,
  load: (route, signal) => get("v1/schedules", {}, signal),
  render({ route, data, at, can }) {
    if (!data.length) return html`<section class="panel">${empty(t.none, t.noneText, html`<div class="commands">${command("switchgear schedule add nightly report --cron '0 3 * * *'")}</div>`)}</section>`;
    const word = (route.query.filter || "").toLowerCase();
    const rows = data.filter((row) => !word || `${format.plain(row.name)} ${format.plain(row.function)}`.toLowerCase().includes(word))
      .sort((a, b) => (a.next_at ?? Infinity) - (b.next_at ?? Infinity)).map((row) => ({ ...row, key: format.plain(row.name) }));
    const figures = (row) => html`${format.count(row.fired)}${row.skipped ? html` <span class="tag">${t.skipped(row.skipped)}</span>` : nothing}${row.missed ? html` <span class="tag warn">${t.missed(row.missed)}</span>` : nothing}${row.refused ? html` <span class="tag bad">${t.refused(row.refused)}</span>` : nothing}`;
    return html`
      <div class="filters" role="search">${filterBox(t.filter, route.query.filter || "")}</div>
      <section class="panel">${table({
        caption: texts.views.schedules.name, at,
        columns: [
          { title: t.name, cell: (row) => html`<span title=${row.key}>${row.key}</span>`, style: "grow", isHead: true },
          { title: texts.columns.function, cell: (row) => functionLink(row.function), style: "grow" },
          { title: t.spec, cell: (row) => html`<span class="mono">${row.spec}</span> <span class="muted small">${row.timezone}</span>` },
          { title: t.next, cell: (row) => (row.paused ? html`<span class="tag warn">${texts.functions.paused}</span>` : since(row.next_at)), style: "number" },
          { title: t.last, cell: (row) => (row.last_at ? html`${time(row.last_at)} ${row.last_job ? html`<a href=${link("job", encodeURIComponent(row.last_job))} title=${row.last_job}>${row.last_state ? state(row.last_state) : row.last_job}</a>` : nothing}` : html`<span class="zero">${t.never}</span>`) },
          { title: t.fired, cell: figures, style: "number" },
          ...actionsColumn(can("operate"), (row) => html`<span class="actions" .style=${"flex-wrap:nowrap;justify-content:flex-end"}>
            <button class="button small" aria-label=${`${t.run} ${row.key}`} @click=${() => run(row)}>${t.run}</button>
            <button class="button small" aria-label=${`${row.paused ? texts.functions.resume : texts.functions.pause} ${row.key}`} @click=${() => pause(row, !row.paused)}>${row.paused ? texts.functions.resume : texts.functions.pause}</button>
            <button class="button small danger" aria-label=${`${t.drop} ${row.key}`} @click=${() => drop(row)}>${t.drop}</button></span>`),
        ],
        rows, fallback: empty(t.noMatch),
      })}</section>
      ${rows.some((row) => row.held_up) ? html`<br><ul class="alarms">${rows.filter((row) => row.held_up).map((row) => html`<li class="alarm"><span class="glyph">!</span><p>${row.key}: ${row.held_up}</p></li>`)}</ul>` : nothing}`;
  },
};
