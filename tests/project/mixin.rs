//! Alerts and recording rules: each alert has a section of the runbook, and tests in which it fires and
//! stays silent. `tests/server/dashboards` checks their metrics and queries on a running server.

use std::collections::BTreeSet;

use regex::Regex;
use serde_json::Value;

use super::compose::{path, text, yaml};
use super::scale_out::{run, succeeds};

/// Files of alerts, each with the file of its tests.
const ALERTS: [(&str, &str); 2] = [
    ("deploy/mixin/tessella-alerts.yml", "deploy/mixin/tessella-tests.yml"),
    ("deploy/scale-out/alerts.yml", "deploy/scale-out/alerts_test.yml"),
];
const RECORDING: &str = "deploy/mixin/tessella-rules.yml";

fn rules(file: &str) -> Vec<Value> {
    let file = yaml(file);
    let groups = file["groups"].as_array().unwrap().iter();
    groups.flat_map(|group| group["rules"].as_array().unwrap().clone()).collect()
}

/// Sections of the runbook, by name of the alert.
fn sections(runbook: &str) -> Vec<(&str, &str)> {
    let sections = runbook.split("\n### ").skip(1);
    sections.map(|section| section.split_once('\n').unwrap()).collect()
}

#[test]
fn every_alert_has_a_section_of_the_runbook() {
    let runbook = text("docs/runbook.md");
    let sections = sections(&runbook);
    let mut named = BTreeSet::new();
    let uids: Vec<Value> = std::fs::read_dir(path("grafana/dashboards"))
        .unwrap()
        .map(|file| std::fs::read_to_string(file.unwrap().path()).unwrap())
        .map(|text| serde_json::from_str::<Value>(&text).unwrap()["uid"].clone())
        .collect();
    for (file, _) in ALERTS {
        for rule in rules(file) {
            let name = rule["alert"].as_str().unwrap().to_owned();
            let link = format!("docs/runbook.md#{}", name.to_lowercase());
            assert_eq!(rule["annotations"]["runbook_url"], link);
            assert!(rule["annotations"]["summary"].is_string(), "{name}");
            assert!(["critical", "warning"].map(Value::from).contains(&rule["labels"]["severity"]));
            let dashboard = &rule["annotations"]["dashboard"];
            assert!(dashboard.is_null() || uids.contains(dashboard), "{name}: {dashboard}");
            let section = sections.iter().find(|(title, _)| *title == name);
            let (_, section) = section.unwrap_or_else(|| panic!("the runbook lacks {name}"));
            for part in ["Meaning", "Impact", "Diagnosis", "Remedy"] {
                assert!(section.contains(&format!("\n- *{part}*: ")), "{name} lacks {part}");
            }
            assert!(named.insert(name.clone()), "{name} is in two files");
        }
    }
    let unknown: Vec<_> = sections.iter().filter(|(name, _)| !named.contains(*name)).collect();
    assert!(unknown.is_empty(), "sections without an alert: {unknown:?}");
}

#[test]
fn every_alert_fires_and_stays_silent_in_a_test() {
    for (alerts, tests) in ALERTS {
        let tests = text(tests);
        for rule in rules(alerts) {
            let name = format!("alertname: {}", rule["alert"].as_str().unwrap());
            let silent = tests.matches(&format!("{name}}}\n")).count();
            let all = tests.matches(&format!("{name}}}\n")).count()
                + tests.matches(&format!("{name}\n")).count();
            assert!(silent > 0 && all > silent, "{name}");
        }
    }
}

/// Recorded names that alerts and the runbook read.
#[test]
fn recorded_names_exist() {
    let recorded: BTreeSet<String> =
        rules(RECORDING).iter().map(|rule| rule["record"].as_str().unwrap().to_owned()).collect();
    let name = Regex::new(r"\binstance[a-z_]*:[a-z0-9_]+:[a-z0-9_]+").unwrap();
    let mut found = 0;
    for file in ["deploy/mixin/tessella-alerts.yml", "docs/runbook.md"] {
        for name in name.find_iter(&text(file)).map(|name| name.as_str().to_owned()) {
            assert!(recorded.contains(&name), "{file}: no rule records {name}");
            found += 1;
        }
    }
    assert!(found > 5);
}

#[test]
fn promtool_finds_no_fault_with_rules_and_their_tests() {
    for (alerts, tests) in ALERTS {
        for file in [alerts, RECORDING] {
            let file = path(file).display().to_string();
            succeeds("PROMTOOL_BINARY", &["check", "rules", "--lint-fatal", &file]);
        }
        let tests = path(tests).display().to_string();
        succeeds("PROMTOOL_BINARY", &["test", "rules", &tests]);
    }
}

#[test]
fn the_mixin_has_all_rules_and_dashboards() {
    // Its fields are hidden, as is usual for mixins.
    let program = "import _jsonnet, sys; print(_jsonnet.evaluate_snippet(\"mixin\", f\"\"\"
        local mixin = import '{sys.argv[1]}';
        {{alerts: mixin.prometheusAlerts, rules: mixin.prometheusRules,
          dashboards: mixin.grafanaDashboards}}\"\"\"))";
    let file = path("deploy/mixin/mixin.libsonnet").display().to_string();
    let Some(output) = run("JSONNET_PYTHON", &["-c", program, &file]) else { return };
    assert!(output.status.success(), "{output:?}");
    let mixin: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(mixin["alerts"], yaml(ALERTS[0].0));
    assert_eq!(mixin["rules"], yaml(RECORDING));
    let dashboards = std::fs::read_dir(path("grafana/dashboards")).unwrap().map(|file| {
        let file = file.unwrap();
        let text = std::fs::read_to_string(file.path()).unwrap();
        let name = format!("tessella-{}", file.file_name().display());
        (name, serde_json::from_str::<Value>(&text).unwrap())
    });
    assert_eq!(mixin["dashboards"], Value::Object(dashboards.collect()));
}
