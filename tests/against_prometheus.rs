//! A real Prometheus scrapes itself and remote-writes to the real binary; then both are asked
//! the same queries. And both are sent the same exemplars, and asked for them. The binary of
//! Prometheus is given by `PROMETHEUS_BINARY`.
//!
//! `COMPARE_SECONDS` sets how long Prometheus scrapes first (20 by default).

#![allow(clippy::unwrap_used, reason = "a test ends where its ground gives way")]

#[path = "support/remote_write.rs"]
mod remote_write;
mod support;

use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use remote_write::{Connection, RequestEncoder, encode_labels};
use serde_json::Value;
use support::{Child, Server, free_port, get};

/// Queries of different kinds over what Prometheus exposes of itself; `{w}` is a window that
/// the run is long enough for.
const QUERIES: &[&str] = &[
    "up",
    "sum(up)",
    "count({__name__=~\".+\"})",
    "count by (__name__) ({job=\"prometheus\"})",
    "prometheus_http_requests_total",
    "prometheus_http_requests_total{code=\"200\",handler!=\"/metrics\"}",
    "{__name__=~\"prometheus_tsdb_head_.*\",__name__!~\".*(created|duration).*\"}",
    "rate(prometheus_http_requests_total[{w}])",
    "sum by (handler) (rate(prometheus_http_requests_total[{w}]))",
    "increase(prometheus_tsdb_head_samples_appended_total[{w}])",
    "irate(process_cpu_seconds_total[{w}])",
    "delta(go_goroutines[{w}])",
    "idelta(go_memstats_alloc_bytes[{w}])",
    "deriv(go_memstats_alloc_bytes[{w}])",
    "predict_linear(go_memstats_heap_inuse_bytes[{w}], 60)",
    "resets(prometheus_tsdb_head_samples_appended_total[{w}])",
    "changes(go_goroutines[{w}])",
    "avg_over_time(go_goroutines[{w}])",
    "min_over_time(go_goroutines[{w}])",
    "max_over_time(go_goroutines[{w}])",
    "quantile_over_time(0.9, go_goroutines[{w}])",
    "stddev_over_time(go_goroutines[{w}])",
    "count_over_time(up[{w}])",
    "last_over_time(go_threads[{w}])",
    "present_over_time(go_threads[{w}])",
    "topk(3, go_memstats_alloc_bytes or process_resident_memory_bytes or go_goroutines)",
    "bottomk(2, {__name__=~\"go_gc_.*\"})",
    "quantile(0.5, prometheus_http_requests_total)",
    "stddev by (code) (prometheus_http_requests_total)",
    "count_values(\"value\", prometheus_http_requests_total)",
    "avg without (handler) (prometheus_http_requests_total)",
    "group by (code) (prometheus_http_requests_total)",
    "histogram_quantile(0.9, sum by (le) (rate(prometheus_http_request_duration_seconds_bucket[{w}])))",
    "go_memstats_alloc_bytes / on (instance) go_memstats_sys_bytes",
    "prometheus_http_requests_total / on (code) group_left sum by (code) (prometheus_http_requests_total)",
    "go_goroutines > bool 10",
    "go_goroutines > 10 and go_threads < 1000",
    "go_goroutines unless go_threads",
    "-go_goroutines ^ 2 % 7",
    "max_over_time(rate(process_cpu_seconds_total[{w}])[{w}:1s])",
    "sum_over_time(go_goroutines[{w}] offset 2s)",
    "go_goroutines @ end()",
    "scalar(go_goroutines) + time()",
    "vector(1) + on () group_right go_threads",
    "absent(nonexistent{job=\"x\"})",
    "absent_over_time(up{job=\"prometheus\"}[{w}])",
    "sort_desc(prometheus_http_requests_total)",
    "label_replace(up, \"host\", \"$1\", \"instance\", \"(.*):.*\")",
    "label_join(up, \"both\", \"-\", \"job\", \"instance\")",
    "clamp_max(go_goroutines, 20)",
    "round(go_memstats_alloc_bytes / 1e6, 0.1)",
    "ln(go_memstats_alloc_bytes) + sqrt(go_goroutines)",
    "hour(prometheus_config_last_reload_success_timestamp_seconds)",
    "timestamp(up)",
    "day_of_week()",
];

#[test]
fn answers_are_those_of_the_prometheus_that_wrote_the_samples() {
    let Ok(binary) = std::env::var("PROMETHEUS_BINARY") else {
        println!("SKIPPED: PROMETHEUS_BINARY is not set, nothing to compare with");
        return;
    };
    let seconds: u64 = std::env::var("COMPARE_SECONDS").map_or(20, |s| s.parse().unwrap());
    let directory = support::temporary_directory("against-prometheus");
    let server = Server::start(&directory.path().join("tessella"), &["--self-metrics=false"]);
    let (prometheus, peer) = start_prometheus(&binary, directory.path(), &server.address);

    wait_for(Duration::from_secs(seconds + 60), || {
        let count = |address: &str| first_value(address, "count_over_time(up[1h])");
        count(&peer) >= seconds as f64 && count(&server.address) >= seconds as f64
    });
    // Late enough to hold the whole run, early enough that every sample has arrived.
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
    let end = now.as_secs() - 1;
    wait_for(Duration::from_secs(60), || {
        first_value(&server.address, "timestamp(up)") > end as f64 + 1.0
    });

    let window = format!("{}s", (seconds / 3).clamp(5, 300));
    let start = end - (seconds / 2).max(5);
    let step = (seconds / 20).max(1);
    let mut differences = Vec::new();
    for query in QUERIES {
        let query = query.replace("{w}", &window);
        let encoded = support::percent_encode(&query);
        for path in [
            format!("/api/v1/query?query={encoded}&time={end}"),
            format!("/api/v1/query_range?query={encoded}&start={start}&end={end}&step={step}"),
        ] {
            let expected = get(&peer, &path);
            let found = get(&server.address, &path);
            if let Err(difference) = same_answer(&expected, &found) {
                differences.push(format!("{query}\n  {path}\n  {difference}"));
            }
        }
    }
    println!("{} queries, instant and range, {} differences", QUERIES.len(), differences.len());
    drop(prometheus);
    assert!(differences.is_empty(), "{}", differences.join("\n"));
}

/// A Prometheus that scrapes itself and writes to another place.
fn start_prometheus(binary: &str, directory: &std::path::Path, target: &str) -> (Child, String) {
    let address = format!("127.0.0.1:{}", free_port());
    let config = format!(
        "global: {{scrape_interval: 1s}}\n\
         scrape_configs:\n- job_name: prometheus\n  static_configs: [{{targets: ['{address}']}}]\n\
         remote_write:\n- url: http://{target}/api/v1/write\n  \
         queue_config: {{batch_send_deadline: 1s, min_shards: 1, max_shards: 1}}\n"
    );
    let features = "--enable-feature=promql-delayed-name-removal,promql-experimental-functions";
    (spawn_prometheus(binary, directory, &address, &config, &[features]), address)
}

fn spawn_prometheus(
    binary: &str,
    directory: &std::path::Path,
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

/// Small numbers from a seed.
struct Random(u64);

impl Random {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % limit
    }
}

/// Exemplars about a time: some late, some twice, of one time with other values or labels, with
/// labels that are too long, and without any.
fn exemplars(random: &mut Random, now_ms: i64) -> Vec<(Vec<u8>, i64, f64)> {
    let count = random.below(4);
    (0..count)
        .map(|_| {
            let labels = match random.below(12) {
                0 => encode_labels::<&str, &str>([]),
                1 => encode_labels([("trace_id", &*"x".repeat(120 + random.below(3) as usize))]),
                2 => encode_labels([("empty", ""), ("trace_id", "<ß>\"")]),
                other => encode_labels([("span_id", "1"), ("trace_id", &*format!("t{other}"))]),
            };
            let value = [0.0, 1.0, 1.5, -2.0, f64::INFINITY, f64::NAN][random.below(6) as usize];
            (labels, now_ms + random.below(40) as i64 - 20, value)
        })
        .collect()
}

#[test]
fn exemplars_are_those_of_a_prometheus_that_was_sent_the_same() {
    let Ok(binary) = std::env::var("PROMETHEUS_BINARY") else {
        println!("SKIPPED: PROMETHEUS_BINARY is not set, nothing to compare with");
        return;
    };
    let directory = support::temporary_directory("exemplars-against-prometheus");
    let args = [
        "--self-metrics=false",
        "--storage.out-of-order-window=0s",
        "--storage.exemplars.exemplars-limit=500",
    ];
    let server = Server::start(&directory.path().join("tessella"), &args);
    let peer = format!("127.0.0.1:{}", free_port());
    let args = ["--web.enable-remote-write-receiver", "--enable-feature=exemplar-storage"];
    let config = "storage: {exemplars: {max_exemplars: 500}}\n";
    let prometheus = spawn_prometheus(&binary, directory.path(), &peer, config, &args);
    wait_for(Duration::from_secs(60), || get(&peer, "/-/ready").0 == 200);

    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
    let start_ms = now.as_millis() as i64 - 60_000;
    let mut random = Random(7);
    let mut connections = [&peer, &server.address].map(|a| Connection::open(a).unwrap());
    let mut request = RequestEncoder::default();
    let mut body = Vec::new();
    let mut differences = Vec::new();
    for number in 0..400 {
        let now_ms = start_ms + number * 10;
        request.clear();
        for series in 0..6 {
            let labels = encode_labels([
                ("__name__", ["a_bucket", "b_bucket"][series % 2]),
                ("le", ["1", "+Inf", "<"][series / 2]),
            ]);
            request.push_with_exemplars(
                &labels,
                [(now_ms, number as f64)],
                exemplars(&mut random, now_ms),
            );
        }
        request.compress(&mut body);
        let [expected, found] = connections.each_mut().map(|c| c.write(&body).unwrap().0);
        assert_eq!((expected, found), (204, 204));
        if number % 40 == 39 {
            for path in exemplar_queries(start_ms, now_ms) {
                let (expected, found) = (get(&peer, &path), get(&server.address, &path));
                if expected != found {
                    differences.push(format!("{path}\n  {expected:?}\n  {found:?}"));
                }
            }
        }
    }
    // 500 of some thousand are left.
    let (_, all) = get(&server.address, "/api/v1/query_exemplars?query=%7Ble!=%22%22%7D");
    assert_eq!(all.matches("timestamp").count(), 500);
    drop(prometheus);
    assert!(differences.is_empty(), "{}", differences.join("\n"));
}

/// Requests for exemplars between two times, and some that are refused.
fn exemplar_queries(start_ms: i64, end_ms: i64) -> Vec<String> {
    let queries = [
        "a_bucket",
        "{le!=\"\"}",
        "{le=~\"1|<\"}",
        "histogram_quantile(0.9, sum by (le) (rate(a_bucket[5m])))",
        "a_bucket / b_bucket > 1",
        "none",
        "1",
        "sum(",
        "",
    ];
    let seconds = |ms: i64| format!("{}.{:03}", ms / 1000, ms % 1000);
    let middle_ms = start_ms.midpoint(end_ms);
    let ranges = [
        String::new(),
        format!("&start={}&end={}", seconds(middle_ms), seconds(end_ms)),
        format!("&start={}&end={}", seconds(end_ms - 100), seconds(end_ms - 40)),
        format!("&start={start_ms}&end={end_ms}"),
        format!("&start={}&end={}", seconds(end_ms), seconds(start_ms)),
        "&start=x".to_owned(),
    ];
    let path = |query: &str, range: &String| {
        format!("/api/v1/query_exemplars?query={}{range}", support::percent_encode(query))
    };
    queries.iter().flat_map(|query| ranges.iter().map(|range| path(query, range))).collect()
}

fn wait_for(limit: Duration, mut condition: impl FnMut() -> bool) {
    let deadline = Instant::now() + limit;
    while !condition() {
        assert!(Instant::now() < deadline, "the samples did not arrive within {limit:?}");
        std::thread::sleep(Duration::from_millis(250));
    }
}

/// The value of the first series of an instant query; 0 where there is none yet.
fn first_value(address: &str, query: &str) -> f64 {
    let path = format!("/api/v1/query?query={}", support::percent_encode(query));
    let (status, body) = get(address, &path);
    if status != 200 {
        return 0.0;
    }
    let body: Value = serde_json::from_str(&body).unwrap_or_default();
    body["data"]["result"][0]["value"][1].as_str().map_or(0.0, |v| v.parse().unwrap())
}

fn same_answer(expected: &(u16, String), found: &(u16, String)) -> Result<(), String> {
    if expected.0 != found.0 {
        return Err(format!("status {} against {}: {}", expected.0, found.0, found.1));
    }
    let parse = |text: &str| serde_json::from_str::<Value>(text).map_err(|e| e.to_string());
    let (mut expected, mut found) = (parse(&expected.1)?, parse(&found.1)?);
    for answer in [&mut expected, &mut found] {
        if answer["data"]["resultType"] == "vector"
            && let Some(result) = answer["data"]["result"].as_array_mut()
        {
            result.sort_by_key(|series| series["metric"].to_string());
        }
        for kind in ["warnings", "infos"] {
            if let Some(lines) = answer[kind].as_array_mut() {
                lines.sort_by_key(Value::to_string);
            }
        }
    }
    same_value(&expected, &found, "$")
}

fn same_value(expected: &Value, found: &Value, path: &str) -> Result<(), String> {
    let differ = || Err(format!("at {path}: expected {expected}, found {found}"));
    match (expected, found) {
        (Value::Array(a), Value::Array(b)) if a.len() == b.len() => {
            for (at, (a, b)) in a.iter().zip(b).enumerate() {
                same_value(a, b, &format!("{path}[{at}]"))?;
            }
            Ok(())
        }
        (Value::Object(a), Value::Object(b)) if a.keys().eq(b.keys()) => {
            for (key, a) in a {
                same_value(a, &b[key], &format!("{path}.{key}"))?;
            }
            Ok(())
        }
        (Value::String(a), Value::String(b)) => match (a.parse::<f64>(), b.parse::<f64>()) {
            (Ok(x), Ok(y)) if x == y || (x.is_nan() && y.is_nan()) => Ok(()),
            (Ok(x), Ok(y)) if (x - y).abs() <= 1e-9 * x.abs().max(y.abs()) => Ok(()),
            _ if a == b => Ok(()),
            _ => differ(),
        },
        _ if expected == found => Ok(()),
        _ => differ(),
    }
}
