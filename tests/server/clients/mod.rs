//! Clients of other projects with their default settings, writing to the real binary: everything
//! that they send can be queried afterwards.
//!
//! The clients are named by environment variables, which `.ci/run` sets; a test whose client is
//! absent prints that it is skipped.

mod agents;
mod libraries;

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use serde_json::Value;
use testkit::{Server, TemporaryDirectory, get, percent_encode, temporary_directory};

/// Maximum time for samples to arrive, on a machine that does other things, too.
const ARRIVAL_TIMEOUT: Duration = Duration::from_secs(300);

/// A server that a client writes to.
struct Receiver {
    server: Server,
    directory: TemporaryDirectory,
}

impl Receiver {
    /// Starts a server and returns it with the client that a variable names, if it is set.
    fn start(name: &str, variable: &str) -> Option<(Receiver, PathBuf)> {
        let Some(client) = std::env::var_os(variable).filter(|client| !client.is_empty()) else {
            eprintln!("SKIPPED: {variable} is not set, so there is no client to test with");
            return None;
        };
        let directory = temporary_directory(name);
        let args = ["--self-metrics=false", "--web.enable-otlp-receiver"];
        let server = Server::start(&directory.path().join("store"), &args);
        Some((Receiver { server, directory }, client.into()))
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.server.address)
    }

    /// Returns the value of a query with one sample; `None` without a result.
    fn value(&self, query: &str) -> Option<f64> {
        let path = format!("/api/v1/query?query={}", percent_encode(query));
        let (status, body) = get(&self.server.address, &path);
        assert_eq!(status, 200, "{query}: {body}");
        let answer: Value = serde_json::from_str(&body).unwrap();
        let result = answer["data"]["result"].as_array().unwrap();
        assert!(result.len() < 2, "{query}: {body}");
        result.first().map(|sample| sample["value"][1].as_str().unwrap().parse().unwrap())
    }

    /// Waits until a query has a value.
    fn wait_for(&self, query: &str, expected: f64) {
        let started = Instant::now();
        loop {
            let found = self.value(query);
            if found == Some(expected) {
                return;
            }
            let is_late = started.elapsed() > ARRIVAL_TIMEOUT;
            assert!(!is_late, "{query} is {found:?}, expected {expected}\n{}", self.server.log());
            std::thread::sleep(Duration::from_millis(200));
        }
    }

    /// Checks that no sample has been rejected.
    fn check_nothing_rejected(&self) {
        let (status, metrics) = get(&self.server.address, "/metrics");
        assert_eq!(status, 200);
        let rejected = metrics.lines().filter(|line| {
            line.starts_with("tessella_remote_write_samples_rejected_total{")
                && !line.ends_with(" 0")
        });
        assert_eq!(rejected.collect::<Vec<_>>(), Vec::<&str>::new());
    }
}

/// The folder of this file.
fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/server/clients")
}

/// All orders of some labels.
fn orders<'a>(labels: &[(&'a str, &'a str)]) -> Vec<Vec<(&'a str, &'a str)>> {
    let Some((first, rest)) = labels.split_first() else { return vec![Vec::new()] };
    let insert = |order: Vec<_>| {
        (0..=rest.len()).map(move |at| {
            let mut order = order.clone();
            order.insert(at, *first);
            order
        })
    };
    orders(rest).into_iter().flat_map(insert).collect()
}
