//! The binary and a Prometheus with the same samples of remote write.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use super::{FEATURES, spawn_prometheus, wait_for};
use testkit::remote_write::Connection;
use testkit::{Child, Server, TemporaryDirectory, free_port, get};

/// Interval of scrapes, in seconds.
pub const STEP_SECONDS: i64 = 15;

/// Divisor of the last timestamp, so that steps are alike in every run: clients align them to
/// multiples of the step.
const END_SECONDS: i64 = 600;

/// A server and a Prometheus with the same samples.
pub struct Pair {
    pub server: Server,
    pub peer: String,
    /// Timestamp of the last samples, in seconds.
    pub end: i64,
    pub directory: TemporaryDirectory,
    _prometheus: Child,
}

impl Pair {
    /// Sends the requests that `requests` makes for the last timestamp to both. `None`, with a
    /// message, if Prometheus is absent, or the client in the variable `client`.
    pub fn start(
        name: &str,
        client: &str,
        requests: impl Fn(i64) -> Vec<Vec<u8>>,
    ) -> Option<(Pair, String)> {
        let (binary, client) = (prometheus_binary()?, variable(client)?);
        let directory = testkit::temporary_directory(name);
        let args = ["--self-metrics=false", "--web.enable-admin-api"];
        let server = Server::start(&directory.path().join("tessella"), &args);
        let peer = format!("127.0.0.1:{}", free_port());
        let features = format!("--enable-feature={FEATURES}");
        let args = ["--web.enable-remote-write-receiver", "--web.enable-admin-api", &features];
        let config = "storage: {exemplars: {max_exemplars: 1000}}\n";
        let prometheus = spawn_prometheus(&binary, directory.path(), &peer, config, &args);
        wait_for(Duration::from_secs(60), || get(&peer, "/-/ready").0 == 200);
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs() as i64;
        let end = now - now % END_SECONDS;
        let bodies = requests(end);
        for address in [&peer, &server.address] {
            let mut connection = Connection::open(address).unwrap();
            for body in &bodies {
                let (status, text) = connection.write(body).unwrap();
                assert!(status < 300, "{address}: {status} {text}");
            }
        }
        Some((Pair { server, peer, end, directory, _prometheus: prometheus }, client))
    }
}

/// Returns the path in `PROMETHEUS_BINARY`, if it is set.
pub fn prometheus_binary() -> Option<String> {
    variable("PROMETHEUS_BINARY")
}

fn variable(name: &str) -> Option<String> {
    let value = std::env::var(name).ok();
    if value.is_none() {
        println!("SKIPPED: {name} is not set, nothing to compare with");
    }
    value
}
