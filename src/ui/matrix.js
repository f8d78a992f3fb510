// Results of the API as rows: values on a grid of steps, with distinct names.

import { formatLabels, parseValue } from "./numbers.js";

/**
 * The rows of a range query's result on its grid of steps: [{ labels, values, short }], where
 * `short` leaves out the labels that all rows share. Steps without a float are NaN.
 */
export function gridRows(result, startMs, stepMs, count) {
  const shared = sharedLabels(result.map((series) => series.metric));
  return result.map(({ metric, values = [] }) => {
    const row = new Float64Array(count).fill(NaN);
    for (const [time, text] of values) {
      const index = Math.round((time * 1000 - startMs) / stepMs);
      if (index >= 0 && index < count) {
        row[index] = parseValue(text);
      }
    }
    return { labels: metric, values: row, short: shortName(metric, shared) };
  });
}

/** The labels that several label sets share, with their values. */
export function sharedLabels(sets) {
  if (sets.length < 2) {
    return {};
  }
  const [first, ...others] = sets;
  const shared = Object.entries(first).filter(([name, value]) =>
    others.every((set) => set[name] === value),
  );
  return Object.fromEntries(shared);
}

function shortName(labels, shared) {
  const name = formatLabels(labels, (label) => Object.hasOwn(shared, label));
  return name === "{}" ? formatLabels(labels) : name;
}

/** Minimum, maximum, last and mean of the values that are not NaN; NaN without any. */
export function summary(values) {
  let [min, max, last, sum, count] = [NaN, NaN, NaN, 0, 0];
  for (const value of values) {
    if (!Number.isNaN(value)) {
      min = value < min || Number.isNaN(min) ? value : min;
      max = value > max || Number.isNaN(max) ? value : max;
      last = value;
      sum += value;
      count += 1;
    }
  }
  return { min, max, last, mean: count > 0 ? sum / count : NaN };
}

/** Labels without the name of the metric. */
export function withoutName({ __name__: _, ...labels }) {
  return labels;
}

/**
 * The rows of a graph with its comparisons: rows of an earlier range are dashed and coloured like the
 * rows with their labels, and the rows of two queries are named A and B.
 */
export function comparedRows({ first, earlier = null, second = null, offset = "" }) {
  const named = (rows, name) =>
    second === null ? rows : rows.map((row) => ({ ...row, short: `${name} ${row.short}` }));
  const rows = named(first, "A");
  const places = new Map(first.map(({ labels }, index) => [formatLabels(labels), index]));
  const dashed = (earlier ?? []).map((row, index) => ({
    ...row,
    short: `${row.short} (${offset} before)`,
    isDashed: true,
    colourOf: places.get(formatLabels(row.labels)) ?? first.length + index,
  }));
  return [...rows, ...named(dashed, "A"), ...named(second ?? [], "B")];
}

/** The names of all labels, that of the metric first. */
export function labelColumns(result) {
  const names = new Set(result.flatMap(({ metric }) => Object.keys(metric)));
  const others = [...names].filter((name) => name !== "__name__").sort();
  return names.has("__name__") ? ["__name__", ...others] : others;
}
