// The frame: navigation, routes, keyboard, and the loading and refreshing of views.

import { render } from "./vendor/lit-html.js";
import { html, nothing, loading, problemBox } from "./parts.js";
import { texts } from "./texts.js";
import { features, get, lacking, optional, Problem } from "./api.js";
import { live, watch } from "./live.js";
import { current, link } from "./router.js";
import { logIn, logOut, onToasts, submitJob, toastList } from "./actions.js";
import { startKeyboard, showHelp, showPalette } from "./keyboard.js";
import * as format from "./format.js";

// In the order of the navigation.  `under` marks a place while one of its details is shown; `key` is for `g` and a letter.
// `file` is the module that has the view: small views share one, because together they compress better.  `isWide` marks
// views of all functions, which are refused to an identity that may use only some.
export const PLACES = [
  { id: "overview", group: "now", file: "now", key: "o", isWide: true },
  { id: "stream", group: "now", file: "stream", key: "t", needs: "/v1/stream", isWide: true },
  { id: "flows", group: "now", file: "now", key: "m", needs: "/v1/flows", isWide: true },
  { id: "functions", group: "work", file: "functions", key: "f", under: ["function"] },
  { id: "jobs", group: "work", file: "jobs", key: "j", under: ["job"] },
  { id: "why", group: "work", file: "work", key: "y" },
  { id: "errors", group: "work", file: "work", key: "e", needs: "/v1/errors", isWide: true },
  { id: "dead", group: "work", file: "jobs", key: "d" },
  { id: "graph", group: "work", file: "graph", key: "g", needs: "/v1/graph", isWide: true },
  { id: "schedules", group: "work", file: "work", key: "s" },
  { id: "workers", group: "server", file: "server", key: "w" },
  { id: "limits", group: "server", file: "server", key: "l" },
  { id: "connections", group: "server", file: "server", key: "c", needs: "/v1/connections", isWide: true },
  { id: "storage", group: "server", file: "server", key: "p", needs: "/v1/storage", isWide: true },
  { id: "nodes", group: "server", file: "server", key: "n", needs: "/v1/nodes", isWide: true },
  { id: "history", group: "past", file: "past", key: "h", needs: "/v1/at", isWide: true },
  { id: "audit", group: "past", file: "past", key: "a", isWide: true },
];
const FILES = new Map(PLACES.flatMap(({ id, file, under = [] }) => [id, ...under].map((view) => [view, file])));

const ANONYMOUS = "anonymous";
const app = document.getElementById("app");
const shown = { route: null, view: null, data: undefined, problem: null, at: -1, isMenuOpen: false, controller: null, loadedAt: 0, lacking: "" };
const server = { version: "", prefix: "", alarms: 0, dead: 0, identity: null, features: null };

let identified = null; // who the browser is logged in as: a promise

export const can = (role) => !server.identity?.roles || server.identity.roles.includes(role);

const isLive = () => live.status === "live" && shown.view?.isLive;

// --- drawing: at most once a frame ---

let isDrawing = false;
function update() {
  if (isDrawing) return;
  isDrawing = true;
  requestAnimationFrame(() => {
    isDrawing = false;
    draw();
  });
}

const context = () => ({ route: shown.route, data: shown.data, live, update, reload, can, at: shown.at, server });

function content() {
  if (shown.problem && shown.data === undefined) return problemBox(shown.problem, shown.problem.isFinal ? null : () => open(true));
  if (!shown.view || shown.data === undefined) return loading();
  return shown.view.render(context());
}

const isThere = (each) => !each.needs || !server.features || server.features.has(each.needs);

function isPermitted(each) {
  const who = server.identity;
  if (!who?.roles?.length) return true; // nobody yet: the page asks for a token
  return who.roles.includes("read") && !(each.isWide && who.functions.length);
}

const isOffered = (each) => isThere(each) && isPermitted(each);
// The stream of events has all functions.
const mayWatch = () => isPermitted({ isWide: true }) && server.identity?.roles?.length !== 0;

function place(each) {
  const route = shown.route;
  const isHere = route && (route.view === each.id || each.under?.includes(route.view));
  const count = each.id === "dead" ? server.dead : each.id === "overview" ? server.alarms : 0;
  return html`<a class="place" href=${link(each.id)} aria-current=${isHere ? "page" : nothing}>
    ${texts.views[each.id].name}${count ? html`<span class="badge bad" aria-label=${texts.badges[each.id](count)}>${format.short(count)}</span>` : nothing}</a>`;
}

const liveWord = () => (!mayWatch() ? ["", shown.view?.everySeconds ? texts.live.every(shown.view.everySeconds) : texts.live.idle] : { live: ["on", texts.live.on], lost: ["off", texts.live.lost], connecting: ["", texts.live.connecting] }[live.status] || ["", texts.live.idle]);

function draw() {
  const { route, view } = shown;
  if (!route) return;
  const words = texts.views[route.view] || { name: route.view };
  const title = view?.title ? view.title(route) : words.name;
  document.title = `${title} · Switchgear`;
  const [liveStyle, liveText] = liveWord();
  // What was missing when a live view was opened may have come since.
  const partial = (!isLive() && shown.lacking) || (route.view !== "overview" && live.topics.overview?.alarms?.find((each) => each.code === "incomplete")?.text);
  const group = (id) => {
    const places = PLACES.filter((each) => each.group === id && isOffered(each));
    return places.length ? html`<h2>${texts.groups[id]}</h2>${places.map(place)}` : nothing;
  };
  render(html`
    <a class="skip" href="#content" @click=${(event) => { event.preventDefault(); document.getElementById("content").focus(); }}>${texts.skip}</a>
    <div class="frame" @click=${(event) => { if (event.target.closest("a.place")) shown.isMenuOpen = false; }}>
      <nav class="side ${shown.isMenuOpen ? "open" : ""}" aria-label=${texts.navigation}>
        <a class="brand" href=${link("overview")}><img src=${new URL("icon.svg", import.meta.url).href} alt="">Switchgear</a>
        ${group("now")}${group("work")}${group("server")}${group("past")}
        <div class="side-end">
          ${server.identity && server.identity.identity !== ANONYMOUS ? html`<p>${texts.login.as(server.identity.identity)}</p><p><button class="button small" @click=${logOut}>${texts.login.out}</button></p>` : nothing}
          ${server.version ? html`<p title=${texts.prefixHelp}>${server.prefix}<br>${texts.version(server.version)}</p>` : nothing}
        </div>
      </nav>
      <div class="main">
        <header class="top">
          <button class="button icon menu-button" aria-label=${texts.navigation} aria-expanded=${shown.isMenuOpen} @click=${() => { shown.isMenuOpen = !shown.isMenuOpen; draw(); }}>☰</button>
          <div class="heading"><h1 title=${title}>${title}</h1><span class="question">${words.question}</span></div>
          <span class="live ${liveStyle}" title=${texts.live.help}>${liveText}</span>
          ${can("submit") ? html`<button class="button wide" @click=${() => submitJob()}>${texts.submit.short}</button>` : nothing}
          <button class="button wide" @click=${showPalette}>${texts.palette.short} <kbd>Ctrl K</kbd></button>
          <button class="button icon" aria-label=${texts.theme} title=${texts.theme} @click=${switchTheme}>◐</button>
          <button class="button icon wide" aria-label=${texts.keys.title} title=${texts.keys.title} @click=${showHelp}>?</button>
        </header>
        <main id="content" tabindex="-1">
          ${shown.problem && shown.data !== undefined ? html`<p class="alarm critical" role="alert"><span class="glyph">!</span>${shown.problem.message}</p>` : nothing}
          ${partial ? html`<p class="alarm" role="status"><span class="glyph">!</span>${partial}</p>` : nothing}
          ${content()}
        </main>
      </div>
    </div>
    <div id="announcer" class="hidden-text" role="status" aria-live="polite"></div>
    ${toastList()}`, app);
  view?.drawn?.(context());
}

function switchTheme() {
  const root = document.documentElement;
  const isDark = getComputedStyle(root).colorScheme === "dark" || (!root.dataset.theme && matchMedia("(prefers-color-scheme: dark)").matches);
  root.dataset.theme = isDark ? "light" : "dark";
  try {
    localStorage.setItem("switchgear.theme", root.dataset.theme);
  } catch {
    // It holds until the page is closed.
  }
  dispatchEvent(new CustomEvent("theme"));
  update();
}

// --- views ---

async function open(isAgain = false) {
  const route = current();
  if (!FILES.has(route.view)) {
    location.replace(link("overview"));
    return;
  }
  server.identity ??= await identified;
  const needed = PLACES.find((each) => each.id === route.view);
  if (route.view === "overview" && !isPermitted(needed)) {
    const first = PLACES.find(isOffered);
    if (first) {
      location.replace(link(first.id));
      return;
    }
  }
  if (needed?.needs) server.features ??= await features();
  const isSamePlace = shown.view && shown.route.view === route.view && shown.route.key === route.key;
  shown.controller?.abort();
  shown.controller = new AbortController();
  shown.route = route;
  shown.problem = null;
  if (needed && !isOffered(needed)) {
    const why = isThere(needed) ? new Problem(403, { code: "not_allowed", detail: texts.problems.notYours(server.identity) }) : new Problem(404, { code: "not_found" });
    watch([], onEvent);
    Object.assign(shown, { view: null, data: undefined, problem: Object.assign(why, { isOfView: true, isFinal: true }) });
    update();
    return;
  }
  if (!isSamePlace || isAgain) {
    shown.view?.closed?.();
    Object.assign(shown, { view: null, data: undefined, at: -1 });
    scrollTo(0, 0);
    update();
    try {
      shown.view = (await import(`./views/${FILES.get(route.view)}.js`)).views[route.view];
    } catch {
      shown.problem = new Problem(0, { detail: texts.problems.newVersion });
      update();
      return;
    }
    if (shown.route !== route) return;
    shown.view.opened?.(context());
    watch(mayWatch() ? ["overview", ...(shown.view.topics?.(route) || [])] : [], onEvent);
  }
  shown.at = -1;
  await load();
}

async function load() {
  const { route, view, controller } = shown;
  if (!view) return;
  Object.assign(lacking, { nodes: "", partitions: 0 });
  try {
    const data = view.load ? await view.load(route, controller.signal, shown.data, live) : null;
    if (shown.route !== route) return;
    shown.data = data;
    shown.problem = null;
  } catch (problem) {
    if (problem.name === "AbortError" || shown.route !== route) return;
    if (!(problem instanceof Problem)) throw problem;
    problem.isOfView = !route.key;
    shown.problem = problem;
  } finally {
    shown.loadedAt = Date.now();
    if (shown.route === route) shown.lacking = lacking.nodes || lacking.partitions ? texts.problems.lacking(lacking) : "";
  }
  update();
}

function reload() {
  return load();
}

function onEvent(topic, kind, data, at) {
  if (topic === "overview") {
    const known = live.topics.overview;
    server.alarms = known.alarms?.length || 0;
    server.dead = known.counts?.dead || 0;
    announceRates(known);
  }
  shown.view?.event?.(context(), topic, kind, data, at);
  update();
}

// Screen readers hear of the state now and then, not of every tick.
let announcedAt = 0;
function announceRates(overview) {
  if (Date.now() - announcedAt < 10000 || shown.route?.view !== "overview") return;
  const announcer = document.getElementById("announcer");
  if (!announcer) return;
  announcedAt = Date.now();
  const text = texts.overview.announcement(overview);
  if (announcer.textContent !== text) announcer.textContent = text;
}

// Views without live topics, and all views without a live connection, are loaded again from time to time.
setInterval(() => {
  if (document.hidden || !shown.view?.everySeconds || document.querySelector("dialog")) return;
  if (!isLive() && Date.now() - shown.loadedAt > shown.view.everySeconds * 1000) load();
}, 1000);

async function start() {
  onToasts(update);
  addEventListener("hashchange", () => open());
  addEventListener("changed", () => reload());
  addEventListener("login-needed", async () => { if (await logIn()) location.reload(); });
  startKeyboard({ move, choose, follow, places: () => PLACES.filter(isOffered), can });
  await logInByLink();
  identified = get("v1/session").catch(() => null);
  open();
  server.features = await features();
  const [figures, identity] = await Promise.all([optional("v1/server").catch(() => null), identified]);
  if (figures) Object.assign(server, { version: figures.version, prefix: figures.handle_prefix.replace(/^H:|:$/g, "") });
  server.identity = identity;
  if (identity && !identity.roles.length) dispatchEvent(new CustomEvent("login-needed"));
  update();
}

// `switchgear dashboard` opens the page with #code=…; the login code is swapped for a cookie and leaves the address.
async function logInByLink() {
  const found = /^#code=(.+)$/.exec(location.hash);
  if (!found) return;
  history.replaceState(null, "", link("overview"));
  await logIn(decodeURIComponent(found[1]));
}

// --- rows by keyboard ---

function rows() {
  return [...document.querySelectorAll("main tbody tr[data-row]")];
}

function move(step) {
  const all = rows();
  if (!all.length) return;
  shown.at = Math.max(0, Math.min(all.length - 1, shown.at + step));
  update();
  all[shown.at].scrollIntoView({ block: "nearest" });
}

function choose() {
  rows()[shown.at]?.querySelector("input[type=checkbox]")?.click();
}

function follow() {
  const target = rows()[shown.at]?.dataset.href;
  if (target) location.hash = target;
}

start();
