// Numbers, times and bytes for people.

const whole = new Intl.NumberFormat("en");
const compact = new Intl.NumberFormat("en", { notation: "compact", maximumFractionDigits: 1 });

export const count = (value) => (value === null || value === undefined ? "–" : whole.format(value));

// For places without room: 12,345 stays, 1,234,567 becomes 1.2M; the exact number belongs in the title.
export const short = (value) =>
  value === null || value === undefined ? "–" : Math.abs(value) < 100000 ? whole.format(value) : compact.format(value);

export function rate(value) {
  if (value === null || value === undefined || Number.isNaN(value)) return "–";
  if (value === 0) return "0";
  if (value < 10) return value.toFixed(value < 1 ? 2 : 1);
  return short(Math.round(value));
}

export function percent(share) {
  if (share === null || share === undefined || Number.isNaN(share)) return "–";
  const value = share * 100;
  return `${value > 0 && value < 10 ? value.toFixed(1) : Math.round(value)} %`;
}

// A span of seconds with two units at most: 12 ms, 3.4 s, 5 min 20 s, 3 h 4 min, 2 d 5 h.
export function span(seconds) {
  if (seconds === null || seconds === undefined || !Number.isFinite(seconds)) return "–";
  const sign = seconds < 0 ? "−" : "";
  const s = Math.abs(seconds);
  if (s === 0) return "0 s";
  if (s < 0.001) return `${sign}${Math.round(s * 1e6)} µs`;
  if (s < 1) return `${sign}${Math.round(s * 1000)} ms`;
  if (s < 60) return `${sign}${s < 10 && !Number.isInteger(s) ? s.toFixed(1) : Math.round(s)} s`;
  const pair = (large, unit, small, smallUnit) => `${sign}${large} ${unit}${small ? ` ${small} ${smallUnit}` : ""}`;
  if (s < 3600) return pair(Math.floor(s / 60), "min", Math.floor(s % 60), "s");
  if (s < 86400) return pair(Math.floor(s / 3600), "h", Math.floor((s % 3600) / 60), "min");
  return pair(Math.floor(s / 86400), "d", Math.floor((s % 86400) / 3600), "h");
}

// The same in one unit, for places without room: 1.8 min, 3.2 h.
export function brief(seconds) {
  if (seconds === null || seconds === undefined || !Number.isFinite(seconds)) return "–";
  if (seconds < 60) return span(seconds);
  const [size, unit] = seconds < 3600 ? [60, "min"] : seconds < 86400 ? [3600, "h"] : [86400, "d"];
  const value = seconds / size;
  return `${value < 10 ? value.toFixed(1) : Math.round(value)} ${unit}`;
}

const clockTime = new Intl.DateTimeFormat("en-GB", { hour: "2-digit", minute: "2-digit", second: "2-digit" });
const dayTime = new Intl.DateTimeFormat("en-GB", {
  day: "numeric", month: "short", hour: "2-digit", minute: "2-digit", second: "2-digit",
});
const fullTime = new Intl.DateTimeFormat("en-GB", {
  year: "numeric", month: "short", day: "numeric", hour: "2-digit", minute: "2-digit", second: "2-digit",
  fractionalSecondDigits: 3, timeZoneName: "short",
});

// The clock of the server, as its last message told it: that of this computer may be wrong.
let skew = 0;
export const now = () => Date.now() / 1000 + skew;
export function serverTime(at) {
  const away = at - Date.now() / 1000;
  if (Number.isFinite(away)) skew = Math.abs(away) < 2 ? 0 : away;
}

// A moment: the time of day if it is today, otherwise with its day.
export function moment(seconds) {
  if (!seconds) return "–";
  const date = new Date(seconds * 1000);
  return date.toDateString() === new Date().toDateString() ? clockTime.format(date) : dayTime.format(date);
}

export const exact = (seconds) => (seconds ? fullTime.format(new Date(seconds * 1000)) : "");

// How long ago, or in how long.
export function ago(seconds, at = now()) {
  if (!seconds) return "–";
  const away = at - seconds;
  const rounded = (value) => span(value < 60 ? Math.round(value) : value);
  if (Math.abs(away) < 1) return "now";
  return away > 0 ? `${rounded(away)} ago` : `in ${rounded(-away)}`;
}

export function bytes(value) {
  if (value === null || value === undefined) return "–";
  if (value < 1024) return `${value} B`;
  const units = ["KiB", "MiB", "GiB", "TiB"];
  let size = value / 1024;
  let unit = 0;
  while (size >= 1024 && unit < units.length - 1) {
    size /= 1024;
    unit += 1;
  }
  return `${size < 10 ? size.toFixed(1) : Math.round(size)} ${units[unit]}`;
}

// --- bytes of peers: a text, or {base64} ---

export function bytesOf(value) {
  if (value === null || value === undefined) return new Uint8Array();
  if (typeof value === "string") return new TextEncoder().encode(value);
  return Uint8Array.from(atob(value.base64), (letter) => letter.charCodeAt(0));
}

const readable = new TextDecoder("utf-8");

// For people.  Bytes that are no text are shown with the mark for what cannot be read.
export const plain = (value) =>
  value === null || value === undefined ? "" : typeof value === "string" ? value : readable.decode(bytesOf(value));

// For a path: each byte that needs it is encoded, so that names that are no text can be asked for as well.
export function inPath(value) {
  if (typeof value === "string") return encodeURIComponent(value);
  return [...bytesOf(value)].map((byte) => `%${byte.toString(16).padStart(2, "0").toUpperCase()}`).join("");
}

// A name beside other text, which is not to be lost because of it.
export const brieflyNamed = (name) => (name.length > 40 ? `${name.slice(0, 39)}…` : name);

export const lastLine = (value) => plain(value).trim().split("\n").pop();
