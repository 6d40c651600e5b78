// How soon a view is there for somebody who opens the page for the first time.  bench/viewers.py runs it.
//
//   node first_view.mjs URL VIEW...

import { launch, openPage, show } from "./browser.mjs";

const [, , base, ...views] = process.argv;
const problems = [];
const browser = await launch();
for (const view of views) {
  const context = await browser.newContext({ viewport: { width: 1280, height: 860 } }); // its cache is empty
  const page = await openPage(context, problems);
  const begun = performance.now();
  await show(page, base, view);
  console.log(JSON.stringify({ view, ms: performance.now() - begun }));
  await context.close();
}
await browser.close();
if (problems.length) throw new Error(problems.join("\n"));
