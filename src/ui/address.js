// The state of the page as the query string of its address.
//
// The names are those of Prometheus' page (g0.expr, g0.tab, …), so that its links work here. All
// queries have one range of time, that of the first query.

import { formatDuration, formatTime, parseDuration, parseTime } from "./numbers.js";

export const RANGE_MS = 60 * 60_000;
const PANELS_MAX = 50;
const RANGE_MS_MAX = 100 * 365 * 86_400_000;
const TABS = { 0: "graph", 1: "table", graph: "graph", table: "table", explain: "explain" };

const MODES = new Set(["lines", "stacked", "heatmap"]);

/**
 * A query as it is at first.
 *
 * `offsetMs` is the offset of the range that it is compared with, 0 for none; `other` the second
 * query of the graph, null for none.
 */
export function newPanel(expr = "") {
  return {
    expr,
    tab: "graph",
    mode: "lines",
    stepMs: 0,
    hasTree: false,
    hasExemplars: false,
    offsetMs: 0,
    other: null,
  };
}

/** The state in a query string: { panels, rangeMs, endMs }; `endMs` is null for now. */
export function decode(search) {
  const params = new URLSearchParams(search);
  const panels = [];
  for (let index = 0; index < PANELS_MAX && params.has(`g${index}.expr`); index++) {
    panels.push(panelOf((name) => params.get(`g${index}.${name}`)));
  }
  const range = parseDuration(params.get("g0.range_input") ?? "");
  const end = parseTime(params.get("g0.end_input") ?? params.get("g0.moment_input") ?? "", true);
  return {
    panels,
    rangeMs: range > 0 && range <= RANGE_MS_MAX ? range : RANGE_MS,
    endMs: Number.isNaN(end) ? null : end,
  };
}

function panelOf(get) {
  const step = parseDuration(get("res_step") ?? get("step_input") ?? "");
  const isFixed = (get("res_type") ?? "fixed") !== "auto";
  const offset = parseDuration(get("compare_offset") ?? "");
  const mode = get("stacked") === "1" ? "stacked" : get("display_mode");
  return {
    ...newPanel(get("expr")),
    // Links from before Prometheus 3 may name no tab: theirs was the table.
    tab: TABS[get("tab") ?? ""] ?? (get("range_input") === null ? "table" : "graph"),
    mode: MODES.has(mode) ? mode : "lines",
    stepMs: isFixed && step > 0 ? step : 0,
    hasTree: get("show_tree") === "1",
    hasExemplars: get("show_exemplars") === "1",
    offsetMs: offset > 0 && offset <= RANGE_MS_MAX ? offset : 0,
    other: get("compare_expr"),
  };
}

/** The query string of a state; empty if it has no panels. */
export function encode({ panels, rangeMs, endMs }) {
  const params = new URLSearchParams();
  panels.forEach((panel, index) => {
    const set = (name, value) => params.set(`g${index}.${name}`, value);
    set("expr", panel.expr);
    set("tab", panel.tab);
    set("range_input", formatDuration(rangeMs));
    if (endMs !== null) {
      set("end_input", formatTime(endMs, true));
    }
    if (panel.mode !== "lines") {
      set("display_mode", panel.mode);
    }
    if (panel.stepMs > 0) {
      set("res_type", "fixed");
      set("res_step", String(panel.stepMs / 1000));
    }
    if (panel.hasTree) {
      set("show_tree", "1");
    }
    if (panel.hasExemplars) {
      set("show_exemplars", "1");
    }
    if (panel.offsetMs > 0) {
      set("compare_offset", formatDuration(panel.offsetMs));
    }
    if (panel.other !== null) {
      set("compare_expr", panel.other);
    }
  });
  return params.toString();
}
