// Ranges of time by name, and times as the picker of the page reads and writes them.

import { formatTime, parseDuration, parseTime } from "./numbers.js";

const MINUTE = 60_000;
const HOUR = 60 * MINUTE;
const DAY = 24 * HOUR;

/** Ranges that end now: name and length in ms. */
const LAST = [
  ["Last 5 minutes", 5 * MINUTE],
  ["Last 15 minutes", 15 * MINUTE],
  ["Last hour", HOUR],
  ["Last 3 hours", 3 * HOUR],
  ["Last 12 hours", 12 * HOUR],
  ["Last 24 hours", DAY],
  ["Last 2 days", 2 * DAY],
  ["Last 7 days", 7 * DAY],
  ["Last 30 days", 30 * DAY],
  ["Last 90 days", 90 * DAY],
  ["Last year", 365 * DAY],
];

/** Named ranges: [{ name, startMs, endMs }]; `endMs` is null for ranges that end now. */
export function presets(nowMs, isUtc) {
  const today = startOfDay(nowMs, 0, isUtc);
  // Weeks begin on Monday.
  const sinceMonday = (weekday(nowMs, isUtc) + 6) % 7;
  const monday = startOfDay(nowMs, -sinceMonday, isUtc);
  const lastMonday = startOfDay(nowMs, -sinceMonday - 7, isUtc);
  return [
    ...LAST.map(([name, lengthMs]) => ({ name, startMs: nowMs - lengthMs, endMs: null })),
    { name: "Today so far", startMs: today, endMs: null },
    { name: "Yesterday", startMs: startOfDay(nowMs, -1, isUtc), endMs: today },
    { name: "This week so far", startMs: monday, endMs: null },
    { name: "Last week", startMs: lastMonday, endMs: monday },
  ];
}

/** Midnight of a day some days after that of a time, also across changes of the clock. */
function startOfDay(ms, days, isUtc) {
  const date = new Date(ms);
  return isUtc
    ? Date.UTC(date.getUTCFullYear(), date.getUTCMonth(), date.getUTCDate() + days)
    : new Date(date.getFullYear(), date.getMonth(), date.getDate() + days).getTime();
}

function weekday(ms, isUtc) {
  const date = new Date(ms);
  return isUtc ? date.getUTCDay() : date.getDay();
}

/** The ms of a time as `parseTime` reads it, of "now" or of "now-1h30m"; NaN if it is none. */
export function parseMoment(text, nowMs, isUtc) {
  const relative = /^now\s*(?:([-+])\s*(.+))?$/.exec(text.trim());
  if (relative === null) {
    return parseTime(text, isUtc);
  }
  const [, sign, duration] = relative;
  const away = sign === undefined ? 0 : parseDuration(duration);
  return nowMs + (sign === "-" ? -away : away);
}

/** A time as inputs of the browser take it: 2026-11-22T05:10:00. */
export function inputTime(ms, isUtc) {
  return formatTime(Math.floor(ms / 1000) * 1000, isUtc).replace(" ", "T");
}
