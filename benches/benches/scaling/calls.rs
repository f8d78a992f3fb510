//! Calls of one node without a root: answers computed by the node, raw samples instead, and
//! responses that wait for their receivers.

use std::io::{self, Error};
use std::time::{Duration, Instant};

use benches::http::Client;
use benches::measure::{bytes, table};
use benches::scenario::server::Server;
use prost::Message as _;
use testkit::grpc::{GrpcClient, body, framed};
use testkit::remote_read::{LabelMatcher, Query, ReadRequest};

use crate::root::Node;

/// Time range of a query, in seconds.
#[derive(Clone, Copy)]
pub struct Range {
    pub start_s: i64,
    pub end_s: i64,
    pub step_s: i64,
}

/// Query with the metrics that it reads, and the time that it reads before its start.
struct Read {
    text: &'static str,
    metrics: &'static [&'static str],
    before_s: i64,
    is_instant: bool,
}

const fn panel(text: &'static str, metrics: &'static [&'static str], before_s: i64) -> Read {
    Read { text, metrics, before_s, is_instant: false }
}

const READS: [Read; 8] = [
    panel("sum by (job) (rate(http_requests_total[5m]))", &["http_requests_total"], 300),
    panel(
        "histogram_quantile(0.99, sum by (le, job) (rate(request_seconds_bucket[5m])))",
        &["request_seconds_bucket"],
        300,
    ),
    panel("topk(10, memory_bytes)", &["memory_bytes"], 300),
    panel(
        "sum by (job) (memory_bytes / memory_limit_bytes)",
        &["memory_bytes", "memory_limit_bytes"],
        300,
    ),
    panel("memory_bytes", &["memory_bytes"], 300),
    panel("http_requests_total", &["http_requests_total"], 300),
    Read {
        text: "sum by (job) (rate(http_requests_total[5m]))",
        metrics: &["http_requests_total"],
        before_s: 300,
        is_instant: true,
    },
    Read {
        text: "sum(http_requests_total)",
        metrics: &["http_requests_total"],
        before_s: 300,
        is_instant: true,
    },
];

fn field(out: &mut Vec<u8>, number: u64, content: &[u8]) {
    varint(out, number << 3 | 2);
    varint(out, content.len() as u64);
    out.extend_from_slice(content);
}

fn number(out: &mut Vec<u8>, field: u64, value: i64) {
    varint(out, field << 3);
    varint(out, value as u64);
}

fn varint(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

/// Returns a `QueryRangeRequest`.
fn range_request(text: &str, range: Range) -> Vec<u8> {
    let mut out = Vec::new();
    field(&mut out, 1, text.as_bytes());
    for (at, value) in [(2, range.start_s), (3, range.end_s), (4, range.step_s), (5, 120)] {
        number(&mut out, at, value);
    }
    number(&mut out, 17, 64);
    out
}

/// Returns a `QueryRequest`.
fn instant_request(text: &str, time_s: i64) -> Vec<u8> {
    let mut out = Vec::new();
    field(&mut out, 1, text.as_bytes());
    number(&mut out, 2, time_s);
    number(&mut out, 15, 64);
    out
}

/// Returns a `SeriesRequest`.
fn series_request(metric: &str, start_ms: i64, end_ms: i64) -> Vec<u8> {
    let (mut out, mut matcher) = (Vec::new(), Vec::new());
    number(&mut out, 1, start_ms);
    number(&mut out, 2, end_ms);
    field(&mut matcher, 2, b"__name__");
    field(&mut matcher, 3, metric.as_bytes());
    field(&mut out, 3, &matcher);
    number(&mut out, 16, 64);
    out
}

/// Returns a compressed request of streamed chunks.
fn read_request(metrics: &[&str], start_ms: i64, end_ms: i64) -> Vec<u8> {
    let query = |metric: &&str| Query {
        start: start_ms,
        end: end_ms,
        matchers: vec![LabelMatcher {
            kind: 0,
            name: "__name__".to_owned(),
            value: (*metric).to_owned(),
        }],
        hints: None,
    };
    let request = ReadRequest { queries: metrics.iter().map(query).collect(), accepted: vec![1] };
    let message = request.encode_to_vec();
    let mut out = vec![0; snap::raw::max_compress_len(message.len())];
    let len =
        snap::raw::Encoder::new().compress(&message, &mut out).expect("the buffer is large enough");
    out.truncate(len);
    out
}

/// CPU and bytes of a way to answer.
struct Way {
    cpu_ms: f64,
    bytes: usize,
}

/// Runs `work`, which returns bytes, once to warm up and then `runs` times.
async fn measure(
    server: &Server,
    runs: usize,
    mut work: impl AsyncFnMut() -> io::Result<usize>,
) -> io::Result<Way> {
    let bytes = work().await?;
    let before = server.cpu_time()?;
    for _ in 0..runs {
        work().await?;
    }
    let cpu_ms = (server.cpu_time()? - before).as_secs_f64() * 1e3 / runs as f64;
    Ok(Way { cpu_ms, bytes })
}

async fn call(client: &mut GrpcClient, method: &str, message: &[u8]) -> io::Result<usize> {
    let reply = client.call(method, message).await;
    match reply.code {
        Some(0) => Ok(reply.bytes.len()),
        code => Err(Error::other(format!("{method}: code {code:?}: {}", reply.message))),
    }
}

/// Returns the table of answers against raw samples.
pub async fn answers_against_samples(node: &Node, range: Range, runs: usize) -> io::Result<String> {
    let mut grpc = GrpcClient::connect(&node.grpc).await;
    let mut http: Client = node.server.client();
    let mut rows = Vec::new();
    for read in &READS {
        eprintln!("read {}", read.text);
        let answer = match read.is_instant {
            true => ("/thanos.Query/Query", instant_request(read.text, range.end_s)),
            false => ("/thanos.Query/QueryRange", range_request(read.text, range)),
        };
        let start_s = if read.is_instant { range.end_s } else { range.start_s };
        let (start_ms, end_ms) = ((start_s - read.before_s) * 1_000 + 1, range.end_s * 1_000);
        let series: Vec<Vec<u8>> =
            read.metrics.iter().map(|metric| series_request(metric, start_ms, end_ms)).collect();
        let request = read_request(read.metrics, start_ms, end_ms);
        let queried =
            measure(&node.server, runs, async || call(&mut grpc, answer.0, &answer.1).await)
                .await?;
        let by_series = measure(&node.server, runs, async || {
            let mut bytes = 0;
            for message in &series {
                bytes += call(&mut grpc, "/thanos.Store/Series", message).await?;
            }
            Ok(bytes)
        });
        let by_series = by_series.await?;
        let headers = "Content-Type: application/x-protobuf\r\nContent-Encoding: snappy\r\n\
             X-Prometheus-Remote-Read-Version: 0.1.0\r\n";
        let by_read = measure(&node.server, runs, async || {
            match http.post("/api/v1/read", headers, &request)? {
                (200, body) => Ok(body.len()),
                (status, body) => Err(Error::other(format!(
                    "remote read: status {status}: {}",
                    String::from_utf8_lossy(body)
                ))),
            }
        });
        let by_read = by_read.await?;
        let suffix = if read.is_instant { ", instant" } else { "" };
        let mut row = vec![format!("`{}`{suffix}", read.text)];
        row.extend([&queried, &by_series, &by_read].map(|way| format!("{:.1}", way.cpu_ms)));
        row.extend([&queried, &by_series, &by_read].map(|way| bytes(way.bytes)));
        rows.push(row);
    }
    let head = [
        "query",
        "CPU ms, query",
        "Series",
        "remote read",
        "bytes, query",
        "Series",
        "remote read",
    ];
    Ok(table(&head, &rows))
}

/// Time for which responses that nobody reads are held, after the first of them has begun.
const HOLD: Duration = Duration::from_secs(5);

/// Wide responses at once.
#[derive(Clone, Copy)]
pub struct AtOnce {
    pub count: usize,
    /// Whether receivers read the whole response, or nothing.
    pub is_reading: bool,
}

/// Status of a call, bytes of its response, and the response, if it is not read.
struct Received {
    code: u8,
    bytes: usize,
    _held: Option<Box<dyn Send>>,
}

async fn receive(address: String, message: Vec<u8>, is_reading: bool) -> Option<Received> {
    let method = "/thanos.Query/QueryRange";
    let window = if is_reading { None } else { Some(0) };
    let mut client = GrpcClient::with_window(&address, window).await;
    if is_reading {
        let reply = client.send(method, &[], body(message)).await?;
        return Some(Received { code: reply.code?, bytes: reply.bytes.len(), _held: None });
    }
    let response = client.start(method, &[], body(message)).await?;
    let code = response.headers().get("grpc-status");
    let code = code.and_then(|code| code.to_str().ok()?.parse().ok()).unwrap_or(0);
    Some(Received { code, bytes: 0, _held: Some(Box::new((client, response))) })
}

/// Returns the row of a number of responses at once.
pub async fn memory_of_responses(
    node: &Node,
    text: &str,
    range: Range,
    AtOnce { count, is_reading }: AtOnce,
) -> io::Result<Vec<String>> {
    eprintln!("{count} responses, read: {is_reading}");
    let message = framed(&range_request(text, range));
    let before = node.server.resident().now;
    let mut tasks = tokio::task::JoinSet::new();
    for _ in 0..count {
        tasks.spawn(receive(node.grpc.clone(), message.clone(), is_reading));
    }
    let begin = Instant::now();
    let (mut largest, mut received) = (before, Vec::new());
    while received.len() < count || !is_reading && begin.elapsed() < HOLD {
        let next = tokio::time::timeout(Duration::from_millis(2), tasks.join_next()).await;
        largest = largest.max(node.server.resident().now);
        match next {
            Ok(Some(result)) => received.push(result?),
            Ok(None) => tokio::time::sleep(Duration::from_millis(2)).await,
            Err(_) => {}
        }
        if !is_reading && begin.elapsed() > HOLD {
            break;
        }
    }
    let waiting = tasks.len();
    let bytes_each = received.iter().flatten().map(|of| of.bytes).max().unwrap_or(0);
    let mut codes: Vec<String> = received
        .iter()
        .map(|of| of.as_ref().map_or_else(|| "reset".to_owned(), |of| of.code.to_string()))
        .collect();
    codes.sort();
    let mut counts: Vec<String> = codes
        .chunk_by(|a, b| a == b)
        .map(|group| format!("{} × {}", group.len(), group[0]))
        .collect();
    if waiting > 0 {
        counts.push(format!("{waiting} × waiting"));
    }
    drop(received);
    tasks.shutdown().await;
    Ok(vec![
        count.to_string(),
        if is_reading { "all" } else { "nothing" }.to_owned(),
        bytes(bytes_each),
        bytes(before as usize),
        bytes(largest as usize),
        counts.join(", "),
    ])
}

/// Returns the table of rows.
pub fn responses_table(rows: &[Vec<String>]) -> String {
    let head = [
        "calls at once",
        "receivers read",
        "bytes each",
        "resident before",
        "peak",
        "status codes",
    ];
    table(&head, rows)
}
