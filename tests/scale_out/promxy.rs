//! promxy in front of the nodes of shards returns what it returns in front of one Prometheus for each
//! shard.
//!
//! `PROMXY_BINARY` and `PROMETHEUS_BINARY` are the programs; without them, the test is skipped.

use std::path::Path;
use std::process::Command;

use testkit::{Child, free_port, prometheus, spawn_listening, temporary_directory};

use super::data::{SHARDS, Selected, request};
use super::queries::QUERIES;
use super::root::{Node, write};
use super::{paths, result};

/// Starts promxy over the servers of each shard. Its HTTP address comes back.
fn start_promxy(binary: &str, config: &Path, shards: &[Vec<String>]) -> (Child, String) {
    let mut text = "promxy:\n  server_groups:\n".to_owned();
    for (shard, servers) in shards.iter().enumerate() {
        text += &format!(
            "  - static_configs: [{{targets: {servers:?}}}]
    labels: {{shard: '{shard}'}}
    anti_affinity: 10s
    remote_read: true
"
        );
    }
    std::fs::write(config, text).unwrap();
    let address = format!("127.0.0.1:{}", free_port());
    let mut command = Command::new(binary);
    command.arg(format!("--config={}", config.display()));
    command.arg(format!("--bind-addr={address}"));
    (spawn_listening(&mut command, &address), address)
}

#[test]
fn promxy_returns_the_same_over_nodes_and_over_prometheus() {
    let [Ok(promxy), Ok(binary)] = ["PROMXY_BINARY", "PROMETHEUS_BINARY"].map(std::env::var) else {
        println!("SKIPPED: PROMXY_BINARY or PROMETHEUS_BINARY is not set");
        return;
    };
    let directory = temporary_directory("scale-out-promxy");
    let (mut nodes, mut peers) = (Vec::new(), Vec::new());
    let (mut of_nodes, mut of_peers) = (Vec::new(), Vec::new());
    for shard in 0..SHARDS {
        let start = |args: &[&str]| {
            Node::start(&directory, shard, &format!("127.0.0.1:{}", free_port()), args)
        };
        let folder = directory.path().join(format!("prometheus-{shard}"));
        std::fs::create_dir(&folder).unwrap();
        let (peer, peer_address) = prometheus::start(&binary, &folder);
        let writer = start(&[]);
        for address in [&peer_address, &writer.server.address] {
            write(address, &request(&Selected::of_shard(shard)));
        }
        let reader = start(&["--mode=reader", "--reader.lag=1h"]);
        of_nodes.push([&writer, &reader].map(|node| node.server.address.clone()).to_vec());
        of_peers.push(vec![peer_address]);
        nodes.extend([writer, reader]);
        peers.push(peer);
    }
    let config = |name: &str| directory.path().join(name);
    let (_over_nodes, nodes) = start_promxy(&promxy, &config("nodes.yml"), &of_nodes);
    let (_over_peers, peers) = start_promxy(&promxy, &config("peers.yml"), &of_peers);
    let (mut count, mut answers, mut wrong) = (0, 0, Vec::new());
    for query in QUERIES.lines().filter(|line| !line.is_empty()) {
        for path in paths(query) {
            count += 1;
            let (expected, found) = (result(&peers, &path), result(&nodes, &path));
            let is_equal = match (&expected, &found) {
                (Ok(expected), Ok(found)) => {
                    answers += 1;
                    found.equals(expected)
                }
                // Statuses are equal; texts name the servers.
                (Err(expected), Err(found)) => expected[..3] == found[..3],
                _ => false,
            };
            if !is_equal {
                let text = format!("{query}\n{path}\nexpected {expected:?}\nfound {found:?}");
                wrong.push(text.chars().take(2_000).collect::<String>());
            }
        }
    }
    println!("{count} comparisons, {answers} answers, {} differ", wrong.len());
    assert!(wrong.is_empty(), "{}", wrong.join("\n\n"));
    assert!(answers * 10 > count * 9, "{answers} of {count} queries have an answer");
}
