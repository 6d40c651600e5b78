// What people do: dialogs that ask, toasts that tell, bulk actions with a time to think again.

import { html, nothing, jobLink, state, command } from "./parts.js";
import { render } from "./vendor/lit-html.js";
import { texts } from "./texts.js";
import { link } from "./router.js";
import * as format from "./format.js";
import { address, get, post, patch, remove } from "./api.js";
import { tellTabs } from "./live.js";

const UNDO_SECONDS = 8;
const TYPED_FROM = 1000;
const TOAST_SECONDS = 6;

// --- toasts ---

const toasts = new Map();
let nextToast = 1;
let changed = () => {};

export const onToasts = (call) => { changed = call; };

export function toast(content, { bad = false, seconds = bad ? 12 : TOAST_SECONDS, action } = {}) {
  const id = nextToast++;
  toasts.set(id, { content, bad, action });
  if (seconds) setTimeout(() => drop(id), seconds * 1000);
  changed();
  return { set: (text) => { if (toasts.has(id)) { toasts.get(id).content = text; changed(); } }, close: () => drop(id) };
}

function drop(id) {
  toasts.delete(id);
  changed();
}

export const toastList = () => html`
  <div class="toasts" role="status" aria-live="polite">
    ${[...toasts].map(([id, each]) => html`
      <div class="toast ${each.bad ? "bad" : ""}">
        <p>${each.content}</p>
        ${each.action ? html`<button class="button small" @click=${() => { drop(id); each.action.run(); }}>${each.action.text}</button>` : nothing}
        <button class="button small icon" aria-label=${texts.actions.close} @click=${() => drop(id)}>✕</button>
      </div>`)}
  </div>`;

addEventListener("toast", (event) => toast(event.detail.text, event.detail));

export const failed = (problem) => {
  if (problem.name !== "AbortError") toast(problem.message, { bad: true });
};

// Run something that changes the server, and tell how it went.
export async function act(work, done) {
  try {
    const answer = await work();
    if (done) toast(typeof done === "function" ? done(answer) : done);
    dispatchEvent(new CustomEvent("changed"));
    return answer;
  } catch (problem) {
    failed(problem);
    return undefined;
  }
}

// --- dialogs ---

// Show a dialog; `content(close)` is its markup.  The promise is of what `close` is called with.
export function ask(content, { style = "", label } = {}) {
  return new Promise((resolve) => {
    const dialog = document.createElement("dialog");
    dialog.className = style;
    if (label) dialog.setAttribute("aria-label", label);
    const close = (value) => { dialog.returned = value; dialog.close(); };
    const draw = () => render(content(close, draw), dialog);
    dialog.addEventListener("close", () => { dialog.remove(); resolve(dialog.returned); });
    dialog.addEventListener("click", (event) => { if (event.target === dialog) dialog.close(); });
    document.body.append(dialog);
    draw();
    dialog.showModal();
    dialog.querySelector("[autofocus]")?.focus();
  });
}

export const confirm = ({ title, text, button, danger = true }) =>
  ask((close) => html`
    <form @submit=${(event) => { event.preventDefault(); close(true); }}>
      <h2>${title}</h2>
      <p>${text}</p>
      <div class="actions">
        <button type="button" class="button" @click=${() => close(false)}>${texts.actions.keep}</button>
        <button autofocus class="button first ${danger ? "danger" : ""}">${button}</button>
      </div>
    </form>`, { label: title });

// --- one job ---

export async function cancelJob(handle) {
  const sure = await confirm({ title: texts.cancel.title(handle), text: texts.cancel.text, button: texts.cancel.button });
  if (sure) await act(() => remove(`v1/jobs/${encodeURIComponent(handle)}`), texts.cancel.done(handle));
}

export const retryJob = (handle) => act(() => post(`v1/jobs/${encodeURIComponent(handle)}/retry`), texts.retry.done(handle));

// --- functions ---

export const pauseFunction = (name, isPaused) =>
  act(() => patch(`v1/functions/${format.inPath(name)}`, { paused: isPaused }),
    isPaused ? texts.functions.pausedNow(format.plain(name)) : texts.functions.resumedNow(format.plain(name)));

const rateText = (rate) => (rate ? (rate[1] === 1 ? `${rate[0]}/s` : `${rate[0]}/${rate[1]}s`) : "");

export function readRate(text) {
  if (!text.trim()) return null;
  const found = /^\s*(\d+)\s*\/\s*(\d*\.?\d*)\s*(s|min|m|h)?\s*$/.exec(text);
  if (!found) throw new Error(texts.limits.badRate);
  const unit = { s: 1, min: 60, m: 60, h: 3600 }[found[3] || "s"];
  return [Number(found[1]), (found[2] ? Number(found[2]) : 1) * unit];
}

export async function changeLimits(name, policy) {
  const now = policy || { concurrency: 0, rate: null, key_concurrency: 0, key_rate: null, fair: false };
  let wrong = "";
  const change = await ask((close, draw) => {
    const submit = (event) => {
      event.preventDefault();
      const form = new FormData(event.target);
      try {
        close({
          concurrency: Number(form.get("concurrency") || 0), rate: readRate(form.get("rate")),
          key_concurrency: Number(form.get("key_concurrency") || 0), key_rate: readRate(form.get("key_rate")), fair: form.has("fair"),
        });
      } catch (error) {
        wrong = error.message;
        draw();
      }
    };
    const field = (key, value, kind) => html`
      <label class="field">${texts.limits.fields[key]}<input autofocus name=${key} type=${kind} min="0" value=${value || ""} placeholder=${texts.limits.any}></label>`;
    return html`
      <form @submit=${submit}>
        <h2>${texts.limits.title(format.plain(name))}</h2>
        <div class="columns">
          ${field("concurrency", now.concurrency, "number")}${field("rate", rateText(now.rate), "text")}
          ${field("key_concurrency", now.key_concurrency, "number")}${field("key_rate", rateText(now.key_rate), "text")}
        </div>
        <label><input type="checkbox" name="fair" ?checked=${now.fair}> ${texts.limits.fair}</label>
        <p class="small muted">${texts.limits.rateHelp}</p>
        ${wrong ? html`<p class="bad" role="alert">${wrong}</p>` : nothing}
        <div class="actions">
          <button type="button" class="button" @click=${() => close()}>${texts.actions.keep}</button>
          <button class="button first">${texts.limits.button}</button>
        </div>
      </form>`;
  }, { label: texts.limits.title(format.plain(name)) });
  if (change) await act(() => patch(`v1/functions/${format.inPath(name)}`, change), texts.limits.done(format.plain(name)));
}

// --- a job for a try ---

export async function submitJob(given = {}) {
  let wrong = "";
  let isBusy = false;
  const created = await ask((close, draw) => {
    const submit = async (event) => {
      event.preventDefault();
      const form = new FormData(event.target);
      const body = { function: form.get("function"), payload: form.get("payload"), priority: form.get("priority") };
      if (form.get("delay")) body.run_at = format.now() + Number(form.get("delay"));
      isBusy = true;
      draw();
      try {
        close(await post("v1/jobs", body));
      } catch (problem) {
        wrong = problem.message;
        isBusy = false;
        draw();
      }
    };
    return html`
      <form @submit=${submit}>
        <h2>${texts.submit.title}</h2>
        <label class="field">${texts.submit.function}<input name="function" type="text" required autofocus value=${given.function || ""} maxlength="512"></label>
        <label class="field">${texts.submit.payload}<textarea name="payload">${given.payload || ""}</textarea></label>
        <div class="columns">
          <label class="field">${texts.submit.priority}
            <select name="priority">${["normal", "high", "low"].map((word) => html`<option value=${word}>${texts.priorities[word]}</option>`)}</select></label>
          <label class="field">${texts.submit.delay}<input name="delay" type="number" min="0" placeholder="0"></label>
        </div>
        ${wrong ? html`<p class="bad" role="alert">${wrong}</p>` : nothing}
        <div class="actions">
          <button type="button" class="button" @click=${() => close()}>${texts.actions.keep}</button>
          <button class="button first" ?disabled=${isBusy}>${texts.submit.button}</button>
        </div>
      </form>`;
  }, { label: texts.submit.title });
  if (!created) return;
  toast(html`${created.joined ? texts.submit.joined : texts.submit.done} ${jobLink(created.handle)}`);
  dispatchEvent(new CustomEvent("changed"));
}

// --- many jobs ---

// selection is {filter} or {handles}.  Preview, confirm (typed above a thousand), eight seconds to think again, progress.
export async function bulk(action, selection) {
  let preview;
  try {
    preview = await post("v1/bulk", { action, ...selection, dry_run: true });
  } catch (problem) {
    failed(problem);
    return;
  }
  if (!preview.matched) {
    toast(texts.bulk.nothing);
    return;
  }
  const isTyped = preview.matched > TYPED_FROM;
  const sure = await ask((close) => html`
    <form @submit=${(event) => {
      event.preventDefault();
      const typed = new FormData(event.target).get("count");
      if (!isTyped || Number(String(typed).replace(/\D/g, "")) === preview.matched) close(true);
      else event.target.querySelector("input").focus();
    }}>
      <h2>${texts.bulk.title(action, preview.matched)}</h2>
      <p>${texts.bulk.text(action)}</p>
      <ul class="small">${(preview.examples || []).slice(0, 10).map((each) =>
        html`<li>${typeof each === "string" ? jobLink(each) : html`${jobLink(each.handle)} ${state(each.state)} ${format.plain(each.function)}`}</li>`)}</ul>
      ${isTyped ? html`<label class="field">${texts.bulk.type(format.count(preview.matched))}
        <input name="count" type="text" inputmode="numeric" autocomplete="off" autofocus required></label>` : nothing}
      <div class="actions">
        <button type="button" class="button" @click=${() => close(false)}>${texts.actions.keep}</button>
        <button ?autofocus=${!isTyped} class="button first danger">${texts.bulk.button(action, preview.matched)}</button>
      </div>
    </form>`, { label: texts.bulk.title(action, preview.matched) });
  if (!sure) return;
  if (await thoughtAgain(texts.bulk.soon(action, preview.matched))) return;
  try {
    follow(action, await post("v1/bulk", { action, ...selection, expect: preview.matched }));
  } catch (problem) {
    failed(problem);
  }
}

// True if somebody pressed Undo in time: what a bulk action has changed cannot be taken back.
function thoughtAgain(text) {
  return new Promise((resolve) => {
    let left = UNDO_SECONDS;
    const timer = setInterval(() => {
      left -= 1;
      if (left <= 0) finish(false);
      else note.set(`${text} ${texts.bulk.in(left)}`);
    }, 1000);
    const note = toast(`${text} ${texts.bulk.in(left)}`, { seconds: 0, action: { text: texts.actions.undo, run: () => finish(true) } });
    const finish = (answer) => {
      clearInterval(timer);
      note.close();
      if (answer) toast(texts.bulk.undone);
      resolve(answer);
    };
  });
}

async function follow(action, progress) {
  const note = toast(texts.bulk.going(action, 0, progress.matched), { seconds: 0 });
  for (;;) {
    if (isOver(progress)) break;
    note.set(html`${texts.bulk.going(action, progress.handled, progress.matched)}<progress aria-label=${texts.bulk.progress} max=${progress.matched} value=${progress.handled}></progress>`);
    await new Promise((go) => setTimeout(go, 500));
    try {
      progress = await get(`v1/bulk/${progress.id}`);
    } catch (problem) {
      note.close();
      failed(problem);
      return;
    }
  }
  note.close();
  toast(texts.bulk.done(action, progress.changed, progress.matched));
  dispatchEvent(new CustomEvent("changed"));
}

export const isOver = (progress) => progress.state === "done" || progress.state === "aborted";

// --- logging in: a token is swapped for a cookie that scripts cannot read ---

let isAsking = false;

async function swap(token) {
  const answer = await fetch(address("v1/session"), {
    method: "POST", headers: { Authorization: `Bearer ${token}`, Accept: "application/json" },
  });
  if (answer.ok) tellTabs({ type: "identity" });
  return answer.ok;
}

// True if there is a session now.
export async function logIn(token = "") {
  if (token) return swap(token).catch(() => false);
  if (isAsking) return false;
  isAsking = true;
  let isWrong = false;
  const done = await ask((close, draw) => html`
    <form @submit=${async (event) => {
      event.preventDefault();
      const given = new FormData(event.target).get("token");
      if (await swap(given.trim()).catch(() => false)) close(true);
      else { isWrong = true; draw(); }
    }}>
      <h2>${texts.login.title}</h2>
      <label class="field">${texts.login.token}<input name="token" type="password" autocomplete="current-password" required autofocus></label>
      <p class="small muted">${texts.login.help}</p>
      ${isWrong ? html`<p class="bad" role="alert">${texts.login.wrong}</p>` : nothing}
      <div class="actions"><button class="button first">${texts.login.button}</button></div>
    </form>`, { label: texts.login.title });
  isAsking = false;
  return Boolean(done);
}

export async function logOut() {
  try {
    await fetch(address("v1/session"), { method: "DELETE" });
    tellTabs({ type: "identity" });
    location.reload();
  } catch (problem) {
    failed(problem);
  }
}

// --- what to do about a reason: each word of `explain` has its remedies ---

const limitsOf = async (name) => changeLimits(name, (await get(`v1/functions/${format.inPath(name)}`)).policy);

const REMEDIES = {
  paused: (data, job, can) => (can("operate") ? html`<button class="button small first" @click=${() => pauseFunction(job.function, false)}>${texts.functions.resume}</button>` : nothing),
  limit: (data, job, can) => (can("operate") ? html`<button class="button small" @click=${() => limitsOf(job.function)}>${texts.function.changeLimits}</button>` : nothing),
  no_worker: (data, job) => command(`switchgear worker ${quoted(format.plain(job.function))} --exec COMMAND`),
  missing_tag: () => html`<a class="button small" href=${link("workers")}>${texts.remedies.workers}</a>`,
  missing_resource: () => html`<a class="button small" href=${link("workers")}>${texts.remedies.workers}</a>`,
  resources_in_use: (data, job) => html`<a class="button small" href=${link("workers", "", { function: format.plain(job.function) })}>${texts.remedies.workers}</a>`,
  workers_busy: (data, job) => html`<a class="button small" href=${link("workers", "", { function: format.plain(job.function) })}>${texts.remedies.workers}</a>
    <a class="button small" href=${link("jobs", "", { function: format.plain(job.function), state: "running" })}>${texts.remedies.running}</a>`,
  workers_absent: (data, job) => html`<a class="button small" href=${link("workers", "", { function: format.plain(job.function) })}>${texts.remedies.workers}</a>`,
  waiting_for: (data, job, can) => (can("operate") && ["failed", "cancelled", "expired"].includes(data.state) ? html`
    ${data.handle ? html`<button class="button small first" @click=${() => retryJob(data.handle)}>${texts.remedies.retryThat}</button>` : nothing}
    <button class="button small danger" @click=${() => cancelJob(job.handle)}>${texts.remedies.cancelThis}</button>` : nothing),
  stuck: (data, job) => html`<a class="button small" href=${link("graph", "", { function: format.plain(job.function) })}>${texts.job.showGraph}</a>`,
  storage: () => html`<a class="button small" href=${link("storage")}>${texts.views.storage.name}</a>`,
  running: (data) => (data.worker_id ? html`<a class="button small" href=${link("workers", "", { filter: format.plain(data.worker) || String(data.worker_id) })}>${texts.remedies.worker}</a>` : nothing),
  dead: (data, job, can) => (can("operate") ? html`<button class="button small first" @click=${() => retryJob(job.handle)}>${texts.retry.short}</button>` : nothing),
  failed: (data, job, can) => (can("operate") ? html`<button class="button small first" @click=${() => retryJob(job.handle)}>${texts.retry.short}</button>` : nothing),
};

const quoted = (text) => (/^[\w.:/-]+$/.test(text) ? text : `'${text.replaceAll("'", "'\\''")}'`);

// A reason with its remedies.  A job that it names is a link in its text.
export function reasonBox(reason, job, can) {
  const data = reason.data || {};
  const shown = REMEDIES[reason.word]?.(data, job, can) ?? nothing;
  const [before, ...after] = data.handle ? reason.text.split(data.handle) : [reason.text];
  return html`<div class="reason"><p>${before}${after.length ? html`${jobLink(data.handle)}${after.join(data.handle)}` : nothing}</p>
    ${shown === nothing ? nothing : html`<div class="actions">${shown}</div>`}</div>`;
}
