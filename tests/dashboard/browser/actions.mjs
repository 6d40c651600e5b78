// What people do: submit, cancel, pause, limits, retry, schedules, bulk with preview, typed count and undo.

import { check, launch, openPage, ready, show } from "./browser.mjs";

const [, , base] = process.argv;
const problems = [];
const browser = await launch();
const page = await openPage(await browser.newContext({ viewport: { width: 1280, height: 860 } }), problems);
const ask = (path) => fetch(new URL(path, base)).then((answer) => answer.json());
const told = (text) => page.waitForFunction((wanted) => [...document.querySelectorAll(".toast")].some((toast) => toast.textContent.includes(wanted)), text);

// A job for a try, from the keyboard.
await show(page, base, "overview");
await page.keyboard.press("n");
await page.fill("dialog input[name=function]", "by.hand");
await page.fill("dialog textarea", '{"from": "the dashboard", "list": [1, 2, {"deep": null}]}');
await page.click("dialog button.first");
await told("Submitted:");
const handle = (await ask("v1/jobs?function=by.hand")).jobs[0].handle;

// Its page says why it waits; the payload is a tree, a text and bytes; then it is cancelled and retried.
await show(page, base, `job/${encodeURIComponent(handle)}`);
await page.waitForSelector("text=no worker that can do");
await page.waitForSelector(".tree >> text=deep");
await page.click("role=tab[name=Hex]");
await page.waitForSelector("pre >> text=7b 22 66");
await page.click("main button:text-is('Cancel')");
await page.click("dialog button.first");
await page.waitForSelector("main .state.cancelled");
await page.click("main .actions button:text-is('Retry')");
await page.waitForSelector("main .state.ready");

// Pause, resume, limits.
await show(page, base, "function/by.hand");
await page.click("main button:text-is('Pause')");
await page.click("main button:text-is('Resume')");
await page.waitForSelector("main button:text-is('Pause')");
await page.click("main button:text-is('Change limits')");
await page.fill("dialog input[name=concurrency]", "3");
await page.fill("dialog input[name=rate]", "ten a second");
await page.click("dialog button.first");
await page.waitForSelector("dialog [role=alert]");
await page.fill("dialog input[name=rate]", "10/s");
await page.click("dialog button.first");
await told("The limits of by.hand are set");
const policy = (await ask("v1/functions/by.hand")).policy;
check(policy.concurrency === 3 && policy.rate[0] === 10, `limits: ${JSON.stringify(policy)}`);

// Schedules.
await show(page, base, "schedules?filter=nightly");
await page.click("tbody button:text-is('Run now')");
await told("nightly-report has run");
await page.click("tbody button:text-is('Pause')");
await page.click("tbody button:text-is('Resume')");
await page.waitForSelector("tbody button:text-is('Pause')");
const schedule = await ask("v1/schedules/nightly-report");
check(schedule.spec === "0 3 * * *" && schedule.timezone === "Europe/Berlin" && !schedule.paused, JSON.stringify(schedule));

// Some jobs are selected and cancelled, and that is thought better of.
await show(page, base, "jobs?function=report.build&state=ready");
await page.click("tbody tr:nth-child(1) input");
await page.click("tbody tr:nth-child(2) input");
await page.click("main button:text-is('Cancel')");
await page.waitForSelector("dialog >> text=Cancel 2 jobs?");
await page.click("dialog button.first");
await told("will be cancelled");
await page.click(".toast button:text-is('Undo')");
await told("Nothing was changed");

// More than a thousand need their number to be typed.
const lines = Array.from({ length: 1001 }, () => '{"function": "many.jobs"}').join("\n");
await fetch(new URL("v1/jobs/batch", base), { method: "POST", body: lines, headers: { "Content-Type": "application/x-ndjson" } });
await show(page, base, "jobs?function=many.jobs&state=ready");
await page.click("main button:text-is('Cancel all that fit …')");
await page.waitForSelector("dialog >> text=Cancel 1,001 jobs?");
await page.fill("dialog input[name=count]", "7");
await page.click("dialog button.first");
check(await page.isVisible("dialog"), "a wrong number was accepted");
await page.fill("dialog input[name=count]", "1,001");
await page.click("dialog button.first");
await told("1,001 of 1,001 jobs cancelled");
check((await ask("v1/functions/many.jobs")).cancelled === 1001, "not all jobs were cancelled");
await show(page, base, "audit");
await page.waitForSelector("tbody >> text=1,001 / 1,001");

// Older entries of the audit are on the next page.
for (let times = 0; times < 110; times += 1) {
  const change = { method: "PATCH", body: JSON.stringify({ paused: times % 2 === 0 }), headers: { "Content-Type": "application/json" } };
  check((await fetch(new URL("v1/functions/many.jobs", base), change)).ok, "a function is paused");
}
await show(page, base, "audit");
const newest = await page.textContent("section:last-of-type tbody tr:first-child");
await page.click("a[rel=next]");
await page.waitForSelector("text=First page");
await page.waitForFunction((text) => document.querySelector("section:last-of-type tbody tr:first-child")?.textContent !== text, newest);
check(new URL(page.url()).hash.includes("cursor="), "the page is in the address");
await page.click("text=First page");
await page.waitForFunction(() => !location.hash.includes("cursor="));

await browser.close();
console.log(JSON.stringify({ problems }));
