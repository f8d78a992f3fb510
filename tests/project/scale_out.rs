//! The set-up of scale-out in containers: its files are checked against the binary, against Thanos and
//! Prometheus if they are there, and against each other. No container is started.

use std::collections::{BTreeMap, BTreeSet};
use std::process::{Command, Output};

use clap::Parser;
use regex::Regex;
use serde_json::Value;
use tessella::cli::CommandLine;
use testkit::temporary_directory;

use super::compose::{Compose, flag, path, strings, text, yaml};

const FILE: &str = "compose/scale-out.yml";
/// Files of the set-up that name services.
const CONFIGS: [&str; 7] = [
    "deploy/scale-out/alertmanager.yml",
    "deploy/scale-out/remote-write.yml",
    "deploy/scale-out/shards.yml",
    "compose/scale-out/agent-0.yml",
    "compose/scale-out/agent-1.yml",
    "compose/scale-out/monitor.yml",
    "compose/scale-out/targets.yml",
];

/// Flags without which Thanos answers without the series of a shard, and without an error.
pub const FLAGS_OF_COMPLETE_ANSWERS: [(&str, &[&str]); 2] = [
    (
        "query",
        &[
            "--query.mode=distributed",
            "--no-query.partial-response",
            "--no-exemplar.partial-response",
        ],
    ),
    ("query-frontend", &["--no-query-range.partial-response", "--no-labels.partial-response"]),
];

/// Returns the output of a program in an environment variable. `None`, with a message, without it.
pub fn run(variable: &str, arguments: &[&str]) -> Option<Output> {
    let Some(binary) = std::env::var_os(variable) else {
        println!("SKIPPED: {variable} is not set");
        return None;
    };
    Some(Command::new(binary).args(arguments).output().unwrap())
}

/// Fails unless the program succeeds; prints a message without it.
pub fn succeeds(variable: &str, arguments: &[&str]) {
    if let Some(output) = run(variable, arguments) {
        assert!(output.status.success(), "{arguments:?}: {output:?}");
    }
}

/// Fails unless the server takes the arguments.
pub fn server_takes(arguments: &[&str]) {
    let line = std::iter::once(&"tessella").chain(arguments);
    let parsed = CommandLine::try_parse_from(line).unwrap_or_else(|error| panic!("{error}"));
    assert!(parsed.tool.is_none());
}

/// Fails unless a command of Thanos has all flags, and those of complete answers are given.
pub fn thanos_takes(arguments: &[&str]) {
    let (command, flags) = arguments.split_first().unwrap();
    for (of, needed) in FLAGS_OF_COMPLETE_ANSWERS {
        assert!(of != *command || needed.iter().all(|flag| flags.contains(flag)), "{arguments:?}");
    }
    let Some(output) = run("THANOS_BINARY", &[command, "--help"]) else { return };
    let help = String::from_utf8(output.stdout).unwrap() + &String::from_utf8_lossy(&output.stderr);
    for flag in flags {
        let name = flag.split('=').next().unwrap().trim_start_matches("--");
        let positive = name.strip_prefix("no-").unwrap_or(name);
        let is_switch = help.contains(&format!("--[no-]{positive} "));
        let has_value = help.contains(&format!("--{name}="));
        // Thanos hides some flags in its help, and parses them nevertheless.
        let is_hidden = *flag == "--no-exemplar.partial-response";
        assert!(is_switch != has_value || is_hidden, "thanos {command} has no {flag}");
        assert_eq!(flag.contains('='), has_value, "{flag}");
    }
}

/// Services by each name that they have.
fn names(compose: &Compose) -> BTreeMap<String, Vec<String>> {
    let mut names: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for (name, service) in compose.services() {
        names.entry(name.clone()).or_default().push(name.clone());
        for alias in strings(&service["networks"]["default"]["aliases"]) {
            names.entry(alias.to_owned()).or_default().push(name.clone());
        }
    }
    names
}

#[test]
fn services_keep_the_rules_of_compose_files() {
    let compose = Compose::read(FILE);
    compose.keeps_the_rules();
    let names = names(&compose);
    for shard in 0..2 {
        assert_eq!(names[&format!("shard-{shard}-readers")].len(), 2);
    }
    assert_eq!(names["roots"].len(), 2);
}

#[test]
fn programs_take_the_flags_that_they_are_given() {
    let compose = Compose::read(FILE);
    for (name, service) in compose.services() {
        let arguments = strings(&service["command"]);
        match service["image"].as_str().unwrap().split(':').next().unwrap() {
            "tessella" => {
                server_takes(&arguments);
                let shard = flag(&arguments, "--external-label").unwrap().replace('=', "-");
                assert!(name.starts_with(&shard), "{name}");
                assert_eq!(
                    flag(&arguments, "--storage.url"),
                    Some(&*format!("s3://metrics/{shard}"))
                );
                let mode = flag(&arguments, "--mode").unwrap_or("writer");
                assert!(name[shard.len() + 1..].starts_with(mode), "{name}");
                let retention = flag(&arguments, "--storage.retention.time");
                assert_eq!(retention, Some("90d"), "{name}: the bucket grows for ever");
            }
            "quay.io/thanos/thanos" => thanos_takes(&arguments),
            _ => {}
        }
    }
}

#[test]
fn files_name_services_and_their_ports() {
    let compose = Compose::read(FILE);
    let names = names(&compose);
    let ports = BTreeMap::from([
        ("tessella", &["9090", "10901"][..]),
        ("quay.io/thanos/thanos", &["10902"]),
        ("prom/prometheus", &["9090"]),
        ("prom/alertmanager", &["9093"]),
        ("versity/versitygw", &["7070"]),
    ]);
    let address = Regex::new(r"\b([a-z][a-z0-9-]*):(\d{4,5})\b").unwrap();
    let mut named = BTreeSet::new();
    for file in CONFIGS.iter().chain([&FILE]) {
        let content = text(file);
        let lines = content.lines().filter(|line| !line.trim_start().starts_with('#'));
        for line in lines.filter(|line| !line.contains("image:")) {
            for found in address.captures_iter(line) {
                let services = names.get(&found[1]);
                let services = services.unwrap_or_else(|| panic!("{file} names {}", &found[0]));
                for service in services {
                    let image = compose.services()[service]["image"].as_str().unwrap();
                    let ports = ports[image.split(':').next().unwrap()];
                    assert!(ports.contains(&&found[2]), "{file}: {}", &found[0]);
                    named.insert(service.clone());
                }
            }
        }
    }
    let all: BTreeSet<String> = compose.services().keys().cloned().collect();
    let unnamed: Vec<_> = all.difference(&named).collect();
    assert_eq!(unnamed, ["grafana", "monitor"], "nothing sends to them");
}

#[test]
fn agents_differ_by_their_shard_alone() {
    let agents = [0, 1].map(|shard| text(&format!("compose/scale-out/agent-{shard}.yml")));
    let regex = |agent: &String| {
        let rule = agent.lines().find_map(|line| line.trim().strip_prefix("regex: \"")).unwrap();
        rule.trim_end_matches('"').to_owned()
    };
    let [first, second] = agents.each_ref().map(regex);
    let moved = agents[0]
        .replace("agent of shard 0", "agent of shard 1")
        .replace(&first, &second)
        .replace("shard-0-writer", "shard-1-writer");
    assert_eq!(moved, agents[1]);
    // Each slot belongs to one shard, and both have as many.
    let slots = [first, second].map(|rule| Regex::new(&format!("^(?:{rule})$")).unwrap());
    let owners = |slot: &usize| slots.each_ref().map(|rule| rule.is_match(&slot.to_string()));
    assert!((0..1024).all(|slot| owners(&slot) == [slot < 512, slot >= 512]));
    assert!(!slots[1].is_match("1024"));
}

/// Values may differ if they are addresses, paths or shards.
#[test]
fn the_script_without_containers_gives_the_same_flags() {
    let script = text("compose/scale-out-local");
    let compose = Compose::read(FILE);
    for (name, service) in compose.services() {
        let arguments = strings(&service["command"]);
        for argument in arguments.iter().filter(|argument| argument.starts_with("--")) {
            let (flag, value) = argument.split_once('=').unwrap_or((argument, ""));
            let is_own = value.contains(['/', ':']) || value.starts_with("shard=");
            let expected = if is_own { format!("{flag}=") } else { (*argument).to_owned() };
            assert!(script.contains(&expected), "{name}: {argument}");
        }
    }
}

#[test]
fn shards_are_strict_groups_with_retries() {
    let config = yaml("deploy/scale-out/shards.yml");
    let documented = text("docs/scale-out.md");
    for (shard, endpoint) in config["endpoints"].as_array().unwrap().iter().enumerate() {
        assert_eq!(endpoint["address"], format!("shard-{shard}-readers:10901"));
        assert!(endpoint["group"] == true && endpoint["strict"] == true, "{endpoint}");
        let policy = endpoint["service_config"].as_str().unwrap();
        assert!(documented.contains(policy), "docs/scale-out.md has another policy");
        let policy: Value = serde_json::from_str(policy).unwrap();
        let retries = &policy["methodConfig"][0]["retryPolicy"];
        assert_eq!(retries["retryableStatusCodes"][0], "UNAVAILABLE");
    }
}

#[test]
fn promtool_and_thanos_find_no_fault_with_the_files() {
    for agent in ["compose/scale-out/agent-0.yml", "compose/scale-out/agent-1.yml"] {
        succeeds(
            "PROMTOOL_BINARY",
            &["check", "config", "--agent", &path(agent).display().to_string()],
        );
    }
    // In the container, its files are in one folder.
    let folder = temporary_directory("scale-out-monitor");
    for file in [
        "compose/scale-out/monitor.yml",
        "compose/scale-out/targets.yml",
        "deploy/scale-out/alerts.yml",
        "deploy/mixin/tessella-alerts.yml",
        "deploy/mixin/tessella-rules.yml",
    ] {
        let file = path(file);
        std::fs::copy(&file, folder.path().join(file.file_name().unwrap())).unwrap();
    }
    let monitor = folder.path().join("monitor.yml").display().to_string();
    succeeds("PROMTOOL_BINARY", &["check", "config", &monitor]);
    for file in ["alerts.yml", "rules.yml"] {
        let file = path(&format!("deploy/scale-out/{file}")).display().to_string();
        succeeds("PROMTOOL_BINARY", &["check", "rules", "--lint-fatal", &file]);
        succeeds("THANOS_BINARY", &["tools", "rules-check", &format!("--rules={file}")]);
    }
}

/// Results of rules are written to one shard, whose external label replaces the label `shard`.
#[test]
fn results_of_rules_have_no_label_of_the_shard() {
    let rules = yaml("deploy/scale-out/rules.yml");
    let groups = rules["groups"].as_array().unwrap().iter();
    let grouping = Regex::new(r"^(sum|max|count) by \(([a-z, ]+)\) \(").unwrap();
    for rule in groups.flat_map(|group| group["rules"].as_array().unwrap()) {
        let expression = rule["expr"].as_str().unwrap();
        let labels = grouping.captures(expression).unwrap_or_else(|| panic!("{expression}"));
        assert!(labels[2].split(", ").all(|label| label != "shard"), "{expression}");
    }
}
