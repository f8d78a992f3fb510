// Writes metrics with the package prometheus-remote-write: write_npm.cjs PACKAGE URL

const [, , folder, url] = process.argv;
const { pushMetrics, pushTimeseries } = require(folder);

async function push(sending) {
  const result = await sending;
  if (result.status !== 204) {
    throw new Error(`${result.status} ${result.errorMessage}`);
  }
}

async function main() {
  const labels = { service: "worker", Zone: "z" };
  await push(pushMetrics({ queue_depth: 100, jobs_total: 23 }, { url, labels }));
  const now = Date.now();
  const series = {
    labels: { service: "SQS", __name__: "orders_total", instance: "dev", app: "a", empty: "" },
    samples: [1, 2, 3].map((value) => ({ value, timestamp: now - 10_000 + value * 1_000 })),
  };
  await push(pushTimeseries(series, { url }));
}

main();
