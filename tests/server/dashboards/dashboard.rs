//! Dashboards as files: what they ask, with variables filled in as Grafana does, and whether
//! each panel has all that a reader needs.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use serde_json::Value;

/// The oldest and newest version of the schema that is known here.
const SCHEMA_VERSIONS: std::ops::RangeInclusive<u64> = 39..=42;
/// The columns of Grafana's grid.
const COLUMNS: u64 = 24;

/// Built-in variables of Grafana, for steps of 15 s.
const BUILT_IN: [(&str, &str); 7] = [
    ("__rate_interval_ms", "60000"),
    ("__rate_interval", "1m"),
    ("__interval_ms", "15000"),
    ("__interval", "15s"),
    ("__range_s", "3600"),
    ("__range_ms", "3600000"),
    ("__range", "3600s"),
];

/// Over a range, or at its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    Range,
    Instant,
}

/// A query of a panel or an annotation.
#[derive(Debug)]
pub struct Question {
    pub dashboard: String,
    pub title: String,
    pub query: String,
    pub kind: Kind,
    /// The labels that the legend names.
    pub legend_labels: Vec<String>,
}

/// A file of `grafana/dashboards`.
pub struct Dashboard {
    pub uid: String,
    json: Value,
}

pub fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("grafana")
}

/// Reads all dashboards.
pub fn all() -> Vec<Dashboard> {
    let files = std::fs::read_dir(folder().join("dashboards")).unwrap();
    files
        .map(|file| {
            let path = file.unwrap().path();
            let text = std::fs::read_to_string(&path).unwrap();
            let json: Value = serde_json::from_str(&text)
                .unwrap_or_else(|error| panic!("{}: {error}", path.display()));
            Dashboard { uid: text_at(&json, "uid").to_owned(), json }
        })
        .collect()
}

/// A query with variables in their place. Several values become a regular expression.
pub fn filled(query: &str, variables: &[(String, Vec<String>)]) -> String {
    let mut text = query.to_owned();
    let mut put = |name: &str, value: &str| {
        text = text.replace(&format!("${{{name}}}"), value).replace(&format!("${name}"), value);
    };
    for (name, value) in BUILT_IN {
        put(name, value);
    }
    for (name, values) in variables {
        let values: Vec<String> = values.iter().map(|value| escaped(value)).collect();
        match values.as_slice() {
            [value] => put(name, value),
            _ => put(name, &format!("({})", values.join("|"))),
        }
    }
    assert!(!text.contains('$'), "not filled in: {text}");
    text
}

/// A value inside a regular expression inside a string of PromQL.
fn escaped(value: &str) -> String {
    let mut out = String::new();
    for letter in value.chars() {
        if r"\^$*+?.()|[]{}".contains(letter) {
            out.push_str(r"\\");
        }
        out.push(letter);
    }
    out
}

fn text_at<'a>(json: &'a Value, key: &str) -> &'a str {
    json[key].as_str().unwrap_or_default()
}

fn items<'a>(json: &'a Value, key: &str) -> impl Iterator<Item = &'a Value> {
    json[key].as_array().into_iter().flatten()
}

/// The labels in `{{…}}`.
fn legend_labels(legend: &str) -> Vec<String> {
    let parts = legend.split("{{").skip(1);
    parts.map(|part| part.split_once("}}").unwrap().0.trim().to_owned()).collect()
}

impl Dashboard {
    /// The variables that are queried for, in their order.
    pub fn queried_variables(&self) -> Vec<(String, String)> {
        let variables = items(&self.json["templating"], "list");
        variables
            .filter(|variable| variable["type"] == "query")
            .map(|variable| {
                let query = text_at(&variable["query"], "query");
                assert_eq!(query, text_at(variable, "definition"), "{}", self.uid);
                (text_at(variable, "name").to_owned(), query.to_owned())
            })
            .collect()
    }

    /// Returns all queries of panels and annotations.
    pub fn questions(&self, variables: &[(String, Vec<String>)]) -> Vec<Question> {
        let question = |json: &Value, title: &str, legend: &str| Question {
            dashboard: self.uid.clone(),
            title: title.to_owned(),
            query: filled(text_at(json, "expr"), variables),
            kind: if json["instant"] == true { Kind::Instant } else { Kind::Range },
            legend_labels: legend_labels(legend),
        };
        let annotations = items(&self.json["annotations"], "list");
        let annotations =
            annotations.map(|a| question(a, text_at(a, "name"), text_at(a, "titleFormat")));
        let targets = self.panels().flat_map(|panel| {
            items(panel, "targets").map(move |target| {
                question(target, text_at(panel, "title"), text_at(target, "legendFormat"))
            })
        });
        annotations.chain(targets).collect()
    }

    /// Every word of every query: names of metrics, labels and functions.
    pub fn words(&self) -> BTreeSet<String> {
        let targets = self.panels().flat_map(|panel| items(panel, "targets"));
        let is_boundary = |letter: char| !(letter.is_ascii_alphanumeric() || letter == '_');
        targets
            .flat_map(|target| text_at(target, "expr").split(is_boundary))
            .map(str::to_owned)
            .collect()
    }

    /// The panels that show something.
    fn panels(&self) -> impl Iterator<Item = &Value> {
        items(&self.json, "panels").filter(|panel| panel["type"] != "row")
    }

    /// Returns missing or invalid parts.
    pub fn faults(&self) -> Vec<String> {
        let mut faults = Vec::new();
        if !self.json["schemaVersion"].as_u64().is_some_and(|v| SCHEMA_VERSIONS.contains(&v)) {
            faults.push("the version of the schema is not known".to_owned());
        }
        for key in ["uid", "title", "description"] {
            if text_at(&self.json, key).is_empty() {
                faults.push(format!("no {key}"));
            }
        }
        let names: Vec<&str> =
            items(&self.json["templating"], "list").map(|v| text_at(v, "name")).collect();
        if names != ["datasource", "job", "instance"] {
            faults.push(format!("the variables are {names:?}"));
        }
        for panel in self.panels() {
            let title = text_at(panel, "title");
            faults.extend(panel_faults(panel).map(|fault| format!("{title}: {fault}")));
        }
        faults.extend(self.place_faults());
        faults.iter().map(|fault| format!("{}: {fault}", self.uid)).collect()
    }

    /// Returns duplicate ids, and panels that overlap others or exceed the grid.
    fn place_faults(&self) -> Vec<String> {
        let mut faults = Vec::new();
        let mut ids = BTreeSet::new();
        let mut taken = BTreeSet::new();
        for panel in items(&self.json, "panels") {
            let title = text_at(panel, "title");
            if !panel["id"].as_u64().is_some_and(|id| ids.insert(id)) {
                faults.push(format!("{title}: the id is missing or another's"));
            }
            let [x, y, w, h] = ["x", "y", "w", "h"].map(|key| panel["gridPos"][key].as_u64());
            let (Some(x), Some(y), Some(w), Some(h)) = (x, y, w, h) else {
                faults.push(format!("{title}: no place"));
                continue;
            };
            if x + w > COLUMNS || w == 0 || h == 0 {
                faults.push(format!("{title}: beyond the grid"));
            }
            let cells = (y..y + h).flat_map(|y| (x..x + w).map(move |x| (x, y)));
            if cells.filter(|cell| !taken.insert(*cell)).count() > 0 {
                faults.push(format!("{title}: lies upon another panel"));
            }
        }
        faults
    }
}

fn panel_faults(panel: &Value) -> impl Iterator<Item = String> {
    let mut faults = Vec::new();
    let mut need = |is_there: bool, what: &str| {
        if !is_there {
            faults.push(what.to_owned());
        }
    };
    need(!text_at(panel, "title").is_empty(), "no title");
    need(text_at(panel, "description").len() > 10, "no description");
    need(!text_at(&panel["fieldConfig"]["defaults"], "unit").is_empty(), "no unit");
    need(text_at(&panel["datasource"], "type") == "prometheus", "no data source");
    need(text_at(&panel["datasource"], "uid") == "${datasource}", "a fixed data source");
    let kinds = ["heatmap", "stat", "timeseries"];
    need(kinds.contains(&text_at(panel, "type")), "an unknown type");
    need(items(panel, "targets").count() > 0, "no queries");
    let references: BTreeSet<&str> = items(panel, "targets").map(|t| text_at(t, "refId")).collect();
    need(references.len() == items(panel, "targets").count(), "queries of the same name");
    for target in items(panel, "targets") {
        need(!text_at(target, "legendFormat").is_empty(), "no legend");
        let query = text_at(target, "expr");
        need(query.contains("$job") && query.contains("$instance"), "a query of all instances");
        need((target["instant"] == true) != (target["range"] == true), "no kind of query");
        let is_heatmap = panel["type"] == "heatmap";
        need((target["format"] == "heatmap") == is_heatmap, "the format of another panel");
    }
    faults.into_iter()
}
