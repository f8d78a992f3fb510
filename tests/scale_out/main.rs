//! An unmodified `thanos query` in distributed mode over nodes of two shards returns what one node
//! with all series returns.
//!
//! `THANOS_BINARY` is the binary of Thanos; without it, the tests are skipped.

#![allow(clippy::unwrap_used, reason = "tests may panic")]

mod agents;
mod data;
mod frontend;
mod lagging;
mod local;
mod otlp;
mod promxy;
mod queries;
mod relabelling;
mod resharding;
mod root;
mod tenants;

use serde_json::Value;
use testkit::{get, percent_encode};

use data::END_SECONDS;
use queries::QUERIES;
use root::{ReaderGroup, Topology};

/// Relative tolerance: sums are rounded in another order.
const TOLERANCE: f64 = 1e-9;

/// Result of a query.
#[derive(Debug)]
struct Found {
    kind: String,
    /// All numbers of each series, in the order of labels.
    series: Vec<(String, Vec<f64>)>,
}

impl Found {
    fn equals(&self, other: &Found) -> bool {
        self.kind == other.kind
            && self.series.len() == other.series.len()
            && self.series.iter().zip(&other.series).all(|((a, x), (b, y))| {
                a == b && x.len() == y.len() && x.iter().zip(y).all(|(x, y)| is_close(*x, *y))
            })
    }
}

fn result(address: &str, path: &str) -> Result<Found, String> {
    let (status, text) = get(address, path);
    let answer: Value = serde_json::from_str(&text).map_err(|_| format!("{status} {text}"))?;
    if status != 200 {
        return Err(format!("{status} {text}"));
    }
    let data = &answer["data"];
    let kind = data["resultType"].as_str().unwrap().to_owned();
    let number = |value: &Value| value.as_str().unwrap().parse::<f64>().unwrap();
    let mut found = Vec::new();
    match &kind[..] {
        "scalar" => found.push((String::new(), vec![number(&data["result"][1])])),
        _ => {
            for series in data["result"].as_array().unwrap() {
                let mut numbers = Vec::new();
                let point = |point: &Value, numbers: &mut Vec<f64>| {
                    numbers.push(point[0].as_f64().unwrap());
                    numbers_of(&point[1], numbers);
                };
                for name in ["value", "histogram"] {
                    if !series[name].is_null() {
                        point(&series[name], &mut numbers);
                    }
                }
                for name in ["values", "histograms"] {
                    for each in series[name].as_array().into_iter().flatten() {
                        point(each, &mut numbers);
                    }
                }
                found.push((series["metric"].to_string(), numbers));
            }
        }
    }
    found.sort_by(|a, b| a.0.cmp(&b.0));
    Ok(Found { kind, series: found })
}

/// Adds all numbers of a value, of a float as of a histogram.
fn numbers_of(value: &Value, numbers: &mut Vec<f64>) {
    match value {
        Value::String(text) => numbers.push(text.parse().unwrap()),
        Value::Number(number) => numbers.push(number.as_f64().unwrap()),
        Value::Array(values) => values.iter().for_each(|value| numbers_of(value, numbers)),
        Value::Object(fields) => fields.values().for_each(|value| numbers_of(value, numbers)),
        _ => {}
    }
}

fn is_close(a: f64, b: f64) -> bool {
    a == b || a.is_nan() && b.is_nan() || (a - b).abs() <= TOLERANCE * a.abs().max(b.abs())
}

fn compare(topology: &Topology, path: &str) -> Result<(), String> {
    compare_addresses(&topology.all.address, &topology.root, path)
}

/// Compares the result of one node with that of a root, or of another server in front of nodes.
fn compare_addresses(one: &str, root: &str, path: &str) -> Result<(), String> {
    let (one, root) = (result(one, path), result(root, path));
    let (one, root) = match (one, root) {
        (Ok(one), Ok(root)) => (one, root),
        (one, root) => return Err(format!("one node: {one:?}\nroot: {root:?}")),
    };
    if one.equals(&root) { Ok(()) } else { Err(format!("one node: {one:?}\nroot: {root:?}")) }
}

#[test]
fn a_root_over_shards_returns_what_one_node_returns() {
    let Some(mut topology) = Topology::start("equal") else { return };
    let (mut count, mut wrong) = (0, Vec::new());
    for query in QUERIES.lines().filter(|line| !line.is_empty()) {
        for path in paths(query) {
            count += 1;
            if let Err(error) = compare(&topology, &path) {
                let error: String = error.chars().take(1_500).collect();
                wrong.push(format!("{query}\n{path}\n{error}"));
            }
        }
    }
    println!("{count} comparisons, {} differ", wrong.len());
    assert!(wrong.is_empty(), "{}", wrong.join("\n\n"));
    lists_are_equal(&topology);
    queries_without_a_form_are_errors(&topology);
    a_shard_that_is_down_is_an_error(&mut topology);
}

/// Paths of an instant query, and of a range query.
fn paths(query: &str) -> [String; 2] {
    let (text, start) = (percent_encode(query), END_SECONDS - 1_800);
    [
        format!("/api/v1/query?query={text}&time={END_SECONDS}"),
        format!("/api/v1/query_range?query={text}&start={start}&end={END_SECONDS}&step=60"),
    ]
}

/// Series, labels, exemplars and metadata.
fn lists_are_equal(topology: &Topology) {
    let times = format!("start={}&end={END_SECONDS}", END_SECONDS - 3_600);
    for path in [
        format!("/api/v1/labels?{times}"),
        format!("/api/v1/labels?match[]=up&{times}"),
        format!("/api/v1/label/shard/values?{times}"),
        format!("/api/v1/label/instance/values?match[]=up%7Bshard=%220%22%7D&{times}"),
        format!("/api/v1/series?match[]=up&match[]=temperature&{times}"),
        format!("/api/v1/series?match[]=up%7Bshard=%221%22%7D&{times}"),
        format!("/api/v1/query_exemplars?query=native_seconds&{times}"),
        "/api/v1/metadata".to_owned(),
    ] {
        let data = |address: &str| {
            let (status, text) = get(address, &path);
            assert_eq!(status, 200, "{path}: {text}");
            let answer: Value = serde_json::from_str(&text).unwrap();
            let mut data = answer["data"].clone();
            if let Value::Array(items) = &mut data {
                items.sort_by_key(Value::to_string);
                assert!(!items.is_empty(), "{path}");
            }
            data
        };
        assert_eq!(data(&topology.root), data(&topology.all.address), "{path}");
    }
}

fn queries_without_a_form_are_errors(topology: &Topology) {
    let (start, end) = (END_SECONDS - 60, END_SECONDS);
    for path in [
        format!("/api/v1/query?query=up%5B1m%5D&time={end}"),
        format!("/api/v1/query_range?query=up&start={start}&end={end}&step=0.5"),
        // The root knows no fill modifiers.
        format!("/api/v1/query?query=up%20%2B%20fill(0)%20up&time={end}"),
    ] {
        let (status, text) = get(&topology.root, &path);
        assert!((400..500).contains(&status), "{path}: {status} {text}");
    }
}

/// Stops one of two shards: no query may be answered without its series.
fn a_shard_that_is_down_is_an_error(topology: &mut Topology) {
    topology.writers.pop();
    for query in ["count(up)", "up", "sum(rate(http_requests_total[5m]))"] {
        for path in paths(query) {
            let (status, text) = get(&topology.root, &path);
            assert!(status >= 400, "{path}: {status} {text}");
        }
    }
    let (status, text) = get(&topology.root, &paths("count(up{shard=\"0\"})")[0]);
    assert_eq!(status, 200, "{text}");
}

#[test]
fn another_reader_takes_the_place_of_a_killed_one() {
    let Some(mut group) = ReaderGroup::start() else { return };
    let path = &paths("count(up)")[0];
    // An answer is complete, or an error.
    let ask = || {
        let (status, text) = get(&group.root, path);
        let answer: Value = serde_json::from_str(&text).unwrap_or_default();
        let value = &answer["data"]["result"][0]["value"][1];
        assert!(status >= 400 || *value == "12", "{status} {text}");
        if status == 200 { Ok(()) } else { Err(text) }
    };
    (0..10).for_each(|_| ask().unwrap());
    // The one that answers, as a root need not ask both.
    let calls = |node: &root::Node| node.calls("/thanos.Query/Query");
    let busiest = usize::from(calls(&group.readers[1]) > calls(&group.readers[0]));
    assert!(calls(&group.readers[busiest]) >= 1.0);
    group.readers[busiest].server.child.0.kill().unwrap();
    // The root repeats a call a few times, which on a busy machine may all end before it connects.
    let (mut answered, mut failed) = (0, 0);
    while answered < 20 {
        match ask() {
            Ok(()) => answered += 1,
            Err(text) => {
                failed += 1;
                assert!(failed < 100, "{text}");
            }
        }
    }
    println!("{failed} queries failed");
    assert!(calls(&group.readers[1 - busiest]) >= 1.0);
}
