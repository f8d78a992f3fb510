//! Admin endpoints on a store.

use axum::response::IntoResponse;
use model::{Batch, Labels};
use storage::{Store, StoreError, StoreOptions};

use crate::http::tests::*;

fn success(data: &str) -> String {
    format!(r#"{{"status":"success","data":{data}}}"#)
}

async fn with_store(args: &[&str]) -> (axum::Router, Arc<Store>) {
    let shared = shared_with(args);
    let options = StoreOptions { background: false, ..StoreOptions::default() };
    let store = Arc::new(Store::open("memory:///", options).await.unwrap());
    let mut batch = Batch::default();
    for job in ["x", "y"] {
        let labels = Labels::from_pairs([("__name__", "up"), ("job", job)]);
        batch.push(&labels, &[(1000, 1.0), (2000, 2.0)]);
    }
    store.append(batch).await.unwrap();
    shared.set_store(&store);
    (router(shared), store)
}

#[tokio::test]
async fn deletes_are_answered_as_prometheus_does() {
    let (router, _store) = with_store(&["--web.enable-admin-api"]).await;
    let path = "/api/v1/admin/tsdb/delete_series";
    let cases: &[(&str, u16, &str)] = &[
        (&format!("POST {path}"), 400, &error("bad_data", "no match[] parameter provided")),
        (
            &format!("POST {path}?match[]=up&start=x"),
            400,
            &error(
                "bad_data",
                "invalid parameter \\\"start\\\": invalid time value for 'start': cannot parse \
                 \\\"x\\\" to a valid timestamp",
            ),
        ),
        (&format!("PUT {path}?match[]=up{{job=%22x%22}}&start=2&end=3"), 204, ""),
        (
            "GET /api/v1/series?match[]=up&start=1.5&end=3",
            200,
            &success(r#"[{"__name__":"up","job":"y"}]"#),
        ),
        (&format!("POST {path}?match[]=up{{job=%22y%22}}&match[]=gone"), 204, ""),
        ("GET /api/v1/series?match[]=up", 200, &success(r#"[{"__name__":"up","job":"x"}]"#)),
        ("POST /api/v1/admin/tsdb/clean_tombstones", 204, ""),
        (&format!("POST {path}?match[]=up&start=5&end=1"), 204, ""),
        ("GET /api/v1/series?match[]=up", 200, &success(r#"[{"__name__":"up","job":"x"}]"#)),
        (&format!("GET {path}?match[]=up"), 405, "Method Not Allowed\n"),
        (&format!("POST {path}?match[]={{}}"), 204, ""),
        ("GET /api/v1/series?match[]=up", 200, &success(r#"[{"__name__":"up","job":"x"}]"#)),
        (&format!("POST {path}?match[]={{__name__=~%22.%2B%22}}"), 204, ""),
        ("GET /api/v1/series?match[]=up", 200, &success("[]")),
    ];
    check(&router, cases).await;
    let answer = ask(&router, "POST", &format!("{path}?match[]=up{{")).await;
    assert_eq!(answer.status, 400);
    assert!(answer.text.contains("invalid parameter \\\"match[]\\\""), "{}", answer.text);
}

#[tokio::test]
async fn a_delete_with_times_out_of_range_deletes_nothing() {
    let (router, _store) = with_store(&["--web.enable-admin-api"]).await;
    let series = ask(&router, "GET", "/api/v1/series?match[]=up").await.text;
    assert!(series.contains("up"), "{series}");
    for times in ["start=1e16&end=2e16", "start=-2e16", "start=NaN", "end=1e308"] {
        let path = format!("/api/v1/admin/tsdb/delete_series?match[]=up&{times}");
        let answer = ask(&router, "POST", &path).await;
        assert_eq!(answer.status, 400, "{times}");
        assert!(answer.text.contains("is out of range"), "{}", answer.text);
    }
    assert_eq!(ask(&router, "GET", "/api/v1/series?match[]=up").await.text, series);
}

#[tokio::test]
async fn snapshots_have_names_of_their_own() {
    let (router, _store) = with_store(&["--web.enable-admin-api"]).await;
    let mut names = std::collections::HashSet::new();
    for query in ["", "?skip_head=true", "?skip_head=0"] {
        let path = format!("/api/v1/admin/tsdb/snapshot{query}");
        let answer = ask(&router, "POST", &path).await;
        assert_eq!(answer.status, 200, "{}", answer.text);
        let name = answer.text.strip_prefix(r#"{"status":"success","data":{"name":""#);
        let name = name.and_then(|rest| rest.strip_suffix(r#""}}"#)).expect("a name");
        let (time, random) = name.split_once("Z-").expect("a time and a number");
        assert_eq!((time.len(), random.len()), (15, 16), "{name}");
        assert!(names.insert(name.to_owned()));
    }
    let answer = ask(&router, "POST", "/api/v1/admin/tsdb/snapshot?skip_head=maybe").await;
    assert_eq!(answer.status, 400);
    let expected = "invalid parameter \\\"skip_head\\\": unable to parse boolean: \
                    strconv.ParseBool: parsing \\\"maybe\\\": invalid syntax";
    assert_eq!(answer.text, error("bad_data", expected));
}

#[tokio::test]
async fn the_store_fails_as_that_of_prometheus_does() {
    let (router, store) = with_store(&["--web.enable-admin-api"]).await;
    let path = "/api/v1/admin/tsdb/delete_series";
    for _ in 0..storage::TOMBSTONES_MAX {
        store.delete(vec![vec![model::Matcher::equal("a", "b")]], 0, 1).await.unwrap();
    }
    let answer = ask(&router, "POST", &format!("{path}?match[]=up")).await;
    assert!(answer.status == 500 && answer.text.contains(r#""errorType":"internal""#));
    assert!(answer.text.contains("clean tombstones first"), "{}", answer.text);
    store.close().await.unwrap();
    let closed = error("internal", "the store is closed");
    let cases: &[(&str, u16, &str)] = &[
        (&format!("POST {path}?match[]=up"), 500, &closed),
        ("POST /api/v1/admin/tsdb/clean_tombstones", 500, &closed),
        (
            "POST /api/v1/admin/tsdb/snapshot",
            500,
            &error("internal", "create snapshot: the store is closed"),
        ),
    ];
    check(&router, cases).await;
    for (error, status, name) in [
        (StoreError::LimitExceeded(String::new()), 400, "bad_data"),
        (StoreError::Unavailable(String::new()), 503, "unavailable"),
        (StoreError::Overloaded { waiting: 2, limit: 1 }, 503, "unavailable"),
        (StoreError::Fenced, 500, "internal"),
    ] {
        let error = crate::http::error::ApiError::from(error);
        assert_eq!(error.error_type(), name);
        assert_eq!(error.about("x").into_response().status(), status);
    }
}

#[tokio::test]
async fn nothing_is_deleted_without_the_flag() {
    let (router, _store) = with_store(&[]).await;
    let disabled = error("unavailable", "admin APIs disabled");
    let cases: &[(&str, u16, &str)] = &[
        ("POST /api/v1/admin/tsdb/delete_series?match[]=up", 500, &disabled),
        ("PUT /api/v1/admin/tsdb/clean_tombstones", 500, &disabled),
        ("POST /api/v1/admin/tsdb/snapshot", 500, &disabled),
    ];
    check(&router, cases).await;
}

#[tokio::test]
async fn old_samples_are_replaced_by_summaries_after_a_reload() {
    const HOUR_MS: i64 = 3_600_000;
    const NOW_MS: i64 = 480_000 * HOUR_MS;
    let folder = testkit::temporary_directory("retention-of-samples");
    let file = folder.path().join("tessella.yml");
    std::fs::write(&file, "").unwrap();
    let config = format!("--config.file={}", file.display());
    let shared = shared_with(&[&config, "--web.enable-admin-api", "--web.enable-lifecycle"]);
    let options = StoreOptions {
        background: false,
        retention_confirmation: std::time::Duration::ZERO,
        clock: Arc::new(storage::ManualClock::new(NOW_MS)),
        ..StoreOptions::default()
    };
    let store = Arc::new(Store::open("memory:///", options).await.unwrap());
    let mut batch = Batch::default();
    let samples = (0..4 * 24 * 60).map(|n| (NOW_MS - n * 60_000, 1e6 - n as f64));
    let samples: Vec<(i64, f64)> = samples.rev().collect();
    batch.push(&Labels::from_pairs([("__name__", "sent_total")]), &samples);
    store.append(batch).await.unwrap();
    store.seal_all().await.unwrap();
    shared.set_store(&store);
    let router = router(shared);
    let seconds = |hours: i64| (NOW_MS - hours * HOUR_MS) / 1000;
    let range = |step: i64| {
        let (query, start, end) = ("sum(increase(sent_total[1h]))", seconds(94), seconds(0));
        format!("/api/v1/query_range?query={query}&start={start}&end={end}&step={step}")
    };
    let before = ask(&router, "GET", &range(3600)).await;
    assert_eq!((before.status, before.text.matches("\"60\"").count()), (StatusCode::OK, 95));
    std::fs::write(&file, "storage: {retention: {samples: 1d, summaries: 90d}}").unwrap();
    assert_eq!(ask(&router, "POST", "/-/reload").await.status, 200);
    store.maintain().await.unwrap();
    assert_eq!(ask(&router, "GET", &range(3600)).await.text, before.text);
    let finer = ask(&router, "GET", &range(1800)).await;
    assert_eq!(finer.status, 422);
    let first = "only summaries of hours are kept of the samples of ";
    assert!(finer.text.contains("\"execution\"") && finer.text.contains(first), "{}", finer.text);
    let delete = "/api/v1/admin/tsdb/delete_series?match[]=sent_total";
    let refused = ask(&router, "POST", &format!("{delete}&end={}", seconds(71))).await;
    assert_eq!(refused.status, 400);
    assert!(refused.text.contains("must cover whole windows of two hours"), "{}", refused.text);
    let status = ask(&router, "GET", "/api/v1/status/storage").await.text;
    assert!(status.contains(r#""limit":"90d","samples":"1d""#), "{status}");
    assert_eq!(ask(&router, "POST", delete).await.status, 204);
    assert!(ask(&router, "GET", &range(3600)).await.text.contains(r#""result":[]"#));
}
