// A server that demands identities: log in with a token, see what the roles allow and who did what, log out.

import { check, launch, openPage, ready, show } from "./browser.mjs";

const [, , base, viewer, operator, code] = process.argv;
const problems = [];
const browser = await launch();

async function logIn(token) {
  const page = await openPage(await browser.newContext({ viewport: { width: 1280, height: 860 } }), problems);
  await page.goto(base);
  await page.fill("dialog input", "no-such-token");
  await page.keyboard.press("Enter");
  await page.waitForSelector("dialog[open] :text('token')");
  await page.fill("dialog input", token);
  await page.keyboard.press("Enter");
  await page.waitForSelector("text=Logged in as");
  await ready(page);
  return page;
}

const reading = await logIn(viewer);
await show(reading, base, "functions");
check((await reading.$$("main button:has-text('Pause')")).length === 0, "a viewer is offered to pause a function");
const operating = await logIn(operator);
await show(operating, base, "audit");
await operating.waitForSelector("main td:has-text('function=mail')");
await operating.click("text=Log out");
await operating.waitForSelector("dialog input");

// As `switchgear dashboard` opens the page: the code is used at once and leaves the address.
const opened = await openPage(await browser.newContext({ viewport: { width: 1280, height: 860 } }), problems);
await opened.goto(`${base}#code=${code}`);
await opened.waitForSelector("text=Log out");
check(!opened.url().includes("code"), "the login code is still in the address");
await browser.close();
console.log(JSON.stringify({ problems: problems.filter((each) => !/status of 40[13]/.test(each)) }));
