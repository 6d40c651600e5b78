// A page of another site can change nothing here, and read nothing.

import { createServer } from "node:http";
import { check, launch } from "./browser.mjs";

const [, , base] = process.argv;
const target = new URL("v1/functions/mail.send", base).href;
const server = createServer((request, answer) => answer.end("<!doctype html><title>other</title>")).listen(0, "127.0.0.1");
await new Promise((listening) => server.once("listening", listening));
const browser = await launch();
const page = await browser.newPage();
await page.goto(`http://localhost:${server.address().port}/`);
const before = await fetch(target).then((answer) => answer.json());

// A form can be sent anywhere without being asked, a fetch without reading its answer as well.
const sent = await page.evaluate(async (url) => {
  const results = [];
  for (const kind of ["text/plain", "application/x-www-form-urlencoded"]) {
    const answer = await fetch(url, { method: "POST", mode: "no-cors", headers: { "Content-Type": kind }, body: '{"function": "stranger", "payload": ""}' });
    results.push(answer.type);
  }
  return results;
}, new URL("v1/jobs", base).href);
const read = await page.evaluate((url) => fetch(url).then(() => "read", (error) => error.name), target);
const preflight = await page.evaluate((url) => fetch(url, { method: "PATCH", headers: { "Content-Type": "application/json" }, body: '{"paused": true}' }).then(() => "sent", (error) => error.name), target);
const strangers = await fetch(new URL("v1/jobs?function=stranger", base)).then((answer) => answer.json());
const after = await fetch(target).then((answer) => answer.json());

// Nor does it show in a frame of another site.
await page.setContent(`<iframe src="${base}"></iframe>`);
await page.waitForTimeout(1000);
const framed = page.frames()[1] ? await page.frames()[1].evaluate(() => Boolean(document.getElementById("app"))).catch(() => false) : false;
await browser.close();
server.close();
check(strangers.jobs.length === 0, "a job of another site was accepted");
check(after.paused === before.paused, "another site has paused a function");
console.log(JSON.stringify({ sent, read, preflight, framed }));
