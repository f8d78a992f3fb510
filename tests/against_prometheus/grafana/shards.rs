//! Grafana's data source over shards: a root of Thanos answers as one node with all series does, but for
//! the parts of Prometheus' API that Thanos lacks.
//!
//! `THANOS_BINARY` and `GRAFANA_CLIENT_BINARY` are both needed.

use std::process::Command;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use prost::Message as _;
use serde_json::{Value, json};
use testkit::prompb::{Label, WriteRequest};
use testkit::remote_write::Connection;
use testkit::{Child, Server, free_port, get, spawn_listening, temporary_directory};

use super::{REORDERED_TOLERANCE, ask, canonical, questions, same_value};
use crate::wait_for;

const SHARDS: usize = 2;

/// Shard of a series: that of its target.
fn shard(labels: &[Label]) -> usize {
    let is_first = |label: &Label| &label.name[..] == b"instance" && &label.value[..] == b"a:80";
    usize::from(!labels.iter().any(is_first))
}

/// Parts of a request for each shard, and last the request with the label of the shard in each series.
fn split(body: &[u8]) -> Vec<Vec<u8>> {
    let message = snap::raw::Decoder::new().decompress_vec(body).unwrap();
    let request = WriteRequest::decode(&message[..]).unwrap();
    let mut parts = vec![WriteRequest::default(); SHARDS + 1];
    for mut series in request.timeseries {
        let own = shard(&series.labels);
        parts[own].timeseries.push(series.clone());
        let label = Label { name: b"shard".into(), value: own.to_string().into_bytes() };
        series.labels.push(label);
        series.labels.sort_by(|a, b| a.name.cmp(&b.name));
        parts[SHARDS].timeseries.push(series);
    }
    let mut encoder = snap::raw::Encoder::new();
    parts.iter().map(|part| encoder.compress_vec(&part.encode_to_vec()).unwrap()).collect()
}

fn start_root(thanos: &str, directory: &std::path::Path, nodes: &[String]) -> (Child, String) {
    let endpoints: Vec<Value> =
        nodes.iter().map(|address| json!({"address": address, "strict": true})).collect();
    let file = directory.join("endpoints.yml");
    std::fs::write(&file, json!({ "endpoints": endpoints }).to_string()).unwrap();
    let address = format!("127.0.0.1:{}", free_port());
    let mut command = Command::new(thanos);
    command.args(["query", "--query.mode=distributed", "--no-query.partial-response"]);
    command.arg("--enable-feature=promql-experimental-functions");
    command.arg(format!("--http-address={address}"));
    command.arg(format!("--grpc-address=127.0.0.1:{}", free_port()));
    command.arg(format!("--endpoint.sd-config-file={}", file.display()));
    let child = spawn_listening(&mut command, &address);
    wait_for(Duration::from_secs(180), || {
        get(&address, "/api/v1/stores").1.matches("\"shard\"").count() >= SHARDS
    });
    (child, address)
}

#[test]
fn grafana_shows_over_shards_what_it_shows_of_one_node() {
    let [Ok(thanos), Ok(client)] = ["THANOS_BINARY", "GRAFANA_CLIENT_BINARY"].map(std::env::var)
    else {
        println!("SKIPPED: THANOS_BINARY or GRAFANA_CLIENT_BINARY is not set");
        return;
    };
    let directory = temporary_directory("grafana-shards");
    let mut servers = Vec::new();
    let mut nodes = Vec::new();
    for shard in 0..=SHARDS {
        let grpc = format!("127.0.0.1:{}", free_port());
        let (label, listen) =
            (format!("--external-label=shard={shard}"), format!("--grpc.listen-address={grpc}"));
        let own = ["--self-metrics=false", &label, &listen];
        // The last one has all series.
        let args = if shard < SHARDS { &own[..] } else { &own[..1] };
        servers.push(Server::start(&directory.path().join(format!("shard-{shard}")), args));
        nodes.push(grpc);
    }
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs() as i64;
    let end = now - now % 600;
    for request in super::data::requests(end) {
        for (server, part) in servers.iter().zip(split(&request)) {
            let (status, text) = Connection::open(&server.address).unwrap().write(&part).unwrap();
            assert!(status < 300, "{status} {text}");
        }
    }
    let (_root, root) = start_root(&thanos, directory.path(), &nodes[..SHARDS]);
    let mut questions = questions::of_samples(end);
    questions.retain(|question| !is_beyond_thanos(&question.json));
    let answers = ask(&client, &[&servers[SHARDS].address, &root], &questions);
    let tolerance = REORDERED_TOLERANCE;
    let pairs = questions.iter().zip(&answers).filter(|(question, _)| !question.is_own);
    let differences: Vec<String> = pairs
        .filter_map(|(question, [expected, found])| {
            let [expected, found] = [expected, found].map(without_own_parts);
            let difference = same_value(&expected, &found, tolerance, "$").err()?;
            Some(format!("{}\n  {difference}", question.json))
        })
        .collect();
    println!("{} answers compared, {} differences", questions.len(), differences.len());
    assert!(questions.len() >= 500, "{} questions are few", questions.len());
    assert!(differences.is_empty(), "{}", differences.join("\n"));
    let [one, of_shards] = [&servers[SHARDS].address, &root].map(|address| {
        let answer: Value =
            serde_json::from_str(&get(address, "/api/v1/status/tsdb").1).unwrap_or_default();
        answer["data"]["headStats"]["numSeries"].clone()
    });
    assert_eq!(one, of_shards, "the root adds up the series of its shards");
}

/// Returns whether Thanos answers a question otherwise. docs/scale-out.md lists the reasons.
fn is_beyond_thanos(question: &Value) -> bool {
    let text = |name: &str| question[name].as_str().unwrap_or_default();
    let expr = question["model"]["expr"].as_str().unwrap_or(text("expr"));
    let is_whole = |name: &str| question[name].as_i64().unwrap_or_default() % 1_000 == 0;
    // Times are whole seconds.
    !["from", "to", "stepMs"].into_iter().all(is_whole)
        // Groupings by labels in UTF-8 are not quoted.
        || expr.contains("by (\"")
        // Which of equal values are kept is open.
        || expr.starts_with("topk")
        || !question["limit"].is_null() && text("call") == "Query"
        || ["api/v1/format_query", "api/v1/parse_query", "api/v1/alerts"].contains(&text("path"))
        // It adds up counts of shards, those of the same label too.
        || text("call") == "TSDB"
        || ["Alerts", "AlertManagers", "TargetsMetadata", "WalReplay"].contains(&text("call"))
        || text("path").contains("/U__")
}

/// An answer without the parts in which Thanos is not Prometheus: order of series, texts of errors,
/// warnings, which have the address of the node, and `analysis`.
fn without_own_parts(answer: &Value) -> Value {
    let mut answer = canonical(answer);
    if !answer["error"].is_null() {
        return json!("an error");
    }
    if let Some(body) = answer["body"].as_str() {
        let mut body: Value = serde_json::from_str(body).unwrap();
        if body["status"] == "error" {
            return json!("an error");
        }
        let fields = body.as_object_mut().unwrap();
        fields.retain(|name, _| ["status", "data"].contains(&&name[..]));
        fields["data"].as_object_mut().and_then(|data| data.remove("analysis"));
        sort(fields.get_mut("data"));
        sort(body.pointer_mut("/data/result"));
        return body;
    }
    if let Some(fields) = answer.as_object_mut() {
        fields.remove("warnings");
    }
    for frame in answer["frames"].as_array_mut().into_iter().flatten() {
        if let Some(meta) = frame.pointer_mut("/schema/meta").and_then(Value::as_object_mut) {
            meta.remove("notices");
            // On the first frame alone.
            meta.remove("executedQueryString");
        }
    }
    sort(answer.get_mut("frames"));
    sort(answer.get_mut("result"));
    answer
}

fn sort(list: Option<&mut Value>) {
    if let Some(list) = list.and_then(Value::as_array_mut) {
        // Frames begin with their values, which are of any precision.
        list.sort_by_key(|item| item.get("schema").unwrap_or(item).to_string());
    }
}
