// Histograms, exemplars and counters of the tests, written by OTLP.

import assert from "node:assert/strict";

import { END_MS, SERVER } from "./harness.mjs";

const STEP_MS = 15_000;
const COUNT = 240;
const BOUNDS = [0.1, 0.2, 0.4, 0.8];

function attributes(labels) {
  return Object.entries(labels).map(([key, stringValue]) => ({ key, value: { stringValue } }));
}

/**
 * Writes one hour of two histograms, each as a native and as a classic one. Each step adds 8
 * observations: "fast" ones in (0.125, 0.25], and "slow" ones in (0.25, 0.5]; and an exemplar.
 */
export async function writeHistograms() {
  const [native, classic] = [[], []];
  for (let step = 0; step < COUNT; step++) {
    const ms = END_MS - (COUNT - 1 - step) * STEP_MS;
    for (const [path, offset] of [
      ["fast", -3],
      ["slow", -2],
    ]) {
      const count = 8 * (step + 1);
      const value = path === "fast" ? 0.15 : 0.3;
      const classicCounts = BOUNDS.map((bound, index) =>
        value <= bound && value > (BOUNDS[index - 1] ?? 0) ? String(count) : "0",
      );
      const point = {
        attributes: attributes({ path }),
        startTimeUnixNano: `${END_MS - COUNT * STEP_MS}000000`,
        timeUnixNano: `${ms}000000`,
        count: String(count),
        sum: count * value,
        exemplars:
          step % 40 === 20
            ? [{ timeUnixNano: `${ms}000000`, asDouble: value, traceId: "ab".repeat(16) }]
            : [],
      };
      const positive = { offset, bucketCounts: [String(count)] };
      native.push({ ...point, scale: 0, zeroCount: "0", positive });
      const bucketCounts = [...classicCounts, "0"];
      classic.push({ ...point, explicitBounds: BOUNDS, bucketCounts });
    }
  }
  const metrics = [
    {
      name: "demo_native",
      exponentialHistogram: { dataPoints: native, aggregationTemporality: 2 },
    },
    { name: "demo_classic", histogram: { dataPoints: classic, aggregationTemporality: 2 } },
  ];
  await send(metrics);
}

const HOUR_MS = 3_600_000;
/** Requests a minute by route. */
const ROUTES = { "/": 300, "/cart": 120, "/pay": 30 };

/**
 * Writes the counter demo_requests_total of two hours, today and a week ago, and the gauge
 * demo_limit, which "/pay" does not have. A week ago there were half as many requests.
 */
export async function writeRequests() {
  const [requests, limits] = [[], []];
  for (const [weeks, share] of [
    [1, 0.5],
    [0, 1],
  ]) {
    const endMs = END_MS - weeks * 7 * 24 * HOUR_MS;
    for (let minute = 0; minute <= 120; minute++) {
      const nanos = `${endMs - 2 * HOUR_MS + minute * 60_000}000000`;
      for (const [route, rate] of Object.entries(ROUTES)) {
        for (const [code, part] of [
          ["200", 0.95],
          ["500", 0.05],
        ]) {
          const wave = minute + 20 * Math.sin(minute / 20);
          const asDouble = Math.round((wave + 20) * rate * part * share);
          const startTimeUnixNano = `${endMs - 2 * HOUR_MS}000000`;
          const point = { startTimeUnixNano, timeUnixNano: nanos, asDouble };
          requests.push({ ...point, attributes: attributes({ route, code }) });
        }
        if (route !== "/pay") {
          const point = { timeUnixNano: nanos, asDouble: rate / 30 };
          limits.push({ ...point, attributes: attributes({ route }) });
        }
      }
    }
  }
  const sum = { dataPoints: requests, aggregationTemporality: 2, isMonotonic: true };
  await send([
    { name: "demo_requests", description: "Requests of the shop.", sum },
    { name: "demo_limit", description: "Requests per second.", gauge: { dataPoints: limits } },
  ]);
}

async function send(metrics) {
  const resource = { attributes: [] };
  const body = JSON.stringify({ resourceMetrics: [{ resource, scopeMetrics: [{ metrics }] }] });
  const headers = { "content-type": "application/json" };
  const options = { method: "POST", headers, body };
  const answer = await fetch(`${SERVER}/api/v1/otlp/v1/metrics`, options);
  // The server of a second run has the samples.
  assert.ok(answer.ok || answer.status === 400, await answer.text());
}
