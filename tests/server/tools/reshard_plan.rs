//! `tessella reshard-plan` over servers and stores.

use std::path::Path;
use std::process::Command;

use serde_json::{Value, json};
use testkit::remote_write::{Connection, RequestEncoder, encode_labels};
use testkit::{Server, temporary_directory};

use super::Ran;

const TIME_S: i64 = 1_700_000_040;

/// Writes two samples of each series of some targets; a target has as many series as its number.
fn write(address: &str, targets: std::ops::Range<usize>) {
    let mut encoder = RequestEncoder::default();
    for target in targets {
        for series in 0..target {
            let (target, series) = (format!("host{target}"), series.to_string());
            let labels =
                [("__name__", "m"), ("instance", &target), ("job", "a"), ("series", &series)];
            let samples = [-15, 0].map(|after_s| ((TIME_S + after_s) * 1_000, 1.0));
            encoder.push(&encode_labels(labels), samples);
        }
    }
    // A result of a rule, and a metric of the server itself: no targets.
    for labels in [
        [("__name__", "rule"), ("job", "a")].as_slice(),
        &[("__name__", "own"), ("instance", address), ("job", "tessella-self")],
    ] {
        let samples = [(TIME_S * 1_000, 1.0)];
        encoder.push(&encode_labels(labels.iter().copied()), samples);
    }
    let mut body = Vec::new();
    encoder.compress(&mut body);
    let (status, text) = Connection::open(address).unwrap().write(&body).unwrap();
    assert!(status < 300, "{text}");
}

fn plan(args: &[&str]) -> Ran {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tessella"));
    Ran::from(command.arg("reshard-plan").args(args).output().unwrap())
}

fn plan_json(args: &[&str]) -> Value {
    let ran = plan(&[args, &["--format=json", &format!("--time={TIME_S}")]].concat());
    assert_eq!(ran.status, Some(0), "{ran:?}");
    serde_json::from_str(&ran.stdout).unwrap()
}

fn start(directory: &Path) -> Server {
    Server::start(directory, &["--self-metrics=false"])
}

#[test]
fn a_plan_over_servers_is_that_over_their_stores() {
    let directory = temporary_directory("reshard-plan");
    let paths = ["a", "b"].map(|name| directory.path().join(name));
    let [a, b] = [&paths[0], &paths[1]].map(|path| start(path));
    write(&a.address, 1..10);
    // Both shards have the last target, as after a move.
    write(&b.address, 9..21);
    let change = ["--from=3", "--to=4", "--algorithm=hashmod"];
    let servers = [&a, &b].map(|server| format!("--server={}", server.address));
    let over_servers = plan_json(&[&change[..], &[&servers[0], &servers[1]]].concat());
    let stores = paths.each_ref().map(|path| format!("--storage.url={}", path.display()));
    let over_stores = plan_json(&[&change[..], &[&stores[0], &stores[1]]].concat());
    assert_eq!(over_servers, over_stores);

    let total = json!({"targets": 20, "series": 210 + 9, "samples": 2 * (210 + 9)});
    assert_eq!(over_servers["total"], total);
    assert_eq!(over_servers["misplaced"], Value::Null);
    assert_eq!(over_servers["seriesWithoutLabels"], 2);
    let sum = |list: &str, field: &str| {
        let all = over_servers[list].as_array().unwrap().iter();
        all.map(|of| of[field].as_u64().unwrap()).sum::<u64>()
    };
    for list in ["flows", "shards", "targets"] {
        assert_eq!([sum(list, "series"), sum(list, "samples")], [219, 438], "{list}");
    }
    let largest = &over_servers["targets"][0];
    assert_eq!(largest["labels"], json!({"instance": "host20", "job": "a"}));
    assert_eq!(largest["series"], 20);
}

#[test]
fn a_plan_of_slots_prints_rules_and_targets() {
    let directory = temporary_directory("reshard-plan-slots");
    let server = start(directory.path());
    write(&server.address, 1..4);
    let address = format!("--server=http://{}/", server.address);
    let time = format!("--time={TIME_S}");
    let ran = plan(&["--from=2", "--to=4", &address, &time, "--label=instance", "--top=1"]);
    assert_eq!(ran.status, Some(0), "{ran:?}");
    for line in [
        "3 targets with 6 series, and 12 samples in 5m up to 2023-11-14T22:14:00.000Z",
        "series without these labels: 1 (instance)",
        "instance=\"host3\"",
        "2  25[6-9]|2[6-9][0-9]|[3-4][0-9][0-9]|50[0-9]|51[0-1]",
        "--slots=256-511",
    ] {
        assert!(ran.stdout.contains(line), "{line}: {}", ran.stdout);
    }
    assert!(!ran.stdout.contains("instance=\"host2\""), "{}", ran.stdout);

    // The server has no TLS, so a request without TLS would succeed.
    let ran = plan(&["--from=2", "--to=4", &format!("--server=https://{}", server.address)]);
    assert_ne!(ran.status, Some(0), "{ran:?}");
}

#[test]
fn own_metrics_and_results_of_rules_are_not_misplaced() {
    let directory = temporary_directory("reshard-plan-own");
    let server = start(directory.path());
    write(&server.address, 1..4);
    let plan = plan_json(&["--from=1", "--to=2", &format!("--server={}", server.address)]);
    assert_eq!(plan["misplaced"], 0);
    assert_eq!(plan["total"]["targets"], 3);
    assert_eq!(plan["seriesWithoutLabels"], 1);
}

#[test]
fn wrong_flags_and_servers_are_errors() {
    let server = "--server=127.0.0.1:1";
    for (args, status, message) in [
        (&["--from=2", "--to=4"][..], 2, "name servers by --server, or stores by --storage.url"),
        (&["--from=2", "--to=4", "--server=ftp://a:1"], 2, "neither http:// nor https://"),
        (&["--from=2", "--to=4", "--server=http://a:1/b"], 2, "by --web.route-prefix"),
        (&["--from=2", "--to=4", "--server=http://a"], 2, "is not an address and port"),
        (&["--from=0", "--to=4", server], 2, "is not a number of shards"),
        (&["--from=2", "--to=4", server, "--label="], 2, "is not the name of a label"),
        (&["--from=2", "--to=4", server, "--slots=0-1023"], 2, "--slots is given 1 times"),
        (&["--from=2", "--to=4", server, "--url=http://a"], 2, "a flag of --algorithm=vmagent"),
        (
            &["--from=2", "--to=1", server, "--algorithm=vmagent", "--url=http://a"],
            2,
            "--url is given 1 times for 2 shards",
        ),
        (
            &["--from=1", "--to=2", server, "--algorithm=hashmod", "--slots=0-1023"],
            2,
            "a flag of --algorithm=slots",
        ),
        (&["--from=1", "--to=2", server], 1, "does not answer"),
    ] {
        let ran = plan(args);
        assert_eq!(ran.status, Some(status), "{ran:?}");
        assert!(ran.stderr.contains(message), "{ran:?}");
    }
}
