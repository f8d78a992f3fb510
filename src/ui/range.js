// The result of a range query: lines, stacked areas or a heatmap, with exemplars and comparisons.

import { ask } from "./api.js";
import { histogramKind, histogramRows, rangeText } from "./buckets.js";
import { button, el, select } from "./dom.js";
import { chartImage, fileName, gridCsv, save } from "./export.js";
import { Graph } from "./graph.js";
import { Heatmap } from "./heatmap.js";
import { axisChoice } from "./histogram.js";
import { Legend } from "./legend.js";
import { comparedRows, gridRows, sharedLabels, withoutName } from "./matrix.js";
import { formatCount, formatDuration, formatLabels, parseValue } from "./numbers.js";
import { colour, heatColour, quantileColour } from "./palette.js";
import { isDark } from "./settings.js";

const SERIES_MAX = 1000;
const EXEMPLARS_MAX = 1000;
const QUANTILES = [0.5, 0.9, 0.99];
const HEAT_STEPS = 12;

/** The view: { element, graph, load(state, grid, signal), show(loaded), remove() }. */
export class RangeView {
  /** `onZoom(startMs, endMs)` is called after dragging, `onQuery(text)` with a query to run instead. */
  constructor({ onZoom, onQuery }) {
    this.onQuery = onQuery;
    this.graph = new Graph({ onZoom });
    this.heatmap = new Heatmap({ onZoom });
    this.legend = new Legend(this.graph);
    this.shared = el("p", { class: "shared" });
    this.heatControls = el("div", { class: "heat-controls" });
    const save = (kind) => () => this.#save(kind);
    this.exports = el("div", { class: "exports" }, [
      button("PNG", save("png"), { title: "Save the graph as an image" }),
      button("CSV", save("csv"), { title: "Save the values of the graph" }),
    ]);
    this.element = el("div", {});
  }

  remove() {
    this.graph.remove();
    this.heatmap.remove();
  }

  /** Saves the chart as it is shown. */
  async #save(kind) {
    const { kind: heatKind, state, heat } = this.loaded;
    const isHeat = heatKind !== null;
    if (kind === "csv") {
      const rows = isHeat ? heatRows(heat) : this.legend.shownRows();
      const { startMs, stepMs, count } = this.loaded.grid;
      const text = gridCsv({ startMs, stepMs, count, rows });
      save(fileName(state.expr, "csv"), "text/csv", text);
      return;
    }
    const dark = isDark();
    const names = isHeat
      ? heat.quantiles
          .map(({ name }, index) => ({ name, colour: quantileColour(index, dark) }))
          .concat(this.heatmap.colours())
      : this.legend
          .shownRows()
          .map((row) => ({ name: row.short, colour: colour(row.colourOf ?? row.index, dark) }));
    const image = await chartImage(isHeat ? this.heatmap : this.graph, state.expr, names);
    save(fileName(state.expr, "png"), "image/png", image);
  }

  /**
   * Asks for all that a panel's state shows. Errors are those of `ask`; a failed comparison or list
   * of exemplars becomes a warning.
   */
  async load(state, grid, signal) {
    this.chooser?.abort();
    const { expr, other } = state;
    // Stacked areas of two ranges would add up.
    const offsetMs = state.mode === "lines" ? state.offsetMs : 0;
    const warnings = [];
    const optional = (promise, name) =>
      promise.catch((error) => {
        if (error.name === "AbortError") {
          throw error;
        }
        warnings.push(`${name}: ${error.message}`);
        return { data: { result: [] }, warnings: [], infos: [] };
      });
    const moved = { ...grid, startMs: grid.startMs - offsetMs, endMs: grid.endMs - offsetMs };
    const [main, earlier, second, exemplars] = await Promise.all([
      askRange(expr, grid, signal),
      offsetMs > 0 ? optional(askRange(expr, moved, signal), "Comparison") : null,
      other ? optional(askRange(other, grid, signal), "Query B") : null,
      state.hasExemplars ? optional(askExemplars(expr, grid, signal), "Exemplars") : null,
    ]);
    const all = [main, earlier, second].filter((one) => one !== null);
    const { result } = main.data;
    const kind = histogramKind(result);
    if (kind === null && state.mode === "heatmap") {
      warnings.push("A heatmap needs native histograms, or classic ones with the label le.");
    }
    const isHeatmap = kind === "native" || (kind !== null && state.mode === "heatmap");
    if (kind === "mixed") {
      const hidden = result.filter((one) => (isHeatmap ? one.values : one.histograms)?.length > 0);
      warnings.push(
        isHeatmap
          ? `${hidden.length} series with floats are not part of the heatmap; "Lines" shows them.`
          : `${hidden.length} series with histograms are not drawn; "Heatmap" shows them.`,
      );
    }
    const loaded = {
      grid,
      state: { ...state },
      // The histograms that are drawn as a heatmap, and those that could be.
      kind: isHeatmap ? kind : null,
      buckets: kind,
      result,
      earlier: earlier?.data.result ?? null,
      second: second?.data.result ?? null,
      exemplars: exemplarsOf(exemplars?.data),
      warnings: [...warnings, ...all.flatMap((one) => one.warnings)],
      infos: all.flatMap((one) => one.infos),
      count: all.reduce((sum, one) => sum + one.data.result.length, 0),
    };
    if (isHeatmap) {
      loaded.histograms = histogramRows(result, kind, grid);
      loaded.group = this.#groupOf(loaded.histograms);
      loaded.heat = await askHeat(loaded, signal);
    }
    return loaded;
  }

  /** The histogram that was chosen last if it is there, else the sum of all. */
  #groupOf(histograms) {
    if (histograms.length < 2) {
      return 0;
    }
    const index = histograms.findIndex(({ labels }) => formatLabels(labels) === this.chosen);
    return index >= 0 ? index : "sum";
  }

  /** Shows what `load` returned; false if there is nothing to draw. */
  show(loaded) {
    this.loaded = loaded;
    return loaded.kind === null ? this.#showLines(loaded) : this.#showHeatmap(loaded);
  }

  #place(...elements) {
    const isPlaced = elements.every((one, index) => this.element.children[index] === one);
    if (!isPlaced) {
      this.element.replaceChildren(...elements);
    }
  }

  #showLines({ grid, state, result, earlier, second, exemplars }) {
    const { startMs, stepMs, count } = grid;
    const first = gridRows(result, startMs, stepMs, count);
    const rows = comparedRows({
      first,
      earlier: earlier && gridRows(earlier, startMs - state.offsetMs, stepMs, count),
      second: second && gridRows(second, startMs, stepMs, count),
      offset: formatDuration(state.offsetMs),
    });
    const hasValue = (row) => row.values.some((value) => !Number.isNaN(value));
    if (!rows.some(hasValue)) {
      return false;
    }
    const shared = sharedLabels(rows.map((row) => row.labels));
    const note = Object.keys(shared).length > 0 ? `All: ${formatLabels(shared)}` : "";
    this.#place(this.graph.element, this.exports, this.shared, this.legend.element);
    this.shared.textContent = note;
    this.graph.exemplars = exemplars;
    this.graph.show({ ...grid, rows }, state.mode === "stacked");
    this.legend.show(rows);
    return true;
  }

  #showHeatmap(loaded) {
    const { grid, heat, exemplars } = loaded;
    if (!heat.columns.some((column) => column?.length > 0)) {
      return false;
    }
    this.#place(this.heatControls, this.heatmap.element, this.exports, this.shared);
    const { labels } = heat;
    this.shared.textContent = Object.keys(labels).length > 0 ? formatLabels(labels) : "";
    this.heatmap.exemplars = exemplars;
    this.heatmap.show({ ...grid, ...heat });
    this.heatControls.replaceChildren(
      this.#groups(loaded),
      axisChoice((isExponential) => this.heatmap.setExponential(isExponential)),
      this.#colourScale(),
      quantileNames(heat.quantiles),
      this.#counterHint(loaded),
    );
    const [first, second] = this.heatControls.querySelectorAll(".axis button");
    first.setAttribute("aria-pressed", String(this.heatmap.isExponential));
    second.setAttribute("aria-pressed", String(!this.heatmap.isExponential));
    return true;
  }

  /** Choice of the histogram, if there are several. */
  #groups(loaded) {
    const { histograms, group } = loaded;
    if (histograms.length < 2) {
      return "";
    }
    const options = [
      ["sum", `Sum of ${histograms.length} histograms`],
      ...histograms.map(({ labels }, index) => [String(index), formatLabels(labels)]),
    ];
    return select("Histogram", options, String(group), async (value) => {
      loaded.group = value === "sum" ? "sum" : Number(value);
      this.chosen = value === "sum" ? null : formatLabels(histograms[loaded.group].labels);
      this.chooser?.abort();
      this.chooser = new AbortController();
      const heat = await askHeat(loaded, this.chooser.signal).catch(() => null);
      if (heat !== null) {
        loaded.heat = heat;
        this.#showHeatmap(loaded);
        this.heatControls.querySelector("select").focus();
      }
    });
  }

  #colourScale() {
    const shares = Array.from({ length: HEAT_STEPS + 1 }, (_, index) => index / HEAT_STEPS);
    const stops = shares.map((share) => heatColour(share, isDark()));
    const strip = el("span", { class: "heat-strip" });
    strip.style.background = `linear-gradient(90deg, ${stops.join(", ")})`;
    const most = formatCount(Number(this.heatmap.most.toPrecision(3)));
    const name = `Colours from 0 to ${most} in a bucket`;
    return el("span", { class: "heat-scale", role: "img", "aria-label": name }, "0", strip, most);
  }

  /** Counters hide what happens now: offers their rate. */
  #counterHint({ state, histograms }) {
    const isCounter = histograms.every(({ labels }) => "__name__" in labels);
    if (!isCounter || /[()[\]]/.test(state.expr)) {
      return "";
    }
    const query = `rate(${state.expr}[5m])`;
    return el(
      "span",
      { class: "hint" },
      "These are counts since the start of each series. ",
      button("Show the rate", () => this.onQuery(query), { class: "inline", title: query }),
    );
  }
}

/** The buckets and quantiles of a heatmap as rows. */
function heatRows({ columns, quantiles }) {
  const rows = new Map();
  columns.forEach((column, index) =>
    (column ?? []).forEach((bucket) => {
      const name = rangeText(bucket);
      const row = rows.get(name) ?? {
        short: name,
        values: new Float64Array(columns.length).fill(NaN),
      };
      row.values[index] = bucket.count;
      rows.set(name, row);
    }),
  );
  const lines = quantiles.map(({ name, values }) => ({ short: name, values }));
  return [...rows.values(), ...lines];
}

function quantileNames(quantiles) {
  return el(
    "span",
    { class: "quantiles" },
    quantiles.map(({ name }, index) => {
      const swatch = el("span", { class: "swatch line" });
      swatch.style.background = quantileColour(index, isDark());
      return el("span", {}, swatch, name);
    }),
  );
}

function askRange(query, { startMs, endMs, stepMs }, signal) {
  const times = { start: startMs / 1000, end: endMs / 1000, step: stepMs / 1000 };
  return ask("query_range", { query, ...times, limit: SERIES_MAX }, signal);
}

function askExemplars(query, { startMs, endMs }, signal) {
  return ask("query_exemplars", { query, start: startMs / 1000, end: endMs / 1000 }, signal);
}

/** Exemplars of all series, the newest if there are too many. */
function exemplarsOf(data) {
  const listed = Array.isArray(data) ? data : [];
  const all = listed.flatMap(({ seriesLabels, exemplars }) =>
    exemplars.map(({ labels, value, timestamp }) => ({
      ms: timestamp * 1000,
      value: parseValue(value),
      labels,
      series: seriesLabels,
    })),
  );
  const known = all.filter(({ value }) => Number.isFinite(value)).sort((a, b) => a.ms - b.ms);
  return known.slice(-EXEMPLARS_MAX);
}

/**
 * The chosen histogram with its quantiles: { labels, columns, quantiles }. The server adds up the
 * histograms and computes the quantiles, so that all values are those of the query language.
 */
async function askHeat({ state, kind, grid, histograms, group }, signal) {
  const isSum = group === "sum";
  const sum = kind === "classic" ? "sum by (le)" : "sum";
  // Comments end with their line.
  const expr = state.expr.includes("#") ? `${state.expr}\n` : state.expr;
  const summed = kind === "mixed" ? `(${expr}) and histogram_count(${expr})` : expr;
  const query = isSum ? `${sum} (${summed})` : expr;
  const [whole, ...answers] = await Promise.all([
    isSum ? askRange(query, grid, signal) : null,
    ...QUANTILES.map((q) => askRange(`histogram_quantile(${q}, ${query})`, grid, signal)),
  ]);
  const rows = isSum ? histogramRows(whole.data.result, kind, grid) : histograms;
  const chosen = rows[isSum ? 0 : group] ?? { labels: {}, columns: [] };
  const wanted = formatLabels(withoutName(chosen.labels));
  const quantiles = answers.map(({ data }, index) => {
    const series = data.result.filter(({ metric }) => formatLabels(metric) === wanted);
    const [row] = gridRows(series.slice(0, 1), grid.startMs, grid.stepMs, grid.count);
    const values = row?.values ?? new Float64Array(grid.count).fill(NaN);
    return { name: `p${QUANTILES[index] * 100}`, values };
  });
  return { ...chosen, quantiles };
}
