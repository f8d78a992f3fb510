//! Requests against a store in memory.

use axum::body::to_bytes;
use model::{Budget, MatchOp, Matcher, Selection, Source};
use prometheus::Registry;
use prost::Message;
use storage::StoreOptions;

use super::super::prompb::WriteRequest;
use super::*;

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

    async fn send_request(&self, request: Request<Body>) -> (StatusCode, String) {
        let response = self.remote_write.write(&self.store, request).await;
        let status = response.status();
        let has_retry = response.headers().contains_key(header::RETRY_AFTER);
        assert_eq!(has_retry, status == StatusCode::SERVICE_UNAVAILABLE);
        let body = to_bytes(response.into_body(), usize::MAX).await.unwrap();
        (status, String::from_utf8(body.to_vec()).unwrap())
    }

    /// Every sample of a metric, by series.
    async fn samples(&self, metric: &str) -> Vec<(String, Vec<(i64, f64)>)> {
        let matcher = Matcher::new(MatchOp::Equal, "__name__", metric).unwrap();
        let selection =
            Selection { matchers: vec![matcher], start_ms: i64::MIN / 2, end_ms: i64::MAX / 2 };
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

    fn metric(&self, name: &str, reason: &str) -> f64 {
        let families = self.registry.gather();
        let family = families.iter().find(|family| family.name() == name).unwrap();
        let metric = family
            .get_metric()
            .iter()
            .find(|metric| reason.is_empty() || metric.get_label()[0].value() == reason)
            .unwrap();
        metric.get_counter().get_value() + metric.get_gauge().get_value()
    }
}

/// A series with one sample: labels, time, value.
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
    let now = crate::ingest::now_ms();
    let a: &[(&str, &str)] = &[("__name__", "up"), ("job", "a")];
    let b: &[(&str, &str)] = &[("job", "b"), ("__name__", "up")];
    let body = compressed(&message(&[(a, now, 1.0), (b, now, 2.0), (a, now + 1, 3.0)]));
    assert_eq!(receiver.send(body).await, (StatusCode::NO_CONTENT, String::new()));
    assert_eq!(
        receiver.samples("up").await,
        [
            (r#"{__name__="up", job="a"}"#.to_owned(), vec![(now, 1.0), (now + 1, 3.0)]),
            (r#"{__name__="up", job="b"}"#.to_owned(), vec![(now, 2.0)]),
        ]
    );
    assert_eq!(receiver.metric("tessella_remote_write_samples_total", ""), 3.0);
    assert_eq!(receiver.metric("tessella_remote_write_inflight_bytes", ""), 0.0);
}

#[tokio::test]
async fn good_series_are_kept_and_bad_ones_named() {
    let receiver = Receiver::new(Limits::default()).await;
    let now = crate::ingest::now_ms();
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
        let rejected = receiver.metric("tessella_remote_write_samples_rejected_total", reason);
        assert_eq!(rejected, 1.0, "{reason}");
    }
    // Sent again, what was stored is stored once.
    let body = compressed(&message(&[(good, now, 1.0)]));
    assert_eq!(receiver.send(body).await.0, StatusCode::NO_CONTENT);
    assert_eq!(receiver.samples("up").await[0].1, [(now, 1.0)]);
    assert_eq!(receiver.metric("tessella_remote_write_samples_duplicate_total", ""), 1.0);
}

#[tokio::test]
async fn refusals_beyond_those_that_are_listed_are_counted_by_reason() {
    let receiver = Receiver::new(Limits::default()).await;
    let now = crate::ingest::now_ms();
    let labels: &[(&str, &str)] = &[("__name__", "up")];
    let mut series = vec![(labels, now, 1.0)];
    series.extend((0..50).map(|_| (labels, now + 3_600_000, 1.0)));
    series.extend((0..60).map(|_| (labels, now, 2.0)));
    let (status, text) = receiver.send(compressed(&message(&series))).await;
    assert_eq!(status, StatusCode::BAD_REQUEST);
    assert!(text.ends_with("\nand 100 more of this kind\n"), "{text}");
    for (reason, count) in [("out_of_bounds", 50.0), ("duplicate_timestamp", 60.0)] {
        let rejected = receiver.metric("tessella_remote_write_samples_rejected_total", reason);
        assert_eq!(rejected, count, "{reason}");
    }
}

#[tokio::test]
async fn each_limit_has_its_status_and_name() {
    let limits = Limits {
        body_bytes_max: 200,
        decompressed_bytes_max: 1_000,
        series_max: 2,
        inflight_bytes_max: 2_500,
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
    assert_eq!(receiver.metric("tessella_remote_write_inflight_bytes", ""), 0.0);

    let held = Reservation::new(&receiver.remote_write.inflight);
    let mut held = held;
    held.add(2_450).unwrap();
    let (status, text) = receiver.send(compressed(&message(&[(series, 1, 1.0)]))).await;
    assert_eq!(status, StatusCode::SERVICE_UNAVAILABLE);
    assert!(text.contains("the limit is 2500 (--remote-write.max-inflight-size)"), "{text}");
}

#[tokio::test]
async fn other_formats_are_refused_before_the_body_is_read() {
    let receiver = Receiver::new(Limits::default()).await;
    let never = Body::from_stream(futures::stream::pending::<Result<Vec<u8>, std::io::Error>>());
    let request = Request::post("/api/v1/write")
        .header(header::CONTENT_TYPE, "application/x-protobuf;proto=io.prometheus.write.v2.Request")
        .body(never)
        .unwrap();
    let (status, text) = receiver.send_request(request).await;
    assert_eq!(status, StatusCode::UNSUPPORTED_MEDIA_TYPE);
    assert!(text.starts_with("io.prometheus.write.v2.Request protobuf message"), "{text}");
}

#[tokio::test(start_paused = true)]
async fn a_client_that_does_not_send_is_let_go() {
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
    assert_eq!(receiver.metric("tessella_remote_write_inflight_bytes", ""), 10.0);
    let series: &[(&str, &str)] = &[("__name__", "up")];
    let now = crate::ingest::now_ms();
    let (status, text) = receiver.send(compressed(&message(&[(series, now, 1.0)]))).await;
    assert_eq!(status, StatusCode::NO_CONTENT, "{text}");
    drop(sending);
    assert_eq!(receiver.metric("tessella_remote_write_inflight_bytes", ""), 0.0);
}

#[tokio::test]
async fn large_messages_take_the_other_thread_and_end_alike() {
    let receiver = Receiver::new(Limits::default()).await;
    let now = crate::ingest::now_ms();
    let value = "v".repeat(100);
    let names: Vec<String> = (0..20_000).map(|index| format!("{value}{index}")).collect();
    let labels: Vec<[(&str, &str); 2]> =
        names.iter().map(|name| [("__name__", "many"), ("l", name.as_str())]).collect();
    let series: Vec<OneSample<'_>> = labels.iter().map(|labels| (&labels[..], now, 1.0)).collect();
    let body = message(&series);
    assert!(body.len() > DECODE_INLINE_BYTES_MAX);
    assert_eq!(receiver.send(compressed(&body)).await.0, StatusCode::NO_CONTENT);
    assert_eq!(receiver.samples("many").await.len(), 20_000);
}

#[tokio::test]
async fn a_closed_store_asks_to_come_back() {
    let receiver = Receiver::new(Limits::default()).await;
    receiver.store.close().await.unwrap();
    let series: &[(&str, &str)] = &[("__name__", "up")];
    let (status, text) = receiver.send(compressed(&message(&[(series, 1, 1.0)]))).await;
    assert_eq!((status, text.as_str()), (StatusCode::SERVICE_UNAVAILABLE, "the store is closed\n"));
}
