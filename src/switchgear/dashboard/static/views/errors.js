// What broke since the deploy?

import { html, nothing, table, functionLink, jobLink, since, empty, zero, choice, onlyFunction, actionsColumn } from "../parts.js";
import { texts } from "../texts.js";
import { get } from "../api.js";
import { link, refined } from "../router.js";
import { bulk } from "../actions.js";
import * as format from "../format.js";

const t = texts.errors;
const RANGES = { 3600: t.ranges.hour, 86400: t.ranges.day, 604800: t.ranges.week };

// What an example and all others of its group have in common: the longest piece of the error without what was masked.
function commonText(group) {
  const pieces = group.error.split(/[#…]+/).map((piece) => piece.trim()).sort((a, b) => b.length - a.length);
  const example = format.plain(group.example_error);
  return pieces.find((piece) => piece.length > 3 && example.includes(piece)) || "";
}

export default {
  everySeconds: 5,
  load: (route, signal) => get("v1/errors", {
    function: route.query.function, since: route.query.range ? format.now() - Number(route.query.range) : undefined, limit: 100,
  }, signal),
  render({ route, data, at, can }) {
    const { range = "", function: only = "" } = route.query;
    const chips = html`<div class="filters"><div class="chips">
      <a class="chip ${range ? "" : "on"}" href=${refined({ range: "" })}>${t.ranges.all}</a>
      ${Object.entries(RANGES).map(([seconds, text]) => choice(seconds === range, refined({ range: seconds }), text))}
      ${onlyFunction(only)}</div></div>`;
    const to = (group) => link("jobs", "", { function: format.plain(group.function), state: "failed", error: commonText(group) });
    return html`${chips}
      <section class="panel">
        ${table({
          caption: texts.views.errors.name, at,
          columns: [
            { title: texts.columns.error, cell: (group) => html`<a href=${to(group)} title=${format.plain(group.example_error)}>${group.error || t.unnamed}</a>`, style: "grow2", isHead: true },
            { title: texts.columns.function, cell: (group) => functionLink(group.function), style: "short" },
            { title: texts.columns.count, cell: (group) => html`<a href=${to(group)}>${format.short(group.count)}</a>`, style: "number" },
            { title: texts.states.dead, cell: (group) => (group.dead ? html`<span class="bad">${format.short(group.dead)}</span>` : zero("0")), style: "number" },
            { title: t.first, cell: (group) => since(group.first_at), style: "number none" },
            { title: t.last, cell: (group) => since(group.last_at), style: "number" },
            { title: t.example, cell: (group) => jobLink(group.examples[0]) },
            ...actionsColumn(can("operate"), (group) => html`
              <button class="button small" aria-label=${t.retryLabel(group.error)} @click=${() => bulk("retry", { filter: { function: format.plain(group.function), states: ["failed"], ...(commonText(group) ? { error: commonText(group) } : {}) } })}>${t.retry}</button>`),
          ],
          rows: data.groups.map((group, index) => ({ ...group, key: `${index}` })),
          target: to,
          fallback: empty(t.none, range || only ? t.noneHere : t.noneText),
        })}
        ${data.groups.length ? html`<div class="paging"><span>${data.complete ? t.searched(format.count(data.searched)) : t.searchedTo(format.count(data.searched), format.count(data.searched_to))}</span></div>` : nothing}
      </section>`;
  },
};
