// Writing a query in a real browser: keys, errors, times.

import assert from "node:assert/strict";
import { test } from "node:test";

import { LOAD, drawn, linkAtEnd, settled, withPage } from "./harness.mjs";

/** The end of the picked range as addresses have it: in UTC. */
const END_OF_PICKED = new Date(2026, 2, 1, 12, 30).toISOString().slice(0, 19).replace("T", " ");

const area = (page) => page.locator(".editor textarea").first();
const figures = (page) => page.locator(".figures-line").first();

test("the query has the focus at first, with the cursor behind it", async () => {
  await withPage(LOAD, async (page) => {
    await drawn(page);
    await page.keyboard.type(" > 60");
    assert.equal(await area(page).inputValue(), "demo_load > 60");
    assert.equal(await page.locator(".choices").isVisible(), false);
  });
});

test("Enter runs the query however fast it is typed", async () => {
  await withPage(LOAD, async (page) => {
    await drawn(page);
    const runs = ["count(demo_load)", "demo_load{zone='east'}", "sum(demo_load)"];
    const counts = ["1 series", "34 series", "1 series"];
    for (const [index, query] of runs.entries()) {
      await area(page).fill("");
      // All keys in one task: no suggestion can be listed before Enter.
      await page.keyboard.insertText(query);
      await page.keyboard.press("Enter");
      await figures(page).filter({ hasText: counts[index] }).waitFor();
      assert.equal(new URL(page.url()).searchParams.get("g0.expr"), query);
      assert.equal(await page.locator(".choices").isVisible(), false);
    }
    // A prefix of other names, with suggestions listed.
    await area(page).fill("");
    await page.keyboard.type("demo_load");
    await page.keyboard.press("Backspace");
    await page.getByRole("option").filter({ hasText: "demo_load" }).waitFor();
    await page.keyboard.press("Enter");
    await page.waitForURL((url) => url.searchParams.get("g0.expr") === "demo_loa");
    assert.equal(await page.locator(".choices").isVisible(), false);
  });
});

test("brackets close, and undo restores the text before a suggestion", async () => {
  await withPage(LOAD, async (page) => {
    await drawn(page);
    await area(page).fill("");
    await page.keyboard.type('sum(demo_load{zone="east"})');
    assert.equal(await area(page).inputValue(), 'sum(demo_load{zone="east"})');
    await area(page).fill("");
    await page.keyboard.type("count(demo_loa");
    assert.equal(await area(page).inputValue(), "count(demo_loa)");
    await page.getByRole("option").filter({ hasText: "demo_load" }).waitFor();
    await page.keyboard.press("Tab");
    assert.equal(await area(page).inputValue(), "count(demo_load)");
    await page.keyboard.press("Control+z");
    assert.equal(await area(page).inputValue(), "count(demo_loa)");
  });
});

test("the error follows the text while it is written", async () => {
  await withPage(LOAD, async (page) => {
    await drawn(page);
    const message = page.locator(".message");
    await area(page).fill("rate(demo_load)");
    await page.keyboard.press("Enter");
    await message.filter({ hasText: "expected type range vector" }).waitFor();
    await area(page).fill("sum(demo_load");
    await message.filter({ hasText: "unclosed left parenthesis" }).waitFor();
    await area(page).fill("sum(demo_load)");
    await message.waitFor({ state: "hidden" });
    // Errors of the evaluation end with the text that they are about.
    await area(page).fill("demo_load + on(zone) demo_load");
    await page.keyboard.press("Enter");
    await message.filter({ hasText: "many-to-many" }).waitFor();
    await area(page).fill("demo_load");
    await message.waitFor({ state: "hidden" });
  });
});

test("a result is outdated from the first edit until the query runs", async () => {
  await withPage(LOAD, async (page) => {
    await drawn(page);
    const outdated = page.locator(".outdated");
    assert.equal(await outdated.isVisible(), false);
    await page.keyboard.type(" * 2");
    await outdated.waitFor();
    for (let key = 0; key < 4; key++) {
      await page.keyboard.press("Backspace");
    }
    await outdated.waitFor({ state: "hidden" });
    await page.keyboard.type(" * 2");
    await outdated.waitFor();
    await page.keyboard.press("Enter");
    await outdated.waitFor({ state: "hidden" });
    await settled(page);
    assert.equal(await outdated.isVisible(), false);
  });
});

test("a range is shown in full, and an invalid time says what is expected", async () => {
  await withPage(linkAtEnd({ expr: "demo_load", range_input: "1d12h7m30s" }), async (page) => {
    await settled(page);
    const range = page.locator(".range");
    assert.equal(await range.inputValue(), "1d12h7m30s");
    const [inside, whole] = await range.evaluate((one) => [one.scrollWidth, one.clientWidth]);
    assert.ok(inside <= whole, `${inside} of ${whole} pixels`);
    const error = page.locator(".time-error");
    for (const [input, text, expected] of [
      [".range", "ten minutes", /"ten minutes".*15m/],
      [".end", "yesterday evening", /"yesterday evening".*2026-11-22 05:10/],
    ]) {
      await page.locator(input).fill(text);
      await page.keyboard.press("Enter");
      await error.waitFor();
      assert.match(await error.textContent(), expected);
      await page.locator(input).fill("");
      await page.locator(input).fill(input === ".range" ? "7m30s" : "now");
      await page.keyboard.press("Enter");
      await error.waitFor({ state: "hidden" });
    }
  });
});

test("names of metrics are not broken in the middle, and the theme button shows its state", async () => {
  await withPage(
    linkAtEnd({ expr: "process_resident_memory_bytes", tab: "table" }),
    async (page) => {
      await page.waitForSelector(".result, .empty");
      const theme = page.getByRole("button", { name: /^Theme/ });
      for (const state of ["Auto", "Light", "Dark", "Auto"]) {
        assert.match(await theme.textContent(), new RegExp(state));
        await theme.click();
      }
    },
  );
  const narrow = { viewport: { width: 390, height: 800 } };
  await withPage(
    `query?${new URLSearchParams({ "g0.expr": "process_resident_memory_bytes", "g0.tab": "table" })}`,
    async (page) => {
      const name = page.locator(".result .metric").first();
      await name.waitFor();
      const lines = await name.evaluate((one) => one.getClientRects().length);
      assert.equal(lines, 1);
    },
    narrow,
  );
});

test("a range is picked by keyboard, from presets or as a start and an end", async () => {
  await withPage(LOAD, async (page) => {
    await drawn(page);
    const opener = page.getByRole("button", { name: "Pick a range" });
    const dialog = page.getByRole("dialog", { name: "Range of time" });
    const parameter = (name) => new URL(page.url()).searchParams.get(`g0.${name}`);
    await opener.focus();
    await page.keyboard.press("Enter");
    await dialog.waitFor();
    await page.keyboard.press("ArrowDown");
    await page.keyboard.press("ArrowDown");
    await page.keyboard.press("Enter");
    await page.waitForURL((url) => url.searchParams.get("g0.range_input") === "1h");
    assert.equal(parameter("end_input"), null);
    await opener.click();
    await dialog.getByLabel("From").fill("2026-03-01T10:00:00");
    await dialog.getByLabel("To").fill("2026-03-01T09:00:00");
    await page.keyboard.press("Enter");
    await dialog.locator(".time-error").filter({ hasText: "before" }).waitFor();
    await dialog.getByLabel("To").fill("2026-03-01T12:30:00");
    await page.keyboard.press("Enter");
    await page.waitForURL((url) => url.searchParams.get("g0.range_input") === "2h30m");
    assert.equal(parameter("end_input"), END_OF_PICKED);
    await opener.click();
    await page.keyboard.press("Escape");
    await dialog.waitFor({ state: "hidden" });
    assert.ok(await opener.evaluate((one) => one === document.activeElement));
    await page.locator(".end").fill("now-1d");
    await page.keyboard.press("Enter");
    await page.waitForURL((url) => !url.searchParams.get("g0.end_input").startsWith("2026-03"));
  });
});

test("a second query and an earlier range are chosen and remain in the address", async () => {
  await withPage(LOAD, async (page) => {
    await drawn(page);
    await page.getByRole("button", { name: "Second query" }).click();
    await page.keyboard.type("count(demo_load)");
    await page.keyboard.press("Enter");
    await figures(page).filter({ hasText: "101 series" }).waitFor();
    await page.getByLabel("Compare with").selectOption({ label: "Compare: 1h before" });
    await figures(page).filter({ hasText: "201 series" }).waitFor();
    await page.reload();
    await figures(page).filter({ hasText: "201 series" }).waitFor();
    const names = await page.locator(".legend .name").allTextContents();
    assert.equal(names.filter((name) => name.endsWith("(1h before)")).length, 100);
    assert.equal(names.at(-1), "B {}");
    await page.getByRole("button", { name: "Second query" }).click();
    await figures(page).filter({ hasText: "200 series" }).waitFor();
  });
});

test("a second query is parsed while it is written, and shown only with the graph", async () => {
  await withPage(LOAD, async (page) => {
    await drawn(page);
    await page.getByRole("button", { name: "Second query" }).click();
    const second = page.locator(".second textarea");
    await second.fill("sum(");
    const message = page.locator(".message").filter({ hasText: "unclosed left parenthesis" });
    await message.waitFor();
    await page.getByRole("tab", { name: "Table" }).click();
    await second.waitFor({ state: "hidden" });
    await page.getByRole("tab", { name: "Graph" }).click();
    await second.fill("sum(demo_load)");
    await message.waitFor({ state: "hidden" });
  });
});

test("an error that waits for the suggestions appears after Esc", async () => {
  await withPage(LOAD, async (page) => {
    await drawn(page);
    await area(page).fill("");
    const parsed = page.waitForResponse((response) => response.url().includes("parse_query"));
    await page.keyboard.type("demo_load{zone=east} + demo_loa");
    await page.getByRole("option").filter({ hasText: "demo_load" }).waitFor();
    await parsed;
    const message = page.locator(".message");
    assert.equal(await message.isVisible(), false);
    await page.keyboard.press("Escape");
    await message.filter({ hasText: "unexpected" }).waitFor();
  });
});
