// axe-core on every page: wide in light colours, and as narrow as a phone in dark ones.

import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { before, test } from "node:test";

import { linkAtEnd, settled, withPage } from "./harness.mjs";
import { writeHistograms } from "./histograms.mjs";

const { AXE_CORE } = process.env;
const skip = AXE_CORE ? false : "AXE_CORE is not set";
const axe = AXE_CORE ? readFileSync(join(AXE_CORE, "axe.min.js"), "utf8") : "";

before(() => writeHistograms());

const VECTORS = "sum by (zone) (demo_load) / on (zone) demo_load";

/** Paths of the status pages. */
const STATUS = [
  "status",
  "store",
  "tsdb-status",
  "top-queries",
  "active-queries",
  "flags",
  "config",
  "targets",
  "service-discovery",
  "rules",
  "alerts",
];

/** Pages by name: the address, and what is opened there. */
const PAGES = {
  start: ["query"],
  graph: [linkAtEnd({ expr: "demo_load", compare_offset: "30m", compare_expr: "demo_load > 60" })],
  stacked: [linkAtEnd({ expr: "demo_load", display_mode: "stacked", show_tree: "1" })],
  heatmap: [linkAtEnd({ expr: "rate(demo_native[1m])", show_exemplars: "1" })],
  table: [linkAtEnd({ expr: "demo_load", tab: "table" })],
  histogram: [
    linkAtEnd({ expr: "demo_native", tab: "table" }),
    (page) => page.locator("summary").first().click(),
  ],
  explain: [
    linkAtEnd({ expr: "sum(demo_load)", tab: "explain" }),
    (page) => page.locator("summary").first().click(),
  ],
  matching: [
    linkAtEnd({ expr: VECTORS, tab: "explain" }),
    (page) => page.locator(".matching h2").waitFor(),
  ],
  error: [linkAtEnd({ expr: "sum(" })],
  suggestions: [
    linkAtEnd({ expr: "demo_load" }),
    async (page) => {
      await page.keyboard.type(" + dem");
      await page.locator(".choices li").first().waitFor();
      await page.keyboard.press("ArrowDown");
    },
  ],
  picker: [
    linkAtEnd({ expr: "demo_load" }),
    (page) => page.getByRole("button", { name: "Pick a range" }).click(),
  ],
  keys: [
    linkAtEnd({ expr: "demo_load" }),
    (page) => page.getByRole("button", { name: "Keys" }).click(),
  ],
  metrics: ["explore"],
  metric: ["explore?metric=demo_load"],
  ...Object.fromEntries(STATUS.map((path) => [path, [path]])),
  documents: ["docs/"],
  document: ["docs/configuration.md"],
  cardinality: [`tsdb-status?${new URLSearchParams({ match: "demo_load", label: "zone" })}`],
};

for (const [colorScheme, width] of [
  ["light", 1280],
  ["dark", 390],
]) {
  const name = `no page of ${width} pixels violates a rule of axe-core in ${colorScheme} colours`;
  test(name, { skip }, async () => {
    const found = [];
    for (const [name, [address, open]] of Object.entries(PAGES)) {
      await withPage(
        address,
        async (page) => {
          await page.locator("main > *").first().waitFor();
          await page.waitForLoadState("networkidle");
          await settled(page);
          await open?.(page);
          await page.evaluate(axe);
          const { violations } = await page.evaluate(() => globalThis.axe.run());
          const texts = violations.flatMap(({ id, nodes }) =>
            nodes.slice(0, 3).map(({ html }) => `${name}: ${id}: ${html.slice(0, 160)}`),
          );
          found.push(...texts);
        },
        { colorScheme, viewport: { width, height: 860 } },
      );
    }
    assert.deepEqual(found, []);
  });
}
