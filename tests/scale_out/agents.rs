//! vmagent shards by target: each target is on one shard, and the root loses nothing.

use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use testkit::remote_write::Connection;
use testkit::{free_port, get, percent_encode, spawn_listening};

use super::data::{END_SECONDS, Selected, TARGETS, request};
use super::resharding::plan;
use super::root::Topology;
use super::{compare, result};

/// Timeout for what takes a moment, on a busy machine.
const WAIT_MAX: Duration = Duration::from_secs(180);

/// Queries without the label of the shard in their results.
const QUERIES: [&str; 7] = [
    "count by (job) ({job!=\"\"})",
    "sum by (job, code) (rate(http_requests_total[5m]))",
    "avg by (job) (temperature)",
    "histogram_quantile(0.9, sum by (le, job) (rate(latency_seconds_bucket[5m])))",
    "sum by (job) (memory_bytes / memory_limit_bytes)",
    "sum by (version) (memory_bytes * on (job, instance) group_left (version) target_info)",
    "count by (job) (count by (job, instance) (up))",
];

fn path(query: &str) -> String {
    format!("/api/v1/query?query={}&time={END_SECONDS}", percent_encode(query))
}

#[test]
fn vmagent_shards_by_target() {
    let Ok(vmagent) = std::env::var("VMAGENT_BINARY") else {
        println!("SKIPPED: VMAGENT_BINARY is not set");
        return;
    };
    let Some(topology) = Topology::start_empty("vmagent") else { return };
    // vmagent translates native histograms.
    let body = request(&Selected { shard: None, has_shard_label: false, has_native: false });
    let mut one = Connection::open(&topology.all.address).unwrap();
    assert!(one.write(&body).unwrap().0 < 300);
    let address = format!("127.0.0.1:{}", free_port());
    let mut command = Command::new(vmagent);
    for node in &topology.writers {
        command.arg(format!("-remoteWrite.url=http://{}/api/v1/write", node.server.address));
    }
    command.args(["-remoteWrite.shardByURL", "-remoteWrite.shardByURL.labels=job,instance"]);
    command.arg(format!("-remoteWrite.tmpDataPath={}", topology.path("queue").display()));
    command.arg(format!("-httpListenAddr={address}")).stdin(Stdio::null());
    let _vmagent = spawn_listening(&mut command, &address);
    assert!(Connection::open(&address).unwrap().write(&body).unwrap().0 < 300);

    let started = Instant::now();
    let everything = path("count by (job) ({job!=\"\"})");
    while let Err(error) = compare(&topology, &everything) {
        assert!(started.elapsed() < WAIT_MAX, "{error}");
        std::thread::sleep(Duration::from_millis(100));
    }
    for query in QUERIES {
        compare(&topology, &path(query)).unwrap_or_else(|error| panic!("{query}: {error}"));
    }
    let by_shard = result(&topology.root, &path("count by (job, instance, shard) (up)")).unwrap();
    assert_eq!(by_shard.series.len() as i64, TARGETS, "{by_shard:?}");
    vmagent_places_targets_as_planned(&topology);
    for node in &topology.writers {
        let (_, text) = get(&node.server.address, &path("count(up)"));
        assert!(text.contains("\"value\""), "a shard is empty: {text}");
    }
}

/// Compares shards with those of `tessella reshard-plan`, before and after a change.
fn vmagent_places_targets_as_planned(topology: &Topology) {
    let nodes: Vec<&str> = topology.writers.iter().map(|node| &node.server.address[..]).collect();
    let mut args: Vec<String> =
        ["--algorithm=vmagent", "--from=2", "--to=1"].map(str::to_owned).into();
    args.extend(nodes.iter().map(|address| format!("--url=http://{address}/api/v1/write")));
    let plan = plan(&nodes, END_SECONDS, &args);
    assert_eq!(plan["total"]["targets"], TARGETS, "{plan:#}");
    // Each target is on the shard that the plan names as the old one.
    assert_eq!(plan["misplaced"], 0, "{plan:#}");
    assert_eq!(plan["flows"].as_array().unwrap().len(), 2, "{plan:#}");
}
