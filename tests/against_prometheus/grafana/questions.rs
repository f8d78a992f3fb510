//! Queries: every expression in panels of several formats, steps and intervals, and the requests of
//! pages of Grafana and of methods of Prometheus' client.

use serde_json::{Value, json};

use super::data::SCRAPES;
use crate::pair::STEP_SECONDS;
use testkit::percent_encode;

/// Expressions over floats, some of which are errors.
const FLOATS: &[&str] = &[
    "up",
    "http_requests_total{code=~\"2..\"}",
    "rate(http_requests_total[$__rate_interval])",
    "sum by (code) (rate(http_requests_total[$__rate_interval]))",
    "sum(increase(http_requests_total[$__range]))",
    "irate(http_requests_total{handler=\"/a\"}[${__rate_interval}])",
    "rate({\"cpu.seconds.total\"}[5m])",
    "{\"disk.free\", \"mount.point\"=\"/ä b\"} / 1e6",
    "sum by (\"host.name\") ({\"cpu.seconds.total\"})",
    "temperature_celsius",
    "temperature_celsius offset 3m",
    "avg_over_time(temperature_celsius[$__interval])",
    "max by (room) (max_over_time(temperature_celsius[5m:$__interval]))",
    "quantile_over_time(0.9, temperature_celsius[10m])",
    "absent(temperature_celsius{room=\"cellar\"})",
    "changes(temperature_celsius[10m])",
    "resets(http_requests_total[20m])",
    "rate(sum by (code) (http_requests_total)[5m:1m])",
    "topk(2, http_requests_total)",
    "sort_desc(http_requests_total)",
    "count_values(\"version\", build_info)",
    "rate(http_requests_total[1m]) * on (instance) group_left (version) build_info",
    "info(rate(http_requests_total[1m]), {version=~\".+\"})",
    "histogram_quantile(0.9, sum by (le) (rate(request_bytes_bucket[$__rate_interval])))",
    // Without a sort, the order of Prometheus is undefined.
    "sort_by_label(histogram_quantile(0.5, request_bytes_bucket), \"instance\")",
    "sum by (le) (increase(request_bytes_bucket[$__interval]))",
    "request_bytes_sum / request_bytes_count",
    "backup_age_seconds",
    "last_over_time(backup_age_seconds[1h])",
    "label_replace(up, \"host\", \"$1\", \"instance\", \"(.*):.*\")",
    "up == 0",
    "up > bool 0",
    "time()",
    "scalar(sum(up)) + 1",
    "vector(1)",
    "\"text\"",
    "{__name__=~\"up|build_info\"}",
    "temperature_celsius unless on (room) temperature_celsius > 20",
    "sum(rate(http_requests_total[1m]",
    "rate(up)",
    "nothing_at_all",
    "up + on (instance) up{job=\"shop\"} or build_info * on (instance) build_info",
];

/// Regressions and deviations of floats, of rates among them. Their sums are added in another order
/// here, so that what is left of numbers of nearly the same size can differ in its last digits:
/// these alone are compared to nine places.
pub const REORDERED: &[&str] = &[
    "deriv(temperature_celsius{room=\"hall\"}[5m])",
    "predict_linear(temperature_celsius{room=\"hall\"}[5m], 600)",
    "stddev_over_time(temperature_celsius{room!=\"cellar\"}[10m])",
    "max_over_time(deriv(rate(http_requests_total[1m])[2m:30s])[1m:15s])",
    "deriv(rate(http_requests_total[1m])[5m:$__interval])",
    "stddev_over_time(rate(http_requests_total{code=\"200\"}[1m])[5m:15s])",
];

/// Expressions over histograms; `{h}` is one of [`HISTOGRAMS`].
const OF_HISTOGRAMS: &[&str] = &[
    "{h}",
    "rate({h}[$__rate_interval])",
    "sum(rate({h}[5m]))",
    "avg({h})",
    "histogram_quantile(0.95, sum(rate({h}[5m])))",
    "histogram_fraction(0, 10, {h})",
    "histogram_count(increase({h}[$__interval]))",
    "histogram_avg({h})",
    "histogram_stddev(sum_over_time({h}[3m]))",
];

const HISTOGRAMS: &[&str] = &["latency_seconds", "balance", "sizes_bytes", "mixed"];

/// Expressions of exemplar queries.
const WITH_EXEMPLARS: &[&str] = &[
    "rate(http_requests_total[$__rate_interval])",
    "sum by (code) (http_requests_total{code!=\"404\"})",
    "histogram_quantile(0.9, rate(latency_seconds[5m]))",
    "up",
];

/// A window of a panel and how finely it is drawn.
struct Window {
    /// Distance of its end from the end of the samples, and its length, in milliseconds.
    before_ms: i64,
    length_ms: i64,
    /// Minimum step in the settings of the panel.
    interval: &'static str,
    interval_ms: i64,
    points: i64,
    settings: &'static str,
}

const POST: &str = r#"{"httpMethod":"POST","timeInterval":"15s"}"#;
const GET: &str = r#"{"httpMethod":"GET","timeInterval":"30s","queryTimeout":"30s"}"#;

/// Steps are of 15, 6, 120 and 300 seconds.
const WINDOWS: &[Window] = &[
    Window {
        before_ms: 0,
        length_ms: 15 * 60_000,
        interval: "",
        interval_ms: 15_000,
        points: 200,
        settings: POST,
    },
    // Off the steps, across gaps, with steps shorter than the scrape interval.
    Window {
        before_ms: 1_234_567,
        length_ms: 20 * 60_000 + 1,
        interval: "6s",
        interval_ms: 2000,
        points: 1500,
        settings: POST,
    },
    Window {
        before_ms: 0,
        length_ms: 60 * 60_000,
        interval: "$__rate_interval",
        interval_ms: 30_000,
        points: 100,
        settings: GET,
    },
    // From before the first sample to after the last.
    Window {
        before_ms: -10 * 60_000,
        length_ms: 90 * 60_000,
        interval: "$__interval",
        interval_ms: 300_000,
        points: 18,
        settings: POST,
    },
];

/// A query, with its origin for messages.
pub struct Question {
    pub json: Value,
    pub is_reordered: bool,
    /// The response is about the server itself, so that only its presence is compared.
    pub is_own: bool,
}

impl Question {
    fn new(json: Value) -> Question {
        Question { json, is_reordered: false, is_own: false }
    }
}

/// Returns the queries to both servers, in order; `end` is the timestamp of the last samples in
/// seconds.
pub fn of_samples(end: i64) -> Vec<Question> {
    let mut questions = Vec::new();
    for settings in [POST, GET] {
        questions.push(Question::new(json!({ "ask": "health", "settings": parsed(settings) })));
    }
    for expr in FLOATS {
        panels(&mut questions, expr, "time_series", end);
    }
    for expr in REORDERED {
        let before = questions.len();
        panels(&mut questions, expr, "time_series", end);
        questions[before..].iter_mut().for_each(|question| question.is_reordered = true);
    }
    for (histogram, expr) in
        HISTOGRAMS.iter().flat_map(|h| OF_HISTOGRAMS.iter().map(move |e| (h, e)))
    {
        panels(&mut questions, &expr.replace("{h}", histogram), "heatmap", end);
    }
    for (expr, window) in WITH_EXEMPLARS.iter().flat_map(|e| WINDOWS.iter().map(move |w| (e, w))) {
        let model = json!({ "expr": expr, "range": true, "exemplar": true });
        questions.push(panel(model, window, end));
    }
    dashboard_options(&mut questions, end);
    resources(&mut questions, end);
    calls(&mut questions, end);
    questions
}

/// An expression over each window, and at the end of each as a table.
fn panels(questions: &mut Vec<Question>, expr: &str, format: &str, end: i64) {
    for window in WINDOWS {
        let range = json!({ "expr": expr, "format": format, "range": true });
        let instant = json!({ "expr": expr, "format": "table", "instant": true, "range": false });
        questions.push(panel(range, window, end));
        questions.push(panel(instant, window, end));
    }
}

fn panel(mut model: Value, window: &Window, end: i64) -> Question {
    let to = end * 1000 - window.before_ms;
    model["refId"] = "A".into();
    model["interval"] = window.interval.into();
    model["intervalMs"] = window.interval_ms.into();
    Question::new(json!({
        "ask": "query",
        "settings": parsed(window.settings),
        "model": model,
        "maxDataPoints": window.points,
        "intervalMs": window.interval_ms,
        "from": to - window.length_ms,
        "to": to,
    }))
}

fn parsed(settings: &str) -> Value {
    serde_json::from_str(settings).unwrap()
}

fn filter(key: &str, operator: &str, value: &str) -> Value {
    json!({ "key": key, "operator": operator, "value": value })
}

/// Settings of a panel, without its expression.
fn dashboard_options(questions: &mut Vec<Question>, end: i64) {
    let rate = "rate(http_requests_total[$__rate_interval])";
    let no_handler = filter("handler", "regex-not-match", ".*a");
    let no_code = filter("code", "not-equals", "404");
    let scope = json!({ "name": "one", "filters": [filter("instance", "equals", "a:80")] });
    let models = [
        json!({ "expr": rate, "range": true, "instant": true }),
        json!({ "expr": rate, "range": true, "legendFormat": "__auto" }),
        json!({ "expr": rate, "range": true, "legendFormat": "{{instance}} {{code}}" }),
        json!({ "expr": rate, "range": true, "intervalFactor": 4 }),
        json!({ "expr": rate, "range": true, "utcOffsetSec": 19_800 }),
        json!({ "expr": rate, "range": true, "adhocFilters": [filter("code", "equals", "200")] }),
        json!({ "expr": rate, "range": true, "adhocFilters": [no_handler, no_code] }),
        json!({ "expr": format!("sum({rate})"), "range": true, "groupByKeys": ["code"] }),
        json!({ "expr": "latency_seconds", "range": true, "scopes": [scope] }),
    ];
    for (model, window) in models.iter().flat_map(|m| WINDOWS[..2].iter().map(move |w| (m, w))) {
        questions.push(panel(model.clone(), window, end));
    }
}

/// Requests of editors and variables, by either method.
fn resources(questions: &mut Vec<Question>, end: i64) {
    let start = end - (SCRAPES - 1) * STEP_SECONDS;
    let times = format!("start={start}&end={end}");
    let matching = |matcher: &str| format!("match[]={}&{times}", percent_encode(matcher));
    let both = [
        ("api/v1/labels", times.clone()),
        ("api/v1/labels", matching("http_requests_total{code=\"200\"}")),
        ("api/v1/labels", matching("{\"disk.free\"}")),
        ("api/v1/labels", "limit=3".to_owned()),
        ("api/v1/labels", "start=x".to_owned()),
        ("api/v1/series", matching("http_requests_total{handler=\"/a\"}")),
        ("api/v1/series", matching("{__name__=~\"temperature.*|build_info\"}")),
        ("api/v1/series", format!("{}&limit=2", matching("up"))),
        ("api/v1/series", matching("nothing_at_all")),
        ("api/v1/series", matching("{}")),
        ("api/v1/series", times.clone()),
        ("api/v1/query", format!("query=sum(up)&time={end}")),
        ("api/v1/query", "query=sum(".to_owned()),
        ("api/v1/query_range", format!("query=up&{times}&step=60")),
        ("api/v1/query_range", format!("query=up&{times}&step=0")),
        ("api/v1/query_exemplars", format!("query=http_requests_total&{times}")),
        ("api/v1/format_query", "query=sum(rate(up[5m]))by(job)".to_owned()),
        ("api/v1/parse_query", "query=up+/+2".to_owned()),
    ];
    for (path, query) in &both {
        questions.push(resource("GET", path, query, ""));
        questions.push(resource("POST", path, "", query));
    }
    for (path, query) in [
        ("api/v1/label/__name__/values", times.clone()),
        ("api/v1/label/__name__/values", matching("{instance=\"a:80\"}")),
        ("api/v1/label/instance/values", matching("up")),
        ("api/v1/label/code/values", "limit=2".to_owned()),
        ("api/v1/label/U__mount_2e_point/values", times.clone()),
        ("api/v1/label/host.name/values", times.clone()),
        ("api/v1/label/nothing/values", times.clone()),
        ("api/v1/label/code/values", "match[]=up{".to_owned()),
        ("api/v1/rules", String::new()),
        ("api/v1/alerts", String::new()),
    ] {
        questions.push(resource("GET", path, &query, ""));
    }
    let (from, to) = (start.to_string(), end.to_string());
    for suggestion in [
        json!({ "start": from, "end": to }),
        json!({ "labelName": "code", "start": from, "end": to }),
        json!({ "queries": ["rate(http_requests_total[5m]) / up"], "start": from, "end": to }),
        json!({ "labelName": "room", "queries": ["temperature_celsius"], "limit": 2 }),
        json!({ "labelName": "__name__", "limit": 5 }),
        json!({ "labelName": "version", "scopes": [filter("instance", "equals", "a:80")] }),
        json!({ "queries": ["up"], "adhocFilters": [filter("job", "regex-match", "s.*")] }),
    ] {
        questions.push(resource("POST", "suggestions", "", &suggestion.to_string()));
    }
}

fn resource(method: &str, path: &str, query: &str, body: &str) -> Question {
    Question::new(json!({
        "ask": "resource",
        "settings": parsed(POST),
        "method": method,
        "path": path,
        "query": query,
        "body": body,
    }))
}

/// The methods of Prometheus' client.
fn calls(questions: &mut Vec<Question>, end: i64) {
    let (from, to) = ((end - (SCRAPES - 1) * STEP_SECONDS) * 1000, end * 1000);
    let mut push = |name: &str, arguments: Value| {
        let mut question = json!({ "ask": "call", "call": name, "from": from, "to": to });
        question.as_object_mut().unwrap().extend(arguments.as_object().unwrap().clone());
        let is_own = ["Buildinfo", "Runtimeinfo", "Config", "Flags", "Snapshot"].contains(&name);
        questions.push(Question { json: question, is_reordered: false, is_own });
    };
    let exprs = FLOATS.iter().chain(HISTOGRAMS).filter(|expr| !expr.contains("__"));
    for expr in exprs {
        push("Query", json!({ "expr": expr }));
        push("QueryRange", json!({ "expr": expr, "stepMs": 61_500 }));
    }
    push("QueryRange", json!({ "expr": "up", "stepMs": 1 }));
    push("Query", json!({ "expr": "up", "limit": 1 }));
    for expr in WITH_EXEMPLARS.iter().filter(|expr| !expr.contains('$')) {
        push("QueryExemplars", json!({ "expr": expr }));
    }
    for matches in [&["up"][..], &["{\"disk.free\"}", "build_info"], &["up{"], &[]] {
        push("Series", json!({ "matches": matches }));
        push("LabelNames", json!({ "matches": matches }));
        push("LabelValues", json!({ "label": "instance", "matches": matches, "limit": 1 }));
    }
    push("LabelValues", json!({ "label": "mount.point" }));
    for name in ["Alerts", "AlertManagers", "Rules", "Targets", "WalReplay"] {
        push(name, json!({}));
    }
    push("TargetsMetadata", json!({ "expr": "{job=\"shop\"}", "metric": "up", "limit": 3 }));
    for name in ["Buildinfo", "Runtimeinfo", "Config", "Flags"] {
        push(name, json!({}));
    }
    // Prometheus does not define which of several equal values a lower limit omits.
    push("TSDB", json!({ "limit": 1000 }));
    // These change the stored data.
    push("Snapshot", json!({}));
    push("DeleteSeries", json!({ "matches": ["temperature_celsius{room=\"hall\"}"] }));
    push("Query", json!({ "expr": "count_over_time(temperature_celsius[1h])" }));
    push("CleanTombstones", json!({}));
    push("QueryRange", json!({ "expr": "temperature_celsius", "stepMs": 60_000 }));
}

/// Requests for metadata.
pub fn of_metadata() -> Vec<Question> {
    let mut questions = Vec::new();
    for query in [
        "",
        "metric=latency_seconds",
        "metric=disk.free",
        "metric=nothing",
        "limit=1&metric=balance",
        "limit=x",
    ] {
        questions.push(resource("GET", "api/v1/metadata", query, ""));
    }
    for metric in ["", "http_requests", "nothing"] {
        questions
            .push(Question::new(json!({ "ask": "call", "call": "Metadata", "metric": metric })));
    }
    questions
}
