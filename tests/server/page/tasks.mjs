// Ten tasks of a user, from the first click to the result, on a desktop and on a phone.
//
// If TASK_SHOTS names a folder, each task ends with a screenshot, in light and in dark colours.

import assert from "node:assert/strict";
import { mkdirSync, readFileSync } from "node:fs";
import { get } from "node:http";
import { join } from "node:path";
import { before, test } from "node:test";

import { END_MS, SERVER, drawn, linkAtEnd, openTab, settled, withPage, write } from "./harness.mjs";
import { writeHistograms, writeRequests } from "./histograms.mjs";

const { TASK_SHOTS } = process.env;
const PHONE = {
  viewport: { width: 375, height: 760 },
  deviceScaleFactor: 2,
  isMobile: true,
  hasTouch: true,
};
const WIDTHS = { desktop: {}, phone: PHONE };
const COLOURS = TASK_SHOTS ? ["light", "dark"] : ["light"];
const RATES = "sum by (route) (rate(demo_requests_total[5m]))";

before(async () => {
  await writeHistograms();
  await writeRequests();
  if (TASK_SHOTS) {
    mkdirSync(TASK_SHOTS, { recursive: true });
  }
});

/** Tests a task: opens the address and does the work, on each width and in each colour. */
function task(name, address, work) {
  test(`a user can ${name}`, async () => {
    for (const [width, device] of Object.entries(WIDTHS)) {
      for (const colorScheme of COLOURS) {
        const permissions = ["clipboard-read", "clipboard-write"];
        const options = { ...device, colorScheme, permissions };
        await withPage(address, (page) => done(page, name, width, colorScheme, work), options);
      }
    }
  });
}

async function done(page, name, width, colour, work) {
  const last = (await work(page)) ?? page;
  const wide = await last.evaluate(() => document.documentElement.scrollWidth - innerWidth);
  assert.ok(wide <= 0, `${name}: ${wide} pixels beyond the ${width}`);
  if (TASK_SHOTS) {
    const file = `${name.replaceAll(" ", "-")}.${width}.${colour}.png`;
    await last.screenshot({ path: join(TASK_SHOTS, file), fullPage: true });
  }
}

task("graph a rate by keyboard", linkAtEnd({ expr: "vector(1)" }), async (page) => {
  await drawn(page);
  const offers = (text) => page.getByRole("option").filter({ hasText: text }).first().waitFor();
  await write(page, "rat");
  await offers("rate");
  await page.keyboard.press("Tab");
  await page.keyboard.type("demo_req");
  await offers("demo_requests_total");
  await page.keyboard.press("Tab");
  await page.keyboard.type("[5m]");
  const area = page.locator(".editor textarea").first();
  assert.equal(await area.inputValue(), "rate(demo_requests_total[5m])");
  await page.keyboard.press("Enter");
  await page.locator(".figures-line").filter({ hasText: "6 series" }).waitFor();
  assert.ok((await drawn(page)) > 500);
});

task("read a native histogram", linkAtEnd({ expr: "demo_native" }), async (page) => {
  await drawn(page);
  await openTab(page, "Table");
  const chart = page.locator(".histogram").first();
  await chart.locator("summary").click();
  assert.match(await chart.locator("dl").textContent(), /Count1\s920Sum288Average0\.15/);
  assert.match(await chart.locator(".buckets").textContent(), /\(0\.125, 0\.25\]1\s920/);
});

const CLASSIC = { expr: "rate(demo_classic_bucket[5m])", range_input: "50m" };
task("see the quantiles of a classic histogram", linkAtEnd(CLASSIC), async (page) => {
  await drawn(page);
  await page.getByRole("button", { name: "Heatmap" }).click();
  await page.locator(".quantiles").filter({ hasText: "p50p90p99" }).waitFor();
  assert.match(await page.locator(".graph").getAttribute("aria-label"), /^Heatmap/);
  await page.locator(".graph").focus();
  await page.keyboard.press("End");
  await page.keyboard.press("ArrowUp");
  await page.locator(".tip").filter({ hasText: "(0.1, 0.2]" }).waitFor();
});

const LOSSY = { expr: `${RATES} / on (route) demo_limit` };
task("find the series that an operator loses", linkAtEnd(LOSSY), async (page) => {
  await page.locator(".figures-line").filter({ hasText: "2 series" }).waitFor();
  await openTab(page, "Explain");
  await page.getByRole("button", { name: "Matching" }).click();
  const lost = page.locator(".matching tbody tr").filter({ hasText: "no partner" });
  await lost.waitFor();
  assert.match(
    await lost.textContent(),
    /route="\/pay".*no partner on the right side for 1 series/,
  );
});

task("filter, sort and save a table", linkAtEnd({ expr: "demo_load" }), async (page) => {
  await openTab(page, "Table");
  await page.getByLabel("Filter series").fill("east");
  await page.getByRole("button", { name: "Value" }).click();
  await page.locator("th[aria-sort=descending]").waitFor();
  const [download] = await Promise.all([
    page.waitForEvent("download"),
    page.getByRole("button", { name: "CSV", exact: true }).click(),
  ]);
  const lines = String(readFileSync(await download.path()))
    .trim()
    .split("\r\n");
  assert.equal(lines.length, 35);
  const values = lines.slice(1).map((line) => Number(line.split(",").at(-1)));
  assert.deepEqual(
    values,
    [...values].sort((a, b) => b - a),
  );
});

// Without the server's own metrics, whose series become more with each endpoint that is asked.
const DEMO = `tsdb-status?${new URLSearchParams({ match: '{__name__=~"demo_.*"}' })}`;
task("find the value behind the most series", DEMO, async (page) => {
  const first = async (title) => {
    const list = page.locator(".lists section").filter({ hasText: title });
    const row = list.locator("tbody tr").first();
    await row.waitFor();
    const [name, count] = await row.locator("td").allTextContents();
    await row.locator("a").click();
    return [name, count];
  };
  const series = page.locator(".figures").first();
  const [metric, count] = await first("Metrics with the most series");
  await page.waitForURL((url) => url.searchParams.get("match")?.includes(metric));
  await series.filter({ hasText: `(UTC)${count}Day` }).waitFor();
  const [label] = await first("Labels with the most values");
  await page.waitForURL((url) => url.searchParams.has("label"));
  const [value, share] = await first(`Values of ${label}`);
  await page.waitForURL((url) => url.searchParams.get("match").includes(JSON.stringify(value)));
  await series.filter({ hasText: `(UTC)${share}Day` }).waitFor();
});

/** Asks for a long answer and does not read it, so that the query stays active. */
function unread() {
  const [start, end] = [END_MS / 1000 - 10_999, END_MS / 1000];
  // More bytes than the buffers of sockets hold.
  const copies = ["a", "b", "c"].map(
    (copy) => `label_replace(demo_load, "copy", "${copy}", "", "")`,
  );
  const query = copies.join(" or ");
  const range = new URLSearchParams({ query, start, end, step: 1, nocache: 1 });
  return new Promise((resolve) => {
    get(`${SERVER}/api/v1/query_range?${range}`, (answer) => {
      const ended = new Promise((ends) => answer.once("error", ends).once("close", ends));
      resolve({ query, answer, ended });
    });
  });
}

task("cancel an active query", "active-queries", async (page) => {
  const { query, answer, ended } = await unread();
  const refresh = page.getByRole("button", { name: "Refresh" });
  const cancel = page.getByRole("button", { name: `Cancel ${query}` });
  await refresh.click();
  await cancel.click();
  // The list may still have the query while it ends.
  while ((await page.getByText("No active queries").count()) === 0) {
    await refresh.click();
  }
  answer.resume();
  await ended;
  assert.ok(!answer.complete, "the answer is whole");
});

task("find out why a query is expensive", "top-queries", async (page) => {
  await page.getByRole("button", { name: "Samples", exact: true }).click();
  await page.locator("th[aria-sort=descending]").filter({ hasText: "Samples" }).waitFor();
  const row = page.locator(".queries-list tbody tr").first();
  const query = await row.locator(".query-text").textContent();
  await row.getByRole("link", { name: `Explain ${query}` }).click();
  await page.locator(".tree th").filter({ hasText: "Self time" }).waitFor();
  assert.equal(await page.locator(".editor textarea").first().inputValue(), query);
  await page.locator("summary").filter({ hasText: "Execution plan" }).click();
  await page.locator(".plan tbody tr").first().waitFor();
});

const ALL_RATES = { expr: "sum(rate(demo_requests_total[5m]))", range_input: "1h" };
task("compare with the week before", linkAtEnd(ALL_RATES), async (page) => {
  await drawn(page);
  await page.getByLabel("Compare with").selectOption({ label: "Compare: 1w before" });
  await page.locator(".legend .swatch.dashed").waitFor();
  const names = page.locator(".legend .name");
  assert.match((await names.allTextContents()).join(), /\(1w before\)/);
  await page.locator(".graph").focus();
  await page.keyboard.press("End");
  await page.locator(".tip").waitFor();
});

task("share a graph by its address", linkAtEnd({ expr: RATES }), async (page) => {
  await drawn(page);
  await page.getByRole("button", { name: "Stacked" }).click();
  await settled(page);
  await page.getByRole("button", { name: "Share" }).click();
  await page.locator(".time [role=status]").filter({ hasText: "Address copied" }).waitFor();
  const address = await page.evaluate(() => navigator.clipboard.readText());
  const other = await page.context().newPage();
  await other.goto(address);
  assert.ok((await drawn(other)) > 500);
  assert.equal(await other.locator(".editor textarea").first().inputValue(), RATES);
  const stacked = other.getByRole("button", { name: "Stacked" });
  assert.equal(await stacked.getAttribute("aria-pressed"), "true");
  assert.equal(await other.locator(".legend .name").count(), 3);
  return other;
});
