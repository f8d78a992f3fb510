//! Queries: responses, errors, annotations, flags of the language, plans and statistics.

use crate::http::tests::{ask, check, error, ready, scalar};

/// Response of the API with one series.
fn vector(labels: &str, value: &str) -> String {
    format!(
        r#"{{"status":"success","data":{{"resultType":"vector","result":[{{"metric":{labels},"value":[1,"{value}"]}}]}}}}"#
    )
}

#[tokio::test]
async fn names_go_at_the_end_or_at_once_as_the_flag_says() {
    // -down, with its name copied to another label.
    let query = "/api/v1/query?time=1&query=label_replace(-down,%22was%22,%22$1%22,%22__name__%22,%22(.%2B)%22)";
    // Two names, one of them rewritten before it goes.
    let twice = "/api/v1/query?time=1&query=sum+by(__name__)(-down)";
    let late = vector(r#"{"job":"a<b","was":"down"}"#, "-1");
    let early = vector(r#"{"job":"a<b"}"#, "-1");
    let cases: &[(&[&str], &str)] = &[
        (&[], &late),
        (&["--query.delayed-name-removal=true"], &late),
        (&["--query.delayed-name-removal=false"], &early),
    ];
    for (args, expected) in cases {
        let router = ready(args);
        let summed = vector("{}", "-1");
        check(&router, &[(query, 200, expected), (twice, 200, &summed)]).await;
    }
}

#[tokio::test]
async fn experiments_are_refused_everywhere_as_the_flag_says() {
    let cases = [
        ("min_of(1,2)", r#"1:1: parse error: function \"min_of\" is not enabled"#),
        (
            "limitk(1,up)",
            "1:1: parse error: limitk() is experimental and must be enabled with \
             --enable-feature=promql-experimental-functions",
        ),
        (
            "rate(up[5m]+smoothed)",
            "1:6: parse error: smoothed modifier is experimental and not enabled",
        ),
        ("up+anchored", "1:1: parse error: anchored modifier is experimental and not enabled"),
        (
            "up%2Bfill(0)+up",
            "1:1: parse error: binop fill modifiers are experimental and not enabled",
        ),
    ];
    let paths = ["query?", "query_range?start=0&end=1&step=1&", "format_query?", "parse_query?"];
    let (all, stable) = (ready(&[]), ready(&["--query.experimental=false"]));
    for (query, message) in cases {
        for path in paths {
            let path = format!("/api/v1/{path}query={query}");
            let understood = ask(&all, "GET", &path).await;
            let refused = ask(&stable, "GET", &path).await;
            // An instant selector with a modifier has its own error after the parser.
            assert!(!understood.text.contains("enabled"), "{path}: {}", understood.text);
            assert_eq!(
                (refused.status.as_u16(), refused.text),
                (400, error("bad_data", &format!(r#"invalid parameter \"query\": {message}"#))),
                "{path}"
            );
        }
    }
    // Prometheus has duration expressions without a flag.
    let durations = "/api/v1/query?time=1&query=count_over_time(vector(1)[2s%2B1s:1s])";
    let count = vector("{}", "3");
    for router in [&all, &stable] {
        check(router, &[(durations, 200, &count)]).await;
    }
    check(&all, &[("/api/v1/query?time=1&query=min_of(2,1)", 200, &scalar("1", "1"))]).await;
}

#[tokio::test]
async fn starts_of_counters_are_used_as_the_flag_says() {
    let query = "/api/v1/query?time=1&query=start_timestamp(up)";
    let count = |text: &str| {
        let read: serde_json::Value = serde_json::from_str(text).unwrap();
        read["data"]["result"].as_array().unwrap().len()
    };
    for (args, expected) in [
        (&[][..], 0),
        (&["--query.use-start-timestamps=false"], 0),
        (&["--query.use-start-timestamps=true"], 2),
    ] {
        let answer = ask(&ready(args), "GET", query).await;
        assert_eq!(count(&answer.text), expected, "{args:?}");
    }
}

#[tokio::test]
async fn the_flags_of_the_language_are_listed() {
    let changed = [
        "--query.delayed-name-removal=false",
        "--query.experimental=false",
        "--query.use-start-timestamps=true",
    ];
    for (args, delayed, experimental, starts) in
        [(&[][..], "true", "true", "false"), (&changed, "false", "false", "true")]
    {
        let text = ask(&ready(args), "GET", "/api/v1/status/flags").await.text;
        let read: serde_json::Value = serde_json::from_str(&text).unwrap();
        assert_eq!(read["data"]["query.delayed-name-removal"], delayed);
        assert_eq!(read["data"]["query.experimental"], experimental);
        assert_eq!(read["data"]["query.use-start-timestamps"], starts);
    }
}

#[tokio::test]
async fn plans_are_explained_with_what_selectors_load() {
    let router = ready(&[]);
    let plan = |answer: &str| {
        let read: serde_json::Value = serde_json::from_str(answer).unwrap();
        (read["data"]["resultType"].clone(), read["data"]["explain"].clone())
    };
    let load = |selector: u32, matcher: &str, series: u32, decoded: u32| {
        serde_json::json!({
            "node": "load", "selector": selector, "matchers": [matcher],
            "start": -298.999, "end": 2, "series": series, "samples": series,
            "samplesDecoded": decoded, "reads": 0, "readBytes": 0, "cachedBytes": 0,
        })
    };
    // Bytes depend on the store.
    let without_bytes = |node: &mut serde_json::Value| {
        let bytes = node.as_object_mut().unwrap().remove("bytes").unwrap();
        assert!(bytes.as_u64().unwrap() > 0);
    };
    /// Removes times of nodes, which differ between runs; a node includes its children.
    fn without_times(node: &mut serde_json::Value) -> f64 {
        let node = node.as_object_mut().unwrap();
        let mut take = |name: &str| node.remove(name).unwrap().as_f64().unwrap();
        let (whole, own) = (take("seconds"), take("ownSeconds"));
        let below: f64 = match node.get_mut("children") {
            Some(children) => children.as_array_mut().unwrap().iter_mut().map(without_times).sum(),
            None => 0.0,
        };
        assert!(own >= 0.0 && (whole - own - below).abs() < 1e-6, "{whole} is not {own} + {below}");
        whole
    }
    let query = "query=sum+by(job)(up)%2Bon(job)down&explain=true";
    let range = format!("/api/v1/query_range?start=1&end=2&step=1&{query}");
    let (kind, mut explained) = plan(&ask(&router, "GET", &range).await.text);
    assert_eq!(kind, "matrix");
    assert!(without_times(&mut explained) > 0.0);
    let binary = &mut explained["children"][0];
    let (left, right) = (&mut binary["children"][0].take(), &mut binary["children"][1].take());
    without_bytes(&mut left["children"][0]["children"][0]);
    without_bytes(&mut right["children"][0]);
    let select = |load: serde_json::Value| {
        serde_json::json!({
            "node": "select", "detail": "newest samples from 1000 to 2000, back 300000 ms",
            "series": load["series"], "children": [load],
        })
    };
    let aggregate = serde_json::json!({
        "node": "aggregate", "detail": "sum by (job)", "series": 2,
        "children": [select(load(0, "__name__=\"up\"", 2, 2))],
    });
    assert_eq!(*left, aggregate);
    // Without a matching series, it is not evaluated.
    assert_eq!(*right, select(load(1, "__name__=\"down\"", 1, 0)));
    assert_eq!((&binary["node"], &binary["detail"]), (&"binary".into(), &"+".into()));
    assert_eq!(explained["node"], "query");
    assert_eq!(explained["detail"], "over 2 steps of 1000 ms from 1000 to 2000");

    let (kind, mut explained) =
        plan(&ask(&router, "GET", "/api/v1/query?time=1&query=1&explain=true").await.text);
    assert_eq!(kind, "scalar");
    without_times(&mut explained);
    assert_eq!(explained["children"][0], serde_json::json!({"node": "number", "detail": "1"}));
    let plain = scalar("1", "1");
    let wrong = r#"invalid parameter \"explain\": neither \"true\" nor \"false\": \"yes\""#;
    check(
        &router,
        &[
            ("/api/v1/query?time=1&query=1", 200, &plain),
            ("/api/v1/query?time=1&query=1&explain=false", 200, &plain),
            ("/api/v1/query?time=1&query=1&explain=yes", 400, &error("bad_data", wrong)),
        ],
    )
    .await;
}

/// Samples that each query sees and reads over the steps 0 s to 6 s, two seconds apart.
///
/// The figures are those of Prometheus 3.14 on the same samples.
#[tokio::test]
async fn samples_are_counted_as_prometheus_does() {
    let router = ready(&[]);
    let cases: &[(&str, [u64; 4], [u64; 4])] = &[
        ("1", [0, 0, 0, 0], [0, 0, 0, 0]),
        ("up", [0, 2, 2, 2], [0, 2, 2, 2]),
        ("sum(up)%2Bcount(up)", [0, 4, 4, 4], [0, 4, 4, 4]),
        ("rate(up[2s])", [0, 2, 0, 0], [0, 2, 0, 0]),
        ("count_over_time(up[4s])", [0, 2, 2, 0], [0, 2, 0, 0]),
        // Nothing matches, but both sides count.
        ("topk(1,up)+and+down", [0, 3, 3, 3], [0, 3, 3, 3]),
        ("timestamp(down)", [0, 1, 1, 1], [0, 1, 1, 1]),
        // Evaluated once, counted at each step.
        ("up+@+1", [2, 2, 2, 2], [2, 0, 0, 0]),
        // Counts the ranges over the subquery, and reads its operand.
        ("max_over_time(down[4s:1s])", [0, 2, 4, 4], [0, 2, 2, 2]),
        ("max_over_time(sum(up)[4s:1s])", [0, 2, 4, 4], [0, 4, 4, 4]),
        ("max_over_time(rate(up[2s])[4s:1s])", [0, 0, 0, 0], [0, 2, 0, 0]),
        ("max_over_time(up[1s:1s])", [0, 2, 2, 2], [0, 2, 2, 2]),
        ("max_over_time(up[4s:1s]+offset+1s)", [0, 2, 6, 8], [0, 2, 4, 4]),
        ("count_over_time(up[1s])", [0, 0, 0, 0], [0, 0, 0, 0]),
        ("rate(up[2s]+anchored)", [0, 2, 2, 2], [0, 2, 0, 0]),
        ("rate(up[2s]+smoothed)", [2, 2, 2, 2], [2, 0, 0, 0]),
        ("rate(up[2s]+anchored)%2Bsum(max_over_time(up[5s]+@+3))", [2, 4, 4, 4], [2, 2, 0, 0]),
        ("up+smoothed", [0, 0, 0, 0], [0, 0, 0, 0]),
    ];
    for (query, seen, read) in cases {
        let path = format!("/api/v1/query_range?start=0&end=6&step=2&stats=all&query={query}");
        let text = ask(&router, "GET", &path).await.text;
        let answer: serde_json::Value = serde_json::from_str(&text).unwrap();
        let samples = &answer["data"]["stats"]["samples"];
        for (name, counts) in [("totalQueryableSamples", seen), ("samplesRead", read)] {
            let steps = counts.iter().enumerate();
            let steps: Vec<_> = steps.map(|(step, n)| serde_json::json!([step * 2, n])).collect();
            assert_eq!(samples[format!("{name}PerStep")], serde_json::json!(steps), "{query}");
            assert_eq!(samples[name], counts.iter().sum::<u64>(), "{name} of {query}");
        }
        assert!(answer["data"]["stats"]["storage"]["reads"].is_u64());
        assert!(samples["peakSamples"].is_u64() && answer["data"]["stats"]["timings"].is_object());
        for stats in ["true", "1"] {
            let text = ask(&router, "GET", &path.replace("=all", &format!("={stats}"))).await.text;
            let answer: serde_json::Value = serde_json::from_str(&text).unwrap();
            let totals = answer["data"]["stats"]["samples"].as_object().unwrap();
            let names: Vec<&str> = totals.keys().map(String::as_str).collect();
            assert_eq!(names, ["peakSamples", "samplesRead", "totalQueryableSamples"], "{query}");
            for name in ["totalQueryableSamples", "samplesRead"] {
                assert_eq!(totals[name], samples[name], "{name} of {query} with stats={stats}");
            }
            // Aggregations may run on several threads, whose peaks differ.
            if matches!(*query, "up" | "rate(up[2s])") {
                assert_eq!(totals["peakSamples"], samples["peakSamples"], "{query}");
            }
        }
    }
    for (query, count) in [("up[2s]", 2), ("down[4s:1s]", 1), ("up", 2)] {
        let path = format!("/api/v1/query?time=1.5&stats=all&query={query}");
        let text = ask(&router, "GET", &path).await.text;
        let samples = format!(
            "\"totalQueryableSamplesPerStep\":[[1.5,{count}]],\"totalQueryableSamples\":{count},\
             \"samplesReadPerStep\":[[1.5,{count}]],\"samplesRead\":{count},\"peakSamples\":"
        );
        assert!(text.contains(&samples), "{query}: {text}");
        let text = ask(&router, "GET", &path.replace("=all", "=true")).await.text;
        assert!(text.contains("totalQueryableSamples") && !text.contains("PerStep"), "{text}");
    }
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
