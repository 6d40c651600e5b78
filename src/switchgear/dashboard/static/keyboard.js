// Keys: `/` filter, `g` and a letter to go somewhere, `j` `k` rows, `x` select, Enter open, `?` help, Ctrl-K palette.

import { html } from "./parts.js";
import { texts } from "./texts.js";
import { ask, submitJob } from "./actions.js";
import { optional } from "./api.js";
import { link } from "./router.js";
import * as format from "./format.js";

let setup = null;
let prefix = "";
let prefixTimer = 0;

export function startKeyboard(given) {
  setup = given;
  document.addEventListener("keydown", onKey);
}

const isTyping = (target) => target.closest?.("input:not([type=checkbox]), textarea, select, [contenteditable]");

function onKey(event) {
  if ((event.ctrlKey || event.metaKey) && event.key.toLowerCase() === "k") {
    event.preventDefault();
    showPalette();
    return;
  }
  if (event.key === "Escape" && isTyping(event.target)) event.target.blur();
  if (event.ctrlKey || event.metaKey || event.altKey || isTyping(event.target) || document.querySelector("dialog[open]")) return;
  if (prefix === "g") {
    prefix = "";
    const place = setup.places().find((each) => each.key === event.key);
    if (place) {
      event.preventDefault();
      location.hash = link(place.id);
    }
    return;
  }
  const isOnControl = event.target.closest?.("a, button, summary, canvas");
  const keys = {
    "/": () => (document.querySelector("main input[type=search]") || { focus: showPalette }).focus(),
    "?": showHelp, j: () => setup.move(1), k: () => setup.move(-1), x: setup.choose,
    n: () => { if (setup.can("submit")) submitJob(); },
    g: () => { prefix = "g"; clearTimeout(prefixTimer); prefixTimer = setTimeout(() => { prefix = ""; }, 1500); },
  };
  if (event.key === "Enter" && !isOnControl) {
    setup.follow();
  } else if (keys[event.key]) {
    event.preventDefault();
    keys[event.key]();
  }
}

export function showHelp() {
  const keys = [...texts.keys.list, ...setup.places().map((place) => [`g ${place.key}`, texts.views[place.id].name])];
  ask((close) => html`
    <div class="inside">
      <h2>${texts.keys.title}</h2>
      <dl class="facts">${keys.map(([key, text]) => html`<dt>${key.split(" ").map((each) => html`<kbd>${each}</kbd> `)}</dt><dd>${text}</dd>`)}</dl>
      <div class="actions"><button class="button" autofocus @click=${() => close()}>${texts.actions.close}</button></div>
    </div>`, { label: texts.keys.title });
}

// --- the palette ---

export async function showPalette() {
  if (document.querySelector("dialog[open]")) return;
  let typed = "";
  let at = 0;
  let functions = [];
  const places = setup.places().map((place) => ({ text: texts.views[place.id].name, note: texts.palette.view, target: link(place.id) }));
  const commands = setup.can("submit") ? [{ text: texts.submit.title, note: texts.palette.action, run: () => submitJob() }] : [];
  const choices = () => {
    const word = typed.trim().toLowerCase();
    const fits = (each) => each.text.toLowerCase().includes(word);
    const found = [...places, ...commands].filter(fits);
    if (word) {
      for (const name of functions) {
        if (found.length >= 40) break;
        const text = format.plain(name);
        if (text.toLowerCase().includes(word)) found.push({ text, note: texts.palette.function, target: link("function", format.inPath(name)) });
      }
      if (/^(h:.+:)?\d+$/i.test(word)) found.unshift({ text: typed.trim(), note: texts.palette.job, target: link("job", encodeURIComponent(typed.trim())) });
      found.push({ text: texts.palette.unique(typed.trim()), note: texts.palette.jobs, target: link("jobs", "", { unique: typed.trim() }) });
      found.push({ text: texts.palette.error(typed.trim()), note: texts.palette.jobs, target: link("jobs", "", { error: typed.trim() }) });
    }
    return found;
  };
  const chosen = await ask((close, draw) => {
    const found = choices();
    at = Math.min(at, Math.max(0, found.length - 1));
    const onKeyDown = (event) => {
      if (event.key === "ArrowDown") at = Math.min(at + 1, found.length - 1);
      else if (event.key === "ArrowUp") at = Math.max(0, at - 1);
      else if (event.key === "Enter") close(found[at]);
      else return;
      event.preventDefault();
      draw();
      document.querySelector(".choices [aria-selected=true]")?.scrollIntoView({ block: "nearest" });
    };
    if (!functions.length && !close.isLoading) {
      close.isLoading = true;
      optional("v1/functions", {}, undefined, []).then((all) => { functions = all.map((each) => each.name); draw(); }).catch(() => {});
    }
    return html`
      <input autofocus type="search" role="combobox" aria-expanded="true" aria-controls="choices" aria-activedescendant="choice-${at}"
        aria-label=${texts.palette.title} placeholder=${texts.palette.placeholder}
        @keydown=${onKeyDown} @input=${(event) => { typed = event.target.value; at = 0; draw(); }}>
      <div class="choices" id="choices" role="listbox" aria-label=${texts.palette.title}>
        ${found.map((each, index) => html`
          <div role="option" id="choice-${index}" aria-selected=${index === at} @click=${() => close(each)}>
            <span>${each.text}</span><span class="muted small nowrap">${each.note}</span></div>`)}
      </div>`;
  }, { style: "palette", label: texts.palette.title });
  if (chosen?.run) chosen.run();
  else if (chosen) location.hash = chosen.target;
}
