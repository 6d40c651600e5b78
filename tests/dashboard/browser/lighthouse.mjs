// What Lighthouse says about some views on a desktop: performance, and accessibility.
//
//   node lighthouse.mjs URL PORT PLACE...      the browser is driven through that port

import lighthouse, { desktopConfig } from "lighthouse";
import { launch } from "./browser.mjs";

const [, , base, ...places] = process.argv;
const CATEGORIES = ["performance", "accessibility"];
const LEAST = 0.95;
const [port] = places.splice(0, 1).map(Number);
const browser = await launch([`--remote-debugging-port=${port}`]);

async function scores(place) {
  const { lhr } = await lighthouse(`${base}#/${place}`, { port, onlyCategories: CATEGORIES, logLevel: "error" }, desktopConfig);
  const wrong = lhr.categories.accessibility.auditRefs.filter(({ id, weight }) => weight && lhr.audits[id].score !== null && lhr.audits[id].score < 1).map(({ id }) => id);
  return { ...Object.fromEntries(CATEGORIES.map((name) => [name, lhr.categories[name].score])), wrong, error: lhr.runtimeError?.message || "" };
}

const found = {};
for (const place of places) {
  found[place] = await scores(place);
  // The performance is of this moment, in which something else may have had the processor.
  if (found[place].performance < LEAST) found[place] = await scores(place);
}
await browser.close();
console.log(JSON.stringify(found));
