// The tree of a query in a real browser.

import assert from "node:assert/strict";
import { test } from "node:test";

import { printed } from "../../../src/ui/syntax.js";
import { LOAD, SERVER, drawn, linkAtEnd, shot, withPage } from "./harness.mjs";

async function parsed(query) {
  const answer = await fetch(`${SERVER}/api/v1/parse_query?${new URLSearchParams({ query })}`);
  const { data, error } = await answer.json();
  assert.equal(error, undefined, query);
  return data;
}

test("the server parses what the tree prints", async () => {
  const queries = [
    'sum by (a, "b.c") (rate(x{y="z\\"\\\\",w=~".+"}[5m] offset -1h)) / on (a) group_left (d) y',
    "-(topk without (a) (3, x + 1) > bool 2) or +vector(1)",
    '{"a.b", c="d"} @ end() offset 1h30m',
    'max_over_time(sum(rate(x[5m]))[1d:10m] @ 1700000000.5) unless ignoring (b) {__name__=~"y.*"}',
    "quantile_over_time(0.9, x[5m] @ start()) ^ -1.5e3 atan2 y % 7",
    'count_values("v", label_replace(x, "a", "$1\\n", "b", "(.*)")) * scalar(y) == bool Inf',
    "last_over_time(x[1m:] offset 1m) + x offset (1m + 30s)",
    "rate(x[step() * 2]) + increase(x[max_of(5m, step())]) + rate(x[-(5m) + 10m])",
    "rate(x[5m] smoothed) + rate(x[5m] anchored @ 5)",
    "x + fill(0) y - on (a) fill_left(1) fill_right(2.5) z",
    "a * on () group_right (b, c) d and e",
  ];
  for (const query of queries) {
    const tree = await parsed(query);
    assert.deepEqual(await parsed(printed(tree)), tree, `${query}\n${printed(tree)}`);
  }
});

const rowsOf = (page) =>
  page
    .locator(".tree tbody tr")
    .evaluateAll((all) => all.map((row) => [...row.children].map((cell) => cell.textContent)));

test("the tree has types, series and labels of all nodes while a query is written", async () => {
  await withPage(LOAD, async (page) => {
    await drawn(page);
    await page.getByRole("button", { name: "Query tree" }).click();
    await page.waitForURL(/show_tree=1/);
    await page.locator(".tree tbody tr").first().waitFor();
    await page.locator(".editor textarea").fill("sum by (zone) (rate(demo_load[5m])) > 1");
    await page.locator(".tree tbody tr").nth(3).filter({ hasText: "instance" }).waitFor();
    await page.waitForFunction(() => !document.querySelector(".tree").textContent.includes("…100"));
    const rows = await rowsOf(page);
    assert.deepEqual(
      rows.map(([node, type]) => [node, type]),
      [
        [">", "vector"],
        ["sum by (zone)", "vector"],
        ["rate(…)", "vector"],
        ["demo_load[5m]", "matrix"],
        ["1", "scalar"],
      ],
    );
    await page.locator(".tree tbody tr").nth(1).filter({ hasText: "zone 3" }).waitFor();
    const [, , , selector] = await rowsOf(page);
    assert.deepEqual(selector.slice(2), ["100", "instance 100zone 3"]);
    // The graph is that of the query that ran.
    assert.match(await page.locator(".figures-line").textContent(), /^100 series/);
  });
});

test("the tree names groups without a partner and with too many series", async () => {
  const east = 'demo_load{zone="east"}';
  const expr = `sum by (zone) (demo_load) / on (zone) ${east}`;
  await withPage(linkAtEnd({ expr, tab: "explain" }), async (page) => {
    const groups = page.locator(".matching tbody tr");
    await groups.nth(2).waitFor();
    const texts = await groups.allTextContents();
    assert.match(texts[0], /zone="east".*and 30 more.*many-to-many: 34 series on the right side/);
    assert.match(texts[1], /no partner on the right side for 1 series/);
    assert.match(await page.locator(".node-error").textContent(), /found duplicate series/);
    assert.match(await page.locator(".matching h2").textContent(), /3 groups: 0 with partners, 2/);
    await shot(page, "matching");
    await page.locator(".editor textarea").fill(expr.replace(east, `sum by (zone) (${east})`));
    await page.keyboard.press("Enter");
    await page.locator(".matching h2").filter({ hasText: "1 with partners" }).waitFor();
  });
});

test("the tree does not match sides of which it has a part", async () => {
  const expr = "demo_load / on (zone) group_left sum by (zone) (demo_load)";
  await withPage(linkAtEnd({ expr, tab: "explain" }), async (page) => {
    const matching = page.getByRole("button", { name: "Matching" });
    await matching.click();
    await page.locator(".matching h2").filter({ hasText: "3 with partners" }).waitFor();
    await page.route(/\/api\/v1\/query$/, async (route) => {
      const response = await route.fetch();
      const warnings = ["results truncated due to limit"];
      await route.fulfill({ response, json: { ...(await response.json()), warnings } });
    });
    await page.reload();
    await matching.click();
    await page.getByText("A side has more than").waitFor();
    assert.equal(await page.locator(".matching h2").count(), 0);
  });
});

test("the tree has the costs of the plan", async () => {
  const expr = "(sum by (zone) (rate(demo_load[5m])))";
  await withPage(linkAtEnd({ expr, tab: "explain" }), async (page) => {
    await page.locator(".tree th").filter({ hasText: "Self time" }).waitFor();
    const rows = await rowsOf(page);
    assert.equal(rows.length, 3);
    for (const row of rows) {
      assert.match(row.at(-1), /^[\d.]+ (s|ms|µs)$/, row[0]);
    }
    assert.match(rows[2][4], /^\d\d\.?\d*k$/);
    assert.match(rows[2][5], /KiB$/);
  });
});
