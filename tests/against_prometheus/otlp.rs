//! Random metrics of all kinds by OTLP, in protobuf and JSON, to Prometheus and to the binary, then
//! queries for all of them.

use std::io::Write as _;
use std::path::Path;
use std::time::Duration;

use prost::Message as _;
use serde_json::Value as Json;

use super::answers::same_answer;
use super::{spawn_prometheus, wait_for};
use testkit::otlppb::{
    self, Buckets, CUMULATIVE, Data, ExponentialPoint, Exponentials, Generator, Metric, Number,
    NumberPoint, Numbers, Request, attribute, metric, text,
};
use testkit::{Child, Server, free_port, get, percent_encode};

const PATH: &str = "/api/v1/otlp/v1/metrics";
const PROTOBUF: &str = "application/x-protobuf";
const JSON: &str = "application/json";

/// Number of random requests for each setting.
const REQUESTS: u64 = 12;

/// Sections `otlp` of the configuration.
const SETTINGS: [&str; 6] = [
    "{}",
    "{translation_strategy: UnderscoreEscapingWithoutSuffixes, promote_resource_attributes: \
     [cloud.region, a b, _x, ünï, host.name], keep_identifying_resource_attributes: true}",
    "{translation_strategy: NoUTF8EscapingWithSuffixes, promote_all_resource_attributes: true, \
     ignore_resource_attributes: [cloud.region, host.name], promote_scope_metadata: true}",
    "{translation_strategy: NoTranslation, convert_histograms_to_nhcb: true, \
     promote_scope_metadata: true}",
    "{convert_histograms_to_nhcb: true, promote_all_resource_attributes: true, \
     label_name_underscore_sanitization: false, label_name_preserve_multiple_underscores: false}",
    "{promote_scope_metadata: true, label_name_preserve_multiple_underscores: false, \
     keep_identifying_resource_attributes: true}",
];

/// A Prometheus and a server of ours with the same settings.
struct Pair {
    _prometheus: Child,
    peer: String,
    server: Server,
}

impl Pair {
    fn start(binary: &str, directory: &Path, otlp: &str) -> Pair {
        std::fs::create_dir_all(directory).unwrap();
        let peer = format!("127.0.0.1:{}", free_port());
        let config = format!("otlp: {otlp}\n");
        let args = [
            "--web.enable-otlp-receiver",
            "--enable-feature=exemplar-storage,st-storage,use-start-timestamps,xor2-encoding,\
             histograms-st-encoding,promql-experimental-functions",
        ];
        let prometheus = spawn_prometheus(binary, directory, &peer, &config, &args);
        let file = directory.join("tessella.yml");
        std::fs::write(&file, config).unwrap();
        let server = Server::start(
            &directory.join("tessella"),
            &[
                "--self-metrics=false",
                "--web.enable-otlp-receiver",
                "--query.use-start-timestamps=true",
                &format!("--config.file={}", file.display()),
            ],
        );
        wait_for(Duration::from_secs(60), || get(&peer, "/-/ready").0 == 200);
        Pair { _prometheus: prometheus, peer, server }
    }

    fn both(&self) -> [&str; 2] {
        [&self.peer, &self.server.address]
    }

    /// Sends a request to both and returns their responses.
    fn send(&self, content_type: &str, encoding: &str, body: &[u8]) -> [(u16, String); 2] {
        self.both().map(|address| post(address, content_type, encoding, body))
    }

    /// Sends a valid request to both, in a random encoding.
    fn send_good(&self, generator: &mut Generator, request: &Request) {
        let (content_type, mut body) = match generator.below(2) {
            0 => (PROTOBUF, request.encode_to_vec()),
            _ => (JSON, request.to_json().to_string().into_bytes()),
        };
        let encoding = if generator.below(2) == 0 { "gzip" } else { "" };
        if encoding == "gzip" {
            body = gzip(&body);
        }
        let [expected, found] = self.send(content_type, encoding, &body);
        assert_eq!(expected, (200, String::new()), "{request:?}");
        assert_eq!(found, expected, "{request:?}");
    }

    /// Compares the responses to a path.
    fn compare(&self, path: &str) -> Result<String, String> {
        let [expected, found] = self.both().map(|address| sorted(get(address, path)));
        same_answer(&expected, &found).map_err(|difference| format!("{path}\n  {difference}"))?;
        Ok(found.1)
    }
}

fn post(address: &str, content_type: &str, encoding: &str, body: &[u8]) -> (u16, String) {
    let encoding = match encoding {
        "" => String::new(),
        encoding => format!("Content-Encoding: {encoding}\r\n"),
    };
    let head = format!(
        "POST {PATH} HTTP/1.1\r\nHost: {address}\r\nContent-Type: {content_type}\r\n{encoding}\
         Content-Length: {}\r\nConnection: close\r\n\r\n",
        body.len()
    );
    testkit::request(address, &head, body)
}

fn gzip(body: &[u8]) -> Vec<u8> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    encoder.write_all(body).unwrap();
    encoder.finish().unwrap()
}

/// Sorts the series of a response by their labels.
fn sorted((status, body): (u16, String)) -> (u16, String) {
    let mut json: Json = serde_json::from_str(&body).unwrap_or_default();
    let list = match &mut json["data"] {
        list @ Json::Array(_) => list,
        data => &mut data["result"],
    };
    if let Some(series) = list.as_array_mut() {
        series.sort_by_cached_key(|series| match &series["metric"] {
            Json::Null => series.to_string(),
            labels => labels.to_string(),
        });
    }
    (status, json.to_string())
}

fn now_ns() -> u64 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    since.unwrap().as_nanos() as u64
}

/// Returns the path in `PROMETHEUS_BINARY`; `None`, with a message, if it is not set.
fn prometheus() -> Option<String> {
    let binary = std::env::var("PROMETHEUS_BINARY").ok();
    if binary.is_none() {
        println!("SKIPPED: PROMETHEUS_BINARY is not set, nothing to compare with");
    }
    binary
}

#[test]
fn otlp_is_translated_as_by_prometheus() {
    let Some(binary) = prometheus() else { return };
    let directory = testkit::temporary_directory("otlp-against-prometheus");
    let mut differences = Vec::new();
    for (number, otlp) in (0..).zip(SETTINGS) {
        let pair = Pair::start(&binary, &directory.path().join(number.to_string()), otlp);
        let start_ns = now_ns() - 1_800_000_000_000;
        let mut generator = Generator::new(11 + number, start_ns);
        for _ in 0..REQUESTS {
            let request = generator.request();
            pair.send_good(&mut generator, &request);
        }
        pair.send_good(&mut generator, &long(now_ns() - 1_300_000_000_000));
        let all = percent_encode("{__name__=~\".+\"}");
        let range = percent_encode("{__name__=~\".+\"}[40m]");
        let end = now_ns() / 1_000_000_000;
        let start = end - 2400;
        let mut paths = vec![
            format!("/api/v1/query?query={range}&time={end}"),
            format!("/api/v1/series?match[]={all}&start={start}&end={end}"),
            format!("/api/v1/query_exemplars?query={all}&start={start}&end={end}"),
        ];
        let starts = percent_encode("start_timestamp({__name__=~\".+\"})");
        paths.extend(
            (start..end)
                .step_by(60)
                .map(|time| format!("/api/v1/query?query={starts}&time={time}")),
        );
        let mut answers = Vec::new();
        for path in &paths {
            match pair.compare(path) {
                Ok(answer) => answers.push(answer),
                Err(difference) => differences.push(format!("{otlp}\n  {difference}")),
            }
        }
        // The comparison must not be empty.
        let text = answers.concat();
        for part in
            ["\"histograms\"", "\"value\":[", "trace_id", "target_info", "\"quantile\"", "\"le\""]
        {
            let has_classic = !otlp.contains("nhcb") || part != "\"le\"";
            assert!(
                text.contains(part) || !has_classic || !differences.is_empty(),
                "{otlp}: no {part}"
            );
        }
    }
    let shown: Vec<_> =
        differences.iter().map(|d| d.chars().take(3000).collect::<String>()).collect();
    assert!(differences.is_empty(), "{} differences:\n{}", differences.len(), shown.join("\n"));
}

/// A resource whose data points lie many lookbacks apart.
fn long(start_ns: u64) -> Request {
    let point = |later: u64| NumberPoint {
        time_ns: start_ns + later * 1_000_000_001,
        value: Some(Number::Double(later as f64)),
        ..NumberPoint::default()
    };
    let data_points = vec![point(0), point(100), point(1200)];
    let numbers = Numbers { data_points, ..Numbers::default() };
    let attributes = vec![text("service.name", "long"), text("region", "eu")];
    otlppb::request(attributes, vec![metric("long", "", Data::Gauge(numbers))])
}

/// Requests that Prometheus rejects are rejected with a status that senders do not retry, and
/// nothing of a request of one metric is stored.
#[test]
fn otlp_that_prometheus_refuses_is_refused() {
    let Some(binary) = prometheus() else { return };
    let directory = testkit::temporary_directory("otlp-refused-by-prometheus");
    let pair = Pair::start(&binary, directory.path(), "{}");
    let point = |attributes| NumberPoint {
        attributes,
        time_ns: now_ns(),
        value: Some(Number::Integer(1)),
        ..NumberPoint::default()
    };
    let gauge = |name: &str, points| {
        let data_points: Vec<NumberPoint> = points;
        metric(name, "", Data::Gauge(Numbers { data_points, ..Numbers::default() }))
    };
    let sum = |temporality| {
        let data_points = vec![point(vec![])];
        metric("sum", "", Data::Sum(Numbers { data_points, temporality, is_monotonic: true }))
    };
    let exponential = |scale, count| {
        let buckets = Some(Buckets { offset: 0, bucket_counts: vec![1, 2] });
        let point = ExponentialPoint {
            time_ns: now_ns(),
            scale,
            count,
            positive: buckets,
            ..ExponentialPoint::default()
        };
        let data = Exponentials { data_points: vec![point], temporality: CUMULATIVE };
        metric("exponential", "", Data::Exponential(data))
    };
    let late = NumberPoint { time_ns: now_ns() + 3_600_000_000_000, ..point(vec![]) };
    let metrics: Vec<Metric> = vec![
        sum(0),
        sum(1),
        sum(7),
        exponential(-5, 3),
        exponential(0, 4),
        gauge("empty", vec![]),
        gauge("%", vec![point(vec![])]),
        gauge("late", vec![late]),
        gauge("bad_label", vec![point(vec![text("", "x")])]),
        gauge("bad_label", vec![point(vec![text("_.", "x")])]),
        Metric { data: None, ..gauge("none", vec![]) },
    ];
    for metric in metrics {
        let name = metric.name.clone();
        let request =
            otlppb::request(vec![attribute("a", otlppb::Value::Bool(true))], vec![metric]);
        for (content_type, body) in [
            (PROTOBUF, request.encode_to_vec()),
            (JSON, request.to_json().to_string().into_bytes()),
        ] {
            let [expected, found] = pair.send(content_type, "", &body);
            assert!([400, 500].contains(&expected.0), "{name}: {expected:?}");
            assert_eq!(found.0, 400, "{name}: {found:?}");
            // Our message may be longer.
            let words = expected.1.trim_end();
            let is_same = found.1.starts_with(words.split(':').next().unwrap());
            assert!(is_same, "{name}: {expected:?}, {found:?}");
        }
    }
    for (content_type, encoding, body, status) in [
        ("text/plain", "", &b"{}"[..], 415),
        (JSON, "zstd", b"{}", 415),
        (JSON, "gzip", b"{}", 400),
        (JSON, "", b"{", 400),
        (JSON, "", b"", 400),
        (PROTOBUF, "", b"\x0a\x05", 400),
    ] {
        let [expected, found] = pair.send(content_type, encoding, body);
        assert_eq!((expected.0, found.0), (400, status), "{expected:?}, {found:?}");
    }
    for (content_type, body) in [(JSON, &b"{}"[..]), (PROTOBUF, b"")] {
        let [expected, found] = pair.send(content_type, "", body);
        assert_eq!(expected, (200, String::new()));
        assert_eq!(found, expected);
    }
    let start = now_ns() / 1_000_000_000 - 3600;
    let all = percent_encode("{__name__=~\".+\"}");
    let path = format!("/api/v1/query?query={all}&time={}", start + 3600 + 60);
    let answer = pair.compare(&path).unwrap();
    assert!(answer.contains("\"result\":[]"), "{answer}");
}
