//! OTLP requests.

use std::io::Write as _;

use wire::otlp::Settings;

use super::*;

/// Returns a request with one gauge, in JSON.
fn body(metric: &str, time_ms: i64, attributes: &str) -> String {
    format!(
        r#"{{"resourceMetrics":[{{"scopeMetrics":[{{"metrics":[{{"name":"{metric}","gauge":{{"dataPoints":[{{"timeUnixNano":"{time_ms}000000","asInt":"1","attributes":[{attributes}]}}]}}}}]}}]}}]}}"#
    )
}

fn post(body: impl Into<Body>) -> Request {
    Request::post("/api/v1/otlp/v1/metrics")
        .header(header::CONTENT_TYPE, "application/json; charset=utf-8")
        .body(body.into())
        .unwrap()
}

fn gzip(body: &[u8]) -> Vec<u8> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    encoder.write_all(body).unwrap();
    encoder.finish().unwrap()
}

async fn answer(receiver: &Receiver, request: Request) -> (StatusCode, String) {
    let settings = Settings::default();
    let response =
        write_otlp(&receiver.remote_write, &receiver.store, settings, request, None).await;
    let status = response.status();
    let is_for_later =
        [StatusCode::SERVICE_UNAVAILABLE, StatusCode::TOO_MANY_REQUESTS].contains(&status);
    assert_eq!(response.headers().contains_key(header::RETRY_AFTER), is_for_later);
    let body = to_bytes(response.into_body(), usize::MAX).await.unwrap();
    (status, String::from_utf8(body.to_vec()).unwrap())
}

#[tokio::test]
async fn samples_are_durable_before_the_answer() {
    let receiver = Receiver::new(Limits::default()).await;
    let now = now_ms();
    let done = (StatusCode::OK, String::new());
    assert_eq!(answer(&receiver, post(body("up", now, ""))).await, done);
    let mut packed = post(gzip(body("up", now + 1, "").as_bytes()));
    packed.headers_mut().insert(header::CONTENT_ENCODING, HeaderValue::from_static("gzip"));
    assert_eq!(answer(&receiver, packed).await, done);
    assert_eq!(receiver.samples("up").await[0].1, [(now, 1.0), (now + 1, 1.0)]);
    for (metric, values, expected) in [
        ("tessella_remote_write_samples_total", &["otlp", "float"][..], 2.0),
        ("tessella_remote_write_samples_total", &["1"], 0.0),
        ("tessella_remote_write_metadata_total", &["otlp"], 2.0),
        ("tessella_remote_write_inflight_bytes", &[], 0.0),
    ] {
        assert_eq!(receiver.metric(metric, values), expected, "{metric} {values:?}");
    }
    let unpacked = receiver.metric("tessella_remote_write_decompressed_bytes_total", &[]);
    assert_eq!(unpacked, 2.0 * body("up", now, "").len() as f64);
    assert_eq!(receiver.store.metadata(Some("up"), 1).found[0].entries[0].kind.as_str(), "gauge");
}

#[tokio::test]
async fn good_data_points_are_kept_and_bad_ones_named() {
    let receiver = Receiver::new(Limits::default()).await;
    let now = now_ms();
    let good = body("up", now, "");
    assert_eq!(answer(&receiver, post(good.clone())).await.0, StatusCode::OK);
    let late = body("late", now + 3_600_000, "");
    let nameless = body("..", now, "");
    let metrics = [&good, &late, &nameless].map(|body| {
        body.strip_prefix(r#"{"resourceMetrics":["#).unwrap().strip_suffix("]}").unwrap()
    });
    let all = format!(r#"{{"resourceMetrics":[{}]}}"#, metrics.join(","));
    assert_eq!(
        answer(&receiver, post(all)).await,
        (
            StatusCode::BAD_REQUEST,
            "normalization for metric \"..\" resulted in empty name\n\
             out of bounds: timestamp is too far in the future for series {__name__=\"late\"}\n"
                .to_owned()
        )
    );
    assert_eq!(receiver.samples("up").await[0].1, [(now, 1.0)]);
    let rejected = "tessella_remote_write_samples_rejected_total";
    for reason in ["invalid_labels", "out_of_bounds"] {
        assert_eq!(receiver.metric(rejected, &["otlp", "float", reason]), 1.0, "{reason}");
    }
}

#[tokio::test]
async fn each_limit_has_its_status_and_name() {
    let limits = Limits {
        body_bytes_max: 4_000,
        decompressed_bytes_max: 10_000,
        series_max: 2,
        inflight_bytes_max: 396_100,
        names: LIMIT_NAMES,
        ..Limits::default()
    };
    let receiver = Receiver::new(limits).await;
    let now = now_ms();
    let point = format!(r#"{{"timeUnixNano":"{now}000000"}}"#);
    let three = body("up", now, "").replace("[{\"time", &format!("[{point},{point},{{\"time"));
    let too_large = StatusCode::PAYLOAD_TOO_LARGE;
    for (body, encoding, status, part) in [
        (vec![b' '; 4_001], "", too_large, "4000 bytes limit (--remote-write.max-body-size)"),
        (gzip(&[b' '; 10_001]), "gzip", too_large, "(--remote-write.max-decompressed-size)"),
        (
            three.into_bytes(),
            "",
            too_large,
            "request of 3 data points is over the limit of 2 \
             (--remote-write.max-series-per-request)",
        ),
        (b"{".to_vec(), "gzip", StatusCode::BAD_REQUEST, "cannot decompress the request: "),
        (b"{".to_vec(), "", StatusCode::BAD_REQUEST, "malformed JSON at byte 1: the text ends"),
        (
            b"{}".to_vec(),
            "snappy",
            StatusCode::UNSUPPORTED_MEDIA_TYPE,
            "unsupported compression: snappy. Only \"gzip\" or no compression supported",
        ),
    ] {
        let mut request = post(body);
        let encoding = HeaderValue::from_static(encoding);
        request.headers_mut().insert(header::CONTENT_ENCODING, encoding);
        let (found, text) = answer(&receiver, request).await;
        assert_eq!(found, status, "{text}");
        assert!(text.contains(part), "{text}");
    }
    assert_eq!(receiver.metric("tessella_remote_write_inflight_bytes", &[]), 0.0);

    let held = receiver.hold(4_000, 99).await;
    let (status, text) = answer(&receiver, post(body("up", now, ""))).await;
    assert_eq!(status, StatusCode::SERVICE_UNAVAILABLE);
    assert!(text.contains("the limit is 396100 (--remote-write.max-inflight-size)"), "{text}");
    drop(held);
    receiver.store.close().await.unwrap();
    let closed = answer(&receiver, post(body("up", now, ""))).await;
    assert_eq!(closed, (StatusCode::SERVICE_UNAVAILABLE, "the store is closed\n".to_owned()));
}

#[tokio::test]
async fn series_that_there_is_no_room_for_are_asked_to_come_later() {
    let registry = Registry::new();
    let metrics = IngestMetrics::new(&registry);
    let options =
        StoreOptions { background: false, active_series_max: 1, ..StoreOptions::default() };
    let store = Store::open("memory:///", options).await.unwrap();
    let remote_write = RemoteWrite::new(Limits::default(), metrics);
    let receiver = Receiver { remote_write, registry, store };
    let now = now_ms();
    assert_eq!(answer(&receiver, post(body("up", now, ""))).await.0, StatusCode::OK);
    let (status, text) = answer(&receiver, post(body("down", now, ""))).await;
    assert_eq!(status, StatusCode::TOO_MANY_REQUESTS);
    assert!(text.contains("(--remote-write.max-active-series)"), "{text}");
}

#[tokio::test]
async fn other_formats_are_refused_before_the_body_is_read() {
    let receiver = Receiver::new(Limits::default()).await;
    for content_type in ["", "text/plain", "application/x-protobuf2"] {
        let never =
            Body::from_stream(futures::stream::pending::<Result<Vec<u8>, std::io::Error>>());
        let request = Request::post("/").header(header::CONTENT_TYPE, content_type);
        let answer = answer(&receiver, request.body(never).unwrap()).await;
        let text = format!(
            "unsupported content type: {content_type}, supported: [application/json, \
             application/x-protobuf]\n"
        );
        assert_eq!(answer, (StatusCode::UNSUPPORTED_MEDIA_TYPE, text));
    }
}
