//! Series of a day by metric and label.

use std::sync::Arc;

use axum::Router;
use axum::body::Body;
use axum::http::Request;
use model::{Batch, Labels};
use serde_json::{Value, json};
use storage::{Store, StoreOptions};

use crate::http::tests::{ask, error, router, send, shared_with};

const PATH: &str = "/api/v1/status/cardinality";
const DAY_MS: i64 = 86_400_000;

/// Returns a server with series of 1970-01-02 and 1970-01-03; those of the first day are sealed.
async fn holding(flags: &[&str]) -> Router {
    let options = StoreOptions { background: false, ..StoreOptions::default() };
    let store = Arc::new(Store::open("memory:///", options).await.unwrap());
    for (day, series) in [
        (1, &[("up", "a", "x"), ("up", "b", "x"), ("old", "a", "y")][..]),
        (2, &[("up", "a", "x"), ("up", "c", "x"), ("up", "d", "y"), ("new", "a<b", "y")]),
    ] {
        let mut batch = Batch::default();
        for (name, job, tenant) in series {
            let pairs = [("__name__", *name), ("job", *job), ("tenant_id", *tenant)];
            batch.push(&Labels::from_pairs(pairs), &[(day * DAY_MS + 1000, 1.0)]);
        }
        store.append(batch).await.unwrap();
        if day == 1 {
            store.seal_all().await.unwrap();
        }
    }
    let shared = shared_with(flags);
    shared.set_store(&store);
    router(shared)
}

async fn data(router: &Router, parameters: &str) -> Value {
    let answer = ask(router, "GET", &format!("{PATH}?{parameters}")).await;
    assert_eq!(answer.status, 200, "{}", answer.text);
    serde_json::from_str::<Value>(&answer.text).unwrap()["data"].clone()
}

/// Returns names, counts, and counts of the day before.
fn list(data: &Value, name: &str) -> Value {
    let entries = data[name].as_array().unwrap_or_else(|| panic!("no {name} in {data}")).iter();
    entries.map(|entry| json!([entry["name"], entry["value"], entry["before"]])).collect()
}

#[tokio::test]
async fn series_of_a_day_are_counted_and_compared() {
    let router = holding(&[]).await;
    let found = data(&router, "day=1970-01-03&label=job").await;
    assert_eq!(
        [&found["start"], &found["end"], &found["series"], &found["seriesBefore"]],
        [&json!(2 * DAY_MS), &json!(3 * DAY_MS), &json!(4), &json!(3)]
    );
    assert_eq!(found["labelPairs"], 8);
    assert_eq!(list(&found, "seriesCountByMetricName"), json!([["up", 3, 2], ["new", 1, 0]]));
    let labels = json!([["__name__", 4, 3], ["job", 4, 3], ["tenant_id", 4, 3]]);
    assert_eq!(list(&found, "seriesCountByLabelName"), labels);
    let values = json!([["job", 4, 2], ["__name__", 2, 2], ["tenant_id", 2, 2]]);
    assert_eq!(list(&found, "labelValueCountByLabelName"), values);
    let jobs = json!([["a", 1, 2], ["a<b", 1, 0], ["c", 1, 0], ["d", 1, 0]]);
    assert_eq!(list(&found, "seriesCountByFocusLabelValue"), jobs);
    let pair = &found["seriesCountByLabelValuePair"][0];
    assert_eq!(*pair, json!({"name": "__name__=up", "label": "__name__", "value": 3, "before": 2}));

    let one = data(&router, "day=1970-01-02&limit=1&match[]=up").await;
    assert_eq!((&one["series"], &one["seriesBefore"]), (&json!(2), &json!(0)));
    assert_eq!(list(&one, "seriesCountByMetricName"), json!([["up", 2, 0]]));
    assert!(one.get("seriesCountByFocusLabelValue").is_none());
    // Beyond the times of queries.
    for (day, start_s) in [("2611-06-17", 20_242_396_800_i64), ("0001-01-01", -62_135_596_800)] {
        let found = data(&router, &format!("day={day}")).await;
        assert_eq!((&found["start"], &found["series"]), (&json!(start_s * 1000), &json!(0)));
    }
    // Today has no series.
    let today = data(&router, "").await;
    assert_eq!((&today["series"], &today["seriesCountByMetricName"]), (&json!(0), &json!([])));
}

#[tokio::test]
async fn queries_of_metrics_are_noted() {
    let router = holding(&[]).await;
    let used = async || {
        let found = data(&router, "day=1970-01-03").await;
        let metrics = found["seriesCountByMetricName"].as_array().unwrap();
        metrics.iter().map(|one| (one["queries"].clone(), one["lastQueryTime"].clone())).collect()
    };
    let before: Vec<(Value, Value)> = used().await;
    assert_eq!(before, vec![(json!(0), Value::Null); 2]);
    // Lookups are no queries, and a regular expression names no metric.
    for path in ["series?match[]=new", "query?query=rate(up[1h])", "query?query={__name__=~'n.*'}"]
    {
        assert_eq!(ask(&router, "GET", &format!("/api/v1/{path}")).await.status, 200, "{path}");
    }
    let after = used().await;
    assert_eq!((&after[0].0, after[0].1.is_string()), (&json!(1), true));
    assert_eq!(after[1], (json!(0), Value::Null));
}

#[tokio::test]
async fn a_tenant_counts_its_own_series() {
    let router = holding(&["--tenancy.header=X-Scope-OrgID", "--tenancy.label=tenant_id"]).await;
    let ask = async |tenant: &str, path: &str| {
        let request = Request::get(path).header("x-scope-orgid", tenant);
        let answer = send(&router, request.body(Body::empty()).unwrap()).await;
        assert_eq!(answer.status, 200, "{}", answer.text);
        serde_json::from_str::<Value>(&answer.text).unwrap()["data"].clone()
    };
    let path = format!("{PATH}?day=1970-01-03");
    ask("y", "/api/v1/query?query=up").await;
    let found = ask("x", &path).await;
    assert_eq!((&found["series"], &found["seriesBefore"]), (&json!(2), &json!(2)));
    assert_eq!(list(&found, "seriesCountByMetricName"), json!([["up", 2, 2]]));
    assert_eq!(found["seriesCountByMetricName"][0]["queries"], 0);
    let both = ask("x|y", &path).await;
    assert_eq!((&both["series"], &both["seriesBefore"]), (&json!(4), &json!(3)));
    assert_eq!(both["seriesCountByMetricName"][0]["queries"], 1);
}

#[tokio::test]
async fn created_series_are_counted_by_metric() {
    let router = holding(&[]).await;
    let found = async |parameters: &str| {
        let path = format!("/api/v1/status/created_series?{parameters}");
        let answer = ask(&router, "GET", &path).await;
        assert_eq!(answer.status, 200, "{}", answer.text);
        let data = serde_json::from_str::<Value>(&answer.text).unwrap()["data"].clone();
        let hours = data["hours"].as_array().unwrap().clone();
        assert_eq!(hours.len(), 24);
        let sum: u64 = hours.iter().map(|hour| hour["value"].as_u64().unwrap()).sum();
        (data, sum)
    };
    let (all, created) = found("").await;
    assert_eq!((created, &all["others"], all["since"].is_i64()), (6, &json!(0), true));
    let metrics = json!([
        {"name": "up", "value": 4}, {"name": "new", "value": 1}, {"name": "old", "value": 1}
    ]);
    assert_eq!(all["metrics"], metrics);
    assert_eq!(found("metric=up&limit=1").await.1, 4);
    assert_eq!(found("metric=none").await.1, 0);
    assert_eq!(found("limit=1").await.0["metrics"].as_array().unwrap().len(), 1);
    let refused = ask(&router, "GET", "/api/v1/status/created_series?limit=0").await;
    assert_eq!(refused.status, 400);
}

#[tokio::test]
async fn wrong_parameters_are_named() {
    let router = holding(&[]).await;
    let day = |text: &str| {
        format!(r#"invalid parameter \"day\": \"{text}\" is no day: write YYYY-MM-DD"#)
    };
    for (parameters, message) in [
        ("day=yesterday", day("yesterday")),
        ("day=2026-02-31", day("2026-02-31")),
        ("limit=0", "limit must be a positive number".to_owned()),
        (
            "match[]=up&match[]=down",
            r#"invalid parameter \"match[]\": 2 selectors, the limit is 1"#.to_owned(),
        ),
    ] {
        let answer = ask(&router, "GET", &format!("{PATH}?{parameters}")).await;
        assert_eq!((answer.status.as_u16(), answer.text), (400, error("bad_data", &message)));
    }
}
