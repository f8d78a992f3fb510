//! Several readers of a store behind an unmodified `thanos query-frontend`: its answers are those of the
//! writer, also after a reader has ended.

use testkit::proxy::Proxy;
use testkit::{Server, free_port, get, percent_encode, temporary_directory};

use super::{now_seconds, program, start, wait_until, write};

const READERS: usize = 3;
const QUERIES: [&str; 3] = ["sum(rate(m[5m]))", "m", "max_over_time(m[10m]) > 100"];

/// Returns the number of range queries that a reader has answered.
fn calls(reader: &Server) -> usize {
    let (_, metrics) = get(&reader.address, "/metrics");
    let prefix = "tessella_http_requests_total{code=\"200\",handler=\"/api/v1/query_range\"} ";
    let count = metrics.lines().find_map(|line| line.strip_prefix(prefix)?.parse().ok());
    count.unwrap_or(0)
}

#[test]
fn a_query_frontend_over_readers_answers_as_the_writer() {
    let Some(thanos) = program("THANOS_BINARY") else { return };
    let directory = temporary_directory("readers");
    let store = directory.path().join("data");
    let writer = Server::start(&store, &["--self-metrics=false"]);
    let end = now_seconds() / 3600 * 3600;
    let times = (end - 6 * 3600..end).step_by(15);
    let samples = times.map(|time| (time * 1000, ((time / 15) % 977) as f64)).collect();
    write(&writer.address, &[(&[("__name__", "m"), ("job", "shop")], samples)]);
    let mut readers: Vec<Server> = (0..READERS)
        .map(|_| Server::start(&store, &["--mode=reader", "--reader.lag=200ms"]))
        .collect();
    let path = |query: &str, step: u32| {
        let query = percent_encode(query);
        format!("/api/v1/query_range?query={query}&start={}&end={end}&step={step}", end - 6 * 3600)
    };
    for reader in &readers {
        let expected = get(&writer.address, &path("m", 15));
        wait_until("the reader has all samples", || {
            get(&reader.address, &path("m", 15)) == expected
        });
    }
    let addresses: Vec<&str> = readers.iter().map(|reader| reader.address.as_str()).collect();
    let balancer = Proxy::balance(&addresses);
    let frontend = format!("127.0.0.1:{}", free_port());
    let arguments = [
        "query-frontend".to_owned(),
        format!("--http-address={frontend}"),
        format!("--query-frontend.downstream-url=http://{}", balancer.address),
        // Parts of a query are asked at the same time, over several connections.
        "--query-range.split-interval=1h".to_owned(),
    ];
    let log = directory.path().join("frontend.log");
    let _frontend = start(&thanos, &arguments, &log, &frontend, "/-/ready");
    let result = |address: &str, path: &str| {
        let (status, text) = get(address, path);
        assert_eq!(status, 200, "{text}");
        serde_json::from_str::<serde_json::Value>(&text).unwrap()["data"]["result"].clone()
    };
    for query in QUERIES {
        let path = path(query, 30);
        assert_eq!(result(&frontend, &path), result(&writer.address, &path), "{query}");
    }
    let before: Vec<usize> = readers.iter().map(calls).collect();
    let mut step = 15;
    wait_until("several readers are asked", || {
        step += 15;
        result(&frontend, &path("m", step));
        let asked = readers.iter().zip(&before).filter(|(reader, before)| calls(reader) > **before);
        asked.count() > 1
    });
    // The frontend repeats parts that fail at the reader that has ended.
    drop(readers.remove(0));
    for query in QUERIES {
        let path = path(query, 45);
        assert_eq!(result(&frontend, &path), result(&writer.address, &path), "{query}");
    }
}
