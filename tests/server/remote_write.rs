//! Remote write 1.0 and 2.0 with all their fields, to the binary, read back from its store.

use model::{
    Advance, Budget, Histogram, MatchOp, Matcher, ResetHint, SampleBatch, Selection, Source,
    TimeRange,
};
use prost::Message;
use storage::{Store, StoreOptions};
use testkit::prompb::{self, BucketSpan, Count, WriteRequest, ZeroCount, v2};
use testkit::{Server, get, request, temporary_directory};

const V1: &str = "application/x-protobuf";
const V2: &str = "application/x-protobuf;proto=io.prometheus.write.v2.Request";

/// A stored series: labels, floats (timestamp, value, start), histograms (timestamp, start).
#[derive(Debug, PartialEq)]
struct Held {
    labels: String,
    floats: Vec<(i64, f64, i64)>,
    histograms: Vec<(i64, i64, Histogram)>,
}

fn post(server: &Server, content_type: &str, message: &[u8]) -> (u16, String) {
    let body = snap::raw::Encoder::new().compress_vec(message).unwrap();
    let head = format!(
        "POST /api/v1/write HTTP/1.1\r\nHost: {}\r\nContent-Type: {content_type}\r\n\
         Content-Encoding: snappy\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
        server.address,
        body.len()
    );
    request(&server.address, &head, &body)
}

/// Stops the server as a service manager does, and reads a metric from its store.
async fn read(server: Server, store: &std::path::Path, metric: &str) -> Vec<Held> {
    let id = server.child.0.id().to_string();
    assert!(std::process::Command::new("kill").arg(id).status().unwrap().success());
    let Server { mut child, .. } = server;
    assert!(child.0.wait().unwrap().success());
    let options = StoreOptions { background: false, ..StoreOptions::default() };
    let store = Store::open(store.to_str().unwrap(), options).await.unwrap();
    let matcher = Matcher::new(MatchOp::Equal, "__name__", metric).unwrap();
    let selection = Selection {
        matchers: vec![matcher],
        times: TimeRange::new(i64::MIN / 2, i64::MAX / 2),
        only_newest: false,
        windows: None,
    };
    let set = store.select(&selection, &Budget::unlimited()).await.unwrap();
    let held = (0..set.len()).map(|index| {
        let mut held = Held {
            labels: set.labels(index).to_string(),
            floats: Vec::new(),
            histograms: Vec::new(),
        };
        let (mut cursor, mut batch) = (set.cursor(index), SampleBatch::new());
        loop {
            let advance = cursor.next_batch(i64::MAX, &mut batch).unwrap();
            let (times, values) = batch.samples();
            let starts = (0..times.len()).map(|at| batch.start(at));
            let floats = times.iter().zip(values).zip(starts);
            held.floats.extend(floats.map(|((time, value), start)| (*time, *value, start)));
            held.histograms.extend(batch.histograms.iter().map(|sample| {
                (sample.timestamp_ms, sample.start_ms, Histogram::clone(&sample.histogram))
            }));
            batch.clear();
            if advance == Advance::End {
                return held;
            }
        }
    });
    let held = held.collect();
    store.close().await.unwrap();
    held
}

fn now_ms() -> i64 {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
    now.as_millis() as i64
}

fn spans(spans: &[(i32, u32)]) -> Vec<BucketSpan> {
    spans.iter().map(|(offset, length)| BucketSpan { offset: *offset, length: *length }).collect()
}

fn model_spans(spans: &[(i32, u32)]) -> Vec<model::Span> {
    spans.iter().map(|(offset, length)| model::Span { offset: *offset, length: *length }).collect()
}

/// Histograms of all kinds, as sent and as stored.
fn histograms(time: i64, start: i64) -> [(v2::Histogram, Histogram); 4] {
    let integer = v2::Histogram {
        count: Some(Count::Integer(12)),
        sum: 18.5,
        schema: 3,
        zero_threshold: 0.001,
        zero_count: Some(ZeroCount::Integer(2)),
        negative_spans: spans(&[(-4, 1)]),
        negative_deltas: vec![1],
        positive_spans: spans(&[(0, 2), (3, 1)]),
        positive_deltas: vec![1, 2, 2],
        timestamp: time,
        start_timestamp: start,
        ..v2::Histogram::default()
    };
    let integer_held = Histogram {
        schema: 3,
        zero_threshold: 0.001,
        zero_count: 2.0,
        count: 12.0,
        sum: 18.5,
        positive_spans: model_spans(&[(0, 2), (3, 1)]),
        negative_spans: model_spans(&[(-4, 1)]),
        positive_counts: vec![1.0, 3.0, 5.0],
        negative_counts: vec![1.0],
        ..Histogram::default()
    };
    let float = v2::Histogram {
        count: Some(Count::Float(4.5)),
        sum: 7.25,
        schema: -2,
        zero_count: Some(ZeroCount::Float(0.5)),
        positive_spans: spans(&[(-3, 2)]),
        positive_counts: vec![1.5, 2.5],
        reset_hint: 3,
        timestamp: time + 1,
        start_timestamp: start,
        ..v2::Histogram::default()
    };
    let float_held = Histogram {
        reset_hint: ResetHint::Gauge,
        schema: -2,
        zero_count: 0.5,
        count: 4.5,
        sum: 7.25,
        positive_spans: model_spans(&[(-3, 2)]),
        positive_counts: vec![1.5, 2.5],
        ..Histogram::default()
    };
    let custom = v2::Histogram {
        count: Some(Count::Integer(5)),
        sum: 2.5,
        schema: -53,
        positive_spans: spans(&[(0, 1), (1, 1)]),
        positive_deltas: vec![1, 3],
        custom_values: vec![0.25, 1.0],
        timestamp: time + 2,
        ..v2::Histogram::default()
    };
    let custom_held = Histogram {
        schema: -53,
        count: 5.0,
        sum: 2.5,
        positive_spans: model_spans(&[(0, 1), (1, 1)]),
        positive_counts: vec![1.0, 4.0],
        custom_bounds: [0.25, 1.0].into(),
        ..Histogram::default()
    };
    let stale =
        v2::Histogram { sum: model::stale_nan(), timestamp: time + 3, ..v2::Histogram::default() };
    [
        (integer, integer_held),
        (float, float_held),
        (custom, custom_held),
        (stale, Histogram::stale()),
    ]
}

/// Returns a histogram with the reset hint that the store has found.
fn without_hint(histogram: &Histogram) -> Histogram {
    let is_gauge = histogram.reset_hint == ResetHint::Gauge;
    let reset_hint = if is_gauge { ResetHint::Gauge } else { ResetHint::Unknown };
    Histogram { reset_hint, ..histogram.clone() }
}

fn check_histograms(found: &[(i64, i64, Histogram)], expected: &[(v2::Histogram, Histogram)]) {
    let found: Vec<_> =
        found.iter().map(|(time, start, held)| (*time, *start, without_hint(held))).collect();
    let expected: Vec<_> = expected
        .iter()
        .map(|(sent, held)| (sent.timestamp, sent.start_timestamp, held.clone()))
        .collect();
    assert_eq!(found, expected);
}

#[tokio::test]
async fn floats_and_histograms_of_version_1_come_back() {
    let directory = temporary_directory("remote-write-1");
    let server = Server::start(directory.path(), &["--self-metrics=false"]);
    let now = now_ms() - 60_000;
    let mut expected = histograms(now + 1, 0);
    let mut message =
        WriteRequest::of([(&[("__name__", "mixed"), ("job", "a")][..], &[(now, 1.0)][..])]);
    message.timeseries[0].samples.push(prompb::Sample { value: 2.0, timestamp: now + 10 });
    message.timeseries[0].histograms =
        expected.iter().map(|(sent, _)| prompb::Histogram::from(sent.clone())).collect();
    assert_eq!(post(&server, V1, &message.encode_to_vec()), (204, String::new()));
    // Version 1.0 has no start timestamps.
    expected.iter_mut().for_each(|(sent, _)| sent.start_timestamp = 0);

    let held = read(server, directory.path(), "mixed").await;
    assert_eq!(held.len(), 1);
    assert_eq!(held[0].labels, r#"{__name__="mixed", job="a"}"#);
    assert_eq!(held[0].floats, [(now, 1.0, 0), (now + 10, 2.0, 0)]);
    check_histograms(&held[0].histograms, &expected);
}

#[tokio::test]
async fn floats_histograms_and_starts_of_version_2_come_back() {
    let directory = temporary_directory("remote-write-2");
    let server = Server::start(directory.path(), &["--self-metrics=false"]);
    let now = now_ms() - 60_000;
    let start = now - 3_600_000;
    let expected = histograms(now + 1, start);
    let labels = &[("__name__", "mixed"), ("job", "a")][..];
    let mut message =
        v2::Request::of(&WriteRequest::of([(labels, &[(now, 1.0), (now + 10, 2.0)][..])]));
    message.timeseries[0].samples[1].start_timestamp = start;
    let mut histograms = message.timeseries[0].clone();
    histograms.samples.clear();
    histograms.histograms = expected.iter().map(|(sent, _)| sent.clone()).collect();
    // The error names an inconsistent histogram; the others are stored.
    let mut wrong = histograms.clone();
    wrong.histograms.truncate(1);
    wrong.histograms[0].count = Some(Count::Integer(13));
    message.timeseries.extend([histograms, wrong]);
    let (status, text) = post(&server, V2, &message.encode_to_vec());
    assert_eq!(status, 400);
    assert_eq!(
        text,
        "12 observations found in buckets, but the Count field is 13: histogram's observation \
         count should equal the number of observations found in the buckets (in absence of NaN) \
         for series {__name__=\"mixed\", job=\"a\"}\n"
    );
    let (status, metrics) = get(&server.address, "/metrics");
    assert_eq!(status, 200);
    for line in [
        r#"tessella_remote_write_samples_total{type="float",version="2"} 2"#,
        r#"tessella_remote_write_samples_total{type="histogram",version="2"} 4"#,
        r#"tessella_remote_write_samples_rejected_total{reason="invalid_histogram",type="histogram",version="2"} 1"#,
        r#"tessella_remote_write_samples_total{type="float",version="1"} 0"#,
    ] {
        assert!(metrics.lines().any(|found| found == line), "{line}\n{metrics}");
    }

    let held = read(server, directory.path(), "mixed").await;
    assert_eq!(held.len(), 1);
    assert_eq!(held[0].floats, [(now, 1.0, 0), (now + 10, 2.0, start)]);
    check_histograms(&held[0].histograms, &expected);
}

/// All orders of some labels.
fn orders<'a>(labels: &[(&'a str, &'a str)]) -> Vec<Vec<(&'a str, &'a str)>> {
    let Some((first, rest)) = labels.split_first() else { return vec![Vec::new()] };
    let insert = |order: Vec<_>| {
        (0..=rest.len()).map(move |at| {
            let mut order = order.clone();
            order.insert(at, *first);
            order
        })
    };
    orders(rest).into_iter().flat_map(insert).collect()
}

/// A gauge of OTLP in JSON: one data point with these attributes.
fn post_otlp(server: &Server, attributes: &[(&str, &str)], time_ms: i64) -> (u16, String) {
    let attributes: Vec<_> = attributes
        .iter()
        .map(|(key, value)| serde_json::json!({"key": key, "value": {"stringValue": value}}))
        .collect();
    let point = serde_json::json!({
        "timeUnixNano": (time_ms * 1_000_000).to_string(), "asDouble": 1, "attributes": attributes,
    });
    let metric = serde_json::json!({"name": "unsorted", "gauge": {"dataPoints": [point]}});
    let body = serde_json::json!({"resourceMetrics": [{"scopeMetrics": [{"metrics": [metric]}]}]})
        .to_string();
    let head = format!(
        "POST /api/v1/otlp/v1/metrics HTTP/1.1\r\nHost: {}\r\nContent-Type: application/json\r\n\
         Content-Length: {}\r\nConnection: close\r\n\r\n",
        server.address,
        body.len()
    );
    request(&server.address, &head, body.as_bytes())
}

#[tokio::test]
async fn labels_in_any_order_and_without_a_value_lose_nothing() {
    let directory = temporary_directory("remote-write-unsorted");
    let server =
        Server::start(directory.path(), &["--self-metrics=false", "--web.enable-otlp-receiver"]);
    let mut time = now_ms() - 60_000;
    let mut sent = Vec::new();
    let mut next = || {
        time += 1;
        sent.push((time, 1.0, 0));
        time
    };
    let labels = [("__name__", "unsorted"), ("a", "1"), ("b", ""), ("job", "x"), ("z", "9")];
    for labels in orders(&labels) {
        let message = WriteRequest::of([(&labels[..], &[(next(), 1.0)][..])]);
        assert_eq!(post(&server, V1, &message.encode_to_vec()), (204, String::new()), "{labels:?}");
        let message = WriteRequest::of([(&labels[..], &[(next(), 1.0)][..])]);
        let message = v2::Request::of(&message);
        assert_eq!(post(&server, V2, &message.encode_to_vec()), (204, String::new()), "{labels:?}");
    }
    for attributes in orders(&labels[1..]) {
        assert_eq!(post_otlp(&server, &attributes, next()), (200, String::new()), "{attributes:?}");
    }
    let held = read(server, directory.path(), "unsorted").await;
    assert_eq!(held.len(), 1);
    assert_eq!(held[0].labels, r#"{__name__="unsorted", a="1", job="x", z="9"}"#);
    assert_eq!(held[0].floats, sent);
}

#[test]
fn a_duplicate_label_is_rejected_and_logged_with_the_labels_as_received() {
    let directory = temporary_directory("remote-write-duplicate");
    let server = Server::start(directory.path(), &["--self-metrics=false"]);
    let labels = [("z", "1"), ("__name__", "twice"), ("a", "1"), ("z", "2")];
    let message = WriteRequest::of([(&labels[..], &[(now_ms(), 1.0)][..])]);
    let text = "invalid labels for series, labels {z=\"1\", __name__=\"twice\", a=\"1\", \
                z=\"2\"}, duplicated label z";
    for (content_type, message) in
        [(V1, message.encode_to_vec()), (V2, v2::Request::of(&message).encode_to_vec())]
    {
        assert_eq!(post(&server, content_type, &message), (400, format!("{text}\n")));
    }
    let line = format!(
        "msg=\"writes are rejected\" reason=duplicate_label requests=1 samples=1 example={text:?}"
    );
    server.wait_for_log(&line);
}
