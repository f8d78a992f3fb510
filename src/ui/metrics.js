// Type, help and unit of metrics, by metadata or by name, and queries to begin with.

import { formatCount } from "./numbers.js";

const PARTS = /_(bucket|sum|count|total|created)$/;

/** Type, help and unit of a metric; those of a histogram's parts are those of the histogram. */
export function describe(name, known) {
  const entry = known[name]?.[0] ?? known[name.replace(PARTS, "")]?.[0];
  const { type = "unknown", help = "", unit = "" } = entry ?? {};
  return { type, help, unit: unit || unitOf(name) };
}

function unitOf(name) {
  const plain = name.replace(/_(bucket|sum|total)$/, "");
  return /_(seconds|bytes|ratio|celsius|meters|volts|amperes|joules|grams)$/.exec(plain)?.[1] ?? "";
}

/** Queries to begin with, for a metric of a type. */
export function suggestedQueries(name, type) {
  const metric = /^[a-zA-Z_:][\w:]*$/.test(name) ? name : `{${JSON.stringify(name)}}`;
  if (name.endsWith("_bucket") && type !== "gauge") {
    const rate = `rate(${metric}[5m])`;
    return [0.5, 0.99].map((q) => `histogram_quantile(${q}, sum by (le) (${rate}))`);
  }
  if (type === "histogram" && !PARTS.test(name)) {
    return [0.5, 0.99].map((q) => `histogram_quantile(${q}, sum(rate(${metric}[5m])))`);
  }
  if (type === "counter" || /_(total|count|sum)$/.test(name)) {
    return [`rate(${metric}[5m])`, `sum(rate(${metric}[5m]))`, `sum(increase(${metric}[1h]))`];
  }
  return [metric, `avg(${metric})`, `max_over_time(${metric}[1h])`];
}

/**
 * The labels of some series, those with the most values first: [{ label, values }], of which
 * `values` are pairs of a value and its number of series, the most first.
 */
export function labelCounts(series) {
  const labels = new Map();
  for (const one of series) {
    for (const [label, value] of Object.entries(one)) {
      if (label === "__name__") {
        continue;
      }
      const counts = labels.get(label) ?? new Map();
      counts.set(value, (counts.get(value) ?? 0) + 1);
      labels.set(label, counts);
    }
  }
  const sorted = [...labels].map(([label, counts]) => {
    const values = [...counts].sort((a, b) => b[1] - a[1] || (a[0] < b[0] ? -1 : 1));
    return { label, values };
  });
  return sorted.sort((a, b) => b.values.length - a.values.length || (a.label < b.label ? -1 : 1));
}

/** The change of a count: "+5", "−3", "new" or "0". */
export function changeText(count, before) {
  if (count === before) {
    return "0";
  }
  if (before === 0) {
    return "new";
  }
  return count > before ? `+${formatCount(count - before)}` : `−${formatCount(before - count)}`;
}
