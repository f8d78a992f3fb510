// The server's own metrics, as they are now.

import { ask } from "./api.js";

/** Own metrics whose names match a pattern: `get(name, value of a label)`, 0 if there is none. */
export async function ownMetrics(pattern, signal) {
  const { data } = await ask("status/self_metrics", { metric_name_pattern: pattern }, signal);
  return {
    get(name, label = null) {
      const metrics = data.find((family) => family.name === name)?.metric ?? [];
      const hasLabel = (metric) => metric.label?.some(({ value }) => value === label);
      const metric = metrics.find((one) => label === null || hasLabel(one));
      return Number(metric?.gauge?.value ?? metric?.counter?.value ?? 0);
    },
  };
}
