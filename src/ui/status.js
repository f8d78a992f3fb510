// What the server tells of itself: its store, its settings, and what it watches.

import { ask } from "./api.js";
import { el, isPlainClick, markCurrent } from "./dom.js";
import { formatAge, formatBytes, formatCount, formatTime } from "./numbers.js";
import { retentionFacts } from "./retention.js";
import { settings } from "./settings.js";
import { since } from "./table.js";

const ROWS = 10;

/** The parts by path: their name, and what builds them. */
const PARTS = {
  status: ["Store", store],
  "tsdb-status": ["Cardinality", cardinality],
  flags: ["Flags", flags],
  config: ["Configuration", config],
  targets: ["Targets", targets],
  rules: ["Rules", rules],
  alerts: ["Alerts", alerts],
};

/** The paths that this page answers to. */
export const statusPaths = Object.keys(PARTS);

/** The page: { element, title, enter(search, path), leave() }. */
export class StatusPage {
  title = "Status";
  search = "";

  constructor({ go }) {
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
      shown = await build();
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
    ["Files", formatBytes(data.fileBytes)],
    ["Log not sealed yet", formatBytes(data.logBytes)],
    ["Samples taken since the start", formatCount(data.samplesAppended)],
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

function figures(facts) {
  const shown = facts.map(([name, value]) =>
    el("div", {}, el("dt", {}, name), el("dd", {}, value)),
  );
  return el("dl", { class: "figures" }, shown);
}

function caches(all) {
  const rows = all.map(({ name, bytes, bytesMax, hits, misses }) => {
    const looked = hits + misses;
    const share = looked > 0 ? `${Math.round((hits / looked) * 100)} %` : "not asked yet";
    const size = bytesMax > 0 ? `${formatBytes(bytes)} of ${formatBytes(bytesMax)}` : "off";
    return [name, size, formatCount(looked), share];
  });
  return table(["What is kept", "Size", "Looked up", "Found"], rows);
}

function days(partitions) {
  if (partitions.length === 0) {
    return el("p", { class: "hint" }, "Nothing is sealed yet: all is in memory and in the log.");
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
    const lines = rows.map(({ name, value }) => [nameWithBar(name, value / most), format(value)]);
    return el("section", {}, el("h2", {}, title), table(["Name", unit], lines));
  });
  return [figures(facts), el("div", { class: "lists" }, shown)];
}

function nameWithBar(name, share) {
  const bar = el("span", { class: "share left" });
  bar.style.width = `${share * 100}%`;
  return el("span", {}, el("code", {}, name), bar);
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

async function targets() {
  const { data } = await ask("targets");
  if (data.activeTargets.length === 0) {
    return [nothing("No targets: this server does not scrape. It is fed by remote write.")];
  }
  const rows = data.activeTargets.map((target) => [
    target.scrapePool,
    target.scrapeUrl,
    target.health,
    target.lastError,
  ]);
  return [table(["Job", "Address", "Health", "Error"], rows, false)];
}

async function rules() {
  const { data } = await ask("rules");
  if (data.groups.length === 0) {
    return [nothing("No rules: this server evaluates none.")];
  }
  const rows = data.groups.flatMap((group) =>
    group.rules.map((rule) => [group.name, rule.name, el("code", {}, rule.query), rule.health]),
  );
  return [table(["Group", "Rule", "Query", "Health"], rows, false)];
}

async function alerts() {
  const { data } = await ask("alerts");
  if (data.alerts.length === 0) {
    return [nothing("No alerts: none is firing, and this server evaluates no rules.")];
  }
  const rows = data.alerts.map((alert) => [alert.labels.alertname, alert.state, alert.activeAt]);
  return [table(["Alert", "State", "Since"], rows, false)];
}

function nothing(text) {
  return el("p", { class: "empty" }, text);
}

function table(names, rows, isNumeric = true) {
  const kind = (index) => ({ class: isNumeric && index > 0 ? "number" : null });
  const heads = names.map((name, index) => el("th", { scope: "col", ...kind(index) }, name));
  const body = rows.map((cells) =>
    el(
      "tr",
      {},
      cells.map((cell, index) => el("td", kind(index), cell)),
    ),
  );
  const whole = el("table", {}, el("thead", {}, el("tr", {}, heads)), el("tbody", {}, body));
  return el("div", { class: "scrolled" }, whole);
}
