// The status pages and the list of metrics.

import assert from "node:assert/strict";
import { test } from "node:test";

import { shot, withPage } from "./harness.mjs";

test("the list of metrics continues, and the keyboard follows", async () => {
  await withPage("explore", async (page) => {
    const names = Array.from({ length: 1234 }, (_, at) => `metric_${String(at).padStart(4, "0")}`);
    await page.route("**/api/v1/label/__name__/values*", (route) =>
      route.fulfill({ json: { status: "success", data: names } }),
    );
    await page.reload();
    const rows = page.locator(".metrics li");
    const count = page.locator(".side .hint");
    const more = page.getByRole("button", { name: /^Show/ });
    await count.filter({ hasText: "The first 500 of 1\u202f234 metrics" }).waitFor();
    assert.equal(await rows.count(), 500);
    await more.focus();
    await page.keyboard.press("Enter");
    assert.equal(await rows.count(), 1000);
    assert.match(await page.evaluate(() => document.activeElement.textContent), /^metric_0500/);
    assert.equal(await more.textContent(), "Show 234 more");
    await more.click();
    assert.equal(await rows.count(), 1234);
    await more.waitFor({ state: "hidden" });
    await page.locator(".side input").fill("metric_07");
    await count.filter({ hasText: /^100 metrics/ }).waitFor();
    assert.equal(await rows.count(), 100);
  });
});

test("the status shows the store and empty sections", async () => {
  await withPage("status", async (page) => {
    const part = page.locator(".part");
    const shows = async (name, text) => {
      await page.locator(".parts a").filter({ hasText: name }).click();
      await part
        .filter({ has: page.locator("h1", { hasText: name }) })
        .filter({ hasText: text })
        .waitFor();
    };
    await part.filter({ hasText: "Resident memory" }).waitFor();
    assert.match(await part.textContent(), /Version\d+\.\d+.*Running since.*Retentionunlimited/);
    await shot(page, "status");
    await shows("Store", "Series in memory");
    assert.match(page.url(), /store$/);
    assert.match(await part.textContent(), /Retention.*unlimited.*Growth per day/);
    assert.match(await part.textContent(), /Hit rate.*decoded samples.*MiB/);
    assert.match(await part.textContent(), /Segments to compact\d.*Writes[1-9].*Deleted objects\d/);
    await part.filter({ hasText: /No sealed day yet|Day \(UTC\)/ }).waitFor();
    await shot(page, "store");
    await shows("Flags", "--storage.url");
    await part.getByRole("searchbox").fill("query.timeout");
    assert.equal(await part.locator("tbody tr").count(), 1);
    await shows("Configuration", "evaluation_interval");
    await shows("Targets", /No targets.*remote_write:.*\/api\/v1\/write.*remote write, migrating/s);
    await page.locator(".part a").filter({ hasText: "up" }).click();
    await page.waitForURL(/query\?g0\.expr=up&/);
    await page.goBack();
    await shows("Service discovery", /No service discovery.*remote_write:/s);
    assert.match(page.url(), /service-discovery$/);
    await page.reload();
    await shows(
      "Rules",
      /No rules.*vmalert -rule.*thanos rule --query=http.*documentation: rules/s,
    );
    await shows("Alerts", /No alerts.*vmalert.*ALERTS/s);
    assert.match(await page.title(), /^Alerts/);
    await shot(page, "alerts");
    await page.goBack();
    await part.filter({ hasText: "No rules" }).waitFor();
  });
});

test("a document is a page, and its links lead to others", async () => {
  await withPage("rules", async (page) => {
    await page.locator(".part a").filter({ hasText: "rules over shards" }).click();
    await page.waitForURL(/docs\/scale-out\.md#rules$/);
    await page.locator("h2#rules").waitFor();
    assert.match(await page.title(), /^Scale-out/i);
    await shot(page, "document");
    await page.locator("nav a").filter({ hasText: "Docs" }).click();
    await page.getByRole("heading", { name: "Documentation" }).waitFor();
    assert.ok((await page.locator("main a").count()) > 20);
    await page.locator("main a").filter({ hasText: "configuration" }).click();
    await page.waitForURL(/docs\/configuration\.md$/);
    await page.locator("nav a").filter({ hasText: "Query" }).click();
    await page.waitForURL(/query$/);
    await page.locator("nav a").filter({ hasText: "Docs" }).click();
    await page.waitForURL(/docs\/$/);
  });
});

test("the store lists its days, as many as are chosen", async () => {
  const DAY = 86_400_000;
  await withPage("status", async (page) => {
    const asked = [];
    await page.route("**/api/v1/status/days*", (route) => {
      const limit = Number(new URL(route.request().url()).searchParams.get("limit"));
      asked.push(limit);
      const day = (_, at) => {
        const start = (20_000 - at) * DAY;
        const blocks = { blocks: 2_000, blockBytes: 3 << 20, blocksSummarized: 7 };
        return { start, end: start + DAY, series: 4, ...blocks, bytes: 4 << 20 };
      };
      const days = Array.from({ length: Math.min(limit, 12) }, day);
      return route.fulfill({ json: { status: "success", data: { count: 12, days } } });
    });
    await page.locator(".parts a").filter({ hasText: "Store" }).click();
    const rows = page.locator("table").last().locator("tbody tr");
    await rows.nth(9).waitFor();
    assert.equal(await rows.count(), 10);
    assert.match(
      await rows.first().textContent(),
      /^2024-10-0442\u202f0003 MiB74 MiB1 MiB\d+y ago$/,
    );
    await page.getByLabel("Days in the list").selectOption("50");
    await rows.nth(11).waitFor();
    assert.match(page.url(), /store\?days=50$/);
    assert.deepEqual(asked, [10, 50]);
    await page.unroute("**/api/v1/status/days*");
    await page.route("**/api/v1/status/days*", (route) =>
      route.fulfill({ status: 422, json: { status: "error", error: "too slow" } }),
    );
    await page.reload();
    await page.getByRole("alert").filter({ hasText: "too slow" }).waitFor();
    await page.locator(".part").filter({ hasText: "Series in memory" }).waitFor();
  });
});

test("top queries are sorted, and lead to their plan", async () => {
  await withPage("top-queries", async (page) => {
    const ask = (query) =>
      page.evaluate(
        (text) => fetch(`api/v1/query?query=${encodeURIComponent(text)}`).then((got) => got.status),
        query,
      );
    const [often, failing] = ['count(demo_load{zone="north"})', 'label_join("<i>", "", "", "")'];
    for (let round = 0; round < 60; round++) {
      assert.equal(await ask(often), 200);
    }
    await ask(failing);
    const sortedBy = (name) => page.locator("th[aria-sort=descending]").filter({ hasText: name });
    await page.getByRole("button", { name: "Count", exact: true }).focus();
    await page.keyboard.press("Enter");
    await sortedBy("Count").waitFor();
    assert.match(page.url(), /sort=count/);
    assert.equal(await page.evaluate(() => document.activeElement.textContent), "Count");
    const counts = await page.locator(".queries-list td:nth-child(2)").allTextContents();
    const numbers = counts.map(Number);
    assert.ok(numbers[0] >= 60, counts.join());
    assert.deepEqual(
      numbers,
      [...numbers].sort((a, b) => b - a),
    );
    await page.goBack();
    await sortedBy("Total time").waitFor();
    await shot(page, "top-queries");
    // It is listed by its count: how long other queries take depends on the machine.
    await page.goForward();
    await sortedBy("Count").waitFor();
    await page.getByRole("link", { name: `Explain ${often}` }).click();
    await page.locator(".plan tbody tr").first().waitFor({ state: "attached" });
    assert.equal(await page.locator(".editor textarea").first().inputValue(), often);
  });
});

test("an active query can be canceled, if the server allows it", async () => {
  const cost = { series: 1, samples: 2, memoryBytes: 3, objectStoreReads: 4 };
  const query = { id: "7", query: "sum(<b>)", time: 1, ageSeconds: 3, state: "running", cost };
  const listed = [{ ...query, client: "10.0.0.1:5", user: "" }];
  for (const admin of [true, false]) {
    await withPage("status", async (page) => {
      const canceled = [];
      const data = (data) => (route) => route.fulfill({ json: { status: "success", data } });
      await page.route("**/api/v1/features", data({ api: { admin } }));
      await page.route("**/status/active_queries", (route) => data(listed)(route));
      await page.route("**/status/active_queries/*/cancel", (route) => {
        canceled.push(`${route.request().method()} ${new URL(route.request().url()).pathname}`);
        listed.length = 0;
        return route.fulfill({ status: 204 });
      });
      await page.locator(".parts a").filter({ hasText: "Active queries" }).click();
      const row = page.locator(".queries-list tbody tr");
      await row.filter({ hasText: "sum(<b>)" }).waitFor();
      const cancel = page.getByRole("button", { name: "Cancel sum(<b>)" });
      assert.equal(await cancel.count(), admin ? 1 : 0);
      if (!admin) {
        await page.locator(".part").filter({ hasText: "--web.enable-admin-api" }).waitFor();
        return;
      }
      await cancel.press("Enter");
      await page.locator(".part").filter({ hasText: "No active queries" }).waitFor();
      assert.deepEqual(canceled, ["POST /api/v1/status/active_queries/7/cancel"]);
      listed.push({ ...query, client: "10.0.0.1:5", user: "" });
    });
  }
});

test("the cardinality explorer leads from a metric to a label to a value", async () => {
  const link = (page, name) => page.locator(".lists a").filter({ hasText: name }).first();
  await withPage("tsdb-status", async (page) => {
    const created = page.locator(".hours");
    await created.waitFor();
    assert.equal(await created.locator("span").count(), 24);
    await page.locator("table").last().filter({ hasText: "demo_load100" }).waitFor();
    await link(page, /^demo_load$/).click();
    await page.waitForURL(/match=/);
    await page.waitForFunction(() =>
      /^Series created: 100 in 24 hours/.test(document.querySelector(".hours")?.ariaLabel),
    );
    const series = page.locator(".figures").first();
    await series.filter({ hasText: /\(UTC\)100/ }).waitFor();
    assert.equal(await page.locator(".filters .wide").inputValue(), '{__name__="demo_load"}');
    await link(page, /^zone$/).click();
    const values = page.locator(".lists section").first();
    await values.filter({ hasText: /^Values of zone.*east34/ }).waitFor();
    await shot(page, "cardinality");
    await link(page, /^east$/).focus();
    await page.keyboard.press("Enter");
    await series.filter({ hasText: /\(UTC\)34/ }).waitFor();
    const selector = '{__name__="demo_load",zone="east"}';
    assert.equal(await page.locator(".filters .wide").inputValue(), selector);
    await page.goBack();
    await series.filter({ hasText: /\(UTC\)100/ }).waitFor();
    await page.locator(".filters .wide").fill("demo_load{");
    await page.keyboard.press("Enter");
    await page.getByRole("alert").filter({ hasText: "parse error" }).waitFor();
    await page.getByRole("button", { name: "All series" }).click();
    await page.locator("h2").filter({ hasText: "Head" }).waitFor();
    await page.locator("input[type=date]").fill("2001-02-03");
    await page.getByRole("button", { name: "Count" }).click();
    await page.locator(".part").filter({ hasText: "No series of this day match" }).waitFor();
    assert.match(page.url(), /day=2001-02-03/);
  });
});

test("a part that loads for long can be canceled", async () => {
  await withPage("status", async (page) => {
    await page.locator(".part").filter({ hasText: "Resident memory" }).waitFor();
    let isHeld = true;
    await page.route("**/status/cardinality*", (route) => (isHeld ? null : route.continue()));
    await page.locator(".parts a").filter({ hasText: "Cardinality" }).click();
    await page.getByRole("button", { name: "Cancel" }).press("Enter");
    await page.locator(".part").filter({ hasText: "Canceled" }).waitFor();
    isHeld = false;
    await page.getByRole("button", { name: "Try again" }).press("Enter");
    await page.locator(".lists a").first().waitFor();
  });
});
