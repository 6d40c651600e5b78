import { launch, openPage, show } from "./browser.mjs";
const problems = [];
const browser = await launch();
const page = await openPage(await browser.newContext({ viewport: { width: 1280, height: 860 } }), problems);
const base = "http://127.0.0.1:21761/tools/gear/";
await show(page, base, "overview");
await fetch("http://127.0.0.1:21770/v1/functions/mail/jobs", { method: "POST", body: "x" });
for (let i = 0; i < 12; i++) { await page.waitForTimeout(3000); console.log(i * 3, await page.textContent(".live"), (await page.textContent("main")).replace(/\s+/g, " ").slice(0, 160)); }
await show(page, base, "functions");
for (let i = 0; i < 4; i++) { await page.waitForTimeout(3000); console.log(i * 3, await page.textContent(".live"), (await page.textContent("main")).replace(/\s+/g, " ").slice(0, 200)); }
await browser.close(); console.log(problems);
