// Histograms, heatmaps, exemplars and comparisons in a real browser.

import assert from "node:assert/strict";
import { before, test } from "node:test";

import { colouredPixels, drawn, linkAtEnd, settled, shot, withPage } from "./harness.mjs";
import { writeHistograms } from "./histograms.mjs";

before(() => writeHistograms());

const HOUR = { range_input: "50m" };

/** Moves the pointer over the chart, to fractions of its width and height. */
async function pointAt(page, x, y) {
  const box = await page.locator(".graph").boundingBox();
  await page.mouse.move(box.x + box.width * x, box.y + box.height * y);
  return page.locator(".tip");
}

test("native histograms are a heatmap with quantiles", async () => {
  await withPage(linkAtEnd({ expr: "rate(demo_native[1m])", ...HOUR }), async (page) => {
    assert.ok((await drawn(page)) > 5000);
    assert.match(await page.locator(".graph").getAttribute("aria-label"), /^Heatmap/);
    assert.match(await page.locator(".quantiles").textContent(), /p50p90p99/);
    await shot(page, "heatmap");
    // Upper half: slow ones, of 8 in 15 s.
    const tip = await pointAt(page, 0.5, 0.2);
    await tip.waitFor();
    assert.match(await tip.textContent(), /\(0\.25, 0\.5\]0\.533333 \(50\.0 %\)/);
    assert.match(await tip.textContent(), /p50.*0\.25/);
    await pointAt(page, 0.5, 0.7);
    await tip.filter({ hasText: "(0.125, 0.25]" }).waitFor();
    // One histogram has one row of buckets, and its own quantiles.
    await page.getByLabel("Histogram", { exact: true }).selectOption({ label: '{path="slow"}' });
    await page.locator(".shared").filter({ hasText: "slow" }).waitFor();
    await pointAt(page, 0.5, 0.7);
    await tip.filter({ hasText: "(0.25, 0.5]" }).waitFor();
    assert.match(await tip.textContent(), /100\.0 %/);
    await page.locator(".graph").focus();
    await page.keyboard.press("ArrowRight");
    await tip.filter({ hasText: "(0.25, 0.5]" }).waitFor();
  });
});

test("classic histograms are de-accumulated, and counters offer their rate", async () => {
  const fields = { expr: "demo_classic_bucket", display_mode: "heatmap", ...HOUR };
  await withPage(linkAtEnd(fields), async (page) => {
    assert.ok((await drawn(page)) > 5000);
    await page.getByRole("button", { name: "Show the rate" }).click();
    await page.waitForURL(
      (url) => url.searchParams.get("g0.expr") === "rate(demo_classic_bucket[5m])",
    );
    await settled(page);
    assert.match(await page.locator(".graph").getAttribute("aria-label"), /^Heatmap/);
    await page.locator(".graph").focus();
    const tip = page.locator(".tip");
    const seen = [];
    for (const key of ["End", "ArrowUp", "ArrowUp", "ArrowUp"]) {
      await page.keyboard.press(key);
      seen.push(await tip.locator(".over").textContent());
    }
    assert.deepEqual(
      seen.map((text) => text.replace(/\s/g, " ")),
      [
        "(0, 0.1]0 (0.0 %)",
        "(0.1, 0.2]0.533333 (50.0 %)",
        "(0.2, 0.4]0.533333 (50.0 %)",
        "(0.4, 0.8]0 (0.0 %)",
      ],
    );
    await page.getByRole("button", { name: "Lines" }).click();
    await settled(page);
    assert.match(await page.locator(".graph").getAttribute("aria-label"), /^Graph of 10 series/);
  });
});

test("a histogram at one time has a chart on two axes, and a table of its buckets", async () => {
  await withPage(linkAtEnd({ expr: "demo_native", tab: "table" }), async (page) => {
    const chart = page.locator(".histogram").first();
    await chart.waitFor();
    assert.match(await chart.locator("dl").textContent(), /Count1\s920Sum288Average0\.15/);
    await chart.locator("summary").click();
    const cells = await chart.locator(".buckets tbody td").allTextContents();
    assert.deepEqual(
      cells.map((text) => text.replace(/\s/g, " ")),
      ["(0.125, 0.25]", "1 920", "100.0 %", "100.0 %"],
    );
    const label = () => chart.locator(".histogram-chart").getAttribute("aria-label");
    assert.match(await label(), /1 buckets from \(0\.125, 0\.25\].*, count$/);
    await chart.getByRole("button", { name: "Linear" }).click();
    assert.match(await label(), /count by width$/);
    await shot(page, "histogram");
  });
});

test("exemplars are points with their labels", async () => {
  const fields = { expr: "rate(demo_native[1m])", show_exemplars: "1", ...HOUR };
  await withPage(linkAtEnd(fields), async (page) => {
    await drawn(page);
    const [x, y] = await page.evaluate(async () => {
      const { charts } = await import("./ui/chart.js");
      const chart = [...charts].find((one) => one.exemplars.length > 0);
      const { ms, value } = chart.exemplars.at(-1);
      const box = chart.element.getBoundingClientRect();
      return [box.left + chart.xOf(ms), box.top + chart.y(chart.heightOf(value))];
    });
    await page.mouse.move(x, y);
    const tip = page.locator(".tip");
    await tip.filter({ hasText: "Exemplar" }).waitFor();
    assert.match(await tip.textContent(), /trace_id(ab){16}demo_native\{path="(fast|slow)"\}/);
    const { exemplars } = await page.evaluate(() => ({
      exemplars: new URL(location).searchParams.get("g0.show_exemplars"),
    }));
    assert.equal(exemplars, "1");
    await page.mouse.move(x, y - 300);
    const shown = new Set();
    await page.locator(".graph").first().focus();
    for (let press = 0; press < 3; press += 1) {
      await page.keyboard.press("e");
      await tip.filter({ hasText: "Exemplar" }).waitFor();
      shown.add(await tip.textContent());
    }
    assert.ok(shown.size > 1, [...shown].join());
    await page.getByRole("button", { name: "Exemplars" }).click();
    await settled(page);
    await page.mouse.move(x + 1, y);
    await tip.filter({ hasText: "p50" }).waitFor();
  });
});

test("an earlier range is dashed, and a second query has a name", async () => {
  const fields = {
    expr: 'demo_load{instance="node-007"}',
    compare_offset: "30m",
    compare_expr: 'demo_load{instance="node-008"}',
    range_input: "30m",
  };
  await withPage(linkAtEnd(fields), async (page) => {
    assert.ok((await drawn(page)) > 500);
    const names = await page.locator(".legend .name").allTextContents();
    assert.equal(names.length, 3);
    assert.match(names[0], /^A demo_load\{instance="node-007"/);
    assert.match(names[1], /node-007".*\(30m before\)$/);
    assert.match(names[2], /^B demo_load\{instance="node-008"/);
    assert.equal(await page.locator(".legend .swatch.dashed").count(), 1);
    const all = await colouredPixels(page);
    await page.locator(".legend tbody button").nth(1).click();
    const dashed = await colouredPixels(page);
    await page.locator(".legend tbody button").nth(0).click();
    const solid = await colouredPixels(page);
    assert.ok(dashed > 100 && dashed < solid * 0.85 && solid < all, `${dashed} ${solid} ${all}`);
    await shot(page, "compared");
    await page.getByRole("button", { name: "Stacked" }).click();
    await settled(page);
    assert.equal(await page.locator(".legend .name").count(), 2);
    assert.equal(await page.getByLabel("Compare with").isVisible(), false);
  });
});
