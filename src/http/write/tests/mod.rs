//! Write requests to a store in memory.

mod otlp;

use axum::body::{Body, to_bytes};
use futures::StreamExt as _;
use model::{Budget, ExemplarQuery, MatchOp, Matcher, Selection, Source, TimeRange};
use prometheus::Registry;
use prost::Message;
use storage::StoreOptions;
use wire::Limits;

use super::*;
use crate::flags::names::LIMIT_NAMES;
use crate::ingest::{IngestMetrics, now_ms};
use testkit::prompb::{Exemplar, MetricMetadata, WriteRequest, v2};

struct Receiver {
    remote_write: RemoteWrite,
    registry: Registry,
    store: Store,
}

impl Receiver {
    async fn new(limits: Limits) -> Receiver {
        let registry = Registry::new();
        let metrics = IngestMetrics::new(&registry);
        let options = StoreOptions { background: false, ..StoreOptions::default() };
        let store = Store::open("memory:///", options).await.unwrap();
        Receiver { remote_write: RemoteWrite::new(limits, metrics), registry, store }
    }

    async fn send(&self, body: impl Into<Body>) -> (StatusCode, String) {
        self.send_request(Request::post("/api/v1/write").body(body.into()).unwrap()).await
    }

    async fn send_request(&self, request: Request) -> (StatusCode, String) {
        let response = write(&self.remote_write, &self.store, request, None).await;
        let status = response.status();
        let has_retry = response.headers().contains_key(header::RETRY_AFTER);
        let is_for_later =
            [StatusCode::SERVICE_UNAVAILABLE, StatusCode::TOO_MANY_REQUESTS].contains(&status);
        assert_eq!(has_retry, is_for_later);
        let body = to_bytes(response.into_body(), usize::MAX).await.unwrap();
        (status, String::from_utf8(body.to_vec()).unwrap())
    }

    /// Starts requests whose bodies do not end, each with some bytes in flight.
    async fn hold(&self, bytes: usize, count: usize) -> Vec<impl Future<Output = Response>> {
        let mut held = Vec::new();
        for _ in 0..count {
            let started = futures::stream::iter([Ok::<_, std::io::Error>(vec![0; bytes])]);
            let body = Body::from_stream(started.chain(futures::stream::pending()));
            let request = Request::post("/api/v1/write").body(body).unwrap();
            let mut sending = Box::pin(write(&self.remote_write, &self.store, request, None));
            assert!(futures::poll!(sending.as_mut()).is_pending());
            held.push(sending);
        }
        let inflight = self.metric("tessella_remote_write_inflight_bytes", &[]);
        assert_eq!(inflight, (bytes * count) as f64);
        held
    }

    /// Sends a message of the second protocol. Returns the response with the counts written.
    async fn send_v2(&self, message: &[u8]) -> (StatusCode, String, Option<[u64; 3]>) {
        let request = Request::post("/api/v1/write")
            .header(header::CONTENT_TYPE, V2_TYPE)
            .header(header::CONTENT_ENCODING, "snappy")
            .body(Body::from(compressed(message)))
            .unwrap();
        let response = write(&self.remote_write, &self.store, request, None).await;
        let status = response.status();
        let headers = response.headers().clone();
        let written =
            |name| headers.get(name).map(|count| count.to_str().unwrap().parse().unwrap());
        let written = match ["samples", "histograms", "exemplars"]
            .map(|what| written(format!("X-Prometheus-Remote-Write-{what}-Written")))
        {
            [Some(floats), Some(histograms), Some(exemplars)] => {
                Some([floats, histograms, exemplars])
            }
            [None, None, None] => None,
            some => panic!("{some:?}"),
        };
        let body = to_bytes(response.into_body(), usize::MAX).await.unwrap();
        (status, String::from_utf8(body.to_vec()).unwrap(), written)
    }

    /// Returns all samples of a metric, by series.
    async fn samples(&self, metric: &str) -> Vec<(String, Vec<(i64, f64)>)> {
        let matcher = Matcher::new(MatchOp::Equal, "__name__", metric).unwrap();
        let selection = Selection {
            matchers: vec![matcher],
            times: TimeRange::new(i64::MIN / 2, i64::MAX / 2),
            only_newest: false,
            windows: None,
        };
        let set = self.store.select(&selection, &Budget::unlimited()).await.unwrap();
        (0..set.len())
            .map(|index| {
                let mut samples = Vec::new();
                let mut cursor = set.cursor(index);
                let mut batch = model::SampleBatch::new();
                loop {
                    let advance = cursor.next_batch(i64::MAX, &mut batch).unwrap();
                    let (times, values) = batch.samples();
                    samples.extend(times.iter().copied().zip(values.iter().copied()));
                    batch.clear();
                    if advance == model::Advance::End {
                        break;
                    }
                }
                (set.labels(index).to_string(), samples)
            })
            .collect()
    }

    /// Returns the sum over series of a metric that have all these label values.
    fn metric(&self, name: &str, values: &[&str]) -> f64 {
        let families = self.registry.gather();
        let family = families.iter().find(|family| family.name() == name).unwrap();
        let has = |metric: &prometheus::proto::Metric, value: &str| {
            metric.get_label().iter().any(|label| label.value() == value)
        };
        family
            .get_metric()
            .iter()
            .filter(|metric| values.iter().all(|value| has(metric, value)))
            .map(|metric| metric.get_counter().get_value() + metric.get_gauge().get_value())
            .sum()
    }
}

const V2_TYPE: &str = "application/x-protobuf;proto=io.prometheus.write.v2.Request";

/// Series with one sample: labels, time, value.
type OneSample<'a> = (&'a [(&'a str, &'a str)], i64, f64);

fn message(series: &[OneSample<'_>]) -> Vec<u8> {
    let samples: Vec<_> = series.iter().map(|(_, time, value)| [(*time, *value)]).collect();
    let series = series.iter().zip(&samples).map(|((labels, ..), samples)| (*labels, &samples[..]));
    WriteRequest::of(series).encode_to_vec()
}

fn compressed(message: &[u8]) -> Vec<u8> {
    snap::raw::Encoder::new().compress_vec(message).unwrap()
}

#[tokio::test]
async fn samples_are_durable_before_the_answer() {
    let receiver = Receiver::new(Limits::default()).await;
    let now = now_ms();
    let a: &[(&str, &str)] = &[("__name__", "up"), ("job", "a")];
    let b: &[(&str, &str)] = &[("__name__", "up"), ("job", "b")];
    let body = compressed(&message(&[(a, now, 1.0), (b, now, 2.0), (a, now + 1, 3.0)]));
    assert_eq!(receiver.send(body).await, (StatusCode::NO_CONTENT, String::new()));
    assert_eq!(
        receiver.samples("up").await,
        [
            (r#"{__name__="up", job="a"}"#.to_owned(), vec![(now, 1.0), (now + 1, 3.0)]),
            (r#"{__name__="up", job="b"}"#.to_owned(), vec![(now, 2.0)]),
        ]
    );
    assert_eq!(receiver.metric("tessella_remote_write_samples_total", &[]), 3.0);
    assert_eq!(receiver.metric("tessella_remote_write_inflight_bytes", &[]), 0.0);
}

#[tokio::test]
async fn good_series_are_kept_and_bad_ones_named() {
    let receiver = Receiver::new(Limits::default()).await;
    let now = now_ms();
    let good: &[(&str, &str)] = &[("__name__", "up"), ("job", "a")];
    let unnamed: &[(&str, &str)] = &[("job", "b")];
    let body = message(&[
        (unnamed, now, 1.0),
        (good, now, 1.0),
        (good, now + 3_600_000, 1.0),
        (good, now, 2.0),
    ]);
    let (status, text) = receiver.send(compressed(&body)).await;
    assert_eq!(status, StatusCode::BAD_REQUEST);
    assert_eq!(
        text,
        "invalid metric name or labels, got {job=\"b\"}\n\
         out of bounds: timestamp is too far in the future for series {__name__=\"up\", job=\"a\"}\n\
         duplicate sample for timestamp for series {__name__=\"up\", job=\"a\"}\n"
    );
    assert_eq!(receiver.samples("up").await[0].1, [(now, 1.0)]);
    for reason in ["invalid_labels", "out_of_bounds", "duplicate_timestamp"] {
        let rejected = receiver
            .metric("tessella_remote_write_samples_rejected_total", &["1", "float", reason]);
        assert_eq!(rejected, 1.0, "{reason}");
    }
    // Repeated samples are stored once.
    let body = compressed(&message(&[(good, now, 1.0)]));
    assert_eq!(receiver.send(body).await.0, StatusCode::NO_CONTENT);
    assert_eq!(receiver.samples("up").await[0].1, [(now, 1.0)]);
    assert_eq!(receiver.metric("tessella_remote_write_samples_duplicate_total", &[]), 1.0);
}

#[tokio::test]
async fn refusals_beyond_those_that_are_listed_are_counted_by_reason() {
    let receiver = Receiver::new(Limits::default()).await;
    let now = now_ms();
    let labels: &[(&str, &str)] = &[("__name__", "up")];
    let mut series = vec![(labels, now, 1.0)];
    series.extend((0..50).map(|_| (labels, now + 3_600_000, 1.0)));
    series.extend((0..60).map(|_| (labels, now, 2.0)));
    let (status, text) = receiver.send(compressed(&message(&series))).await;
    assert_eq!(status, StatusCode::BAD_REQUEST);
    assert!(text.ends_with("\nand 100 more of this kind\n"), "{text}");
    for (reason, count) in [("out_of_bounds", 50.0), ("duplicate_timestamp", 60.0)] {
        let rejected = receiver
            .metric("tessella_remote_write_samples_rejected_total", &["1", "float", reason]);
        assert_eq!(rejected, count, "{reason}");
    }
}

#[tokio::test]
async fn each_limit_has_its_status_and_name() {
    let limits = Limits {
        body_bytes_max: 200,
        decompressed_bytes_max: 1_000,
        series_max: 2,
        inflight_bytes_max: 2_410,
        names: LIMIT_NAMES,
        ..Limits::default()
    };
    let receiver = Receiver::new(limits).await;
    let series: &[(&str, &str)] = &[("__name__", "up")];
    let too_large = StatusCode::PAYLOAD_TOO_LARGE;
    for (body, status, part) in [
        (vec![0; 201], too_large, "200 bytes limit (--remote-write.max-body-size)"),
        (compressed(&[0; 1_001]), too_large, "(--remote-write.max-decompressed-size)"),
        (
            compressed(&message(&[(series, 1, 1.0); 3])),
            too_large,
            "request of 3 series is over the limit of 2 (--remote-write.max-series-per-request)",
        ),
        (vec![], StatusCode::BAD_REQUEST, "cannot decompress the request"),
        (vec![0xff; 100], StatusCode::BAD_REQUEST, "cannot decompress the request"),
        (
            compressed(&[0x0a, 2, 0x0a, 9]),
            StatusCode::BAD_REQUEST,
            "malformed write request at byte 2, timeseries[0].labels: length 9 runs past the end",
        ),
    ] {
        let (found, text) = receiver.send(body).await;
        assert_eq!(found, status, "{text}");
        assert!(text.contains(part), "{text}");
    }
    assert_eq!(receiver.metric("tessella_remote_write_inflight_bytes", &[]), 0.0);

    let _held = receiver.hold(200, 12).await;
    let (status, text) = receiver.send(compressed(&message(&[(series, 1, 1.0)]))).await;
    assert_eq!(status, StatusCode::SERVICE_UNAVAILABLE);
    assert!(text.contains("the limit is 2410 (--remote-write.max-inflight-size)"), "{text}");
}

#[tokio::test]
async fn other_formats_are_refused_before_the_body_is_read() {
    let receiver = Receiver::new(Limits::default()).await;
    let never = Body::from_stream(futures::stream::pending::<Result<Vec<u8>, std::io::Error>>());
    let request = Request::post("/api/v1/write")
        .header(header::CONTENT_TYPE, "application/x-protobuf;proto=x")
        .body(never)
        .unwrap();
    let (status, text) = receiver.send_request(request).await;
    assert_eq!(status, StatusCode::UNSUPPORTED_MEDIA_TYPE);
    assert!(text.contains("unknown type for remote write protobuf message x"), "{text}");
}

#[tokio::test(start_paused = true)]
async fn a_client_that_does_not_send_times_out() {
    let receiver = Receiver::new(Limits::default()).await;
    let never = Body::from_stream(futures::stream::pending::<Result<Vec<u8>, std::io::Error>>());
    let (status, text) = receiver.send(never).await;
    assert_eq!(status, StatusCode::SERVICE_UNAVAILABLE);
    assert!(text.contains("(--remote-write.body-timeout)"), "{text}");
}

#[tokio::test]
async fn a_length_that_is_only_declared_takes_nothing_from_others() {
    let limits = Limits { inflight_bytes_max: 1_000, ..Limits::default() };
    let receiver = Receiver::new(limits).await;
    let started = Body::from_stream(
        futures::stream::iter([Ok::<_, std::io::Error>(vec![0; 10])])
            .chain(futures::stream::pending()),
    );
    let request = Request::post("/api/v1/write").header(header::CONTENT_LENGTH, 1_000);
    let mut sending = Box::pin(receiver.send_request(request.body(started).unwrap()));
    assert!(futures::poll!(sending.as_mut()).is_pending());
    assert_eq!(receiver.metric("tessella_remote_write_inflight_bytes", &[]), 10.0);
    let series: &[(&str, &str)] = &[("__name__", "up")];
    let now = now_ms();
    let (status, text) = receiver.send(compressed(&message(&[(series, now, 1.0)]))).await;
    assert_eq!(status, StatusCode::NO_CONTENT, "{text}");
    drop(sending);
    assert_eq!(receiver.metric("tessella_remote_write_inflight_bytes", &[]), 0.0);
}

#[tokio::test]
async fn large_messages_take_the_other_thread_and_end_alike() {
    let receiver = Receiver::new(Limits::default()).await;
    let now = now_ms();
    let value = "v".repeat(100);
    let names: Vec<String> = (0..20_000).map(|index| format!("{value}{index}")).collect();
    let labels: Vec<[(&str, &str); 2]> =
        names.iter().map(|name| [("__name__", "many"), ("l", name.as_str())]).collect();
    let series: Vec<OneSample<'_>> = labels.iter().map(|labels| (&labels[..], now, 1.0)).collect();
    let body = message(&series);
    // Larger than messages that are decoded on the thread that receives them.
    assert!(body.len() > 2 << 20);
    assert_eq!(receiver.send(compressed(&body)).await.0, StatusCode::NO_CONTENT);
    assert_eq!(receiver.samples("many").await.len(), 20_000);
}

#[tokio::test]
async fn a_closed_store_asks_to_retry() {
    let receiver = Receiver::new(Limits::default()).await;
    receiver.store.close().await.unwrap();
    let series: &[(&str, &str)] = &[("__name__", "up")];
    let (status, text) = receiver.send(compressed(&message(&[(series, 1, 1.0)]))).await;
    assert_eq!((status, text.as_str()), (StatusCode::SERVICE_UNAVAILABLE, "the store is closed\n"));
}

/// Returns the series of [`message`] for the second protocol.
fn message_v2(series: &[OneSample<'_>]) -> v2::Request {
    v2::Request::of(&WriteRequest::decode(&message(series)[..]).unwrap())
}

#[tokio::test]
async fn the_second_protocol_returns_the_counts_written() {
    let receiver = Receiver::new(Limits::default()).await;
    let now = now_ms();
    let a: &[(&str, &str)] = &[("__name__", "up"), ("job", "a")];
    let b: &[(&str, &str)] = &[("__name__", "up"), ("job", "b")];
    let mut request = message_v2(&[(a, now, 1.0), (b, now, 2.0)]);
    let body = request.encode_to_vec();
    let done = (StatusCode::NO_CONTENT, String::new(), Some([2, 0, 0]));
    assert_eq!(receiver.send_v2(&body).await, done);
    // Duplicates count as written.
    assert_eq!(receiver.send_v2(&body).await, done);
    assert_eq!(receiver.samples("up").await[1].1, [(now, 2.0)]);

    request.timeseries[0].samples[0].timestamp += 1;
    request.timeseries[1].labels_refs.push(1);
    let (status, text, written) = receiver.send_v2(&request.encode_to_vec()).await;
    assert_eq!(status, StatusCode::BAD_REQUEST);
    assert_eq!(text, "parsing labels for series [1 2 3 5 1]: invalid labelRefs length 5\n");
    assert_eq!(written, Some([1, 0, 0]));
    assert_eq!(receiver.samples("up").await[0].1, [(now, 1.0), (now + 1, 1.0)]);

    let samples = "tessella_remote_write_samples_total";
    assert_eq!(receiver.metric(samples, &["2", "float"]), 5.0);
    assert_eq!(receiver.metric(samples, &["1"]), 0.0);
    let rejected = "tessella_remote_write_samples_rejected_total";
    assert_eq!(receiver.metric(rejected, &["2", "float", "invalid_reference"]), 1.0);
    let invalid = "prometheus_api_remote_write_invalid_labels_samples_total";
    assert_eq!(receiver.metric(invalid, &[]), 1.0);
}

#[tokio::test]
async fn series_of_the_second_protocol_are_refused_in_the_words_of_prometheus() {
    let receiver = Receiver::new(Limits::default()).await;
    let now = now_ms();
    let up: &[(&str, &str)] = &[("__name__", "up"), ("job", "a")];
    let good = message_v2(&[(up, now, 1.0)]);
    let check = async |change: &dyn Fn(&mut v2::TimeSeries), expected: &str| {
        let mut request = good.clone();
        change(&mut request.timeseries[0]);
        let (status, text, written) = receiver.send_v2(&request.encode_to_vec()).await;
        assert_eq!((status, text), (StatusCode::BAD_REQUEST, format!("{expected}\n")));
        assert_eq!(written, Some([0, 0, 0]));
    };
    check(
        &|s| s.labels_refs.truncate(3),
        "parsing labels for series [1 2 3]: invalid labelRefs length 3",
    )
    .await;
    check(
        &|s| s.labels_refs[3] = 9,
        "parsing labels for series [1 2 3 9]: labelRefs 3 (name) = 9 (value) outside of symbols \
         table (size 5)",
    )
    .await;
    check(
        &|s| s.metadata = Some(v2::Metadata { r#type: 1, help_ref: 5, unit_ref: 0 }),
        "parsing metadata for series [1 2 3 4]: metadata help_ref 5 outside of symbols table \
         (size 5)",
    )
    .await;
    check(&|s| drop(s.labels_refs.drain(..2)), r#"invalid metric name or labels, got {job="a"}"#)
        .await;
    check(
        &|s| s.labels_refs.extend([3, 4]),
        r#"invalid labels for series, labels {__name__="up", job="a", job="a"}, duplicated label job"#,
    )
    .await;
    check(
        &|s| s.samples.clear(),
        r#"TimeSeries must contain at least one sample or histogram for series {__name__="up", job="a"}"#,
    )
    .await;
    check(
        &|s| s.samples[0].timestamp += 3_600_000,
        r#"out of bounds: timestamp is too far in the future for series {__name__="up", job="a"}"#,
    )
    .await;
    assert!(receiver.samples("up").await.is_empty());

    // An exemplar with an invalid reference is rejected, its sample stored.
    let mut request = good.clone();
    let exemplar = v2::Exemplar { labels_refs: vec![1], value: 1.0, timestamp: now };
    request.timeseries[0].exemplars.push(exemplar);
    let (status, text, written) = receiver.send_v2(&request.encode_to_vec()).await;
    assert_eq!(
        (status, text.as_str(), written),
        (
            StatusCode::BAD_REQUEST,
            "parsing exemplar for series {__name__=\"up\", job=\"a\"}: invalid labelRefs length 1\n",
            Some([1, 0, 0])
        )
    );
}

#[tokio::test]
async fn exemplars_and_metadata_are_stored_and_late_exemplars_reported_to_senders_of_v2() {
    let receiver = Receiver::new(Limits::default()).await;
    let now = now_ms();
    let up: &[(&str, &str)] = &[("__name__", "up")];
    let exemplar = |timestamp, value| Exemplar { labels: Vec::new(), value, timestamp };
    let mut v1 = WriteRequest::of([(up, &[(now, 1.0)][..])]);
    v1.timeseries[0].exemplars = vec![exemplar(now, 2.0), exemplar(now, 1.0)];
    v1.metadata.push(MetricMetadata {
        r#type: 1,
        metric_family_name: b"up".to_vec(),
        help: b"is up".to_vec(),
        unit: Vec::new(),
    });
    let kept = (StatusCode::NO_CONTENT, String::new());
    assert_eq!(receiver.send(compressed(&v1.encode_to_vec())).await, kept);
    // Out of order: same time, lower value.
    v1.timeseries[0].exemplars = vec![exemplar(now, 1.0)];
    assert_eq!(receiver.send(compressed(&v1.encode_to_vec())).await, kept);

    let mut v2 = message_v2(&[(up, now, 1.0)]);
    let exemplar = |timestamp, value| v2::Exemplar { labels_refs: Vec::new(), value, timestamp };
    v2.timeseries[0].exemplars =
        vec![exemplar(now, 2.0), exemplar(now, 1.0), exemplar(now + 3_600_000, 1.0)];
    let answer = receiver.send_v2(&v2.encode_to_vec()).await;
    let text = "out of order exemplar for series {__name__=\"up\"}\n";
    assert_eq!(answer, (StatusCode::BAD_REQUEST, text.to_owned(), Some([1, 0, 1])));

    let selector = vec![Matcher::new(MatchOp::Equal, "__name__", "up").unwrap()];
    let query = ExemplarQuery { selectors: vec![selector], times: TimeRange::new(0, i64::MAX) };
    let found = receiver.store.exemplars(&query, &Budget::unlimited()).unwrap().found;
    let found: Vec<_> = found[0].exemplars.iter().map(|e| (e.timestamp_ms, e.value)).collect();
    assert_eq!(found, [(now, 2.0)]);
    let known = receiver.store.metadata(Some("up"), 1).found;
    assert_eq!(known[0].entries[0].help, "is up");
    for (name, version, expected) in [
        ("exemplars_total", "1", 2.0),
        ("exemplars_rejected_total", "1", 1.0),
        ("exemplars_total", "2", 1.0),
        ("exemplars_rejected_total", "2", 1.0),
        ("exemplars_dropped_total", "2", 1.0),
        ("metadata_total", "1", 2.0),
    ] {
        let found = receiver.metric(&format!("tessella_remote_write_{name}"), &[version]);
        assert_eq!(found, expected, "{name} {version}");
    }
}

#[tokio::test]
async fn a_request_is_read_by_its_content_type() {
    let receiver = Receiver::new(Limits::default()).await;
    let now = now_ms();
    let up: &[(&str, &str)] = &[("__name__", "up")];
    let request = message_v2(&[(up, now, 1.0)]).encode_to_vec();
    // Each message is empty to the other decoder, but damage is an error.
    let read_as_v1 = receiver.send(compressed(&request)).await;
    assert_eq!(read_as_v1, (StatusCode::NO_CONTENT, String::new()));
    let read_as_v2 = receiver.send_v2(&message(&[(up, now, 1.0)])).await;
    assert_eq!(read_as_v2, (StatusCode::NO_CONTENT, String::new(), Some([0, 0, 0])));
    let (status, text, written) = receiver.send_v2(&request[..request.len() - 1]).await;
    assert_eq!((status, written), (StatusCode::BAD_REQUEST, Some([0, 0, 0])));
    assert!(text.starts_with("malformed write request at byte "), "{text}");
    assert!(receiver.samples("up").await.is_empty());

    receiver.store.close().await.unwrap();
    let (status, _, written) = receiver.send_v2(&request).await;
    assert_eq!((status, written), (StatusCode::SERVICE_UNAVAILABLE, Some([0, 0, 0])));
}
