// Retention and growth of the store, and the time at which its disk is full.

import { formatBytes, formatTime } from "./numbers.js";

const DAY = 86_400_000;

/** Facts of `status/storage` about the retention, as pairs of a name and a text. */
export function retentionFacts(retention, now) {
  const { limit, samples, rules, growthBytesPerDay, growthDays, freeBytes, fullTime } = retention;
  const shorter =
    rules > 0 ? `; shorter for some series (${rules} ${rules === 1 ? "rule" : "rules"})` : "";
  const growth =
    growthBytesPerDay === null
      ? "unknown: fewer than 2 complete days"
      : `${formatBytes(growthBytesPerDay)} (mean of ${growthDays} days)`;
  const facts = [
    ["Retention", (limit ?? "unlimited") + shorter],
    ...(samples === null ? [] : [["Retention of samples", `${samples}, then summaries`]]),
    ["Growth per day", growth],
  ];
  if (freeBytes !== null) {
    facts.push(["Disk space left", formatBytes(freeBytes)]);
  }
  if (limit === null && freeBytes !== null) {
    facts.push(["Disk full", fullTime === null ? "unknown" : fullText(fullTime, now)]);
  }
  return facts;
}

function fullText(time, now) {
  const days = Math.max(0, Math.floor((time - now) / DAY));
  return `${formatTime(time, true).slice(0, 10)} (in ${days} days)`;
}
