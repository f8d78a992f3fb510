//! Two shards, a root over them, and one node with all series.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use serde_json::Value;
use testkit::remote_write::Connection;
use testkit::{
    Child, Server, TemporaryDirectory, free_port, get, spawn_listening, temporary_directory,
};

use super::data::{SHARDS, Selected, request};

/// Timeout for what takes a moment, on a busy machine.
const WAIT_MAX: Duration = Duration::from_secs(180);

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
    directory: TemporaryDirectory,
}

impl Topology {
    /// Starts all processes, with the series in place. `None`, with a message, without Thanos.
    pub fn start(name: &str) -> Option<Topology> {
        let topology = Topology::start_empty(name)?;
        write(&topology.all.address, &request(&Selected::ALL));
        for (shard, node) in (0..).zip(&topology.writers) {
            write(&node.server.address, &request(&Selected::of_shard(shard)));
        }
        Some(topology)
    }

    /// Starts all processes without series.
    pub fn start_empty(name: &str) -> Option<Topology> {
        let thanos = thanos_binary()?;
        let directory = temporary_directory(&format!("scale-out-{name}"));
        let all = Server::start(&directory.path().join("all"), &["--self-metrics=false"]);
        let writers: Vec<Node> = (0..SHARDS)
            .map(|shard| {
                let grpc = format!("127.0.0.1:{}", free_port());
                Node::start(&directory, shard, &grpc, &["--web.enable-otlp-receiver"])
            })
            .collect();
        let addresses: Vec<&str> = writers.iter().map(|node| &node.grpc[..]).collect();
        let (root, child) = start_root(Command::new(thanos), &directory, &addresses);
        Some(Topology { all, writers, root, _root: child, directory })
    }

    /// Path of a file of the test.
    pub fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }
}

/// Returns the path in `THANOS_BINARY`, if it is set.
pub fn thanos_binary() -> Option<String> {
    let binary = std::env::var("THANOS_BINARY").ok();
    if binary.is_none() {
        println!("SKIPPED: THANOS_BINARY is not set");
    }
    binary
}

/// A writer, two readers of its store, and a root that knows the readers by one name.
pub struct ReaderGroup {
    pub readers: Vec<Node>,
    /// HTTP address of the root.
    pub root: String,
    _root: Child,
    _writer: Node,
    _directory: TemporaryDirectory,
}

impl ReaderGroup {
    /// Starts all processes, with the series in place. `None`, with a message, without Thanos, or if
    /// this process may not give the root a file of host names.
    pub fn start() -> Option<ReaderGroup> {
        let thanos = thanos_binary()?;
        let directory = temporary_directory("scale-out-readers");
        let named = named_readers(&directory, &thanos)?;
        let port = free_port();
        let writer = Node::start(&directory, 0, &format!("127.0.0.1:{}", free_port()), &[]);
        write(&writer.server.address, &request(&Selected::of_shard(0)));
        let readers = ["127.0.0.1", "127.0.0.2"].map(|ip| {
            let args = ["--mode=reader", "--reader.lag=1h"];
            Node::start(&directory, 0, &format!("{ip}:{port}"), &args)
        });
        let (root, child) = start_root(named, &directory, &[&format!("readers:{port}")]);
        let readers = readers.into();
        Some(ReaderGroup { readers, root, _root: child, _writer: writer, _directory: directory })
    }
}

/// Returns the command of a program for which the name `readers` has two addresses. `None`, with a
/// message, if this process may not give it a file of host names.
fn named_readers(directory: &TemporaryDirectory, program: &str) -> Option<Command> {
    let hosts = directory.path().join("hosts");
    fs::write(&hosts, "127.0.0.1 localhost\n127.0.0.1 readers\n127.0.0.2 readers\n").unwrap();
    let named = |program: &str| {
        let mut command = Command::new("unshare");
        let script = format!("mount --bind {} /etc/hosts && exec \"$0\" \"$@\"", hosts.display());
        command.args(["--mount", "--propagation=private", "sh", "-c", &script, program]);
        command
    };
    if !named("true").status().is_ok_and(|status| status.success()) {
        println!("SKIPPED: this process may not mount a file of host names");
        return None;
    }
    Some(named(program))
}

impl Node {
    /// Starts a node of a shard on the store of the shard.
    pub fn start(directory: &TemporaryDirectory, shard: i64, grpc: &str, args: &[&str]) -> Node {
        let listen = format!("--grpc.listen-address={grpc}");
        let label = format!("--external-label=shard={shard}");
        let args = [&["--self-metrics=false", &listen, &label], args].concat();
        let server = Server::start(&directory.path().join(format!("shard-{shard}")), &args);
        Node { server, grpc: grpc.to_owned() }
    }

    /// Number of calls of a method that this node has answered.
    pub fn calls(&self, method: &str) -> f64 {
        let (_, text) = get(&self.server.address, "/metrics");
        let prefix = "tessella_grpc_requests_total{";
        let lines = text.lines().filter(|line| line.starts_with(prefix) && line.contains(method));
        lines.map(|line| line.rsplit(' ').next().unwrap().parse::<f64>().unwrap()).sum()
    }
}

pub fn write(address: &str, body: &[u8]) {
    let (status, text) = Connection::open(address).unwrap().write(body).unwrap();
    assert!(status < 300, "{address}: {status} {text}");
}

/// Writes the shards of a root, which reads them again when they change. The settings are those of
/// `deploy/scale-out/shards.yml`.
pub fn write_endpoints(directory: &TemporaryDirectory, shards: &[&str]) {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("deploy/scale-out/shards.yml");
    let mut config: Value = serde_saphyr::from_str(&fs::read_to_string(file).unwrap()).unwrap();
    let endpoints = config["endpoints"].as_array_mut().unwrap();
    let settings = endpoints[0].clone();
    let endpoint = |address: &&str| {
        let mut endpoint = settings.clone();
        endpoint["address"] = Value::from(*address);
        endpoint
    };
    *endpoints = shards.iter().map(endpoint).collect();
    // JSON is YAML.
    fs::write(endpoints_path(directory), config.to_string()).unwrap();
}

fn endpoints_path(directory: &TemporaryDirectory) -> PathBuf {
    directory.path().join("endpoints.yml")
}

/// Starts a root over shards and waits until it knows all.
pub fn start_root(
    command: Command,
    directory: &TemporaryDirectory,
    shards: &[&str],
) -> (String, Child) {
    start_root_with(command, directory, shards, &[])
}

/// Starts a root with more flags.
pub fn start_root_with(
    mut command: Command,
    directory: &TemporaryDirectory,
    shards: &[&str],
    args: &[&str],
) -> (String, Child) {
    write_endpoints(directory, shards);
    let (http, grpc) = (free_port(), free_port());
    let address = format!("127.0.0.1:{http}");
    command.arg("query");
    command.args([
        format!("--http-address={address}"),
        format!("--grpc-address=127.0.0.1:{grpc}"),
        format!("--endpoint.sd-config-file={}", endpoints_path(directory).display()),
    ]);
    command.args([
        "--endpoint.sd-config-reload-interval=1s",
        "--query.mode=distributed",
        "--no-query.partial-response",
        "--no-exemplar.partial-response",
        "--enable-feature=promql-experimental-functions",
    ]);
    command.args(args);
    let child = spawn_listening(&mut command, &address);
    wait_for_shards(&address, shards.len());
    (address, child)
}

/// Waits until a root knows a number of shards.
pub fn wait_for_shards(address: &str, count: usize) {
    let started = Instant::now();
    loop {
        let (_, text) = get(address, "/api/v1/stores");
        if text.matches("\"shard\"").count() >= count {
            return;
        }
        assert!(started.elapsed() < WAIT_MAX, "the root does not find its nodes: {text}");
        std::thread::sleep(Duration::from_millis(50));
    }
}
