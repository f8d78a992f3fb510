//! Router in process, over a scripted source.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use axum::Router;
use axum::body::Body;
use axum::http::{HeaderMap, Request, StatusCode};
use clap::Parser as _;
use model::Source;
use tower::ServiceExt as _;

mod active_queries;
mod exemplars;
mod federate;
mod openapi;
mod pprof;
mod prefix;
mod read;
mod reuse;
mod scripted_source;
mod search;
mod sending;
mod store;
mod stubs;
mod tsdb;
mod ui;
mod with_engine;

use super::router::router;
use crate::config::Config;
use crate::flags::Args;
use crate::state::Shared;
use crate::web_config::ActiveWebConfig;
use scripted_source::ScriptedSource;

fn source() -> Arc<dyn Source> {
    Arc::new(ScriptedSource::default())
}

fn shared_with(args: &[&str]) -> Arc<Shared> {
    Shared::new(parse_args(args), Config::default(), ActiveWebConfig::default())
}

fn parse_args(args: &[&str]) -> Args {
    Args::try_parse_from(std::iter::once(&"tessella").chain(args)).unwrap()
}

fn ready(args: &[&str]) -> Router {
    let shared = shared_with(args);
    shared.set_ready(source());
    router(shared)
}

struct Answer {
    status: StatusCode,
    headers: HeaderMap,
    text: String,
}

async fn send(router: &Router, request: Request<Body>) -> Answer {
    let response = router.clone().oneshot(request).await.unwrap();
    let (head, body) = response.into_parts();
    let body = axum::body::to_bytes(body, usize::MAX).await.unwrap();
    let text = String::from_utf8_lossy(&body).into_owned();
    Answer { status: head.status, headers: head.headers, text }
}

async fn ask(router: &Router, method: &str, path: &str) -> Answer {
    let request = Request::builder().method(method).uri(path).body(Body::empty()).unwrap();
    send(router, request).await
}

async fn post_form(router: &Router, path: &str, form: &str) -> Answer {
    let request = Request::post(path)
        .header("content-type", "application/x-www-form-urlencoded; charset=utf-8")
        .body(Body::from(form.to_owned()))
        .unwrap();
    send(router, request).await
}

/// Checks status and body of requests, which are `GET` unless a method precedes the path.
async fn check(router: &Router, cases: &[(&str, u16, &str)]) {
    for (request, status, body) in cases {
        let (method, path) = request.split_once(' ').unwrap_or(("GET", request));
        let answer = ask(router, method, path).await;
        assert_eq!((answer.status.as_u16(), &answer.text[..]), (*status, *body), "{request}");
    }
}

fn scalar(time: &str, value: &str) -> String {
    format!(
        r#"{{"status":"success","data":{{"resultType":"scalar","result":[{time},"{value}"]}}}}"#
    )
}

fn error(error_type: &str, message: &str) -> String {
    format!(r#"{{"status":"error","errorType":"{error_type}","error":"{message}"}}"#)
}

#[tokio::test]
async fn instant_queries_have_the_shape_of_prometheus() {
    let vector = concat!(
        r#"{"status":"success","data":{"resultType":"vector","result":["#,
        r#"{"metric":{"__name__":"ratio","job":"a"},"value":[5,"1"]},"#,
        r#"{"metric":{"__name__":"ratio","job":"b"},"value":[5,"0.5"]}]}}"#
    );
    let text =
        r#"{"status":"success","data":{"resultType":"string","result":[5,"\u003ctext\u003e"]}}"#;
    let limited = concat!(
        r#"{"status":"success","data":{"resultType":"vector","result":["#,
        r#"{"metric":{"__name__":"ratio","job":"a"},"value":[5,"1"]}]},"#,
        r#""warnings":["results truncated due to limit"]}"#
    );
    let cases: &[(&str, u16, &str)] = &[
        ("/api/v1/query?query=1&time=5.1", 200, &scalar("5.1", "1")),
        ("/api/v1/query?query=1&time=1970-01-01T00:00:05Z", 200, &scalar("5", "1")),
        (
            "/api/v1/query?query=1&time=292277025-08-18T07:12:54.999999999Z",
            200,
            &scalar("-6795364579.679", "1"),
        ),
        ("/api/v1/query?query=ratio&time=5", 200, vector),
        ("/api/v1/query?query=ratio&time=5&limit=2", 200, vector),
        ("/api/v1/query?query=ratio&time=5&limit=1", 200, limited),
        ("/api/v1/query?query=%22%3Ctext%3E%22&time=5", 200, text),
        ("/api/v1/query?query=scalar(length_ms)&time=5", 200, &scalar("5", "300000")),
        (
            "/api/v1/query?query=scalar(length_ms)&time=5&lookback_delta=90",
            200,
            &scalar("5", "90000"),
        ),
        (
            "/api/v1/query?query=scalar(length_ms)&time=5&lookback_delta=0",
            200,
            &scalar("5", "300000"),
        ),
        (
            "/api/v1/query?query=scalar(count_over_time(vector(1)[2h:]))&time=5",
            200,
            &scalar("5", "120"),
        ),
    ];
    check(&ready(&[]), cases).await;
}

#[tokio::test]
async fn errors_have_prometheus_texts_and_codes() {
    let bad = |message: &str| error("bad_data", message);
    let invalid =
        |name: &str, message: &str| bad(&format!(r#"invalid parameter \"{name}\": {message}"#));
    let cases: &[(&str, u16, &str)] = &[
        (
            "/api/v1/query",
            400,
            &invalid("query", "unknown position: parse error: no expression found in input"),
        ),
        (
            "/api/v1/query?query=%22%ff%22",
            400,
            &invalid("query", "1:1: parse error: invalid UTF-8 rune"),
        ),
        (
            "/api/v1/query?query=1&time=x",
            400,
            &invalid(
                "time",
                r#"invalid time value for 'time': cannot parse \"x\" to a valid timestamp"#,
            ),
        ),
        (
            "/api/v1/query?query=1&limit=x",
            400,
            &invalid("limit", r#"strconv.Atoi: parsing \"x\": invalid syntax"#),
        ),
        ("/api/v1/query?query=1&limit=-1", 400, &invalid("limit", "limit must be non-negative")),
        (
            "/api/v1/query?query=1&timeout=x",
            400,
            &invalid("timeout", r#"cannot parse \"x\" to a valid duration"#),
        ),
        (
            "/api/v1/query?query=1&lookback_delta=x",
            400,
            &bad(
                r#"error parsing lookback delta duration: cannot parse \"x\" to a valid duration"#,
            ),
        ),
        (
            "/api/v1/query_range?query=1&end=0&step=1",
            400,
            &invalid("start", r#"cannot parse \"\" to a valid timestamp"#),
        ),
        (
            "/api/v1/query_range?query=1&start=0&step=1",
            400,
            &invalid("end", r#"cannot parse \"\" to a valid timestamp"#),
        ),
        (
            "/api/v1/query_range?query=1&start=1&end=0&step=1",
            400,
            &invalid("end", "end timestamp must not be before start time"),
        ),
        (
            "/api/v1/query_range?query=1&start=1&end=2",
            400,
            &invalid("step", r#"cannot parse \"\" to a valid duration"#),
        ),
        (
            "/api/v1/query_range?query=1&start=1&end=2&step=0",
            400,
            &invalid(
                "step",
                "zero or negative query resolution step widths are not accepted. Try a positive integer",
            ),
        ),
        (
            "/api/v1/query_range?query=1&start=1&end=2&step=1e300",
            400,
            &invalid("step", r#"cannot parse \"1e300\" to a valid duration. It overflows int64"#),
        ),
        (
            "/api/v1/query_range?query=1&start=0&end=11001&step=1",
            400,
            &bad(
                "exceeded maximum resolution of 11,000 points per timeseries. Try decreasing the query resolution (?step=XX)",
            ),
        ),
        (
            "/api/v1/query?query=label_join(up,%22%22,%22%22)&time=1",
            422,
            &error("execution", "invalid destination label name in label_join(): "),
        ),
        (
            "/api/v1/query?query=samples",
            422,
            &error("execution", "query needs 11 samples, the limit is 10 (--query.max-samples)"),
        ),
        (
            "/api/v1/query?query=canceled",
            499,
            &error("canceled", "query was canceled in expression evaluation"),
        ),
        (
            "/api/v1/query?query=timeout",
            503,
            &error("timeout", "query timed out in expression evaluation"),
        ),
        (
            "/api/v1/query?query=forever&timeout=0.01",
            503,
            &error("timeout", "query timed out in expression evaluation"),
        ),
        (
            "/api/v1/query?query=unavailable",
            503,
            &error("unavailable", "storage is unavailable: no answer"),
        ),
        (
            "/api/v1/query?query=corrupt",
            500,
            &error("internal", r#"damaged data at block 7 of series {a=\"b\"}: checksum"#),
        ),
    ];
    check(&ready(&["--query.max-samples=10"]), cases).await;
}

#[tokio::test]
async fn range_queries_take_steps_with_and_without_units() {
    let router = ready(&[]);
    let expected = concat!(
        r#"{"status":"success","data":{"resultType":"matrix","result":["#,
        r#"{"metric":{},"values":[[0,"0"],[30,"30"],[60,"60"]]}]}}"#
    );
    for step in ["30", "30s", "0.5m", "3e1", "30000ms"] {
        let path = format!("/api/v1/query_range?query=time()&start=0&end=60&step={step}");
        let answer = ask(&router, "GET", &path).await;
        if step == "0.5m" {
            assert_eq!(answer.status, 400);
        } else {
            assert_eq!(answer.text, expected, "{step}");
        }
    }
    let all =
        ask(&router, "GET", "/api/v1/query_range?query=time()&start=0&end=11000&step=1").await;
    let read: serde_json::Value = serde_json::from_str(&all.text).unwrap();
    assert_eq!(read["data"]["result"][0]["values"].as_array().unwrap().len(), 11_001);
}

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

#[tokio::test]
async fn annotations_are_limited_and_the_rest_counted() {
    let quantiles: Vec<String> = (10..22).map(|q| format!("quantile({q},up)")).collect();
    let query = format!("count(rate(ratio[1m]))or+{}", quantiles.join("+or+"));
    let path = format!("/api/v1/query?query={query}&time=1&stats=x");
    let answer = ask(&ready(&[]), "GET", &path).await;
    let read: serde_json::Value = serde_json::from_str(&answer.text).unwrap();
    let warnings = read["warnings"].as_array().unwrap();
    assert_eq!(warnings.len(), 12);
    assert_eq!(
        warnings[0],
        "value \"x\" for parameter \"stats\" is deprecated and will be rejected in the next \
         major release, use \"true\" or \"all\""
    );
    assert_eq!(
        warnings[1],
        "PromQL warning: quantile value should be between 0 and 1, got 10 (1:35)"
    );
    let info = "PromQL info: metric might not be a counter, name does not end in \
                _total/_sum/_count/_bucket: \"ratio\" (1:12)";
    assert_eq!(warnings[11], "2 more warning annotations omitted");
    assert_eq!(read["infos"], serde_json::json!([info]));
    assert!(read["data"]["stats"]["samples"]["peakSamples"].is_u64());
}

#[tokio::test]
async fn lookups_answer_with_sorted_lists() {
    let ok = |data: &str| format!(r#"{{"status":"success","data":{data}}}"#);
    let cut = |data: &str| {
        format!(
            r#"{{"status":"success","data":{data},"warnings":["results truncated due to limit"]}}"#
        )
    };
    let up = r#"{"__name__":"up","job":"a"},{"__name__":"up","job":"b"}"#;
    let empty = r#"match[] must contain at least one non-empty matcher"#;
    let cases: &[(&str, u16, &str)] = &[
        ("/api/v1/labels", 200, &ok(r#"["__name__","a.b","job"]"#)),
        ("/api/v1/labels?match[]=late", 200, &ok(r#"["__name__","a.b"]"#)),
        ("/api/v1/labels?start=0&end=2", 200, &ok(r#"["__name__","job"]"#)),
        ("/api/v1/labels?limit=1", 200, &cut(r#"["__name__"]"#)),
        ("/api/v1/labels?limit=3", 200, &ok(r#"["__name__","a.b","job"]"#)),
        ("/api/v1/labels?match[]={}", 400, &error("bad_data", empty)),
        ("/api/v1/label/job/values", 200, &ok(r#"["a","a\u003cb","b"]"#)),
        ("/api/v1/label/job/values?match[]=up&match[]=late", 200, &ok(r#"["a","b"]"#)),
        ("/api/v1/label/U__a_2e_b/values", 200, &ok(r#"["x"]"#)),
        ("/api/v1/label/none/values", 200, &ok("[]")),
        ("/api/v1/label/a%ff/values", 400, &error("bad_data", r#"invalid label name: \"a\\xff\""#)),
        ("/api/v1/series?match[]=up", 200, &ok(&format!("[{up}]"))),
        ("/api/v1/series?match[]=down", 200, &ok(r#"[{"__name__":"down","job":"a<b"}]"#)),
        ("/api/v1/series?match[]=up&limit=1", 200, &cut(r#"[{"__name__":"up","job":"a"}]"#)),
        ("/api/v1/series?match[]=none", 200, &ok("[]")),
        ("/api/v1/series", 400, &error("bad_data", "no match[] parameter provided")),
        (
            "/api/v1/series?match[]={}",
            400,
            &error("bad_data", &format!(r#"invalid parameter \"match[]\": {empty}"#)),
        ),
        (
            "/api/v1/series?match[]=%zz",
            400,
            &error("bad_data", r#"error parsing form values: invalid URL escape \"%zz\""#),
        ),
        ("/api/v1/metadata", 200, &ok("{}")),
        ("/api/v1/metadata?limit=x", 400, &error("bad_data", "limit must be a number")),
    ];
    // Clients escape braces and quotes.
    let cases: Vec<(String, u16, &str)> = cases
        .iter()
        .map(|(path, status, body)| (path.replace("{}", "%7B%7D"), *status, *body))
        .collect();
    let cases: Vec<_> =
        cases.iter().map(|(path, status, body)| (&path[..], *status, *body)).collect();
    check(&ready(&[]), &cases).await;
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
    shared.set_ready(source());
    check(&router, &[("/-/ready", 200, "Tessella is Ready.\n")]).await;
    shared.begin_stop();
    let answer = ask(&router, "GET", "/-/ready").await;
    assert_eq!(answer.status, 503);
    assert_eq!(answer.headers["x-prometheus-stopping"], "true");
}

#[tokio::test]
async fn lifecycle_and_admin_endpoints_follow_their_flags() {
    let disabled = "Lifecycle API is not enabled.";
    let cases: &[(&str, u16, &str)] = &[
        ("POST /-/quit", 403, disabled),
        ("PUT /-/reload", 403, disabled),
        ("GET /-/quit", 405, "Only POST or PUT requests allowed"),
        ("POST /api/v1/admin/tsdb/snapshot", 500, &error("unavailable", "admin APIs disabled")),
    ];
    check(&ready(&[]), cases).await;
    let cases: &[(&str, u16, &str)] = &[
        ("POST /-/reload", 200, ""),
        ("POST /-/quit", 200, "Requesting termination... Goodbye!"),
        ("POST /-/quit", 200, "Termination already in progress."),
        // The tests have a source without a store.
        (
            "PUT /api/v1/admin/tsdb/delete_series",
            503,
            &error("unavailable", "the store is not open yet"),
        ),
    ];
    check(&ready(&["--web.enable-lifecycle", "--web.enable-admin-api"]), cases).await;
    let missing = ready(&["--web.enable-lifecycle", "--config.file=/nowhere/tessella.yml"]);
    let answer = ask(&missing, "POST", "/-/reload").await;
    assert_eq!(answer.status, 500);
    assert!(answer.text.starts_with("failed to reload config: cannot read"), "{}", answer.text);
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
    ] {
        assert!(text.lines().any(|l| l == line), "{line} is not in\n{text}");
    }
}

#[tokio::test]
async fn status_endpoints_describe_the_server() {
    let router = ready(&[
        "--query.timeout=90s",
        "--storage.retention.time=360h",
        "--storage.url=s3://key:secret@bucket/x",
    ]);
    let data =
        |text: &str| serde_json::from_str::<serde_json::Value>(text).unwrap()["data"].clone();
    let build = data(&ask(&router, "GET", "/api/v1/status/buildinfo").await.text);
    assert!(build["version"].as_str().unwrap().ends_with(env!("CARGO_PKG_VERSION")));
    assert!(build.get("features").is_none());
    let flags = data(&ask(&router, "GET", "/api/v1/status/flags").await.text);
    assert_eq!(flags["query.timeout"], "1m30s");
    assert_eq!(flags["storage.url"], "s3://bucket/x");
    let config = data(&ask(&router, "GET", "/api/v1/status/config").await.text);
    assert_eq!(config["yaml"], "global:\n  evaluation_interval: 1m\n");
    let runtime = data(&ask(&router, "GET", "/api/v1/status/runtimeinfo").await.text);
    assert_eq!(runtime["storageRetention"], "15d");
    assert_eq!(runtime["reloadConfigSuccess"], true);
    let day = &runtime["startTime"].as_str().unwrap()[..8];
    assert!(runtime["lastConfigTime"].as_str().unwrap().starts_with(day), "{runtime}");
}
