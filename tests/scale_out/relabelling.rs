//! The plan of `tessella reshard-plan` is the placement by Prometheus' relabelling.
//!
//! `PROMETHEUS_BINARY` is the binary of Prometheus; without it, the test is skipped.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;
use testkit::remote_write::{Connection, RequestEncoder, encode_labels};
use testkit::{Server, free_port, get, spawn_listening, temporary_directory};

use super::resharding::plan;

/// Timeout for what takes a moment, on a busy machine.
const WAIT_MAX: Duration = Duration::from_secs(180);
const TARGETS: usize = 60;
const TIME_S: i64 = 1_700_000_040;
const MODULUS: usize = 5;

fn instance(target: usize) -> String {
    format!("host{target}.example.org:{}", 9_000 + target % 7)
}

/// Writes a series of each target.
fn write(address: &str) {
    let mut encoder = RequestEncoder::default();
    for target in 0..TARGETS {
        let labels = [("__name__", "up"), ("instance", &instance(target)), ("job", "hosts")];
        encoder.push(&encode_labels(labels), [(TIME_S * 1_000, 1.0)]);
    }
    let mut body = Vec::new();
    encoder.compress(&mut body);
    assert!(Connection::open(address).unwrap().write(&body).unwrap().0 < 300);
}

/// Jobs of Prometheus: `modulus` labels its targets, and `slots-N` keeps those of a shard.
fn config(slots: &[Value]) -> String {
    let addresses: Vec<String> =
        (0..TARGETS).map(|target| format!("'{}'", instance(target))).collect();
    let targets = format!("static_configs: [{{targets: [{}]}}]", addresses.join(","));
    // Nothing is scraped meanwhile.
    let mut config =
        String::from("global: {scrape_interval: 1h, scrape_timeout: 1s}\nscrape_configs:\n");
    let hashmod = |labels: &str, modulus: usize, target: &str| {
        format!(
            "{{source_labels: [{labels}], action: hashmod, modulus: {modulus}, target_label: {target}}}"
        )
    };
    writeln!(config, "- job_name: modulus\n  {targets}\n  relabel_configs:").unwrap();
    let rule = "{target_label: name, replacement: hosts}";
    writeln!(config, "  - {rule}\n  - {}", hashmod("name, __address__", MODULUS, "shard")).unwrap();
    for (shard, slots) in slots.iter().enumerate() {
        writeln!(config, "- job_name: slots-{shard}\n  {targets}\n  relabel_configs:").unwrap();
        writeln!(config, "  - {rule}").unwrap();
        writeln!(config, "  - {}", hashmod("name, __address__", 1024, "__tmp_slot")).unwrap();
        let regex = slots["regex"].as_str().unwrap();
        writeln!(config, "  - {{source_labels: [__tmp_slot], action: keep, regex: '{regex}'}}")
            .unwrap();
    }
    config
}

/// Returns the new shard of each instance.
fn shards(plan: &Value) -> BTreeMap<String, String> {
    let targets = plan["targets"].as_array().unwrap().iter();
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    targets.map(|of| (text(&of["labels"]["instance"]), of["to"].to_string())).collect()
}

#[test]
fn prometheus_places_targets_as_planned() {
    let Ok(prometheus) = std::env::var("PROMETHEUS_BINARY") else {
        println!("SKIPPED: PROMETHEUS_BINARY is not set");
        return;
    };
    let directory = temporary_directory("scale-out-relabelling");
    let node = Server::start(&directory.path().join("node"), &["--self-metrics=false"]);
    write(&node.address);
    let args = |text: &[&str]| text.iter().map(|arg| (*arg).to_owned()).collect::<Vec<_>>();
    let to = format!("--to={MODULUS}");
    let modulus = plan(&[&node.address], TIME_S, &args(&["--algorithm=hashmod", "--from=1", &to]));
    let layout = ["--from=2", "--to=4", "--slots=0-511", "--slots=512-1023"];
    let slots = plan(&[&node.address], TIME_S, &args(&layout));

    let file = directory.path().join("prometheus.yml");
    std::fs::write(&file, config(slots["slots"].as_array().unwrap())).unwrap();
    let address = format!("127.0.0.1:{}", free_port());
    let mut command = Command::new(prometheus);
    command.arg(format!("--config.file={}", file.display()));
    command.arg(format!("--storage.tsdb.path={}", directory.path().join("tsdb").display()));
    command.arg(format!("--web.listen-address={address}")).stdin(Stdio::null());
    let _prometheus = spawn_listening(&mut command, &address);

    let (mut by_modulus, mut by_slots) = (BTreeMap::new(), BTreeMap::new());
    let started = Instant::now();
    while by_modulus.len() + by_slots.len() < 2 * TARGETS {
        assert!(started.elapsed() < WAIT_MAX, "{} and {}", by_modulus.len(), by_slots.len());
        (by_modulus, by_slots) = (BTreeMap::new(), BTreeMap::new());
        let (_, text) = get(&address, "/api/v1/targets?state=active");
        let answer: Value = serde_json::from_str(&text).unwrap_or_default();
        for target in answer["data"]["activeTargets"].as_array().into_iter().flatten() {
            let labels = &target["labels"];
            let text = |name: &str| labels[name].as_str().unwrap_or_default().to_owned();
            match text("job").strip_prefix("slots-") {
                Some(shard) => by_slots.insert(text("instance"), shard.to_owned()),
                None => by_modulus.insert(text("instance"), text("shard")),
            };
        }
        std::thread::sleep(Duration::from_millis(100));
    }
    assert_eq!(by_modulus, shards(&modulus));
    assert_eq!(by_slots, shards(&slots));
}
