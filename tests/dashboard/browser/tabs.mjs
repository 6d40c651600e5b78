// Seven tabs of one browser are all live over one stream, and hidden ones let go of it.

import { check, isLive, launch, openPage, show } from "./browser.mjs";

const [, , base] = process.argv;
const problems = [];
const browser = await launch();
const context = await browser.newContext();
const streams = async () => (await fetch(new URL("v1/connections?limit=1000", base)).then((answer) => answer.json())).connections;
const pages = [];
let opened = 0;
for (let number = 0; number < 7; number += 1) {
  const page = await openPage(context, problems);
  page.on("request", (request) => { if (request.url().includes("/v1/events")) opened += 1; });
  await show(page, base, number % 2 ? "functions" : "overview");
  await isLive(page);
  pages.push(page);
}
// Each of them follows: what one does, the others show without being loaded again.
await pages[3].evaluate(() => fetch("v1/functions/mail.send", { method: "PATCH", headers: { "Content-Type": "application/json" }, body: '{"paused": true}' }));
for (const page of pages) {
  const text = (await page.evaluate(() => location.hash)).startsWith("#/functions") ? ".tag.warn" : "main a.tag.warn";
  await page.waitForSelector(text);
}
await pages[3].evaluate(() => fetch("v1/functions/mail.send", { method: "PATCH", headers: { "Content-Type": "application/json" }, body: '{"paused": false}' }));

// The tab that leads is closed; another one takes over.
await pages[0].close();
await isLive(pages[1]);
await pages[5].waitForFunction(() => document.querySelector(".live").classList.contains("on"));

// A hidden tab wants nothing; when all are hidden, nobody has a stream.
for (const page of pages.slice(1)) {
  await page.evaluate(() => {
    Object.defineProperty(document, "hidden", { value: true, configurable: true });
    document.dispatchEvent(new Event("visibilitychange"));
  });
}
for (const page of pages.slice(1)) await page.waitForFunction(() => !document.querySelector(".live").classList.contains("on"));
await pages[2].evaluate(() => {
  Object.defineProperty(document, "hidden", { value: false, configurable: true });
  document.dispatchEvent(new Event("visibilitychange"));
});
await isLive(pages[2]);
await browser.close();
console.log(JSON.stringify({ problems, opened }));
