// The syntax tree of `parse_query`: its nodes as PromQL, their types, and their costs in a plan.

import { formatDuration, labelName } from "./numbers.js";

const SETS = new Set(["and", "or", "unless"]);
/** Nodes of a plan by the types of the syntax tree. */
const PLANNED = {
  numberLiteral: ["number"],
  stringLiteral: ["string"],
  vectorSelector: ["select"],
  matrixSelector: ["select"],
  subquery: ["subquery"],
  aggregation: ["aggregate"],
  call: ["call", "rollup"],
  binaryExpr: ["binary"],
  unaryExpr: ["negate"],
};

/** Returns whether an operator is one of sets, which matches many series with many. */
export function isSetOperator(op) {
  return SETS.has(op);
}

/** A node's operands in the order of the text; those in parentheses without them. */
export function operandsOf(node) {
  const operands = {
    aggregation: () => [node.param, node.expr],
    call: () => node.args,
    binaryExpr: () => [node.lhs, node.rhs],
    unaryExpr: () => [node.expr],
    subquery: () => [node.expr],
  };
  const found = operands[node.type]?.() ?? [];
  return found.filter((one) => one !== null && one !== undefined).map(bare);
}

/** A node without parentheses around it. */
export function bare(node) {
  return node.type === "parenExpr" ? bare(node.expr) : node;
}

/** The type of a node's value: "scalar", "string", "vector" or "matrix". */
export function valueType(node) {
  switch (node.type) {
    case "numberLiteral":
      return "scalar";
    case "stringLiteral":
      return "string";
    case "matrixSelector":
    case "subquery":
      return "matrix";
    case "call":
      return node.func.returnType;
    case "parenExpr":
    case "unaryExpr":
      return valueType(node.expr);
    case "binaryExpr":
      return valueType(node.lhs) === "scalar" && valueType(node.rhs) === "scalar"
        ? "scalar"
        : "vector";
    default:
      return "vector";
  }
}

/** A node as PromQL. */
export function printed(node) {
  switch (node.type) {
    case "numberLiteral":
      return node.val;
    case "stringLiteral":
      return JSON.stringify(node.val);
    case "parenExpr":
      return `(${printed(node.expr)})`;
    case "unaryExpr":
      return node.op + printed(node.expr);
    case "vectorSelector":
      return selector(node) + mode(node) + modifiers(node);
    case "matrixSelector":
      return `${selector(node)}[${span(node, "range")}]${mode(node)}${modifiers(node)}`;
    case "subquery": {
      const step = node.step > 0 || node.stepExpr ? span(node, "step") : "";
      return `${printed(node.expr)}[${span(node, "range")}:${step}]${modifiers(node)}`;
    }
    case "call":
      return `${node.func.name}(${node.args.map(printed).join(", ")})`;
    case "aggregation": {
      const operands = [node.param, node.expr].filter(Boolean).map(printed);
      return `${headOf(node)} (${operands.join(", ")})`;
    }
    case "binaryExpr":
      return `${printed(node.lhs)} ${headOf(node)} ${printed(node.rhs)}`;
    default:
      return "";
  }
}

/** A node as PromQL without its operands. */
export function headOf(node) {
  switch (node.type) {
    case "aggregation": {
      const clause = node.without ? "without" : "by";
      const names = node.grouping.map(labelName).join(", ");
      return node.without || names !== "" ? `${node.op} ${clause} (${names})` : node.op;
    }
    case "call":
      return `${node.func.name}(${node.args.length > 0 ? "…" : ""})`;
    case "binaryExpr":
      return [node.op, node.bool ? "bool" : "", matchingOf(node)].filter(Boolean).join(" ");
    case "unaryExpr":
      return node.op;
    case "subquery":
      return printed({ ...node, expr: { type: "numberLiteral", val: "…" } });
    default:
      return printed(node);
  }
}

function matchingOf({ matching }) {
  if (!matching) {
    return "";
  }
  const list = (names) => `(${names.map(labelName).join(", ")})`;
  const parts = [];
  if (matching.on || matching.labels.length > 0) {
    parts.push((matching.on ? "on " : "ignoring ") + list(matching.labels));
  }
  const group = { "many-to-one": "group_left", "one-to-many": "group_right" }[matching.card];
  if (group) {
    parts.push(`${group} ${list(matching.include)}`);
  }
  const { lhs, rhs } = matching.fillValues ?? {};
  const isGiven = (value) => value !== null && value !== undefined;
  parts.push(isGiven(lhs) ? `fill_left (${lhs})` : "", isGiven(rhs) ? `fill_right (${rhs})` : "");
  return parts.filter(Boolean).join(" ");
}

function selector({ name, matchers }) {
  const isPlain = /^[a-zA-Z_:][\w:]*$/.test(name);
  const isName = (matcher) =>
    matcher.name === "__name__" && matcher.type === "=" && matcher.value === name;
  const pairs = matchers
    .filter((matcher) => name === "" || !isName(matcher))
    .map((matcher) => labelName(matcher.name) + matcher.type + JSON.stringify(matcher.value));
  if (name !== "" && !isPlain) {
    pairs.unshift(JSON.stringify(name));
  }
  const braces = pairs.length > 0 ? `{${pairs.join(",")}}` : "";
  return (isPlain ? name : "") + braces;
}

function mode({ anchored, smoothed }) {
  return anchored ? " anchored" : smoothed ? " smoothed" : "";
}

function modifiers(node) {
  const at =
    node.startOrEnd !== null && node.startOrEnd !== undefined
      ? ` @ ${node.startOrEnd}()`
      : node.timestamp !== null && node.timestamp !== undefined
        ? ` @ ${(node.timestamp / 1000).toFixed(3)}`
        : "";
  const hasOffset = node.offset !== 0 || node.offsetExpr;
  return at + (hasOffset ? ` offset ${span(node, "offset")}` : "");
}

/** A duration in ms, or the expression that computes it. */
function span(node, name) {
  const computed = node[`${name}Expr`];
  return computed ? duration(computed) : formatDuration(node[name]);
}

function duration(node) {
  if (node.type === "numberLiteral") {
    return node.duration ? formatDuration(Number(node.val) * 1000) : node.val;
  }
  const { op, lhs, rhs, wrapped } = node;
  const call = { step: "step()", range: "range()" }[op];
  const parts = [lhs, rhs].filter(Boolean).map(duration);
  const isFunction = op === "min_of" || op === "max_of";
  const text =
    call ??
    (isFunction
      ? `${op}(${parts.join(", ")})`
      : lhs
        ? `${parts[0]} ${op} ${parts[1]}`
        : op + parts[0]);
  return wrapped ? `(${text})` : text;
}

/**
 * The costs of the nodes in a plan of the server, by node: those nodes whose counterpart is found.
 * Selectors include what they load.
 */
export function costsByNode(root, plan) {
  const costs = new Map();
  align(bare(root), planned(plan), costs);
  return costs;
}

/** A node of a plan below those that the syntax tree lacks. */
function planned(plan) {
  const isExtra = plan.node === "query" || plan.node === "once";
  return isExtra && plan.children?.length === 1 ? planned(plan.children[0]) : plan;
}

function align(node, plan, costs) {
  if (node.type === "unaryExpr" && node.op === "+") {
    align(bare(node.expr), plan, costs);
    return;
  }
  if (!PLANNED[node.type]?.includes(plan.node)) {
    return;
  }
  const load = (plan.children ?? []).find((child) => child.node === "load");
  costs.set(node, load ? withLoad(plan, load) : plan);
  const rest = (plan.children ?? []).map(planned);
  for (const operand of operandsOf(node)) {
    const index = rest.findIndex((child) => isCounterpart(operand, child));
    if (index >= 0) {
      align(operand, rest[index], costs);
      rest.splice(index, 1);
    }
  }
}

function isCounterpart(node, plan) {
  const isPlus = node.type === "unaryExpr" && node.op === "+";
  return isPlus
    ? isCounterpart(bare(node.expr), plan)
    : (PLANNED[node.type]?.includes(plan.node) ?? false);
}

function withLoad(plan, load) {
  const own = (plan.ownSeconds ?? 0) + (load.ownSeconds ?? 0);
  return {
    ...load,
    series: plan.series ?? load.series,
    seconds: plan.seconds ?? load.seconds,
    ownSeconds: own,
  };
}
