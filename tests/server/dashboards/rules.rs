//! Alerts and recording rules: each metric that they name is served by a writer or a reader, and the
//! server answers each of their queries.

use std::collections::BTreeSet;
use std::path::Path;

use serde_json::Value;
use testkit::remote_write::{Connection, RequestEncoder, encode_labels};
use testkit::{Server, get, percent_encode, temporary_directory};

use super::{exposition, make_traffic, now_seconds, write_scrapes};

const FILES: [&str; 3] = [
    "deploy/mixin/tessella-alerts.yml",
    "deploy/mixin/tessella-rules.yml",
    "deploy/scale-out/alerts.yml",
];

/// Returns the queries of all rules.
fn queries() -> Vec<String> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut queries = Vec::new();
    for file in FILES {
        let text = std::fs::read_to_string(folder.join(file)).unwrap();
        let rules: Value = serde_saphyr::from_str(&text).unwrap();
        let groups = rules["groups"].as_array().unwrap().iter();
        let rules = groups.flat_map(|group| group["rules"].as_array().unwrap());
        queries.extend(rules.map(|rule| rule["expr"].as_str().unwrap().to_owned()));
    }
    queries
}

/// Sends two series of a metric that may have one.
fn exceed_the_limit_of_series(server: &Server, now: i64) {
    let mut encoder = RequestEncoder::default();
    for series in ["a", "b"] {
        let labels = encode_labels([("__name__", "many"), ("series", series)]);
        encoder.push(&labels, [(now * 1000, 1.0)]);
    }
    let mut body = Vec::new();
    encoder.compress(&mut body);
    assert_eq!(Connection::open(&server.address).unwrap().write(&body).unwrap().0, 429);
}

#[test]
fn every_metric_of_every_rule_is_served() {
    let directory = temporary_directory("rules");
    let limit = "--remote-write.max-active-series-per-metric=1";
    let server = Server::start(directory.path(), &["--self-metrics=false", limit]);
    let reader = Server::start(directory.path(), &["--mode=reader"]);
    let now = now_seconds();
    make_traffic(&server, now);
    exceed_the_limit_of_series(&server, now);
    let served: String = [&server, &reader].map(|s| get(&s.address, "/metrics").1).concat();
    let names: BTreeSet<&str> = exposition::names(&served).collect();
    let is_word = |letter: char| letter.is_ascii_alphanumeric() || letter == '_';
    let mut missing = BTreeSet::new();
    let queries = queries();
    for query in &queries {
        // Recorded names have colons.
        let words = query.split(|letter| !is_word(letter) && letter != ':');
        let own = words.filter(|w| w.starts_with("tessella_") || w.starts_with("process_"));
        let own = own.map(|word| word.trim_end_matches("_bucket"));
        missing.extend(own.filter(|name| !names.contains(name)));
    }
    assert_eq!(missing, BTreeSet::new());
}

#[test]
fn the_server_answers_every_query_of_every_rule() {
    let directory = temporary_directory("rules-queries");
    let server = Server::start(directory.path(), &["--self-metrics=false"]);
    let now = now_seconds();
    make_traffic(&server, now);
    write_scrapes(&server, now);
    let queries = queries();
    assert!(queries.len() > 40, "{}", queries.len());
    let mut results = 0;
    for query in &queries {
        let path = format!("/api/v1/query?query={}&time={now}", percent_encode(query));
        let (status, answer) = get(&server.address, &path);
        assert_eq!(status, 200, "{query}: {answer}");
        let answer: Value = serde_json::from_str(&answer).unwrap();
        results += usize::from(!answer["data"]["result"].as_array().unwrap().is_empty());
    }
    // Most alerts are silent; recording rules have values.
    assert!(results >= 8, "{results} of {} have a result", queries.len());
}
