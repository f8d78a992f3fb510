// Results as files.

import assert from "node:assert/strict";
import { test } from "node:test";

import { csv, fileName, gridCsv } from "../../../src/ui/export.js";
import { labelColumns } from "../../../src/ui/matrix.js";

test("fields of CSV with commas, quotes or new lines are quoted", () => {
  const rows = [
    ["a", "b,c", 'd"e'],
    ["f\ng", 1.5, ""],
  ];
  assert.equal(csv(rows), 'a,"b,c","d""e"\r\n"f\ng",1.5,\r\n');
  assert.equal(csv([]), "");
});

test("texts that a spreadsheet reads as formulas begin with a single quote", () => {
  for (const [value, expected] of [
    ['=HYPERLINK("http://a")', '"\'=HYPERLINK(""http://a"")"'],
    ["+1+cmd|' /C calc'!A0", "'+1+cmd|' /C calc'!A0"],
    ["-2+3", "'-2+3"],
    ["@SUM(A1)", "'@SUM(A1)"],
    ["\t=1", "'\t=1"],
    ["\r=1", '"\'\r=1"'],
    ["a=b", "a=b"],
    // Numbers, also as the API writes them.
    [-2.5, "-2.5"],
    ["-2.5", "-2.5"],
    ["+1e-7", "+1e-7"],
    ["-Inf", "-Inf"],
    [-Infinity, "-Infinity"],
    ["NaN", "NaN"],
  ]) {
    assert.equal(csv([[value]]), `${expected}\r\n`, String(value));
  }
});

test("a graph is a column of times and one of each series", () => {
  const rows = [
    { short: "x", values: [1, NaN] },
    { short: '{a="b"}', values: [Infinity, -2.5] },
  ];
  assert.equal(
    gridCsv({ startMs: 0, stepMs: 60_000, count: 2, rows }),
    'time,x,"{a=""b""}"\r\n1970-01-01T00:00:00.000Z,1,Infinity\r\n1970-01-01T00:01:00.000Z,,-2.5\r\n',
  );
});

test("files are named after their query", () => {
  assert.equal(fileName("sum(rate(x_total[5m]))", "csv"), "sum_rate_x_total_m.csv");
  assert.equal(fileName("1 + 2", "png"), "query.png");
  assert.equal(fileName("../../etc/passwd", "csv"), "etc_passwd.csv");
  assert.ok(fileName("a".repeat(500), "json").length < 80);
});

test("the columns of a table are all labels, the metric first", () => {
  const result = [{ metric: { b: "1", __name__: "x" } }, { metric: { a: "1" } }];
  assert.deepEqual(labelColumns(result), ["__name__", "a", "b"]);
  assert.deepEqual(labelColumns([{ metric: {} }]), []);
});
