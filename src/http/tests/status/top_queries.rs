//! Costs of queries by text.

use serde_json::{Value, json};

use crate::http::tests::{ask, error, ready};

const PATH: &str = "/api/v1/status/top_queries";

async fn list(router: &axum::Router, parameters: &str) -> Value {
    let answer = ask(router, "GET", &format!("{PATH}?{parameters}")).await;
    assert_eq!(answer.status, 200, "{}", answer.text);
    serde_json::from_str::<Value>(&answer.text).unwrap()["data"].clone()
}

fn texts(data: &Value) -> Vec<&str> {
    let queries = data["queries"].as_array().unwrap();
    queries.iter().map(|query| query["query"].as_str().unwrap()).collect()
}

#[tokio::test]
async fn costs_of_queries_are_added_by_text() {
    let router = ready(&[]);
    assert_eq!(list(&router, "").await["queries"], json!([]));
    for path in [
        "query?query=up&time=1",
        "query?query=up&time=1",
        "query_range?query=up&start=0&end=4&step=2",
        "query?query=unavailable",
        "query?query=unavailable",
        "query?query=down&time=1",
        // Not counted: these do not parse.
        "query?query=up(",
        "query?query=rate(up)",
    ] {
        ask(&router, "GET", &format!("/api/v1/{path}")).await;
    }
    let data = list(&router, "sort=count").await;
    assert_eq!(texts(&data), ["up", "unavailable", "down"]);
    let (up, failed) = (&data["queries"][0], &data["queries"][1]);
    assert_eq!((&up["count"], &up["failures"]), (&json!(3), &json!(0)));
    // The times of the last evaluation.
    assert_eq!([&up["start"], &up["end"], &up["step"]], [&json!(0), &json!(4), &json!(2)]);
    assert!(up["samples"].as_u64() > Some(0) && up["bytes"].is_u64(), "{up}");
    let (total, longest) = (up["seconds"].as_f64().unwrap(), up["secondsMax"].as_f64().unwrap());
    assert!(longest > 0.0 && longest <= total && total <= 3.0 * longest, "{up}");
    assert_eq!((&failed["count"], &failed["failures"]), (&json!(2), &json!(2)));
    assert!(up["lastTime"].is_string() && data["since"].is_string() && up.get("tenants").is_none());
    for sort in ["seconds", "samples", "bytes"] {
        let data = list(&router, &format!("sort={sort}")).await;
        let values = data["queries"].as_array().unwrap().iter().map(|one| one[sort].as_f64());
        assert!(values.is_sorted_by(|a, b| a >= b), "{data}");
    }
    let first = list(&router, "sort=count&limit=1").await;
    assert_eq!((texts(&first), &first["count"]), (vec!["up"], &json!(3)));
    assert_eq!(texts(&list(&router, "limit=0").await).len(), 3);
}

#[tokio::test]
async fn wrong_parameters_are_named() {
    let router = ready(&[]);
    for (parameters, message) in [
        (
            "sort=name",
            r#"invalid parameter \"sort\": \"name\" is none of seconds, samples, bytes, count"#,
        ),
        ("limit=-1", r#"invalid parameter \"limit\": limit must be non-negative"#),
    ] {
        let answer = ask(&router, "GET", &format!("{PATH}?{parameters}")).await;
        assert_eq!((answer.status.as_u16(), answer.text), (400, error("bad_data", message)));
    }
}
