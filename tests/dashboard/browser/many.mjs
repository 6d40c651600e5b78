// Ten thousand functions, as many as a server has by default; the name of one has 200 characters.

import { check, isLive, launch, openPage, show } from "./browser.mjs";

const [, , base] = process.argv;
const problems = [];
const lines = Array.from({ length: 9999 }, (_, number) => `{"function": "function-${String(number).padStart(5, "0")}"}`).join("\n");
const answer = await fetch(new URL("v1/jobs/batch", base), { method: "POST", body: lines, headers: { "Content-Type": "application/x-ndjson" } });
check(answer.ok, `${answer.status}`);
await answer.text();
const last = await fetch(new URL("v1/jobs", base), { method: "POST", body: JSON.stringify({ function: "x".repeat(200), unique: "y".repeat(200) }), headers: { "Content-Type": "application/json" } });
check(last.ok, `${last.status} ${await last.text()}`);
const browser = await launch();
for (const width of [1280, 390]) {
  const page = await openPage(await browser.newContext({ viewport: { width, height: 844 } }), problems);
  for (const route of ["overview", "functions", "jobs", `function/${"x".repeat(200)}`, "why"]) {
    await show(page, base, route);
    const wide = await page.evaluate(() => document.documentElement.scrollWidth - innerWidth);
    if (wide > 0) problems.push(`${route} is ${wide} pixels too wide at ${width}`);
  }
  await show(page, base, "functions?sort=name");
  await isLive(page);
  await page.waitForFunction(() => document.querySelector(".paging")?.textContent.includes("10,000 functions"));
  const rows = await page.$$eval("tbody tr", (all) => all.length);
  check(rows === 200, `${rows} rows are drawn`);
  await page.fill("main input[type=search]", "function-09998");
  await page.waitForFunction(() => document.querySelectorAll("tbody tr").length === 1);
  await page.close();
}
await browser.close();
console.log(JSON.stringify({ problems }));
