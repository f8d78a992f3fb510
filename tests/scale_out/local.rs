//! `compose/scale-out-local` starts a topology that takes writes, answers queries over all shards,
//! evaluates rules and sends alerts. Its agents place each target on one shard.
//!
//! `VERSITYGW_BINARY` is needed, too; `PROMETHEUS_BINARY` adds agents, and `ALERTMANAGER_BINARY` alerts.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;
use testkit::remote_write::Connection;
use testkit::{TemporaryDirectory, free_port, get, percent_encode, temporary_directory};

use super::data::{END_SECONDS, SHARDS, Selected, TARGETS, request};
use super::result;
use super::root::thanos_binary;

/// Timeout for what takes a moment, on a busy machine.
const WAIT_MAX: Duration = Duration::from_secs(180);

/// More than the processes listen on.
const PORTS: usize = 60;

/// Processes of the script.
struct Local {
    script: Child,
    /// Addresses and process ids by name and port, such as `root-a:10902`.
    addresses: BTreeMap<String, (String, Option<u32>)>,
    directory: TemporaryDirectory,
}

impl Local {
    /// Starts the topology with rules. `None`, with a message, without its programs.
    fn start(rules: &str) -> Option<Local> {
        thanos_binary()?;
        if std::env::var_os("VERSITYGW_BINARY").is_none() {
            println!("SKIPPED: VERSITYGW_BINARY is not set");
            return None;
        }
        if Command::new("python3").arg("--version").output().is_err() {
            println!("SKIPPED: there is no python3");
            return None;
        }
        let directory = temporary_directory("scale-out-local");
        let file = directory.path().join("test-rules.yml");
        std::fs::write(&file, rules).unwrap();
        let ports: Vec<String> = (0..PORTS).map(|_| free_port().to_string()).collect();
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("compose/scale-out-local");
        let mut script = Command::new(path)
            .arg(format!("--folder={}", directory.path().join("data").display()))
            .arg(format!("--ports={}", ports.join(",")))
            .arg(format!("--rules={}", file.display()))
            .env("TESSELLA_BINARY", testkit::binary())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let output = BufReader::new(script.stdout.take().unwrap());
        let mut local = Local { script, addresses: BTreeMap::new(), directory };
        for line in output.lines() {
            let line = line.unwrap();
            if line.starts_with("ready") {
                return Some(local);
            }
            let words: Vec<&str> = line.split_whitespace().collect();
            if let [name, url, rest @ ..] = &words[..]
                && let Some((_, address)) = url.split_once("://")
            {
                let id = rest.last().map(|id| id.parse().unwrap());
                local.addresses.insert((*name).to_owned(), (address.to_owned(), id));
            }
        }
        panic!("the script ended before all processes were ready");
    }

    fn address(&self, name: &str) -> &str {
        &self.addresses.get(name).unwrap_or_else(|| panic!("there is no {name}")).0
    }

    /// Sends a signal to a process that the script has started.
    fn signal(&self, name: &str, signal: &str) -> bool {
        kill(signal, self.addresses[name].1.unwrap())
    }

    fn frontend(&self) -> &str {
        self.address("query-frontend:10902")
    }

    /// Values of an instant query at the query-frontend, by labels.
    fn values(&self, query: &str, time: Option<i64>) -> Result<BTreeMap<String, f64>, String> {
        let time = time.map(|time| format!("&time={time}")).unwrap_or_default();
        let path = format!("/api/v1/query?query={}{time}", percent_encode(query));
        let found = result(self.frontend(), &path)?;
        Ok(found.series.into_iter().map(|(labels, numbers)| (labels, numbers[1])).collect())
    }

    /// Waits until a query has a result.
    fn wait_for(
        &self,
        query: &str,
        time: Option<i64>,
        is_it: impl Fn(&BTreeMap<String, f64>) -> bool,
    ) {
        let started = Instant::now();
        loop {
            let found = self.values(query, time);
            if found.as_ref().is_ok_and(&is_it) {
                return;
            }
            assert!(started.elapsed() < WAIT_MAX, "{query}: {found:?}");
            std::thread::sleep(Duration::from_millis(200));
        }
    }

    /// Stops all processes by the signal that Ctrl-C or a supervisor sends.
    fn stop(&mut self) -> ExitStatus {
        kill("-TERM", self.script.id());
        self.script.wait().unwrap()
    }
}

impl Drop for Local {
    fn drop(&mut self) {
        // It stops the others, which a kill would leave behind.
        if self.script.try_wait().is_ok_and(|status| status.is_none()) {
            self.stop();
        }
    }
}

/// Returns whether a process took a signal.
fn kill(signal: &str, id: u32) -> bool {
    let mut command = Command::new("kill");
    command.args([signal, &id.to_string()]).stderr(Stdio::null());
    command.status().unwrap().success()
}

/// Rules over the samples of the test, which are of another time than now.
fn rules() -> String {
    let up = format!("up{{job=~\"job.*\"}} @ {END_SECONDS}");
    format!(
        "groups:\n- name: test\n  interval: 1s\n  rules:\n\
         \x20 - {{record: 'job:up:sum', expr: 'sum by (job) ({up})'}}\n\
         \x20 - {{alert: AllTargetsAreUp, expr: 'sum({up}) == {TARGETS}'}}\n"
    )
}

#[test]
fn the_topology_without_containers_works() {
    let Some(mut local) = Local::start(&rules()) else { return };
    for shard in 0..SHARDS {
        let writer = local.address(&format!("shard-{shard}-writer:9090"));
        let mut connection = Connection::open(writer).unwrap();
        let (status, text) = connection.write(&request(&Selected::of_shard(shard))).unwrap();
        assert!(status < 300, "{status} {text}");
    }
    let count = "count(up{job=~\"job.*\"})";
    local.wait_for(count, Some(END_SECONDS), |found| {
        found.values().eq([&f64::from(TARGETS as i32)])
    });
    the_root_knows_its_shards(&local);
    results_of_rules_are_at_the_root(&local);
    agents_place_each_target_on_one_shard(&local);
    a_shard_without_readers_is_an_error(&local);

    assert!(local.stop().success());
    for (name, (_, id)) in &local.addresses {
        assert!(id.is_none_or(|id| !kill("-0", id)), "{name} still runs");
    }
}

/// The probe of a root succeeds with the file of its shards, and fails if a shard is added, if the file has
/// no shard, and if nodes lack the label.
fn the_root_knows_its_shards(local: &Local) {
    if Command::new("wget").arg("--version").output().is_err() {
        println!("SKIPPED: there is no wget, the probe of roots does not run");
        return;
    }
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("deploy/scale-out");
    let shards = std::fs::read_to_string(folder.join("shards.yml")).unwrap();
    let file = local.directory.path().join("other-shards.yml");
    for (text, label, knows_all) in [
        (shards.clone(), None, true),
        (shards.clone(), Some("shard"), true),
        (shards.clone(), Some("zone"), false),
        (shards.clone() + "  - address: \"shard-2-readers:10901\"\n", None, false),
        (shards.clone() + "  - group: true\n    address: \"shard-2-readers:10901\"\n", None, false),
        (shards + "  # - address: \"shard-2-readers:10901\"\n", None, true),
        ("endpoints: []\n".to_owned(), None, false),
    ] {
        std::fs::write(&file, &text).unwrap();
        let mut probe = Command::new("sh");
        probe.arg(folder.join("knows-all-shards")).arg(local.address("root-a:10902")).arg(&file);
        let status = probe.args(label).status().unwrap();
        assert_eq!(status.success(), knows_all, "{label:?} {text}");
    }
}

fn results_of_rules_are_at_the_root(local: &Local) {
    local.wait_for("job:up:sum", None, |found| {
        found.len() == 3 && found.values().all(|value| *value == 8.0)
    });
    let found = local.values("count by (shard) (job:up:sum)", None).unwrap();
    assert_eq!(found, BTreeMap::from([("{\"shard\":\"0\"}".to_owned(), 3.0)]));
    if std::env::var_os("ALERTMANAGER_BINARY").is_none() {
        println!("SKIPPED: ALERTMANAGER_BINARY is not set, no alerts are sent");
        return;
    }
    wait_for_text(local.address("alertmanager:9093"), "/api/v2/alerts", |text| {
        let alerts: Value = serde_json::from_str(text).unwrap_or_default();
        let alert = &alerts[0];
        alert["labels"]["alertname"] == "AllTargetsAreUp" && alert["status"]["state"] == "active"
    });
}

/// Addresses of the processes that the file of targets names.
fn targets(local: &Local) -> BTreeSet<String> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("compose/scale-out/targets.yml");
    let groups: Value = serde_saphyr::from_str(&std::fs::read_to_string(path).unwrap()).unwrap();
    let groups = groups.as_array().unwrap();
    let names = groups.iter().flat_map(|group| group["targets"].as_array().unwrap());
    let addresses = names.filter_map(|name| {
        let (address, process) = local.addresses.get(name.as_str().unwrap())?;
        process.map(|_| address.clone())
    });
    addresses.collect()
}

/// Values of the label `instance`.
fn instances<'a>(labels: impl Iterator<Item = &'a String>) -> BTreeSet<String> {
    let labels = labels.map(|labels| serde_json::from_str::<Value>(labels).unwrap());
    labels.map(|labels| labels["instance"].as_str().unwrap().to_owned()).collect()
}

fn agents_place_each_target_on_one_shard(local: &Local) {
    if std::env::var_os("PROMETHEUS_BINARY").is_none() {
        println!("SKIPPED: PROMETHEUS_BINARY is not set, there are no agents");
        return;
    }
    let expected = targets(local);
    let is_alertmanager_here = usize::from(std::env::var_os("ALERTMANAGER_BINARY").is_some());
    // Six nodes, two roots, two agents, the query-frontend and the rules.
    assert_eq!(expected.len(), 12 + is_alertmanager_here);
    let up = "count by (instance) (up{job!~\"job.*\"} == 1)";
    local.wait_for(up, None, |found| instances(found.keys()) == expected);
    // The monitor scrapes all of them itself.
    let path = format!("/api/v1/query?query={}", percent_encode("up == 1"));
    wait_for_text(local.address("monitor:9090"), &path, |text| {
        expected.iter().all(|address| text.contains(&format!("\"{address}\"")))
    });
    let found = local.values(up, None).unwrap();
    assert!(found.values().all(|shards| *shards == 1.0), "{found:?}");
    let kept: Vec<usize> = (0..SHARDS)
        .map(|shard| {
            let address = local.address(&format!("agent-{shard}:9090"));
            let (_, text) = get(address, "/api/v1/targets?state=active");
            let answer: Value = serde_json::from_str(&text).unwrap();
            answer["data"]["activeTargets"].as_array().unwrap().len()
        })
        .collect();
    // A file names an Alertmanager that is not there.
    assert_eq!(kept.iter().sum::<usize>(), 13, "{kept:?}");
}

/// Kills the readers of a shard: no query and no list may be answered without its series.
fn a_shard_without_readers_is_an_error(local: &Local) {
    for reader in ["shard-1-reader-a:9090", "shard-1-reader-b:9090"] {
        assert!(local.signal(reader, "-KILL"));
    }
    let (text, start) = (percent_encode("count(up)"), END_SECONDS - 600);
    for path in [
        format!("/api/v1/query?query={text}&time={END_SECONDS}"),
        format!("/api/v1/query_range?query={text}&start={start}&end={END_SECONDS}&step=60"),
        format!("/api/v1/labels?start={start}&end={END_SECONDS}"),
        format!("/api/v1/series?match[]=up&start={start}&end={END_SECONDS}"),
    ] {
        let (status, text) = get(local.frontend(), &path);
        assert!(status >= 400, "{path}: {status} {text}");
    }
    let found = local.values("count(up{shard=\"0\"})", Some(END_SECONDS)).unwrap();
    assert!(found.values().eq([&12.0]), "{found:?}");
    // Rules fail, too, and the monitor notices.
    wait_for_text(local.address("rule:10902"), "/metrics", |text| {
        let prefix = "prometheus_rule_evaluation_failures_total{";
        let mut values = text.lines().filter(|line| line.starts_with(prefix));
        values.any(|line| !line.ends_with(" 0"))
    });
    if std::env::var_os("PROMETHEUS_BINARY").is_some() {
        wait_for_text(local.address("monitor:9090"), "/api/v1/alerts", |text| {
            text.contains("ShardWithoutReader") && text.contains("shard-1")
        });
        let (_, text) = get(local.address("monitor:9090"), "/api/v1/alerts");
        for silent in ["shard-0", "ShardWithoutWriter", "RootWithoutShard", "SamplesDropped"] {
            assert!(!text.contains(silent), "{text}");
        }
    }
}

/// Waits until a page has a text.
fn wait_for_text(address: &str, path: &str, is_it: impl Fn(&str) -> bool) {
    let started = Instant::now();
    loop {
        let (_, text) = get(address, path);
        if is_it(&text) {
            return;
        }
        assert!(started.elapsed() < WAIT_MAX, "{path}: {text}");
        std::thread::sleep(Duration::from_millis(200));
    }
}
