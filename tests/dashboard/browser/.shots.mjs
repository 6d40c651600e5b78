import { launch, openPage, show } from "/work/trees/web/tests/dashboard/browser/browser.mjs";
const [, , base, folder, ...routes] = process.argv;
const problems = [];
const browser = await launch();
for (const [scheme, width] of [["light", 1280], ["dark", 390]]) {
  const context = await browser.newContext({ viewport: { width, height: width < 500 ? 844 : 860 }, colorScheme: scheme, reducedMotion: "reduce" });
  const page = await openPage(context, problems);
  for (const route of routes) {
    await show(page, base, route);
    await page.waitForTimeout(1500);
    await page.screenshot({ path: `${folder}/${route.replace(/[^\w]/g, "_").slice(0, 40)}-${width}.png` });
  }
}
await browser.close();
console.log(problems);
