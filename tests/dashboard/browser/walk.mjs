// Every view, light and dark, wide and narrow: no errors, no barriers, nothing wider than the screen.
//
//   node walk.mjs URL SCHEME WIDTH [FOLDER]      screenshots go to the folder

import { AxeBuilder } from "@axe-core/playwright";
import { launch, openPage, ready, show, views } from "./browser.mjs";

const [, , base, scheme, widthText, folder] = process.argv;
const width = Number(widthText);
const problems = [];
const browser = await launch();
const context = await browser.newContext({ viewport: { width, height: width < 500 ? 844 : 860 }, colorScheme: scheme, reducedMotion: "reduce" });
const page = await openPage(context, problems);

async function visit(route, name) {
  await show(page, base, route);
  if (folder) {
    await page.waitForTimeout(2500); // so that there is a curve to be seen
    await page.screenshot({ path: `${folder}/${name}-${scheme}${width < 500 ? "-narrow" : ""}.png` });
  }
  const wide = await page.evaluate(() => document.documentElement.scrollWidth - innerWidth);
  if (wide > 0) problems.push(`${route} is ${wide} pixels too wide`);
  const found = await new AxeBuilder({ page }).analyze();
  for (const each of found.violations) {
    problems.push(`axe: ${route}: ${each.id}: ${each.help}: ${each.nodes.slice(0, 3).map((node) => `${node.html.slice(0, 200)} ${node.failureSummary?.split("\n").slice(1, 2)}`).join(" | ")}`);
  }
}

await show(page, base, "overview");
await page.waitForFunction(() => document.querySelectorAll("nav a.place").length > 8);
const places = await views(page);
for (const place of places) await visit(place, place);
// The matrix of protocols has its cells below the headings of their columns.
await show(page, base, "flows");
await page.waitForSelector(".matrix");
const columns = (selector) => page.$$eval(selector, (cells) => cells.map((cell) => Math.round(cell.getBoundingClientRect().left)));
if (String(await columns(".matrix thead th")) !== String(await columns(".matrix tbody tr:first-child > *"))) problems.push("the cells of the matrix are not below their headings");
await show(page, base, "jobs?state=failed");
const job = await page.getAttribute("tbody a[href^='#/job/']", "href");
await visit(job.slice(2), "job");
await visit("function/image.resize", "function");
const handle = await fetch(new URL("v1/jobs?function=etl.load&limit=1", base)).then((answer) => answer.json());
await visit(`graph?handle=${encodeURIComponent(handle.jobs[0].handle)}`, "graph-around");
const drawn = await page.$$eval("svg.graph .node", (nodes) => nodes.length);
if (drawn < 5 || page.workers().length !== 1) problems.push(`${drawn} nodes were drawn, by ${page.workers().length} workers`);
await visit("jobs?function=no-such-function&state=failed", "jobs-empty");
await ready(page);
if (folder) {
  // What shows the passing of time is looked at again, when some has passed.
  for (const [route, milliseconds] of [["stream", 14000], ["overview", 4000]]) {
    await show(page, base, route);
    await page.waitForTimeout(milliseconds);
    await page.screenshot({ path: `${folder}/${route}-${scheme}${width < 500 ? "-narrow" : ""}.png` });
  }
}
await browser.close();
console.log(JSON.stringify({ places, problems }));
