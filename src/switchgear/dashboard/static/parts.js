// Pieces of markup that views share.

import { html, svg, nothing } from "./vendor/lit-html.js";
import { texts } from "./texts.js";
import * as format from "./format.js";
import { link, refine, refined } from "./router.js";

export { html, svg, nothing };

export const GLYPHS = {
  waiting: "◌", scheduled: "◷", ready: "●", running: "▶", done: "✓", failed: "✕", cancelled: "⊘", expired: "◔",
};

export const state = (name, isDead = false) =>
  html`<span class="state ${name}" data-glyph=${GLYPHS[name] || "?"}>${isDead ? texts.states.dead : texts.states[name] || name}</span>`;

export const functionLink = (name) =>
  html`<a href=${link("function", format.inPath(name))} title=${format.plain(name)}>${format.plain(name)}</a>`;

export const jobLink = (handle, text = handle) =>
  handle ? html`<a class="mono" href=${link("job", encodeURIComponent(handle))}>${text}</a>` : html`–`;

export const time = (seconds) =>
  seconds ? html`<time title=${format.exact(seconds)} datetime=${new Date(seconds * 1000).toISOString()}>${format.moment(seconds)}</time>` : html`–`;

export const since = (seconds) =>
  seconds ? html`<time title=${format.exact(seconds)} datetime=${new Date(seconds * 1000).toISOString()}>${format.ago(seconds)}</time>` : html`–`;

// A count that leads to what it counts; nothing to see behind a zero.
export const counted = (value, target, style = "") =>
  value ? html`<a class=${style} href=${target} title=${format.count(value)}>${format.short(value)}</a>` : zero("0");

// The workers of a function; none is a trouble where jobs wait for one.
export const workersOf = (row, isWanted) =>
  row.workers || !isWanted ? counted(row.workers, link("workers", "", { function: format.plain(row.name) })) : html`<span class="tag bad">${texts.none}</span>`;

// Whether the job that was asked about still waits: it may have started since it was found.
export const waits = (explanation) => ["ready", "waiting", "scheduled"].includes(explanation.state);

export const tile = ({ label, value, unit = "", note = "", href = "", tone = "" }) => {
  const inside = html`
    <div class="label">${label}</div>
    <div class="value ${tone}">${value}${unit ? html` <small>${unit}</small>` : nothing}</div>
    <div class="note">${note}</div>`;
  return href ? html`<a class="tile" href=${href}>${inside}</a>` : html`<div class="tile">${inside}</div>`;
};

export const panel = (title, inside, more = nothing) => html`
  <section class="panel">
    <header><h2>${title}</h2>${more === nothing ? nothing : html`<div class="more">${more}</div>`}</header>
    ${inside}
  </section>`;

export const more = (target, text) => html`<a href=${target}>${text}</a>`;

export const empty = (title, text = "", inside = nothing) => html`
  <div class="empty"><h2>${title}</h2>${text ? html`<p>${text}</p>` : nothing}${inside}</div>`;

export const command = (text) => html`
  <div class="command"><code>${text}</code>
    <button class="button small" aria-label=${texts.actions.copyCommand(text)} @click=${() => copy(text)}>${texts.actions.copy}</button>
  </div>`;

export async function copy(text) {
  try {
    await navigator.clipboard.writeText(text);
    dispatchEvent(new CustomEvent("toast", { detail: { text: texts.toasts.copied } }));
  } catch {
    dispatchEvent(new CustomEvent("toast", { detail: { text: texts.toasts.notCopied, bad: true } }));
  }
}

export const problemBox = (problem, retry) =>
  problem.status === 404 && problem.code === "not_found" && problem.isOfView
    ? html`<section class="panel">${empty(texts.problems.notOffered, texts.problems.notOfferedText)}</section>`
    : html`
      <div class="panel empty" role="alert">
        <h2>${problem.status === 403 ? texts.problems.notAllowed : problem.status === 404 ? texts.problems.notFound : texts.problems.failed}</h2>
        <p>${problem.message}</p>
        ${retry ? html`<button class="button" @click=${retry}>${texts.actions.tryAgain}</button>` : nothing}
      </div>`;

export const loading = () => html`
  <div class="panel" aria-busy="true"><span class="hidden-text">${texts.loading}</span>
    ${[70, 90, 55, 80].map((width) => html`<div class="skeleton" .style=${`width:${width}%`}></div>`)}
  </div>`;

// Parts of a whole: [[class, value, label], …].  With `most`, the length of the bar is the share of that.
export function bar(parts, most = 0) {
  const all = most || parts.reduce((sum, [, value]) => sum + value, 0);
  const said = parts.filter(([, value]) => value).map(([, value, label]) => `${format.count(value)} ${label}`).join(", ");
  return html`<div class="bar" role="img" aria-label=${said || texts.none} title=${said}>
    ${all ? parts.map(([style, value]) => (value ? html`<i class=${style} .style=${`width:${(value / all) * 100}%`}></i>` : nothing)) : nothing}
  </div>`;
}

export function sparkline(values, label) {
  if (values.length < 2) return zero();
  const top = Math.max(...values, 1);
  const points = values.map((value, index) => `${((index / (values.length - 1)) * 84).toFixed(1)},${(21 - (value / top) * 19).toFixed(1)}`).join(" ");
  return html`<svg class="spark" viewBox="0 0 84 22" preserveAspectRatio="none" role="img" aria-label=${label}>
    ${svg`<polygon points=${`0,22 ${points} 84,22`}></polygon><polyline points=${points}></polyline>`}
  </svg>`;
}

/* A table, which becomes cards on narrow screens.

   columns: {title, cell(row), style, isHead, sort, label}; `sort` is the word in the URL by which the column sorts.
   rows have a `key`, by which the keyboard's place and the selection know them. */
export function table({ columns, rows, caption, sort = "", target, at, selection, pick, isCards = true, fallback = nothing }) {
  if (!rows.length) return fallback;
  const heading = (column) => {
    if (!column.sort) return column.title;
    const isDown = sort === `-${column.sort}`;
    const isUp = sort === column.sort;
    const next = isDown ? column.sort : `-${column.sort}`;
    return html`<button @click=${() => { location.hash = refined({ sort: next }); }}>${column.title}${isDown ? " ↓" : isUp ? " ↑" : ""}</button>`;
  };
  const ordered = (column) => (sort === `-${column.sort}` ? "descending" : sort === column.sort && column.sort ? "ascending" : nothing);
  return html`
    <div class="scroller" tabindex="0" role="region" aria-label=${caption}>
      <table class=${isCards ? "cards" : ""}>
        <caption class="hidden-text">${caption}</caption>
        <thead><tr>
          ${selection ? html`<th scope="col"><span class="hidden-text">${texts.actions.select}</span></th>` : nothing}
          ${columns.map((column) => html`<th scope="col" class=${column.style || ""} aria-sort=${ordered(column)}>${heading(column)}</th>`)}
        </tr></thead>
        <tbody>
          ${rows.map((row, index) => html`
            <tr class=${(index === at ? "at " : "") + (selection && selection.has(row.key) ? "chosen" : "")} data-row=${index} data-href=${target ? target(row) : ""}>
              ${selection ? html`<td class="pick"><input type="checkbox" aria-label=${texts.actions.selectRow(row.key)} .checked=${selection.has(row.key)} @change=${() => pick(row)}></td>` : nothing}
              ${columns.map((column) => html`<td class="${column.style || ""} ${column.isHead ? "head" : ""}" data-label=${column.label || column.title}><div class="cell">${column.cell(row)}</div></td>`)}
            </tr>`)}
        </tbody>
      </table>
    </div>`;
}

// The last column, with buttons, for those who may press them.
export const actionsColumn = (isAllowed, cell) =>
  isAllowed ? [{ title: html`<span class="hidden-text">${texts.columns.actions}</span>`, label: "", style: "number bare", cell }] : [];

// The filter of a list; `/` goes there. While somebody types, the URL may be some letters behind: those stay.
const typed = () => (document.activeElement?.type === "search" ? document.activeElement.value : null);

export const filterBox = (label, value = "") => html`
  <input type="search" aria-label=${label} placeholder=${`${label}  ( / )`} .value=${typed() ?? value} @input=${(event) => refine({ filter: event.target.value }, { replace: true })}>`;

// One of a few choices, as a link.
export const choice = (isOn, target, text) => html`<a class="chip ${isOn ? "on" : ""}" aria-current=${isOn ? "true" : nothing} href=${target}>${text}</a>`;

// A filter that is set, as a link that removes it.
export const setFilter = (target, text) => html`<a class="chip on" href=${target}><span class="text">${text}</span> ✕</a>`;
export const onlyFunction = (name) => (name ? setFilter(refined({ function: "" }), `${texts.columns.function}: ${name}`) : nothing);

// To the first and the next page of a list.
export const pages = (route, next) => html`
  ${route.query.cursor ? html`<a class="button small" href=${refined({})}>${texts.actions.firstPage}</a>` : nothing}
  ${next ? html`<a class="button small" rel="next" href=${refined({ cursor: next })}>${texts.actions.nextPage}</a>` : nothing}`;

export const jobsOf = (name, state) => link("jobs", "", { function: format.plain(name), state });
export const toJob = (job) => link("job", encodeURIComponent(job.handle));
export const zero = (text = "–") => html`<span class="zero">${text}</span>`;

// What the lines of a chart are: [[color, text, isDashed], …].
export const legend = (parts) => html`<div class="legend">${parts.map(([color, text, isDashed]) => html`<span><i class=${isDashed ? "dashed" : ""} .style=${`color:var(--${color})`}></i>${text}</span>`)}</div>`;

// Sort by a word of the URL: "-ready" is the most first.
export function sorted(rows, word, keys) {
  const key = keys[word.replace(/^-/, "")];
  if (!key) return rows;
  const sign = word.startsWith("-") ? -1 : 1;
  return [...rows].sort((a, b) => {
    const [x, y] = [key(a), key(b)];
    if (x === y) return 0;
    if (x === null || x === undefined) return 1;
    if (y === null || y === undefined) return -1;
    return x < y ? -sign : sign;
  });
}
