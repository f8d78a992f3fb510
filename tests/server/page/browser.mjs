// The page in a real Chromium, on a real server that holds demo_load: 100 series × 500 samples.

import assert from "node:assert/strict";
import { createServer, request } from "node:http";
import { test } from "node:test";

import {
  END,
  LOAD,
  SERVER,
  colouredPixels,
  drawn,
  figures,
  link,
  settled,
  shot,
  withPage,
  write,
} from "./harness.mjs";

test("a first visit shows examples over the server's own metrics", async () => {
  await withPage("", async (page) => {
    await page.waitForSelector(".panel");
    const query = await page.locator(".editor textarea").first().inputValue();
    assert.match(query, /tessella_/);
    // In the first seconds of a server, memory has values and rates have none.
    await page.locator(".panel").nth(1).locator(".graph").waitFor();
    assert.ok((await colouredPixels(page, (await page.locator(".graph").count()) - 1)) > 0);
    assert.match(page.url(), /query\?g0\.expr=.*tessella_/);
    assert.match(await page.locator(".welcome").textContent(), /examples/);
    await shot(page, "first-visit");
  });
});

test("a link draws its query", async () => {
  for (const path of ["query", "graph"]) {
    await withPage(LOAD.replace("query", path), async (page) => {
      assert.ok((await drawn(page)) > 5000);
      assert.equal(await page.locator(".range").inputValue(), "2h");
      assert.match(await page.locator(".figures-line").textContent(), /^100 series/);
      assert.equal(await page.locator(".legend tbody tr").count(), 100);
      assert.match(await page.locator(".graph").getAttribute("aria-label"), /^Graph of 100 series/);
    });
  }
});

test("a link of an alert shows the table", async () => {
  await withPage(
    `graph?g0.expr=${encodeURIComponent("demo_load{zone='east'} > 0")}&g0.tab=1&g0.moment_input=${encodeURIComponent(END)}`,
    async (page) => {
      await page.waitForSelector(".result");
      assert.equal(await page.locator(".result tbody tr").count(), 34);
      await page.locator(".result th button").filter({ hasText: "Value" }).click();
      const values = await page.locator(".result td.number").allTextContents();
      assert.deepEqual(
        values.map(Number),
        values.map(Number).sort((a, b) => b - a),
      );
    },
  );
});

test("dragging zooms in, and going back undoes it", async () => {
  await withPage(LOAD, async (page) => {
    const wide = await drawn(page);
    const box = await page.locator(".graph").boundingBox();
    const [from, to, y] = [box.x + box.width * 0.4, box.x + box.width * 0.6, box.y + 100];
    await page.mouse.move(from, y);
    await page.mouse.down();
    await page.mouse.move((from + to) / 2, y, { steps: 4 });
    await page.mouse.move(to, y, { steps: 4 });
    await page.mouse.up();
    await page.waitForURL((url) => url.searchParams.get("g0.range_input") !== "2h");
    await settled(page);
    const [, minutes] = /^(\d+)m/.exec(new URL(page.url()).searchParams.get("g0.range_input"));
    assert.ok(Number(minutes) >= 20 && Number(minutes) <= 30, minutes);
    assert.ok((await drawn(page)) > 3000);
    await page.goBack();
    await page.waitForFunction(() => document.querySelector(".range").value === "2h");
    await settled(page);
    const again = await drawn(page);
    assert.ok(Math.abs(again - wide) < wide / 20, `${again} after ${wide}`);
  });
});

test("pointing at a line names it with its value", async () => {
  await withPage(
    link({
      expr: 'demo_load{instance="node-007"}',
      tab: "graph",
      range_input: "2h",
      end_input: END,
    }),
    async (page) => {
      await drawn(page);
      const box = await page.locator(".graph").boundingBox();
      await page.mouse.move(box.x + box.width / 2, box.y + box.height / 2);
      const tip = page.locator(".tip");
      await tip.waitFor();
      assert.match(await tip.textContent(), /\d{4}-\d\d-\d\d \d\d:\d\d:\d\d.*demo_load.*\d\d\.\d+/);
      const shown = Number((await tip.locator(".value").textContent()).trim());
      assert.ok(shown > 30 && shown < 73, String(shown));
      await page.mouse.move(0, 0);
      await tip.waitFor({ state: "hidden" });
      await page.locator(".graph").focus();
      await page.keyboard.press("ArrowRight");
      await tip.waitFor();
    },
  );
});

test("the legend hides series that are not chosen", async () => {
  await withPage(LOAD, async (page) => {
    const all = await drawn(page);
    const rows = page.locator(".legend tbody tr");
    await rows.nth(2).locator("button").click();
    const one = await colouredPixels(page);
    assert.ok(one > 300 && one < all / 3, `${one} of ${all}`);
    assert.equal(await rows.nth(2).locator("button").getAttribute("aria-pressed"), "true");
    await rows
      .nth(5)
      .locator("button")
      .click({ modifiers: ["Control"] });
    assert.ok((await colouredPixels(page)) > one * 1.2);
    await page.locator(".legend input").fill("west");
    assert.equal(await rows.count(), 33);
    assert.match(await page.locator(".graph").getAttribute("aria-label"), /^Graph of 33 series/);
  });
});

test("stacked areas fill what lines leave open", async () => {
  await withPage(LOAD, async (page) => {
    await drawn(page);
    await page.getByRole("button", { name: "Stacked" }).click();
    await page.waitForURL(/display_mode=stacked/);
    await settled(page);
    const stacked = page.getByRole("button", { name: "Stacked" });
    assert.equal(await stacked.getAttribute("aria-pressed"), "true");
    const box = await page.locator(".graph").boundingBox();
    assert.ok((await colouredPixels(page)) > box.width * box.height * 0.3);
    await shot(page, "stacked");
  });
});

test("an error is shown and underlined at its position", async () => {
  const cases = [
    ["rate(demo_load)", "expected type range vector", "demo_load"],
    ["demo_load{zone=east}", "unexpected identifier", "east"],
    ["1 +\n  sum(]", "2:7: parse error", "]"],
    ['label_replace(demo_load, "a", "$1", "zone", "(")', "invalid regular expression", null],
  ];
  await withPage(LOAD, async (page) => {
    for (const [query, message, underlined] of cases) {
      await page.locator(".editor textarea").fill(query);
      await page.getByRole("button", { name: "Run", exact: true }).click();
      await page.locator(".message").filter({ hasText: message }).waitFor();
      if (underlined !== null) {
        assert.match(
          await page.locator(".wrong").first().textContent(),
          new RegExp(underlined),
          query,
        );
      }
      assert.equal(await page.locator(".editor textarea").getAttribute("aria-invalid"), "true");
    }
    await shot(page, "error");
    await page.locator(".editor textarea").fill("demo_load");
    await page.keyboard.press("Enter");
    await page.locator(".message").waitFor({ state: "hidden" });
    assert.ok((await drawn(page)) > 5000);
  });
});

test("invalid parts of a query are underlined while it is typed", async () => {
  await withPage(LOAD, async (page) => {
    await drawn(page);
    await page.locator(".editor textarea").fill("rate(demo_load)");
    await page.locator(".wrong").filter({ hasText: "demo_load" }).waitFor();
  });
});

test("suggestions name metrics, labels, values and functions", async () => {
  await withPage(LOAD, async (page) => {
    await drawn(page);
    const options = page.getByRole("option");
    const has = (text) => options.filter({ hasText: text }).first().waitFor();
    await write(page, "su");
    await has("sum");
    await write(page, "demo_lo");
    await has("demo_load");
    await page.keyboard.press("Tab");
    assert.equal(await page.locator(".editor textarea").inputValue(), "demo_load");
    await page.keyboard.type("{zo");
    await has("zone");
    await page.keyboard.press("Tab");
    await has("east");
    await shot(page, "suggestions");
    await page.keyboard.press("ArrowDown");
    await page.keyboard.press("ArrowDown");
    await page.keyboard.press("Enter");
    assert.equal(await page.locator(".editor textarea").inputValue(), 'demo_load{zone="north"}');
    await page.keyboard.type("}");
    await page.keyboard.press("Enter");
    await page.locator(".figures-line").filter({ hasText: "33 series" }).waitFor();
    await write(page, "sum by (inst");
    await has("instance");
    await page.keyboard.press("Escape");
    await page.getByRole("button", { name: "Query history" }).click();
    await has('demo_load{zone="north"}');
  });
});

test("the plan has all steps with their costs", async () => {
  const query = { expr: "sum by (zone) (rate(demo_load[5m]))", tab: "explain" };
  await withPage(link({ ...query, range_input: "1h", end_input: END }), async (page) => {
    const rows = page.locator(".plan tbody tr");
    await page.locator("summary").filter({ hasText: "Execution plan" }).click();
    await rows.first().waitFor();
    const cells = await rows.evaluateAll((all) =>
      all.map((row) => [...row.children].map((cell) => cell.textContent.trim())),
    );
    const steps = ["Query over", "Aggregate sum by (zone)", "Function rate", "Select ranges of 5m"];
    steps.push('Load {__name__="demo_load"}');
    assert.equal(cells.length, steps.length);
    steps.forEach((step, index) => assert.ok(cells[index][0].startsWith(step), cells[index][0]));
    assert.deepEqual(
      cells.map((row) => row[1]),
      ["", "3", "100", "", "100"],
    );
    const [, , samples, size, reads] = cells[4];
    assert.match(samples, /^\d\d\.?\d*k$/);
    assert.match(size, /KiB$/);
    assert.match(reads, /^\d+$/);
    for (const row of [0, 1, 2, 4]) {
      assert.match(cells[row][5], /^[\d.]+ (s|ms|µs)$/, cells[row][0]);
      assert.match(cells[row][6], /^[\d.]+ (s|ms|µs)$/, cells[row][0]);
    }
    await shot(page, "explain");
  });
});

test("metrics are found, described and counted by label", async () => {
  await withPage("explore", async (page) => {
    const list = page.locator(".metrics li");
    await list.filter({ hasText: "demo_load" }).waitFor();
    await page.locator(".side input").fill("resident");
    await page.waitForFunction(() => document.querySelectorAll(".metrics li").length === 1);
    await list.first().click();
    await page.locator("h1").filter({ hasText: "process_resident_memory_bytes" }).waitFor();
    const told = await page.locator(".details").textContent();
    assert.match(told, /gauge/);
    assert.match(told, /bytes/);
    assert.doesNotMatch(told, /No description/);
    await page.goto(new URL("explore?metric=demo_load", `${SERVER}/`).href);
    const rows = page.locator(".details tbody tr");
    await rows.first().waitFor();
    assert.match(
      (await rows.allTextContents()).join("\n"),
      /^instance100.*and 88 more\nzone3east \(34\)/,
    );
    await shot(page, "explore");
    await page.getByRole("button", { name: "avg(demo_load)" }).click();
    await page.locator(".figures-line").filter({ hasText: "1 series" }).waitFor();
    assert.match(page.url(), /query\?.*avg/);
    await page.goBack();
    await page.locator("h1").filter({ hasText: "demo_load" }).waitFor();
  });
});

test("the theme of the system applies until another one is chosen", async () => {
  const brightness = (page) =>
    page.evaluate(() => {
      const canvas = Object.assign(document.createElement("canvas"), { width: 1, height: 1 });
      const context = canvas.getContext("2d");
      context.fillStyle = getComputedStyle(document.documentElement).backgroundColor;
      context.fillRect(0, 0, 1, 1);
      return context.getImageData(0, 0, 1, 1).data[0];
    });
  await withPage(
    LOAD,
    async (page) => {
      assert.ok((await drawn(page)) > 5000);
      assert.ok((await brightness(page)) < 60);
      await shot(page, "dark");
      await page.getByRole("button", { name: /^Theme/ }).click();
      assert.ok((await brightness(page)) > 200);
      await page.reload();
      assert.ok((await brightness(page)) > 200);
    },
    { colorScheme: "dark" },
  );
});

test("a phone shows everything without horizontal scrolling", async () => {
  const phone = {
    viewport: { width: 375, height: 760 },
    deviceScaleFactor: 2,
    isMobile: true,
    hasTouch: true,
  };
  const pages = { phone: LOAD, "phone-table": LOAD.replace("graph", "table") };
  pages["phone-explore"] = "explore?metric=demo_load";
  pages["phone-cardinality"] = "tsdb-status";
  pages["phone-store"] = "store";
  pages["phone-top-queries"] = "top-queries";
  for (const [name, address] of Object.entries(pages)) {
    await withPage(
      address,
      async (page) => {
        if (name === "phone") {
          assert.ok((await drawn(page)) > 2000);
        }
        await page.locator("table tbody tr").first().waitFor();
        const wide = await page.evaluate(() => document.documentElement.scrollWidth);
        assert.ok(wide <= 375, `${name}: ${wide} pixels`);
        await shot(page, name);
      },
      phone,
    );
  }
});

test("the keyboard reaches everything, and everything has a name", async () => {
  await withPage(LOAD, async (page) => {
    await drawn(page);
    await page.locator(".graph").focus();
    await page.keyboard.press("/");
    assert.equal(await page.evaluate(() => document.activeElement.tagName), "TEXTAREA");
    await page.locator(".tabs [aria-selected=true]").focus();
    await page.keyboard.press("ArrowRight");
    await page.waitForSelector(".result");
    await page.keyboard.press("?");
    await page.getByRole("dialog").waitFor();
    await page.keyboard.press("Escape");
    const namelessOf = () =>
      page.evaluate(() =>
        [...document.querySelectorAll("button, input, select, textarea, a, [role]")]
          .filter((one) => !["status", "alert", "tabpanel", "listbox"].includes(one.role))
          .filter((one) => !(one.ariaLabel || one.textContent.trim() || one.title))
          .map((one) => one.outerHTML.slice(0, 120)),
      );
    assert.deepEqual(await namelessOf(), []);
    for (const address of ["explore", "status", "store", "tsdb-status", "top-queries"]) {
      await page.goto(new URL(address, `${SERVER}/`).href);
      await page
        .locator("main")
        .filter({ hasText: /demo_load|Series in memory|Resident memory/ })
        .waitFor();
      assert.deepEqual(await namelessOf(), []);
    }
  });
});

test("the policy refuses scripts that are not files of the server", async () => {
  await withPage(LOAD, async (page) => {
    await drawn(page);
    const refused = await page
      .evaluate(async () => {
        const told = new Promise((resolve) => {
          document.addEventListener("securitypolicyviolation", (event) =>
            resolve(event.violatedDirective),
          );
        });
        const script = document.createElement("script");
        script.textContent = "window.wasRun = true";
        document.body.append(script);
        return [await told, window.wasRun];
      })
      .catch((error) => [String(error)]);
    assert.match(refused[0], /^script-src/);
    assert.equal(refused[1], undefined);
  }).catch((error) => {
    // The expected refusal is the only fault.
    assert.match(String(error.message), /Content Security Policy/);
    assert.equal(String(error.message).match(/Content Security Policy/g).length, 1);
  });
});

test("the page works behind a proxy with a path", async () => {
  const { hostname, port } = new URL(SERVER);
  const proxy = createServer((asked, answer) => {
    if (!asked.url.startsWith("/some/where/")) {
      answer.writeHead(404).end();
      return;
    }
    const { method, headers } = asked;
    const passed = request(
      { hostname, port, method, headers, path: asked.url.slice("/some/where".length) },
      (got) => {
        answer.writeHead(got.statusCode, got.headers);
        got.pipe(answer);
      },
    );
    asked.pipe(passed);
  });
  await new Promise((resolve) => proxy.listen(0, "127.0.0.1", resolve));
  const server = `http://127.0.0.1:${proxy.address().port}`;
  await withPage(`some/where/${LOAD}`, async (page) => assert.ok((await drawn(page)) > 5000), {
    server,
  });
  proxy.close();
});

test("the page is small", async () => {
  const [paints, sizes] = [[], []];
  for (let round = 0; round < 5; round++) {
    await withPage(LOAD, async (page) => {
      await drawn(page);
      const [paint, size] = await page.evaluate(() => {
        const { startTime } = performance.getEntriesByName("first-contentful-paint")[0];
        const files = performance
          .getEntriesByType("resource")
          .filter(({ name }) => !name.includes("/api/"));
        const whole = [...files, ...performance.getEntriesByType("navigation")];
        return [startTime, whole.reduce((sum, one) => sum + one.encodedBodySize, 0)];
      });
      paints.push(paint);
      sizes.push(size);
    });
  }
  figures.firstPaintMs = paints.map(Math.round);
  figures.compressedBytes = Math.max(...sizes);
  assert.ok(figures.compressedBytes > 10_000 && figures.compressedBytes < 200 << 10);
  assert.ok(paints.every((paint) => paint > 0));
});

test("100 series of 500 values and 1,000 of 1,000 are drawn", async () => {
  await withPage(LOAD, async (page) => {
    await drawn(page);
    const { times, painted } = await page.evaluate(async () => {
      const { Graph } = await import("./ui/graph.js");
      const graph = new Graph({ onZoom: () => {} });
      document.querySelector("main").prepend(graph.element);
      const dataOf = (rowCount, count) => ({
        ...{ startMs: 0, endMs: (count - 1) * 15_000, stepMs: 15_000, count },
        rows: Array.from({ length: rowCount }, (_, row) => ({
          labels: { row: String(row) },
          values: Float64Array.from(
            { length: count },
            (_, at) => Math.sin((at + row * 7) / 30) * 20 + row,
          ),
        })),
      });
      const data = dataOf(100, 500);
      const measure = async (work, rounds = 40) => {
        const taken = [];
        for (let round = 0; round < rounds; round++) {
          await new Promise(requestAnimationFrame);
          const started = performance.now();
          work(round);
          taken.push(performance.now() - started);
        }
        return taken.sort((a, b) => a - b);
      };
      graph.show(data, false);
      const lines = await measure(() => graph.draw());
      const pointed = await measure((round) => {
        const box = graph.element.getBoundingClientRect();
        const at = { clientX: box.left + 200 + round * 10, clientY: box.top + 100, bubbles: true };
        graph.element.dispatchEvent(new PointerEvent("pointermove", at));
      });
      graph.show(data, true);
      const areas = await measure(() => graph.draw());
      // Reading a pixel waits until everything is drawn.
      graph.show(data, false);
      const context = graph.lines.getContext("2d");
      const finish = () => {
        graph.draw();
        context.getImageData(0, 0, 1, 1);
      };
      const finished = await measure(finish);
      graph.show(dataOf(1000, 1000), false);
      const many = await measure(finish, 8);
      const { width, height } = graph.lines;
      const painted = context.getImageData(0, 0, width, height).data.filter((byte) => byte > 0);
      return { times: { lines, pointed, areas, finished, many }, painted: painted.length };
    });
    assert.ok(painted > 10_000, `${painted} bytes of colour`);
    // Durations depend on the machine, so they are recorded and not checked.
    for (const [name, taken] of Object.entries(times)) {
      const [least, median] = [taken[0], taken[taken.length / 2]].map(
        (ms) => Math.round(ms * 10) / 10,
      );
      figures[`redraw_${name}_ms`] = { least, median };
    }
  });
});
