// The syntax tree of a query, its costs in a plan, and which series match.

import assert from "node:assert/strict";
import { test } from "node:test";

import { matchGroups, matchSummary, outcomeOf } from "../../../src/ui/matching.js";
import { costsByNode, headOf, operandsOf, printed, valueType } from "../../../src/ui/syntax.js";

const number = (val) => ({ type: "numberLiteral", val });
const name = (value) => ({ name: "__name__", type: "=", value });
const selector = (metric, more = {}) => ({
  ...{ type: "vectorSelector", name: metric, matchers: [name(metric)], offset: 0 },
  ...{ offsetExpr: null, startOrEnd: null, timestamp: null, anchored: false, smoothed: false },
  ...more,
});
const range = (metric, ms, more = {}) =>
  selector(metric, { type: "matrixSelector", range: ms, rangeExpr: null, ...more });
const call = (func, returnType, ...args) => ({
  type: "call",
  func: { name: func, returnType },
  args,
});
const sum = (expr, grouping = []) => ({
  ...{ type: "aggregation", op: "sum", expr, param: null, grouping, without: false },
});
const matching = (more = {}) => ({
  ...{ card: "one-to-one", on: false, labels: [], include: [] },
  ...{ fillValues: { lhs: null, rhs: null }, ...more },
});
const binary = (op, lhs, rhs, more = {}) => ({
  ...{ type: "binaryExpr", op, lhs, rhs, bool: false, matching: matching(), ...more },
});
const paren = (expr) => ({ type: "parenExpr", expr });

test("nodes are printed as PromQL", () => {
  const group = matching({ card: "many-to-one", on: true, labels: ["a", "b.c"], include: ["d"] });
  const matchers = [{ name: "x", type: "=~", value: 'q"\\' }, name("up")];
  const cases = [
    [selector("up", { matchers }), 'up{x=~"q\\"\\\\"}'],
    [selector("a.b", { offset: 300_000, timestamp: 1500 }), '{"a.b"} @ 1.500 offset 5m'],
    [range("up", 90_000, { startOrEnd: "end", smoothed: true }), "up[1m30s] smoothed @ end()"],
    [sum(selector("up"), ["a"]), "sum by (a) (up)"],
    [sum(paren(selector("up"))), "sum ((up))"],
    [
      { ...sum(selector("up"), []), without: true, op: "topk", param: number("3") },
      "topk without () (3, up)",
    ],
    [
      binary("/", selector("a"), selector("b"), { matching: group, bool: true }),
      'a / bool on (a, "b.c") group_left (d) b',
    ],
    [binary("+", selector("a"), number("1"), { matching: null }), "a + 1"],
    [
      binary("+", selector("a"), selector("b"), {
        matching: matching({ fillValues: { lhs: 0, rhs: null } }),
      }),
      "a + fill_left (0) b",
    ],
    [{ type: "unaryExpr", op: "-", expr: paren(selector("a")) }, "-(a)"],
    [call("time", "scalar"), "time()"],
    [
      call("label_replace", "vector", selector("a"), { type: "stringLiteral", val: "b\n" }),
      'label_replace(a, "b\\n")',
    ],
    [
      {
        ...selector("", {}),
        type: "subquery",
        expr: selector("a"),
        range: 3_600_000,
        rangeExpr: null,
        step: 60_000,
        stepExpr: null,
      },
      "a[1h:1m]",
    ],
    [
      {
        ...range("a", 0),
        rangeExpr: {
          type: "durationExpr",
          op: "*",
          wrapped: true,
          lhs: { ...number("60"), duration: true },
          rhs: number("2"),
        },
      },
      "a[(1m * 2)]",
    ],
  ];
  for (const [node, expected] of cases) {
    assert.equal(printed(node), expected);
  }
  assert.equal(headOf(call("rate", "vector", range("a", 1000))), "rate(…)");
  assert.equal(headOf(sum(selector("a"), ["b"])), "sum by (b)");
  assert.equal(headOf(binary("+", selector("a"), selector("b"))), "+");
});

test("nodes have the types of their values", () => {
  const scalars = binary("+", number("1"), paren(number("2")), { matching: null });
  const cases = [
    [scalars, "scalar"],
    [binary("+", scalars, selector("a"), { matching: null }), "vector"],
    [range("a", 1), "matrix"],
    [call("scalar", "scalar", selector("a")), "scalar"],
    [{ type: "unaryExpr", op: "-", expr: number("1") }, "scalar"],
    [{ type: "stringLiteral", val: "x" }, "string"],
  ];
  for (const [node, expected] of cases) {
    assert.equal(valueType(node), expected, printed(node));
  }
});

test("costs of a plan are those of the nodes, also around what only the plan has", () => {
  const left = call("rate", "vector", range("a", 300_000));
  const right = { type: "unaryExpr", op: "+", expr: paren(selector("b")) };
  const root = paren(binary("+", sum(left), right));
  const load = (series) => ({ node: "load", series, samples: 7, seconds: 0.25, ownSeconds: 0.25 });
  const plan = {
    node: "query",
    seconds: 9,
    children: [
      {
        node: "binary",
        seconds: 4,
        children: [
          {
            node: "once",
            children: [
              {
                node: "aggregate",
                seconds: 2,
                children: [
                  {
                    node: "rollup",
                    seconds: 1,
                    children: [{ node: "select", children: [load(3)] }],
                  },
                ],
              },
            ],
          },
          { node: "select", series: 2, seconds: 1, ownSeconds: 0.5, children: [load(5)] },
        ],
      },
    ],
  };
  const costs = costsByNode(root, plan);
  const [sumNode, unary] = operandsOf(root.expr);
  assert.equal(costs.get(root.expr).seconds, 4);
  assert.equal(costs.get(sumNode).seconds, 2);
  assert.equal(costs.get(left).seconds, 1);
  assert.deepEqual([costs.get(left.args[0]).series, costs.get(left.args[0]).ownSeconds], [3, 0.25]);
  const { series, samples, ownSeconds } = costs.get(unary.expr.expr);
  assert.deepEqual([series, samples, ownSeconds], [2, 7, 0.75]);
  // A plan of another shape gives no costs.
  assert.equal(costsByNode(sum(selector("a")), { node: "binary" }).size, 0);
});

const series = (...list) => list.map((metric) => ({ metric }));

test("series are matched by their labels, problems first", () => {
  const left = series(
    { __name__: "a", x: "1" },
    { __name__: "a", x: "2" },
    { __name__: "a", x: "3" },
  );
  const right = series({ __name__: "b", x: "1" }, { __name__: "b", x: "4" });
  const node = binary("/", selector("a"), selector("b"));
  const groups = matchGroups(node, left, right);
  assert.equal(matchSummary(groups), "4 groups: 1 with partners, 3 without a partner");
  const outcomes = Object.fromEntries(
    groups.map((group) => [group.labels.x, outcomeOf(node, group)]),
  );
  assert.deepEqual(outcomes, {
    1: "matched",
    2: "no partner on the right side for 1 series",
    3: "no partner on the right side for 1 series",
    4: "no partner on the left side for 1 series",
  });
  const or = binary("or", selector("a"), selector("b"));
  assert.match(outcomeOf(or, groups[0]), /^kept/);
  const unless = binary("unless", selector("a"), selector("b"));
  assert.match(outcomeOf(unless, groups.at(-1)), /^dropped/);
  const filled = binary("+", selector("a"), selector("b"), {
    matching: matching({ fillValues: { lhs: null, rhs: 0 } }),
  });
  const [alone] = matchGroups(filled, series({ x: "9" }), []);
  assert.match(outcomeOf(filled, alone), /filled with 0$/);
});

test("too many series of a group are a problem of the side that must be unique", () => {
  const many = series({ x: "1", y: "1" }, { x: "1", y: "2" });
  const one = series({ x: "1" });
  const on = (card) =>
    binary("*", selector("a"), selector("b"), {
      matching: matching({ card, on: true, labels: ["x"] }),
    });
  const problem = (card, left, right) => matchGroups(on(card), left, right)[0].problem;
  assert.match(problem("one-to-one", many, one), /^many-to-one: 2 series on the left/);
  assert.match(problem("one-to-one", one, many), /^many-to-many: 2 series on the right/);
  assert.match(problem("many-to-one", one, many), /^many-to-many: 2 series on the right/);
  assert.match(problem("one-to-many", many, one), /^many-to-many: 2 series on the left/);
  assert.equal(problem("many-to-one", many, one), null);
  assert.equal(problem("one-to-many", one, many), null);
  assert.equal(problem("one-to-one", many, []), null);
  const and = { ...on("many-to-many"), op: "and" };
  assert.equal(matchGroups(and, many, many)[0].problem, null);
  assert.match(matchSummary(matchGroups(on("one-to-one"), many, one)), /1 with too many series$/);
});
