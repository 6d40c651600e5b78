// The task stream beside very many jobs: what the page's heap and its frames do.  bench/dashboard_soak.py runs it.
//
//   node soak.mjs URL MINUTES

import { launch, openPage, show } from "./browser.mjs";

const [, , base, minutes] = process.argv;
const EVERY_SECONDS = 15;
const problems = [];
const browser = await launch();
const page = await openPage(await browser.newContext({ viewport: { width: 1280, height: 860 } }), problems);
const inspector = await page.context().newCDPSession(page);
await show(page, base, "stream?span=60");
await page.evaluate(() => {
  globalThis.frames_ = 0;
  const count = () => { globalThis.frames_ += 1; requestAnimationFrame(count); };
  requestAnimationFrame(count);
});
const done = async () => (await fetch(new URL("v1/overview", base)).then((answer) => answer.json())).counts.done;
const begun = Date.now();
const readings = [];
let before = { at: Date.now(), frames: 0, done: await done() };
while (Date.now() - begun < minutes * 60000) {
  await page.waitForTimeout(Math.min(EVERY_SECONDS * 1000, begun + minutes * 60000 - Date.now() + 50));
  const now = { at: Date.now(), frames: await page.evaluate(() => globalThis.frames_), done: await done() };
  await inspector.send("HeapProfiler.collectGarbage");
  const { usedSize } = await inspector.send("Runtime.getHeapUsage");
  const passed = (now.at - before.at) / 1000;
  const reading = { seconds: (now.at - begun) / 1000, heap: usedSize / 1e6, frames: (now.frames - before.frames) / passed, jobs: (now.done - before.done) / passed };
  readings.push(reading);
  console.log(JSON.stringify(reading));
  before = now;
}
const first = readings.find((each) => each.seconds >= 60) || readings[0];
console.log(JSON.stringify({ growth: readings.at(-1).heap - first.heap, least: Math.min(...readings.map((each) => each.frames)), problems: problems.length }));
await browser.close();
