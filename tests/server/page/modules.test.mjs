// The modules of the page that need no browser.

import assert from "node:assert/strict";
import { readFileSync, readdirSync } from "node:fs";
import { test } from "node:test";
import { gzipSync } from "node:zlib";

import { decode, encode, newPanel } from "../../../src/ui/address.js";
import { candidates, contextAt, ranked, taken } from "../../../src/ui/complete.js";
import { linePoints, stacked } from "../../../src/ui/decimate.js";
import { classify, cut } from "../../../src/ui/lexer.js";
import { metricOf, narrowed, queryAddress } from "../../../src/ui/links.js";
import { gridRows, sharedLabels, summary } from "../../../src/ui/matrix.js";
import { changeText, describe, labelCounts, suggestedQueries } from "../../../src/ui/metrics.js";
import * as numbers from "../../../src/ui/numbers.js";
import { retentionFacts } from "../../../src/ui/retention.js";
import { axisBounds, stepFor, timeTicks, valueTicks } from "../../../src/ui/scales.js";
import { inputTime, parseMoment, presets } from "../../../src/ui/times.js";

/** The kinds of a query's tokens, spaces left out. */
function kinds(text) {
  const solid = classify(text).filter((token) => token.kind !== "space");
  return solid.map((token) => `${token.text}:${token.kind}`).join(" ");
}

test("tokens are classified", () => {
  const cases = [
    [
      "sum by(a) (rate(x[5m]))",
      "sum:aggregation by:keyword (:punctuation a:label ):punctuation (:punctuation rate:function (:punctuation x:metric [:punctuation 5m:duration ]:punctuation ):punctuation ):punctuation",
    ],
    [
      'x{a=~"b",c!="d"}',
      'x:metric {:punctuation a:label =~:operator "b":string ,:punctuation c:label !=:operator "d":string }:punctuation',
    ],
    ["sum", "sum:metric"],
    ["rate", "rate:metric"],
    ["1e3 + Inf # no more", "1e3:number +:operator Inf:number # no more:comment"],
    ["a offset 1h30m", "a:metric offset:keyword 1h30m:duration"],
    ["0x1F ^ .5", "0x1F:number ^:operator .5:number"],
    ['{"a.b"', '{:punctuation "a.b":string'],
    ["x{a='open", "x:metric {:punctuation a:label =:operator 'open:string"],
    ["a € b", "a:metric €:unknown b:metric"],
    ["on(by) 5mx", "on:keyword (:punctuation by:label ):punctuation 5:number mx:metric"],
  ];
  for (const [text, expected] of cases) {
    assert.equal(kinds(text), expected, text);
  }
});

test("tokens leave no gap, whatever the text", () => {
  const texts = [
    "",
    " ",
    "\\",
    '"\\',
    "😀x",
    "[[[",
    "}}}",
    "a\n#\n`b\nc`",
    "5ms5",
    "..5",
    "'a\nb'",
  ];
  let seed = 1;
  for (let round = 0; round < 500; round++) {
    let text = "";
    for (let length = 0; length < 12; length++) {
      seed = (seed * 48271) % 2147483647;
      text += "ab1.5ms{}[]()\"'`\\#\n =~!<>é"[seed % 27];
    }
    texts.push(text);
  }
  for (const text of texts) {
    assert.equal(
      cut(text)
        .map((token) => token.text)
        .join(""),
      text,
    );
  }
});

test("the context at the cursor depends on the text before it", () => {
  // The cursor is where the bar is.
  const cases = [
    ["|", "expression", {}],
    ["ra|", "expression", { prefix: "ra" }],
    ["sum(|", "expression", {}],
    ["sum(x) |", "operator", {}],
    ["x |", "operator", {}],
    ["x + |", "expression", {}],
    ["x{|", "label", { selector: "x{}" }],
    ["x{jo|}", "label", { selector: "x{}", prefix: "jo" }],
    ['x{a="b",|', "label", { selector: 'x{a="b"}' }],
    ["x{a|b}", "label", { prefix: "a" }],
    ["x{a |", "match", {}],
    ["x{a=|", "value", { label: "a", selector: "x{}" }],
    ['x{a="b", c=~"d|', "value", { label: "c", selector: 'x{a="b"}', prefix: '"d' }],
    ['x{c=~"d|"}', "value", { label: "c", prefix: '"d' }],
    ['"abc|', "none", {}],
    ["sum by (|) (x)", "grouping", { metrics: ["x"] }],
    ["sum by (a, b|) (x + y)", "grouping", { metrics: ["x", "y"], prefix: "b" }],
    ["x[|", "duration", {}],
    ["x[5|", "duration", { prefix: "5" }],
    ["x offset |", "duration", {}],
    ["1|", "none", {}],
    ["# x|", "none", {}],
  ];
  for (const [marked, kind, fields] of cases) {
    const cursor = marked.indexOf("|");
    const context = contextAt(marked.replace("|", ""), cursor);
    assert.equal(context.kind, kind, marked);
    for (const [name, value] of Object.entries(fields)) {
      assert.deepEqual(context[name], value, `${marked}: ${name}`);
    }
  }
});

test("a suggestion replaces the word at the cursor", () => {
  const cases = [
    ["ra|", { text: "rate", kind: "function" }, "rate(|)"],
    ["ra|(x)", { text: "rate", kind: "function" }, "rate|(x)"],
    ["ti|", { text: "time", kind: "function" }, "time()|"],
    ["x{jo|}", { text: "job", kind: "label" }, "x{job=|}"],
    ["x{jo|=1}", { text: "job", kind: "label" }, "x{job|=1}"],
    ["sum by (jo|)", { text: "job", kind: "label" }, "sum by (job|)"],
    ["x{a=|", { text: 'b"\\', kind: "value" }, 'x{a="b\\"\\\\"|'],
    ["x{a='b|'}", { text: "bc", kind: "value" }, "x{a='bc'|}"],
    ["u|p", { text: "up", kind: "metric" }, "up|"],
  ];
  for (const [marked, item, expected] of cases) {
    const [cursor, text] = [marked.indexOf("|"), marked.replace("|", "")];
    const result = taken(text, contextAt(text, cursor), item);
    const shown = `${result.text.slice(0, result.cursor)}|${result.text.slice(result.cursor)}`;
    assert.equal(shown, expected, marked);
  }
});

test("candidates are those of the context, best first", async () => {
  const known = {
    metrics: async () => ["node_load1", "up", "http_requests_total"],
    about: (metric) => `about ${metric}`,
    labels: async (selector) => [`of ${selector}`, "job"],
    values: async (label, selector) => [`${label} of ${selector}`],
  };
  const texts = async (marked) => {
    const context = contextAt(marked.replace("|", ""), marked.indexOf("|"));
    return (await candidates(context, known, 3)).map((item) => item.text);
  };
  assert.deepEqual(await texts("load|"), ["node_load1"]);
  assert.deepEqual((await texts("rat|"))[0], "rate");
  assert.deepEqual(await texts("x{|"), ["of x{}", "job"]);
  assert.deepEqual(await texts("x{a=|"), ["a of x{}"]);
  assert.deepEqual(await texts("sum by (|) (up)"), ["of up", "job"]);
  const items = ["b_ab", "ab", "cab", "abc", "a_x_b"].map((text) => ({ text }));
  const order = ranked("ab", items, 9).map((item) => item.text);
  assert.deepEqual(order, ["ab", "abc", "b_ab", "cab"]);
});

test("numbers are short and keep significant digits", () => {
  const cases = [
    [0, "0"],
    [1234567.891, "1\u202f234\u202f568"],
    [0.1 + 0.2, "0.3"],
    [1234.5, "1\u202f234.5"],
    [-42, "-42"],
    [1e-7, "1e-7"],
    [1.5e20, "1.5e+20"],
    [100, "100"],
    [Infinity, "+Inf"],
    [NaN, "NaN"],
  ];
  for (const [value, expected] of cases) {
    assert.equal(numbers.formatNumber(value), expected);
  }
  const ticks = [
    [1500, 500, "1500"],
    [15000, 5000, "15k"],
    [34_500_000, 500_000, "34.5M"],
    [0.25, 0.05, "0.25"],
    [0, 1, "0"],
    [2e9, 1e9, "2G"],
    [0.00002, 0.00001, "2e-5"],
  ];
  for (const [value, step, expected] of ticks) {
    assert.equal(numbers.formatTick(value, step), expected);
  }
  assert.deepEqual([0, 1023, 1536, 5 << 20].map(numbers.formatBytes), [
    "0 B",
    "1023 B",
    "1.5 KiB",
    "5 MiB",
  ]);
  assert.deepEqual([0, 12e-6, 0.0345, 2, 90].map(numbers.formatSeconds), [
    "0 ms",
    "12 µs",
    "34.5 ms",
    "2 s",
    "1m30s",
  ]);
  assert.equal(numbers.formatCount(1_234_567), "1.23M");
});

test("durations are read as they are written", () => {
  const hour = 3_600_000;
  for (const ms of [0, 1, 999, 1000, 90_000, hour, 36 * hour, 7 * 24 * hour, 400 * 24 * hour + 5]) {
    assert.equal(numbers.parseDuration(numbers.formatDuration(ms)), ms);
  }
  assert.equal(numbers.formatDuration(36 * hour), "1d12h");
  assert.equal(numbers.parseDuration("1.5h"), 1.5 * hour);
  assert.equal(numbers.parseDuration("300"), 300_000);
  for (const text of ["", "h", "1", "5 minutes", "1h x", "-1h"].filter((text) => text !== "1")) {
    assert.ok(Number.isNaN(numbers.parseDuration(text)), text);
  }
});

test("times are read as they are written, here and in UTC", () => {
  const ms = Date.UTC(2026, 6, 1, 12, 30, 5);
  assert.equal(numbers.formatTime(ms, true), "2026-07-01 12:30:05");
  assert.equal(numbers.formatTime(ms, false), "2026-07-01 14:30:05");
  for (const isUtc of [true, false]) {
    assert.equal(numbers.parseTime(numbers.formatTime(ms, isUtc), isUtc), ms);
    assert.equal(numbers.parseTime("2026-07-01T12:30:05Z", isUtc), ms);
    assert.equal(numbers.parseTime(String(ms / 1000), isUtc), ms);
  }
  assert.equal(numbers.parseTime("2026-07-01", true), Date.UTC(2026, 6, 1));
  assert.ok(Number.isNaN(numbers.parseTime("yesterday", true)));
});

test("named ranges begin at midnight of the zone, also across a clock change", () => {
  // In Berlin the clock went back on Sunday 25 October 2026 at 01:00 UTC.
  const now = Date.UTC(2026, 9, 27, 15, 30);
  const of = (name, isUtc) => presets(now, isUtc).find((one) => one.name === name);
  assert.deepEqual(of("Last hour", true), {
    name: "Last hour",
    startMs: now - 3_600_000,
    endMs: null,
  });
  assert.equal(of("Today so far", true).startMs, Date.UTC(2026, 9, 27));
  assert.equal(of("Today so far", false).startMs, Date.UTC(2026, 9, 26, 23));
  const { startMs, endMs } = of("Last week", false);
  // 169 hours, from Monday to Monday.
  assert.deepEqual([startMs, endMs], [Date.UTC(2026, 9, 18, 22), Date.UTC(2026, 9, 25, 23)]);
  assert.equal(of("This week so far", true).startMs, Date.UTC(2026, 9, 26));
});

test("times are absolute or relative to now", () => {
  const now = Date.UTC(2026, 9, 27, 15, 30, 1);
  const cases = [
    ["now", now],
    ["now-1h30m", now - 5_400_000],
    [" now + 10s ", now + 10_000],
    ["2026-10-27 15:00", Date.UTC(2026, 9, 27, 15)],
  ];
  for (const [text, expected] of cases) {
    assert.equal(parseMoment(text, now, true), expected, text);
  }
  for (const text of ["now-", "now-x", "nowhere"]) {
    assert.ok(Number.isNaN(parseMoment(text, now, true)), text);
  }
  assert.equal(inputTime(now + 7, true), "2026-10-27T15:30:01");
  assert.equal(inputTime(now, false), "2026-10-27T16:30:01");
});

test("labels are written as PromQL reads them", () => {
  assert.equal(numbers.formatLabels({ __name__: "up", job: 'a"b' }), 'up{job="a\\"b"}');
  assert.equal(numbers.formatLabels({ __name__: "up" }), "up");
  assert.equal(numbers.formatLabels({}), "{}");
  assert.equal(numbers.formatLabels({ __name__: "a.b", "c.d": "e" }), '{"a.b", "c.d"="e"}');
  assert.equal(
    numbers.formatLabels({ a: "1", b: "2" }, (name) => name === "a"),
    '{b="2"}',
  );
});

test("an address encodes the page, and links of Prometheus work", () => {
  const state = {
    rangeMs: 5_400_000,
    endMs: Date.UTC(2026, 10, 22, 5, 10),
    panels: [
      { ...newPanel('x{a="b&c"} + 1'), tab: "table" },
      { ...newPanel("y"), tab: "explain", mode: "stacked", stepMs: 15_000, hasTree: true },
      { ...newPanel("h"), mode: "heatmap", hasExemplars: true },
      { ...newPanel("z"), offsetMs: 7 * 86_400_000, other: "z + 1" },
    ],
  };
  assert.deepEqual(decode(encode(state)), state);
  assert.deepEqual(decode(encode({ ...state, endMs: null })).endMs, null);
  assert.equal(encode({ panels: [], rangeMs: 1, endMs: null }), "");
  const alert = decode("?g0.expr=up+%3D%3D+0&g0.tab=1");
  assert.deepEqual(alert.panels, [{ ...newPanel("up == 0"), tab: "table" }]);
  const link = decode(
    "?g0.expr=a&g0.tab=graph&g0.range_input=2h&g0.end_input=2026-11-22%2005%3A10%3A00&g0.display_mode=stacked&g0.res_type=auto&g0.res_step=5&g1.expr=b&g1.tab=0&g3.expr=c",
  );
  assert.equal(link.rangeMs, 7_200_000);
  assert.equal(link.endMs, state.endMs);
  assert.deepEqual(link.panels, [{ ...newPanel("a"), mode: "stacked" }, newPanel("b")]);
  for (const search of [
    "?g0.expr=a&g0.range_input=x&g0.end_input=y&g0.tab=z",
    "?g0.expr=a&g0.range_input=-5m",
  ]) {
    assert.equal(decode(search).rangeMs, 3_600_000);
    assert.equal(decode(search).endMs, null);
  }
});

test("ticks are round and within the axis", () => {
  assert.deepEqual(
    valueTicks(0, 1, 5).ticks.map((t) => t.toFixed(1)),
    ["0.0", "0.2", "0.4", "0.6", "0.8", "1.0"],
  );
  assert.deepEqual(valueTicks(-7, 12, 4).ticks, [-5, 0, 5, 10]);
  assert.deepEqual(valueTicks(5, 5, 4).ticks, [5]);
  for (const [min, max] of [
    [0, 1e300],
    [-1e-9, 1e-9],
    [1e15, 1e15 + 1000],
  ]) {
    const { ticks } = valueTicks(min, max, 6);
    assert.ok(ticks.length > 2 && ticks.length < 16, `${min} to ${max}: ${ticks}`);
    assert.ok(ticks.every((tick) => tick >= min - 1e-9 && tick <= max * 1.0001 + 1e-9));
  }
  assert.deepEqual(axisBounds(2, 10, false)[0], 0);
  assert.deepEqual(axisBounds(5, 5, false), [2.5, 7.5]);
  assert.ok(axisBounds(100, 101, false)[0] > 99);
  assert.deepEqual(axisBounds(Infinity, -Infinity, false), [0, 1]);
});

test("time ticks are at full hours and days of the zone, also across a clock change", () => {
  const labels = (start, end, isUtc) => timeTicks(start, end, 6, isUtc).map((tick) => tick.label);
  const start = Date.UTC(2026, 10, 22, 5, 3);
  assert.deepEqual(labels(start, start + 3_600_000, true), [
    "05:10",
    "05:20",
    "05:30",
    "05:40",
    "05:50",
    "06:00",
  ]);
  // In Berlin the clock went back at 01:00 UTC that day.
  const change = Date.UTC(2026, 9, 24, 22);
  assert.deepEqual(labels(change, change + 25 * 3_600_000, false), [
    "25 Oct",
    "06:00",
    "12:00",
    "18:00",
    "26 Oct",
  ]);
  assert.deepEqual(labels(0, 4000, true), [
    "1 Jan",
    "00:00:01",
    "00:00:02",
    "00:00:03",
    "00:00:04",
  ]);
});

test("steps grow with the range and keep to a point for every few pixels", () => {
  let before = 0;
  for (const ms of [60_000, 900_000, 3_600_000, 86_400_000, 365 * 86_400_000]) {
    const step = stepFor(ms, 1000);
    assert.ok(step > before && ms / step <= 1000 && ms / step >= 50, `${ms}: ${step}`);
    before = step;
  }
});

test("decimation keeps every column's first, lowest, highest and last value", () => {
  const count = 10_000;
  const values = Float64Array.from({ length: count }, (_, index) => Math.sin(index / 50) * 100);
  values[5003] = 1000;
  values[7777] = -1000;
  values.fill(NaN, 2000, 2500);
  const points = linePoints(
    values,
    (index) => index / 20,
    (value) => value,
  );
  assert.ok(points.length < (count / 20) * 4 * 2 + 10);
  const heights = points.filter((_, index) => index % 2 === 1);
  assert.ok(heights.includes(1000) && heights.includes(-1000));
  assert.ok(heights.includes(values[0]) && heights.includes(values[count - 1]));
  assert.equal(heights.filter(Number.isNaN).length, 1, "one gap");
  for (let at = 2; at < points.length; at += 2) {
    assert.ok(!(points[at] < points[at - 2]), "x never goes back");
  }
});

test("few values are drawn as they are, with their gaps", () => {
  const values = [1, NaN, NaN, 2, 3, NaN];
  const points = linePoints(
    values,
    (index) => index * 10,
    (value) => value,
  );
  assert.deepEqual(points, [0, 1, NaN, NaN, 30, 2, 40, 3, NaN, NaN]);
});

test("stacked rows add up, those below zero downwards", () => {
  const rows = stacked(
    [
      [1, 2, NaN],
      [3, -4, 5],
      [-1, -1, 1],
    ],
    3,
  );
  assert.deepEqual(
    rows.map(({ low }) => [...low]),
    [
      [0, 0, NaN],
      [1, 0, 0],
      [0, -4, 5],
    ],
  );
  assert.deepEqual(
    rows.map(({ high }) => [...high]),
    [
      [1, 2, NaN],
      [4, -4, 5],
      [-1, -5, 6],
    ],
  );
});

test("answers become rows on the grid of steps", () => {
  const result = [
    {
      metric: { __name__: "m", a: "1", z: "s" },
      values: [
        [10, "1"],
        [30, "+Inf"],
      ],
    },
    {
      metric: { __name__: "m", a: "2", z: "s" },
      values: [
        [20, "NaN"],
        [99, "7"],
      ],
    },
  ];
  const rows = gridRows(result, 10_000, 10_000, 3);
  assert.deepEqual(
    rows.map((row) => [...row.values]),
    [
      [1, NaN, Infinity],
      [NaN, NaN, NaN],
    ],
  );
  assert.deepEqual(
    rows.map((row) => row.short),
    ['{a="1"}', '{a="2"}'],
  );
  assert.deepEqual(sharedLabels(result.map((series) => series.metric)), { __name__: "m", z: "s" });
  assert.deepEqual(sharedLabels([{ a: "1" }]), {});
  assert.deepEqual(summary([NaN, 3, 1, NaN]), { min: 1, max: 3, last: 1, mean: 2 });
});

test("metrics are described by their metadata or that of their histogram", () => {
  const known = {
    up: [{ type: "gauge", help: "Whether it answers.", unit: "" }],
    wait_seconds: [{ type: "histogram", help: "Waits.", unit: "seconds" }],
  };
  assert.deepEqual(describe("up", known), { type: "gauge", help: "Whether it answers.", unit: "" });
  assert.equal(describe("wait_seconds_bucket", known).help, "Waits.");
  assert.equal(describe("wait_seconds_sum", {}).unit, "seconds");
  assert.deepEqual(describe("x", {}), { type: "unknown", help: "", unit: "" });
});

test("queries are suggested by type, and by name where the type is not known", () => {
  const first = (name, type) => suggestedQueries(name, type)[0];
  assert.equal(first("a_total", "counter"), "rate(a_total[5m])");
  assert.equal(first("a_total", "unknown"), "rate(a_total[5m])");
  assert.equal(first("a", "gauge"), "a");
  assert.equal(
    first("a_bucket", "histogram"),
    "histogram_quantile(0.5, sum by (le) (rate(a_bucket[5m])))",
  );
  assert.equal(first("a", "histogram"), "histogram_quantile(0.5, sum(rate(a[5m])))");
  assert.equal(first("a.b", "gauge"), '{"a.b"}');
});

test("labels and values are counted, largest first", () => {
  const series = [
    { __name__: "m", a: "1", b: "x" },
    { __name__: "m", a: "2", b: "x" },
    { __name__: "m", a: "2" },
  ];
  assert.deepEqual(labelCounts(series), [
    {
      label: "a",
      values: [
        ["2", 2],
        ["1", 1],
      ],
    },
    { label: "b", values: [["x", 2]] },
  ]);
  assert.deepEqual(labelCounts([]), []);
});

test("the retention shows growth only if it is known", () => {
  const day = 86_400_000;
  const now = Date.UTC(2026, 0, 1);
  const known = {
    limit: null,
    samples: null,
    rules: 0,
    growthBytesPerDay: 1 << 20,
    growthDays: 7,
    freeBytes: 30 << 20,
    fullTime: now + 30.5 * day,
  };
  assert.deepEqual(retentionFacts(known, now), [
    ["Retention", "unlimited"],
    ["Growth per day", "1 MiB (mean of 7 days)"],
    ["Disk space left", "30 MiB"],
    ["Disk full", "2026-01-31 (in 30 days)"],
  ]);
  const young = { ...known, growthBytesPerDay: null, growthDays: 0, fullTime: null };
  assert.deepEqual(retentionFacts(young, now).slice(1), [
    ["Growth per day", "unknown: fewer than 2 complete days"],
    ["Disk space left", "30 MiB"],
    ["Disk full", "unknown"],
  ]);
  const limited = { ...known, limit: "15d or 10GB", rules: 2, freeBytes: null, fullTime: null };
  assert.deepEqual(retentionFacts(limited, now), [
    ["Retention", "15d or 10GB; shorter for some series (2 rules)"],
    ["Growth per day", "1 MiB (mean of 7 days)"],
  ]);
  const summarized = { ...limited, samples: "5d" };
  assert.deepEqual(retentionFacts(summarized, now)[1], [
    "Retention of samples",
    "5d, then summaries",
  ]);
});

test("the files of the page are less than 200 KiB when compressed", () => {
  const folder = new URL("../../../src/ui/", import.meta.url);
  const names = readdirSync(folder).filter((name) => /\.(js|css|html|svg)$/.test(name));
  const sizes = names.map((name) => gzipSync(readFileSync(new URL(name, folder))).length);
  const total = sizes.reduce((sum, size) => sum + size, 0);
  assert.ok(names.length > 20 && total < 200 << 10, `${total} bytes`);
});

test("a selector of one metric names it", () => {
  for (const [selector, expected] of [
    ["up", "up"],
    [" a:b_c ", "a:b_c"],
    ['{__name__="demo load"}', "demo load"],
    ['{ __name__ = "a\\"\\\\b" }', 'a"\\b'],
    ['{__name__="up",job="a"}', null],
    ['{job="up"}', null],
    ['{__name__=~"up"}', null],
    ['up{job="a"}', null],
    ["", null],
  ]) {
    assert.equal(metricOf(selector), expected, selector);
  }
});

test("a selector is narrowed by one matcher", () => {
  const cases = [
    ["", "__name__", "up", '{__name__="up"}'],
    ["up", "job", "a", 'up{job="a"}'],
    ["{}", "job", "a", '{job="a"}'],
    ['up{a="}"} ', "job", 'x"\\', 'up{a="}",job="x\\"\\\\"}'],
    ['{a="b", }', "a.b", "c", '{a="b","a.b"="c"}'],
  ];
  for (const [selector, label, value, expected] of cases) {
    assert.equal(narrowed(selector, label, value), expected, selector);
  }
});

test("changes of counts are words or numbers with a sign", () => {
  const cases = [
    [5, 5, "0"],
    [0, 0, "0"],
    [5, 0, "new"],
    [12, 5, "+7"],
    [5, 20_005, "−20k"],
  ];
  for (const [count, before, expected] of cases) {
    assert.equal(changeText(count, before), expected, `${count} after ${before}`);
  }
});

test("a query leads to the length of its last range", () => {
  const range = queryAddress({ query: "a{b='c'}", start: 0, end: 7200 }, "explain");
  assert.deepEqual(Object.fromEntries(new URLSearchParams(range.slice("query?".length))), {
    "g0.expr": "a{b='c'}",
    "g0.tab": "explain",
    "g0.range_input": "2h",
  });
  assert.doesNotMatch(queryAddress({ query: "up", time: 5 }, "graph"), /range/);
  assert.match(queryAddress({ query: "up", start: 5, end: 5 }, "graph"), /range_input=1m$/);
});
