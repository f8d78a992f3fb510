//! Answers to a tenant are those of a server that has only its series.
//!
//! `TENANT_REQUESTS` is the number of requests, `TENANT_SEED` the seed.

use std::collections::BTreeSet;

use axum::body::Body;
use axum::http::Request;
use http_body_util::BodyExt as _;
use serde_json::Value;
use testkit::grpc::framed;
use testkit::random::Random;
use tower::ServiceExt as _;

use super::data::{A, B, MARKER, end_seconds, otlp, write};
use super::requests::{CALLS, READS, ReadRequest, random};
use super::{HEADER, Node, OF_TENANTS, paths};

/// Endpoints of tenants that the random requests do not use: they change data, or name
/// queries.
const OTHERS: [&str; 8] = [
    "/api/v1/status/active_queries",
    "/api/v1/status/top_queries",
    "/api/v1/status/cardinality",
    "/api/v1/status/active_queries/{id}",
    "/api/v1/status/active_queries/{id}/cancel",
    "/api/v1/admin/tsdb/delete_series",
    "/api/v1/write",
    "/api/v1/otlp/v1/metrics",
];

fn setting(name: &str, default: u64) -> u64 {
    std::env::var(name).map_or(default, |text| text.parse().unwrap())
}

/// Returns the status and the bytes of a response.
async fn answer(node: &Node, tenant: &str, request: &ReadRequest) -> (String, Vec<u8>) {
    let (router, request) = match request {
        ReadRequest::Http { method, path, headers, body } => {
            let mut built = Request::builder().method(*method).uri(path);
            for (name, value) in headers {
                built = built.header(*name, value);
            }
            (&node.http, built.header(HEADER, tenant).body(Body::from(body.clone())).unwrap())
        }
        ReadRequest::Grpc { method, message } => {
            let built = Request::post(*method).header("content-type", "application/grpc");
            let body = Body::from(framed(message));
            (&node.grpc, built.header(HEADER, tenant).body(body).unwrap())
        }
    };
    let response = router.clone().oneshot(request).await.unwrap();
    let (head, body) = response.into_parts();
    let collected = body.collect().await.unwrap();
    let trailers = collected.trailers().cloned().unwrap_or_default();
    let code = head.headers.get("grpc-status").or_else(|| trailers.get("grpc-status"));
    let message = head.headers.get("grpc-message").or_else(|| trailers.get("grpc-message"));
    (format!("{} {code:?} {message:?}", head.status), collected.to_bytes().to_vec())
}

fn has(bytes: &[u8], part: &str) -> bool {
    bytes.windows(part.len()).any(|window| window == part.as_bytes())
}

/// Returns an answer decompressed, and without the costs of a plan, which depend on the blocks.
fn readable(bytes: &[u8], request: &ReadRequest) -> Vec<u8> {
    let is_read = matches!(request, ReadRequest::Http { path, .. } if path == "/api/v1/read");
    match snap::raw::Decoder::new().decompress_vec(bytes) {
        Ok(message) if is_read => return message,
        _ => {}
    }
    match serde_json::from_slice::<Value>(bytes) {
        Ok(mut answer) if !answer["data"]["explain"].is_null() => {
            remove_costs(&mut answer["data"]["explain"]);
            answer.to_string().into_bytes()
        }
        _ => bytes.to_vec(),
    }
}

fn remove_costs(node: &mut Value) {
    for cost in ["seconds", "ownSeconds", "bytes", "reads", "readBytes", "cachedBytes"] {
        node.as_object_mut().unwrap().remove(cost);
    }
    if let Some(children) = node["children"].as_array_mut() {
        children.iter_mut().for_each(remove_costs);
    }
}

/// Returns whether a request has the marker itself, so that its answer may.
fn asks_for_marker(request: &ReadRequest) -> bool {
    match request {
        ReadRequest::Http { path, body, .. } => has(path.as_bytes(), MARKER) || has(body, MARKER),
        ReadRequest::Grpc { message, .. } => has(message, MARKER),
    }
}

#[test]
fn the_requests_have_all_endpoints() {
    let listed: BTreeSet<String> = paths(&OF_TENANTS).collect();
    let asked = READS.iter().chain(&OTHERS).chain(&["/api/v1/read"]);
    assert_eq!(listed, asked.map(|path| (*path).to_owned()).collect());
    let grpc = include_str!("../../../grpc/mod.rs");
    let paths = grpc.split('"').skip(1).step_by(2).filter(|text| text.starts_with('/'));
    let routed: BTreeSet<&str> = paths.collect();
    let open = [
        "/thanos.info.Info/Info",
        "/grpc.health.v1.Health/Check",
        "/opentelemetry.proto.collector.metrics.v1.MetricsService/Export",
    ];
    assert_eq!(routed, CALLS.into_iter().chain(open).collect());
}

#[tokio::test]
async fn a_tenant_sees_what_a_server_without_others_returns() {
    let seed = setting("TENANT_SEED", 7);
    let count = setting("TENANT_REQUESTS", 1_500) as usize;
    println!("TENANT_SEED={seed}");
    let end = end_seconds();
    let (shared, alone) = (Node::start(&[]).await, Node::start(&[]).await);
    write(&shared, B, end).await;
    write(&shared, A, end).await;
    write(&alone, A, end).await;
    let mut numbers = Random(seed);
    let (mut found, mut secrets) = (0, 0);
    for number in 0..count {
        if number == count / 2 {
            shared.store.seal_all().await.unwrap();
            alone.store.seal_all().await.unwrap();
        }
        let request = random(number, &mut numbers, end);
        // The other tenant asks first, so that its results are in the caches.
        let (_, bytes) = answer(&shared, B, &request).await;
        secrets += usize::from(has(&readable(&bytes, &request), MARKER));
        let (status, bytes) = answer(&shared, A, &request).await;
        let bytes = readable(&bytes, &request);
        let (alone_status, alone_bytes) = answer(&alone, A, &request).await;
        let alone_bytes = readable(&alone_bytes, &request);
        let text = String::from_utf8_lossy(&bytes);
        assert_eq!(status, alone_status, "{request:?}: {text}");
        assert_eq!(text, String::from_utf8_lossy(&alone_bytes), "{request:?}");
        if !asks_for_marker(&request) {
            assert!(!has(&bytes, MARKER), "{request:?}: {text}");
        }
        found += usize::from(has(&bytes, "host1"));
    }
    // The requests find something at all.
    assert!(found > count / 8 && secrets > count / 8, "{found} and {secrets} of {count}");
}

#[tokio::test]
async fn a_delete_removes_series_of_its_tenant_alone() {
    let end = end_seconds();
    let node = Node::start(&[]).await;
    write(&node, A, end).await;
    write(&node, B, end).await;
    let all = ReadRequest::Http {
        method: "GET",
        path: format!("/api/v1/query?query=%7B__name__=~%22.%2B%22%7D&time={end}"),
        headers: Vec::new(),
        body: Vec::new(),
    };
    let before = answer(&node, B, &all).await;
    assert!(has(&before.1, MARKER));
    let own = answer(&node, A, &all).await;
    for selector in ["%7Btenant_id=%22team-b%22%7D", "up%7Btenant_id=~%22team-b%7Cx%22%7D"] {
        let path = format!("/api/v1/admin/tsdb/delete_series?match[]={selector}");
        assert_eq!(node.ask(A, "POST", &path).await.status, 204);
        assert_eq!(answer(&node, B, &all).await, before);
        assert_eq!(answer(&node, A, &all).await, own);
    }
    let path = "/api/v1/admin/tsdb/delete_series?match[]=%7B__name__=~%22.%2B%22%7D";
    assert_eq!(node.ask(A, "POST", path).await.status, 204);
    assert_eq!(answer(&node, B, &all).await, before);
    let (_, bytes) = answer(&node, A, &all).await;
    assert!(has(&bytes, "\"result\":[]"));
    // Sealed samples are deleted by tombstones.
    write(&node, A, end).await;
    node.store.seal_all().await.unwrap();
    assert_eq!(answer(&node, B, &all).await, before);
    assert_eq!(node.ask(A, "POST", path).await.status, 204);
    assert_eq!(answer(&node, B, &all).await, before);
    assert!(has(&answer(&node, A, &all).await.1, "\"result\":[]"));
}

#[tokio::test]
async fn metrics_over_grpc_have_the_tenant_of_their_call() {
    let end = end_seconds();
    let node = Node::start(&[]).await;
    let export = "/opentelemetry.proto.collector.metrics.v1.MetricsService/Export";
    for tenant in [A, B] {
        let request = ReadRequest::Grpc { method: export, message: otlp(tenant, end) };
        let (status, _) = answer(&node, tenant, &request).await;
        assert!(status.contains("Some(\"0\")"), "{status}");
    }
    let path = format!("/api/v1/series?match[]=%7B__name__=~%22.%2B%22%7D&end={end}");
    let of_a = node.ask(A, "GET", &path).await.text;
    let has_both = of_a.contains("\"otlp_metric\"") && of_a.contains("\"target_info\"");
    assert!(has_both, "{of_a}");
    assert!(of_a.contains("\"tenant_id\":\"team-a\"") && !of_a.contains("\"other\""));
    assert!(!of_a.contains(MARKER), "{of_a}");
    assert!(node.ask(B, "GET", &path).await.text.contains(MARKER));
}

#[tokio::test]
async fn several_tenants_are_read_together() {
    let end = end_seconds();
    let node = Node::start(&[]).await;
    write(&node, A, end).await;
    write(&node, B, end).await;
    let path = format!("/api/v1/query?query=count+by+(tenant_id)+(up)&time={end}");
    let count = async |tenants: &str| {
        let answer = node.ask(tenants, "GET", &path).await;
        let answer: Value = serde_json::from_str(&answer.text).unwrap();
        let result = answer["data"]["result"].as_array().unwrap().clone();
        let pair =
            |series: &Value| (series["metric"]["tenant_id"].clone(), series["value"][1].clone());
        result.iter().map(pair).collect::<Vec<_>>()
    };
    let of = |tenant: &str| (tenant.into(), "3".into());
    assert_eq!(count("team-b|team-a").await, [of(A), of(B)]);
    assert_eq!(count("team-a|other").await, [of(A)]);
    assert_eq!(count("team-.").await, []);
    let metadata = node.ask("team-a|team-b", "GET", "/api/v1/metadata?metric=up").await;
    assert!(metadata.text.contains("\"Help.\"") && metadata.text.contains(MARKER));
}

#[tokio::test]
async fn queries_of_a_tenant_are_listed_and_canceled_by_itself_alone() {
    use crate::http::tests::scripted_source::ScriptedSource;
    let shared = crate::http::tests::shared_with(&super::FLAGS);
    shared.set_ready(std::sync::Arc::new(ScriptedSource::default()));
    let http = super::router(std::sync::Arc::clone(&shared));
    let path = "/api/v1/query?query=forever&time=1";
    let request = Request::get(path).header(HEADER, A).body(Body::empty()).unwrap();
    let mut running = Box::pin(crate::http::tests::send(&http, request));
    assert!(futures::poll!(&mut running).is_pending());
    let ask = async |tenants: &str, method: &str, path: &str| {
        let request = Request::builder().method(method).uri(path).header(HEADER, tenants);
        crate::http::tests::send(&http, request.body(Body::empty()).unwrap()).await
    };
    let list = "/api/v1/status/active_queries";
    for (tenants, is_listed) in [(A, true), (B, false), ("team-a|team-b", true)] {
        assert_eq!(
            ask(tenants, "GET", list).await.text.contains("forever"),
            is_listed,
            "{tenants}"
        );
    }
    assert_eq!(ask(B, "DELETE", &format!("{list}/1")).await.status, 404);
    assert!(futures::poll!(&mut running).is_pending());
    assert_eq!(ask(A, "DELETE", &format!("{list}/1")).await.status, 204);
    assert_eq!(running.await.status, 499);
    // Ended queries have the same visibility.
    let listed = format!("\"query\":\"forever\",\"tenants\":\"{A}\"");
    for (tenants, is_listed) in [(A, true), (B, false), ("team-a|team-b", true)] {
        let text = ask(tenants, "GET", "/api/v1/status/top_queries").await.text;
        assert_eq!(text.contains(&listed), is_listed, "{tenants}: {text}");
        assert_eq!(text.contains("\"count\":0"), !is_listed, "{tenants}: {text}");
    }
}
