// Alerts, recording rules and dashboards as a mixin, for projects that build their monitoring with jsonnet.
// The runbook is docs/runbook.md.
{
  prometheusAlerts+:: std.parseYaml(importstr 'tessella-alerts.yml'),
  prometheusRules+:: std.parseYaml(importstr 'tessella-rules.yml'),
  grafanaDashboards+:: {
    'tessella-node.json': import '../../grafana/dashboards/node.json',
    'tessella-overview.json': import '../../grafana/dashboards/overview.json',
    'tessella-queries.json': import '../../grafana/dashboards/queries.json',
    'tessella-store.json': import '../../grafana/dashboards/store.json',
  },
}
