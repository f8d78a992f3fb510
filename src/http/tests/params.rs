//! Parameters in forms.

use axum::body::Body;
use axum::http::Request;

use super::{error, post_form, ready, scalar, send};

#[tokio::test]
async fn a_form_wins_over_the_address() {
    let router = ready(&[]);
    let cases = [
        ("/api/v1/query", "query=1&time=5", scalar("5", "1")),
        ("/api/v1/query?query=1&time=7", "time=5", scalar("5", "1")),
        ("/api/v1/query?query=scalar(length_ms)", "time=5&lookback_delta=1", scalar("5", "1000")),
    ];
    for (path, form, expected) in cases {
        assert_eq!(post_form(&router, path, form).await.text, expected);
    }
    let request = Request::post("/api/v1/query?query=1&time=7")
        .header("content-type", "application/json")
        .body(Body::from("time=5"))
        .unwrap();
    assert_eq!(send(&router, request).await.text, scalar("7", "1"));
    let large = "x=".to_owned() + &"y".repeat(11 << 20);
    let answer = post_form(&router, "/api/v1/series?match[]=up", &large).await;
    assert_eq!(answer.text, error("bad_data", "error parsing form values: http: POST too large"));
}

#[tokio::test]
async fn a_form_that_breaks_off_is_not_called_too_large() {
    let broken = futures::stream::iter([Ok("match[]="), Err(std::io::Error::other("reset"))]);
    let request = Request::post("/api/v1/series")
        .header("content-type", "application/x-www-form-urlencoded")
        .body(Body::from_stream(broken))
        .unwrap();
    let answer = send(&ready(&[]), request).await;
    let message = "error parsing form values: cannot read the form: reset";
    assert_eq!(answer.text, error("bad_data", message));
}

#[tokio::test]
async fn a_form_that_does_not_arrive_is_given_up() {
    let request = Request::post("/api/v1/query")
        .header("content-type", "application/x-www-form-urlencoded")
        .body(Body::from_stream(futures::stream::pending::<Result<String, std::io::Error>>()))
        .unwrap();
    let answer = send(&ready(&["--web.read-timeout=10ms"]), request).await;
    assert_eq!(answer.status, 408);
    let message = "request took longer than 10ms to arrive (--web.read-timeout)";
    assert_eq!(answer.text, error("timeout", message));
}
