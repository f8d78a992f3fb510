// The result of an instant query as a table: a column for each label, sorted, filtered and exported.

import { button, el } from "./dom.js";
import { copy, csv, fileName, save } from "./export.js";
import { histogram } from "./histogram.js";
import { labelColumns } from "./matrix.js";
import { formatAge, formatLabels, formatNumber, formatTime, parseValue } from "./numbers.js";
import { settings } from "./settings.js";

const ROWS_MAX = 1000;
const SAMPLES_MAX = 100;
const FILTER_FROM = 4;
const VALUE = "value";

/** The result `{ resultType, result }` of a query as an element. */
export function table({ resultType, result }, expr) {
  if (resultType === "scalar" || resultType === "string") {
    const isNumber = resultType === "scalar";
    const cell = isNumber ? valueCell(result[1]) : el("td", {}, result[1]);
    const head = el("th", { scope: "col", class: isNumber ? "number" : null }, "Value");
    const rows = [el("thead", {}, el("tr", {}, head)), el("tbody", {}, el("tr", {}, cell))];
    return scrolled(el("table", { class: "result" }, rows));
  }
  if (result.length === 0) {
    return el("p", { class: "empty" }, "No series at this time.");
  }
  return new ResultTable(result, expr).element;
}

/** Series with their labels in columns: { element }. */
class ResultTable {
  constructor(result, expr) {
    this.expr = expr;
    this.result = result;
    this.columns = labelColumns(result);
    this.rows = result.map((series, index) => ({
      ...{ index, series, metric: series.metric },
      value: series.value ? parseValue(series.value[1]) : NaN,
      text: formatLabels(series.metric).toLowerCase(),
    }));
    Object.assign(this, { filter: "", sorted: { column: null, isDown: true } });
    this.heads = el("tr", {});
    this.body = el("tbody", {});
    this.more = el("p", { class: "hint" });
    const whole = el("table", { class: "result" }, el("thead", {}, this.heads), this.body);
    this.element = el("div", {}, this.#controls(), scrolled(whole), this.more);
    this.#list();
  }

  #controls() {
    const input = el("input", {
      type: "search",
      placeholder: `Filter ${this.rows.length} series`,
      "aria-label": "Filter series",
      oninput: () => {
        this.filter = input.value.trim().toLowerCase();
        this.#list();
      },
    });
    const told = el("span", { class: "hint", role: "status" });
    const copied = () =>
      copy(csv(this.#cells())).then(
        () => (told.textContent = "Copied"),
        (error) => (told.textContent = error.message),
      );
    const buttons = [
      told,
      button("Copy", copied, { title: "Copy the table as CSV" }),
      button("CSV", () => save(fileName(this.expr, "csv"), "text/csv", csv(this.#cells()))),
      button("JSON", () => save(fileName(this.expr, "json"), "application/json", this.#json())),
    ];
    const shown = this.rows.length >= FILTER_FROM ? input : "";
    return el("div", { class: "controls" }, shown, el("div", { class: "exports" }, buttons));
  }

  #list() {
    const columns = [...this.columns, VALUE];
    this.heads.replaceChildren(...columns.map((column) => this.#head(column)));
    const fitting = this.#fitting();
    const shown = fitting.slice(0, ROWS_MAX);
    this.body.replaceChildren(...shown.flatMap((row) => this.#lines(row)));
    const isCut = fitting.length > shown.length;
    this.more.textContent = isCut ? `The first ${shown.length} of ${fitting.length} series.` : "";
  }

  #head(column) {
    const { column: sorted, isDown } = this.sorted;
    const isNumber = column === VALUE;
    const order = sorted === column ? (isDown ? "descending" : "ascending") : "none";
    const sort = () => {
      // Values begin with the largest, labels with the first.
      this.sorted = { column, isDown: sorted === column ? !isDown : isNumber };
      this.#list();
      this.heads.children[[...this.columns, VALUE].indexOf(column)].firstChild.focus();
    };
    const name = isNumber ? "Value" : column === "__name__" ? "Metric" : column;
    const properties = { scope: "col", class: isNumber ? "number" : null, "aria-sort": order };
    return el("th", properties, button(name, sort));
  }

  #fitting() {
    const words = this.filter.split(/\s+/).filter(Boolean);
    const fitting = this.rows.filter(({ text }) => words.every((word) => text.includes(word)));
    const { column, isDown } = this.sorted;
    if (column === null) {
      return fitting;
    }
    const by =
      column === VALUE
        ? (a, b) => orderOf(a.value) - orderOf(b.value)
        : (a, b) => compareTexts(a.metric[column] ?? "", b.metric[column] ?? "");
    return fitting.sort((a, b) => (isDown ? -by(a, b) : by(a, b)) || a.index - b.index);
  }

  /** The line of a series; of a histogram also one for its chart. */
  #lines({ metric, series }) {
    const cells = this.columns.map((column) => {
      const kind = column === "__name__" ? "metric" : "label-value";
      return el("td", { class: kind }, metric[column] ?? "");
    });
    const line = el("tr", {}, cells, resultCell(series));
    if (!series.histogram) {
      return [line];
    }
    const chart = el("td", { colspan: cells.length + 1 }, histogram(series.histogram[1]));
    return [line, el("tr", { class: "chart" }, chart)];
  }

  /** The rows as they are listed, without a limit. */
  #cells() {
    const rows = this.#fitting().flatMap(({ metric, series }) => {
      const labels = this.columns.map((column) => metric[column] ?? "");
      return samplesOf(series).map(([time, value]) => [...labels, time, value]);
    });
    return [[...this.columns, "timestamp", VALUE], ...rows];
  }

  #json() {
    return `${JSON.stringify(
      this.#fitting().map(({ series }) => series),
      null,
      2,
    )}\n`;
  }
}

/** NaN is below all numbers; infinities are comparable. */
function orderOf(value) {
  return Number.isNaN(value)
    ? -Number.MAX_VALUE
    : Math.max(-Number.MAX_VALUE, Math.min(Number.MAX_VALUE, value));
}

const { compare: compareTexts } = new Intl.Collator("en", { numeric: true });

/** Pairs of a time in seconds and a value as text; of a histogram its count and sum. */
function samplesOf({ value, histogram: single, values = [], histograms = [] }) {
  const floats = value ? [value] : values;
  const counted = (single ? [single] : histograms).map(([time, { count, sum }]) => [
    time,
    `count=${count} sum=${sum}`,
  ]);
  return [...floats, ...counted];
}

function scrolled(whole) {
  const region = { class: "scrolled", tabindex: "0", role: "region", "aria-label": "Result" };
  return el("div", region, whole);
}

function resultCell(series) {
  if (series.histogram) {
    const { count } = series.histogram[1];
    return el("td", { class: "number" }, `count ${formatNumber(parseValue(count))}`);
  }
  return series.value ? valueCell(series.value[1]) : samplesCell(series);
}

function valueCell(text) {
  const value = parseValue(text);
  return el("td", { class: "number", title: text }, formatNumber(value));
}

function samplesCell(series) {
  const samples = samplesOf(series);
  const shown = samples.slice(-SAMPLES_MAX);
  const lines = shown.map(([time, text]) =>
    el(
      "tr",
      {},
      el("td", { class: "number" }, sampleText(text)),
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

/** A value with its digits separated; of a histogram its count and sum. */
function sampleText(text) {
  const found = /^count=(\S+) sum=(\S+)$/.exec(text);
  const format = (value) => formatNumber(parseValue(value));
  return found ? `count ${format(found[1])}, sum ${format(found[2])}` : format(text);
}

/** A time and its age. */
export function since(ms) {
  return `${formatTime(ms, settings.isUtc)} (${formatAge(Date.now() - ms)})`;
}
