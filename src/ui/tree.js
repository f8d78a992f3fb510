// The tree of a query while it is written: type, series and labels of each node, its costs, and how
// the series of an operator match.

import { ask } from "./api.js";
import { button, el } from "./dom.js";
import { matchGroups, matchSummary, outcomeOf } from "./matching.js";
import { labelCounts } from "./metrics.js";
import { formatCount, formatLabels, formatNumber, parseValue } from "./numbers.js";
import { COSTS, selfTimeBar } from "./plan.js";
import { bare, costsByNode, headOf, operandsOf, printed, valueType } from "./syntax.js";

/** Maximum number of nodes that are listed, and of those whose series are asked for. */
const LISTED_NODES_MAX = 200;
const NODES_MAX = 60;
const SERIES_MAX = 5000;
const PARALLEL_MAX = 4;
/** Number of levels that are indented. */
const INDENTED_MAX = 20;
const LABELS_MAX = 6;
const GROUPS_MAX = 50;
const LISTED_MAX = 4;

/** The tree: { element, update(query, endMs), showCosts(plan) }. */
export class QueryTree {
  constructor() {
    this.body = el("tbody", {});
    this.heads = el("tr", {});
    this.details = el("div", { class: "matching", "aria-live": "polite" });
    this.more = el("p", { class: "hint" }, `The first ${LISTED_NODES_MAX} nodes.`);
    const table = el(
      "table",
      { class: "tree", role: "treegrid", "aria-label": "Query tree" },
      el("thead", {}, this.heads),
      this.body,
    );
    this.element = el(
      "div",
      { class: "tree-holder" },
      el("div", { class: "scrolled", tabindex: "0", role: "region", "aria-label": "Tree" }, table),
      this.more,
      this.details,
    );
    Object.assign(this, { lines: [], plan: null, planned: null, query: null, chosen: -1 });
  }

  /** Parses a query and asks for the series of its nodes; of several calls the last one counts. */
  async update(query, endMs) {
    this.aborter?.abort();
    const aborter = new AbortController();
    this.aborter = aborter;
    if (query.trim() === "") {
      this.#show(null);
      return;
    }
    try {
      const { data } = await ask("parse_query", { query }, aborter.signal);
      this.query = query;
      this.#show(data);
      await this.#askAll(endMs, aborter.signal);
    } catch (error) {
      // The panel shows the error of the parser; the tree remains that of the last valid text.
      if (error.name !== "AbortError") {
        this.element.classList.add("is-old");
      }
    }
  }

  stop() {
    this.aborter?.abort();
  }

  /** Adds the costs of a plan of `query`, once the tree is that of the same query. */
  showCosts(query, plan) {
    Object.assign(this, { plan, planned: query });
    this.#render();
  }

  #show(root) {
    this.element.classList.remove("is-old");
    this.root = root;
    this.lines = [];
    if (root !== null) {
      walk(bare(root), 0, this.lines);
    }
    // The matching of an operator remains open while its operands are written.
    if (!this.lines[this.chosen] || !isMatching(this.lines[this.chosen].node)) {
      this.chosen = -1;
    }
    this.#render();
  }

  #render() {
    const hasCosts = this.plan !== null && this.root && this.planned === this.query;
    this.costs = hasCosts ? costsByNode(this.root, this.plan) : null;
    const columns = ["Type", "Series", "Labels"];
    const costs = this.costs ? COSTS.map(([name]) => name) : [];
    const isNumber = (name) => name === "Series" || costs.includes(name);
    this.heads.replaceChildren(
      ...["Node", ...columns, ...costs].map((name) =>
        el("th", { scope: "col", class: isNumber(name) ? "number" : null }, name),
      ),
    );
    this.body.replaceChildren(...this.lines.map((line, index) => this.#row(line, index)));
    this.more.hidden = this.lines.length < LISTED_NODES_MAX;
    this.#showMatching();
  }

  #row(line, index) {
    const { node, depth, error, state } = line;
    const head = el("code", {}, headOf(node));
    const cell = el("td", {}, head);
    cell.style.paddingLeft = `${0.6 + Math.min(depth, INDENTED_MAX) * 1.4}em`;
    if (isMatching(node)) {
      const isChosen = this.chosen === index;
      const toggle = () => {
        this.chosen = isChosen ? -1 : index;
        this.#render();
      };
      const pressed = { "aria-expanded": String(isChosen), class: "inline" };
      cell.append(" ", button("Matching", toggle, pressed));
    }
    if (error) {
      cell.append(el("p", { class: "node-error" }, error));
    }
    const cost = this.costs?.get(node);
    const costs = this.costs
      ? COSTS.map(([, read, format]) => {
          const value = cost && read(cost);
          return el("td", { class: "number" }, value === undefined ? "" : format(value));
        })
      : [];
    if (cost?.ownSeconds !== undefined) {
      costs.at(-1).append(selfTimeBar(cost, this.plan));
    }
    return el(
      "tr",
      { "aria-level": depth + 1, class: error ? "bad" : null },
      cell,
      el("td", {}, valueType(node)),
      el("td", { class: "number" }, seriesText(line)),
      el("td", { class: "labels" }, state === "asked" ? "…" : labelsOf(line)),
      ...costs,
    );
  }

  /** Asks for the nodes, innermost first, a few at a time. */
  async #askAll(endMs, signal) {
    const asked = this.lines.filter(({ node }) => isAsked(node)).slice(0, NODES_MAX);
    asked.forEach((line) => (line.state = "asked"));
    this.#render();
    const queue = [...asked].reverse();
    const work = async () => {
      for (let line = queue.shift(); line !== undefined; line = queue.shift()) {
        await answer(line, endMs, signal);
        this.#render();
      }
    };
    await Promise.all(Array.from({ length: PARALLEL_MAX }, work));
    // An operator that fails is opened.
    const failed = this.lines.findIndex(({ node, error }) => error && isMatching(node));
    if (failed >= 0 && this.chosen < 0) {
      this.chosen = failed;
      this.#render();
    }
  }

  #showMatching() {
    const line = this.lines[this.chosen];
    const sides = line ? operandsOf(line.node).map((operand) => this.#lineOf(operand)) : [];
    if (!line || sides.some((side) => side?.series === undefined)) {
      this.details.replaceChildren();
      return;
    }
    if (sides.some(({ isCut }) => isCut)) {
      // A missing partner may be among the other series.
      const text = `A side has more than ${formatCount(SERIES_MAX)} series: select fewer to see which match.`;
      this.details.replaceChildren(el("p", { class: "hint" }, text));
      return;
    }
    const groups = matchGroups(line.node, ...sides.map(({ series }) => series));
    const rows = groups.slice(0, GROUPS_MAX).map((group) => groupRow(line.node, group));
    const heads = ["Group", "Left side", "Right side", "Outcome"].map((name) =>
      el("th", { scope: "col" }, name),
    );
    const more = groups.length - rows.length;
    this.details.replaceChildren(
      el("h2", {}, el("code", {}, headOf(line.node)), ` ${matchSummary(groups)}`),
      el(
        "div",
        { class: "scrolled", tabindex: "0", role: "region", "aria-label": "Matching groups" },
        el("table", {}, el("thead", {}, el("tr", {}, heads)), el("tbody", {}, rows)),
      ),
      more > 0 ? el("p", { class: "hint" }, `and ${more} more groups`) : "",
    );
  }

  #lineOf(node) {
    return this.lines.find((line) => line.node === node);
  }
}

/** Lists the first nodes of a tree, so that the depth of the recursion is limited, too. */
function walk(node, depth, lines) {
  if (lines.length === LISTED_NODES_MAX) {
    return;
  }
  lines.push({ node, depth });
  operandsOf(node).forEach((operand) => walk(operand, depth + 1, lines));
}

function isAsked(node) {
  return node.type !== "stringLiteral" && node.type !== "numberLiteral";
}

/** Returns whether a node matches the series of two vectors. */
function isMatching(node) {
  return (
    node.type === "binaryExpr" &&
    operandsOf(node).every((operand) => valueType(operand) === "vector") &&
    Boolean(node.matching)
  );
}

/** Asks for the series of a node; of a range, those with a sample in it. */
async function answer(line, endMs, signal) {
  const text = printed(line.node);
  const query = valueType(line.node) === "matrix" ? `last_over_time(${text})` : text;
  try {
    const parameters = { query, time: endMs / 1000, limit: SERIES_MAX };
    const { data, warnings } = await ask("query", parameters, signal);
    line.series = data.resultType === "vector" ? data.result : null;
    line.value = data.resultType === "scalar" ? data.result[1] : null;
    line.isCut = warnings.some((warning) => warning.includes("limit"));
  } catch (error) {
    if (error.name === "AbortError") {
      throw error;
    }
    line.error = error.message;
  }
  line.state = "known";
}

function seriesText({ series, value, isCut }) {
  if (series) {
    return formatCount(series.length) + (isCut ? "+" : "");
  }
  return value ? formatNumber(parseValue(value)) : "";
}

function labelsOf({ series }) {
  const counts = labelCounts((series ?? []).map(({ metric }) => metric));
  const shown = counts.slice(0, LABELS_MAX).map(({ label, values }) => {
    const some = values.slice(0, 10).map(([value]) => value);
    const title = some.join(", ") + (values.length > some.length ? ", …" : "");
    return el(
      "span",
      { class: "count-of-label", title },
      el("span", { class: "label" }, label),
      ` ${formatCount(values.length)}`,
    );
  });
  const more = counts.length - shown.length;
  return [...shown, more > 0 ? el("span", { class: "hint" }, `and ${more} more`) : ""];
}

function groupRow(node, group) {
  const { labels, left, right, problem, isMatched } = group;
  const kind = problem !== null ? "bad" : isMatched ? null : "alone";
  return el(
    "tr",
    { class: kind },
    el("td", {}, el("code", {}, formatLabels(labels))),
    el("td", {}, sideOf(left)),
    el("td", {}, sideOf(right)),
    el("td", {}, outcomeOf(node, group)),
  );
}

function sideOf(list) {
  if (list.length === 0) {
    return el("span", { class: "hint" }, "none");
  }
  const shown = list
    .slice(0, LISTED_MAX)
    .map(({ metric, value }) =>
      el(
        "div",
        { class: "side-series" },
        el("code", {}, formatLabels(metric)),
        value ? el("span", { class: "number" }, formatNumber(parseValue(value[1]))) : "",
      ),
    );
  const more = list.length - shown.length;
  return [...shown, more > 0 ? el("span", { class: "hint" }, `and ${more} more`) : ""];
}
