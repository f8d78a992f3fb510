//! The dashboards and the provisioning of Grafana: every query of every panel runs in the binary,
//! which has the metrics in them.

mod dashboard;
mod exposition;
mod rules;

use std::collections::BTreeSet;
use std::time::{SystemTime, UNIX_EPOCH};

use dashboard::{Dashboard, Kind, Question, filled};
use serde_json::Value;
use testkit::remote_write::{Connection, RequestEncoder, encode_labels};
use testkit::{Server, get, percent_encode, request, temporary_directory};

/// Panels without data in normal operation: dashboard, title, reason.
const EMPTY: [(&str, &str, &str); 1] = [(
    "tessella-overview",
    "Rejected new series",
    "a metric is named once the server has rejected a series of it",
)];

const STEP_SECONDS: i64 = 15;
const SCRAPES: i64 = 20;

/// Returns the time of the clock, in seconds since the epoch.
fn now_seconds() -> i64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs() as i64
}

/// Sends what the panels are about: the metrics of the server and of a machine, as
/// [`SCRAPES`] scrapes would find them until `now`. Counters go up by 7 from one to the next.
fn write_scrapes(server: &Server, now: i64) -> String {
    let (status, own) = get(&server.address, "/metrics");
    assert_eq!(status, 200, "{own}");
    let mut connection = Connection::open(&server.address).unwrap();
    for (text, job) in [(own.as_str(), "tessella"), (include_str!("node_exporter.txt"), "node")] {
        let mut encoder = RequestEncoder::default();
        for series in exposition::parse(text, &[("job", job), ("instance", "127.0.0.1:9090")]) {
            let growth = if series.is_counter { 7.0 } else { 0.0 };
            let samples = (0..SCRAPES).map(|at| {
                let time = (now - (SCRAPES - 1 - at) * STEP_SECONDS) * 1000;
                (time, series.value + growth * at as f64)
            });
            encoder.push(&encode_labels(&series.labels), samples);
        }
        let mut body = Vec::new();
        encoder.compress(&mut body);
        assert_eq!(connection.write(&body).unwrap(), (204, String::new()));
    }
    own
}

/// Does what makes the server show the metrics that are there only once something has happened:
/// an exemplar, a query, one that fails.
fn make_traffic(server: &Server, now: i64) {
    let mut encoder = RequestEncoder::default();
    let labels = encode_labels([("__name__", "traffic_total")]);
    let exemplar = (encode_labels([("trace_id", "1")]), now * 1000, 1.0);
    encoder.push_with_exemplars(&labels, [(now * 1000, 1.0)], [exemplar]);
    let mut body = Vec::new();
    encoder.compress(&mut body);
    let mut connection = Connection::open(&server.address).unwrap();
    assert_eq!(connection.write(&body).unwrap(), (204, String::new()));
    let form = format!("query=traffic_total&start={}&end={now}&step=15", now - 60);
    assert_eq!(post(server, "/api/v1/query_range", &form).0, 200);
    assert_eq!(post(server, "/api/v1/query", "query=traffic_total").0, 200);
    assert_eq!(post(server, "/api/v1/query", "query=traffic_total(").0, 400);
}

fn post(server: &Server, path: &str, form: &str) -> (u16, Value) {
    let head = format!(
        "POST {path} HTTP/1.1\r\nHost: {}\r\nContent-Type: application/x-www-form-urlencoded\r\n\
         Content-Length: {}\r\nConnection: close\r\n\r\n",
        server.address,
        form.len()
    );
    let (status, text) = request(&server.address, &head, form.as_bytes());
    (status, serde_json::from_str(&text).unwrap_or(Value::String(text)))
}

/// Returns the values of a variable, as Grafana queries them.
fn values_of(server: &Server, query: &str, now: i64) -> Vec<String> {
    let inner = query.strip_prefix("label_values(").unwrap().strip_suffix(')').unwrap();
    let (selector, label) = inner.rsplit_once(", ").unwrap();
    let path = format!(
        "/api/v1/label/{label}/values?match%5B%5D={}&start={}&end={now}",
        percent_encode(selector),
        now - 3600
    );
    let (status, text) = get(&server.address, &path);
    assert_eq!(status, 200, "{query}: {text}");
    let answer: Value = serde_json::from_str(&text).unwrap();
    answer["data"].as_array().unwrap().iter().map(|v| v.as_str().unwrap().to_owned()).collect()
}

/// Returns the series of a query with a number among their values; or an error.
fn series_of(server: &Server, question: &Question, now: i64) -> Result<Vec<Value>, String> {
    let query = percent_encode(&question.query);
    let (path, form) = match question.kind {
        Kind::Instant => ("/api/v1/query", format!("query={query}&time={now}")),
        Kind::Range => {
            let start = now - (SCRAPES - 1) * STEP_SECONDS;
            let form = format!("query={query}&start={start}&end={now}&step={STEP_SECONDS}");
            ("/api/v1/query_range", form)
        }
    };
    let (status, answer) = post(server, path, &form);
    if status != 200 || answer["warnings"].is_array() {
        return Err(format!("{status} {answer}"));
    }
    let series = answer["data"]["result"].as_array().unwrap();
    let is_number = |point: &Value| point[1].as_str().unwrap().parse::<f64>().unwrap().is_finite();
    let has_number = |series: &&Value| match series["values"].as_array() {
        Some(points) => points.iter().any(is_number),
        None => is_number(&series["value"]),
    };
    Ok(series.iter().filter(has_number).cloned().collect())
}

/// Returns the error of a query that should have a result.
fn fault_of(server: &Server, question: &Question, now: i64) -> Option<String> {
    let series = match series_of(server, question, now) {
        Ok(series) => series,
        Err(fault) => return Some(fault),
    };
    let is_empty_rightly =
        EMPTY.iter().any(|(uid, title, _)| *uid == question.dashboard && *title == question.title);
    match (series.is_empty(), is_empty_rightly) {
        (true, false) => return Some("no series with a number".to_owned()),
        (false, true) => return Some("returns data: remove it from EMPTY".to_owned()),
        _ => {}
    }
    let missing = |label: &String| series.iter().any(|s| s["metric"].get(label).is_none());
    let label = question.legend_labels.iter().find(|label| missing(label))?;
    Some(format!("the legend names {label}, which a series lacks"))
}

#[test]
fn every_query_of_every_dashboard_has_an_answer() {
    let directory = temporary_directory("grafana");
    let server = Server::start(directory.path(), &["--self-metrics=false"]);
    let now = now_seconds();
    make_traffic(&server, now);
    let own = write_scrapes(&server, now);
    let dashboards = dashboard::all();
    let mut faults = Vec::new();
    let mut count = 0;
    for dashboard in &dashboards {
        let mut variables: Vec<(String, Vec<String>)> = Vec::new();
        for (name, query) in dashboard.queried_variables() {
            let values = values_of(&server, &filled(&query, &variables), now);
            let expected = match name.as_str() {
                "instance" => "127.0.0.1:9090",
                _ if dashboard.uid == "tessella-node" => "node",
                _ => "tessella",
            };
            assert_eq!(values, [expected], "{} of {}", name, dashboard.uid);
            variables.push((name, values));
        }
        for question in dashboard.questions(&variables) {
            count += 1;
            if let Some(fault) = fault_of(&server, &question, now) {
                let Question { dashboard, title, query, .. } = &question;
                faults.push(format!("{dashboard}, {title}: {query}\n    {fault}"));
            }
        }
    }
    assert!(faults.is_empty(), "\n{}", faults.join("\n"));
    println!("{count} queries of {} dashboards", dashboards.len());
    assert!(count > 150, "{count}");
    assert_eq!(metrics_nowhere_shown(&own, &dashboards), BTreeSet::new());
}

/// Maximum number of series that a server writes about itself, after requests of many kinds.
const OWN_SERIES_MAX: usize = 350;

/// Handlers that get one request each, so that the server has series of each.
const ASKED: [&str; 12] = [
    "/api/v1/labels",
    "/api/v1/label/job/values",
    "/api/v1/series?match[]=up",
    "/api/v1/metadata",
    "/api/v1/query_exemplars?query=up",
    "/api/v1/status/tsdb",
    "/api/v1/status/buildinfo",
    "/api/v1/status/config",
    "/api/v1/targets",
    "/api/v1/rules",
    "/federate?match[]=up",
    "/metrics",
];

#[test]
fn dashboards_work_on_self_metrics() {
    let directory = temporary_directory("grafana-own");
    let server = Server::start(directory.path(), &[]);
    make_traffic(&server, now_seconds());
    // One panel shows reasons for which samples were rejected.
    let mut encoder = RequestEncoder::default();
    let an_hour_ahead = (now_seconds() + 3600) * 1000;
    encoder.push(&encode_labels([("__name__", "ahead")]), [(an_hour_ahead, 1.0)]);
    let mut body = Vec::new();
    encoder.compress(&mut body);
    assert_eq!(Connection::open(&server.address).unwrap().write(&body).unwrap().0, 400);
    for path in ASKED {
        assert_eq!(get(&server.address, path).0, 200, "{path}");
    }
    // Two writes, as a rate needs two samples.
    let own = "{__name__!=\"\",job=\"tessella-self\"}";
    let count = |query: String| {
        let (_, answer) =
            post(&server, "/api/v1/query", &format!("query={}", percent_encode(&query)));
        let value = answer["data"]["result"][0]["value"][1].as_str();
        value.map_or(0, |value| value.parse::<usize>().unwrap())
    };
    let asked = "tessella_http_requests_total{job=\"tessella-self\",handler=\"/federate\"}[1h]";
    let started = std::time::Instant::now();
    while count(format!("count_over_time({asked})")) < 2 {
        assert!(started.elapsed() < std::time::Duration::from_secs(300), "{}", server.log());
        std::thread::sleep(std::time::Duration::from_millis(500));
    }
    // The clock is cut to seconds; the last write must not be after the end.
    let now = now_seconds() + 1;
    let series_count = count(format!("count({own})"));
    println!("{series_count} series");
    assert!((100..=OWN_SERIES_MAX).contains(&series_count), "{series_count}");
    let instance = vec![server.address.clone()];
    let variables =
        [("job".to_owned(), vec!["tessella-self".to_owned()]), ("instance".to_owned(), instance)];
    let dashboards = dashboard::all();
    let mut faults = Vec::new();
    for dashboard in dashboards.iter().filter(|dashboard| dashboard.uid != "tessella-node") {
        for question in dashboard.questions(&variables) {
            let is_empty_rightly = EMPTY
                .iter()
                .any(|(uid, title, _)| *uid == question.dashboard && *title == question.title);
            let query = percent_encode(&question.query);
            let form = format!("query={query}&start={}&end={now}&step={STEP_SECONDS}", now - 60);
            let (status, answer) = post(&server, "/api/v1/query_range", &form);
            let has_series = answer["data"]["result"].as_array().is_some_and(|r| !r.is_empty());
            if status != 200 || has_series == is_empty_rightly {
                let Question { dashboard, title, query, .. } = &question;
                faults.push(format!("{dashboard}, {title}: {query}\n    {status} {answer}"));
            }
        }
    }
    assert!(faults.is_empty(), "\n{}", faults.join("\n"));
}

/// Metrics of the server that no dashboard shows.
fn metrics_nowhere_shown(text: &str, dashboards: &[Dashboard]) -> BTreeSet<String> {
    let shown: BTreeSet<String> = dashboards.iter().flat_map(Dashboard::words).collect();
    let is_shown = |name: &str| {
        ["", "_bucket", "_sum", "_count"].iter().any(|end| shown.contains(&format!("{name}{end}")))
    };
    exposition::names(text).filter(|name| !is_shown(name)).map(str::to_owned).collect()
}

#[test]
fn every_panel_is_complete() {
    let dashboards = dashboard::all();
    let faults: Vec<String> = dashboards.iter().flat_map(Dashboard::faults).collect();
    assert!(faults.is_empty(), "\n{}", faults.join("\n"));
    let uids: BTreeSet<&str> = dashboards.iter().map(|d| d.uid.as_str()).collect();
    assert_eq!(
        uids,
        BTreeSet::from([
            "tessella-node",
            "tessella-overview",
            "tessella-queries",
            "tessella-store"
        ])
    );
}

#[test]
fn provisioning_names_the_data_source_as_grafana_knows_it() {
    let read = |path: &str| -> Value {
        let path = dashboard::folder().join("provisioning").join(path);
        serde_saphyr::from_str(&std::fs::read_to_string(path).unwrap()).unwrap()
    };
    let file = read("datasources/tessella.yaml");
    let [source] = file["datasources"].as_array().unwrap().as_slice() else {
        panic!("one data source is expected");
    };
    let expected = [("type", "prometheus"), ("access", "proxy"), ("url", "$TESSELLA_URL")];
    for (key, value) in expected {
        assert_eq!(source[key], value, "{key}");
    }
    let settings = &source["jsonData"];
    let expected = [
        ("httpMethod", "POST"),
        ("prometheusType", "Prometheus"),
        ("prometheusVersion", "2.50.1"),
        ("timeInterval", "15s"),
    ];
    for (key, value) in expected {
        assert_eq!(settings[key], value, "{key}");
    }
    assert_eq!(settings["incrementalQuerying"], false);
    let providers = read("dashboards/tessella.yaml");
    assert_eq!(providers["providers"][0]["type"], "file");
    assert_eq!(providers["providers"][0]["options"]["path"], "/etc/grafana/dashboards");
}
