//! Slots and queue of queries and lookups.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::scripted_source::ScriptedSource;
use super::{ask, error, router, shared_with, source};

#[tokio::test]
async fn a_query_stops_when_its_client_leaves() {
    let source = ScriptedSource::default();
    let is_dropped = Arc::clone(&source.is_dropped);
    let shared = shared_with(&["--query.max-concurrency=1", "--query.max-queue=1"]);
    shared.set_ready(Arc::new(source));
    let router = router(Arc::clone(&shared));
    let query = || Box::pin(ask(&router, "GET", "/api/v1/query?query=forever"));
    let mut running = query();
    assert!(futures::poll!(&mut running).is_pending());
    let mut waiting = query();
    assert!(futures::poll!(&mut waiting).is_pending());
    let refused = query().await;
    assert_eq!(refused.status, 503);
    assert_eq!(refused.headers["retry-after"], "1");
    let message = "2 queries are waiting to run, the limit is 1 (--query.max-queue)";
    assert_eq!(refused.text, error("unavailable", message));
    assert!(!is_dropped.load(Ordering::Acquire));
    drop(running);
    assert!(is_dropped.load(Ordering::Acquire));
    assert!(futures::poll!(&mut waiting).is_pending());
    assert_eq!((shared.queries.gate().running(), shared.queries.gate().waiting()), (1, 0));
}

#[tokio::test]
async fn a_query_that_does_not_parse_waits_for_no_permit() {
    let shared = shared_with(&["--query.max-concurrency=1"]);
    shared.set_ready(source());
    let router = router(Arc::clone(&shared));
    let mut running = Box::pin(ask(&router, "GET", "/api/v1/query?query=forever"));
    assert!(futures::poll!(&mut running).is_pending());
    let refused = ask(&router, "GET", "/api/v1/query?query=").await;
    assert_eq!(refused.status, 400);
    assert!(refused.text.contains("no expression"), "{}", refused.text);
    let mut waiting = Box::pin(ask(&router, "GET", "/api/v1/query?query=long"));
    assert!(futures::poll!(&mut waiting).is_pending());
    drop(running);
    assert_eq!(waiting.await.status, 200);
}

#[tokio::test]
async fn a_short_query_waits_for_no_long_one() {
    let limits = ["--query.max-concurrency=1", "--query.max-queue=1"];
    let shared = shared_with(&limits);
    shared.set_ready(source());
    let router = router(Arc::clone(&shared));
    let mut running = Box::pin(ask(&router, "GET", "/api/v1/query?query=forever"));
    assert!(futures::poll!(&mut running).is_pending());
    let mut waiting = Box::pin(ask(&router, "GET", "/api/v1/query?query=long"));
    assert!(futures::poll!(&mut waiting).is_pending());
    for _ in 0..20 {
        assert_eq!(ask(&router, "GET", "/api/v1/query?query=ratio").await.status, 200);
    }
    assert_eq!((shared.queries.gate().running(), shared.queries.gate().waiting()), (1, 1));
    assert!(futures::poll!(&mut waiting).is_pending());
    assert_eq!(
        ask(&router, "GET", "/api/v1/query?query=label_join(up,%22%22,%22%22)&time=1").await.status,
        422
    );
}

#[tokio::test]
async fn a_query_that_reads_much_of_the_object_store_waits_for_a_slot() {
    let limits = ["--query.max-concurrency=1", "--query.max-queue=1"];
    let shared = shared_with(&limits);
    shared.set_ready(source());
    let router = router(shared);
    let mut running = Box::pin(ask(&router, "GET", "/api/v1/query?query=forever"));
    assert!(futures::poll!(&mut running).is_pending());
    let mut waiting = Box::pin(ask(&router, "GET", "/api/v1/query?query=cold"));
    assert!(futures::poll!(&mut waiting).is_pending());
    drop(running);
    assert_eq!(waiting.await.status, 200);
}

#[tokio::test]
async fn a_query_of_many_inner_steps_waits_for_a_slot() {
    let limits = ["--query.max-concurrency=1", "--query.max-queue=1"];
    let shared = shared_with(&limits);
    shared.set_ready(source());
    let router = router(Arc::clone(&shared));
    let gate = shared.queries.gate();
    let mut running = Box::pin(ask(&router, "GET", "/api/v1/query?query=forever"));
    assert!(futures::poll!(&mut running).is_pending());
    let path = "/api/v1/query?query=count_over_time(vector(1)[200s:1ms])";
    let mut waiting = Box::pin(ask(&router, "GET", path));
    while gate.waiting() == 0 {
        assert!(futures::poll!(&mut waiting).is_pending());
        tokio::task::yield_now().await;
    }
    assert_eq!(gate.running(), 1);
    drop(running);
    let answer = waiting.await;
    assert!(answer.status == 200 && answer.text.contains("\"200000\""), "{}", answer.text);
}

#[tokio::test]
async fn lookups_take_a_permit_as_queries_do() {
    let limits = ["--query.max-concurrency=1", "--query.max-queue=1"];
    let shared = shared_with(&limits);
    shared.set_ready(source());
    let router = router(Arc::clone(&shared));
    let gate = shared.queries.gate();
    for path in ["labels", "label/job/values", "series?match[]=up"] {
        let path = format!("/api/v1/{path}");
        let mut running = Box::pin(ask(&router, "GET", "/api/v1/query?query=forever"));
        assert!(futures::poll!(&mut running).is_pending());
        let mut waiting = Box::pin(ask(&router, "GET", &path));
        while gate.waiting() == 0 {
            assert!(futures::poll!(&mut waiting).is_pending());
            tokio::task::yield_now().await;
        }
        drop(running);
        assert_eq!(waiting.await.status, 200);
        assert_eq!(gate.running(), 0);
    }
}
