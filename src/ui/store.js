// The store: head, caches, compaction, requests to the object store, and days.

import { ask } from "./api.js";
import { el, select } from "./dom.js";
import { figures, table } from "./facts.js";
import { formatAge, formatBytes, formatCount, formatTime } from "./numbers.js";
import { retentionFacts } from "./retention.js";
import { ownMetrics } from "./self.js";
import { since } from "./table.js";

/** Requests to the object store: text, name in metrics, and name of their bytes, of each reader. */
const REQUESTS = [
  ["Reads of queries", "reads", "read_bytes", "query"],
  ["Reads of compaction", "reads", "read_bytes", "compaction"],
  ["Reads of seals, cleanup and start", "reads", "read_bytes", "store"],
  ["Reads of manifests", "reads", "read_bytes", "manifest"],
  ["Writes", "writes", "written_bytes"],
  ["Lists", "lists"],
  ["Deleted objects", "deletes"],
];

/** Choices of the number of days in the list. */
const DAYS = ["10", "50", "200", "1000"];

/** The page; the address has the number of days. */
export async function store({ search, go, signal }) {
  const limit = DAYS.includes(search.get("days")) ? search.get("days") : DAYS[0];
  const [{ data }, own, daysShown] = await Promise.all([
    ask("status/storage", {}, signal),
    ownMetrics("tessella_storage_.*", signal),
    days(limit, go, signal),
  ]);
  const newest = data.newestTime === null ? "none" : since(data.newestTime);
  const facts = [
    ["Role", data.role],
    ["Series in memory", formatCount(data.headSeries)],
    ["Memory of the head", formatBytes(own.get("tessella_storage_head_bytes"))],
    ["SSTs", formatBytes(data.fileBytes)],
    ["Log not sealed", formatBytes(data.logBytes)],
    ["Samples appended since the start", formatCount(data.samplesAppended)],
    ["Samples rejected", formatCount(data.samplesRejected)],
    ["Newest sample", newest],
    ...retentionFacts(data.retention, Date.now()),
  ];
  const compaction = [
    ["Windows sealed since the start", formatCount(own.get("tessella_storage_seals_total"))],
    ["Blocks sealed", formatCount(own.get("tessella_storage_sealed_blocks_total"))],
    ["Bytes sealed", formatBytes(own.get("tessella_storage_sealed_bytes_total"))],
    ["Segments to compact", formatCount(own.get("tessella_storage_uncompacted_segments"))],
    ["Days deleted", formatCount(own.get("tessella_storage_partitions_deleted_total"))],
  ];
  return [
    figures(facts),
    el("h2", {}, "Caches"),
    caches(data.caches),
    el("h2", {}, "Seals and compaction"),
    figures(compaction),
    el("h2", {}, "Requests to the object store since the start"),
    requests(own),
    el("h2", {}, "Days on disk"),
    ...daysShown,
  ];
}

function caches(all) {
  const rows = all.map(({ name, bytes, bytesMax, hits, misses }) => {
    const lookups = hits + misses;
    const rate = lookups > 0 ? `${Math.round((hits / lookups) * 100)} %` : "none";
    const size = bytesMax > 0 ? `${formatBytes(bytes)} of ${formatBytes(bytesMax)}` : "off";
    return [name, size, formatCount(lookups), rate];
  });
  return table(["Cache", "Size", "Lookups", "Hit rate"], rows);
}

function requests(own) {
  const total = (name, reader) => own.get(`tessella_storage_object_store_${name}_total`, reader);
  const rows = REQUESTS.map(([text, count, bytes, reader]) => [
    text,
    formatCount(total(count, reader)),
    bytes === undefined ? "" : formatBytes(total(bytes, reader)),
  ]);
  return table(["Requests", "Number", "Bytes"], rows);
}

async function days(limit, go, signal) {
  let data;
  try {
    data = (await ask("status/days", { limit }, signal)).data;
  } catch (error) {
    if (error.name === "AbortError") {
      throw error;
    }
    return [el("p", { class: "message", role: "alert" }, error.message)];
  }
  if (data.count === 0) {
    const text = "No sealed day yet: all samples are in the head and the log.";
    return [el("p", { class: "hint" }, text)];
  }
  const rows = data.days.map(
    ({ start, end, series, blocks, blockBytes, blocksSummarized, bytes }) => [
      el("span", { class: "when" }, formatTime(start, true).slice(0, 10)),
      formatCount(series),
      formatCount(blocks),
      formatBytes(blockBytes),
      formatCount(blocksSummarized),
      formatBytes(bytes),
      series > 0 ? formatBytes(bytes / series) : "none",
      Date.now() < end ? "today" : formatAge(Date.now() - end),
    ],
  );
  const names = [
    ...["Day (UTC)", "Series", "Blocks", "In blocks", "Summarized blocks"],
    ...["On disk", "Per series", "Ended"],
  ];
  const choices = DAYS.map((count) => [count, `${count} days`]);
  const choose = (count) => go(count === DAYS[0] ? "store" : `store?days=${count}`);
  const more =
    data.count > Number(DAYS[0])
      ? el("div", { class: "filters" }, select("Days in the list", choices, limit, choose))
      : null;
  const hint =
    "tessella inspect counts the samples of a day, which takes a read of all its blocks.";
  return [more, table(names, rows), el("p", { class: "hint" }, hint)].filter((one) => one !== null);
}
