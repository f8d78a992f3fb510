// Buckets of native and classic histograms, and the axis on which they lie.
//
// A bucket is { lower, upper, count, rule }: `rule` is the API's number for the bounds that belong to it.
// Source: `histogram_quantile` in the Prometheus querying docs, for the bounds of classic buckets.

import { gridRows } from "./matrix.js";
import { formatLabels, formatNumber, formatTick, parseValue } from "./numbers.js";
import { valueTicks } from "./scales.js";

/** Brackets of the API's rules: open left, open right, open both, closed both. */
const BRACKETS = ["(]", "[)", "()", "[]"];
/** The rule of the bucket around zero: both bounds belong to it. */
export const CLOSED = 3;
/** Share of an exponential axis for the values around zero, and for each infinite bucket. */
const STRIP = 0.06;

/** The buckets of a native histogram of the API, from the lowest. */
export function nativeBuckets({ buckets = [] }) {
  const parsed = buckets.map(([rule, lower, upper, count]) => ({
    lower: parseValue(lower),
    upper: parseValue(upper),
    count: parseValue(count),
    rule,
  }));
  return parsed.sort((a, b) => a.lower - b.lower);
}

/**
 * The buckets of classic series at one time, from pairs of `le` and a cumulative count: each minus
 * the one below it. The lowest begins at 0, or at -Inf if its bound is not positive. A count that
 * falls, as scrapes at different times leave it, is an empty bucket.
 */
export function classicBuckets(pairs) {
  const sorted = pairs
    .filter(([le, count]) => !Number.isNaN(le) && !Number.isNaN(count))
    .sort((a, b) => a[0] - b[0]);
  const buckets = [];
  let [below, total] = [sorted[0]?.[0] > 0 ? 0 : -Infinity, 0];
  for (const [le, cumulative] of sorted) {
    if (le === below && buckets.length > 0) {
      continue;
    }
    buckets.push({ lower: below, upper: le, count: Math.max(0, cumulative - total), rule: 0 });
    below = le;
    total = Math.max(total, cumulative);
  }
  return buckets;
}

/** A bucket's range in words: (0.5, 1]. */
export function rangeText({ lower, upper, rule }) {
  const [open, close] = BRACKETS[rule] ?? BRACKETS[0];
  return `${open}${formatNumber(lower)}, ${formatNumber(upper)}${close}`;
}

/** Returns the kind of histograms in a range result: "native", "mixed" with floats, "classic" or null. */
export function histogramKind(result) {
  if (result.some((series) => series.histograms?.length > 0)) {
    return result.some((series) => series.values?.length > 0) ? "mixed" : "native";
  }
  const isClassic = result.length > 1 && result.every(({ metric }) => "le" in metric);
  return isClassic ? "classic" : null;
}

/**
 * The histograms of a range query on its grid of steps: [{ labels, columns }], where a column is a
 * list of buckets or null. Series that differ in `le` alone are one classic histogram.
 */
export function histogramRows(result, kind, { startMs, stepMs, count }) {
  const indexOf = (time) => Math.round((time * 1000 - startMs) / stepMs);
  if (kind !== "classic") {
    const found = result.filter((series) => series.histograms?.length > 0);
    return found.map(({ metric, histograms }) => {
      const columns = new Array(count).fill(null);
      for (const [time, histogram] of histograms) {
        const index = indexOf(time);
        if (index >= 0 && index < count) {
          columns[index] = nativeBuckets(histogram);
        }
      }
      return { labels: metric, columns };
    });
  }
  const groups = new Map();
  for (const row of gridRows(result, startMs, stepMs, count)) {
    const { le, ...labels } = row.labels;
    const key = formatLabels(labels);
    const group = groups.get(key) ?? { labels, series: [] };
    group.series.push([parseValue(le), row.values]);
    groups.set(key, group);
  }
  return [...groups.values()].map(({ labels, series }) => ({
    labels,
    columns: Array.from({ length: count }, (_, index) => {
      const buckets = classicBuckets(series.map(([le, values]) => [le, values[index]]));
      return buckets.length > 0 ? buckets : null;
    }),
  }));
}

/**
 * The axis of some buckets: { at(value), ticks(count) }, where `at` gives 0 for the lowest bound and
 * 1 for the highest, and ticks are [{ at, label }].
 *
 * Linear: finite bounds in proportion. Exponential: bounds by their logarithm, negative and positive
 * ones apart, with a strip for the values around zero: a bucket with zero inside, whose bounds may be
 * as small as 1e-128, is that strip. An infinite bucket is a strip at the edge.
 */
export function bucketScale(buckets, isExponential) {
  const bounds = boundsOf(buckets);
  const finite = bounds.filter(Number.isFinite);
  const [hasLow, hasHigh] = [bounds.includes(-Infinity), bounds.includes(Infinity)];
  const inner = isExponential ? exponential(buckets) : linear(finite);
  const low = hasLow ? STRIP : 0;
  const width = 1 - low - (hasHigh ? STRIP : 0);
  const at = (value) => {
    if (value === -Infinity) {
      return 0;
    }
    return value === Infinity ? 1 : low + width * Math.max(0, Math.min(1, inner.at(value)));
  };
  const ticks = (count) => inner.ticks(count).map(({ value, label }) => ({ at: at(value), label }));
  return { at, ticks };
}

function linear(finite) {
  const [least, most] = extent(finite);
  const [low, high] = least < most ? [least, most] : [least - 1, most + 1];
  return {
    at: (value) => (value - low) / (high - low),
    ticks: (count) => {
      const { ticks, step } = valueTicks(low, high, count);
      return ticks.map((value) => ({ value, label: formatTick(value, step) }));
    },
  };
}

function boundsOf(buckets) {
  return buckets.flatMap(({ lower, upper }) => [lower, upper]);
}

function exponential(buckets) {
  const others = buckets.filter(({ lower, upper }) => !(lower < 0 && upper > 0));
  const finite = boundsOf(others.length > 0 ? others : buckets).filter(Number.isFinite);
  const positive = extent(finite.filter((value) => value > 0));
  const negative = extent(finite.filter((value) => value < 0).map((value) => -value));
  const lengthOf = ([low, high]) => (low <= high ? Math.log(high / low) || 1 : 0);
  const [below, above] = [lengthOf(negative), lengthOf(positive)];
  const hasZero = finite.includes(0) || others.length < buckets.length;
  const isAcross = hasZero || (below > 0 && above > 0);
  const strip = isAcross ? (below + above || 1) * STRIP : 0;
  const total = below + strip + above || 1;
  const at = (value) => {
    if (value > 0 && above > 0) {
      const inside = Math.max(0, Math.min(above, Math.log(value / positive[0])));
      return (below + strip + inside) / total;
    }
    if (value < 0 && below > 0) {
      const inside = Math.max(0, Math.min(below, Math.log(-value / negative[0])));
      return (below - inside) / total;
    }
    // Zero lies at the far edge of its strip if there are bounds on one side only.
    return (below + (below > 0 && above > 0 ? strip / 2 : below > 0 ? strip : 0)) / total;
  };
  const ticks = (count) => {
    const share = (length) => Math.max(2, Math.round((count * length) / total));
    return [
      ...(below > 0 ? powers(negative, share(below)).map((value) => -value) : []).reverse(),
      ...(isAcross ? [0] : []),
      ...(above > 0 ? powers(positive, share(above)) : []),
    ].map((value) => ({ value, label: formatTick(value, Math.abs(value) || 1) }));
  };
  return { at, ticks };
}

/** Least and greatest value; [Infinity, -Infinity] if there are none. */
function extent(values) {
  return values.reduce(
    ([low, high], value) => [Math.min(low, value), Math.max(high, value)],
    [Infinity, -Infinity],
  );
}

/** Round values between two positive ones, about `count`: 1, 2 and 5 times powers of ten. */
function powers([low, high], count) {
  const decades = Math.log10(high / low);
  const factors = decades * 3 <= count * 1.5 ? [1, 2, 5] : [1];
  const stride = Math.max(1, Math.round((decades * factors.length) / count));
  const values = [];
  const first = Math.floor(Math.log10(low));
  for (let power = first; power <= Math.ceil(Math.log10(high)); power++) {
    if (factors.length === 1 && (power - first) % stride !== 0) {
      continue;
    }
    const round = factors.map((factor) => Number(`${factor}e${power}`));
    values.push(...round.filter((value) => value >= low * 0.999 && value <= high * 1.001));
  }
  return values;
}
