//! The scripts of `deploy/migrate` with the programs that they migrate from. `compare-answers` compares the
//! answers of the old and the new server; it finds differences that are there.

use std::path::Path;
use std::process::{Command, Output};

use serde_json::{Value, json};
use testkit::{Server, binary, free_port, get, request, temporary_directory};

use super::{Series, file, now_seconds, program, query, start, stop, write};

const DAY: i64 = 86_400;
/// Seconds between samples.
const STEP: i64 = 300;
/// Series of the metric `requests_total`.
const SERIES: usize = 3;

fn run(script: &str, arguments: &[&str], variables: &[(&str, &str)]) -> Output {
    Command::new(file("deploy/migrate").join(script))
        .args(arguments)
        .env("TESSELLA", binary())
        .envs(variables.iter().copied())
        .output()
        .unwrap()
}

fn succeeds(script: &str, arguments: &[&str], variables: &[(&str, &str)]) -> String {
    let output = run(script, arguments, variables);
    assert!(output.status.success(), "{script}: {output:?}");
    String::from_utf8(output.stdout).unwrap()
}

/// Sends counters, a gauge with special values and awkward labels, from a time to another.
fn send(address: &str, from: i64, until: i64) {
    let times: Vec<i64> = (from..until).step_by(STEP as usize).collect();
    let numbers: Vec<String> = (0..SERIES).map(|number| number.to_string()).collect();
    let labels = numbers
        .iter()
        .map(|number| [("__name__", "requests_total"), ("code", number.as_str()), ("job", "shop")]);
    let labels: Vec<_> = labels.collect();
    let counted = |number: usize| {
        let sample = |time: &i64| (time * 1000 + 7, (time / STEP * (number as i64 + 1)) as f64);
        times.iter().map(sample).collect::<Vec<_>>()
    };
    let mut series: Vec<Series<'_>> =
        labels.iter().enumerate().map(|(at, labels)| (&labels[..], counted(at))).collect();
    let awkward = [("__name__", "level"), ("text", "a \"b\" \\ \n {},[] ä")];
    let level = times.iter().map(|time| (time * 1000, (time % 977) as f64 / 7.0 - 50.0));
    series.push((&awkward, level.collect()));
    // One stale marker, and infinities.
    let special = [("__name__", "special")];
    let first = times[0] * 1000;
    let stale = f64::from_bits(0x7ff0_0000_0000_0002);
    series.push((
        &special,
        vec![
            (first, f64::INFINITY),
            (first + 60_000, f64::NEG_INFINITY),
            (first + 120_000, 0.1),
            (first + 180_000, stale),
        ],
    ));
    write(address, &series);
}

/// Compares the answers of two servers over whole days.
fn compare(old: &str, new: &str, start: i64, end: i64, ignored: &[&str]) -> Output {
    let [old, new] = [old, new].map(|address| format!("http://{address}"));
    let (start, end) = (format!("--start={start}"), format!("--end={end}"));
    let mut arguments = vec![&*old, &*new, &*start, &*end, "--step=43200"];
    arguments.extend(ignored);
    run("compare-answers", &arguments, &[])
}

fn assert_alike(old: &str, new: &str, start: i64, end: i64, ignored: &[&str]) {
    let output = compare(old, new, start, end, ignored);
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success() && text.contains(" 0 differences"), "{output:?}");
    assert!(text.contains("3 metrics, 5 series"), "{text}");
}

/// The first midnight of the last days.
fn first_day() -> i64 {
    now_seconds() / DAY * DAY - 2 * DAY
}

#[test]
fn prometheus_is_imported_by_its_script() {
    let Some(prometheus) = program("PROMETHEUS_BINARY") else { return };
    let directory = temporary_directory("from-prometheus");
    let (_prometheus, old) = testkit::prometheus::start(&prometheus, directory.path());
    let (from, until) = (first_day(), first_day() + 2 * DAY);
    send(&old, from, until);
    let store = directory.path().join("store").display().to_string();
    let data = directory.path().join("prometheus").display().to_string();
    let arguments = [&*format!("http://{old}"), &*data, &*store];
    let text = succeeds("from-prometheus", &arguments, &[]);
    let count = SERIES as i64 * (2 * DAY / STEP) + 2 * DAY / STEP + 4;
    assert!(text.contains(&format!("imported {count} samples")), "{text}");
    // The snapshot is deleted, and a second run finds nothing new.
    assert_eq!(
        std::fs::read_dir(directory.path().join("prometheus/snapshots")).unwrap().count(),
        0
    );
    let text = succeeds("from-prometheus", &arguments, &[]);
    assert!(text.contains("imported 0 samples"), "{text}");

    let server = Server::start(Path::new(&store), &["--self-metrics=false"]);
    assert_alike(&old, &server.address, from, until, &[]);
    // A sample more is a difference.
    write(
        &server.address,
        &[(&[("__name__", "level"), ("text", "x")], vec![(from * 1000 + 1, 1.0)])],
    );
    let output = compare(&old, &server.address, from, until, &[]);
    assert!(!output.status.success(), "{output:?}");
    assert!(String::from_utf8_lossy(&output.stdout).contains("2 differences"), "{output:?}");
}

#[test]
fn answers_are_compared_to_their_end_and_series_one_by_one() {
    let directory = temporary_directory("compare-answers");
    let server =
        |name: &str| Server::start(&directory.path().join(name), &["--self-metrics=false"]);
    let (old, new) = (server("old"), server("new"));
    let (from, until) = (first_day(), first_day() + DAY + 600);
    for server in [&old, &new] {
        send(&server.address, from, until);
    }
    assert_alike(&old.address, &new.address, from, until, &[]);
    // Its last ten minutes are less than a step.
    let late = [(&[("__name__", "special")][..], vec![((until - 30) * 1000, 1.0)])];
    write(&new.address, &late);
    let output = compare(&old.address, &new.address, from, until, &[]);
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(!output.status.success() && text.contains("2 differences"), "{output:?}");
    assert!(text.contains(&format!("until {until}: None and (1.0,)")), "{text}");
    let output = compare(&old.address, &new.address, from, until, &["--ignore=code"]);
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(!output.status.success(), "{output:?}");
    assert!(text.contains("of requests_total at") && text.contains("differ only in"), "{text}");
}

#[test]
fn victoria_metrics_is_imported_by_its_script() {
    let Some(victoria) = program("VICTORIA_METRICS_BINARY") else { return };
    let directory = temporary_directory("from-victoria-metrics");
    let old = format!("127.0.0.1:{}", free_port());
    let data = directory.path().join("victoria");
    let arguments = [
        format!("-httpListenAddr={old}"),
        format!("-storageDataPath={}", data.display()),
        "-retentionPeriod=1y".to_owned(),
    ];
    let log = directory.path().join("victoria.log");
    let _victoria = start(&victoria, &arguments, &log, &old, "/health");
    let (from, until) = (first_day(), first_day() + 2 * DAY);
    send(&old, from, until);
    assert_eq!(get(&old, "/internal/force_flush").0, 200);

    let store = directory.path().join("store").display().to_string();
    let day = |seconds: i64| {
        let arguments = ["--utc", "--date", &format!("@{seconds}"), "+%F"];
        let output = Command::new("date").args(arguments).output().unwrap();
        String::from_utf8(output.stdout).unwrap().trim().to_owned()
    };
    let address = format!("http://{old}");
    let (first, last) = (day(from - DAY), day(until));
    let arguments = [&*address, &*store, &*first, &*last];
    let text = succeeds("from-victoria-metrics", &arguments, &[]);
    assert!(text.contains(&format!("{first}: no samples")), "{text}");
    let per_day = (SERIES as i64 + 1) * DAY / STEP;
    assert!(text.contains(&format!("imported {} samples", per_day + 4)), "{text}");
    assert!(text.contains(&format!("imported {per_day} samples")), "{text}");
    let text = succeeds("from-victoria-metrics", &arguments, &[]);
    assert!(!text.contains("imported 1") && text.contains("imported 0 samples"), "{text}");

    let server = Server::start(Path::new(&store), &["--self-metrics=false"]);
    assert_alike(&old, &server.address, from, until, &[]);
    // After the infinities, a sample and the marker.
    let at = |seconds| query(&server.address, "special", from + seconds)[0]["value"][1].clone();
    let found = [0, 60, 120, 180].map(at);
    assert_eq!(found, [json!("+Inf"), json!("-Inf"), json!("0.1"), Value::Null]);
}

/// Copies the blocks of a snapshot to a bucket in a folder, as uploaded by a sidecar of a replica.
fn upload(snapshot: &Path, bucket: &Path, replica: &str) {
    for entry in std::fs::read_dir(snapshot).unwrap() {
        let block = entry.unwrap().path();
        // Replicas have blocks of their own.
        let mut name = block.file_name().unwrap().to_str().unwrap().to_owned();
        name.replace_range(25.., replica);
        let target = bucket.join(&name);
        let copied = Command::new("cp").arg("-r").args([&block, &target]).status().unwrap();
        assert!(copied.success());
        let path = target.join("meta.json");
        let mut meta: Value = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
        meta["ulid"] = json!(name);
        meta["thanos"] = json!({
            "labels": {"cluster": "a", "replica": replica},
            "downsample": {"resolution": 0},
            "source": "sidecar"
        });
        std::fs::write(&path, meta.to_string()).unwrap();
    }
}

#[test]
fn thanos_is_imported_by_its_script() {
    let Some(thanos) = program("THANOS_BINARY") else { return };
    let Some(prometheus) = program("PROMETHEUS_BINARY") else { return };
    let directory = temporary_directory("from-thanos");
    let (_prometheus, old) = testkit::prometheus::start(&prometheus, directory.path());
    let (from, until) = (first_day(), first_day() + 2 * DAY);
    send(&old, from, until);
    let head = format!(
        "POST /api/v1/admin/tsdb/snapshot HTTP/1.1\r\nHost: {old}\r\nContent-Length: 0\r\n\
         Connection: close\r\n\r\n"
    );
    let (status, answer) = request(&old, &head, &[]);
    assert_eq!(status, 200, "{answer}");
    let answer: Value = serde_json::from_str(&answer).unwrap();
    let snapshots = directory.path().join("prometheus/snapshots");
    let snapshot = snapshots.join(answer["data"]["name"].as_str().unwrap());
    let bucket = directory.path().join("bucket");
    std::fs::create_dir(&bucket).unwrap();
    for replica in ["0", "1"] {
        upload(&snapshot, &bucket, replica);
    }
    let config = directory.path().join("bucket.yml");
    let text = format!("type: FILESYSTEM\nconfig: {{directory: \"{}\"}}\n", bucket.display());
    std::fs::write(&config, text).unwrap();
    let [config, blocks, store] =
        [config, directory.path().join("blocks"), directory.path().join("s")]
            .map(|path| path.display().to_string());
    let arguments = [&*config, &*blocks, &*store, "--label=replica="];
    succeeds("from-thanos", &arguments, &[("THANOS", &thanos)]);

    let server = Server::start(Path::new(&store), &["--self-metrics=false"]);
    assert_alike(&old, &server.address, from, until, &["--ignore=cluster"]);
    let found =
        query(&server.address, "count by (cluster, replica) (last_over_time(level[2d]))", until);
    assert_eq!(found[0]["metric"], json!({"cluster": "a"}));
    stop(server);
    // Another run copies and imports nothing.
    let text = succeeds("from-thanos", &arguments, &[("THANOS", &thanos)]);
    assert!(text.contains("imported 0 samples"), "{text}");
}
