// <line-chart>: lines over time, drawn by uPlot.  Its table is beside it, for those who cannot see it.

import * as format from "./format.js";

// uPlot is no module, so it is loaded as a script, and only where there is a chart.
const loaded = new Promise((resolve) => {
  const script = document.createElement("script");
  script.src = new URL("vendor/uPlot.js", import.meta.url).href;
  script.onload = () => resolve(globalThis.uPlot);
  document.head.append(script);
});
let uPlot = null;
loaded.then((made) => { uPlot = made; });

const clock = (options) => new Intl.DateTimeFormat("en-GB", options);
const withSeconds = clock({ hour: "2-digit", minute: "2-digit", second: "2-digit" });
const withMinutes = clock({ hour: "2-digit", minute: "2-digit" });
const withDay = clock({ day: "numeric", month: "short" });
const LEAST_SECONDS = 60; // less would be one time written over and over

function timeText(seconds, step) {
  const date = new Date(seconds * 1000);
  if (step < 60) return withSeconds.format(date);
  return step >= 86400 || (date.getHours() === 0 && date.getMinutes() === 0) ? withDay.format(date) : withMinutes.format(date);
}

class LineChart extends HTMLElement {
  #plot = null;
  #data = [];
  #series = [];
  #sizes = new ResizeObserver(() => this.#resize());
  #theme = matchMedia("(prefers-color-scheme: dark)");
  #redraw = () => this.#draw();

  connectedCallback() {
    this.#sizes.observe(this);
    this.#theme.addEventListener("change", this.#redraw);
    addEventListener("theme", this.#redraw);
    if (!uPlot) loaded.then(this.#redraw);
  }

  disconnectedCallback() {
    this.#sizes.disconnect();
    this.#theme.removeEventListener("change", this.#redraw);
    removeEventListener("theme", this.#redraw);
    this.#plot?.destroy();
    this.#plot = null;
  }

  // {times, series: [{label, color, values, unit, dash, fill}], height, onRange}
  set chart(chart) {
    const same = this.#plot && chart.series.map((each) => each.label).join() === this.#series.map((each) => each.label).join();
    this.#series = chart.series;
    this.#data = [chart.times, ...chart.series.map((each) => each.values)];
    this.height = chart.height || 200;
    this.onRange = chart.onRange;
    this.style.minHeight = `${this.height}px`;
    if (same && this.#plot) this.#plot.setData(this.#data);
    else this.#draw();
  }

  #color(name) {
    return getComputedStyle(this).getPropertyValue(`--${name}`).trim() ? this.#resolved(`var(--${name})`) : name;
  }

  // light-dark() is resolved by asking what an element would be drawn with.
  #resolved(value) {
    const probe = document.createElement("span");
    probe.style.color = value;
    this.append(probe);
    const color = getComputedStyle(probe).color;
    probe.remove();
    return color;
  }

  #draw() {
    if (!uPlot || !this.isConnected || !this.#data.length) return;
    this.#plot?.destroy();
    const axis = { stroke: this.#color("muted"), grid: { stroke: this.#color("line"), width: 1 }, ticks: { show: false }, font: "12px system-ui, sans-serif" };
    this.#plot = new uPlot({
      width: Math.max(120, this.clientWidth), height: this.height,
      cursor: { y: false, drag: { x: true, y: false } },
      legend: { show: false },
      padding: [10, 30, 0, 0],
      axes: [{ ...axis, size: 30, space: 80, values: (_, ticks, axisIndex, space, step) => ticks.map((tick) => timeText(tick, step)) }, { ...axis, size: 52, values: (_, ticks) => ticks.map((tick) => format.short(tick)) }],
      scales: { x: { time: true, range: (_, low, high) => [Math.min(low, high - LEAST_SECONDS), high] }, y: { range: (_, low, high) => [0, Math.max(1, high * 1.08)] } },
      series: [{}, ...this.#series.map((each) => {
        const color = this.#color(each.color);
        return {
          label: each.label, stroke: color, width: 1.75, dash: each.dash, points: { show: false }, spanGaps: false,
          fill: each.fill ? color.replace("rgb(", "rgba(").replace(")", ", .12)") : undefined,
        };
      })],
      hooks: { setCursor: [(plot) => this.#tell(plot)], setSelect: [(plot) => this.#select(plot)] },
    }, this.#data, this);
    const canvas = this.querySelector("canvas");
    if (canvas) canvas.setAttribute("aria-hidden", "true");
  }

  #resize() {
    if (this.#plot && this.clientWidth) this.#plot.setSize({ width: this.clientWidth, height: this.height });
    else if (this.clientWidth) this.#draw();
  }

  #tell(plot) {
    const index = plot.cursor.idx;
    const at = index === null || index === undefined ? null : plot.data[0][index];
    const values = this.#series.map((each, number) => (at === null ? null : plot.data[number + 1][index]));
    this.dispatchEvent(new CustomEvent("point", { detail: { at, values } }));
  }

  #select(plot) {
    if (!this.onRange || plot.select.width < 4) return;
    this.onRange(plot.posToVal(plot.select.left, "x"), plot.posToVal(plot.select.left + plot.select.width, "x"));
  }
}

customElements.define("line-chart", LineChart);

// Figures without the time before the first of them, of which nothing was recorded.
export function recorded(series) {
  const all = Object.values(series.values);
  const first = series.times.findIndex((_, index) => all.some((values) => values[index] !== null));
  if (first <= 0) return series;
  const values = Object.fromEntries(Object.entries(series.values).map(([name, each]) => [name, each.slice(first)]));
  return { ...series, times: series.times.slice(first), values };
}
