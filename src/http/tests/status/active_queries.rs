//! Active queries, and the log of requests.

use std::net::SocketAddr;
use std::sync::Arc;

use axum::body::Body;
use axum::http::Request;
use serde_json::{Value, json};

use crate::http::router::router;
use crate::http::tests::{ask, error, ready, send, shared_with, source};
use crate::logging::tests::Lines;
use crate::query::active::Client;

const PATH: &str = "/api/v1/status/active_queries";

#[tokio::test]
async fn queries_are_listed_until_they_are_answered_or_canceled() {
    let limits = ["--query.max-concurrency=1", "--web.enable-admin-api"];
    let shared = shared_with(&limits);
    shared.set_ready(source());
    let router = router(Arc::clone(&shared));
    let list = async || {
        let text = ask(&router, "GET", PATH).await.text;
        serde_json::from_str::<Value>(&text).unwrap()["data"].as_array().unwrap().clone()
    };
    assert!(list().await.is_empty());
    let address: SocketAddr = "10.1.2.3:456".parse().unwrap();
    let range = "/api/v1/query_range?query=forever&start=1&end=2.5&step=0.5";
    let mut request = Request::get(range).body(Body::empty()).unwrap();
    request.extensions_mut().insert(Client::at(address));
    let mut running = Box::pin(send(&router, request));
    assert!(futures::poll!(&mut running).is_pending());
    let mut waiting = Box::pin(ask(&router, "GET", "/api/v1/query?query=long&time=7"));
    while shared.queries.gate().waiting() == 0 {
        assert!(futures::poll!(&mut waiting).is_pending());
    }
    let listed = list().await;
    let [first, second] = &listed[..] else { panic!("two queries: {listed:?}") };
    assert_eq!((&first["query"], &first["client"]), (&json!("forever"), &json!("10.1.2.3:456")));
    assert_eq!(
        [&first["start"], &first["end"], &first["step"]],
        [&json!(1), &json!(2.5), &json!(0.5)]
    );
    assert_eq!((&first["state"], &first["cost"]["series"]), (&json!("running"), &json!(10_000)));
    assert!(first["ageSeconds"].is_number() && first["startTime"].is_string());
    assert_eq!((&second["query"], &second["time"]), (&json!("long"), &json!(7)));
    assert_eq!((&second["client"], &second["cost"]["series"]), (&json!(""), &json!(0)));

    let id = first["id"].as_str().unwrap();
    for (method, path) in [("DELETE", "99"), ("DELETE", "x"), ("POST", "99/cancel")] {
        let answer = ask(&router, method, &format!("{PATH}/{path}")).await;
        assert_eq!(answer.status.as_u16(), 404);
        assert!(answer.text.contains("\"errorType\":\"not_found\""), "{}", answer.text);
    }
    assert_eq!(ask(&router, "DELETE", &format!("{PATH}/{id}")).await.status.as_u16(), 204);
    let canceled = running.await;
    assert_eq!(canceled.status.as_u16(), 499);
    let message = "query was canceled in expression evaluation";
    assert_eq!(canceled.text, error("canceled", message));
    // The waiting query gets the slot.
    assert_eq!(waiting.await.status.as_u16(), 200);
    assert!(list().await.is_empty());

    let mut again = Box::pin(ask(&router, "GET", "/api/v1/query?query=forever"));
    assert!(futures::poll!(&mut again).is_pending());
    let id = list().await[0]["id"].as_str().unwrap().to_owned();
    assert_eq!(ask(&router, "POST", &format!("{PATH}/{id}/cancel")).await.status.as_u16(), 204);
    assert_eq!(again.await.status.as_u16(), 499);
    // A query whose client is gone is not listed either.
    let mut left = Box::pin(ask(&router, "GET", "/api/v1/query?query=forever"));
    assert!(futures::poll!(&mut left).is_pending());
    drop(left);
    assert!(list().await.is_empty());
}

#[tokio::test]
async fn only_those_who_administer_cancel_queries() {
    let router = ready(&[]);
    let answer = ask(&router, "DELETE", &format!("{PATH}/1")).await;
    assert_eq!(answer.status.as_u16(), 500);
    assert_eq!(answer.text, error("unavailable", "admin APIs disabled"));
    let answer = ask(&router, "GET", &format!("{PATH}/1")).await;
    assert_eq!(
        (answer.status.as_u16(), &answer.headers["allow"]),
        (405, &"DELETE, OPTIONS".parse().unwrap())
    );
}

#[tokio::test]
async fn each_request_is_logged_once_and_no_secret_with_it() {
    let lines = Lines::default();
    let _guard = lines.collect();
    for (args, expected) in [(&["--web.request-log"][..], 4), (&[], 0)] {
        lines.0.lock().unwrap().clear();
        let router = ready(args);
        let request = || {
            let path = "/api/v1/query?query=secret&time=5&token=secret";
            let request = Request::get(path).header("user-agent", "a \"b\"");
            let mut request =
                request.header("authorization", "Bearer secret").body(Body::empty()).unwrap();
            let address: SocketAddr = "10.1.2.3:456".parse().unwrap();
            request.extensions_mut().insert(Client::at(address));
            request
        };
        let answer = send(&router, request()).await;
        assert_eq!(answer.status.as_u16(), 200);
        ask(&router, "POST", "/none").await;
        // Dropped before and during the response.
        let mut given_up = Box::pin(ask(&router, "GET", "/api/v1/query?query=forever"));
        assert!(futures::poll!(&mut given_up).is_pending());
        drop(given_up);
        let path = "/api/v1/query_range?query=time()&start=0&end=11000&step=1";
        let request = Request::get(path).body(Body::empty()).unwrap();
        drop(tower::ServiceExt::oneshot(router.clone(), request).await.unwrap());

        let text = String::from_utf8(lines.0.lock().unwrap().clone()).unwrap();
        let requests: Vec<_> = text.lines().filter(|line| line.contains(": request ")).collect();
        assert_eq!(requests.len(), expected, "{text}");
        assert!(!text.contains("secret"), "{text}");
        let Some(first) = requests.first() else { continue };
        for part in [
            "method=\"GET\"",
            "path=\"/api/v1/query\"",
            "status=200",
            &format!("bytes={}", answer.text.len()),
            "seconds=",
            "client=\"10.1.2.3:456\"",
            "user_agent=\"a \\\"b\\\"\"",
            "complete=true",
        ] {
            assert!(first.contains(part), "{part} is not in {first}");
        }
        assert!(requests[1].contains("status=404") && requests[1].contains("complete=true"));
        assert!(requests[2].contains("status=499") && requests[2].contains("bytes=0"));
        assert!(requests[3].contains("status=200") && requests[3].contains("complete=false"));
    }
}
