// A token is swapped for a cookie that scripts cannot read.

import { html, nothing } from "./parts.js";
import { texts } from "./texts.js";
import { ask, failed } from "./actions.js";
import { address } from "./api.js";

let isAsking = false;

async function swap(token) {
  const answer = await fetch(address("v1/session"), {
    method: "POST", headers: { "Content-Type": "application/json", Accept: "application/json" }, body: JSON.stringify({ token }),
  });
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
    location.reload();
  } catch (problem) {
    failed(problem);
  }
}
