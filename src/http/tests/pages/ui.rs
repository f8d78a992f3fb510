//! Files of the web page.

use axum::body::Body;
use axum::http::Request;

use crate::http::tests::{ask, check, ready, router, send, shared_with};

#[tokio::test]
async fn the_page_may_load_files_of_this_server_only() {
    // The page is served before the store is open.
    let starting = router(shared_with(&[]));
    let queries = ["/", "/query?g0.expr=up", "/graph?g0.expr=up&g0.tab=1"];
    let others = ["/tsdb-status", "/service-discovery", "/docs/", "/docs/rules.md"];
    for path in queries.into_iter().chain(others) {
        let answer = ask(&starting, "GET", path).await;
        assert_eq!(answer.status, 200, "{path}");
        assert_eq!(answer.headers["content-type"], "text/html; charset=utf-8");
        assert!(answer.text.starts_with("<!doctype html>"), "{path}");
        let policy = answer.headers["content-security-policy"].to_str().unwrap();
        assert!(policy.starts_with("default-src 'none'; script-src 'self'; style-src 'self'"));
        assert!(!policy.contains("unsafe"), "{policy}");
    }
}

#[tokio::test]
async fn files_of_the_page_are_compressed_and_asked_for_once() {
    let router = ready(&[]);
    let script = ask(&router, "GET", "/ui/main.js").await;
    assert_eq!(script.headers["content-type"], "text/javascript; charset=utf-8");
    assert_eq!(script.headers["cache-control"], "no-cache");
    let get = |name: &str, value: &str| {
        Request::get("/ui/main.js").header(name, value).body(Body::empty()).unwrap()
    };
    let compressed = send(&router, get("accept-encoding", "gzip")).await;
    assert_eq!(compressed.headers["content-encoding"], "gzip");
    assert_eq!(compressed.headers["etag"], script.headers["etag"]);
    assert!(compressed.text.len() < script.text.len());
    let again = send(&router, get("if-none-match", script.headers["etag"].to_str().unwrap())).await;
    assert_eq!((again.status.as_u16(), &again.text[..]), (304, ""));
    let cases = [
        ("/ui/nothing.js", 404, "404 page not found\n"),
        ("/ui/..%2FCargo.toml", 404, "404 page not found\n"),
        ("/ui/README.md", 404, "404 page not found\n"),
        ("/ui/", 404, "404 page not found\n"),
        ("/docs", 308, ""),
        ("/docs/nothing.md", 404, "404 page not found\n"),
        ("/docs/..%2FREADME.md", 404, "404 page not found\n"),
        ("POST /", 405, "Method Not Allowed\n"),
    ];
    check(&router, &cases).await;
    for path in ["/favicon.ico", "/favicon.svg"] {
        assert_eq!(ask(&router, "GET", path).await.headers["content-type"], "image/svg+xml");
    }
}
