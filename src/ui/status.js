// The status pages: each path is one part, built from answers of the server.

import { ask } from "./api.js";
import { el, isPlainClick, markCurrent } from "./dom.js";
import { codeWithBar, figures, table } from "./facts.js";
import { formatAge, formatBytes, formatCount, formatTime } from "./numbers.js";
import { retentionFacts } from "./retention.js";
import { settings } from "./settings.js";
import { since } from "./table.js";
import { alerts, rules, serviceDiscovery, targets } from "./watched.js";

const ROWS = 10;

/** Parts by path: name, and the function that builds the elements. */
const PARTS = {
  status: ["Store", store],
  "tsdb-status": ["Cardinality", cardinality],
  flags: ["Flags", flags],
  config: ["Configuration", config],
  targets: ["Targets", targets],
  "service-discovery": ["Service discovery", serviceDiscovery],
  rules: ["Rules", rules],
  alerts: ["Alerts", alerts],
};

/** The paths of the status pages. */
export const statusPaths = Object.keys(PARTS);

/** The page: { element, title, enter(search, path), leave() }. */
export class StatusPage {
  title = "Status";
  search = "";

  constructor({ go }) {
    this.go = go;
    const links = Object.entries(PARTS).map(([path, [name]]) => {
      const link = el("a", { href: path }, name);
      link.addEventListener("click", (event) => {
        if (isPlainClick(event)) {
          event.preventDefault();
          go(path);
        }
      });
      return link;
    });
    this.links = el("nav", { class: "parts", "aria-label": "Parts of the status" }, links);
    this.holder = el("div", { class: "panel part" });
    this.element = el("div", {}, this.links, this.holder);
  }

  async enter(_search, path) {
    const [name, build] = PARTS[path] ?? PARTS.status;
    this.title = name;
    markCurrent(this.links.children, (link) => link.textContent === name);
    this.path = path;
    let shown;
    try {
      shown = await build({ go: this.go });
    } catch (error) {
      shown = [el("p", { class: "message", role: "alert" }, error.message)];
    }
    if (this.path === path) {
      this.holder.replaceChildren(el("h1", {}, name), ...shown);
    }
  }

  leave() {}

  focus() {
    this.links.querySelector("a").focus();
  }
}

async function store() {
  const [{ data }, { data: runtime }, { data: build }] = await Promise.all([
    ask("status/storage"),
    ask("status/runtimeinfo"),
    ask("status/buildinfo"),
  ]);
  const started = Date.parse(runtime.startTime);
  const facts = [
    ["Role", data.role],
    ["Series in memory", formatCount(data.headSeries)],
    ["SSTs", formatBytes(data.fileBytes)],
    ["WAL", formatBytes(data.logBytes)],
    ["Samples appended since the start", formatCount(data.samplesAppended)],
    ["Samples rejected", formatCount(data.samplesRejected)],
    ["Newest sample", data.newestTime === null ? "none" : since(data.newestTime)],
    ...retentionFacts(data.retention, Date.now()),
    ["Running since", since(started)],
    ["Version", build.version.split("tessella.")[1] ?? build.version],
  ];
  return [
    figures(facts),
    el("h2", {}, "Caches"),
    caches(data.caches),
    el("h2", {}, "Days on disk"),
    days(data.partitions),
  ];
}

function caches(all) {
  const rows = all.map(({ name, bytes, bytesMax, hits, misses }) => {
    const lookups = hits + misses;
    const rate = lookups > 0 ? `${Math.round((hits / lookups) * 100)} %` : "no lookups";
    const size = bytesMax > 0 ? `${formatBytes(bytes)} of ${formatBytes(bytesMax)}` : "off";
    return [name, size, formatCount(lookups), rate];
  });
  return table(["Cache", "Size", "Lookups", "Hit rate"], rows);
}

function days(partitions) {
  if (partitions.length === 0) {
    return el(
      "p",
      { class: "hint" },
      "No sealed day yet: all samples are in the head and the WAL.",
    );
  }
  const rows = [...partitions]
    .reverse()
    .map(({ start, end, series, bytes }) => [
      `${formatTime(start, true).slice(0, 10)} (UTC)`,
      formatCount(series),
      formatBytes(bytes),
      formatAge(Math.max(0, Date.now() - end)),
    ]);
  return table(["Day", "Series", "Size", "Ended"], rows);
}

async function cardinality() {
  const { data } = await ask("status/tsdb", { limit: ROWS });
  const { numSeries, numLabelPairs, chunkCount, minTime, maxTime } = data.headStats;
  const hasSamples = minTime <= maxTime;
  const facts = [
    ["Series in memory", formatCount(numSeries)],
    ["Label pairs", formatCount(numLabelPairs)],
    ["Open chunks", formatCount(chunkCount)],
    ["From", hasSamples ? formatTime(minTime, settings.isUtc) : "no samples"],
    ["To", hasSamples ? formatTime(maxTime, settings.isUtc) : "no samples"],
  ];
  const lists = [
    ["Metrics with the most series", data.seriesCountByMetricName, formatCount, "Series"],
    ["Labels with the most values", data.labelValueCountByLabelName, formatCount, "Values"],
    ["Label pairs with the most series", data.seriesCountByLabelValuePair, formatCount, "Series"],
    ["Labels by the memory of their texts", data.memoryInBytesByLabelName, formatBytes, "Memory"],
  ];
  const shown = lists.map(([title, rows, format, unit]) => {
    const most = Math.max(1, ...rows.map(({ value }) => value));
    const lines = rows.map(({ name, value }) => [codeWithBar(name, value / most), format(value)]);
    return el("section", {}, el("h2", {}, title), table(["Name", unit], lines));
  });
  return [figures(facts), el("div", { class: "lists" }, shown)];
}

async function flags() {
  const { data } = await ask("status/flags");
  const rows = Object.entries(data).map(([name, value]) => [
    el("code", {}, `--${name}`),
    el("code", {}, value),
  ]);
  return [table(["Flag", "Value"], rows, false)];
}

async function config() {
  const { data } = await ask("status/config");
  return [el("pre", { class: "yaml", tabindex: "0" }, data.yaml)];
}
