// Points of a line. If there are more points than pixels, each column of pixels keeps its first, lowest,
// highest and last value, so that no spike is lost.

/** Separator of two runs of a line. */
const GAP = NaN;

/**
 * The points of a line as x, y, x, y, …; a gap is a pair of NaN.
 *
 * `values` are those of evenly spaced steps, NaN where there is none; `x(index)` and `y(value)` give
 * pixels, x growing with the index.
 */
export function linePoints(values, x, y) {
  const perPixel =
    values.length > 1 ? (values.length - 1) / Math.max(1, x(values.length - 1) - x(0)) : 0;
  return perPixel > 2 ? columns(values, x, y) : all(values, x, y);
}

function all(values, x, y) {
  const points = [];
  let isOpen = false;
  for (let index = 0; index < values.length; index++) {
    const value = values[index];
    if (Number.isFinite(value)) {
      points.push(x(index), y(value));
      isOpen = true;
    } else if (isOpen) {
      points.push(GAP, GAP);
      isOpen = false;
    }
  }
  return points;
}

function columns(values, x, y) {
  const points = [];
  let index = 0;
  let hasGap = false;
  while (index < values.length) {
    const pixel = Math.floor(x(index));
    let [first, last, lowest, highest] = [-1, -1, -1, -1];
    for (; index < values.length && Math.floor(x(index)) === pixel; index++) {
      const value = values[index];
      if (!Number.isFinite(value)) {
        continue;
      }
      first = first < 0 ? index : first;
      last = index;
      lowest = lowest < 0 || value < values[lowest] ? index : lowest;
      highest = highest < 0 || value > values[highest] ? index : highest;
    }
    if (first < 0) {
      hasGap = points.length > 0;
      continue;
    }
    if (hasGap) {
      points.push(GAP, GAP);
      hasGap = false;
    }
    push(points, [first, Math.min(lowest, highest), Math.max(lowest, highest), last], values, x, y);
  }
  return points;
}

function push(points, indices, values, x, y) {
  let previous = -1;
  for (const index of indices) {
    if (index !== previous) {
      points.push(x(index), y(values[index]));
      previous = index;
    }
  }
}

/**
 * Each row plus all rows before it, those above zero and those below apart: { low, high } a row.
 */
export function stacked(rows, count) {
  const [above, below] = [new Float64Array(count), new Float64Array(count)];
  return rows.map((values) => {
    const low = new Float64Array(count).fill(NaN);
    const high = new Float64Array(count).fill(NaN);
    for (let index = 0; index < count; index++) {
      const value = values[index];
      if (Number.isFinite(value)) {
        const sums = value < 0 ? below : above;
        low[index] = sums[index];
        sums[index] += value;
        high[index] = sums[index];
      }
    }
    return { low, high };
  });
}
