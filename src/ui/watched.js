// Targets, service discovery, rules and alerts; without them, the programs that have them.

import { ask } from "./api.js";
import { el, pageLink } from "./dom.js";
import { nothing, table } from "./facts.js";

/** The targets. */
export async function targets({ go }) {
  const { data } = await ask("targets");
  if (data.activeTargets.length === 0) {
    return [nothing("No targets: this server does not scrape."), ...agents(go)];
  }
  const rows = data.activeTargets.map((target) => [
    target.scrapePool,
    target.scrapeUrl,
    target.health,
    target.lastError,
  ]);
  return [table(["Job", "URL", "Health", "Error"], rows, false)];
}

/** The scrape pools, with the numbers of their targets. */
export async function serviceDiscovery({ go }) {
  const [{ data }, { data: found }] = await Promise.all([ask("scrape_pools"), ask("targets")]);
  if (data.scrapePools.length === 0) {
    return [nothing("No service discovery: this server does not scrape."), ...agents(go)];
  }
  const rows = data.scrapePools.map((pool) => {
    const active = found.activeTargets.filter((target) => target.scrapePool === pool);
    return [pool, active.length, found.droppedTargetCounts[pool] ?? 0];
  });
  return [table(["Job", "Active targets", "Dropped targets"], rows)];
}

/** The rules. */
export async function rules() {
  const { data } = await ask("rules");
  if (data.groups.length === 0) {
    return [nothing("No rules: this server evaluates none."), ...evaluators()];
  }
  const rows = data.groups.flatMap((group) =>
    group.rules.map((rule) => [group.name, rule.name, el("code", {}, rule.query), rule.health]),
  );
  return [table(["Group", "Rule", "Query", "Health"], rows, false)];
}

/** The alerts. */
export async function alerts({ go }) {
  const { data } = await ask("alerts");
  if (data.alerts.length === 0) {
    return [
      nothing("No alerts: this server evaluates no rules."),
      ...evaluators(),
      queryLink(go, 'ALERTS{alertstate="firing"}', "The program writes its alerts as the series"),
    ];
  }
  const rows = data.alerts.map((alert) => [alert.labels.alertname, alert.state, alert.activeAt]);
  return [table(["Alert", "State", "Since"], rows, false)];
}

/** Steps to get samples of targets. */
function agents(go) {
  return [
    el("h2", {}, "Scrape with an agent"),
    el(
      "p",
      {},
      "Prometheus (also with --agent), Grafana Alloy, the OpenTelemetry Collector and vmagent discover and scrape targets, and send the samples by remote write:",
    ),
    code(`# prometheus.yml\nremote_write:\n  - url: ${here("api/v1/write")}`),
    queryLink(go, "up", "The agent's own page lists the targets. Their state is the series"),
    documents({
      "http-api.md#remote-write": "remote write",
      "migrating.md": "migrating",
    }),
  ];
}

/** Steps to get rules evaluated. */
function evaluators() {
  const server = here(".").replace(/\/$/, "");
  return [
    el("h2", {}, "Evaluate rules in another program"),
    el(
      "p",
      {},
      "vmalert and thanos rule query this server, write the results to it, and send alerts to Alertmanager:",
    ),
    code(
      `vmalert -rule=rules.yml -datasource.url=${server} \\\n` +
        `  -remoteWrite.url=${server} -notifier.url=$ALERTMANAGER_URL`,
    ),
    code(
      `thanos rule --query=${server} --rule-file=rules.yml --data-dir=rule \\\n` +
        "  --remote-write.config-file=remote-write.yml --alertmanagers.url=$ALERTMANAGER_URL",
    ),
    el(
      "p",
      {},
      "A Prometheus that scrapes and sends by remote write can evaluate its own rules, too.",
    ),
    documents({ "rules.md": "rules", "scale-out.md#rules": "rules over shards" }),
  ];
}

/** The URL of a path of this server, as the browser sees it. */
function here(path) {
  return new URL(path, document.baseURI).href;
}

function code(text) {
  return el("pre", { class: "yaml", tabindex: "0" }, text);
}

function documents(links) {
  const list = Object.entries(links).flatMap(([address, text], index) => [
    index > 0 ? ", " : "",
    el("a", { href: `docs/${address}` }, text),
  ]);
  return el("p", { class: "hint" }, "More in the documentation: ", list, ".");
}

function queryLink(go, query, text) {
  const search = new URLSearchParams({ "g0.expr": query, "g0.tab": "table" });
  const address = `query?${search}`;
  const link = pageLink(el("code", {}, query), address, go);
  return el("p", {}, `${text} `, link, ".");
}
