// Requests to the server.  All paths are relative to the page, so that it works under any path of a proxy.

import { texts } from "./texts.js";
import { serverTime } from "./format.js";

export class Problem extends Error {
  constructor(status, document) {
    super(document.detail || document.title || texts.problems.unknown);
    this.status = status;
    this.code = document.code || "";
    this.errors = document.errors || [];
  }
}

const base = new URL(".", document.baseURI);

// What the answers since the last loading of a view lack, because servers that share the functions did not answer.
export const lacking = { nodes: "", partitions: 0 };

export function address(path, parameters) {
  const url = new URL(path, base);
  for (const [name, value] of Object.entries(parameters || {})) {
    if (value === undefined || value === null || value === "" || value === false) continue;
    url.searchParams.set(name, Array.isArray(value) ? value.join(",") : value === true ? "1" : value);
  }
  return url;
}

async function ask(method, path, { parameters, body, signal } = {}) {
  const options = { method, signal, headers: { Accept: "application/json" } };
  if (body !== undefined) {
    options.headers["Content-Type"] = "application/json";
    options.body = JSON.stringify(body);
  }
  let answer;
  try {
    answer = await fetch(address(path, parameters), options);
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Problem(0, { detail: texts.problems.unreachable, code: "unreachable" });
  }
  serverTime(Date.parse(answer.headers.get("Date")) / 1000);
  lacking.nodes ||= decodeURIComponent(answer.headers.get("Switchgear-Unreachable") || "");
  lacking.partitions ||= Number(answer.headers.get("Switchgear-Partitions-Without-Owner"));
  if (answer.ok) return answer;
  let document = {};
  try {
    document = await answer.json();
  } catch {
    document = { detail: `${answer.status} ${answer.statusText}` };
  }
  const problem = new Problem(answer.status, document);
  if (problem.status === 401) dispatchEvent(new CustomEvent("login-needed"));
  throw problem;
}

async function json(answer) {
  return answer.status === 204 ? null : (await answer).json();
}

export const get = async (path, parameters, signal) => json(await ask("GET", path, { parameters, signal }));
export const post = async (path, body, parameters) => json(await ask("POST", path, { body, parameters }));
export const patch = async (path, body) => json(await ask("PATCH", path, { body }));
export const remove = async (path, parameters) => json(await ask("DELETE", path, { parameters }));

// What this server has, by its own description.  A part that it lacks (an older server, a proxy that leaves something
// out) is not asked for, and its view is not in the navigation.
let described = null;
export function features() {
  described ??= get("openapi.json").then((document) => new Set(Object.keys(document.paths)), () => null);
  return described;
}

const shape = (path) => `/${path}`.replace(/^(\/v1\/(?:jobs|functions|schedules|bulk|workers)\/)[^/]+/, "$1{}");

// An answer that a view can do without: the fallback if the server does not have it, or not for everybody.
export async function optional(path, parameters, signal, fallback = null) {
  const known = await features();
  if (known && ![...known].some((each) => each.replace(/\{\w+\}/, "{}") === shape(path))) return fallback;
  try {
    return await get(path, parameters, signal);
  } catch (problem) {
    if (problem instanceof Problem && [403, 404, 405, 501].includes(problem.status)) return fallback;
    throw problem;
  }
}
