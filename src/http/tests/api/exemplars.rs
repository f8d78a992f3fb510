//! Exemplars and metadata of a store in memory.

use std::sync::Arc;

use axum::Router;
use axum::body::Body;
use axum::http::{Method, Request, StatusCode, header};
use model::{Batch, BatchExemplar, BatchMetadata, Labels, MetricKind};
use storage::{Store, StoreOptions};

use crate::http::tests::{check, error, ready, router, send, shared_with};

fn ok(data: &str) -> String {
    format!(r#"{{"status":"success","data":{data}}}"#)
}

/// Router over a store with exemplars and metadata.
async fn filled() -> Router {
    let options = StoreOptions { background: false, ..StoreOptions::default() };
    let store = Store::open("memory:///", options).await.unwrap();
    let mut batch = Batch::default();
    for (index, name) in ["b_total", "a_total"].into_iter().enumerate() {
        batch.push(&Labels::from_pairs([("__name__", name), ("job", "<x>")]), &[(1000, 1.0)]);
        for (time, value) in [(1000, 1.0), (2500, 1e-10), (3000, f64::INFINITY)] {
            batch.exemplars.push(BatchExemplar {
                series_index: index as u32,
                labels: Labels::from_pairs([("trace_id", format!("t<{time}"))]),
                timestamp_ms: time,
                value,
            });
        }
    }
    for (metric, kind, help) in [
        ("b_total", MetricKind::Counter, "b <first>"),
        ("a_total", MetricKind::Unknown, ""),
        ("b_total", MetricKind::Gauge, "b second"),
    ] {
        let (metric, help, unit) = (metric.to_owned(), help.to_owned(), "s".to_owned());
        batch.metadata.push(BatchMetadata { metric, kind, help, unit });
    }
    store.append(batch).await.unwrap();
    let shared = shared_with(&[]);
    shared.set_ready(Arc::new(store));
    router(shared)
}

fn exemplar(time_ms: i64, value: &str, time: &str) -> String {
    format!(r#"{{"labels":{{"trace_id":"t<{time_ms}"}},"value":"{value}","timestamp":{time}}}"#)
}

fn series(name: &str, exemplars: &[String]) -> String {
    format!(
        r#"{{"seriesLabels":{{"__name__":"{name}","job":"<x>"}},"exemplars":[{}]}}"#,
        exemplars.join(",")
    )
}

#[tokio::test]
async fn exemplars_have_the_shape_of_prometheus() {
    let all =
        [exemplar(1000, "1", "1"), exemplar(2500, "1e-10", "2.500"), exemplar(3000, "+Inf", "3")];
    let (a, b) = (series("a_total", &all), series("b_total", &all));
    let both = ok(&format!("[{a},{b}]"));
    let some = ok(&format!("[{}]", series("b_total", &all[1..2])));
    let one = ok(&format!("[{b}]"));
    let path = |rest: &str| format!("/api/v1/query_exemplars?query={rest}");
    let cases = [
        (path("b_total"), 200, &one[..]),
        (path("sum(rate(b_total[5m]))/1"), 200, &one),
        (path("b_total%7Bjob=%22y%22%7D"), 200, &ok("[]")),
        // All selectors of the expression, each series once.
        (path("b_total-a_total%3Eb_total"), 200, &both),
        (path("quantile(scalar(a_total),b_total[1h:1m])"), 400, ""),
        (path("max_over_time(a_total[1h:1m])%2Bcount_values(%22x%22,b_total)"), 200, &both),
        (path("%7Bjob=%22%3Cx%3E%22%7D"), 200, &both),
        // The offset has no effect on times of exemplars.
        (path("b_total+offset+1d&start=2.4&end=2.5"), 200, &some),
        (path("b_total&start=1970-01-01T00:00:02Z&end=2.999"), 200, &some),
        (path("b_total&start=4"), 200, &ok("[]")),
        // Probe of Grafana.
        (path("b_total&start=1700000000000&end=1700000001000"), 200, &ok("[]")),
        (path("1"), 204, ""),
        (path("%22x%22"), 204, ""),
        (
            path("b_total&start=2&end=1"),
            400,
            &error("bad_data", "end timestamp must not be before start timestamp"),
        ),
        (
            path("b_total&start=x"),
            400,
            &error(
                "bad_data",
                r#"invalid parameter \"start\": invalid time value for 'start': cannot parse \"x\" to a valid timestamp"#,
            ),
        ),
        (
            path(""),
            400,
            &error("bad_data", "unknown position: parse error: no expression found in input"),
        ),
        (path("b_total%7B"), 400, ""),
    ];
    let router = filled().await;
    for (path, status, body) in cases {
        let request = Request::get(&path).body(Body::empty()).unwrap();
        let answer = send(&router, request).await;
        assert_eq!(answer.status.as_u16(), status, "{path}: {}", answer.text);
        if !body.is_empty() || status == 204 {
            assert_eq!(answer.text, body, "{path}");
        }
    }
    let request = Request::builder()
        .method(Method::POST)
        .uri("/api/v1/query_exemplars")
        .header(header::CONTENT_TYPE, "application/x-www-form-urlencoded")
        .body(Body::from("query=b_total&start=2.4&end=2.6"))
        .unwrap();
    let answer = send(&router, request).await;
    assert_eq!((answer.status, &answer.text), (StatusCode::OK, &some));
}

#[tokio::test]
async fn many_exemplars_arrive_whole() {
    let options = StoreOptions { background: false, ..StoreOptions::default() };
    let store = Store::open("memory:///", options).await.unwrap();
    let mut batch = Batch::default();
    batch.push(&Labels::from_pairs([("__name__", "m")]), &[(1, 1.0)]);
    let exemplars = (0..1000).map(|time| BatchExemplar {
        series_index: 0,
        labels: Labels::from_pairs([("trace_id", "x".repeat(100))]),
        timestamp_ms: time,
        value: time as f64,
    });
    batch.exemplars.extend(exemplars);
    store.append(batch).await.unwrap();
    let shared = shared_with(&[]);
    shared.set_ready(Arc::new(store));
    let request = Request::get("/api/v1/query_exemplars?query=m").body(Body::empty()).unwrap();
    let answer = send(&router(shared), request).await;
    let answer: serde_json::Value = serde_json::from_str(&answer.text).unwrap();
    let exemplars = answer["data"][0]["exemplars"].as_array().unwrap();
    let values = exemplars.iter().map(|e| e["value"].as_str().unwrap().parse::<i64>().unwrap());
    assert!(values.eq(0..1000));
}

#[tokio::test]
async fn metadata_are_listed_by_metric() {
    let a = r#""a_total":[{"type":"unknown","unit":"s","help":""}]"#;
    let second = r#"{"type":"gauge","unit":"s","help":"b second"}"#;
    let b = format!(
        r#""b_total":[{second},{{"type":"counter","unit":"s","help":"b \u003cfirst\u003e"}}]"#
    );
    let all = ok(&format!("{{{a},{b}}}"));
    let latest = ok(&format!(r#"{{{a},"b_total":[{second}]}}"#));
    let none = ok("{}");
    let number = |name: &str| error("bad_data", &format!("{name} must be a number"));
    let cases: &[(&str, u16, &str)] = &[
        ("/api/v1/metadata", 200, &all),
        ("/api/v1/metadata?metric=", 200, &all),
        ("/api/v1/metadata?limit=-1&limit_per_metric=0", 200, &all),
        ("/api/v1/metadata?limit=2&limit_per_metric=-3", 200, &all),
        ("/api/v1/metadata?limit=1", 200, &ok(&format!("{{{a}}}"))),
        ("/api/v1/metadata?limit=0", 200, &none),
        ("/api/v1/metadata?limit_per_metric=1", 200, &latest),
        ("/api/v1/metadata?metric=b_total", 200, &ok(&format!("{{{b}}}"))),
        ("/api/v1/metadata?metric=b_total&limit=0", 200, &none),
        ("/api/v1/metadata?metric=none", 200, &none),
        ("/api/v1/metadata?metric=%ff", 200, &none),
        ("/api/v1/metadata?limit=x", 400, &number("limit")),
        ("/api/v1/metadata?limit_per_metric=1.5", 400, &number("limit_per_metric")),
        ("/api/v1/targets/metadata", 200, &ok("[]")),
    ];
    check(&filled().await, cases).await;
}

#[tokio::test]
async fn exemplars_are_empty_also_for_times_in_ms() {
    let ok = r#"{"status":"success","data":[]}"#;
    let cases: &[(&str, u16, &str)] = &[
        ("/api/v1/query_exemplars?query=up", 200, ok),
        ("/api/v1/query_exemplars?query=up&start=1700000000000&end=1700000001000", 200, ok),
        ("/api/v1/query_exemplars?query=1", 204, ""),
        (
            "/api/v1/query_exemplars?query=up&start=2&end=1",
            400,
            &error("bad_data", "end timestamp must not be before start timestamp"),
        ),
    ];
    check(&ready(&[]), cases).await;
}
