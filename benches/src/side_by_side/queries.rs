//! Queries of dashboards, over 512 steps or at one time, and lookups of a query editor.

use testkit::percent_encode;

use super::dataset::Dataset;
use crate::scenario::answer::Shape;
use crate::scenario::ask::{NO_CACHE, Query, Steps};
use crate::scenario::server::Program;

/// Number of steps of a range query.
pub const STEPS: i64 = 512;

const COUNTER: &str = "http_requests_total";
const MEMORY: &str = "container_memory_working_set_bytes";
const CORES: &str = "container_cpu_usage_cores";
const BUCKET: &str = "http_request_duration_seconds_bucket";

/// Range queries: name and PromQL. A cluster of a dataset has 625 series per path.
const RANGE: &[(&str, &str)] = &[
    ("sum", "sum by (path, status) (COUNTER)"),
    ("avg", "avg by (path, status) (COUNTER)"),
    ("min", "min by (path, status) (COUNTER)"),
    ("max", "max by (path, status) (COUNTER)"),
    ("count", "count by (path, status) (COUNTER)"),
    ("stddev", "stddev by (path, status) (COUNTER)"),
    ("quantile", "quantile by (path, status) (0.9, COUNTER)"),
    ("topk", "topk by (path, status) (5, COUNTER)"),
    ("sum of rate", "sum by (path, status) (rate(COUNTER[5m]))"),
    ("sum of increase", "sum by (path, status) (increase(COUNTER[1h]))"),
    ("avg_over_time", "sum by (namespace) (avg_over_time(CORES[5m]))"),
    ("quantile_over_time", "sum by (namespace) (quantile_over_time(0.9, MEMORY[5m]))"),
    ("histogram_quantile", "histogram_quantile(0.9, sum by (le) (rate(BUCKET[5m])))"),
    ("raw", "COUNTER{cluster=\"cluster-00\",path=\"/api/v1/orders\"}"),
    ("raw rate", "rate(COUNTER{cluster=\"cluster-00\",path=\"/api/v1/orders\"}[5m])"),
    (
        "needle",
        "COUNTER{instance=\"10.0.0.1:8080\",job=\"api\",path=\"/api/v1/orders\",status=\"500\"}",
    ),
    ("regex", "sum by (status) (COUNTER{path=~\"/api/v1/(o.+|u.+s)\"})"),
    ("alternation", "sum by (status) (COUNTER{path=~\"/healthz|/login|/metrics\"})"),
    ("negative matcher", "sum by (path) (COUNTER{status!=\"200\"})"),
    (
        "ratio",
        "sum by (path) (rate(COUNTER{status=~\"5..\"}[5m])) / sum by (path) (rate(COUNTER[5m]))",
    ),
    ("join", "MEMORY{cluster=\"cluster-00\"} / on (namespace, pod) CORES{cluster=\"cluster-00\"}"),
    (
        "subquery",
        "sum by (cluster) (max_over_time(rate(COUNTER{cluster=\"cluster-00\",\
         path=\"/api/v1/orders\",status=\"500\"}[5m])[1h:1m]))",
    ),
];

/// Queries at the last step.
const INSTANT: &[(&str, &str)] = &[
    ("instant, everything", "{__name__!=\"\"}"),
    ("instant sum", "sum by (path, status) (COUNTER)"),
];

/// Lookups: name, path below `/api/v1/`, and selector.
const LOOKUPS: &[(&str, &str, &str)] = &[
    ("labels", "labels", ""),
    ("labels, match[]", "labels", "COUNTER{path=\"/login\"}"),
    ("label values", "label/path/values", ""),
    ("label values, many", "label/pod/values", ""),
    ("label values, match[]", "label/instance/values", "COUNTER{path=\"/login\",status=\"500\"}"),
    ("series", "series", "COUNTER{cluster=\"cluster-00\",path=\"/api/v1/orders\"}"),
];

/// Known differences of results from those of Tessella: program, queries, reason.
const DIFFERENCES: &[(Program, &[&str], &str)] = &[
    (
        Program::VictoriaMetrics,
        &["sum of rate", "sum of increase", "raw rate", "ratio", "histogram_quantile", "subquery"],
        "rate and increase count from the last sample before the window and do not extrapolate \
         to its boundaries",
    ),
    (
        Program::Prometheus,
        &["label values, many", "series"],
        "lookups return names of all blocks of two hours that overlap the range; ours of all days",
    ),
];

/// Returns the known reason why a program returns another result for a query.
pub fn known_difference(program: Program, query: &str) -> Option<&'static str> {
    DIFFERENCES
        .iter()
        .find(|(known, queries, _)| *known == program && queries.contains(&query))
        .map(|(_, _, reason)| *reason)
}

/// Returns all queries for data that end at a time.
pub fn queries(dataset: &Dataset, end_s: i64) -> Vec<Query> {
    let start_s = end_s - (STEPS - 1) * dataset.step_s;
    let steps = Steps { start_s, end_s, step_s: dataset.step_s };
    let range = RANGE.iter().map(|&(name, text)| {
        let text = if dataset.has_long_ranges {
            long_ranges(text, dataset.step_s)
        } else {
            text.to_owned()
        };
        let shape = if name == "topk" { Shape::Ranked } else { Shape::Values };
        Query { shape, ..Query::range(name, with_metrics(&text), steps) }
    });
    let instant =
        INSTANT.iter().map(|&(name, text)| Query::instant(name, with_metrics(text), end_s));
    let lookups = LOOKUPS.iter().map(|&(name, place, selector)| {
        let selector = with_metrics(selector);
        let mut path = format!("/api/v1/{place}?start={start_s}&end={end_s}{NO_CACHE}");
        if !selector.is_empty() {
            path.push_str(&format!("&match[]={}", percent_encode(&selector)));
        }
        let text = format!("{place} {selector}").trim_end().to_owned();
        Query { name, text, shape: Shape::List, path }
    });
    range.chain(instant).chain(lookups).collect()
}

/// Returns a query whose ranges are as long as a step.
fn long_ranges(text: &str, step_s: i64) -> String {
    let range = format!("[{step_s}s]");
    text.replace("[5m]", &range).replace("[1h]", &range)
}

fn with_metrics(text: &str) -> String {
    text.replace("COUNTER", COUNTER)
        .replace("MEMORY", MEMORY)
        .replace("CORES", CORES)
        .replace("BUCKET", BUCKET)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::super::dataset::DATASETS;
    use super::*;

    #[test]
    fn queries_have_distinct_names_and_no_placeholder() {
        for dataset in &DATASETS {
            let queries = queries(dataset, 1_000_000_000);
            let names: BTreeSet<_> = queries.iter().map(|query| query.name).collect();
            assert_eq!((names.len(), queries.len()), (30, 30));
            for Query { text, path, .. } in &queries {
                let is_left = |word: &&&str| text.contains(**word) || path.contains(**word);
                assert_eq!(["COUNTER", "MEMORY", "CORES", "BUCKET"].iter().find(is_left), None);
            }
        }
    }

    #[test]
    fn range_queries_have_512_steps_and_end_with_the_data() {
        for dataset in &DATASETS {
            let path = &queries(dataset, 1_000_000_000)[0].path;
            let from = 1_000_000_000 - 511 * dataset.step_s;
            let rest = format!("&start={from}&end=1000000000&step={}&nocache=1", dataset.step_s);
            assert!(path.ends_with(&rest), "{path}");
            assert!(1_000_000_000_000 - from * 1_000 <= dataset.end_ms(0), "steps before the data");
        }
    }

    #[test]
    fn known_differences_name_queries() {
        let queries = queries(&DATASETS[0], 0);
        for name in DIFFERENCES.iter().flat_map(|(_, queries, _)| *queries) {
            assert!(queries.iter().any(|query| query.name == *name), "{name}");
        }
        assert!(known_difference(Program::VictoriaMetrics, "raw rate").is_some());
        assert!(known_difference(Program::Prometheus, "raw rate").is_none());
        assert!(known_difference(Program::VictoriaMetrics, "raw").is_none());
    }
}
