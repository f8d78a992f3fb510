// A histogram at one time: bars over an axis of values, and the table of its buckets.

import { CLOSED, bucketScale, nativeBuckets, rangeText } from "./buckets.js";
import { button, el } from "./dom.js";
import { formatNumber, formatTick, parseValue } from "./numbers.js";
import { valueTicks } from "./scales.js";

const Y_TICKS = 3;
/** Pixels of the window for each tick of the axis of values. */
const X_TICK_PIXELS = 100;
const X_TICKS_MAX = 8;

/** A native histogram of the API as an element: its figures, chart and buckets. */
export function histogram(value) {
  const [count, sum] = [parseValue(value.count), parseValue(value.sum)];
  const buckets = nativeBuckets(value);
  const facts = [
    ["Count", formatNumber(count)],
    ["Sum", formatNumber(sum)],
    ["Average", count > 0 ? formatNumber(sum / count) : "none"],
  ];
  const shown = facts.map(([name, text]) => el("div", {}, el("dt", {}, name), el("dd", {}, text)));
  const head = el("div", { class: "histogram-head" }, el("dl", { class: "figures" }, shown));
  const element = el("div", { class: "histogram" }, head);
  if (buckets.length === 0) {
    element.append(el("p", { class: "hint" }, "All buckets are empty."));
    return element;
  }
  const plot = el("div", { class: "plot" });
  head.append(axisChoice((isExponential) => plot.replaceChildren(chart(buckets, isExponential))));
  plot.append(chart(buckets, true));
  element.append(plot, bucketTable(buckets, count));
  return element;
}

/** Two buttons for the axis of values; `onChoose` is called with whether it is exponential. */
export function axisChoice(onChoose) {
  const choose = (isExponential) => {
    buttons.forEach((one, index) =>
      one.setAttribute("aria-pressed", String((index === 0) === isExponential)),
    );
    onChoose(isExponential);
  };
  const buttons = ["Exponential", "Linear"].map((text, index) =>
    button(text, () => choose(index === 0), {
      class: "toggle",
      "aria-pressed": String(index === 0),
    }),
  );
  return el("div", { class: "group axis", role: "group", "aria-label": "Axis of values" }, buttons);
}

/**
 * Bars of buckets. On an exponential axis their height is the count; on a linear one it is the count
 * by width, so that areas are comparable.
 */
function chart(buckets, isExponential) {
  const scale = bucketScale(buckets, isExponential);
  const heights = buckets.map((bucket) => (isExponential ? bucket.count : density(bucket)));
  const most = Math.max(0, ...heights.filter(Number.isFinite)) || 1;
  const axis = valueTicks(0, most, Y_TICKS);
  const lines = axis.ticks.map((tick) => {
    const line = el("div", { class: "line" }, el("span", {}, formatTick(tick, axis.step)));
    line.style.bottom = `${(tick / most) * 100}%`;
    return line;
  });
  const bars = buckets.map((bucket, index) => {
    const [from, to] = [scale.at(bucket.lower), scale.at(bucket.upper)];
    const bar = el("div", { class: "bar-of-bucket" });
    bar.style.height = `${Math.min(1, heights[index] / most) * 100}%`;
    const title = `${rangeText(bucket)}: ${formatNumber(bucket.count)}`;
    const column = el("div", { class: "column", title }, bar);
    column.style.left = `${from * 100}%`;
    column.style.width = `${Math.max(0.1, (to - from) * 100)}%`;
    return column;
  });
  const count = Math.min(X_TICKS_MAX, Math.floor(window.innerWidth / X_TICK_PIXELS));
  const values = scale.ticks(count).map(({ at, label }) => {
    const tick = el("span", { class: "tick" }, label);
    tick.style.left = `${at * 100}%`;
    return tick;
  });
  const kind = isExponential ? "count" : "count by width";
  const first = rangeText(buckets[0]);
  const last = rangeText(buckets.at(-1));
  const label = `Histogram of ${buckets.length} buckets from ${first} to ${last}, ${kind}`;
  return el(
    "div",
    { class: "histogram-chart", role: "img", "aria-label": label },
    el("div", { class: "area" }, lines, bars),
    el("div", { class: "ticks" }, values),
  );
}

/**
 * Count by width of a bucket. That of an infinite bucket is not known; a closed one is that around
 * zero, whose bar is as high as the chart.
 */
function density({ lower, upper, count, rule }) {
  const width = upper - lower;
  if (rule === CLOSED) {
    return count > 0 ? Infinity : 0;
  }
  return Number.isFinite(width) && width > 0 ? count / width : 0;
}

function bucketTable(buckets, count) {
  let below = 0;
  const rows = buckets.map((bucket) => {
    below += bucket.count;
    const share = (part) => (count > 0 ? `${((part / count) * 100).toFixed(1)} %` : "");
    const cells = [formatNumber(bucket.count), share(bucket.count), share(below)];
    return el(
      "tr",
      {},
      el("td", {}, el("code", {}, rangeText(bucket))),
      cells.map((text) => el("td", { class: "number" }, text)),
    );
  });
  const heads = ["Range", "Count", "Share", "Cumulative"].map((text, index) =>
    el("th", { scope: "col", class: index > 0 ? "number" : null }, text),
  );
  return el(
    "details",
    {},
    el("summary", {}, buckets.length === 1 ? "1 bucket" : `${buckets.length} buckets`),
    el("table", { class: "buckets" }, el("thead", {}, el("tr", {}, heads)), el("tbody", {}, rows)),
  );
}
