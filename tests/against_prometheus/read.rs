//! Remote read: a real Prometheus reads our series, and both are sent the same requests.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use prost::Message as _;
use serde_json::Value;

use super::answers::same_answer;
use super::{exposition, spawn_prometheus, wait_for};
use testkit::remote_write::{Connection, RequestEncoder, encode_labels};
use testkit::{Child, Server, free_port, get, percent_encode};

use testkit::remote_read::{Hints, Query, body, query, read_frames, read_samples};

/// Queries to Prometheus over our series, which it reads by remote read.
const QUERIES: &[&str] = &[
    "count({__name__=~\".+\"}) by (__name__)",
    "sum by (code) (rate(prometheus_http_requests_total[10s]))",
    "up{job=~\"p.*\"}",
    "last_over_time(target_latency_seconds[30s])",
    "histogram_quantile(0.9, rate(target_latency_seconds[10s]))",
    "histogram_count(target_latency_seconds)",
    "sum(increase(target_latency_seconds[15s]))",
    "resets(target_latency_seconds[30s])",
    "changes(up[20s])",
    "{__name__=~\"target_.*\", job!=\"prometheus\"}",
    "go_goroutines offset 3s",
    "max_over_time(sum(up)[10s:1s])",
    "none",
];

fn post(address: &str, body: &[u8]) -> (u16, String, Vec<u8>) {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    let length = body.len();
    let head = format!(
        "POST /api/v1/read HTTP/1.0\r\nHost: {address}\r\nContent-Length: {length}\r\n\
         Accept-Encoding: snappy\r\nContent-Type: application/x-protobuf\r\n\r\n"
    );
    stream.write_all(&[head.as_bytes(), body].concat()).unwrap();
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).unwrap();
    let split = answer.windows(4).position(|w| w == b"\r\n\r\n").unwrap();
    let head = String::from_utf8_lossy(&answer[..split]).to_lowercase();
    let status = head.split(' ').nth(1).unwrap().parse().unwrap();
    (status, head, answer[split + 4..].to_vec())
}

fn content_type(head: &str) -> String {
    let line = head.lines().find(|line| line.starts_with("content-type:"));
    line.unwrap_or_default().to_owned()
}

#[test]
fn a_prometheus_answers_over_series_that_it_reads_from_us() {
    let Ok(binary) = std::env::var("PROMETHEUS_BINARY") else {
        println!("SKIPPED: PROMETHEUS_BINARY is not set, nothing to compare with");
        return;
    };
    let directory = testkit::temporary_directory("read-by-prometheus");
    let (scraping, reading) = (directory.path().join("scraping"), directory.path().join("reading"));
    let server = Server::start(&directory.path().join("tessella"), &["--self-metrics=false"]);
    let start = |place: &std::path::Path, config: &str| -> (Child, String) {
        std::fs::create_dir_all(place).unwrap();
        let address = format!("127.0.0.1:{}", free_port());
        let config = config.replace("{address}", &address);
        (spawn_prometheus(&binary, place, &address, &config, &[]), address)
    };
    let config = format!(
        "global: {{scrape_interval: 1s, scrape_native_histograms: true}}\n\
         scrape_configs:\n\
         - {{job_name: prometheus, static_configs: [{{targets: ['{{address}}']}}]}}\n\
         - {{job_name: target, static_configs: [{{targets: ['{}']}}]}}\n\
         remote_write:\n\
         - url: http://{}/api/v1/write\n  send_native_histograms: true\n  \
         queue_config: {{batch_send_deadline: 1s}}\n",
        exposition::serve(),
        server.address
    );
    let (scraper, _) = start(&scraping, &config);
    let enough = "min(count_over_time(up[1h])) + on() 0 * count(up)";
    let count = |address: &str, query: &str| {
        let (_, text) = get(address, &format!("/api/v1/query?query={}", percent_encode(query)));
        let answer: Value = serde_json::from_str(&text).unwrap_or_default();
        let value = answer["data"]["result"][0]["value"][1].as_str().map(str::to_owned);
        value.map_or(0.0, |value| value.parse::<f64>().unwrap())
    };
    wait_for(Duration::from_secs(90), || {
        count(&server.address, "count(up)") == 2.0 && count(&server.address, enough) >= 20.0
    });
    drop(scraper);
    let newest = count(&server.address, "max(timestamp(up))") as u64;

    let config = format!("remote_read: [{{url: 'http://{}/api/v1/read'}}]\n", server.address);
    let (reader, peer) = start(&reading, &config);
    wait_for(Duration::from_secs(60), || get(&peer, "/-/ready").0 == 200);
    let (mut differences, mut series) = (Vec::new(), 0);
    for query in QUERIES {
        let query = percent_encode(query);
        let (start, end) = (newest - 15, newest - 1);
        let instant = format!("/api/v1/query?query={query}&time={end}");
        let range = format!("/api/v1/query_range?query={query}&start={start}&end={end}&step=2");
        for path in [instant, range] {
            let (expected, found) = (get(&server.address, &path), get(&peer, &path));
            series += expected.1.matches("\"metric\"").count();
            if let Err(difference) = same_answer(&expected, &found) {
                differences.push(format!("{path}\n  {difference}"));
            }
        }
    }
    // Prometheus does not use remote read for names and values.
    let path = "/api/v1/series?match[]=up";
    let (expected, found) = (get(&server.address, path), get(&peer, path));
    if expected != found {
        differences.push(format!("{path}\n  {expected:?}\n  {found:?}"));
    }
    drop(reader);
    assert!(series > 500, "{series} series were compared");
    assert!(differences.is_empty(), "{}", differences.join("\n"));
}

/// Statuses, types and messages are the same; of floats, frames are the same to the byte.
#[test]
fn reads_are_answered_as_prometheus_does() {
    let Ok(binary) = std::env::var("PROMETHEUS_BINARY") else {
        println!("SKIPPED: PROMETHEUS_BINARY is not set, nothing to compare with");
        return;
    };
    let directory = testkit::temporary_directory("reads-against-prometheus");
    let limits = ["--storage.remote.read-sample-limit=300"];
    let args: Vec<_> = ["--self-metrics=false"].into_iter().chain(limits).collect();
    let server = Server::start(&directory.path().join("tessella"), &args);
    let peer = format!("127.0.0.1:{}", free_port());
    let args: Vec<_> = ["--web.enable-remote-write-receiver"].into_iter().chain(limits).collect();
    let prometheus = spawn_prometheus(&binary, directory.path(), &peer, "{}\n", &args);
    wait_for(Duration::from_secs(60), || get(&peer, "/-/ready").0 == 200);

    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
    let recent = now.as_millis() as i64 - 600_000;
    // Within two hours of the clock, where Prometheus cuts chunks.
    let start = recent - if recent % 7_200_000 > 7_080_000 { 120_000 } else { 0 };
    let mut request = RequestEncoder::default();
    for series in 0..5_i64 {
        let labels = encode_labels([("__name__", "a"), ("series", &*series.to_string())]);
        let samples = (0..100_i64).map(|at| {
            let jitter = if series == 3 { at * at * 37 % 900 } else { 0 };
            let value = match series {
                0 => at as f64,
                1 => (at as f64).sqrt(),
                2 => [f64::INFINITY, -0.0, f64::NAN, 1e-300][at as usize % 4],
                _ => 7.0,
            };
            (start + at * 1000 + jitter, value)
        });
        request.push(&labels, samples);
    }
    let mut compressed = Vec::new();
    request.compress(&mut compressed);
    for address in [&peer, &server.address] {
        assert_eq!(Connection::open(address).unwrap().write(&compressed).unwrap().0, 204);
    }

    let all = || query(start, start + 200_000, &[(0, "__name__", "a")]);
    let hinted = |function: &str, from, to| {
        let function = function.to_owned();
        Query { hints: Some(Hints { function, start: start + from, end: start + to }), ..all() }
    };
    let one = |number: &str| {
        query(start, start + 200_000, &[(0, "__name__", "a"), (0, "series", number)])
    };
    let none = query(start, start + 1, &[(0, "__name__", "b")]);
    let some = query(start, start + 200_000, &[(2, "series", "[0-2]"), (3, "series", "1")]);
    let requests = [
        vec![one("0")],
        vec![some],
        vec![one("1"), none.clone(), one("3")],
        vec![none],
        vec![],
        vec![query(start, start + 1000, &[])],
        vec![hinted("rate", 0, 200_000)],
        vec![query(start + 10_000, start + 20_000, &[(0, "__name__", "a")])],
    ];
    let mut compared = 0;
    for queries in requests {
        let samples = body(&queries, &[]);
        let (expected, found) = (post(&peer, &samples), post(&server.address, &samples));
        assert_eq!((expected.0, content_type(&expected.1)), (found.0, content_type(&found.1)));
        if expected.0 == 200 {
            let [expected, found] =
                [expected.2, found.2].map(|body| read_samples(&body).encode_to_vec());
            compared += expected.len();
            assert_eq!(expected, found, "{queries:?}");
        } else {
            assert_eq!(expected.2, found.2);
        }
        let frames = body(&queries, &[1]);
        let (expected, found) = (post(&peer, &frames), post(&server.address, &frames));
        assert_eq!((expected.0, content_type(&expected.1)), (found.0, content_type(&found.1)));
        // How Prometheus cuts a chunk that reaches beyond the query is not compared.
        if queries.iter().all(|query| query.end > start + 100_000) {
            assert_eq!(read_frames(&expected.2), read_frames(&found.2), "{queries:?}");
            assert_eq!(expected.2, found.2);
        }
    }
    assert!(compared > 5000, "{compared} bytes of samples were compared");
    for bad in [&b""[..], b"no snappy", &body(&[], &[7])] {
        let (expected, found) = (post(&peer, bad), post(&server.address, bad));
        assert_eq!((expected.0, content_type(&expected.1)), (found.0, content_type(&found.1)));
    }
    drop(prometheus);
}
