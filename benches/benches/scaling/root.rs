//! Nodes of shards under a running Thanos Query.

use std::fs;
use std::io::{self, Error};
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use benches::http::Client;
use benches::scenario::process::{self, Resident};
use benches::scenario::server::{NodeSettings, Program, Server};
use testkit::{Child, free_port, spawn_listening};

use crate::relay::Relay;

/// Timeout of the root to find its nodes.
const START_TIMEOUT: Duration = Duration::from_secs(120);

/// Node of a shard, and the relay by which the root reaches it.
pub struct Node {
    pub server: Server,
    pub grpc: String,
    pub relay: Relay,
}

/// A running Thanos Query.
pub struct Root {
    pub address: String,
    child: Child,
}

impl Node {
    /// Starts a writer of a shard, with flags in addition.
    pub fn start(
        shard: usize,
        of: usize,
        binary: &Path,
        directory: &Path,
        args: &[String],
    ) -> io::Result<Node> {
        let grpc = format!("127.0.0.1:{}", free_port());
        let mut settings = settings(&grpc, shard);
        settings.args.extend_from_slice(args);
        let name = format!("shard-{shard}-of-{of}");
        let server = Server::start_node(&name, Program::Tessella, binary, directory, settings)?;
        Ok(Node { server, relay: Relay::start(grpc.clone())?, grpc })
    }

    /// Starts a reader of this node's store.
    pub fn start_reader(&self, binary: &Path, directory: &Path) -> io::Result<Server> {
        let mut settings = settings(&format!("127.0.0.1:{}", free_port()), 0);
        settings.args.extend(["--mode=reader".to_owned(), "--reader.lag=5s".to_owned()]);
        settings.store = Some(self.server.data());
        Server::start_node("reader", Program::Tessella, binary, directory, settings)
    }
}

fn settings(grpc: &str, shard: usize) -> NodeSettings {
    let listen = format!("--grpc.listen-address={grpc}");
    let label = format!("--external-label=shard={shard}");
    // Every query is computed.
    let cache = "--query.result-cache-size=0".to_owned();
    NodeSettings { args: vec![listen, label, cache], store: None }
}

impl Root {
    /// Starts a root over nodes, and waits until it knows all.
    pub fn start(thanos: &Path, nodes: &[Node], directory: &Path) -> io::Result<Root> {
        let mut config = String::from("endpoints:\n");
        for node in nodes {
            let address = &node.relay.address;
            config
                .push_str(&format!("  - {{address: \"{address}\", group: true, strict: true}}\n"));
        }
        let file = directory.join(format!("tessella-bench-endpoints-{}.yml", std::process::id()));
        fs::write(&file, config)?;
        let address = format!("127.0.0.1:{}", free_port());
        let mut command = Command::new(thanos);
        command.args([
            "query",
            "--query.mode=distributed",
            "--no-query.partial-response",
            "--query.timeout=5m",
            &format!("--http-address={address}"),
            &format!("--grpc-address=127.0.0.1:{}", free_port()),
            &format!("--endpoint.sd-config-file={}", file.display()),
        ]);
        let root = Root { child: spawn_listening(&mut command, &address), address };
        let begin = Instant::now();
        loop {
            let text = root.client().text("/api/v1/stores").unwrap_or_default();
            if text.matches("\"shard\"").count() >= nodes.len() {
                fs::remove_file(&file)?;
                return Ok(root);
            }
            if begin.elapsed() > START_TIMEOUT {
                return Err(Error::other(format!("the root does not find its nodes: {text}")));
            }
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    pub fn client(&self) -> Client {
        Client::new(&self.address)
    }

    pub fn cpu_time(&self) -> io::Result<Duration> {
        process::cpu_time(self.child.0.id())
    }

    pub fn resident(&self) -> Resident {
        process::resident(self.child.0.id())
    }
}
