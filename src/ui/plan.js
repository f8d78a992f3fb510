// The execution of a query: its figures, and its plan with the costs of each node.

import { el } from "./dom.js";
import { formatBytes, formatCount, formatDuration, formatSeconds, formatTime } from "./numbers.js";
import { settings } from "./settings.js";

const NAMES = {
  query: "Query",
  select: "Select",
  load: "Load",
  aggregate: "Aggregate",
  rollup: "Function",
  call: "Function",
  binary: "Operator",
  negate: "Negate",
  subquery: "Subquery",
  once: "Compute once",
  number: "Number",
  string: "String",
};
/** Columns of the costs of a node: name, value and format. */
export const COSTS = [
  ["Samples", (node) => node.samplesDecoded ?? node.samples, formatCount],
  ["Size", (node) => node.bytes, formatBytes],
  ["Reads", (node) => node.reads, formatCount],
  ["Time", (node) => node.seconds, formatSeconds],
  ["Self time", (node) => node.ownSeconds, formatSeconds],
];
const COLUMNS = [["Series", (node) => node.series, formatCount], ...COSTS];

/** The figures of a query, from its statistics. */
export function queryFigures(stats) {
  if (!stats) {
    const text = "No statistics: only summaries are left of some samples, which cannot be counted.";
    return el("p", { class: "hint" }, text);
  }
  const { timings, samples, storage } = stats;
  const items = [
    ["Total time", formatSeconds(timings.execTotalTime)],
    ["Queue time", formatSeconds(timings.execQueueTime)],
    ["Planning", formatSeconds(timings.queryPreparationTime)],
    ["Evaluation", formatSeconds(timings.innerEvalTime)],
    ["Samples", formatCount(samples.samplesRead)],
    ["Object store reads", storage ? `${storage.reads} (${formatBytes(storage.readBytes)})` : "0"],
  ];
  const shown = items.map(([name, value]) =>
    el("div", {}, el("dt", {}, name), el("dd", {}, value)),
  );
  return el("dl", { class: "figures" }, shown);
}

/** The plan as a table that can be unfolded. */
export function planDetails(explained) {
  const lines = [];
  walk(explained, 0, lines);
  const heads = COLUMNS.map(([name]) => el("th", { class: "number", scope: "col" }, name));
  const table = el(
    "table",
    { class: "plan", role: "treegrid", "aria-label": "Execution plan" },
    el("thead", {}, el("tr", {}, el("th", { scope: "col" }, "Node"), ...heads)),
    el(
      "tbody",
      {},
      lines.map(({ node, depth }) => line(node, depth, explained)),
    ),
  );
  return el(
    "details",
    {},
    el("summary", {}, "Execution plan"),
    el("div", { class: "scrolled", tabindex: "0", role: "region", "aria-label": "Plan" }, table),
  );
}

/** A bar of the self time of a node, by the time of the whole plan. */
export function selfTimeBar(node, explained) {
  const bar = el("span", { class: "share" });
  const total = Math.max(explained.seconds ?? 0, 1e-9);
  bar.style.width = `${Math.min(100, (node.ownSeconds / total) * 100)}%`;
  return bar;
}

function walk(node, depth, lines) {
  lines.push({ node, depth });
  (node.children ?? []).forEach((child) => walk(child, depth + 1, lines));
}

function line(node, depth, explained) {
  const step = el(
    "td",
    {},
    el("span", { class: "step" }, NAMES[node.node] ?? node.node),
    " ",
    detail(node),
  );
  step.style.paddingLeft = `${0.6 + depth * 1.4}em`;
  const cells = COLUMNS.map(([, read, format]) => {
    const value = read(node);
    return el("td", { class: "number" }, value === undefined ? "" : format(value));
  });
  if (node.ownSeconds !== undefined) {
    cells.at(-1).append(selfTimeBar(node, explained));
  }
  return el("tr", { "aria-level": depth + 1 }, step, ...cells);
}

function detail(node) {
  if (node.matchers) {
    const times = [node.start, node.end].map((seconds) =>
      formatTime(Math.round(seconds * 1000), settings.isUtc),
    );
    const range = el("span", { class: "when" }, `${times[0]} to ${times[1]}`);
    return el("span", {}, el("code", {}, `{${node.matchers.join(", ")}}`), " ", range);
  }
  return el("span", {}, readable(node.detail ?? ""));
}

/** A detail of the engine with formatted times and durations. */
function readable(text) {
  return text
    .replace(/(\d+) ms/g, (_, ms) => formatDuration(Number(ms)))
    .replace(
      /(at|from|to) (-?\d{10,})/g,
      (_, word, ms) => `${word} ${formatTime(Number(ms), settings.isUtc)}`,
    );
}
