// A server that demands identities: log in with a token, see what the roles allow and who did what, log out.

import { check, launch, openPage, ready, show, views } from "./browser.mjs";

const [, , base, viewer, operator, code, restricted, submitter] = process.argv;
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

// An identity that may use only some functions sees their views, and the page asks for nothing that it would be refused.
const some = await openPage(await browser.newContext({ viewport: { width: 1280, height: 860 } }), problems);
const refused = [];
some.on("response", (answer) => { if (answer.status() === 403) refused.push(answer.url()); });
await some.goto(base);
await some.fill("dialog input", restricted);
await some.keyboard.press("Enter");
await some.waitForSelector("text=Logged in as");
await some.waitForFunction(() => location.hash === "#/functions");
await ready(some);
const offered = await views(some);
check(["functions", "jobs", "workers"].every((each) => offered.includes(each)), `it is offered only ${offered}`);
for (const route of offered) await show(some, base, route);
check((await some.textContent(".live")).startsWith("Every "), "the page is said to be live, or to reconnect");
check(refused.length === 0, `the server refused ${refused}`);
await some.goto(`${base}#/flows`);
await some.waitForSelector("main [role=alert]:has-text('may use only mail*')");

// Two tabs of a browser have one cookie: when somebody else logs in, both show who that is.
const shared = await browser.newContext({ viewport: { width: 1280, height: 860 } });
const [here, there] = [await openPage(shared, problems), await openPage(shared, problems)];
await here.goto(base);
await here.fill("dialog input", viewer);
await here.keyboard.press("Enter");
await here.waitForSelector("text=Logged in as viewer");
await there.goto(base);
await there.click("text=Log out");
await there.waitForSelector("dialog input");
await here.waitForSelector("dialog input");
await there.fill("dialog input", operator);
await there.keyboard.press("Enter");
for (const tab of [there, here]) await tab.waitForSelector("text=Logged in as ops");
await shared.close();

// One that may only submit is told what it lacks.
const none = await openPage(await browser.newContext({ viewport: { width: 1280, height: 860 } }), problems);
await none.goto(base);
await none.fill("dialog input", submitter);
await none.keyboard.press("Enter");
await none.waitForSelector("text=Logged in as");
await none.waitForSelector("main [role=alert]:has-text('needs the role read')");
check((await views(none)).length === 0, "it is offered views that it may not see");
await browser.close();
console.log(JSON.stringify({ problems: problems.filter((each) => !/status of 40[13]/.test(each)) }));
