// Buckets of histograms, and their axis.

import assert from "node:assert/strict";
import { test } from "node:test";

import * as buckets from "../../../src/ui/buckets.js";
import { comparedRows } from "../../../src/ui/matrix.js";

const counts = (list) => list.map(({ lower, upper, count }) => [lower, upper, count]);

test("native buckets are read from the lowest, with the bounds that belong to them", () => {
  const list = buckets.nativeBuckets({
    buckets: [
      [1, "-2", "-1", "4"],
      [3, "-0.5", "0.5", "1"],
      [0, "1", "+Inf", "2"],
    ],
  });
  assert.deepEqual(counts(list), [
    [-2, -1, 4],
    [-0.5, 0.5, 1],
    [1, Infinity, 2],
  ]);
  assert.deepEqual(list.map(buckets.rangeText), ["[-2, -1)", "[-0.5, 0.5]", "(1, +Inf]"]);
  assert.deepEqual(buckets.nativeBuckets({ count: "0", sum: "0" }), []);
});

test("classic buckets are each minus the one below", () => {
  const list = buckets.classicBuckets([
    [Infinity, 10],
    [0.5, 3],
    [1, 7],
    [2, 6],
    [NaN, 4],
    [4, NaN],
  ]);
  // The count that falls from 7 to 6 is an empty bucket, and the total remains 10.
  assert.deepEqual(counts(list), [
    [0, 0.5, 3],
    [0.5, 1, 4],
    [1, 2, 0],
    [2, Infinity, 3],
  ]);
  assert.deepEqual(counts(buckets.classicBuckets([[-1, 2]])), [[-Infinity, -1, 2]]);
  assert.deepEqual(buckets.classicBuckets([]), []);
});

test("series that differ in le alone are one histogram for each step", () => {
  const series = (labels, values) => ({ metric: labels, values });
  const result = [
    series({ a: "x", le: "1" }, [
      [0, "1"],
      [10, "2"],
    ]),
    series({ a: "x", le: "+Inf" }, [[10, "5"]]),
    series({ a: "y", le: "1" }, [[0, "7"]]),
  ];
  assert.equal(buckets.histogramKind(result), "classic");
  const grid = { startMs: 0, stepMs: 10_000, count: 2 };
  const rows = buckets.histogramRows(result, "classic", grid);
  assert.deepEqual(
    rows.map(({ labels }) => labels),
    [{ a: "x" }, { a: "y" }],
  );
  assert.deepEqual(rows[0].columns.map(counts), [
    [[0, 1, 1]],
    [
      [0, 1, 2],
      [1, Infinity, 3],
    ],
  ]);
  assert.deepEqual(rows[1].columns[1], null);
  const histogram = { count: "3", sum: "1", buckets: [[0, "1", "2", "3"]] };
  const native = [{ metric: { b: "z" }, histograms: [[10, histogram]] }];
  assert.equal(buckets.histogramKind(native), "native");
  const [row] = buckets.histogramRows(native, "native", grid);
  assert.equal(row.columns[0], null);
  assert.deepEqual(counts(row.columns[1]), [[1, 2, 3]]);
  assert.equal(buckets.histogramKind([series({ le: "1" }, [])]), null);
  assert.equal(buckets.histogramKind([series({ a: "1" }, []), series({ le: "1" }, [])]), null);
});

/** Buckets between bounds. */
const between = (...bounds) =>
  bounds.slice(1).map((upper, index) => ({ lower: bounds[index], upper, count: 1, rule: 0 }));

test("axes grow with the value, from 0 at the lowest bound to 1 at the highest", () => {
  const cases = [
    between(0, 1, 2, 4, Infinity),
    between(0.001, 0.01, 0.1),
    between(-4, -1, 0, 1, 4),
    between(-8, -2),
    between(-Infinity, -1, 1, Infinity),
    between(0, 5),
    between(5, 5),
    between(0, 0),
  ];
  for (const list of cases) {
    for (const isExponential of [true, false]) {
      const { at, ticks } = buckets.bucketScale(list, isExponential);
      const bounds = [list[0].lower, ...list.map(({ upper }) => upper)];
      const places = bounds.map(at);
      const name = `${bounds} ${isExponential}: ${places}`;
      assert.ok(
        places.every((place) => place >= 0 && place <= 1),
        name,
      );
      const isGrowing = (place, index) =>
        index === 0 || place > places[index - 1] || bounds[index] === bounds[index - 1];
      assert.ok(places.every(isGrowing), name);
      const shown = ticks(6);
      assert.ok(shown.length > 0 && shown.length < 20, `${name}: ${shown.length} ticks`);
      assert.ok(
        shown.every((tick) => tick.at >= 0 && tick.at <= 1),
        name,
      );
    }
  }
});

test("equal factors are equally wide on an exponential axis, equal widths on a linear one", () => {
  const list = between(1, 10, 100);
  assert.equal(buckets.bucketScale(list, true).at(10), 0.5);
  assert.equal(buckets.bucketScale(list, false).at(50.5), 0.5);
  const labels = buckets
    .bucketScale(list, true)
    .ticks(3)
    .map(({ label }) => label);
  assert.deepEqual(labels, ["1", "10", "100"]);
});

test("a bucket around zero is a strip, however narrow it is", () => {
  const zero = { lower: -1e-128, upper: 1e-128, count: 2, rule: buckets.CLOSED };
  const { at, ticks } = buckets.bucketScale([zero, ...between(1, 10, 100)], true);
  assert.equal(at(zero.lower), 0);
  assert.ok(at(zero.upper) > 0.03 && at(zero.upper) === at(1), `${at(zero.upper)} ${at(1)}`);
  assert.ok(Math.abs(at(100) - at(10) - (at(10) - at(1))) < 1e-9);
  assert.deepEqual(
    ticks(3).map(({ label }) => label),
    ["0", "1", "10", "100"],
  );
  const both = buckets.bucketScale([...between(-10, -1), zero, ...between(1, 10)], true);
  assert.ok(both.at(-1) < both.at(0) && both.at(0) < both.at(1));
  const alone = buckets.bucketScale([zero], true);
  assert.ok([zero.lower, 0, zero.upper].every((value) => alone.at(value) >= 0));
});

test("histograms next to floats are drawn as one or the other", () => {
  const histogram = { count: "3", sum: "1", buckets: [[0, "1", "2", "3"]] };
  const result = [
    { metric: { a: "x" }, values: [[0, "1"]] },
    { metric: { a: "y" }, histograms: [[0, histogram]] },
  ];
  assert.equal(buckets.histogramKind(result), "mixed");
  const rows = buckets.histogramRows(result, "mixed", { startMs: 0, stepMs: 1000, count: 1 });
  assert.deepEqual(
    rows.map(({ labels }) => labels),
    [{ a: "y" }],
  );
});

test("an earlier range has the colours of the series now, and two queries have names", () => {
  const row = (labels) => ({ labels, short: labels.a, values: [1] });
  const rows = comparedRows({
    first: [row({ a: "x" }), row({ a: "y" })],
    earlier: [row({ a: "y" }), row({ a: "z" })],
    second: [row({ a: "x" })],
    offset: "1w",
  });
  assert.deepEqual(
    rows.map(({ short, isDashed = false, colourOf = null }) => [short, isDashed, colourOf]),
    [
      ["A x", false, null],
      ["A y", false, null],
      ["A y (1w before)", true, 1],
      ["A z (1w before)", true, 3],
      ["B x", false, null],
    ],
  );
  assert.deepEqual(comparedRows({ first: [row({ a: "x" })] }), [row({ a: "x" })]);
});
