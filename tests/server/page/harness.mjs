// The browser of the page's tests, and what all of them do with it.
//
// SERVER is the address of a server that holds demo_load (100 series × 500 samples), LOAD_END_MS the
// time of the last sample, OUTPUT the folder for screenshots and figures.

import assert from "node:assert/strict";
import { writeFileSync } from "node:fs";
import { createRequire } from "node:module";
import { basename, join } from "node:path";
import { after, before } from "node:test";

const { OUTPUT, CHROMIUM_BINARY, PLAYWRIGHT_CORE } = process.env;
export const { SERVER } = process.env;
export const END_MS = Number(process.env.LOAD_END_MS);
const { chromium } = createRequire(import.meta.url)(PLAYWRIGHT_CORE);

/** Time of the last sample, as links contain it. */
export const END = new Date(END_MS).toISOString().slice(0, 19).replace("T", " ");
/** Link to the load, as Prometheus' page would write it. */
export const LOAD = linkAtEnd({ expr: "demo_load" });

/** Figures of this file's tests, which are printed and kept. */
export const figures = {};
let browser;

before(async () => {
  browser = await chromium.launch({ executablePath: CHROMIUM_BINARY, args: ["--no-sandbox"] });
});

after(async () => {
  await browser?.close();
  if (Object.keys(figures).length > 0) {
    const name = basename(process.argv[1], ".mjs");
    writeFileSync(join(OUTPUT, `${name}.json`), `${JSON.stringify(figures, null, 2)}\n`);
    console.log(JSON.stringify(figures));
  }
});

/** Link to one query with its state. */
export function link(fields) {
  const pairs = Object.entries(fields).map(([name, value]) => [`g0.${name}`, value]);
  return `query?${new URLSearchParams(pairs)}`;
}

/** Link to a graph of the two hours before the last sample. */
export function linkAtEnd(fields) {
  return link({ tab: "graph", range_input: "2h", end_input: END, ...fields });
}

/**
 * Opens a page of the server and works with it. Errors, refused loads and requests to other servers
 * fail the test.
 */
export async function withPage(address, work, options = {}) {
  const context = await browser.newContext({ viewport: { width: 1280, height: 860 }, ...options });
  // Longer than anything takes on a slow or busy machine.
  context.setDefaultTimeout(300_000);
  const page = await context.newPage();
  const faults = [];
  page.on("pageerror", (error) => faults.push(error.stack));
  page.on("console", (message) => {
    // The browser logs rejected queries, which are no fault of the page.
    if (message.type() === "error" && !message.text().includes("status of 4")) {
      faults.push(message.text());
    }
  });
  page.on("request", (asked) => {
    const { origin, protocol } = new URL(asked.url());
    if (protocol !== "data:" && origin !== new URL(options.server ?? SERVER).origin) {
      faults.push(`asks for ${asked.url()}`);
    }
  });
  try {
    await page.goto(new URL(address, `${options.server ?? SERVER}/`).href);
    await work(page);
    assert.deepEqual(faults, []);
  } finally {
    await context.close();
  }
}

/** Number of coloured pixels of a graph; axes and their numbers are grey. */
export function colouredPixels(page, index = 0) {
  return page.evaluate((at) => {
    const canvas = document.querySelectorAll(".graph canvas:first-child")[at];
    if (!canvas || canvas.width === 0) {
      return 0;
    }
    const { data } = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height);
    let count = 0;
    for (let byte = 0; byte < data.length; byte += 4) {
      const [red, green, blue, alpha] = data.slice(byte, byte + 4);
      const isGrey = Math.max(red, green, blue) - Math.min(red, green, blue) < 60;
      count += alpha > 100 && !isGrey ? 1 : 0;
    }
    return count;
  }, index);
}

export async function drawn(page, index = 0) {
  await page.waitForFunction(
    (at) =>
      document.querySelectorAll(".panel")[at] &&
      !document.querySelectorAll(".panel")[at].ariaBusy &&
      document.querySelectorAll(".graph canvas:first-child")[at]?.width > 0,
    index,
  );
  return colouredPixels(page, index);
}

/** Waits until the response to the last run is shown. */
export function settled(page) {
  return page.waitForFunction(() => !document.querySelector(".panel[aria-busy]"));
}

/** Opens a tab of the first panel and waits for its result: until then the previous one is shown. */
export async function openTab(page, name) {
  await page.getByRole("tab", { name }).first().click();
  await settled(page);
}

export function shot(page, name) {
  return page.screenshot({ path: join(OUTPUT, `${name}.png`) });
}

export async function write(page, text) {
  const area = page.locator(".editor textarea").first();
  await area.fill("");
  await area.pressSequentially(text);
}
