//! Two shards, a root over them, and one node with all series.

use std::fs;
use std::process::Command;
use std::time::{Duration, Instant};

use testkit::remote_write::Connection;
use testkit::{
    Child, Server, TemporaryDirectory, free_port, get, spawn_listening, temporary_directory,
};

use super::data::{SHARDS, request};

/// Timeout for what takes a moment, on a busy machine.
const WAIT_MAX: Duration = Duration::from_secs(180);

/// Policy of a root for a shard: UNAVAILABLE is retried at another node.
const SERVICE_CONFIG: &str = r#"{"loadBalancingPolicy":"round_robin","methodConfig":[{"name":[{"service":"thanos.Query"},{"service":"thanos.Store"}],"retryPolicy":{"maxAttempts":4,"initialBackoff":"0.05s","maxBackoff":"0.5s","backoffMultiplier":2,"retryableStatusCodes":["UNAVAILABLE"]}}]}"#;

/// Node of a shard.
pub struct Node {
    pub server: Server,
    pub grpc: String,
}

/// All processes of a test.
pub struct Topology {
    /// Node with all series.
    pub all: Server,
    pub writers: Vec<Node>,
    /// HTTP address of the root.
    pub root: String,
    _root: Child,
    _directory: TemporaryDirectory,
}

impl Topology {
    /// Starts all processes, with the series in place. `None`, with a message, without Thanos.
    pub fn start(name: &str) -> Option<Topology> {
        let Ok(thanos) = std::env::var("THANOS_BINARY") else {
            println!("SKIPPED: THANOS_BINARY is not set");
            return None;
        };
        let directory = temporary_directory(&format!("scale-out-{name}"));
        let all = Server::start(&directory.path().join("all"), &["--self-metrics=false"]);
        write(&all.address, &request(None));
        let writers: Vec<Node> = (0..SHARDS)
            .map(|shard| {
                let node = Node::start(&directory, shard, &[]);
                write(&node.server.address, &request(Some(shard)));
                node
            })
            .collect();
        let addresses: Vec<&str> = writers.iter().map(|node| &node.grpc[..]).collect();
        let (root, child) = start_root(&thanos, &directory, &addresses);
        Some(Topology { all, writers, root, _root: child, _directory: directory })
    }
}

impl Node {
    /// Starts a node of a shard on a store of its own.
    pub fn start(directory: &TemporaryDirectory, shard: i64, args: &[&str]) -> Node {
        let grpc = format!("127.0.0.1:{}", free_port());
        let listen = format!("--grpc.listen-address={grpc}");
        let label = format!("--external-label=shard={shard}");
        let args = [&["--self-metrics=false", &listen, &label], args].concat();
        let server = Server::start(&directory.path().join(format!("shard-{shard}")), &args);
        Node { server, grpc }
    }
}

fn write(address: &str, body: &[u8]) {
    let (status, text) = Connection::open(address).unwrap().write(body).unwrap();
    assert!(status < 300, "{address}: {status} {text}");
}

/// Starts a root over shards and waits until it knows all.
fn start_root(thanos: &str, directory: &TemporaryDirectory, shards: &[&str]) -> (String, Child) {
    let endpoints = directory.path().join("endpoints.yml");
    let mut config = String::from("endpoints:\n");
    for address in shards {
        config.push_str(&format!(
            "  - address: \"{address}\"\n    group: true\n    strict: true\n    service_config: '{SERVICE_CONFIG}'\n"
        ));
    }
    fs::write(&endpoints, config).unwrap();
    let (http, grpc) = (free_port(), free_port());
    let address = format!("127.0.0.1:{http}");
    let mut command = Command::new(thanos);
    command.arg("query");
    command.args([
        format!("--http-address={address}"),
        format!("--grpc-address=127.0.0.1:{grpc}"),
        format!("--endpoint.sd-config-file={}", endpoints.display()),
    ]);
    command.args([
        "--query.mode=distributed",
        "--no-query.partial-response",
        "--no-exemplar.partial-response",
        "--enable-feature=promql-experimental-functions",
    ]);
    let child = spawn_listening(&mut command, &address);
    let started = Instant::now();
    loop {
        let (_, text) = get(&address, "/api/v1/stores");
        if text.matches("\"shard\"").count() >= shards.len() {
            return (address, child);
        }
        assert!(started.elapsed() < WAIT_MAX, "the root does not find its nodes: {text}");
        std::thread::sleep(Duration::from_millis(50));
    }
}
