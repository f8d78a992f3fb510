//! Prometheus' text format, as far as the metrics of these tests use it: no timestamps, no escapes
//! in the values of labels.

use std::collections::BTreeMap;

/// One line: a series and its value.
pub struct Series {
    /// Sorted by name, the metric's name among them.
    pub labels: BTreeMap<String, String>,
    pub value: f64,
    /// Is a counter, or untyped.
    pub is_counter: bool,
}

/// The series of a text, with more labels on each.
pub fn parse(text: &str, target: &[(&str, &str)]) -> Vec<Series> {
    let mut is_counter = false;
    let mut all = Vec::new();
    for line in text.lines() {
        if let Some((_, kind)) = type_line(line) {
            is_counter = kind != "gauge";
        }
        if line.starts_with('#') || line.is_empty() {
            continue;
        }
        let (series, value) = line.rsplit_once(' ').unwrap();
        let (name, pairs) = series.split_once('{').unwrap_or((series, "}"));
        let mut labels: BTreeMap<String, String> =
            target.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        labels.insert("__name__".to_owned(), name.to_owned());
        let mut rest = pairs.strip_suffix('}').unwrap();
        while let Some((name, after)) = rest.split_once("=\"") {
            let (value, after) = after.split_once('"').unwrap();
            assert!(!value.contains('\\'), "{line}");
            labels.insert(name.to_owned(), value.to_owned());
            rest = after.strip_prefix(',').unwrap_or(after);
        }
        all.push(Series { labels, value: value.parse().unwrap(), is_counter });
    }
    all
}

/// The names of the metrics of a text.
pub fn names(text: &str) -> impl Iterator<Item = &str> {
    text.lines().filter_map(|line| Some(type_line(line)?.0))
}

fn type_line(line: &str) -> Option<(&str, &str)> {
    line.strip_prefix("# TYPE ")?.split_once(' ')
}
