// What goes wrong around an open page: names that are markup, a server that restarts, a session that ends, a slow network;
// and what browsers do with a page: back and forward, zoom, print.
//
//   node trouble.mjs URL COMMAND GUARDED TOKEN      COMMAND, a list as JSON, starts the server of the URL;
//                                                   GUARDED is another server, which demands identities

import { spawn } from "node:child_process";
import { check, isLive, launch, openPage, ready, show } from "./browser.mjs";

const [, , base, command, guarded, token] = process.argv;
const problems = [];
const browser = await launch();
const context = await browser.newContext({ viewport: { width: 1280, height: 860 } });
const page = await openPage(context, problems);
const pause = (milliseconds) => new Promise((go) => { setTimeout(go, milliseconds); });
let server = null;
async function start() {
  const [program, ...more] = JSON.parse(command);
  server = spawn(program, more, { stdio: "ignore" });
  while (!(await fetch(new URL("readyz", base)).then((answer) => answer.ok, () => false))) await pause(50);
}
const stop = () => new Promise((stopped) => { server.once("exit", stopped); server.kill("SIGKILL"); });
process.on("exit", () => server?.kill("SIGKILL"));
const headers = { "Content-Type": "application/json" };
const submit = async (job) => {
  const answer = await fetch(new URL("v1/jobs", base), { method: "POST", headers, body: JSON.stringify(job) });
  check(answer.ok, `${answer.status} ${await answer.clone().text()}`);
  return (await answer.json()).handle;
};

// --- names ---

await start();
const NAMES = [
  "<img src=x onerror=globalThis.hurt=1>", "\"'><script>globalThis.hurt=1</script>", "${globalThis.hurt=1}", "a/b?c#d%2F&e=f", "\u202Egnp.exe\u202C", "חשבוניות/שליחה", "日本語の仕事",
  "👩‍🚀🏳️‍🌈 rocket", "..", "%", "javascript:alert(1)", "\u001b[31mred", "x".repeat(200), "constructor", "__proto__",
];
const handles = [];
for (const name of NAMES) handles.push(await submit({ function: name, name, unique: name, key: name, payload: name, label: name.slice(0, 50) }));
for (const route of ["overview", "functions", "jobs", "why", "limits", "stream", "graph", "errors", "history"]) {
  await show(page, base, route);
  const wide = await page.evaluate(() => document.documentElement.scrollWidth - innerWidth);
  if (wide > 0) problems.push(`${route} is ${wide} pixels too wide`);
}
await show(page, base, "functions");
await isLive(page);
await page.waitForFunction((count) => document.querySelectorAll("main tbody tr").length === count, NAMES.length);
for (const [index, name] of NAMES.entries()) {
  await show(page, base, "functions?sort=name");
  const link = await page.waitForFunction((wanted) => [...document.querySelectorAll("main tbody a[href^='#/function/']")].find((each) => each.textContent === wanted)?.getAttribute("href"), name);
  const target = await link.jsonValue();
  await page.goto(`${base}${target}`);
  await ready(page);
  check(await page.evaluate(() => document.querySelector("h1").textContent) === name, `the page of ${JSON.stringify(name)} has another name`);
  if (name === "..") { // no URL can have such a segment: browsers take it for the folder above
    await page.waitForSelector("main [role=alert]");
    continue;
  }
  await page.waitForSelector(`main a[href='#/job/${encodeURIComponent(handles[index])}']`, { state: "attached" });
  await page.getByRole("link", { name: "All jobs" }).first().click();
  await page.waitForFunction(() => location.hash.startsWith("#/jobs"));
  await ready(page);
  await page.waitForFunction((handle) => [...document.querySelectorAll("main tbody tr")].map((row) => row.querySelector("a")?.textContent).join() === handle, handles[index]);
  await page.goto(`${base}#/job/${encodeURIComponent(handles[index])}`);
  await page.waitForSelector(".payload");
  check(await page.evaluate((wanted) => document.querySelector("main").textContent.includes(wanted), name), `the job of ${JSON.stringify(name)}`);
}
check(await page.evaluate(() => globalThis.hurt === undefined), "a name was run as a script");

// --- what does not fit: a filter, a schedule; numbers and depths that a browser does not take ---

const long = "x".repeat(200);
const put = await fetch(new URL(`v1/schedules/${long}`, base), { method: "PUT", headers, body: JSON.stringify({ function: long, cron: "*/5 1-23 1,2,3,4,5,6,7,8,9,10,11,12 * 1-5", timezone: "America/Argentina/ComodRivadavia" }) });
check(put.ok, `${put.status}`);
for (const width of [1280, 390]) {
  await page.setViewportSize({ width, height: 860 });
  for (const route of ["schedules", `jobs?function=${long}`]) {
    await show(page, base, route);
    await page.waitForSelector("main tbody tr");
    const wide = await page.evaluate(() => document.documentElement.scrollWidth - innerWidth);
    if (wide > 0) problems.push(`${route} is ${wide} pixels too wide at ${width}`);
  }
}
await fetch(new URL(`v1/schedules/${long}`, base), { method: "DELETE" });
await page.setViewportSize({ width: 1280, height: 860 });
const numbers = await submit({ function: "numbers", payload: '{"id": 12345678901234567890, "most": 1e400, "one": 1.0, "none": null}' });
await page.goto(`${base}#/job/${encodeURIComponent(numbers)}`);
for (const number of ["12345678901234567890", "1e400", "1.0"]) await page.waitForSelector(`.tree .number:text-is("${number}")`);
for (const depth of [500, 50000]) {
  const deep = await submit({ function: "deep", payload: "[".repeat(depth) + "]".repeat(depth) });
  await page.goto(`${base}#/job/${encodeURIComponent(deep)}`);
  await page.waitForSelector(".payload :is(.tree, pre)"); // as text, if it is too deep to be read
}

// --- back and forward: filters and places come back ---

await show(page, base, "overview");
await show(page, base, "jobs");
await page.click("main a.chip:has-text('Ready')");
await page.waitForFunction(() => location.hash.includes("state=ready"));
await page.click("main tbody a[href^='#/job/']");
await page.waitForFunction(() => location.hash.startsWith("#/job/"));
await page.goBack();
await page.waitForSelector("main a.chip.on:has-text('Ready')");
await page.goBack();
await page.waitForFunction(() => !document.querySelector("main a.chip.on"));
await page.goBack();
await page.waitForSelector(".tiles");
await page.goForward();
await page.waitForSelector("main form[role=search]");

// --- zoom: a browser at 200 and 400 per cent has half and a quarter of the width ---

for (const width of [640, 320]) {
  await page.setViewportSize({ width, height: 430 });
  for (const route of ["overview", "jobs", "functions", "stream", `job/${encodeURIComponent(handles[12])}`, "flows", "audit"]) {
    await show(page, base, route);
    const wide = await page.evaluate(() => document.documentElement.scrollWidth - innerWidth);
    if (wide > 0) problems.push(`${route} is ${wide} pixels too wide at ${width}`);
  }
}
await page.setViewportSize({ width: 1280, height: 860 });

// --- on paper ---

await show(page, base, "functions");
await page.emulateMedia({ media: "print" });
check(!(await page.isVisible("nav.side")) && !(await page.isVisible("main .button")) && (await page.isVisible("main table")), "the navigation is printed, or the table is not");
await page.pdf();
await page.emulateMedia({ media: null });

// --- a slow network: the old view is not shown under the new title, and an answer that comes late is of no use ---

await page.route(/v1\/workers/, async (route) => { await pause(1500); await route.continue().catch(() => {}); });
await page.evaluate(() => { location.hash = "#/workers?function=nobody"; });
await page.waitForSelector("main [aria-busy]");
await page.evaluate(() => { location.hash = "#/schedules"; });
await page.waitForSelector("main :text('There is no schedule')");
await page.waitForTimeout(2000);
check(await page.isVisible("main :text('There is no schedule')"), "an answer for another view came late, and was shown");
await page.unroute(/v1\/workers/);

// --- one of several servers that share the functions does not answer ---

await page.route(/v1\/schedules/, async (route) => {
  const response = await route.fetch();
  await route.fulfill({ response, headers: { ...response.headers(), "switchgear-unreachable": "bob%20%C3%A9, eve", "switchgear-partitions-without-owner": "21" } });
});
await show(page, base, "schedules");
await page.waitForSelector("main [role=status]:has-text('No answer from: bob é, eve. 21 of 64 partitions have no owner.')");
await page.unroute(/v1\/schedules/);
await page.waitForSelector("main [role=status]", { state: "detached" });

// --- the server restarts ---

await show(page, base, "functions");
await isLive(page);
await stop();
await page.waitForSelector(".live.off");
check(await page.isVisible("main table"), "what was known is gone while the server is away");
await page.evaluate(() => { location.hash = "#/jobs"; });
await page.waitForSelector("main [role=alert]:has-text('does not answer')");
await start();
await page.waitForSelector(".live.on");
await page.waitForSelector("main :text('No job is known')");
await submit({ function: "after the restart" });
await show(page, base, "functions");
await page.waitForSelector("main a:has-text('after the restart')");
await show(page, base, "stream");
await isLive(page);

// --- the clock of this computer is an hour wrong, and then it was asleep for a day ---

const late = await openPage(await browser.newContext({ viewport: { width: 1280, height: 860 } }), problems);
await late.addInitScript(() => {
  const Real = Date;
  globalThis.away = 3600000;
  globalThis.Date = class extends Real {
    constructor(...given) { super(...(given.length ? given : [Real.now() + globalThis.away])); }
    static now() { return Real.now() + globalThis.away; }
  };
  const listen = EventSource.prototype.addEventListener;
  EventSource.prototype.addEventListener = function (kind, call) { listen.call(this, kind, (event) => { if (!globalThis.isDeaf) call(event); }); };
});
const fresh = await submit({ function: "just now" });
await show(late, base, "jobs");
await isLive(late);
await late.waitForSelector(`main tr:has(a:text-is("${fresh}")):has-text("s ago"), main tr:has(a:text-is("${fresh}")):has-text("now")`);
const again = late.waitForRequest(/v1\/events/); // the connection that was open would be silent for ever
await late.evaluate(() => { globalThis.away += 86400000; globalThis.isDeaf = true; });
await again;
await late.evaluate(() => { globalThis.isDeaf = false; });
await isLive(late);
await late.close();

// --- the session ends while the page is open ---

const logIn = async () => {
  await page.waitForSelector("dialog input[type=password]");
  await page.fill("dialog input", token);
  await page.keyboard.press("Enter");
  await page.waitForSelector("text=Log out");
};
await page.goto(guarded);
await logIn();
await show(page, guarded, "jobs?state=failed");
await context.clearCookies();
await logIn();
await ready(page);
check(page.url().includes("#/jobs?state=failed"), "after the login another view is shown");
await browser.close();
await stop();
// While the server is away, after the session has ended, and for a name that no URL can have, browsers complain of
// requests that fail; that is the subject.
const isMeant = (each) => /#\/function\/\.\.$|ERR_CONNECTION_REFUSED|ERR_CONNECTION_RESET|ERR_EMPTY_RESPONSE|ERR_INCOMPLETE_CHUNKED|ERR_INVALID_CHUNKED|status of 40[13]/.test(each);
console.log(JSON.stringify({ problems: problems.filter((each) => !isMeant(each)) }));
