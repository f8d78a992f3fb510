// An instant query's answer as a table.

import { button, el } from "./dom.js";
import { histogram } from "./histogram.js";
import {
  formatAge,
  formatLabels,
  formatNumber,
  formatTime,
  labelName,
  parseValue,
} from "./numbers.js";
import { settings } from "./settings.js";

const ROWS_MAX = 1000;
const SAMPLES_MAX = 100;

/** The answer `{ resultType, result }` as an element; times are told by `endMs`. */
export function table({ resultType, result }) {
  switch (resultType) {
    case "scalar":
      return rows([{ metric: null, cells: [valueCell(result[1])] }], 1);
    case "string":
      return rows([{ metric: null, cells: [el("td", {}, result[1])] }], 1);
    case "matrix":
      return rows(
        result.map((series) => ({ ...series, cells: [samplesCell(series)] })),
        result.length,
      );
    default:
      return vector(result);
  }
}

function vector(result) {
  const all = result.map((series) => ({
    metric: series.metric,
    value: series.value ? parseValue(series.value[1]) : NaN,
    cells: [series.value ? valueCell(series.value[1]) : histogramCell(series.histogram[1])],
  }));
  const holder = el("div", {});
  let order = null;
  const show = () => {
    const sorted =
      order === null ? all : [...all].sort((a, b) => order * (compared(a) - compared(b)));
    const heads = { sort, order: order === null ? "none" : order < 0 ? "descending" : "ascending" };
    holder.replaceChildren(rows(sorted, all.length, heads));
  };
  const sort = () => {
    order = order === null ? -1 : -order;
    show();
  };
  show();
  return holder;
}

function compared({ value }) {
  return Number.isNaN(value)
    ? -Number.MAX_VALUE
    : Math.max(-Number.MAX_VALUE, Math.min(Number.MAX_VALUE, value));
}

function rows(all, count, heads = null) {
  if (count === 0) {
    return el("p", { class: "empty" }, "No series at this time.");
  }
  const shown = all.slice(0, ROWS_MAX);
  const value = heads === null ? "Value" : button("Value", heads.sort);
  const head = el(
    "tr",
    {},
    all[0].metric === null ? null : el("th", {}, "Series"),
    el("th", { class: "number", "aria-sort": heads?.order }, value),
  );
  const body = shown.map(({ metric, cells }) =>
    el("tr", {}, metric === null ? null : el("td", {}, labels(metric)), cells),
  );
  return el(
    "div",
    { class: "scrolled", tabindex: "0", role: "region", "aria-label": "Result" },
    el("table", { class: "result" }, el("thead", {}, head), el("tbody", {}, body)),
    count > shown.length
      ? el("p", { class: "hint" }, `The first ${shown.length} of ${count} series.`)
      : null,
  );
}

/** Labels in colours. */
export function labels(metric) {
  const { __name__: name, ...rest } = metric;
  const pairs = Object.entries(rest);
  if (name === undefined && pairs.length === 0) {
    return el("code", { class: "series" }, "{}");
  }
  const shown = pairs.flatMap(([label, value], index) => [
    index > 0 ? ", " : "",
    el(
      "span",
      { class: "pair" },
      el("span", { class: "label" }, labelName(label)),
      "=",
      el("span", { class: "string" }, JSON.stringify(value)),
    ),
  ]);
  return el(
    "code",
    { class: "series" },
    name === undefined ? null : el("span", { class: "metric" }, formatLabels({ __name__: name })),
    pairs.length > 0 ? ["{", ...shown, "}"] : null,
  );
}

function valueCell(text) {
  const value = parseValue(text);
  return el("td", { class: "number", title: text }, formatNumber(value));
}

function samplesCell({ values = [], histograms = [] }) {
  const samples = [...values.map(([time, text]) => [time, formatNumber(parseValue(text))])];
  samples.push(...histograms.map(([time, { count, sum }]) => [time, `count ${count}, sum ${sum}`]));
  const shown = samples.slice(-SAMPLES_MAX);
  const lines = shown.map(([time, text]) =>
    el(
      "tr",
      {},
      el("td", { class: "number" }, text),
      el("td", { class: "when" }, formatTime(time * 1000, settings.isUtc)),
    ),
  );
  const rest = samples.length - shown.length;
  return el(
    "td",
    { class: "number" },
    el("table", { class: "samples" }, el("tbody", {}, lines)),
    rest > 0 ? el("p", { class: "hint" }, `and ${rest} before`) : null,
  );
}

function histogramCell(value) {
  return el("td", {}, histogram(value));
}

/** A time and how long ago that is. */
export function since(ms) {
  return `${formatTime(ms, settings.isUtc)} (${formatAge(Date.now() - ms)})`;
}
