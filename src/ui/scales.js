// Axes: ticks, steps and bounds.

const SECOND = 1000;
const MINUTE = 60 * SECOND;
const HOUR = 60 * MINUTE;
const DAY = 24 * HOUR;

/** Round steps of time, in ms. */
const STEPS = [
  ...[1, 2, 5, 10, 20, 50, 100, 200, 500],
  ...[1, 2, 5, 10, 15, 20, 30].map((count) => count * SECOND),
  ...[1, 2, 5, 10, 15, 20, 30].map((count) => count * MINUTE),
  ...[1, 2, 3, 4, 6, 12].map((count) => count * HOUR),
  ...[1, 2, 4, 7, 14, 28, 91, 182, 364].map((count) => count * DAY),
];
const MONTHS = "Jan Feb Mar Apr May Jun Jul Aug Sep Oct Nov Dec".split(" ");

/** The step of a query over a range that shows about one point every two pixels. */
export function stepFor(rangeMs, widthPixels) {
  const wanted = rangeMs / Math.max(50, Math.min(1000, widthPixels / 2));
  return STEPS.find((step) => step >= Math.max(wanted, SECOND)) ?? Math.ceil(wanted / DAY) * DAY;
}

/** Round numbers between two values, about `count` of them: { ticks, step }. */
export function valueTicks(min, max, count) {
  const raw = (max - min) / Math.max(1, count);
  if (!(raw > 0) || !Number.isFinite(raw)) {
    return { ticks: [min], step: Math.abs(min) || 1 };
  }
  const power = 10 ** Math.floor(Math.log10(raw));
  const step = power * [1, 2, 5, 10].find((factor) => factor * power >= raw * 0.999);
  const ticks = [];
  const first = Math.ceil(min / step - 1e-9);
  for (let index = first; index * step <= max + step * 1e-9 && ticks.length < 100; index++) {
    ticks.push(index * step);
  }
  return { ticks, step };
}

/** Times between two times, about `count` of them: { ms, label, isDay }. */
export function timeTicks(startMs, endMs, count, isUtc) {
  const wanted = (endMs - startMs) / Math.max(1, count);
  const step = STEPS.find((length) => length >= wanted) ?? 364 * DAY;
  const zone = (ms) => (isUtc ? 0 : new Date(ms).getTimezoneOffset() * MINUTE);
  const ticks = [];
  let local = Math.ceil((startMs - zone(startMs)) / step) * step;
  for (; ticks.length < 100; local += step) {
    // The offset of the zone is that of the tick, not that of the start.
    const ms = local + zone(local + zone(local));
    if (ms > endMs) {
      return ticks;
    }
    const isDay = local % DAY === 0;
    ticks.push({ ms, label: timeLabel(local, step, isDay), isDay });
  }
  return ticks;
}

function timeLabel(local, step, isDay) {
  const date = new Date(local);
  const day = `${date.getUTCDate()} ${MONTHS[date.getUTCMonth()]}`;
  if (step >= 182 * DAY) {
    return `${day} ${date.getUTCFullYear()}`;
  }
  if (isDay) {
    return day;
  }
  const text = date.toISOString();
  return step >= MINUTE
    ? text.slice(11, 16)
    : step >= SECOND
      ? text.slice(11, 19)
      : text.slice(17, 23);
}

/** The bounds of an axis around values: 0 is kept where it is near, and lines keep off the edge. */
export function axisBounds(min, max, hasZero) {
  if (!(min <= max)) {
    return [0, 1];
  }
  let [low, high] = [min, max];
  if (hasZero || (low > 0 && low < (high - low) * 2)) {
    low = Math.min(low, 0);
  }
  if (hasZero || (high < 0 && -high < (high - low) * 2)) {
    high = Math.max(high, 0);
  }
  if (low === high) {
    const around = Math.abs(low) / 2 || 1;
    return low === 0 ? [0, 1] : [low - around, high + around];
  }
  const margin = (high - low) * 0.05;
  return [low === 0 ? 0 : low - margin, high === 0 ? 0 : high + margin];
}
