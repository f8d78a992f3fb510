//! Federation.

use std::sync::Arc;

use axum::http::Request;
use model::memory::MemorySource;
use model::{Histogram, Labels};

use crate::http::router::router;
use crate::http::tests::{Answer, Body, Router, ask, ready, send, shared_with};
use crate::time::Time;

const TEXT: &str = "text/plain; version=0.0.4; charset=utf-8; escaping=underscores";

/// Router over samples of some ms ago.
fn with_recent(args: &[&str]) -> (Router, i64) {
    let now_ms = Time::now().lookup_ms();
    let mut source = MemorySource::new();
    let labels = |name: &str, job: &str| Labels::from_pairs([("__name__", name), ("job", job)]);
    for back_ms in [200_000, 100_000] {
        source.append(&labels("up", "a"), now_ms - back_ms, back_ms as f64);
    }
    source.append(&labels("up", "b"), now_ms - 250_000, 0.5);
    source.append(&labels("up", "old"), now_ms - 900_000, 1.0);
    source.append(&labels("up", "stale"), now_ms - 200_000, 1.0);
    source.append(&labels("up", "stale"), now_ms - 100_000, model::stale_nan());
    let native = Histogram { count: 3.0, zero_count: 3.0, sum: 1.0, ..Histogram::default() };
    source.append_histogram(&labels("native", "a"), now_ms - 50_000, Arc::new(native), 0);
    let shared = shared_with(args);
    shared.set_ready(Arc::new(source));
    (router(shared), now_ms)
}

async fn accepting(router: &Router, path: &str, accept: &str) -> Answer {
    let request = Request::get(path).header("accept", accept).body(Body::empty()).unwrap();
    send(router, request).await
}

#[tokio::test]
async fn the_newest_sample_of_each_series_is_exposed() {
    let (router, now_ms) = with_recent(&[]);
    let up = format!(
        "# TYPE up untyped\nup{{job=\"a\",instance=\"\"}} 100000 {}\n\
         up{{job=\"b\",instance=\"\"}} 0.5 {}\n",
        now_ms - 100_000,
        now_ms - 250_000
    );
    // Duplicate series, native histograms, and a selector without matchers.
    for selectors in ["match[]=up", "match[]=%7Bjob=~%22.%2B%22%7D&match[]=up&match[]=%7B%7D"] {
        let answer = ask(&router, "GET", &format!("/federate?{selectors}")).await;
        assert_eq!((answer.status.as_u16(), &answer.text), (200, &up));
        assert_eq!(answer.headers["content-type"], TEXT);
    }
    let none = ask(&router, "GET", "/federate").await;
    assert_eq!((none.status.as_u16(), &none.text[..]), (200, ""));
    let (short, _) = with_recent(&["--query.lookback-delta=150s"]);
    assert_eq!(ask(&short, "GET", "/federate?match[]=up").await.text.lines().count(), 2);
}

#[tokio::test]
async fn native_histograms_are_exposed_as_protobuf_alone() {
    let (router, _) = with_recent(&[]);
    let path = "/federate?match[]=native";
    assert_eq!(accepting(&router, path, "text/plain").await.text, "");
    let proto = "application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily;encoding=delimited";
    let answer = accepting(&router, path, proto).await;
    assert_eq!(
        answer.headers["content-type"],
        "application/vnd.google.protobuf; proto=io.prometheus.client.MetricFamily; \
         encoding=delimited; escaping=underscores"
    );
    assert!(answer.text.contains("native") && answer.text.contains("instance"));
    let utf8 = accepting(&router, path, "text/plain;escaping=allow-utf-8").await;
    assert_eq!(utf8.headers["content-type"], TEXT.replace("underscores", "allow-utf-8"));
}

#[tokio::test]
async fn wrong_requests_are_refused_in_words() {
    let router = ready(&[]);
    for (query, message) in [
        ("match[]=up%7B", "1:4: parse error: unexpected end of input inside braces\n"),
        ("match[]=%zz", "error parsing form values: invalid URL escape \"%zz\"\n"),
    ] {
        let answer = ask(&router, "GET", &format!("/federate?{query}")).await;
        assert_eq!((answer.status.as_u16(), &answer.text[..]), (400, message));
        assert_eq!(answer.headers["content-type"], "text/plain; charset=utf-8");
    }
    for method in ["POST", "HEAD"] {
        let answer = ask(&router, method, "/federate").await;
        assert_eq!(
            (answer.status.as_u16(), &answer.headers["allow"]),
            (405, &"GET, OPTIONS".parse().unwrap())
        );
    }
    let router = ready(&["--query.max-series=1"]);
    let answer = ask(&router, "GET", "/federate?match[]=%7Bjob!=%22%22%7D").await;
    // All samples are older than the lookback.
    assert_eq!(answer.status.as_u16(), 200);
    let (router, _) = with_recent(&["--query.max-samples=1"]);
    let answer = ask(&router, "GET", "/federate?match[]=up").await;
    let message = "samples, the limit is 1 (--query.max-samples)\n";
    assert_eq!(answer.status.as_u16(), 422);
    assert!(answer.text.ends_with(message), "{}", answer.text);
}
