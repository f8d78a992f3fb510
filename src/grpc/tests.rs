//! Router in process, over a scripted source.

use std::sync::Arc;

use axum::Router;
use axum::body::{Body, Bytes};
use axum::http::{HeaderMap, Request, StatusCode};
use http_body_util::BodyExt as _;
use tower::ServiceExt as _;

use super::call::framed;
use super::router;
use crate::http::tests::scripted_source::ScriptedSource;
use crate::http::tests::shared_with;

const QUERY: &str = "/thanos.Query/Query";
const RANGE: &str = "/thanos.Query/QueryRange";
const SERIES: &str = "/thanos.Store/Series";

fn node(args: &[&str]) -> Router {
    let shared = shared_with(&[&["--external-label=shard=0"], args].concat());
    shared.set_ready(Arc::new(ScriptedSource::default()));
    router(shared)
}

/// Code, message, and the bytes of all messages.
async fn send(router: &Router, path: &str, body: Vec<u8>) -> (u16, String, Bytes) {
    let request = Request::post(path)
        .header("content-type", "application/grpc")
        .body(Body::from(body))
        .unwrap();
    let response = router.clone().oneshot(request).await.unwrap();
    assert_eq!(response.status(), StatusCode::OK);
    let (head, body) = response.into_parts();
    let collected = body.collect().await.unwrap();
    let trailers = collected.trailers().cloned().unwrap_or_default();
    let text = |name: &str| {
        let of = |headers: &HeaderMap| headers.get(name)?.to_str().ok().map(str::to_owned);
        of(&head.headers).or_else(|| of(&trailers)).unwrap_or_default()
    };
    (text("grpc-status").parse().unwrap(), text("grpc-message"), collected.to_bytes())
}

async fn call(router: &Router, path: &str, message: &[u8]) -> (u16, String, Bytes) {
    send(router, path, framed(message)).await
}

fn field(number: u8, content: &[u8]) -> Vec<u8> {
    [&[number << 3 | 2, content.len() as u8], content].concat()
}

/// Returns a query at 1 s.
fn instant(text: &str) -> Vec<u8> {
    [field(1, text.as_bytes()), vec![2 << 3, 1]].concat()
}

/// Returns the request of series with a metric's name.
fn series(name: &str) -> Vec<u8> {
    let matcher = [field(2, b"__name__"), field(3, name.as_bytes())].concat();
    [vec![2 << 3, 0x90, 0x4e], field(3, &matcher)].concat()
}

fn has(bytes: &[u8], part: &[u8]) -> bool {
    bytes.windows(part.len()).any(|window| window == part)
}

/// Encoded label.
fn label(name: &str, value: &str) -> Vec<u8> {
    [field(1, name.as_bytes()), field(2, value.as_bytes())].concat()
}

#[tokio::test]
async fn series_have_external_labels_in_order() {
    let node = node(&[]);
    let (code, _, bytes) = call(&node, QUERY, &instant("up")).await;
    assert_eq!(code, 0);
    let expected: Vec<u8> = [("__name__", "up"), ("job", "a"), ("shard", "0")]
        .iter()
        .flat_map(|(name, value)| field(1, &label(name, value)))
        .collect();
    assert!(has(&bytes, &expected), "{bytes:?}");
    let (code, _, bytes) = call(&node, SERIES, &series("up")).await;
    assert_eq!(code, 0);
    assert!(has(&bytes, &expected), "{bytes:?}");
    for (path, request) in [
        (QUERY, instant("sum by (shard) (up)")),
        (QUERY, instant("up{shard=\"0\"}")),
        (QUERY, instant("up * on (shard) group_left sum by (shard) (up)")),
    ] {
        let (code, message, bytes) = call(&node, path, &request).await;
        assert_eq!(code, 0, "{message}");
        assert!(has(&bytes, &label("shard", "0")), "{bytes:?}");
    }
}

#[tokio::test]
async fn a_query_for_another_shard_reads_nothing() {
    let node = node(&[]);
    // The metric fails when it is read.
    let (code, ..) = call(&node, QUERY, &instant("unavailable")).await;
    assert_eq!(code, 14);
    for text in ["unavailable{shard=\"1\"}", "unavailable{shard!=\"0\"}", "unavailable{shard=\"\"}"]
    {
        let (code, message, bytes) = call(&node, QUERY, &instant(text)).await;
        assert_eq!((code, &message[..]), (0, ""), "{text}");
        assert!(!has(&bytes, b"shard"), "{text}");
    }
}

#[tokio::test]
async fn replica_labels_are_left_out() {
    let node = node(&["--external-label=replica=a"]);
    let request = instant("up");
    let (_, _, with) = call(&node, QUERY, &request).await;
    assert!(has(&with, &label("replica", "a")));
    let request = [request, field(5, b"replica")].concat();
    let (code, _, without) = call(&node, QUERY, &request).await;
    assert_eq!(code, 0);
    assert!(!has(&without, b"replica") && has(&without, &label("shard", "0")));
}

#[tokio::test]
async fn failures_have_the_codes_that_roots_act_on() {
    let node = node(&[]);
    for (text, code, message) in [
        ("unavailable", 14, "storage is unavailable: no answer"),
        ("canceled", 1, "query was canceled in expression evaluation"),
        ("timeout", 4, "query timed out in expression evaluation"),
        ("corrupt", 13, "damaged data at block 7 of series {a=\"b\"}: checksum"),
        ("up +", 3, "invalid parameter \"query\": 1:5: parse error: unexpected end of input"),
        ("\"hello\"", 3, "a string cannot be returned to Thanos: its responses hold vectors"),
        ("up[1m]", 3, "a range vector cannot be returned to Thanos: its responses hold vectors"),
    ] {
        let (found, text_of, _) = call(&node, QUERY, &instant(text)).await;
        assert_eq!((found, &text_of[..]), (code, message), "{text}");
    }
}

#[tokio::test]
async fn grids_without_end_are_errors() {
    let node = node(&[]);
    let range = |start: u8, end: u8, interval: &[u8]| {
        let times = [&[2 << 3, start, 3 << 3, end, 4 << 3], interval].concat();
        [field(1, b"up"), times].concat()
    };
    let minus_one = [0xff; 9].into_iter().chain([1]).collect::<Vec<u8>>();
    for (request, expected) in [
        (range(0, 9, &[0]), 3),
        (range(0, 9, &minus_one), 3),
        (range(9, 0, &[1]), 3),
        (range(1, 1, &[0]), 0),
        (range(0, 9, &[1]), 0),
        // A step of 2^62 s.
        (range(0, 9, &[0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x40]), 0),
    ] {
        let (code, message, _) = call(&node, RANGE, &request).await;
        assert_eq!(code, expected, "{message}");
    }
}

#[tokio::test]
async fn times_without_bounds_are_harmless() {
    let node = node(&[]);
    let varint = |number: i64| {
        let mut out = Vec::new();
        model::varint::push_varint(&mut out, number as u64);
        out
    };
    let fields = |pairs: &[(u8, i64)]| -> Vec<u8> {
        pairs
            .iter()
            .flat_map(|(field, number)| [vec![field << 3], varint(*number)].concat())
            .collect()
    };
    let numbers = [i64::MIN, i64::MIN / 1_000, -1, 0, 1, i64::MAX / 1_000, i64::MAX];
    for text in ["up", "rate(up[5m] offset -1d)", "up[1h:1m]", "max_over_time(up[1h:1m])"] {
        for start in numbers {
            for end in numbers {
                for (step, lookback) in [(1, i64::MAX), (i64::MAX, 0), (60, -1)] {
                    let times = fields(&[(2, start), (3, end), (4, step), (14, lookback)]);
                    let request = [field(1, text.as_bytes()), times].concat();
                    let (code, message, _) = call(&node, RANGE, &request).await;
                    assert!([0, 3, 10].contains(&code), "{text} {start} {end}: {code} {message}");
                }
            }
            let request = [field(1, text.as_bytes()), fields(&[(2, start), (12, i64::MAX)])];
            let (code, message, _) = call(&node, QUERY, &request.concat()).await;
            assert!([0, 3, 10].contains(&code), "{text} {start}: {code} {message}");
        }
    }
}

#[tokio::test]
async fn malformed_calls_are_errors() {
    let node = node(&[]);
    let mut compressed = framed(&instant("up"));
    compressed[0] = 1;
    let twice = [framed(&instant("up")), framed(&instant("up"))].concat();
    for (path, body, expected) in [
        (QUERY, vec![], 3),
        (QUERY, vec![0, 0, 0], 3),
        (QUERY, vec![0, 0, 0, 0, 9], 3),
        (QUERY, vec![0, 0xff, 0xff, 0xff, 0xff], 3),
        (QUERY, compressed, 12),
        (QUERY, twice, 3),
        (QUERY, framed(&[0x0a, 0xff]), 3),
        (QUERY, vec![0; 5 << 20], 3),
        (SERIES, framed(&[]), 3),
        ("/thanos.Query/Explain", framed(&[]), 12),
        ("/thanos.Store/LabelValues", framed(&[]), 3),
        ("/opentelemetry.proto.collector.metrics.v1.MetricsService/Export", framed(&[]), 12),
    ] {
        let (code, message, _) = send(&node, path, body).await;
        assert_eq!(code, expected, "{path}: {message}");
        assert!(!message.is_empty());
    }
    let request = Request::post(QUERY).body(Body::empty()).unwrap();
    let response = node.oneshot(request).await.unwrap();
    assert_eq!(response.status(), StatusCode::UNSUPPORTED_MEDIA_TYPE);
}

#[tokio::test]
async fn a_node_that_is_not_ready_is_unavailable() {
    let shared = shared_with(&[]);
    let node = router(Arc::clone(&shared));
    for path in ["/thanos.info.Info/Info", QUERY] {
        let (code, message, _) = call(&node, path, &instant("up")).await;
        assert_eq!((code, &message[..]), (14, "the store is not open yet"), "{path}");
    }
    let health = "/grpc.health.v1.Health/Check";
    assert_eq!(call(&node, health, &[]).await.2[..], framed(&[8, 2]));
    shared.set_ready(Arc::new(ScriptedSource::default()));
    assert_eq!(call(&node, health, &[]).await.2[..], framed(&[8, 1]));
    assert_eq!(call(&node, health, &field(1, b"thanos.Query")).await.0, 0);
    assert_eq!(call(&node, health, &field(1, b"thanos.Rules")).await.0, 5);
    shared.begin_stop();
    assert_eq!(call(&node, "/thanos.info.Info/Info", &[]).await.0, 14);
}

#[tokio::test]
async fn labels_include_external_ones() {
    let node = node(&[]);
    let (code, _, names) = call(&node, "/thanos.Store/LabelNames", &[4 << 3, 0x90, 0x4e]).await;
    assert_eq!(code, 0);
    assert!(has(&names, &field(1, b"job")) && has(&names, &field(1, b"shard")));
    let request = [field(1, b"shard"), vec![5 << 3, 0x90, 0x4e]].concat();
    let (code, _, values) = call(&node, "/thanos.Store/LabelValues", &request).await;
    assert_eq!((code, &values[..]), (0, &framed(&field(1, b"0"))[..]));
}

#[tokio::test]
async fn calls_are_counted_by_code() {
    let shared = shared_with(&[]);
    shared.set_ready(Arc::new(ScriptedSource::default()));
    let node = router(Arc::clone(&shared));
    call(&node, QUERY, &instant("up")).await;
    call(&node, QUERY, &instant("unavailable")).await;
    let families = shared.gather_metrics();
    let calls = families.iter().find(|family| family.name() == "tessella_grpc_requests_total");
    let codes: Vec<_> = calls
        .unwrap()
        .get_metric()
        .iter()
        .map(|metric| {
            let code = metric.get_label().iter().find(|label| label.name() == "code").unwrap();
            (code.value().to_owned(), metric.get_counter().get_value())
        })
        .collect();
    assert_eq!(codes, [("0".to_owned(), 1.0), ("14".to_owned(), 1.0)]);
}

/// Calls a method in the name of a tenant, if there is one.
async fn call_as(node: &Router, tenant: Option<&str>, path: &str, message: &[u8]) -> (u16, String) {
    let request = Request::post(path).header("content-type", "application/grpc");
    let request = match tenant {
        Some(tenant) => request.header("x-scope-orgid", tenant),
        None => request,
    };
    let response = node.clone().oneshot(request.body(Body::from(framed(message))).unwrap());
    let (head, body) = response.await.unwrap().into_parts();
    let trailers = body.collect().await.unwrap().trailers().cloned().unwrap_or_default();
    let text = |name: &str| {
        let of = |headers: &HeaderMap| headers.get(name)?.to_str().ok().map(str::to_owned);
        of(&head.headers).or_else(|| of(&trailers)).unwrap_or_default()
    };
    (text("grpc-status").parse().unwrap(), text("grpc-message"))
}

#[tokio::test]
async fn calls_need_a_tenant_or_a_trusted_root() {
    let names = [4 << 3, 0x90, 0x4e];
    let values = [field(1, b"job"), vec![5 << 3, 0x90, 0x4e]].concat();
    let export = "/opentelemetry.proto.collector.metrics.v1.MetricsService/Export";
    // With the code for a trusted root: Thanos enforces tenants in the first five only.
    let calls: [(&str, Vec<u8>, u16); 8] = [
        (QUERY, instant("up"), 0),
        (RANGE, [field(1, b"up"), vec![2 << 3, 1, 3 << 3, 9, 4 << 3, 1]].concat(), 0),
        (SERIES, series("up"), 0),
        ("/thanos.Store/LabelNames", names.to_vec(), 0),
        ("/thanos.Store/LabelValues", values, 0),
        ("/thanos.Exemplars/Exemplars", instant("up"), 16),
        ("/thanos.Metadata/MetricMetadata", Vec::new(), 16),
        ("/thanos.Status/TSDBStatistics", Vec::new(), 16),
    ];
    let flags = ["--tenancy.header=X-Scope-OrgID", "--web.enable-otlp-receiver"];
    let node = node_with_store(&flags).await;
    let trusting = node_with_store(&[&flags[..], &["--tenancy.trust-root"]].concat()).await;
    let missing = "no tenant: the request has no header x-scope-orgid (--tenancy.header)";
    for (path, message, of_root) in &calls {
        let (code, text) = call_as(&node, None, path, message).await;
        assert_eq!((code, &text[..]), (16, missing), "{path}");
        assert_eq!(call_as(&node, Some("a|b"), path, message).await.0, 0, "{path}");
        assert_eq!(call_as(&node, Some("a/b"), path, message).await.0, 3, "{path}");
        assert_eq!(call_as(&trusting, None, path, message).await.0, *of_root, "{path}");
        assert_eq!(call_as(&trusting, Some("a"), path, message).await.0, 0, "{path}");
    }
    for node in [&node, &trusting] {
        assert_eq!(call_as(node, None, export, &[]).await, (16, missing.to_owned()));
        assert_eq!(call_as(node, Some("a|b"), export, &[]).await.0, 3);
        assert_eq!(call_as(node, Some("a"), export, &[]).await.0, 0);
        for path in ["/thanos.info.Info/Info", "/grpc.health.v1.Health/Check"] {
            assert_eq!(call_as(node, None, path, &[]).await.0, 0, "{path}");
        }
    }
}

/// Node with an empty store.
async fn node_with_store(args: &[&str]) -> Router {
    let options = storage::StoreOptions { background: false, ..Default::default() };
    let store = storage::Store::open("memory:///", options).await.unwrap();
    let shared = shared_with(args);
    shared.set_store(&Arc::new(store));
    router(shared)
}
