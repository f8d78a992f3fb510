//! Set-ups and scripts for operators, with the programs that they are made for: the agent of the set-up in
//! containers, migrations, rules, backups.
//!
//! `PROMETHEUS_BINARY`, `VICTORIA_METRICS_BINARY`, `VMALERT_BINARY` and `THANOS_BINARY` are the programs; without
//! one, its tests are skipped.

#![allow(clippy::unwrap_used, reason = "tests may panic")]

mod agent;
mod backup;
mod migration;
mod readers;
mod rules;

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use serde_json::Value;
use testkit::remote_write::{Connection, RequestEncoder, encode_labels};
use testkit::{Child, Server, get, percent_encode};

/// Timeout for a program, on a busy machine.
const WAIT_MAX: Duration = Duration::from_secs(180);

/// Returns the path in a variable. `None`, with a message, if it is not set.
fn program(variable: &str) -> Option<String> {
    let path = std::env::var(variable).ok();
    if path.is_none() {
        println!("SKIPPED: {variable} is not set");
    }
    path
}

fn file(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(name)
}

fn now_seconds() -> i64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs() as i64
}

/// Waits until a condition holds.
fn wait_until(what: &str, mut holds: impl FnMut() -> bool) {
    let started = Instant::now();
    while !holds() {
        assert!(started.elapsed() < WAIT_MAX, "not within {WAIT_MAX:?}: {what}");
        std::thread::sleep(Duration::from_millis(100));
    }
}

/// Starts a program that logs to a file, and waits until a path of it answers.
fn start(binary: &str, arguments: &[String], log: &Path, address: &str, ready: &str) -> Child {
    let log = std::fs::File::create(log).unwrap();
    let mut command = Command::new(binary);
    command.args(arguments).stdout(Stdio::null()).stderr(log);
    let child = Child(command.spawn().unwrap());
    wait_until(binary, || get(address, ready).0 == 200);
    child
}

/// A series for requests: labels sorted by name, samples.
type Series<'a> = (&'a [(&'a str, &'a str)], Vec<(i64, f64)>);

/// Sends series by remote write.
fn write(address: &str, series: &[Series<'_>]) {
    let mut encoder = RequestEncoder::default();
    for (labels, samples) in series {
        encoder.push(&encode_labels(labels.iter().copied()), samples.iter().copied());
    }
    let mut body = Vec::new();
    encoder.compress(&mut body);
    let (status, text) = Connection::open(address).unwrap().write(&body).unwrap();
    assert!(status < 300, "{address}: {status} {text}");
}

/// Returns the result of an instant query.
fn query(address: &str, query: &str, time: i64) -> Value {
    let path = format!("/api/v1/query?query={}&time={time}", percent_encode(query));
    let (status, text) = get(address, &path);
    assert_eq!(status, 200, "{query}: {text}");
    serde_json::from_str::<Value>(&text).unwrap()["data"]["result"].clone()
}

/// Ends a server as an operator does, and waits for it.
fn stop(mut server: Server) {
    let process = server.child.0.id().to_string();
    assert!(Command::new("kill").args(["-TERM", &process]).status().unwrap().success());
    let (status, log) = server.wait();
    assert!(status.success(), "{log}");
}
