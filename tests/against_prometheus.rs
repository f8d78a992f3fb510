//! A real Prometheus scrapes itself and remote-writes to the real binary; then both are asked
//! the same queries. The binary of Prometheus is given by `PROMETHEUS_BINARY`.
//!
//! `COMPARE_SECONDS` sets how long Prometheus scrapes first (20 by default).

#![allow(clippy::unwrap_used, reason = "a test ends where its ground gives way")]

mod support;

use std::io::Write as _;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

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

fn start_prometheus(binary: &str, directory: &std::path::Path, target: &str) -> (Child, String) {
    let address = format!("127.0.0.1:{}", free_port());
    let config = directory.join("prometheus.yml");
    let mut file = std::fs::File::create(&config).unwrap();
    write!(
        file,
        "global: {{scrape_interval: 1s}}\n\
         scrape_configs:\n- job_name: prometheus\n  static_configs: [{{targets: ['{address}']}}]\n\
         remote_write:\n- url: http://{target}/api/v1/write\n  \
         queue_config: {{batch_send_deadline: 1s, min_shards: 1, max_shards: 1}}\n"
    )
    .unwrap();
    let child = Command::new(binary)
        .arg(format!("--config.file={}", config.display()))
        .arg(format!("--storage.tsdb.path={}", directory.join("prometheus").display()))
        .arg(format!("--web.listen-address={address}"))
        .arg("--enable-feature=promql-delayed-name-removal,promql-experimental-functions")
        .stdout(Stdio::null())
        .stderr(std::fs::File::create(directory.join("prometheus.log")).unwrap())
        .spawn()
        .unwrap();
    (Child(child), address)
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
