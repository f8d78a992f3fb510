//! Rules over a server, evaluated by unmodified programs: Prometheus by remote read, vmalert, and Thanos.
//! All of them write results back to it, as docs/rules.md describes.

use std::path::Path;
use std::process::Command;

use serde_json::Value;
use testkit::{Child, Server, TemporaryDirectory, free_port, get, temporary_directory};

use super::{now_seconds, program, query, start, wait_until, write};

const RULES: &str = "\
groups:
  - name: examples
    interval: 1s
    rules:
      - record: job:up:sum
        expr: sum by (job) (up)
      - alert: Down
        expr: up == 0
        labels: {severity: critical}
      - alert: DownForLong
        expr: up == 0
        for: 1h
";

struct Setup {
    server: Server,
    directory: TemporaryDirectory,
    rules: String,
    /// Address of the program that evaluates rules.
    address: String,
    /// Time of the start, in seconds since the epoch.
    started: i64,
}

/// Seconds for which an alert was pending before the start.
const PENDING: i64 = 2000;

/// Writes the state of an alert as the programs keep it, until a minute before the start. vmalert adds the
/// name of the group.
fn write_state(address: &str, started: i64) {
    let labels = [
        ("__name__", "ALERTS_FOR_STATE"),
        ("alertname", "DownForLong"),
        ("instance", "b"),
        ("job", "shop"),
    ];
    let of_vmalert = [labels[0], ("alertgroup", "examples"), labels[1], labels[2], labels[3]];
    let times = (started - PENDING..started - 59).step_by(15);
    let samples: Vec<(i64, f64)> =
        times.map(|time| (time * 1000, (started - PENDING) as f64)).collect();
    write(address, &[(&labels, samples.clone()), (&of_vmalert, samples)]);
}

impl Setup {
    /// Starts a server with a target that is up and one that is down.
    fn start(name: &str) -> Setup {
        let directory = temporary_directory(name);
        // The samples stay visible, however long the test takes.
        let args = ["--self-metrics=false", "--query.lookback-delta=1h"];
        let server = Server::start(&directory.path().join("data"), &args);
        let time = (now_seconds() - 120) * 1000;
        let up = |instance| [("__name__", "up"), ("instance", instance), ("job", "shop")];
        let (first, second) = (up("a"), up("b"));
        write(&server.address, &[(&first, vec![(time, 1.0)]), (&second, vec![(time, 0.0)])]);
        let started = now_seconds();
        write_state(&server.address, started);
        let rules = directory.path().join("rules.yml");
        std::fs::write(&rules, RULES).unwrap();
        let rules = rules.display().to_string();
        let address = format!("127.0.0.1:{}", free_port());
        Setup { server, directory, rules, address, started }
    }

    fn path(&self, name: &str) -> String {
        self.directory.path().join(name).display().to_string()
    }

    fn run(&self, binary: &str, arguments: &[String], log: &str, ready: &str) -> Child {
        start(binary, arguments, Path::new(&self.path(log)), &self.address, ready)
    }

    fn log(&self, name: &str) -> String {
        std::fs::read_to_string(self.path(name)).unwrap()
    }

    /// Waits until the recorded series and the alert are in the server, and the alert fires at the program.
    fn wait_for_results(&self, alerts: &str) {
        let value = |text: &str| query(&self.server.address, text, now_seconds() + 60);
        wait_until("the series is recorded", || value("job:up:sum")[0]["value"][1] == "1");
        wait_until("the alert is written", || {
            value("ALERTS{alertname=\"Down\",alertstate=\"firing\"}")[0]["metric"]["instance"]
                == "b"
        });
        wait_until("the alert fires", || {
            let (_, text) = get(&self.address, alerts);
            text.contains("\"Down\"") && text.contains("\"firing\"") && text.contains("\"pending\"")
        });
    }

    /// Returns the time from which the pending alert counts, in seconds since the epoch.
    fn active_at(&self, alerts: &str) -> Option<i64> {
        let answer: Value = serde_json::from_str(&get(&self.address, alerts).1).ok()?;
        // Thanos has another key than Prometheus.
        let data = &answer["data"];
        let alerts = data["alerts"].as_array().or_else(|| data["Alerts"].as_array())?;
        let long = |alert: &&Value| {
            alert["labels"]["alertname"] == "DownForLong" || alert["name"] == "DownForLong"
        };
        let time = alerts.iter().find(long)?["activeAt"].as_str()?;
        let date = Command::new("date").args(["--utc", "--date", time, "+%s"]).output().unwrap();
        String::from_utf8(date.stdout).unwrap().trim().parse().ok()
    }

    /// Waits until the alert counts from before the start.
    fn wait_for_restored_state(&self, alerts: &str) {
        wait_until("the state is restored", || {
            self.active_at(alerts).is_some_and(|time| time < self.started - PENDING / 2)
        });
    }
}

#[test]
fn prometheus_evaluates_rules_by_remote_read() {
    let Some(prometheus) = program("PROMETHEUS_BINARY") else { return };
    let setup = Setup::start("rules-prometheus");
    let (server, rules) = (&setup.server.address, &setup.rules);
    // Without read_recent, Prometheus does not ask for times that it has itself.
    let config = format!(
        "rule_files: [\"{rules}\"]\n\
         remote_read:\n  - url: http://{server}/api/v1/read\n    read_recent: true\n\
         remote_write:\n  - url: http://{server}/api/v1/write\n"
    );
    std::fs::write(setup.path("prometheus.yml"), config).unwrap();
    let arguments = [
        format!("--config.file={}", setup.path("prometheus.yml")),
        format!("--storage.tsdb.path={}", setup.path("prometheus")),
        format!("--web.listen-address={}", setup.address),
        "--query.lookback-delta=1h".to_owned(),
    ];
    let _prometheus = setup.run(&prometheus, &arguments, "prometheus.log", "/-/ready");
    setup.wait_for_results("/api/v1/alerts");
}

#[test]
fn vmalert_evaluates_rules_but_restores_no_state() {
    let Some(vmalert) = program("VMALERT_BINARY") else { return };
    let setup = Setup::start("rules-vmalert");
    let server = &setup.server.address;
    let arguments = [
        format!("-rule={}", setup.rules),
        format!("-datasource.url=http://{server}"),
        format!("-remoteWrite.url=http://{server}"),
        format!("-remoteRead.url=http://{server}"),
        "-notifier.blackhole".to_owned(),
        format!("-httpListenAddr={}", setup.address),
    ];
    let _vmalert = setup.run(&vmalert, &arguments, "vmalert.log", "/health");
    // It asks for the state in MetricsQL, logs the error, and continues.
    wait_until("the state is asked for", || setup.log("vmalert.log").contains("default_rollup("));
    setup.wait_for_results("/api/v1/alerts");
    let since = setup.active_at("/api/v1/alerts").unwrap();
    assert!(since > setup.started - PENDING / 2, "docs/rules.md says that no state is restored");
}

#[test]
fn thanos_evaluates_rules_and_restores_their_state() {
    let Some(thanos) = program("THANOS_BINARY") else { return };
    let setup = Setup::start("rules-thanos");
    let server = &setup.server.address;
    let config = format!("remote_write:\n  - name: rules\n    url: http://{server}/api/v1/write\n");
    std::fs::write(setup.path("remote-write.yml"), config).unwrap();
    let arguments = [
        "rule".to_owned(),
        format!("--http-address={}", setup.address),
        format!("--grpc-address=127.0.0.1:{}", free_port()),
        format!("--data-dir={}", setup.path("rule")),
        format!("--rule-file={}", setup.rules),
        format!("--query=http://{server}"),
        format!("--remote-write.config-file={}", setup.path("remote-write.yml")),
    ];
    let _thanos = setup.run(&thanos, &arguments, "thanos.log", "/-/ready");
    setup.wait_for_results("/api/v1/alerts");
    setup.wait_for_restored_state("/api/v1/alerts");
}
