// Everything by keyboard: go, filter, rows, select, open, palette, help, theme.

import { check, launch, openPage, ready, show } from "./browser.mjs";

const [, , base] = process.argv;
const problems = [];
const browser = await launch();
const page = await openPage(await browser.newContext({ viewport: { width: 1280, height: 860 } }), problems);
const at = (text) => page.waitForFunction((wanted) => location.hash.startsWith(wanted), text);

await show(page, base, "overview");
await page.keyboard.press("g");
await page.keyboard.press("j");
await at("#/jobs");
await ready(page);

await page.keyboard.press("j");
await page.keyboard.press("j");
await page.waitForSelector("tr.at[data-row='1']");
await page.keyboard.press("k");
await page.waitForSelector("tr.at[data-row='0']");
await page.keyboard.press("x");
await page.waitForSelector("tr.chosen[data-row='0']");
await page.keyboard.press("x");
await page.keyboard.press("Enter");
await at("#/job/");
await ready(page);

await page.keyboard.press("g");
await page.keyboard.press("f");
await at("#/functions");
await ready(page);
await page.waitForSelector("main input[type=search]");
await page.keyboard.press("/");
await page.waitForFunction(() => document.activeElement.type === "search");
await page.keyboard.type("mail.se");
await page.waitForFunction(() => document.querySelectorAll("tbody tr").length === 1);
await page.waitForFunction(() => location.hash.includes("filter=mail.se")); // a moment after the last key
await page.keyboard.press("Escape");

await page.keyboard.press("?");
await page.waitForSelector("dialog[open] kbd");
await page.keyboard.press("Escape");
await page.waitForSelector("dialog", { state: "detached" });

await page.keyboard.press("Control+k");
await page.waitForSelector("dialog.palette[open]");
await page.keyboard.type("video.enc");
await page.waitForFunction(() => document.querySelector(".choices [aria-selected=true]")?.textContent.includes("video.encode"));
await page.keyboard.press("Enter");
await at("#/function/video.encode");
await ready(page);

// By Tab alone: the first stop leads past the navigation.
await show(page, base, "jobs");
await page.evaluate(() => document.activeElement.blur());
await page.keyboard.press("Tab");
check(await page.evaluate(() => document.activeElement.className === "skip"), "the first stop is not the link to the content");
await page.keyboard.press("Enter");
check(await page.evaluate(() => document.activeElement.id === "content"), "the link does not lead to the content");

await browser.close();
console.log(JSON.stringify({ problems }));
