//! Responses of the binary and of a Prometheus with the same samples, as read by the data source of
//! Grafana and by the Go client of Prometheus.
//!
//! `GRAFANA_CLIENT_BINARY` is the program in `.ci/grafana`, which holds the code of both clients.

mod data;
mod questions;
mod shards;

use std::io::Write;
use std::process::{Command, Stdio};
use std::time::Duration;

use serde_json::{Value, json};

use super::pair::{Pair, prometheus_binary};
use super::{exposition, spawn_prometheus, wait_for};
use questions::Question;
use testkit::{Child, free_port, get};

/// Parts of responses that show that data and queries reach all cases.
const PARTS: &[&str] = &[
    "heatmap-cells",
    "timeseries-multi",
    "numeric-multi",
    "\"name\":\"exemplar\"",
    "\"notices\":",
    "\"errorSource\":\"downstream\"",
    "\"entities\":",
    "\"disk.free\"",
    "v1.ExemplarQueryResult",
];

#[test]
fn grafana_shows_the_same() {
    let Some((pair, client)) = Pair::start("grafana", "GRAFANA_CLIENT_BINARY", data::requests)
    else {
        return;
    };
    let questions = questions::of_samples(pair.end);
    let mut differences = compare(&client, &pair.peer, &pair.server.address, &questions, PARTS);
    let (_prometheus, peer) = start_with_metadata(&pair);
    let of_metadata = questions::of_metadata();
    differences.extend(compare(
        &client,
        &peer,
        &pair.server.address,
        &of_metadata,
        &["What accounts hold."],
    ));
    let count = questions.len() + of_metadata.len();
    println!("{count} answers compared, {} differences", differences.len());
    assert!(count >= 200, "{count} questions are few");
    assert!(
        differences.is_empty(),
        "{} of {count}:\n{}",
        differences.len(),
        differences.join("\n")
    );
}

/// A Prometheus that scrapes a target, as it stores no metadata of remote write.
fn start_with_metadata(pair: &Pair) -> (Child, String) {
    let content_type =
        "application/openmetrics-text; version=1.0.0; charset=utf-8; escaping=allow-utf-8";
    let target = exposition::serve_text(content_type, data::open_metrics());
    let config = format!(
        "global: {{scrape_interval: 1s}}\n\
         scrape_configs: [{{job_name: metadata, static_configs: [{{targets: ['{target}']}}]}}]\n"
    );
    let directory = pair.directory.path().join("metadata");
    std::fs::create_dir(&directory).unwrap();
    let address = format!("127.0.0.1:{}", free_port());
    let binary = prometheus_binary().expect("the pair holds one");
    let child = spawn_prometheus(&binary, &directory, &address, &config, &[]);
    wait_for(Duration::from_secs(60), || {
        get(&address, "/api/v1/metadata").1.contains("latency_seconds")
    });
    (child, address)
}

/// Queries both and returns the differences. The responses of Prometheus must contain each of
/// `parts`.
fn compare(
    client: &str,
    peer: &str,
    address: &str,
    questions: &[Question],
    parts: &[&str],
) -> Vec<String> {
    let answers = ask(client, &[peer, address], questions);
    assert_eq!(answers.len(), questions.len());
    let expected = answers.iter().map(|[expected, _]| expected.to_string()).collect::<String>();
    for part in parts {
        assert!(expected.contains(part), "no answer has {part}");
    }
    let pairs = questions.iter().zip(&answers);
    pairs
        .filter_map(|(question, [expected, found])| {
            let difference = same_answer(question, expected, found).err()?;
            Some(format!("{}\n  {difference}", question.json))
        })
        .collect()
}

/// Returns the responses to each query, in the order of the addresses.
fn ask(client: &str, addresses: &[&str; 2], questions: &[Question]) -> Vec<[Value; 2]> {
    let questions: Vec<_> = questions.iter().map(|question| &question.json).collect();
    let task = json!({ "addresses": addresses, "questions": questions }).to_string();
    let mut child = Command::new(client)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap_or_else(|error| panic!("{client}: {error}"));
    // It prints after reading all input.
    child.stdin.take().unwrap().write_all(task.as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success(), "{client} ended with {}", output.status);
    serde_json::from_slice(&output.stdout).unwrap()
}

/// Maximum relative difference of numbers in responses to [`questions::REORDERED`].
const REORDERED_TOLERANCE: f64 = 1e-9;

fn same_answer(question: &Question, expected: &Value, found: &Value) -> Result<(), String> {
    if question.is_own {
        same_value(&expected["error"], &found["error"], 0.0, "$.error")?;
        return is_told(expected, found, "$");
    }
    let tolerance = if question.is_reordered { REORDERED_TOLERANCE } else { 0.0 };
    let [expected, found] = [expected, found].map(canonical);
    same_value(&expected, &found, tolerance, "$")
}

/// An answer without what Prometheus leaves open, which is the order of warnings, of infos and of
/// equal counts, and what is each server's own, which is how it cuts samples into chunks.
fn canonical(answer: &Value) -> Value {
    let mut answer = answer.clone();
    let sort = |lines: Option<&mut Value>| {
        if let Some(lines) = lines.and_then(Value::as_array_mut) {
            lines.sort_by_key(Value::to_string);
        }
    };
    sort(answer.get_mut("warnings"));
    let frames = answer.get_mut("frames").and_then(Value::as_array_mut);
    for frame in frames.into_iter().flatten() {
        sort(frame.pointer_mut("/schema/meta/notices"));
    }
    if answer["type"] == "v1.TSDBResult" {
        let result = answer["result"].as_object_mut().unwrap();
        result["headStats"].as_object_mut().unwrap().remove("chunkCount");
        result.values_mut().for_each(|counts| sort(Some(counts)));
    }
    answer
}

/// Fields about Go, the retention, and files of configuration in Prometheus.
const NOT_HERE: &[&str] = &[
    "config.file",
    "goVersion",
    "goroutineCount",
    "GOGC",
    "reloadConfigSuccess",
    "storageRetention",
];

/// Returns whether both responses have the same fields about their servers.
fn is_told(expected: &Value, found: &Value, path: &str) -> Result<(), String> {
    let is_empty = |value: &Value| match value {
        Value::Null | Value::Bool(false) => true,
        Value::Number(number) => number.as_f64() == Some(0.0),
        Value::String(text) => text.is_empty(),
        Value::Array(values) => values.is_empty(),
        Value::Object(fields) => fields.is_empty(),
        Value::Bool(true) => false,
    };
    match (expected, found) {
        (Value::Object(a), Value::Object(b)) if !b.is_empty() => {
            let here = a.iter().filter(|(name, _)| !NOT_HERE.contains(&name.as_str()));
            let mut shared = here.filter_map(|(name, value)| Some((name, value, b.get(name)?)));
            shared.try_for_each(|(name, a, b)| is_told(a, b, &format!("{path}.{name}")))
        }
        _ if is_empty(expected) || !is_empty(found) => Ok(()),
        _ => Err(format!("at {path}: expected the like of {expected}, found {found}")),
    }
}

fn same_value(expected: &Value, found: &Value, tolerance: f64, path: &str) -> Result<(), String> {
    match (expected, found) {
        (Value::Array(a), Value::Array(b)) if a.len() == b.len() => {
            let mut pairs = a.iter().zip(b).enumerate();
            pairs.try_for_each(|(at, (a, b))| same_value(a, b, tolerance, &format!("{path}[{at}]")))
        }
        (Value::Object(a), Value::Object(b)) if a.keys().eq(b.keys()) => {
            let mut fields = a.iter();
            fields.try_for_each(|(key, a)| {
                same_value(a, &b[key], tolerance, &format!("{path}.{key}"))
            })
        }
        (Value::Number(a), Value::Number(b)) if is_near(a.as_f64(), b.as_f64(), tolerance) => {
            Ok(())
        }
        _ if expected == found => Ok(()),
        _ => Err(format!("at {path}: expected {expected}, found {found}")),
    }
}

fn is_near(a: Option<f64>, b: Option<f64>, tolerance: f64) -> bool {
    a.zip(b).is_some_and(|(a, b)| (a - b).abs() <= tolerance * a.abs().max(b.abs()))
}
