//! Responses that wait for their readers.

use std::net::SocketAddr;
use std::sync::Arc;

use axum::Router;
use axum::body::{Body, HttpBody as _};
use axum::http::{Request, StatusCode};
use axum::response::Response;
use model::Labels;
use model::memory::MemorySource;
use serde_json::{Value, json};
use tower::ServiceExt as _;

use super::{ask, send, shared_with, source};
use crate::http::router::router;
use crate::query::active::Client;
use crate::state::Shared;
use testkit::remote_read;

const ACTIVE: &str = "/api/v1/status/active_queries";
/// Query whose response exceeds the buffer of a connection.
const LONG: &str = "/api/v1/query_range?query=time()&start=0&end=10999&step=1";

fn server(args: &[&str]) -> (Arc<Shared>, Router) {
    let shared = shared_with(args);
    shared.set_ready(source());
    let router = router(Arc::clone(&shared));
    (shared, router)
}

/// Server with one query slot and some series.
fn server_of_many(series_count: usize) -> (Arc<Shared>, Router) {
    let mut many = MemorySource::new();
    for at in 0..series_count {
        let labels = [("__name__", "many"), ("series", &format!("number {at:06}"))];
        many.append(&Labels::from_pairs(labels), 1000, 1.0);
    }
    let shared = shared_with(&["--query.max-concurrency=1"]);
    shared.set_ready(Arc::new(many));
    let router = router(Arc::clone(&shared));
    (shared, router)
}

async fn begin(router: &Router, path: &str, address: &str) -> Response {
    let mut request = Request::get(path).body(Body::empty()).unwrap();
    let address: SocketAddr = address.parse().unwrap();
    request.extensions_mut().insert(Client::at(address));
    router.clone().oneshot(request).await.unwrap()
}

async fn active(router: &Router) -> Vec<Value> {
    let text = ask(router, "GET", ACTIVE).await.text;
    serde_json::from_str::<Value>(&text).unwrap()["data"].as_array().unwrap().clone()
}

async fn is_whole(response: Response) -> bool {
    axum::body::to_bytes(response.into_body(), usize::MAX).await.is_ok()
}

#[tokio::test]
async fn an_unread_response_holds_memory_and_no_permit() {
    let (shared, router) = server(&["--query.max-concurrency=1", "--query.max-queue=1"]);
    let gate = shared.queries.gate();
    let mut unread = Vec::new();
    for at in 0..40 {
        let response = begin(&router, LONG, "10.1.2.3:456").await;
        assert_eq!(response.status(), 200);
        assert_eq!((gate.running(), gate.waiting()), (0, 0));
        assert!(shared.queries.memory().bytes() >= (at + 1) * 80_000);
        unread.push(response);
    }
    let listed = active(&router).await;
    assert_eq!(listed.len(), 40);
    let [first, ..] = &listed[..] else { unreachable!() };
    assert_eq!((&first["state"], &first["query"]), (&json!("sending"), &json!("time()")));
    assert_eq!((&first["client"], &first["end"]), (&json!("10.1.2.3:456"), &json!(10_999)));
    assert!(first["cost"]["memoryBytes"].as_u64().unwrap() >= 80_000, "{first}");
    let last = unread.pop().unwrap();
    drop(unread);
    assert!(is_whole(last).await);
    assert!(active(&router).await.is_empty());
    assert_eq!(shared.queries.memory().bytes(), 0);
}

#[tokio::test]
async fn a_response_that_is_sent_can_be_canceled() {
    let (shared, router) = server(&["--web.enable-admin-api"]);
    let response = begin(&router, LONG, "10.1.2.3:456").await;
    let id = active(&router).await[0]["id"].as_str().unwrap().to_owned();
    assert_eq!(ask(&router, "DELETE", &format!("{ACTIVE}/{id}")).await.status, 204);
    while !active(&router).await.is_empty() {
        tokio::task::yield_now().await;
    }
    assert_eq!(shared.queries.memory().bytes(), 0, "memory is released without a reader");
    assert!(!is_whole(response).await, "its end looks like the end of the response");
}

#[tokio::test]
async fn a_response_that_is_not_received_in_time_is_given_up() {
    let (shared, router) = server(&["--web.write-timeout=1ms"]);
    let response = begin(&router, LONG, "10.1.2.3:456").await;
    while shared.queries.memory().bytes() > 0 {
        tokio::time::sleep(std::time::Duration::from_millis(1)).await;
    }
    assert!(active(&router).await.is_empty());
    assert!(!is_whole(response).await);
}

#[tokio::test]
async fn of_too_many_responses_to_a_client_the_one_goes_that_is_read_least() {
    let (_, router) = server(&["--query.max-sending-per-client=2"]);
    let other = begin(&router, LONG, "10.9.9.9:1").await;
    let mut read = begin(&router, LONG, "10.1.2.3:1").await;
    let unread = begin(&router, LONG, "10.1.2.3:2").await;
    let frame =
        std::future::poll_fn(|context| std::pin::Pin::new(read.body_mut()).poll_frame(context));
    assert!(frame.await.unwrap().is_ok());
    let third = begin(&router, LONG, "10.1.2.3:3").await;
    assert_eq!(active(&router).await.len(), 3);
    assert!(!is_whole(unread).await);
    assert!(is_whole(read).await && is_whole(third).await && is_whole(other).await);
}

#[tokio::test]
async fn responses_to_a_client_hold_half_of_the_memory_at_most() {
    let (shared, router) = server(&["--query.max-memory-total=1MiB"]);
    let mut unread = Vec::new();
    // Addresses of one network are one client.
    for at in 0..40 {
        unread.push(begin(&router, LONG, &format!("[2001:db8::{at}]:1")).await);
        assert!(shared.queries.memory().bytes() <= 1 << 19);
    }
    let mut whole = 0;
    for response in unread {
        assert_eq!(response.status(), 200);
        whole += u32::from(is_whole(response).await);
    }
    assert!((1..40).contains(&whole), "{whole}");
}

#[tokio::test]
async fn responses_to_all_clients_leave_a_quarter_of_the_memory_to_queries() {
    let (shared, router) = server(&["--query.max-memory-total=1MiB", "--web.write-timeout=1h"]);
    let mut read = begin(&router, LONG, "10.0.0.1:1").await;
    let unread = begin(&router, LONG, "10.0.0.2:1").await;
    let frame =
        std::future::poll_fn(|context| std::pin::Pin::new(read.body_mut()).poll_frame(context));
    assert!(frame.await.unwrap().is_ok());
    let mut others = Vec::new();
    while active(&router).await.len() == 2 + others.len() {
        assert!(others.len() < 40, "none is given up");
        others.push(begin(&router, LONG, &format!("10.0.1.{}:1", others.len())).await);
        assert!(shared.queries.memory().bytes() <= 3 << 18);
    }
    assert!(!is_whole(unread).await, "it was read least");
    assert!(others.len() > 2 && is_whole(read).await);
    for other in others {
        assert!(is_whole(other).await);
    }
}

#[tokio::test]
async fn a_single_response_may_hold_more_than_the_share_of_all() {
    let (shared, router) = server(&["--query.max-memory-total=1MiB", "--web.write-timeout=1h"]);
    let mut series = MemorySource::new();
    for at in 0..10 {
        let labels = [("__name__", "ten"), ("number", &at.to_string())];
        series.append(&Labels::from_pairs(labels), 1000, 1.0);
    }
    let labels = [("__name__", "wide"), ("text", &"x".repeat(70_000))];
    series.append(&Labels::from_pairs(labels), 1000, 1.0);
    shared.set_ready(Arc::new(series));
    let ten = "/api/v1/query_range?query=last_over_time(ten[5h])&start=1&end=10999&step=1";
    let first = begin(&router, ten, "10.0.0.1:1").await;
    assert!(shared.queries.memory().bytes() > 3 << 18);
    let second = begin(&router, "/api/v1/query?query=wide&time=1", "10.0.0.2:1").await;
    assert_eq!((second.status(), active(&router).await.len()), (StatusCode::OK, 1));
    assert!(!is_whole(first).await && is_whole(second).await);
}

#[tokio::test]
async fn lookups_are_listed_while_they_are_sent() {
    let (shared, router) = server_of_many(5_000);
    for (path, text) in [
        ("/api/v1/label/series/values", "/api/v1/label/series/values"),
        ("/api/v1/series?match[]=many", "/api/v1/series?match[]=many"),
        (
            "/api/v1/search/label_values?label=series&start=0&limit=5000",
            "/api/v1/search/label_values",
        ),
    ] {
        let response = begin(&router, path, "10.1.2.3:456").await;
        assert_eq!(response.status(), 200, "{path}");
        assert_eq!(shared.queries.gate().running(), 0, "{path}");
        let listed = active(&router).await;
        assert_eq!(listed.len(), 1, "{path}");
        assert_eq!((&listed[0]["query"], &listed[0]["state"]), (&json!(text), &json!("sending")));
        assert!(listed[0].get("time").is_none());
        assert!(listed[0]["cost"]["memoryBytes"].as_u64().unwrap() > 100_000);
        assert!(is_whole(response).await);
        assert_eq!(shared.queries.memory().bytes(), 0, "{path}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_remote_read_holds_no_permit_while_its_reader_is_idle() {
    let (shared, router) = server_of_many(20_000);
    let wanted = remote_read::query(0, 100_000, &[(0, "__name__", "many")]);
    let request =
        Request::post("/api/v1/read").body(Body::from(remote_read::body(&[wanted], &[1])));
    let response = router.clone().oneshot(request.unwrap()).await.unwrap();
    assert_eq!(response.status(), 200);
    while shared.queries.gate().running() > 0 {
        tokio::time::sleep(std::time::Duration::from_millis(1)).await;
    }
    let listed = active(&router).await;
    assert_eq!((listed.len(), &listed[0]["state"]), (1, &json!("sending")));
    let bytes = axum::body::to_bytes(response.into_body(), usize::MAX).await.unwrap();
    assert_eq!(remote_read::read_frames(&bytes).len(), 20_000);
}

#[tokio::test]
async fn answers_count_towards_the_memory_of_all_queries_until_they_are_sent() {
    let shared = shared_with(&["--query.max-memory-total=1MiB"]);
    shared.set_ready(source());
    let router = router(Arc::clone(&shared));
    let request = |query: &str| {
        let path = format!("/api/v1/query_range?query={query}&start=0&end=10000&step=1");
        Request::get(path).body(Body::empty()).unwrap()
    };
    let small = "vector(1)";
    let series = |value: u32| format!("label_replace(vector(1),\"a\",\"{value}\",\"\",\"\")");
    let large: Vec<String> = (0..6).map(series).collect();
    let large = large.join(" or ").replace(' ', "%20").replace('"', "%22");
    let mut unsent = Vec::new();
    // Below three quarters, at which unread responses are dropped.
    while shared.queries.memory().bytes() < 600_000 {
        let response = router.clone().oneshot(request(small)).await.unwrap();
        assert_eq!(response.status(), StatusCode::OK);
        unsent.push(response);
        assert!(shared.queries.memory().bytes() >= unsent.len() as u64 * 80_000);
    }
    let refused = router.clone().oneshot(request(&large)).await.unwrap();
    assert_eq!(refused.status(), StatusCode::SERVICE_UNAVAILABLE);
    assert_eq!(refused.headers()["retry-after"], "1");
    let body = axum::body::to_bytes(refused.into_body(), usize::MAX).await.unwrap();
    let text = String::from_utf8_lossy(&body).into_owned();
    let limit = "bytes of memory together, the limit is 1048576 (--query.max-memory-total)";
    assert!(text.contains(limit), "{text}");
    drop(unsent);
    assert_eq!(shared.queries.memory().bytes(), 0);
    assert_eq!(send(&router, request(&large)).await.status, 200);
    assert_eq!(shared.queries.memory().bytes(), 0);
    assert!(shared.queries.memory().bytes_peak() > 1 << 20);
}
