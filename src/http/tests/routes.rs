//! Paths, methods, readiness, CORS, compression and counts.

use std::sync::Arc;

use axum::body::Body;
use axum::http::Request;
use tower::ServiceExt as _;

use super::{ask, check, ready, router, send, shared_with, source};

#[tokio::test]
async fn unknown_paths_and_methods_are_plain() {
    let router = ready(&[]);
    let not_found = "404 page not found\n";
    let not_allowed = "Method Not Allowed\n";
    let cases: &[(&str, u16, &str)] = &[
        ("/nope", 404, not_found),
        ("/api/v1/nope", 404, not_found),
        ("POST /api/v1/nope", 404, not_found),
        ("OPTIONS /api/v1/nope", 204, ""),
        ("OPTIONS /api/v1/query", 204, ""),
        ("OPTIONS /-/ready", 200, ""),
        ("DELETE /api/v1/query", 405, not_allowed),
        ("HEAD /api/v1/query", 405, ""),
        ("HEAD /metrics", 405, ""),
        ("HEAD /-/ready", 200, ""),
        ("POST /api/v1/status/buildinfo", 405, not_allowed),
        ("GET /api/v1/admin/tsdb/snapshot", 405, not_allowed),
    ];
    for (request, status, body) in cases {
        let (method, path) = request.split_once(' ').unwrap_or(("GET", request));
        let answer = ask(&router, method, path).await;
        assert_eq!(answer.status.as_u16(), *status, "{request}");
        if method != "HEAD" {
            assert_eq!(answer.text, *body, "{request}");
        }
    }
    let answer = ask(&router, "PUT", "/api/v1/query").await;
    assert_eq!(answer.headers["allow"], "GET, OPTIONS, POST");
    assert_eq!(answer.headers["content-type"], "text/plain; charset=utf-8");
    assert_eq!(answer.headers["x-content-type-options"], "nosniff");
}

#[tokio::test]
async fn nothing_but_health_is_served_before_the_log_is_replayed() {
    let shared = shared_with(&[]);
    let router = router(Arc::clone(&shared));
    for path in ["/-/ready", "/api/v1/query?query=1", "/api/v1/labels"] {
        let answer = ask(&router, "GET", path).await;
        assert_eq!((answer.status.as_u16(), &answer.text[..]), (503, "Service Unavailable"));
        assert_eq!(answer.headers["x-prometheus-stopping"], "false");
    }
    check(&router, &[("/-/healthy", 200, "Tessella is Healthy.\n")]).await;
    assert_eq!(ask(&router, "GET", "/metrics").await.status, 200);
    shared.note_unwritable(Some("No space left on device".to_owned()));
    let answer = ask(&router, "GET", "/-/ready").await;
    assert_eq!(answer.status, 503);
    assert!(answer.text.ends_with("cannot be opened for writes: No space left on device"));
    shared.note_unwritable(None);
    shared.set_ready(source());
    check(&router, &[("/-/ready", 200, "Tessella is Ready.\n")]).await;
    shared.begin_stop();
    let answer = ask(&router, "GET", "/-/ready").await;
    assert_eq!(answer.status, 503);
    assert_eq!(answer.headers["x-prometheus-stopping"], "true");
}

#[tokio::test]
async fn writes_before_the_store_takes_them_are_refused_in_plain_text() {
    let shared = shared_with(&["--web.enable-otlp-receiver"]);
    shared.set_reading(source());
    let router = router(shared);
    for path in ["/api/v1/write", "/api/v1/otlp/v1/metrics"] {
        let answer = ask(&router, "POST", path).await;
        assert_eq!(
            (answer.status.as_u16(), &answer.text[..]),
            (503, "the store is not open yet\n")
        );
        assert_eq!(answer.headers["content-type"], "text/plain; charset=utf-8");
        assert_eq!(answer.headers["retry-after"], "1");
    }
}

#[tokio::test]
async fn pages_of_other_origins_may_read_as_the_flag_says() {
    for (args, origin, allowed) in [
        (&[][..], "http://a", Some("http://a")),
        (&["--web.cors.origin=https?://b"][..], "http://a", None),
        (&["--web.cors.origin=https?://b"][..], "https://b", Some("https://b")),
    ] {
        let request = Request::get("/api/v1/query?query=1").header("origin", origin);
        let answer = send(&ready(args), request.body(Body::empty()).unwrap()).await;
        let header = answer.headers.get("access-control-allow-origin");
        assert_eq!(header.map(|h| h.to_str().unwrap()), allowed);
        assert_eq!(answer.headers["access-control-expose-headers"], "Date");
        assert!(answer.headers.get_all("vary").iter().any(|v| v == "Origin"));
    }
    let answer = ask(&ready(&[]), "GET", "/api/v1/query?query=1").await;
    assert!(!answer.headers.contains_key("access-control-allow-origin"));
}

#[tokio::test]
async fn answers_are_compressed_where_that_is_asked_for() {
    let router = ready(&[]);
    for (accepted, encoding, magic) in [
        ("gzip", Some("gzip"), &[0x1f, 0x8b][..]),
        ("zstd", Some("zstd"), &[0x28, 0xb5, 0x2f, 0xfd][..]),
        ("identity", None, b"{\"status\""),
    ] {
        let path = "/api/v1/query_range?query=time()&start=0&end=11000&step=1";
        let request = Request::get(path).header("accept-encoding", accepted);
        let response = router.clone().oneshot(request.body(Body::empty()).unwrap()).await.unwrap();
        let header = response.headers().get("content-encoding").cloned();
        assert_eq!(header.as_ref().map(|h| h.to_str().unwrap()), encoding);
        let body = axum::body::to_bytes(response.into_body(), usize::MAX).await.unwrap();
        assert!(body.starts_with(magic));
    }
}

#[tokio::test]
async fn queries_and_requests_are_counted() {
    let router = ready(&[]);
    for path in ["/api/v1/query?query=1", "/api/v1/query", "/api/v1/label/job/values"] {
        ask(&router, "GET", path).await;
    }
    let text = ask(&router, "GET", "/metrics").await.text;
    for line in [
        r#"tessella_http_requests_total{code="200",handler="/api/v1/query"} 1"#,
        r#"tessella_http_requests_total{code="400",handler="/api/v1/query"} 1"#,
        r#"tessella_http_requests_total{code="200",handler="/api/v1/label/{name}/values"} 1"#,
        r#"tessella_engine_query_failures_total{type="bad_data"} 1"#,
        "tessella_engine_queries 0",
        "tessella_ready 1",
        "tessella_writer 0",
    ] {
        assert!(text.lines().any(|l| l == line), "{line} is not in\n{text}");
    }
}
