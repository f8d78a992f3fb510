// Matching of the series of two operands, and series without a partner.
//
// Source: vector matching in the Prometheus querying docs.

import { isSetOperator } from "./syntax.js";
import { formatLabels } from "./numbers.js";

/**
 * The groups of a binary operation between vectors, those with problems first: { labels, left, right,
 * problem, isMatched }. `left` and `right` are the series of both operands, `problem` is null or a
 * text.
 */
export function matchGroups({ op, matching }, left, right) {
  const groups = new Map();
  const add = (side) => (series) => {
    const labels = matchLabels(series.metric, matching);
    const key = formatLabels(labels);
    const group = groups.get(key) ?? { labels, left: [], right: [] };
    group[side].push(series);
    groups.set(key, group);
  };
  left.forEach(add("left"));
  right.forEach(add("right"));
  const all = [...groups.values()].map((group) => ({
    ...group,
    problem: problemOf(op, matching, group),
    isMatched: group.left.length > 0 && group.right.length > 0,
  }));
  const rank = ({ problem, isMatched }) => (problem ? 0 : isMatched ? 2 : 1);
  return all.sort((a, b) => rank(a) - rank(b));
}

/** The labels by which a series is matched. */
function matchLabels(metric, { on, labels }) {
  const isUsed = ([name]) =>
    on ? labels.includes(name) : name !== "__name__" && !labels.includes(name);
  const used = Object.entries(metric).filter(isUsed);
  return Object.fromEntries(used.sort((a, b) => (a[0] < b[0] ? -1 : 1)));
}

function problemOf(op, { card }, { left, right }) {
  if (isSetOperator(op)) {
    return null;
  }
  // The side whose series must be unique in their group.
  const [one, side] = card === "one-to-many" ? [left, "left"] : [right, "right"];
  if (one.length > 1) {
    return `many-to-many: ${one.length} series on the ${side} side, which allows 1`;
  }
  if (card === "one-to-one" && left.length > 1 && right.length > 0) {
    return `many-to-one: ${left.length} series on the left side; group_left allows them`;
  }
  return null;
}

/** The outcome of a group in words. */
export function outcomeOf({ op, matching }, { left, right, problem, isMatched }) {
  if (problem !== null) {
    return problem;
  }
  if (isMatched) {
    return op === "unless" ? "dropped: it has a partner" : "matched";
  }
  const [has, lacks] = right.length === 0 ? ["left", "right"] : ["right", "left"];
  if (op === "or" || (op === "unless" && left.length > 0)) {
    return "kept: no partner is needed";
  }
  const fill = matching.fillValues?.[lacks === "left" ? "lhs" : "rhs"];
  if (fill !== null && fill !== undefined) {
    return `no partner on the ${lacks} side: filled with ${fill}`;
  }
  return `no partner on the ${lacks} side for ${has === "left" ? left.length : right.length} series`;
}

/** The number of groups of each kind, in words. */
export function matchSummary(groups) {
  const count = (kind) => groups.filter(kind).length;
  const problems = count(({ problem }) => problem !== null);
  const matched = count(({ problem, isMatched }) => problem === null && isMatched);
  const alone = groups.length - problems - matched;
  const parts = [`${matched} with partners`, `${alone} without a partner`];
  if (problems > 0) {
    parts.push(`${problems} with too many series`);
  }
  return `${groups.length} ${groups.length === 1 ? "group" : "groups"}: ${parts.join(", ")}`;
}
