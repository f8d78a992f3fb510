//! Random requests that read, over HTTP and gRPC.

use testkit::percent_encode;
use testkit::protobuf::{field, number};
use testkit::random::Random;
use testkit::remote_read::{self, query};

/// Request that reads.
#[derive(Debug)]
pub enum ReadRequest {
    Http { method: &'static str, path: String, headers: Vec<(&'static str, String)>, body: Vec<u8> },
    Grpc { method: &'static str, message: Vec<u8> },
}

/// Methods of gRPC that return data.
pub const CALLS: [&str; 8] = [
    "/thanos.Query/Query",
    "/thanos.Query/QueryRange",
    "/thanos.Store/Series",
    "/thanos.Store/LabelNames",
    "/thanos.Store/LabelValues",
    "/thanos.Exemplars/Exemplars",
    "/thanos.Metadata/MetricMetadata",
    "/thanos.Status/TSDBStatistics",
];

/// Endpoints of HTTP that read data.
pub const READS: [&str; 14] = [
    "/api/v1/query",
    "/api/v1/query_range",
    "/api/v1/query_exemplars",
    "/api/v1/format_query",
    "/api/v1/parse_query",
    "/api/v1/labels",
    "/api/v1/label/{name}/values",
    "/api/v1/series",
    "/api/v1/search/metric_names",
    "/api/v1/search/label_names",
    "/api/v1/search/label_values",
    "/api/v1/metadata",
    "/api/v1/status/tsdb",
    "/federate",
];

const METRICS: [&str; 11] = [
    "up",
    "http_requests_total",
    "own_metric",
    "own_metric_bsecret",
    "target_info",
    "only_here",
    "native_seconds",
    "otlp_metric",
    "otlp_metric_bsecret",
    "second_version",
    "absent_metric",
];

const LABELS: [&str; 9] =
    ["__name__", "job", "instance", "zone", "tenant_id", "owner", "color", "color_bsecret", "x"];

const VALUES: [&str; 10] =
    ["team-a", "team-b", "", "api", "host1", ".*", ".+", "team-b|x", "(?i)TEAM-.", ".*bsecret"];

const OPERATORS: [&str; 4] = ["=", "!=", "=~", "!~"];

fn pick<'a>(random: &mut Random, items: &[&'a str]) -> &'a str {
    items[random.below(items.len() as u64) as usize]
}

fn matchers(random: &mut Random) -> String {
    let count = random.below(3);
    let one = |random: &mut Random| {
        let (name, op) = (pick(random, &LABELS), pick(random, &OPERATORS));
        format!("{name}{op}\"{}\"", pick(random, &VALUES))
    };
    let all: Vec<String> = (0..count).map(|_| one(random)).collect();
    all.join(",")
}

fn selector(random: &mut Random) -> String {
    match random.below(4) {
        0 => format!("{{__name__=~\".+\",{}}}", matchers(random)),
        1 => format!("{{tenant_id{}\"{}\"}}", pick(random, &OPERATORS), pick(random, &VALUES)),
        _ => format!("{}{{{}}}", pick(random, &METRICS), matchers(random)),
    }
}

fn expression(random: &mut Random, depth: u64) -> String {
    if depth == 0 {
        return selector(random);
    }
    let mut inner = || expression(random, depth - 1);
    let (a, b) = (inner(), inner());
    match random.below(22) {
        0 => format!("sum({a})"),
        1 => format!("count by (tenant_id) ({a})"),
        2 => format!("count without (tenant_id) ({a})"),
        3 => format!("({a}) or ({b})"),
        4 => format!("({a}) unless on (tenant_id) ({b})"),
        5 => format!("({a}) and on (job) ({b})"),
        6 => format!("absent({a})"),
        7 => format!("absent_over_time({}[5m])", selector(random)),
        8 => format!("info({})", selector(random)),
        9 => format!("info({}, {{tenant_id=~\".*\"}})", selector(random)),
        10 => format!("label_replace({a}, \"tenant_id\", \"team-b\", \"job\", \".*\")"),
        11 => format!("label_join({a}, \"x\", \"-\", \"tenant_id\", \"owner\")"),
        12 => format!("rate({}[5m])", selector(random)),
        13 => format!("max_over_time(({a})[10m:1m])"),
        14 => format!("{} @ end()", selector(random)),
        15 => format!("{} offset 2m", selector(random)),
        16 => format!("topk(3, {a})"),
        17 => format!("count_values(\"x\", {a})"),
        18 => format!("({a}) + on (instance) group_left (zone) ({b})"),
        19 => format!("group by (__name__) ({a})"),
        20 => format!("scalar({a}) + sum({b})"),
        _ => format!("quantile(0.5, {a})"),
    }
}

/// Returns a random request for one endpoint or method, by its number.
pub fn random(number: usize, random: &mut Random, end_seconds: i64) -> ReadRequest {
    let index = number % (READS.len() + CALLS.len() + 1);
    match index {
        index if index < READS.len() => http(READS[index], random, end_seconds),
        index if index < READS.len() + CALLS.len() => {
            grpc(CALLS[index - READS.len()], random, end_seconds)
        }
        _ => remote_read(random, end_seconds),
    }
}

fn http(endpoint: &str, random: &mut Random, end_seconds: i64) -> ReadRequest {
    let start_seconds = end_seconds - 1_500;
    let depth = random.below(3);
    let text = percent_encode(&expression(random, depth));
    let (one, two) = (percent_encode(&selector(random)), percent_encode(&selector(random)));
    let times = format!("start={start_seconds}&end={end_seconds}");
    let name = pick(random, &LABELS);
    let (path, parameters) = match endpoint {
        "/api/v1/query" => {
            let explain = if random.below(4) == 0 { "&explain=true" } else { "" };
            (endpoint.to_owned(), format!("query={text}&time={end_seconds}{explain}"))
        }
        "/api/v1/query_range" => (endpoint.to_owned(), format!("query={text}&{times}&step=60")),
        "/api/v1/query_exemplars" => (endpoint.to_owned(), format!("query={text}&{times}")),
        "/api/v1/format_query" | "/api/v1/parse_query" => {
            (endpoint.to_owned(), format!("query={text}"))
        }
        "/api/v1/label/{name}/values" => {
            let selected =
                if random.below(2) == 0 { format!("&match[]={one}") } else { String::new() };
            let limit = random.below(3);
            (format!("/api/v1/label/{name}/values"), format!("{times}&limit={limit}{selected}"))
        }
        "/api/v1/labels" => match random.below(3) {
            0 => (endpoint.to_owned(), times),
            _ => (endpoint.to_owned(), format!("{times}&match[]={one}&match[]={two}")),
        },
        "/api/v1/metadata" => match random.below(3) {
            0 => (endpoint.to_owned(), format!("limit={}", random.below(4))),
            1 => {
                let metric = pick(random, &METRICS);
                let metric = if random.below(2) == 0 { metric } else { "team-b%00up" };
                (endpoint.to_owned(), format!("metric={metric}"))
            }
            _ => (endpoint.to_owned(), String::new()),
        },
        "/api/v1/status/tsdb" => (endpoint.to_owned(), format!("limit={}", 1 + random.below(20))),
        "/api/v1/series" | "/federate" => {
            (endpoint.to_owned(), format!("{times}&match[]={one}&match[]={two}"))
        }
        search => {
            let term = pick(random, &["bsecret", "own", "t", "zone"]);
            let more = "include_metadata=true&include_score=true&fuzz_threshold=0";
            let parameters = format!("{times}&{more}&label={name}&search[]={term}");
            (search.to_owned(), parameters)
        }
    };
    let reads_forms = !path.contains("/label/")
        && !matches!(endpoint, "/api/v1/metadata" | "/api/v1/status/tsdb" | "/federate");
    if reads_forms && random.below(3) == 0 {
        let kind = "application/x-www-form-urlencoded".to_owned();
        let headers = vec![("content-type", kind)];
        return ReadRequest::Http { method: "POST", path, headers, body: parameters.into_bytes() };
    }
    let path = format!("{path}?{parameters}");
    ReadRequest::Http { method: "GET", path, headers: Vec::new(), body: Vec::new() }
}

fn remote_read(random: &mut Random, end_seconds: i64) -> ReadRequest {
    let matcher = |random: &mut Random| {
        (random.below(4) as i32, pick(random, &LABELS), pick(random, &VALUES))
    };
    let (one, two) = (matcher(random), matcher(random));
    let (start, end) = ((end_seconds - 600) * 1_000, end_seconds * 1_000);
    let mut queries = vec![query(start, end, &[one, two]), query(start, end, &[one])];
    queries[1].hints =
        Some(remote_read::Hints { function: "series".to_owned(), ..remote_read::Hints::default() });
    let body = remote_read::body(&queries, &[random.below(2) as i32]);
    let headers = vec![
        ("content-type", "application/x-protobuf".to_owned()),
        ("content-encoding", "snappy".to_owned()),
    ];
    ReadRequest::Http { method: "POST", path: "/api/v1/read".to_owned(), headers, body }
}

/// Returns the request of a method, with the fields of Thanos 0.42.
fn grpc(method: &'static str, random: &mut Random, end_seconds: i64) -> ReadRequest {
    let (start_seconds, depth) = (end_seconds - 1_500, random.below(3));
    let text = expression(random, depth);
    let label = pick(random, &LABELS);
    let matcher = [
        number(1, random.below(4) as i64),
        field(2, label.as_bytes()),
        field(3, pick(random, &VALUES).as_bytes()),
    ]
    .concat();
    let (start_ms, end_ms) = (start_seconds * 1_000, end_seconds * 1_000);
    let message = match method {
        "/thanos.Query/Query" => [field(1, text.as_bytes()), number(2, end_seconds)].concat(),
        "/thanos.Query/QueryRange" => [
            field(1, text.as_bytes()),
            number(2, start_seconds),
            number(3, end_seconds),
            number(4, 60),
        ]
        .concat(),
        "/thanos.Store/Series" => {
            let skips = number(8, random.below(2) as i64);
            [number(1, start_ms), number(2, end_ms), field(3, &matcher), skips].concat()
        }
        "/thanos.Store/LabelNames" => [number(3, start_ms), number(4, end_ms)].concat(),
        "/thanos.Store/LabelValues" => {
            [field(1, label.as_bytes()), number(4, start_ms), number(5, end_ms)].concat()
        }
        "/thanos.Exemplars/Exemplars" => {
            [field(1, text.as_bytes()), number(2, start_ms), number(3, end_ms)].concat()
        }
        _ => Vec::new(),
    };
    ReadRequest::Grpc { method, message }
}
