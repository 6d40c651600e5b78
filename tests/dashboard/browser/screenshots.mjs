// Pictures of views with fixed answers, a fixed clock and fixed fonts, compared with those in the repository.
//
//   node screenshots.mjs URL record FOLDER     note the answers of a busy server in FOLDER/answers.json
//   node screenshots.mjs URL write FOLDER      make the pictures anew
//   node screenshots.mjs URL compare FOLDER    tell which pictures differ; what was seen is written to FOLDER/seen
//
// They are compared at a quarter of their size: what anti-aliasing does differently on another machine is gone there, and
// a panel that is missing or has moved is not.

import fs from "node:fs";
import { check, launch, openPage, ready, show } from "./browser.mjs";

const [, , base, mode, folder] = process.argv;
const SMALLER = 4;
const CHANNEL_TOLERANCE = 34; // of 255
const DIFFERENT_SHARE = 0.004;
const answersFile = `${folder}/answers.json`;
const problems = [];
const browser = await launch();

const ROUTES = { overview: "overview", flows: "flows", functions: "functions", jobs: "jobs?state=failed", job: "job/", stream: "stream", graph: "graph" };
const NARROW = ["overview", "jobs", "stream"]; // that are looked at on a telephone, too

// --- noting the answers of a real server ---

async function record() {
  const page = await openPage(await browser.newContext({ viewport: { width: 1280, height: 860 } }), problems);
  const answers = {};
  page.on("response", async (answer) => {
    const { pathname } = new URL(answer.url());
    if (answer.request().method() === "GET" && /^\/(v1\/(?!events)|openapi)/.test(pathname) && answer.ok()) answers[pathname] = await answer.body().then((body) => { try { return JSON.parse(body); } catch { return String(body); } }, () => answers[pathname]);
  });
  await show(page, base, "overview");
  const failed = await fetch(new URL("v1/jobs?state=failed&limit=1", base)).then((answer) => answer.json());
  const stream = () => fetch(new URL(`v1/stream?since=${Date.now() / 1000 - 40}`, base)).then((answer) => answer.json());
  await stream(); // whoever asks has it recorded for 30 seconds
  await page.waitForTimeout(15000);
  for (const [name, route] of Object.entries(ROUTES)) {
    await show(page, base, name === "job" ? `job/${encodeURIComponent(failed.jobs[0].handle)}` : route);
    await page.waitForTimeout(1000);
  }
  answers["/openapi.json"] = { paths: Object.fromEntries(Object.keys(answers["/openapi.json"].paths).map((path) => [path, {}])) };
  const events = await fetch(new URL("v1/events?topics=overview,functions,workers", base));
  const heard = {};
  let text = "";
  for await (const chunk of events.body) {
    text += new TextDecoder().decode(chunk);
    for (const block of text.split("\n\n")) {
      const name = /^event: (\w+)$/m.exec(block)?.[1];
      const data = /^data: (.*)$/m.exec(block)?.[1];
      if (name && data && block.endsWith("}")) heard[name] ??= JSON.parse(data);
    }
    if (Object.keys(heard).length === 3) break;
  }
  answers["/v1/functions"] = await fetch(new URL("v1/functions", base)).then((answer) => answer.json());
  answers["/v1/stream"] = await stream();
  const written = { at: Math.round(answers["/v1/stream"].at * 1000), job: failed.jobs[0].handle, heard, answers };
  const place = JSON.stringify(written).match(/sqlite:([^"]*)\/jobs\.db/)[1];
  fs.writeFileSync(answersFile, `${JSON.stringify(written).replaceAll(place, "/var/lib/switchgear").replace(/"\/v1|"\/openapi/g, "\n$&")}\n`);
}

// --- looking at them ---

async function lookAt({ at, job, heard, answers }, width, scheme) {
  const context = await browser.newContext({
    viewport: { width, height: width < 500 ? 844 : 860 }, colorScheme: scheme, reducedMotion: "reduce", timezoneId: "UTC", locale: "en-GB", bypassCSP: true,
  });
  const page = await openPage(context, problems);
  await page.clock.setFixedTime(at);
  await page.route(/\/(v1\/|openapi\.json)/, async (route) => {
    const { pathname, searchParams } = new URL(route.request().url());
    if (pathname === "/v1/events") {
      const topics = searchParams.get("topics").split(",");
      const body = Object.entries(heard).filter(([name]) => topics.includes(name)).map(([name, message]) => `event: ${name}\ndata: ${JSON.stringify(message)}\n\n`).join("");
      await new Promise((go) => { setTimeout(go, 250); }); // after the answers, in any run
      return route.fulfill({ contentType: "text/event-stream", body: `retry: 100000000\n\n${body}` });
    }
    const found = answers[pathname];
    if (found === undefined) return route.fulfill({ status: 404, json: { code: "not_found", detail: pathname } });
    return typeof found === "string" ? route.fulfill({ body: found, contentType: "application/octet-stream" }) : route.fulfill({ json: found });
  });
  const pictures = {};
  for (const [name, target] of Object.entries(ROUTES)) {
    if (width < 500 && !NARROW.includes(name)) continue;
    await show(page, base, name === "job" ? `job/${encodeURIComponent(job)}` : target);
    await page.addStyleTag({ content: '*:not(code):not(pre):not(.mono):not(kbd) { font-family: "DejaVu Sans" !important } .live { visibility: hidden }' });
    await page.waitForTimeout(["overview", "stream"].includes(name) ? 1500 : 500); // for events, and for the curve, which a script draws when it has come
    await ready(page);
    pictures[name] = await page.screenshot({ animations: "disabled" });
  }
  let hidden = null;
  if (width > 500 && scheme === "light") {
    await show(page, base, "overview");
    await page.waitForTimeout(500);
    await page.evaluate(() => { document.querySelector("main .two-one > :last-child .panel").style.display = "none"; });
    hidden = await page.screenshot({ animations: "disabled" });
  }
  await context.close();
  return { pictures, hidden };
}

// --- comparing, on canvases of the browser ---

const tool = await browser.newPage();
const smaller = (bytes) => tool.evaluate(async ([url, by]) => {
  const image = new Image();
  image.src = url;
  await image.decode();
  const canvas = new OffscreenCanvas(Math.round(image.width / by), Math.round(image.height / by));
  const pen = canvas.getContext("2d");
  pen.imageSmoothingQuality = "high";
  pen.drawImage(image, 0, 0, canvas.width, canvas.height);
  const data = pen.getImageData(0, 0, canvas.width, canvas.height);
  for (let index = 0; index < data.data.length; index += 1) if (index % 4 !== 3) data.data[index] = Math.round(data.data[index] / 17) * 17; // fewer colours, smaller files
  pen.putImageData(data, 0, 0);
  const blob = await canvas.convertToBlob({ type: "image/png" });
  return btoa(Array.from(new Uint8Array(await blob.arrayBuffer()), (byte) => String.fromCharCode(byte)).join(""));
}, [`data:image/png;base64,${bytes.toString("base64")}`, SMALLER]).then((text) => Buffer.from(text, "base64"));

// The share of pixels that differ.
const difference = (one, other) => tool.evaluate(async ([urls, tolerance]) => {
  const [a, b] = await Promise.all(urls.map(async (url) => {
    const image = new Image();
    image.src = url;
    await image.decode();
    const pen = new OffscreenCanvas(image.width, image.height).getContext("2d");
    pen.drawImage(image, 0, 0);
    return pen.getImageData(0, 0, image.width, image.height);
  }));
  if (a.width !== b.width || a.height !== b.height) return 1;
  let different = 0;
  for (let index = 0; index < a.data.length; index += 4) {
    if ([0, 1, 2].some((channel) => Math.abs(a.data[index + channel] - b.data[index + channel]) > tolerance)) different += 1;
  }
  return different / (a.width * a.height);
}, [[one, other].map((bytes) => `data:image/png;base64,${bytes.toString("base64")}`), CHANNEL_TOLERANCE]);

const differences = {};
let withoutPanel = 0;
if (mode === "record") {
  await record();
} else {
  const known = JSON.parse(fs.readFileSync(answersFile, "utf8"));
  for (const width of [1280, 390]) {
    for (const scheme of ["light", "dark"]) {
      const { pictures, hidden } = await lookAt(known, width, scheme);
      for (const [name, bytes] of Object.entries(pictures)) {
        const file = `${name}-${width}-${scheme}.png`;
        const seen = await smaller(bytes);
        if (mode === "write") {
          fs.writeFileSync(`${folder}/${file}`, seen);
          continue;
        }
        check(fs.existsSync(`${folder}/${file}`), `${file} is missing: make screenshots`);
        const expected = fs.readFileSync(`${folder}/${file}`);
        const share = await difference(seen, expected);
        if (share > DIFFERENT_SHARE) {
          fs.mkdirSync(`${folder}/seen`, { recursive: true });
          fs.writeFileSync(`${folder}/seen/${file}`, bytes);
          differences[file] = share;
        }
        if (name === "overview" && hidden) withoutPanel = await difference(await smaller(hidden), expected);
      }
    }
  }
}
await browser.close();
console.log(JSON.stringify({ problems, differences, withoutPanel, tolerance: DIFFERENT_SHARE }));
