// Payloads and results: as a tree if they are JSON, as text, or in hexadecimal.

import { html, nothing } from "./parts.js";
import { texts } from "./texts.js";
import * as format from "./format.js";
import { address } from "./api.js";

const t = texts.payload;
const MOST_SHOWN = 64 * 1024;
const MOST_CHILDREN = 200;
const MOST_DEPTH = 100;
const chosen = new Map();

function parsed(text) {
  const start = text.trimStart()[0];
  if (!start || !"[{\"".includes(start)) return undefined;
  try {
    return JSON.parse(text, exact);
  } catch {
    return undefined;
  }
}

// A number that the browser would show as another one, such as an id of twenty digits: as it is written.
class Written {
  constructor(text) { this.text = text; }
}

const exact = (key, value, context) => (typeof value === "number" && context && String(value) !== context.source ? new Written(context.source) : value);

function tree(value, name = null, depth = 0) {
  const label = name === null ? nothing : html`<span class="key">${name}: </span>`;
  if (value instanceof Written) return html`<div class="leaf">${label}<span class="number">${value.text}</span></div>`;
  if (value === null || typeof value !== "object") {
    const style = typeof value === "string" ? "text" : typeof value === "number" ? "number" : "word";
    return html`<div class="leaf">${label}<span class=${style}>${JSON.stringify(value)}</span></div>`;
  }
  const entries = Object.entries(value);
  const size = Array.isArray(value) ? t.items(entries.length) : t.keys(entries.length);
  if (!entries.length) return html`<div class="leaf">${label}<span class="word">${Array.isArray(value) ? "[]" : "{}"}</span></div>`;
  if (depth >= MOST_DEPTH) return html`<div class="leaf muted">${label}${size} …</div>`;
  return html`<details ?open=${depth < 3}><summary>${label}<span class="muted">${size}</span></summary>
    ${entries.slice(0, MOST_CHILDREN).map(([key, each]) => tree(each, key, depth + 1))}
    ${entries.length > MOST_CHILDREN ? html`<div class="leaf muted">${t.moreItems(entries.length - MOST_CHILDREN)}</div>` : nothing}
  </details>`;
}

function hex(bytes) {
  const lines = [];
  for (let start = 0; start < bytes.length; start += 16) {
    const row = [...bytes.slice(start, start + 16)];
    const digits = row.map((byte) => byte.toString(16).padStart(2, "0")).join(" ").padEnd(47);
    const letters = row.map((byte) => (byte >= 32 && byte < 127 ? String.fromCharCode(byte) : "·")).join("");
    lines.push(`${start.toString(16).padStart(6, "0")}  ${digits}  ${letters}`);
  }
  return lines.join("\n");
}

export function payloadPanel({ title, value, size, download, isRedacted, update }) {
  const bytes = format.bytesOf(value);
  const total = size ?? bytes.length;
  const isText = typeof value === "string";
  const text = isText ? value : "";
  const json = isText && bytes.length <= 1024 * 1024 ? parsed(text) : undefined;
  const modes = [...(json !== undefined ? ["tree"] : []), ...(isText ? ["text"] : []), "hex"];
  const mode = modes.includes(chosen.get(title)) ? chosen.get(title) : modes[0];
  const shown = () => {
    if (!total) return html`<p class="muted">${t.empty}</p>`;
    if (mode === "tree") return html`<div class="tree">${tree(json)}</div>`;
    if (mode === "text") return html`<pre>${text.slice(0, MOST_SHOWN)}</pre>`;
    return html`<pre>${hex(bytes.slice(0, MOST_SHOWN / 16))}</pre>`;
  };
  const isCut = (mode === "text" && text.length > MOST_SHOWN) || (mode === "hex" && bytes.length > MOST_SHOWN / 16);
  const id = title.replace(/\W/g, "").toLowerCase();
  return html`
    <section class="panel">
      <header><h2>${title} <span class="muted small">${format.bytes(total)}</span></h2>
        <div class="actions">
          ${total ? html`<div class="tabs" role="tablist" aria-label=${title}>${modes.map((each) => html`
            <button role="tab" id="${id}-${each}" aria-selected=${each === mode} aria-controls="${id}-shown" @click=${() => { chosen.set(title, each); update(); }}>${t.modes[each]}</button>`)}</div>
          <a class="button small" href=${address(download).href} download>${t.download}</a>` : nothing}
        </div></header>
      <div class="payload" id="${id}-shown" role="tabpanel" tabindex="0" aria-label=${title}>
        ${shown()}${isCut ? html`<p class="muted">${t.cut}</p>` : nothing}${isRedacted ? html`<p class="muted">${t.redacted}</p>` : nothing}
      </div>
    </section>`;
}
