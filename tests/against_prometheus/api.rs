//! Endpoints and parameters: a real Prometheus and we are asked the same, over the same series.

use std::time::Duration;

use super::remote_write::{Connection, RequestEncoder, encode_labels};
use super::support::{self, Server, free_port, get, request};
use super::{spawn_prometheus, wait_for};

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

#[test]
fn endpoints_and_parameters_are_those_of_prometheus() {
    let Ok(binary) = std::env::var("PROMETHEUS_BINARY") else {
        println!("SKIPPED: PROMETHEUS_BINARY is not set, nothing to compare with");
        return;
    };
    let directory = support::temporary_directory("api-against-prometheus");
    let server = Server::start(&directory.path().join("tessella"), &["--self-metrics=false"]);
    let peer = format!("127.0.0.1:{}", free_port());
    let args = ["--web.enable-remote-write-receiver", "--enable-feature=search-api"];
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
    for path in PATHS {
        let path = path.replace("{now}", &now.as_secs().to_string());
        let path = path.replace('"', "%22").replace('{', "%7B").replace('}', "%7D");
        let path = format!("/api/v1/{path}");
        let (expected, found) = (get(&peer, &path), get(&server.address, &path));
        if expected != found {
            differences.push(format!("{path}\n  {expected:?}\n  {found:?}"));
        }
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
    drop(prometheus);
    assert!(differences.is_empty(), "{}", differences.join("\n"));
}
