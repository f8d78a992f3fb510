//! Status of the store in the API.

use std::sync::Arc;

use axum::Router;
use axum::body::Body;
use axum::http::Request;
use model::{Batch, Labels, Source as _};
use storage::{ManualClock, Store, StoreOptions};

use crate::http::tests::{ask, check, error, router, send, shared_with};

async fn holding(series: &[(&str, &str, i64)]) -> Router {
    let options = StoreOptions { background: false, ..StoreOptions::default() };
    let store = Store::open("memory:///", options).await.unwrap();
    let mut batch = Batch::default();
    for (name, job, time_ms) in series {
        let labels = Labels::from_pairs([("__name__", *name), ("job", *job)]);
        batch.push(&labels, &[(*time_ms, 1.0), (*time_ms + 5, 2.0)]);
    }
    store.append(batch).await.unwrap();
    let shared = shared_with(&[]);
    shared.set_store(&Arc::new(store));
    router(shared)
}

#[tokio::test]
async fn a_writer_that_takes_no_writes_is_not_ready_and_answers_queries() {
    for (mode, status) in [("writer", 503), ("reader", 200)] {
        let options =
            StoreOptions { background: false, head_bytes_max: 80_000, ..StoreOptions::default() };
        let store = Arc::new(Store::open("memory:///", options).await.unwrap());
        let shared = shared_with(&[&format!("--mode={mode}")]);
        shared.set_store(&store);
        let router = router(shared);
        assert_eq!(ask(&router, "GET", "/-/ready").await.status, 200);
        for time_ms in 0.. {
            let mut batch = Batch::default();
            for series in 0..50 {
                let labels =
                    Labels::from_pairs([("__name__", "m"), ("series", &series.to_string())]);
                batch.push(&labels, &[(time_ms, 1.0)]);
            }
            if store.append(batch).await.is_err() {
                break;
            }
        }
        let answer = ask(&router, "GET", "/-/ready").await;
        assert_eq!(answer.status, status, "{}", answer.text);
        let reason = "No writes are accepted: head memory limit exceeded: ";
        assert_eq!(answer.text.starts_with(reason), status == 503, "{}", answer.text);
        assert_eq!(ask(&router, "GET", "/api/v1/query?query=1").await.status, 200);
    }
}

#[tokio::test]
async fn cardinality_has_the_shape_of_prometheus() {
    // Two days apart, so that one series has two open windows.
    let router = holding(&[
        ("up", "a", 1000),
        ("up", "<b>", 2000),
        ("down", "a", 3000),
        ("down", "a", 172_800_000),
    ])
    .await;
    let whole = concat!(
        r#"{"status":"success","data":{"headStats":{"numSeries":3,"numLabelPairs":4,"#,
        r#""chunkCount":4,"minTime":1000,"maxTime":172800005},"#,
        r#""seriesCountByMetricName":[{"name":"up","value":2},{"name":"down","value":1}],"#,
        r#""labelValueCountByLabelName":[{"name":"__name__","value":2},{"name":"job","value":2}],"#,
        r#""memoryInBytesByLabelName":[{"name":"__name__","value":38},{"name":"job","value":20}],"#,
        r#""seriesCountByLabelValuePair":[{"name":"__name__=up","value":2},"#,
        r#"{"name":"job=a","value":2},{"name":"__name__=down","value":1},"#,
        r#"{"name":"job=\u003cb\u003e","value":1}]}}"#
    );
    let one = concat!(
        r#"{"status":"success","data":{"headStats":{"numSeries":3,"numLabelPairs":4,"#,
        r#""chunkCount":4,"minTime":1000,"maxTime":172800005},"#,
        r#""seriesCountByMetricName":[{"name":"up","value":2}],"#,
        r#""labelValueCountByLabelName":[{"name":"__name__","value":2}],"#,
        r#""memoryInBytesByLabelName":[{"name":"__name__","value":38}],"#,
        r#""seriesCountByLabelValuePair":[{"name":"__name__=up","value":2}]}}"#
    );
    let refused = error("bad_data", "limit must be a positive number");
    let cases = [
        ("/api/v1/status/tsdb", 200, whole),
        ("/api/v1/status/tsdb?limit=1", 200, one),
        ("/api/v1/status/tsdb?limit=0", 400, &refused),
        ("POST /api/v1/status/tsdb", 405, "Method Not Allowed\n"),
    ];
    check(&router, &cases).await;
    let nothing = holding(&[]).await;
    let empty = concat!(
        r#"{"status":"success","data":{"headStats":{"numSeries":0,"numLabelPairs":0,"#,
        r#""chunkCount":0,"minTime":9223372036854775807,"maxTime":-9223372036854775808},"#,
        r#""seriesCountByMetricName":[],"labelValueCountByLabelName":[],"#,
        r#""memoryInBytesByLabelName":[],"seriesCountByLabelValuePair":[]}}"#
    );
    check(&nothing, &[("/api/v1/status/tsdb", 200, empty)]).await;
}

#[tokio::test]
async fn the_store_tells_its_days_and_caches() {
    let router = holding(&[("up", "a", 1000)]).await;
    let answer = ask(&router, "GET", "/api/v1/status/storage").await;
    let read: serde_json::Value = serde_json::from_str(&answer.text).unwrap();
    let data = &read["data"];
    assert_eq!((&data["headSeries"], &data["newestTime"]), (&1.into(), &1005.into()));
    assert_eq!(data["partitions"], serde_json::json!([]));
    assert_eq!(data["role"], "writer");
    let caches: Vec<_> = data["caches"].as_array().unwrap().iter().collect();
    let names: Vec<_> = caches.iter().map(|cache| cache["name"].as_str().unwrap()).collect();
    let expected = [
        "answers",
        "decoded samples",
        "index",
        "lists of days",
        "blocks of files",
        "files on disk",
    ];
    assert_eq!(names, expected);
    assert_eq!(caches[5]["bytesMax"], 0, "there is none");
    assert!(caches[2]["bytesMax"].as_u64().unwrap() > 0);
}

#[tokio::test]
async fn sealed_days_have_their_blocks() {
    let options = StoreOptions { background: false, ..StoreOptions::default() };
    let store = Arc::new(Store::open("memory:///", options).await.unwrap());
    let shared = shared_with(&[]);
    shared.set_store(&store);
    let router = router(shared);
    let empty = r#"{"status":"success","data":{"count":0,"days":[]}}"#;
    check(&router, &[("/api/v1/status/days", 200, empty)]).await;
    for time_ms in [1000, 86_400_000, 86_400_001] {
        let mut batch = Batch::default();
        for name in ["up", "down"] {
            batch.push(&Labels::from_pairs([("__name__", name)]), &[(time_ms, 1.0)]);
        }
        store.append(batch).await.unwrap();
    }
    store.seal_all().await.unwrap();
    let answer = ask(&router, "GET", "/api/v1/status/days?limit=1").await;
    let data = serde_json::from_str::<serde_json::Value>(&answer.text).unwrap()["data"].clone();
    assert_eq!((&data["count"], data["days"].as_array().unwrap().len()), (&2.into(), 1));
    let day = &data["days"][0];
    assert_eq!((&day["start"], &day["end"]), (&86_400_000.into(), &172_800_000.into()));
    assert_eq!((&day["series"], &day["blocks"]), (&2.into(), &2.into()));
    // SlateDB may not have written an SST yet.
    assert!(day["blockBytes"].as_u64().unwrap() > 0 && day["bytes"].is_u64());
    let refused = error("bad_data", "limit must be a positive number");
    check(&router, &[("/api/v1/status/days?limit=0", 400, &refused)]).await;
}

#[tokio::test]
async fn the_store_tells_its_retention_and_growth() {
    const DAY_MS: i64 = 86_400_000;
    let clock = Arc::new(ManualClock::new(20_000 * DAY_MS + 1));
    let options = StoreOptions { background: false, clock, ..StoreOptions::default() };
    let folder = std::env::temp_dir().join(format!("tessella-growth-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let url = format!("--storage.url={}", folder.display());
    for (args, limit, is_limited) in [
        (&[&url[..]][..], "unlimited", false),
        (
            &[&url, "--storage.retention.time=15d", "--storage.retention.size=10GB"],
            "15d or 10GiB",
            true,
        ),
        (&["--storage.url=memory:///"], "unlimited", false),
    ] {
        let store = Arc::new(Store::open("memory:///", options.clone()).await.unwrap());
        let shared = shared_with(args);
        shared.set_store(&store);
        let router = router(shared);
        let retention = async || {
            let answer = ask(&router, "GET", "/api/v1/status/storage").await;
            let read: serde_json::Value = serde_json::from_str(&answer.text).unwrap();
            read["data"]["retention"].clone()
        };
        let young = retention().await;
        assert!(young["growthBytesPerDay"].is_null() && young["fullTime"].is_null(), "{young}");
        for day in 19_996..20_000 {
            let mut batch = Batch::default();
            let samples: Vec<(i64, f64)> =
                (0..5000).map(|n| (day * DAY_MS + n * 1000, (n * n) as f64)).collect();
            batch.push(&Labels::from_pairs([("__name__", "up")]), &samples);
            store.append(batch).await.unwrap();
        }
        store.seal_and_forget().await.unwrap();
        let found = retention().await;
        let growth = found["growthBytesPerDay"].as_u64().unwrap();
        let sizes: Vec<u64> = store.days().iter().map(|day| day.bytes).collect();
        assert_eq!((growth, &found["growthDays"]), (sizes.iter().sum::<u64>() / 4, &4.into()));
        assert!(growth > 0, "{sizes:?}");
        let is_local = args[0] == url;
        assert_eq!(found["freeBytes"].is_u64(), is_local, "{found}");
        assert_eq!(found["limit"].is_string(), is_limited, "{found}");
        // A disk that lasts for a century has no date.
        if is_limited || !is_local {
            assert!(found["fullTime"].is_null(), "{found}");
        }
        let info = ask(&router, "GET", "/api/v1/status/runtimeinfo").await;
        assert!(info.text.contains(&format!("\"storageRetention\":\"{limit}\"")), "{}", info.text);
    }
    std::fs::remove_dir(&folder).unwrap();
}

#[tokio::test]
async fn days_stand_for_blocks() {
    let options = StoreOptions { background: false, ..StoreOptions::default() };
    let store = Arc::new(Store::open("memory:///", options).await.unwrap());
    let shared = shared_with(&[]);
    shared.set_store(&store);
    let router = router(shared);
    let path = "/api/v1/status/tsdb/blocks";
    check(&router, &[(path, 200, r#"{"status":"success","data":{"blocks":[]}}"#)]).await;
    let mut batch = Batch::default();
    for (job, time_ms) in [("a", 86_400_000), ("b", 86_400_000), ("a", 1_700_000_000_000)] {
        batch.push(&Labels::from_pairs([("__name__", "up"), ("job", job)]), &[(time_ms, 1.0)]);
    }
    store.append(batch).await.unwrap();
    store.seal_all().await.unwrap();
    let block = |id: &str, start: i64, series: u32| {
        let end = start + 86_400_000;
        format!(
            "{{\"ulid\":\"{id}\",\"minTime\":{start},\"maxTime\":{end},\"stats\":{{\"numSeries\":{series}}},\
             \"compaction\":{{\"level\":1,\"sources\":[\"{id}\"]}},\"version\":1}}"
        )
    };
    let first = block("00002JCQ000000000000000000", 86_400_000, 2);
    let second = block("01HF5J1D000000000000000000", 1_699_920_000_000, 1);
    let blocks = format!(r#"{{"status":"success","data":{{"blocks":[{first},{second}]}}}}"#);
    check(&router, &[(path, 200, &blocks)]).await;
}

#[tokio::test]
async fn otlp_is_taken_where_it_is_wanted() {
    let path = "/api/v1/otlp/v1/metrics";
    let text = "otlp write receiver needs to be enabled with --web.enable-otlp-receiver\n";
    let off = holding(&[]).await;
    let post = format!("POST {path}");
    check(&off, &[(&*post, 404, text), (path, 405, "Method Not Allowed\n")]).await;

    let options = StoreOptions { background: false, ..StoreOptions::default() };
    let store = Arc::new(Store::open("memory:///", options).await.unwrap());
    let file = std::env::temp_dir().join(format!("tessella-otlp-{}.yml", std::process::id()));
    let config = format!("--config.file={}", file.display());
    let shared = shared_with(&["--web.enable-otlp-receiver", &config]);
    let router = router(Arc::clone(&shared));
    let write = |name: &str| {
        let body = format!(
            r#"{{"resourceMetrics":[{{"scopeMetrics":[{{"metrics":[{{"name":"{name}","gauge":{{"dataPoints":[{{"timeUnixNano":5000000}}]}}}}]}}]}}]}}"#
        );
        let request = Request::post(path).header("content-type", "application/json");
        request.body(Body::from(body)).unwrap()
    };
    assert_eq!(send(&router, write("a.b")).await.status, 503);
    shared.set_store(&store);
    assert_eq!(send(&router, write("a.b")).await.status, 200);
    // The next request uses the reloaded file.
    std::fs::write(&file, "otlp: {translation_strategy: NoTranslation}\n").unwrap();
    shared.reload().unwrap();
    assert_eq!(send(&router, write("c.d")).await.status, 200);
    std::fs::write(&file, "otlp: {translation_strategy: Some}\n").unwrap();
    assert!(shared.reload().is_err());
    assert_eq!(send(&router, write("e.f")).await.status, 200);
    std::fs::remove_file(&file).unwrap();
    let known = store.metadata(None, 10).found;
    let mut names: Vec<_> = known.iter().map(|known| known.metric.to_string()).collect();
    names.sort();
    assert_eq!(names, ["a_b", "c.d", "e.f"]);
}
