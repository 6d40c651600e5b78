// Several servers that own functions: the page of one of them, while a job runs at another one, and while that one dies.
//
//   node owners.mjs '{"url": …, "owner": {"url": …, "pid": …, "name": …, "function": …}, "names": […]}'
//
// `function` belongs to the owner, which is suspended and then killed.

import { check, isLive, launch, openPage, show } from "./browser.mjs";

const { url, owner, names } = JSON.parse(process.argv[2]);
const problems = [];
const browser = await launch();
const page = await openPage(await browser.newContext({ viewport: { width: 1280, height: 860 } }), problems);

async function send(base, method, path, body, headers = {}) {
  const answer = await fetch(new URL(`v1/${path}`, base), { method, body, headers });
  check(answer.ok, `${method} ${path}: ${answer.status} ${await answer.clone().text()}`);
  return answer;
}
const submit = async () => (await send(url, "POST", "jobs", JSON.stringify({ function: owner.function, payload: "x" }), { "Content-Type": "application/json" }).then((answer) => answer.json())).handle;
const job = (handle) => `job/${encodeURIComponent(handle)}`;
const isState = (name) => page.waitForSelector(`main .actions .state.${name}`);

// Who owns what.
await show(page, url, "nodes");
for (const name of names) await page.waitForSelector(`tbody tr:has-text("${name}"):has-text("owns functions")`);
const shares = await page.$$eval("tbody tr", (rows) => rows.map((row) => Number(row.querySelectorAll("td")[4].textContent)));
check(shares.reduce((sum, each) => sum + each, 0) === 64, `the partitions are ${shares}`);

// The page of a job follows the job, though another server has it.
const handle = await submit();
await show(page, url, job(handle));
await isState("ready");
await page.evaluate(() => { globalThis.isTheSamePage = true; });
const taken = await send(owner.url, "POST", `functions/${owner.function}/take?wait=30`);
check(taken.headers.get("switchgear-job") === handle, `${taken.status}`);
await isState("running");
await send(owner.url, "PUT", `jobs/${encodeURIComponent(handle)}/result`, "y", { "Switchgear-Attempt": taken.headers.get("switchgear-attempt") });
await isState("done");
check(await page.evaluate(() => globalThis.isTheSamePage), "the page was loaded again");

// The task stream says that it has the attempts of one server.
await show(page, url, "stream");
await page.waitForSelector("text=/Attempts at node \\S+ alone/");

// The owner stops: what is missing is said, in a live table and in a list, until another server has its functions.
const kept = await submit();
const row = `tbody tr[data-row]:has(a[title="${owner.function}"])`;
await show(page, url, "functions");
await isLive(page);
await page.waitForSelector(row);
const before = problems.length;
process.kill(owner.pid, "SIGSTOP");
await page.waitForSelector(`main [role=status]:has-text("${owner.name}")`);
await show(page, url, "schedules");
await page.waitForSelector(`main [role=status]:has-text("${owner.name}")`);
process.kill(owner.pid, "SIGKILL");
await show(page, url, "functions");
await page.waitForSelector("main [role=status]", { state: "detached" });
await page.waitForSelector(row);
await show(page, url, job(kept));
await isState("ready");
await show(page, url, "nodes");
await page.waitForFunction((name) => [...document.querySelectorAll("tbody tr")].every((each) => !each.textContent.includes(name) || each.textContent.includes("gone")), owner.name);
await show(page, url, "overview");
await isLive(page);
// What the browser itself notes about answers with an error is no problem of the page.
problems.splice(before, Infinity, ...problems.slice(before).filter((each) => !/Failed to load resource.*50[34]/.test(each)));
await browser.close();
console.log(JSON.stringify({ problems }));
