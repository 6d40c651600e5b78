// A client of the server's HTTP interface whose types are generated from /openapi.json; compiled with `tsc --strict`.
// Run as: node client.js http://127.0.0.1:4740

import createClient from "openapi-fetch";
import type { components, paths } from "./schema.js";

type JobSummary = components["schemas"]["JobSummary"];

declare const process: { argv: string[] };

const url = process.argv[2];
if (url === undefined) {
  throw new Error("usage: node client.js URL");
}
const client = createClient<paths>({ baseUrl: url });

function check(condition: boolean, what: string): asserts condition {
  if (!condition) {
    throw new Error(what);
  }
}

// --- submit, look and change ---

const submitted = await client.POST("/v1/jobs", {
  body: { function: "reverse", payload: "hello", priority: "low", run_at: 4_000_000_000 },
});
check(submitted.response.status === 201, `submitted: ${submitted.response.status}`);
const created = submitted.data as components["schemas"]["JobCreated"];

const shown = await client.GET("/v1/jobs/{handle}", {
  params: { path: { handle: created.handle }, query: { contents: true } },
});
check(shown.data?.state === "scheduled", `shown: ${JSON.stringify(shown.data)}`);
check(shown.data.payload === "hello", "its payload");

const changed = await client.PATCH("/v1/jobs/{handle}", {
  params: { path: { handle: created.handle } },
  body: { priority: "high", run_at: 0 },
});
check(changed.data?.state === "ready" && changed.data.priority === "high", `changed: ${JSON.stringify(changed)}`);

const page = await client.GET("/v1/jobs", { params: { query: { function: "reverse", state: ["ready"], q: "hell" } } });
check(page.data !== undefined && page.data.complete, "a complete page");
const jobs: JobSummary[] = page.data.jobs;
check(jobs.length === 1 && jobs[0]?.handle === created.handle, `listed: ${JSON.stringify(jobs)}`);

// --- work ---

const worker = await client.POST("/v1/workers", { body: { functions: ["reverse"], name: "typed" } });
check(worker.data !== undefined, `registered: ${JSON.stringify(worker.error)}`);
const polled = await client.POST("/v1/workers/{id}/poll", {
  params: { path: { id: worker.data.id }, query: { max: 10, wait: 5 } },
});
const job = polled.data?.jobs[0];
check(job !== undefined && typeof job.payload === "string", `polled: ${JSON.stringify(polled.data)}`);
const reported = await client.PUT("/v1/jobs/{handle}/result", {
  params: { path: { handle: job.handle }, header: { "Switchgear-Attempt": String(job.attempt) } },
  body: [...job.payload].reverse().join(""),
  bodySerializer: (body: unknown) => body as string,
});
check(reported.response.status === 204, `reported: ${JSON.stringify(reported.error)}`);

const result = await client.GET("/v1/jobs/{handle}/result", {
  params: { path: { handle: created.handle }, query: { wait: 5 } },
  parseAs: "text",
});
check((result.data as unknown) === "olleh", `result: ${JSON.stringify(result)}`);

// --- problems are typed ---

const wrong = await client.GET("/v1/jobs/{handle}", { params: { path: { handle: "999999" } } });
check(wrong.error?.code === "job_not_found", `wrong: ${JSON.stringify(wrong.error)}`);
console.log("all is well");
