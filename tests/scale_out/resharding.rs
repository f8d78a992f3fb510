//! Resharding from 1 to 2 to 4 shards, while a sender writes and a root answers: no query fails, no
//! sample is lost, and moved series count twice for one lookback and no longer.

use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Condvar, Mutex};

use serde_json::Value;
use testkit::remote_write::{Connection, RequestEncoder, encode_labels};
use testkit::{
    Server, TemporaryDirectory, binary, free_port, get, percent_encode, temporary_directory,
};

use super::compare_addresses;
use super::root::{Node, start_root, thanos_binary, wait_for_shards, write_endpoints};

const INTERVAL_S: i64 = 15;
const LOOKBACK_S: i64 = 300;
/// Time of the first scrape.
const START_S: i64 = 1_700_000_040;
/// Scrapes with one number of shards: twice a lookback.
const STAGE_SCRAPES: i64 = 40;
/// Queries of each kind that are answered in a stage at least.
const STAGE_QUERIES: u64 = 5;

const JOBS: i64 = 3;
const INSTANCES: i64 = 8;
const TARGETS: i64 = JOBS * INSTANCES;

/// Runs `tessella reshard-plan` over nodes, and returns its output.
pub fn plan(nodes: &[&str], time_s: i64, args: &[String]) -> Value {
    let mut command = Command::new(binary());
    command.arg("reshard-plan").args(["--format=json", &format!("--time={time_s}")]).args(args);
    command.args(nodes.iter().map(|address| format!("--server={address}")));
    let output = command.output().unwrap();
    assert!(output.status.success(), "{output:?}");
    serde_json::from_slice(&output.stdout).unwrap()
}

/// Time of a scrape.
fn time_s(scrape: i64) -> i64 {
    START_S + scrape * INTERVAL_S
}

/// Change of the shards of some targets.
#[derive(Clone, Copy)]
struct Move {
    /// First scrape in the new shards.
    scrape: i64,
    targets: i64,
}

/// State that the sender and the thread with queries share.
#[derive(Default)]
struct Progress {
    /// Number of acknowledged scrapes.
    scrapes: i64,
    moves: Vec<Move>,
    /// Number of queries of each kind that are answered.
    answered: u64,
}

struct Shared {
    progress: Mutex<Progress>,
    is_answered: Condvar,
    is_done: AtomicBool,
}

/// Sender that shards by target.
struct Sender {
    all: Connection,
    shards: Vec<Connection>,
    /// Shard of each target.
    owners: Vec<usize>,
}

fn job(target: i64) -> String {
    format!("job{}", target % JOBS)
}

fn instance(target: i64) -> String {
    format!("host{}:9100", target / JOBS)
}

impl Sender {
    /// Sends a scrape of all targets, and waits until all nodes have acknowledged it.
    fn send(&mut self, scrape: i64) {
        let of_shard = |shard: usize| {
            let owners = self.owners.iter().copied();
            (0..).zip(owners).filter(move |(_, owner)| *owner == shard).map(|(target, _)| target)
        };
        let bodies: Vec<Vec<u8>> =
            (0..self.shards.len()).map(|shard| body(of_shard(shard), scrape)).collect();
        for (connection, body) in self.shards.iter_mut().zip(bodies) {
            send(connection, &body);
        }
        send(&mut self.all, &body(0..TARGETS, scrape));
    }
}

fn send(connection: &mut Connection, body: &[u8]) {
    let (status, text) = connection.write(body).unwrap();
    assert!(status < 300, "{status} {text}");
}

/// Returns a request with one sample of each series.
fn body(targets: impl Iterator<Item = i64>, scrape: i64) -> Vec<u8> {
    let mut encoder = RequestEncoder::default();
    for target in targets {
        for (name, value) in [
            ("up", 1),
            ("load", (scrape * 7 + target * 13) % 37),
            ("requests_total", scrape * (target + 1)),
        ] {
            let labels =
                [("__name__", name), ("instance", &instance(target)), ("job", &job(target))];
            encoder.push(&encode_labels(labels), [(time_s(scrape) * 1_000, value as f64)]);
        }
    }
    let mut body = Vec::new();
    encoder.compress(&mut body);
    body
}

fn instant_path(query: &str, time_s: i64) -> String {
    format!("/api/v1/query?query={}&time={time_s}", percent_encode(query))
}

fn range_path(query: &str, start_s: i64, end_s: i64) -> String {
    let query = percent_encode(query);
    format!("/api/v1/query_range?query={query}&start={start_s}&end={end_s}&step={INTERVAL_S}")
}

/// Returns the only number of a result.
fn number(address: &str, query: &str, time_s: i64) -> i64 {
    let (status, text) = get(address, &instant_path(query, time_s));
    assert_eq!(status, 200, "{query} at {time_s}: {text}");
    let answer: Value = serde_json::from_str(&text).unwrap();
    let value = answer["data"]["result"][0]["value"][1].as_str();
    value.unwrap_or_else(|| panic!("{query} at {time_s}: {text}")).parse().unwrap()
}

/// Asks the root until the sender is done.
fn ask(root: &str, shared: &Shared) {
    while !shared.is_done.load(Ordering::Relaxed) {
        let (scrapes, moves) = {
            let progress = shared.progress.lock().unwrap();
            (progress.scrapes, progress.moves.clone())
        };
        let newest_s = time_s(scrapes - 1);
        // The old shard has a sample within the lookback, the new one, too.
        let is_twice = |of: &&Move| {
            (time_s(of.scrape)..time_s(of.scrape - 1) + LOOKBACK_S).contains(&newest_s)
        };
        let twice: i64 = moves.iter().filter(is_twice).map(|of| of.targets).sum();
        assert_eq!(number(root, "count(up)", newest_s), TARGETS + twice, "after {scrapes}");
        let samples = number(root, "sum(count_over_time(up[10m]))", newest_s);
        assert_eq!(samples, TARGETS * scrapes.min(600 / INTERVAL_S), "after {scrapes}");
        let path = range_path("sum by (job) (rate(requests_total[5m]))", START_S, newest_s);
        let (status, text) = get(root, &path);
        assert_eq!(status, 200, "{text}");
        shared.progress.lock().unwrap().answered += 1;
        shared.is_answered.notify_all();
    }
}

/// All processes of the test.
struct Cluster {
    all: Server,
    nodes: Vec<Node>,
    root: String,
    directory: TemporaryDirectory,
}

impl Cluster {
    fn add_nodes(&mut self, count: usize) {
        for shard in self.nodes.len()..count {
            let grpc = format!("127.0.0.1:{}", free_port());
            self.nodes.push(Node::start(&self.directory, shard as i64, &grpc, &[]));
        }
    }

    /// Adds empty shards to the root, moves targets, and writes the scrapes of a stage.
    fn run_stage(&mut self, sender: &mut Sender, shared: &Shared, shard_count: usize) {
        let from = self.nodes.len();
        let scrapes = shared.progress.lock().unwrap().scrapes;
        if from < shard_count {
            self.add_nodes(shard_count);
            let addresses: Vec<&str> = self.nodes.iter().map(|node| &node.grpc[..]).collect();
            write_endpoints(&self.directory, &addresses);
            wait_for_shards(&self.root, shard_count);
            self.reshard(sender, shared, from);
        }
        let before = shared.progress.lock().unwrap().answered;
        for scrape in scrapes..scrapes + STAGE_SCRAPES {
            sender.send(scrape);
            shared.progress.lock().unwrap().scrapes = scrape + 1;
        }
        let progress = shared.progress.lock().unwrap();
        let is_behind = |progress: &mut Progress| {
            progress.answered < before + STAGE_QUERIES && !shared.is_done.load(Ordering::Relaxed)
        };
        drop(shared.is_answered.wait_while(progress, is_behind).unwrap());
    }

    /// Moves targets as the tool says.
    fn reshard(&self, sender: &mut Sender, shared: &Shared, from: usize) {
        let to = self.nodes.len();
        let mut progress = shared.progress.lock().unwrap();
        let scrape = progress.scrapes;
        let nodes: Vec<&str> =
            self.nodes[..from].iter().map(|node| &node.server.address[..]).collect();
        let args = [format!("--from={from}"), format!("--to={to}")];
        let plan = plan(&nodes, time_s(scrape - 1), &args);
        assert_eq!(plan["misplaced"], 0, "{plan:#}");
        assert_eq!(plan["total"]["targets"], TARGETS, "{plan:#}");
        assert_eq!(plan["total"]["series"], 3 * TARGETS, "{plan:#}");
        let mut moved = 0;
        for target in plan["targets"].as_array().unwrap() {
            let labels = &target["labels"];
            let is_target = |index: &i64| {
                labels["job"] == job(*index) && labels["instance"] == instance(*index)
            };
            let index = (0..TARGETS).find(is_target).unwrap() as usize;
            assert_eq!(target["from"], sender.owners[index], "{target}");
            sender.owners[index] = target["to"].as_u64().unwrap() as usize;
            moved += i64::from(target["from"] != target["to"]);
        }
        assert_eq!(plan["moved"]["targets"], moved);
        assert!(moved > 0 && moved < TARGETS, "{plan:#}");
        progress.moves.push(Move { scrape, targets: moved });
        let shards = &self.nodes[from..];
        sender.shards.extend(shards.iter().map(|node| open(&node.server.address)));
    }
}

fn open(address: &str) -> Connection {
    Connection::open(address).unwrap()
}

/// Ends the thread with queries, also if the sender panics.
struct Done<'a>(&'a Shared);

impl Drop for Done<'_> {
    fn drop(&mut self) {
        self.0.is_done.store(true, Ordering::Relaxed);
        self.0.is_answered.notify_all();
    }
}

#[test]
fn resharding_loses_no_sample_and_no_query() {
    let Some(thanos) = thanos_binary() else { return };
    let directory = temporary_directory("scale-out-resharding");
    let all = Server::start(&directory.path().join("all"), &["--self-metrics=false"]);
    let mut cluster = Cluster { all, nodes: Vec::new(), root: String::new(), directory };
    cluster.add_nodes(1);
    let first = cluster.nodes[0].grpc.clone();
    let (root, _child) = start_root(Command::new(thanos), &cluster.directory, &[&first]);
    cluster.root.clone_from(&root);
    let mut sender = Sender {
        all: open(&cluster.all.address),
        shards: vec![open(&cluster.nodes[0].server.address)],
        owners: vec![0; TARGETS as usize],
    };
    sender.send(0);
    let shared = Shared {
        progress: Mutex::new(Progress { scrapes: 1, ..Progress::default() }),
        is_answered: Condvar::new(),
        is_done: AtomicBool::new(false),
    };
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let _done = Done(&shared);
            ask(&root, &shared);
        });
        let _done = Done(&shared);
        for shard_count in [1, 2, 4] {
            cluster.run_stage(&mut sender, &shared, shard_count);
        }
    });
    let progress = shared.progress.into_inner().unwrap();
    println!("{} queries of each kind were answered meanwhile", progress.answered);
    every_sample_is_there(&cluster, &progress);
    results_are_those_of_one_node(&cluster, &progress);
}

fn check(cluster: &Cluster, query: &str, path: &str) {
    let compared = compare_addresses(&cluster.all.address, &cluster.root, path);
    compared.unwrap_or_else(|error| panic!("{query}: {error}"));
}

/// Ranges of one interval hold one sample of a series, wherever it is.
fn every_sample_is_there(cluster: &Cluster, progress: &Progress) {
    let end_s = time_s(progress.scrapes - 1);
    for metric in ["up", "load", "requests_total"] {
        for function in ["count_over_time", "sum_over_time"] {
            let each = format!("sum by (job, instance) ({function}({metric}[{INTERVAL_S}s]))");
            check(cluster, &each, &range_path(&each, START_S, end_s));
            let sum = format!("sum by (job, instance) ({function}({metric}[1h]))");
            check(cluster, &sum, &instant_path(&sum, end_s));
        }
    }
    let count = number(&cluster.root, "sum(count_over_time(up[1h]))", end_s);
    assert_eq!(count, TARGETS * progress.scrapes);
}

/// Before a move, and from one lookback after the last sample in the old shard on.
fn results_are_those_of_one_node(cluster: &Cluster, progress: &Progress) {
    let mut start_s = START_S;
    let ends = progress.moves.iter().map(|of| of.scrape).chain([progress.scrapes]);
    for end in ends {
        for query in [
            "count by (job) (up)",
            "sum by (job, instance) (load)",
            "sum by (job) (rate(requests_total[5m]))",
            "max(sum by (instance) (load)) - count(up)",
        ] {
            let end_s = time_s(end - 1);
            assert!(start_s < end_s);
            check(cluster, query, &range_path(query, start_s, end_s));
        }
        start_s = time_s(end - 1) + LOOKBACK_S;
    }
}
