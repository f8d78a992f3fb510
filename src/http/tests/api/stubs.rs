//! Stub endpoints and features.

use crate::http::router::router;
use crate::http::tests::{ask, check, error, ready, shared_with};

fn success(data: &str) -> String {
    format!(r#"{{"status":"success","data":{data}}}"#)
}

/// Statuses and texts are those of Prometheus 3.14.
#[tokio::test]
async fn there_is_none_of_what_is_asked_for_and_parameters_are_checked() {
    let router = ready(&[]);
    let ok = [
        ("alertmanagers", r#"{"activeAlertmanagers":[],"droppedAlertmanagers":[]}"#),
        ("alerts", r#"{"alerts":[]}"#),
        ("notifications", "[]"),
        ("status/walreplay", r#"{"min":0,"max":0,"current":0}"#),
        ("scrape_pools", r#"{"scrapePools":[]}"#),
        ("targets", r#"{"activeTargets":[],"droppedTargets":[],"droppedTargetCounts":{}}"#),
        (
            "targets?state=Any",
            r#"{"activeTargets":[],"droppedTargets":[],"droppedTargetCounts":{}}"#,
        ),
        (
            "targets?state=active",
            r#"{"activeTargets":[],"droppedTargets":[],"droppedTargetCounts":null}"#,
        ),
        (
            "targets?state=x",
            r#"{"activeTargets":[],"droppedTargets":[],"droppedTargetCounts":null}"#,
        ),
        ("targets/metadata?match_target=%7Bjob=%22a%22%7D&limit=1&metric=up", "[]"),
        ("rules", r#"{"groups":[]}"#),
        ("rules?type=Alert&rule_name[]=x&file[]=y&match[]=up&exclude_alerts=T", r#"{"groups":[]}"#),
        ("rules?group_limit=5", r#"{"groups":[]}"#),
    ];
    for (path, data) in ok {
        check(&router, &[(&format!("/api/v1/{path}"), 200, &success(data))]).await;
    }
    let wrong = [
        ("targets/metadata?limit=x", "limit must be a number"),
        (
            "targets/metadata?match_target=x%7B",
            r#"invalid parameter \"match_target\": 1:3: parse error: unexpected end of input inside braces"#,
        ),
        ("targets/relabel_steps", "no scrapePool parameter provided"),
        ("targets/relabel_steps?scrapePool=x", "no labels parameter provided"),
        (
            "targets/relabel_steps?scrapePool=x&labels=%7B%7D",
            r#"error retrieving scrape config: scrape pool \"x\" not found"#,
        ),
        ("rules?type=foo", r#"invalid parameter \"type\": not supported value \"foo\""#),
        ("rules?match[]=%7B%7D", "match[] must contain at least one non-empty matcher"),
        (
            "rules?exclude_alerts=x",
            r#"invalid parameter \"exclude_alerts\": error converting exclude_alerts: strconv.ParseBool: parsing \"x\": invalid syntax"#,
        ),
        (
            "rules?group_limit=0",
            r#"invalid parameter \"group_limit\": group_limit needs to be greater than 0"#,
        ),
        (
            "rules?group_limit=x",
            r#"invalid parameter \"group_limit\": group_limit needs to be a valid number: strconv.ParseInt: parsing \"x\": invalid syntax"#,
        ),
        (
            "rules?group_next_token=x",
            r#"invalid parameter \"group_next_token\": group_limit needs to be present in order to paginate over the groups"#,
        ),
        (
            "rules?group_limit=5&group_next_token=x",
            r#"invalid parameter \"group_next_token\": invalid group_next_token 'x'. were rule groups changed?"#,
        ),
        ("rules?a=%zz", r#"error parsing form values: invalid URL escape \"%zz\""#),
        (
            "status/self_metrics?metric_name_pattern=(",
            r#"invalid metric_name_pattern: error parsing regexp: missing closing ): `(`"#,
        ),
    ];
    for (path, message) in wrong {
        let answer = ask(&router, "GET", &format!("/api/v1/{path}")).await;
        assert_eq!(answer.status.as_u16(), 400, "{path}");
        if path.contains("self_metrics") {
            assert!(answer.text.contains("invalid metric_name_pattern: "), "{}", answer.text);
        } else {
            assert_eq!(answer.text, error("bad_data", message), "{path}");
        }
    }
    let live = ask(&router, "GET", "/api/v1/notifications/live").await;
    assert_eq!(
        (live.status.as_u16(), &live.headers["cache-control"]),
        (204, &"no-cache".parse().unwrap())
    );
}

#[tokio::test]
async fn notifications_and_replay_are_told_before_the_store_is_open() {
    let shared = shared_with(&[]);
    let router = router(shared);
    for (path, status) in [
        ("/api/v1/notifications", 200),
        ("/api/v1/notifications/live", 204),
        ("/api/v1/status/walreplay", 200),
        ("/api/v1/rules", 503),
        ("/api/v1/read", 503),
        ("/federate", 503),
    ] {
        let method = if path.ends_with("read") { "POST" } else { "GET" };
        assert_eq!(ask(&router, method, path).await.status.as_u16(), status, "{path}");
    }
}

#[tokio::test]
async fn features_are_those_that_are_on() {
    let features = async |args: &[&str]| {
        let text = ask(&ready(args), "GET", "/api/v1/features").await.text;
        serde_json::from_str::<serde_json::Value>(&text).unwrap()["data"].clone()
    };
    let on = features(&["--web.enable-admin-api", "--web.enable-otlp-receiver"]).await;
    let otlp = (&on["api"]["otlp_write_receiver"], &on["otlp_receiver"]["native_delta_ingestion"]);
    assert_eq!(otlp, (&true.into(), &false.into()));
    assert_eq!((&on["api"]["admin"], &on["api"]["search"]), (&true.into(), &true.into()));
    assert_eq!(on["promql_functions"].as_object().unwrap().len(), engine::catalog::all().len());
    assert_eq!(
        (&on["promql_functions"]["rate"], &on["promql"]["smoothed"]),
        (&true.into(), &true.into())
    );
    assert_eq!(
        (&on["promql_operators"]["</"], &on["promql_operators"]["limitk"]),
        (&true.into(), &true.into())
    );
    let off = features(&["--query.experimental=false", "--query.delayed-name-removal=false"]).await;
    assert_eq!(
        (&off["api"]["admin"], &off["promql"]["delayed_name_removal"]),
        (&false.into(), &false.into())
    );
    assert_eq!(
        (&off["promql_functions"]["rate"], &off["promql_functions"]["info"]),
        (&true.into(), &false.into())
    );
    assert_eq!(
        (&off["promql_operators"]["sum"], &off["promql_operators"]["limitk"]),
        (&true.into(), &false.into())
    );
}

#[tokio::test]
async fn own_metrics_are_told_as_json() {
    let router = ready(&[]);
    ask(&router, "GET", "/api/v1/query?query=1").await;
    let path = "/api/v1/status/self_metrics?metric_name_pattern=";
    let metrics = async |pattern: &str| {
        let text = ask(&router, "GET", &format!("{path}{pattern}")).await.text;
        serde_json::from_str::<serde_json::Value>(&text).unwrap()["data"].clone()
    };
    let ready = metrics("tessella_ready").await;
    assert_eq!(ready.as_array().unwrap().len(), 1);
    assert_eq!(ready[0]["type"], "GAUGE");
    assert_eq!(ready[0]["metric"], serde_json::json!([{"gauge": {"value": 1}}]));
    let requests = metrics("tessella_http_request.*").await;
    let of = |name: &str| {
        let all = requests.as_array().unwrap();
        all.iter().find(|family| family["name"] == name).unwrap()["metric"][0].clone()
    };
    let counted = of("tessella_http_requests_total");
    assert_eq!(counted["counter"], serde_json::json!({"value": 1}));
    assert!(
        counted["label"]
            .as_array()
            .unwrap()
            .contains(&serde_json::json!({"name": "code", "value": "200"}))
    );
    let taken = of("tessella_http_request_duration_seconds");
    assert_eq!(taken["histogram"]["sampleCount"], "1");
    assert!(taken["histogram"]["bucket"][0]["upperBound"].is_number());
    assert!(metrics("").await.as_array().unwrap().len() > 20);
}
