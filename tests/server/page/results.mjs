// Results in a real browser: tables, files, images, the address.

import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";

import { LOAD, drawn, linkAtEnd, shot, withPage } from "./harness.mjs";

const TABLE = linkAtEnd({ expr: "demo_load", tab: "table" });

/** Clicks a button and returns the name and content of the file that it saves. */
async function saved(page, name) {
  const [download] = await Promise.all([
    page.waitForEvent("download"),
    page.getByRole("button", { name, exact: true }).click(),
  ]);
  return [download.suggestedFilename(), readFileSync(await download.path())];
}

const texts = (page, column) =>
  page.locator(`.result tbody td:nth-child(${column})`).allTextContents();

test("a table has a column for each label, and sorts and filters its rows", async () => {
  await withPage(TABLE, async (page) => {
    await page.locator(".result").waitFor();
    const heads = await page.locator(".result th").allTextContents();
    assert.deepEqual(heads, ["Metric", "instance", "zone", "Value"]);
    await page.getByRole("button", { name: "zone" }).click();
    const zones = await texts(page, 3);
    assert.deepEqual(zones, [...zones].sort());
    await page.getByRole("button", { name: "zone" }).click();
    assert.deepEqual((await texts(page, 3))[0], "west");
    await page.getByRole("button", { name: "Value" }).click();
    const values = (await texts(page, 4)).map(Number);
    assert.deepEqual(
      values,
      [...values].sort((a, b) => b - a),
    );
    const head = page.locator(".result th").nth(3);
    assert.equal(await head.getAttribute("aria-sort"), "descending");
    await page.getByLabel("Filter series").fill("node-00 east");
    assert.deepEqual([...new Set(await texts(page, 3))], ["east"]);
    assert.equal((await texts(page, 2)).length, 4);
    await shot(page, "table");
  });
});

test("ranges, scalars and strings have tables of their own", async () => {
  const cases = [
    [
      'demo_load{instance="node-001"}[1m]',
      /^demo_loadnode-001north[\d.]+-\d\d-\d\d \d\d:/,
      "1 series",
    ],
    ["scalar(vector(3))", /^3$/, ""],
    ['"text"', /^text$/, ""],
  ];
  for (const [expr, expected, count] of cases) {
    await withPage(linkAtEnd({ expr, tab: "table" }), async (page) => {
      await page.locator(".result tbody tr").first().waitFor();
      assert.match(await page.locator(".result > tbody").first().textContent(), expected);
      const figures = await page.locator(".figures-line").textContent();
      assert.equal(figures.includes("series"), count !== "", figures);
    });
  }
});

test("a table is saved and copied as it is listed", async () => {
  const permissions = ["clipboard-read", "clipboard-write"];
  await withPage(
    TABLE,
    async (page) => {
      await page.locator(".result").waitFor();
      await page.getByLabel("Filter series").fill("node-00 east");
      const [name, content] = await saved(page, "CSV");
      assert.equal(name, "demo_load.csv");
      const lines = String(content).trim().split("\r\n");
      assert.equal(lines[0], "__name__,instance,zone,timestamp,value");
      assert.equal(lines.length, 5);
      assert.match(lines[1], /^demo_load,node-000,east,\d+(\.\d+)?,\d+\.\d+$/);
      const [jsonName, json] = await saved(page, "JSON");
      assert.equal(jsonName, "demo_load.json");
      const series = JSON.parse(json);
      assert.deepEqual(
        series.map(({ metric }) => metric.instance),
        ["node-000", "node-003", "node-006", "node-009"],
      );
      await page.getByRole("button", { name: "Copy", exact: true }).click();
      await page.locator(".controls [role=status]").filter({ hasText: "Copied" }).waitFor();
      assert.equal(await page.evaluate(() => navigator.clipboard.readText()), String(content));
    },
    { permissions },
  );
});

test("a graph is saved as an image and as values", async () => {
  await withPage(LOAD, async (page) => {
    await drawn(page);
    await page.locator(".legend tbody button").nth(3).click();
    const [name, image] = await saved(page, "PNG");
    assert.equal(name, "demo_load.png");
    assert.deepEqual(
      [...image.subarray(1, 4)],
      [..."PNG"].map((letter) => letter.charCodeAt(0)),
    );
    // Width and height of the header: the graph with margins, its query and one name.
    const [width, height] = [image.readUInt32BE(16), image.readUInt32BE(20)];
    assert.ok(width > 800 && height > 250, `${width} × ${height}`);
    const [, values] = await saved(page, "CSV");
    const lines = String(values).trim().split("\r\n");
    assert.match(lines[0], /^time,"\{instance=""node-003""/);
    assert.match(lines.at(-1), /^\d{4}-\d\d-\d\dT.*Z,\d+\.\d+$/);
  });
});

test("the address is copied", async () => {
  const permissions = ["clipboard-read", "clipboard-write"];
  await withPage(
    LOAD,
    async (page) => {
      await drawn(page);
      await page.getByRole("button", { name: "Share" }).click();
      await page.locator(".time [role=status]").filter({ hasText: "Address copied" }).waitFor();
      assert.equal(await page.evaluate(() => navigator.clipboard.readText()), page.url());
    },
    { permissions },
  );
});
