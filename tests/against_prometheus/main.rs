//! A real Prometheus scrapes itself and a target of this test, and remote-writes by both
//! protocols to two real binaries; then all three are asked the same queries. The binary of
//! Prometheus is given by `PROMETHEUS_BINARY`.
//!
//! `COMPARE_SECONDS` sets how long Prometheus scrapes first (20 by default).

#![allow(clippy::unwrap_used, reason = "tests may panic")]

mod answers;
mod api;
mod blocks;
mod cardinality;
mod clients;
mod exemplars;
mod exposition;
mod federate;
mod grafana;
mod otlp;
mod pair;
mod queries;
mod read;

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use answers::same_answer;
use queries::{CUSTOM_HISTOGRAMS, HISTOGRAM_QUERIES, HISTOGRAMS, QUERIES};
use serde_json::Value;
use testkit::{Child, Server, free_port, get, percent_encode};

/// The protocols of remote write, under their names in Prometheus' configuration.
const PROTOCOLS: [&str; 2] = ["prometheus.WriteRequest", "io.prometheus.write.v2.Request"];

/// Prometheus' features whose counterparts are on by default here.
const FEATURES: &str = "promql-delayed-name-removal,promql-experimental-functions,\
    promql-extended-range-selectors,promql-binop-fill-modifiers,exemplar-storage";

/// Time range of the queries, in seconds.
struct Times {
    start: u64,
    end: u64,
    step: u64,
}

#[test]
fn answers_are_those_of_the_prometheus_that_wrote_the_samples() {
    let Ok(binary) = std::env::var("PROMETHEUS_BINARY") else {
        println!("SKIPPED: PROMETHEUS_BINARY is not set, nothing to compare with");
        return;
    };
    let seconds: u64 = std::env::var("COMPARE_SECONDS").map_or(20, |s| s.parse().unwrap());
    let directory = testkit::temporary_directory("against-prometheus");
    let servers = [0, 1].map(|index| {
        let store = directory.path().join(format!("tessella-{index}"));
        Server::start(&store, &["--self-metrics=false"])
    });
    let (prometheus, peer) =
        start_prometheus(&binary, directory.path(), &exposition::serve(), &servers);
    let addresses = servers.each_ref().map(|server| server.address.as_str());
    let all = || addresses.iter().copied().chain([peer.as_str()]);

    wait_for(Duration::from_secs(seconds + 60), || {
        all().all(|at| first_value(at, "min(count_over_time(up[1h]))") >= seconds as f64)
    });
    // Late enough to cover the run, early enough that every sample has arrived.
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
    let end = now.as_secs() - 1;
    wait_for(Duration::from_secs(60), || {
        all().all(|at| first_value(at, "min(timestamp(up))") > end as f64 + 1.0)
    });

    let times = Times { start: end - (seconds / 2).max(5), end, step: (seconds / 20).max(1) };
    let (mut differences, mut compared) = (Vec::new(), 0);
    let window = format!("{}s", (seconds / 3).clamp(5, 300));
    for query in all_queries(&window, QUERIES, HISTOGRAMS) {
        differences.extend(compare_query(&query, &times, &peer, &addresses, &PROTOCOLS));
        compared += 4;
    }
    for histogram in HISTOGRAMS.iter().chain(CUSTOM_HISTOGRAMS) {
        let (_, answer) = get(&peer, &range_path(histogram, &times));
        assert!(answer.contains("\"histograms\""), "{histogram} has none: {answer}");
    }
    // Prometheus sends no custom buckets by 1.0.
    for query in all_queries(&window, &[], CUSTOM_HISTOGRAMS) {
        differences.extend(compare_query(&query, &times, &peer, &addresses[1..], &PROTOCOLS[1..]));
        compared += 2;
    }
    differences.extend(compare_exemplars(&times, &peer, &addresses));
    differences.extend(compare_metadata(&peer, addresses[0]));
    drop(prometheus);
    println!("{compared} answers compared, {} differences", differences.len());
    assert!(
        differences.is_empty(),
        "{} differences:\n{}",
        differences.len(),
        differences.join("\n")
    );
}

fn all_queries(window: &str, queries: &[&str], histograms: &[&str]) -> Vec<String> {
    let of_histograms = histograms.iter().flat_map(|histogram| {
        HISTOGRAM_QUERIES.iter().map(|query| query.replace("{h}", histogram))
    });
    let queries = queries.iter().map(|query| (*query).to_owned()).chain(of_histograms);
    queries.map(|query| query.replace("{w}", window)).collect()
}

/// Sends instant and range queries to Prometheus and to each server.
fn compare_query(
    query: &str,
    times: &Times,
    peer: &str,
    addresses: &[&str],
    protocols: &[&str],
) -> Vec<String> {
    let instant = format!("/api/v1/query?query={}&time={}", percent_encode(query), times.end);
    let paths = [instant, range_path(query, times)];
    let mut differences = Vec::new();
    for path in paths {
        let expected = get(peer, &path);
        for (address, protocol) in addresses.iter().zip(protocols) {
            if let Err(difference) = same_answer(&expected, &get(address, &path)) {
                differences.push(format!("{query}\n  {protocol}: {path}\n  {difference}"));
            }
        }
    }
    differences
}

fn range_path(query: &str, times: &Times) -> String {
    let Times { start, end, step } = times;
    let query = percent_encode(query);
    format!("/api/v1/query_range?query={query}&start={start}&end={end}&step={step}")
}

fn compare_exemplars(times: &Times, peer: &str, addresses: &[&str]) -> Vec<String> {
    // 2.0 also carries exemplars of custom buckets; by 1.0 Prometheus sends them without their series.
    let metrics = ["target_(latency_seconds|requests_total)", "target_.*"];
    let mut differences = Vec::new();
    for ((address, protocol), metric) in addresses.iter().zip(PROTOCOLS).zip(metrics) {
        let query = percent_encode(&format!("{{__name__=~\"{metric}\"}}"));
        let Times { start, end, .. } = times;
        let path = format!("/api/v1/query_exemplars?query={query}&start={start}&end={end}");
        let expected = get(peer, &path);
        assert!(expected.1.contains("trace_id"), "no exemplars: {expected:?}");
        if let Err(difference) = same_answer(&expected, &get(address, &path)) {
            differences.push(format!("{protocol}: {path}\n  {difference}"));
        }
    }
    differences
}

/// Compares the metadata of version 1.0. By 2.0, Prometheus 3.14 sends none, whatever its features.
fn compare_metadata(peer: &str, address: &str) -> Vec<String> {
    let of = |address: &str| {
        let (status, body) = get(address, "/api/v1/metadata");
        assert_eq!(status, 200, "{body}");
        let mut body: Value = serde_json::from_str(&body).unwrap();
        let mut metrics = std::mem::take(body["data"].as_object_mut().unwrap());
        // It has two types, and one is reported at a time.
        metrics.remove("target_alternating");
        metrics
    };
    let (expected, found) = (of(peer), of(address));
    assert!(expected.contains_key("target_latency_seconds"), "{expected:?}");
    let names = expected.keys().chain(found.keys().filter(|name| !expected.contains_key(*name)));
    let differing = names.filter(|name| expected.get(*name) != found.get(*name));
    differing
        .map(|name| {
            let (expected, found) = (expected.get(name), found.get(name));
            format!("metadata of {name}\n  expected {expected:?}, found {found:?}")
        })
        .collect()
}

fn start_prometheus(
    binary: &str,
    directory: &Path,
    target: &str,
    servers: &[Server; 2],
) -> (Child, String) {
    let address = format!("127.0.0.1:{}", free_port());
    let mut config = format!(
        "global: {{scrape_interval: 1s, scrape_native_histograms: true, \
         always_scrape_classic_histograms: true}}\n\
         scrape_configs:\n\
         - {{job_name: prometheus, static_configs: [{{targets: ['{address}']}}]}}\n\
         - job_name: converted\n  \
         convert_classic_histograms_to_nhcb: true\n  \
         static_configs:\n  \
         - {{targets: ['{address}'], labels: {{instance: again}}}}\n  \
         - {{targets: ['{target}']}}\n  \
         metric_relabel_configs:\n  \
         - {{source_labels: [__name__], regex: '(target|prometheus_http_re).*', action: keep}}\n\
         remote_write:\n"
    );
    for (server, protocol) in servers.iter().zip(PROTOCOLS) {
        config.push_str(&format!(
            "- url: http://{}/api/v1/write\n  \
             protobuf_message: {protocol}\n  \
             send_native_histograms: true\n  \
             send_exemplars: true\n  \
             queue_config: {{batch_send_deadline: 1s, min_shards: 1, max_shards: 1}}\n  \
             metadata_config: {{send_interval: 1s}}\n",
            server.address
        ));
    }
    let features = format!("--enable-feature={FEATURES}");
    (spawn_prometheus(binary, directory, &address, &config, &[&features]), address)
}

fn spawn_prometheus(
    binary: &str,
    directory: &Path,
    address: &str,
    config: &str,
    args: &[&str],
) -> Child {
    let file = directory.join("prometheus.yml");
    std::fs::write(&file, config).unwrap();
    let child = Command::new(binary)
        .arg(format!("--config.file={}", file.display()))
        .arg(format!("--storage.tsdb.path={}", directory.join("prometheus").display()))
        .arg(format!("--web.listen-address={address}"))
        .args(args)
        .stdout(Stdio::null())
        .stderr(std::fs::File::create(directory.join("prometheus.log")).unwrap())
        .spawn()
        .unwrap();
    Child(child)
}

fn wait_for(limit: Duration, mut condition: impl FnMut() -> bool) {
    let deadline = Instant::now() + limit;
    while !condition() {
        assert!(Instant::now() < deadline, "the samples did not arrive within {limit:?}");
        std::thread::sleep(Duration::from_millis(250));
    }
}

/// Returns the value of the first series of an instant query; 0 if there is none yet.
fn first_value(address: &str, query: &str) -> f64 {
    let path = format!("/api/v1/query?query={}", percent_encode(query));
    let (status, body) = get(address, &path);
    if status != 200 {
        return 0.0;
    }
    let body: Value = serde_json::from_str(&body).unwrap_or_default();
    body["data"]["result"][0]["value"][1].as_str().map_or(0.0, |v| v.parse().unwrap())
}
