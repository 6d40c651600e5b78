// The servers of a cluster, each with its role.

import { launch, openPage, show } from "./browser.mjs";

const [, , base, name] = process.argv;
const problems = [];
const browser = await launch();
const page = await openPage(await browser.newContext({ viewport: { width: 1280, height: 860 } }), problems);
await show(page, base, "nodes");
await page.waitForSelector(`tbody tr:has-text("${name}"):has-text("owns the jobs")`);
await browser.close();
console.log(JSON.stringify({ problems }));
