//! Compares exemplars of the binary with those of Prometheus.

use std::time::Duration;

use super::{spawn_prometheus, wait_for};
use testkit::random::Random;
use testkit::remote_write::{Connection, RequestEncoder, encode_labels};
use testkit::{Server, free_port, get};

/// Exemplars around a timestamp: some late or repeated, of one timestamp with other values or
/// labels, with labels that are too long, and without labels.
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
    let directory = testkit::temporary_directory("exemplars-against-prometheus");
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

/// Requests for exemplars between two timestamps, some of them invalid.
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
        format!("/api/v1/query_exemplars?query={}{range}", testkit::percent_encode(query))
    };
    queries.iter().flat_map(|query| ranges.iter().map(|range| path(query, range))).collect()
}
