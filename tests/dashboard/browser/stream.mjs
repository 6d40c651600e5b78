// The task stream: paused, moved into the past by the job log, zoomed from a day to a millisecond, ten thousand workers.

import { check, isLive, launch, openPage, show } from "./browser.mjs";

const [, , base] = process.argv;
const problems = [];
const browser = await launch();
const context = await browser.newContext({ viewport: { width: 1280, height: 860 } });
const page = await openPage(context, problems);
const windowOf = (each) => each.evaluate(() => document.querySelector("task-stream").window);
const button = (name) => page.getByRole("button", { name, exact: true });

// --- what was before somebody looked comes from the job log, into the lanes of the same workers ---
const asked = page.waitForResponse((answer) => /v1\/runs/.test(answer.url()) && answer.ok());
await show(page, base, "stream");
await isLive(page);
const { searchParams } = new URL((await asked).url());
check(Number(searchParams.get("until")) - Number(searchParams.get("since")) >= 29, `${searchParams}`);
const joined = await page.evaluate(async () => {
  const { Lanes } = await import(`${document.querySelector("link[rel=stylesheet]").href.replace("style.css", "")}lanes.js`);
  const lanes = new Lanes();
  const now = Date.now() / 1000;
  const live = { sampled: false, dropped: 0, running: [], functions: ["f"], recording_since: now };
  lanes.take({ ...live, at: now, workers: { 7: { name: "ann", protocol: "gearman" } }, rows: [[7, 0, "H:x:5", now - 1, now + 1, "done"]] });
  const worker = (name) => ({ name, protocol: "gearman" });
  lanes.addPast({ every: 1, functions: ["g"], workers: [worker("ann"), worker("bob"), worker("")], rows: [
    [0, 0, "H:x:1", now - 9, now - 8, "done"], [1, 0, "H:x:2", now - 7, now - 6, "failed"], [0, 0, "H:x:5", now - 1, now + 1, "done"], [2, 0, "H:x:3", now - 5, now - 4, "done"],
  ] }, now);
  lanes.take({ ...live, at: now + 2, workers: { 8: { name: "bob", protocol: "gearman" }, 9: { name: "bob", protocol: "gearman" } }, rows: [[8, 0, "H:x:6", now + 1, now + 2, "done"], [9, 0, "H:x:7", now + 1, now + 2, "done"]] });
  const all = lanes.shown(null).lanes.map((lane) => [lane.name, lane.rows.map((row) => row.job).join()]);
  const lately = lanes.shown(null, now + 1.5).lanes.map((lane) => lane.name).join();
  for (let first = 100; first < 10100; first += 1000) { // takers of single jobs
    const ids = Array.from({ length: 1000 }, (_, index) => first + index);
    lanes.take({ ...live, at: now + 3, workers: Object.fromEntries(ids.map((id) => [id, { name: "", protocol: "http" }])), rows: ids.map((id) => [id, 0, `H:x:${id}`, now + 2, now + 3 + id / 1e6, "done"]) });
  }
  return { all, lately, shared: lanes.shared.size, taken: lanes.shown(null).lanes.map((lane) => lane.rows.length).sort((a, b) => b - a) };
});
check(joined.lately === "bob,bob", `${joined.lately} did something lately`);
check(joined.shared <= 4096 && joined.taken.length === 5 && joined.taken[0] === 10000, JSON.stringify(joined));
check(JSON.stringify(joined.all) === '[["ann","H:x:1,H:x:5"],["bob","H:x:7"],["bob","H:x:2,H:x:6"],["unnamed","H:x:3"]]', JSON.stringify(joined.all));

// --- pause, and go back beyond what was watched ---
await page.waitForSelector(".legend a[href='#/function/image.resize']");
await button("Pause").click();
const paused = await windowOf(page);
check(paused.isStill && paused.seconds === 30, JSON.stringify(paused));
await page.focus("task-stream canvas");
for (const key of ["+", "+"]) await page.keyboard.press(key);
// The server may have recorded for others before, so that one step is not enough.
for (let steps = 0; steps < 2 || (steps < 100 && !(await page.getByText("From the job log").count())); steps += 1) {
  const answered = page.waitForResponse(/v1\/runs/, { timeout: 300 }).catch(() => null);
  await page.keyboard.press("ArrowLeft");
  await answered;
}
await page.waitForSelector("text=From the job log");
const moved = await windowOf(page);
check(moved.end < paused.end - 1, `${moved.end} is not before ${paused.end}`);
await page.click("summary");
await page.waitForSelector("main tbody a[href^='#/job/']");

// --- the window is in the address ---
await page.waitForFunction(() => location.hash.includes("at="));
const other = await openPage(context, problems);
await other.goto(page.url());
await other.waitForFunction(() => document.querySelector("task-stream")?.window.isStill);
check(Math.abs((await windowOf(other)).end - moved.end) < 0.001, "a link leads to the same window");
await other.waitForSelector("text=From the job log");
await other.close();

// --- from a day to a millisecond ---
for (const [name, seconds] of [["1 d", 86400], ["1 ms", 0.001], ["1 h", 3600]]) {
  await page.getByRole("link", { name, exact: true }).click();
  await page.waitForFunction((wanted) => document.querySelector("task-stream").window.seconds === wanted, seconds);
  await page.waitForSelector(`.paging:has-text("${name} wide")`);
}
await page.keyboard.press("Escape");
await page.focus("task-stream canvas");
for (let times = 0; times < 30; times += 1) await page.keyboard.press("+");
check((await windowOf(page)).seconds === 0.001, "there is a narrowest window");
for (let times = 0; times < 40; times += 1) await page.keyboard.press("-");
check((await windowOf(page)).seconds === 86400, "there is a widest window");
await page.keyboard.press("Home");
check(!(await windowOf(page)).isStill, "it follows the present again");
const moment = await page.evaluate(() => new Date(Date.now() - new Date().getTimezoneOffset() * 60000 - 60000).toISOString().slice(0, 19));
await page.fill("input[type=datetime-local]", moment);
await page.waitForFunction(() => document.querySelector("task-stream").window.isStill);

// --- a server without a job log says so ---
await page.route("**/v1/runs?*", (route) => route.fulfill({ json: { since: 0, until: 1, stored: false, every: 1, functions: [], workers: [], columns: [], rows: [] } }));
await page.goto("about:blank");
await show(page, base, "stream?span=3600");
await page.waitForSelector("text=the server has no job log");

// --- ten thousand workers, and as many rows as are kept ---
const many = await page.evaluate(async () => {
  const folder = document.querySelector("link[rel=stylesheet]").href.replace("style.css", "");
  const { Lanes } = await import(`${folder}lanes.js`);
  const lanes = new Lanes();
  const now = Date.now() / 1000;
  const workers = Object.fromEntries(Array.from({ length: 10000 }, (_, id) => [id, { name: `host-${id}`, protocol: "gearman" }]));
  for (let tick = 0; tick < 150; tick += 1) {
    const end = now - 30 + tick / 5;
    const rows = Array.from({ length: 1000 }, (_, index) => {
      const worker = (tick * 7919 + index * 13) % 10000;
      return [worker, worker % 3, `H:x:${tick}${index}`, end - 1, end + index / 5000, index % 50 ? "done" : "failed"];
    });
    lanes.take({ at: end, recording_since: now - 60, sampled: false, dropped: 0, functions: ["a", "b", "c"], workers: tick ? {} : workers, rows, running: [], running_count: 0 });
  }
  const made = document.createElement("task-stream");
  document.body.append(made);
  made.id = "many";
  made.model = lanes;
  let frames = 0;
  const begun = performance.now();
  await new Promise((done) => {
    const count = () => { frames += 1; lanes.revision += 1; if (performance.now() - begun > 2000) done(); else requestAnimationFrame(count); };
    requestAnimationFrame(count);
  });
  const { lanes: shown, all, isHeat } = lanes.shown(made.only);
  return { shown: shown.length, all, isHeat, count: lanes.count, perSecond: frames / ((performance.now() - begun) / 1000), height: made.clientHeight };
});
check(many.isHeat && many.all === 10000 && many.shown <= 64, JSON.stringify(many));
check(many.count <= 65536, `${many.count} rows are kept`);
check(many.height < 1500, `the picture is ${many.height} pixels high`);
const canvas = page.locator("#many canvas");
await canvas.hover({ position: { x: 600, y: 200 } });
await page.waitForSelector("#many .tip:has-text('% busy, mostly')");
await canvas.click({ position: { x: 600, y: 200 } });
const members = await page.evaluate(() => document.querySelector("#many").only);
check(members?.length === 2, "a click leads to the workers of a group");
await browser.close();
console.log(JSON.stringify({ problems, many }));
