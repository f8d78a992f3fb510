//! The real binary and a Prometheus that were sent the same by remote write.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use super::{FEATURES, spawn_prometheus, wait_for};
use testkit::remote_write::Connection;
use testkit::{Child, Server, TemporaryDirectory, free_port, get};

/// Seconds from one scrape to the next, by which the samples are timed.
pub const STEP_SECONDS: i64 = 15;

/// What the last samples' time is a multiple of, so that steps lie alike in every run: clients put
/// them on multiples of the step.
const END_SECONDS: i64 = 600;

/// A server and a Prometheus that hold the same.
pub struct Pair {
    pub server: Server,
    pub peer: String,
    /// When the last samples are, in seconds.
    pub end: i64,
    pub directory: TemporaryDirectory,
    _prometheus: Child,
}

impl Pair {
    /// Sends both the requests that `requests` makes of the time of the last samples. None, said
    /// aloud, where Prometheus or a client is not there, which `client` names the variable of.
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

/// Where Prometheus is.
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
