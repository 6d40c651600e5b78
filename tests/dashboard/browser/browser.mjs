// What the scenarios share: the browser, pages that note every error, and waiting for a view to be there.

import { chromium } from "playwright-core";

export const WIDTHS = [1280, 390];
export const SCHEMES = ["light", "dark"];

export async function launch(more = []) {
  const executablePath = process.env.CHROMIUM || "/usr/bin/chromium";
  return chromium.launch({ executablePath, args: ["--no-sandbox", "--disable-dev-shm-usage", ...more] });
}

// A page; `problems` has all that went wrong in it.
export async function openPage(context, problems) {
  const page = await context.newPage();
  page.setDefaultTimeout(90000); // other programs may have the processor
  page.on("console", (message) => {
    if (["error", "warning"].includes(message.type())) problems.push(`console: ${message.text()} (${message.location().url}) at ${page.url()}`);
  });
  page.on("pageerror", (error) => problems.push(`error: ${error.stack} at ${page.url()}`));
  page.on("requestfailed", (request) => {
    const reason = request.failure()?.errorText;
    if (reason !== "net::ERR_ABORTED") problems.push(`request: ${request.url()} ${reason}`);
  });
  return page;
}

export async function show(page, base, route) {
  await page.goto(`${base}#/${route}`);
  await ready(page);
}

// A view is there when nothing of it is loading any more.
export async function ready(page) {
  await page.waitForSelector("main");
  await page.waitForFunction(() => !document.querySelector("[aria-busy]") && document.querySelector("main").childElementCount > 0);
}

export const views = (page) => page.$$eval("nav a.place", (links) => links.map((link) => link.getAttribute("href").slice(2)));

export async function isLive(page) {
  await page.waitForSelector(".live.on");
}

export function check(condition, text) {
  if (!condition) throw new Error(text);
}
