// A server without any job teaches the next command; each view has something to say to nothing at all.

import { AxeBuilder } from "@axe-core/playwright";
import { launch, openPage, show, views } from "./browser.mjs";

const [, , base, folder] = process.argv;
const problems = [];
const browser = await launch();
const page = await openPage(await browser.newContext({ viewport: { width: 1280, height: 860 } }), problems);
await show(page, base, "overview");
await page.waitForSelector("text=waits for its first job");
await page.waitForSelector("text=echo hello | switchgear submit shout");
if (folder) await page.screenshot({ path: `${folder}/first-run-light.png` });
await page.waitForFunction(() => document.querySelectorAll("nav a.place").length > 8);
for (const place of await views(page)) {
  await show(page, base, place);
  const found = await new AxeBuilder({ page }).analyze();
  for (const each of found.violations) problems.push(`axe: ${place}: ${each.id}: ${each.nodes[0].html.slice(0, 200)}`);
}
// A job that comes is seen without loading the page again.
await show(page, base, "overview");
await fetch(new URL("v1/jobs", base), { method: "POST", body: '{"function": "first"}', headers: { "Content-Type": "application/json" } });
await page.waitForSelector("main a[href='#/function/first']");
await browser.close();
console.log(JSON.stringify({ problems }));
