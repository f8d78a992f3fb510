// Selectors and addresses of links between the pages.

import { formatDuration, labelName } from "./numbers.js";

const RANGE_MS_MIN = 60_000;

/** A selector with one more matcher. */
export function narrowed(selector, label, value) {
  const matcher = `${labelName(label)}=${JSON.stringify(value)}`;
  const text = selector.trim();
  if (!text.endsWith("}")) {
    return `${text}{${matcher}}`;
  }
  const inner = text.slice(0, -1).trimEnd();
  return /[{,]$/.test(inner) ? `${inner}${matcher}}` : `${inner},${matcher}}`;
}

/** The metric of a selector that has no other matcher, or null. */
export function metricOf(selector) {
  const text = selector.trim();
  if (/^[a-zA-Z_:][\w:]*$/.test(text)) {
    return text;
  }
  const quoted = /^\{\s*__name__\s*=\s*("(?:[^"\\]|\\["\\])*")\s*\}$/.exec(text);
  return quoted === null ? null : JSON.parse(quoted[1]);
}

/** The address of the cardinality explorer for one metric. */
export function cardinalityOf(metric) {
  return `tsdb-status?${new URLSearchParams({ match: narrowed("", "__name__", metric) })}`;
}

/** The address of a query on the query page, over the length of its last range up to now. */
export function queryAddress({ query, start, end }, tab) {
  const search = new URLSearchParams({ "g0.expr": query, "g0.tab": tab });
  if (start !== undefined) {
    const rangeMs = Math.max(RANGE_MS_MIN, Math.round((end - start) * 1000));
    search.set("g0.range_input", formatDuration(rangeMs));
  }
  return `query?${search}`;
}
