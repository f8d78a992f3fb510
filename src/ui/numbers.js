// Numbers, sizes, durations and times: formatted and parsed.

const MINUTE = 60_000;
const HOUR = 60 * MINUTE;
const DAY = 24 * HOUR;
const UNITS = [
  ["y", 365 * DAY],
  ["w", 7 * DAY],
  ["d", DAY],
  ["h", HOUR],
  ["m", MINUTE],
  ["s", 1000],
  ["ms", 1],
];
const PREFIXES = ["", "k", "M", "G", "T", "P", "E"];
const BYTE_PREFIXES = ["B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];

/** A number as the API writes it: "NaN" and "+Inf" are texts there. */
export function parseValue(text) {
  switch (text) {
    case "+Inf":
      return Infinity;
    case "-Inf":
      return -Infinity;
    default:
      return Number(text);
  }
}

/** A number with up to six significant digits and separated thousands. */
export function formatNumber(value) {
  if (!Number.isFinite(value)) {
    return Number.isNaN(value) ? "NaN" : value > 0 ? "+Inf" : "-Inf";
  }
  const size = Math.abs(value);
  if (value === 0) {
    return "0";
  }
  if (size < 1e-4 || size >= 1e15) {
    return trimmed(value.toExponential(4));
  }
  const digits = Math.max(0, Math.min(8, 5 - Math.floor(Math.log10(size))));
  const [whole, fraction] = value.toFixed(digits).split(".");
  const apart = whole.replace(/\B(?=(\d{3})+$)/g, "\u202f");
  return fraction === undefined ? apart : trimmed(`${apart}.${fraction}`);
}

/** A short number for an axis; `step` is the distance of two ticks. */
export function formatTick(value, step) {
  const size = Math.max(Math.abs(value), step);
  if (value === 0) {
    return "0";
  }
  if (size < 1e-4 || size >= 1e21) {
    return trimmed(value.toExponential(2));
  }
  const power = size < 1e4 ? 0 : Math.min(6, Math.floor(Math.log10(size) / 3 + 1e-9));
  const scaled = value / 1000 ** power;
  const decimals = Math.max(0, Math.min(6, -Math.floor(Math.log10(step / 1000 ** power) + 1e-9)));
  return trimmed(scaled.toFixed(decimals)) + PREFIXES[power];
}

/** A number without trailing zeros after the point. */
function trimmed(text) {
  return text.replace(/(\.\d*?)0+(?=e|$)/, "$1").replace(/\.(?=e|$)/, "");
}

/** A count in a few characters: 12.3k. */
export function formatCount(count) {
  return count < 10_000
    ? formatNumber(count)
    : formatTick(count, 10 ** Math.floor(Math.log10(count) - 2));
}

/** A size in bytes. */
export function formatBytes(bytes) {
  const power = bytes < 1024 ? 0 : Math.min(6, Math.floor(Math.log2(bytes) / 10));
  const scaled = bytes / 1024 ** power;
  const digits = power === 0 || scaled >= 100 ? 0 : scaled >= 10 ? 1 : 2;
  return `${trimmed(scaled.toFixed(digits))} ${BYTE_PREFIXES[power]}`;
}

/** An elapsed time in seconds. */
export function formatSeconds(seconds) {
  const size = Math.abs(seconds);
  if (size >= 60) {
    return formatDuration(Math.round(seconds) * 1000);
  }
  const [factor, unit] =
    size >= 1 ? [1, "s"] : size >= 1e-3 || size === 0 ? [1e3, "ms"] : [1e6, "µs"];
  const scaled = seconds * factor;
  return `${trimmed(scaled.toFixed(Math.abs(scaled) >= 100 ? 0 : Math.abs(scaled) >= 10 ? 1 : 2))} ${unit}`;
}

/** A duration in ms as PromQL writes it: 1h30m. */
export function formatDuration(ms) {
  if (ms === 0) {
    return "0s";
  }
  let rest = Math.round(Math.abs(ms));
  let text = ms < 0 ? "-" : "";
  for (const [unit, length] of UNITS) {
    const isWhole = (unit !== "w" && unit !== "y") || rest % length === 0;
    const count = isWhole ? Math.floor(rest / length) : 0;
    if (count > 0) {
      text += count + unit;
      rest -= count * length;
    }
  }
  return text;
}

/** The ms of a duration such as 1h30m or 1.5h, or of a plain number of seconds; NaN if it is none. */
export function parseDuration(text) {
  const plain = text.trim();
  if (/^\d+(\.\d+)?$/.test(plain)) {
    return Number(plain) * 1000;
  }
  if (!/^(\d+(\.\d+)?(ms|[smhdwy])\s*)+$/.test(plain)) {
    return NaN;
  }
  let ms = 0;
  for (const [, count, unit] of plain.matchAll(/([\d.]+)(ms|[smhdwy])/g)) {
    ms += Number(count) * UNITS.find(([name]) => name === unit)[1];
  }
  return Math.round(ms);
}

/** A date whose UTC fields are those of a time in the zone that is shown. */
function shown(ms, isUtc) {
  return new Date(isUtc ? ms : ms - new Date(ms).getTimezoneOffset() * MINUTE);
}

/** A time in full: 2026-11-22 05:10:00. */
export function formatTime(ms, isUtc) {
  const date = shown(ms, isUtc);
  if (Number.isNaN(date.getTime())) {
    return "out of range";
  }
  const text = date.toISOString().replace("T", " ");
  return text.slice(0, ms % 1000 === 0 ? -5 : -1);
}

/** The ms of such a time, or of seconds since the epoch; NaN if it is none. */
export function parseTime(text, isUtc) {
  const plain = text.trim();
  if (/^-?\d+(\.\d+)?$/.test(plain)) {
    return Number(plain) * 1000;
  }
  const fields = /^(\d{4})-(\d\d?)-(\d\d?)(?:[T ](\d\d?):(\d\d)(?::(\d\d(?:\.\d+)?))?)?(Z)?$/.exec(
    plain,
  );
  if (!fields) {
    return Date.parse(plain);
  }
  const [year, month, day, hour, minute, second] = fields
    .slice(1, 7)
    .map((field) => Number(field ?? 0));
  const rest = [year, month - 1, day, hour, minute, 0, Math.round(second * 1000)];
  return isUtc || fields[7] ? Date.UTC(...rest) : new Date(...rest).getTime();
}

/** An age in ms in words. */
export function formatAge(ms) {
  if (ms < 1000) {
    return "just now";
  }
  const [unit, length] = UNITS.find(([name, size]) => ms >= size && name !== "w");
  return `${Math.floor(ms / length)}${unit} ago`;
}

/** Labels as PromQL writes them, the metric's name first. */
export function formatLabels(labels, isLeftOut = () => false) {
  const { __name__: name = "", ...rest } = labels;
  const pairs = Object.entries(rest)
    .filter(([label]) => !isLeftOut(label))
    .map(([label, value]) => `${labelName(label)}=${JSON.stringify(value)}`);
  const isPlain = /^[a-zA-Z_:][\w:]*$/.test(name) || name === "";
  const shownName = isLeftOut("__name__") ? "" : name;
  if (!isPlain && shownName !== "") {
    pairs.unshift(JSON.stringify(name));
    return `{${pairs.join(", ")}}`;
  }
  return pairs.length > 0 || shownName === "" ? `${shownName}{${pairs.join(", ")}}` : shownName;
}

/** A label's name as PromQL writes it. */
export function labelName(name) {
  return /^[a-zA-Z_]\w*$/.test(name) ? name : JSON.stringify(name);
}
