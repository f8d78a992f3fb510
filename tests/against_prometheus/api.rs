//! Endpoints and parameters, compared with a Prometheus over the same series.

use std::time::Duration;

use super::{spawn_prometheus, wait_for};
use serde_json::Value;
use tessella::cli::prometheus;
use testkit::remote_write::{Connection, RequestEncoder, encode_labels};
use testkit::{Server, free_port, get, request};

/// Requests whose answers are the same to the byte. `{now}` is a time in seconds. Which names of
/// metrics a limit leaves is not compared: in Prometheus those that its head saw first.
const PATHS: &[&str] = &[
    "search/metric_names",
    "search/metric_names?limit=5&batch_size=2",
    "search/metric_names?limit=6&batch_size=3&sort_by=alpha&sort_dir=dsc",
    "search/metric_names?search[]=req&include_score=true",
    "search/metric_names?search[]=req&search[]=up&include_score=1&sort_by=score",
    "search/metric_names?search[]=hrt&include_score=true&sort_by=score&limit=3",
    "search/metric_names?search[]=HTTP&case_sensitive=false&include_score=T",
    "search/metric_names?search[]=htp_reqests&fuzz_alg=jarowinkler&fuzz_threshold=70&include_score=1",
    "search/metric_names?search[]=total&fuzz_alg=jarowinkler&include_score=1&sort_by=score",
    "search/metric_names?search[]=r&fuzz_threshold=30&include_score=true",
    "search/metric_names?match[]=up&match[]={code=\"200\"}",
    "search/label_names?search[]=e&include_score=true",
    "search/label_values?label=code&include_score=true",
    "search/label_values?label=path&search[]=a&include_score=true&sort_by=score",
    "search/label_values?label=path&search[]=%C3%A4&include_score=true",
    "search/label_values?label=path&search[]=%C3%A4&fuzz_alg=jarowinkler&fuzz_threshold=20&include_score=true",
    "search/label_values?label=none",
    "search/label_values",
    "search/label_names?sort_by=x",
    "search/label_names?limit=0",
    "search/label_names?limit=20000",
    "search/label_names?start=x",
    "search/label_names?search[]=a&fuzz_threshold=x",
    "labels",
    "labels?limit=2",
    "labels?limit=%2B2",
    "labels?limit=2&match[]=up",
    "labels?limit=0x2",
    "label/path/values?limit=1",
    "label/path/values?limit=3",
    "label/U__http_2e_method/values",
    "label/http.method/values",
    "series?match[]=up&limit=1",
    "query?query=1&time=0x1p-2",
    "query?query=1&time=1_0.5",
    "query?query=1&time=0x10",
    "query?query=1&time=1__0",
    "query_range?query=time()&start=0&end=0x2p0&step=0x1p0",
    "query_range?query=time()&start=0&end=10800&step=1",
    "query?query=count({__name__=~\".%2B\"})&time={now}",
    "rules?type=x",
    "rules?group_limit=0",
    "rules?group_limit=2",
    "rules?exclude_alerts=x",
    "alerts",
    "alertmanagers",
    "notifications",
    "scrape_pools",
    "targets?state=active",
    "targets/metadata?limit=x",
    "targets/relabel_steps",
    "targets/relabel_steps?scrapePool=x&labels={}",
    "status/walreplay",
    "labels?start=&end=",
    "series?match[]=up&end=",
    "query_range?query=1&start=&end=5&step=1",
    "query_range?query=1&start=0&end=5&step=",
    "query?query=1&time=5&timeout=&lookback_delta=",
    "query?query=1&time=5&timeout=Inf",
    "query?query=1&time=5&timeout=-Inf",
    "query?query=1&time=5&timeout=1e300",
    "query?query=1&time=5&timeout=1e400",
    "query?query=1&time=5&timeout=9223372036",
    "query?query=1&time=5&timeout=9223372037",
];

/// Forms in parts: each pair is a field.
const PARTS: &[(&str, &[(&str, &str)])] = &[
    ("query", &[("query", "1 + 1"), ("time", "5")]),
    ("query?time=7", &[("query", "1"), ("time", "5")]),
    ("query_range", &[("query", "time()"), ("start", "0"), ("end", "3"), ("step", "1")]),
    ("format_query", &[("query", "1+1")]),
    ("labels", &[("match[]", "up"), ("limit", "1")]),
    ("query", &[]),
];

/// Flags that the library for command lines adds by itself.
const KINGPIN: &[&str] = &[
    "completion-bash",
    "completion-script-bash",
    "completion-script-zsh",
    "help",
    "help-long",
    "help-man",
    "version",
];

/// Times that do not fit into milliseconds of 64 bits. They wrap around, except in a delete.
const WRAPPING_TIMES: &[&str] = &[
    "NaN",
    "nan",
    "Inf",
    "%2BInf",
    "-Inf",
    "1e300",
    "-1e300",
    "1e19",
    "-1e19",
    "9.3e18",
    "9223372036854774784",
    "-9223372036854775808",
    "9223372036854774784.5",
];

/// Times at and beyond what can be counted, and texts that are none.
const TIMES: &[&str] = &[
    "9223372037",
    "-9223372037",
    "9223372036.855",
    "1e15",
    "-1e15",
    "1e12",
    "292277025-08-18T07:12:54.999999999Z",
    "-292273086-05-16T16:47:06Z",
    "9999-12-31T23:59:59Z",
    "0001-01-01T00:00:00Z",
    "1e400",
    "0x",
];

/// Requests that have a time or a duration in place of `{t}`. A timeout is not among them: once it
/// has passed at the beginning, Prometheus answers with one of three errors, by chance.
const WITH_TIMES: &[&str] = &[
    "query?query=time()&time={t}",
    "query?query=1&time=5&lookback_delta={t}",
    "query_range?query=1&start={t}&end={t}&step=1",
    "query_range?query=1&start=0&end={t}&step=1",
    "query_range?query=1&start={t}&end=0&step=1",
    "query_range?query=1&start=0&end=5&step={t}",
    "query_range?query=time()&start={t}&end={t}&step=9223372036",
    "labels?start={t}",
    "labels?end={t}",
    "labels?start={t}&end={t}",
    "labels?start={t}&match[]=up",
    "labels?end={t}&match[]=up",
    "label/path/values?start={t}",
    "label/path/values?end={t}",
    "label/path/values?start={t}&end={t}&match[]=up",
    "series?match[]=up&start={t}",
    "series?match[]=up&end={t}",
    "series?match[]=up&start={t}&end={t}",
    "query_exemplars?query=up&start={t}",
    "query_exemplars?query=up&end={t}",
    "query_exemplars?query=up&start={t}&end={t}",
    "search/label_names?start={t}",
    "search/label_names?end={t}",
    "POST admin/tsdb/delete_series?match[]=none&start={t}",
    "POST admin/tsdb/delete_series?match[]=none&end={t}",
    "POST admin/tsdb/delete_series?match[]=none&start={t}&end={t}",
    "POST admin/tsdb/delete_series?match[]=none&start=0&end={t}",
];

/// Requests whose range of time ends before it begins, around `{now}` and far off.
const BACKWARDS: &[&str] = &[
    "labels?start={now}&end={before}",
    "labels?start={now}&end={before}&match[]=up",
    "labels?start=10&end=5",
    "labels?start=10&end=5&match[]=up",
    "labels?start={now}&end=5",
    "label/path/values?start={now}&end={before}",
    "label/path/values?start={now}&end={before}&match[]=up",
    "label/path/values?start=10&end=5",
    "series?match[]=up&start={now}&end={before}",
    "series?match[]=up&start=10&end=5",
    "query_exemplars?query=up&start={now}&end={before}",
    "query_range?query=up&start={now}&end={before}&step=1",
    "search/label_names?start={now}&end={before}",
    "POST admin/tsdb/delete_series?match[]=none&start={now}&end={before}",
];

fn ask(address: &str, path: &str) -> (u16, String) {
    let (method, path) = path.split_once(' ').unwrap_or(("GET", path));
    let path = path.replace('"', "%22").replace('{', "%7B").replace('}', "%7D");
    let head = format!(
        "{method} /api/v1/{path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\
         Content-Length: 0\r\n\r\n"
    );
    request(address, &head, &[])
}

#[test]
fn endpoints_and_parameters_are_those_of_prometheus() {
    let Ok(binary) = std::env::var("PROMETHEUS_BINARY") else {
        println!("SKIPPED: PROMETHEUS_BINARY is not set, nothing to compare with");
        return;
    };
    let directory = testkit::temporary_directory("api-against-prometheus");
    let args = ["--self-metrics=false", "--web.enable-admin-api"];
    let server = Server::start(&directory.path().join("tessella"), &args);
    let peer = format!("127.0.0.1:{}", free_port());
    let args = [
        "--web.enable-remote-write-receiver",
        "--web.enable-admin-api",
        "--enable-feature=search-api,exemplar-storage",
    ];
    let prometheus = spawn_prometheus(&binary, directory.path(), &peer, "{}\n", &args);
    wait_for(Duration::from_secs(60), || get(&peer, "/-/ready").0 == 200);

    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
    let time_ms = now.as_millis() as i64 - 5000;
    let mut encoder = RequestEncoder::default();
    for name in ["http_requests_total", "http_request_duration_seconds", "up", "group", "Thread"] {
        for (code, path) in [("200", "/a"), ("404", "/b/a"), ("500", "/ä/<b>")] {
            let labels =
                [("__name__", name), ("code", code), ("http.method", "GET"), ("path", path)];
            encoder.push(&encode_labels(labels), [(time_ms, 1.0)]);
        }
    }
    let mut body = Vec::new();
    encoder.compress(&mut body);
    for address in [&peer, &server.address] {
        assert_eq!(Connection::open(address).unwrap().write(&body).unwrap().0, 204);
    }

    let mut differences = Vec::new();
    let mut compare = |path: String| {
        let (expected, found) = (ask(&peer, &path), ask(&server.address, &path));
        if expected != found {
            differences.push(format!("{path}\n  {expected:?}\n  {found:?}"));
        }
    };
    for path in PATHS {
        compare(path.replace("{now}", &now.as_secs().to_string()));
    }
    for path in WITH_TIMES {
        for time in TIMES {
            compare(path.replace("{t}", time));
        }
        for time in WRAPPING_TIMES {
            let path = path.replace("{t}", time);
            if path.contains("delete_series") {
                // Prometheus deletes samples of another time.
                let (status, text) = ask(&server.address, &path);
                assert!(status == 400 && text.contains("is out of range"), "{path}: {text}");
                assert_eq!(ask(&peer, &path).0, 204, "{path}");
            } else {
                compare(path);
            }
        }
    }
    for path in BACKWARDS {
        let before = now.as_secs() - 3600;
        let path = path.replace("{before}", &before.to_string());
        compare(path.replace("{now}", &now.as_secs().to_string()));
    }
    for (path, fields) in PARTS {
        let mut body = String::new();
        for (name, value) in *fields {
            body.push_str(&format!(
                "--parts\r\nContent-Disposition: form-data; name=\"{name}\"\r\n\r\n{value}\r\n"
            ));
        }
        body.push_str("--parts--\r\n");
        let ask = |address: &str| {
            let length = body.len();
            let head = format!(
                "POST /api/v1/{path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\
                 Content-Type: multipart/form-data; boundary=parts\r\n\
                 Content-Length: {length}\r\n\r\n"
            );
            request(address, &head, body.as_bytes())
        };
        let (expected, found) = (ask(&peer), ask(&server.address));
        if expected != found {
            differences.push(format!("{path} {fields:?}\n  {expected:?}\n  {found:?}"));
        }
    }
    compare_flags(&peer);
    compare_runtime_info(&peer, &server.address);
    drop(prometheus);
    assert!(differences.is_empty(), "{}", differences.join("\n"));
}

/// The fields of the runtime information have the names and types of Prometheus'.
fn compare_runtime_info(peer: &str, address: &str) {
    let [expected, found] = [peer, address].map(|address| {
        let (_, body) = get(address, "/api/v1/status/runtimeinfo");
        let body: Value = serde_json::from_str(&body).unwrap();
        let fields = body["data"].as_object().unwrap().clone();
        let kind = |value: &Value| match value {
            Value::String(_) => "text",
            Value::Number(_) => "number",
            Value::Bool(_) => "flag",
            _ => "other",
        };
        fields.iter().map(|(name, value)| (name.clone(), kind(value))).collect::<Vec<_>>()
    });
    assert_eq!(expected, found);
}

/// Every flag that Prometheus lists is in our table, and there is none in it that it does not list.
fn compare_flags(peer: &str) {
    let listed: Value = serde_json::from_str(&get(peer, "/api/v1/status/flags").1).unwrap();
    let mut listed: Vec<_> = listed["data"].as_object().unwrap().keys().cloned().collect();
    listed.retain(|name| !KINGPIN.contains(&&**name));
    listed.sort_unstable();
    let mut known: Vec<_> = prometheus::FLAGS.iter().map(|flag| flag.name).collect();
    known.sort_unstable();
    assert_eq!(listed, known);
}
