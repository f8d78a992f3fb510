//! Import of blocks of Prometheus, then the same queries to both.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use serde_json::{Value, json};

use super::queries::{CUSTOM_HISTOGRAMS, HISTOGRAMS, QUERIES};
use super::{FEATURES, Times, all_queries, compare_query, exposition, first_value, range_path};
use super::{spawn_prometheus, wait_for};
use testkit::{Server, free_port, get, percent_encode, request, temporary_directory};

/// Default settings of Prometheus, and the encodings with start timestamps.
const ENCODINGS: [&str; 2] =
    ["promql-delayed-name-removal", "xor2-encoding,histograms-st-encoding,st-storage"];

#[test]
fn imported_blocks_answer_as_the_prometheus_that_wrote_them() {
    let Ok(binary) = std::env::var("PROMETHEUS_BINARY") else {
        println!("SKIPPED: PROMETHEUS_BINARY is not set, nothing to import blocks of");
        return;
    };
    // Scrapes take most of the time, so both run at once.
    std::thread::scope(|scope| {
        for (number, encodings) in ENCODINGS.iter().enumerate() {
            let binary = &binary;
            scope.spawn(move || import_and_compare(number, encodings, binary));
        }
    });
}

fn import_and_compare(number: usize, encodings: &str, binary: &str) {
    let directory = temporary_directory(&format!("blocks-{number}"));
    let blocks = write_blocks(binary, directory.path(), &exposition::serve(), encodings);
    // Without scrapes, so that its samples do not change.
    let peer = format!("127.0.0.1:{}", free_port());
    let peer_directory = directory.path().join("peer");
    std::fs::create_dir(&peer_directory).unwrap();
    std::fs::rename(&blocks, peer_directory.join("prometheus")).unwrap();
    let features = format!("--enable-feature={FEATURES},{encodings}");
    let args = [features.as_str(), "--web.enable-admin-api"];
    let _prometheus = spawn_prometheus(binary, &peer_directory, &peer, "global: {}\n", &args);
    wait_for(Duration::from_secs(60), || get(&peer, "/-/ready").0 == 200);
    let (start, end) = times_of(&peer_directory.join("prometheus"));
    delete_some(&peer, start, end);

    let store = directory.path().join("store");
    let folder = peer_directory.join("prometheus");
    let (is_success, output) = import(&store, &folder);
    assert!(is_success, "{output}");
    let (is_success, output) = import(&store, &folder);
    assert!(is_success && output.contains("imported already"), "{output}");
    let server = Server::start(&store, &["--self-metrics=false"]);
    compare(&peer, &server.address, start, end, encodings);
    drop(server);
    import_as_of_thanos(&folder, &directory.path().join("labelled"), end);
}

/// Imports blocks with external labels of Thanos, which all series get.
fn import_as_of_thanos(folder: &Path, store: &Path, end: u64) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path().join("meta.json");
        let Ok(text) = std::fs::read_to_string(&path) else { continue };
        let mut meta: Value = serde_json::from_str(&text).unwrap();
        meta["thanos"] = json!({"version": 1, "labels": {"cluster": "eu", "replica": "0"}});
        std::fs::write(&path, meta.to_string()).unwrap();
    }
    let (is_success, output) = import(store, folder);
    assert!(is_success, "{output}");
    let server = Server::start(store, &["--self-metrics=false"]);
    let count = |selector: &str| {
        let query = percent_encode(&format!("count(last_over_time({selector}[1h]))"));
        let (_, body) = get(&server.address, &format!("/api/v1/query?query={query}&time={end}"));
        let answer: Value = serde_json::from_str(&body).unwrap();
        answer["data"]["result"][0]["value"][1].as_str().unwrap_or("0").to_owned()
    };
    let all = count("{__name__!=\"\"}");
    assert_eq!(count("{cluster=\"eu\",replica=\"0\"}"), all);
    assert_ne!(all, "0");
}

/// Runs scrapes of Prometheus for a while, and makes a snapshot, which has blocks.
fn write_blocks(binary: &str, directory: &Path, target: &str, encodings: &str) -> PathBuf {
    let address = format!("127.0.0.1:{}", free_port());
    let config = format!(
        "global: {{scrape_interval: 1s, evaluation_interval: 1s, scrape_native_histograms: true, \
         always_scrape_classic_histograms: true}}\n\
         rule_files: ['{rules}']\n\
         scrape_configs:\n\
         - {{job_name: prometheus, static_configs: [{{targets: ['{address}']}}]}}\n\
         - job_name: converted\n  \
         convert_classic_histograms_to_nhcb: true\n  \
         static_configs:\n  \
         - {{targets: ['{address}'], labels: {{instance: again}}}}\n  \
         - {{targets: ['{target}']}}\n  \
         metric_relabel_configs:\n  \
         - {{source_labels: [__name__], regex: '(target|prometheus_http_re).*', action: keep}}\n",
        rules = directory.join("rules.yml").display()
    );
    let rules = "groups:\n- name: floats\n  rules:\n  - record: recorded\n    \
                 expr: sum by (job) (prometheus_http_request_duration_seconds)\n  \
                 - record: recorded_rate\n    \
                 expr: rate(prometheus_http_request_duration_seconds[10s])\n";
    std::fs::write(directory.join("rules.yml"), rules).unwrap();
    let features = format!("--enable-feature={FEATURES},{encodings}");
    let args = [features.as_str(), "--web.enable-admin-api"];
    let _prometheus = spawn_prometheus(binary, directory, &address, &config, &args);
    wait_for(Duration::from_secs(90), || {
        first_value(&address, "min(count_over_time(up[1h]))") >= 20.0
            && first_value(&address, "min(count_over_time(recorded[1h]))") >= 15.0
    });
    let body = post(&address, "/api/v1/admin/tsdb/snapshot");
    let answer: Value = serde_json::from_str(&body).unwrap();
    let name = answer["data"]["name"].as_str().unwrap_or_else(|| panic!("{body}"));
    directory.join("prometheus/snapshots").join(name)
}

/// The first and the last second of the blocks in a folder.
fn times_of(folder: &Path) -> (u64, u64) {
    let metas = std::fs::read_dir(folder).unwrap().filter_map(|entry| {
        let text = std::fs::read_to_string(entry.unwrap().path().join("meta.json")).ok()?;
        Some(serde_json::from_str::<Value>(&text).unwrap())
    });
    let times: Vec<(u64, u64)> = metas
        .map(|meta| (meta["minTime"].as_u64().unwrap(), meta["maxTime"].as_u64().unwrap()))
        .collect();
    let min_ms = times.iter().map(|(min_ms, _)| *min_ms).min().unwrap();
    let max_ms = times.iter().map(|(_, max_ms)| *max_ms).max().unwrap();
    (min_ms / 1000, max_ms / 1000)
}

/// Tombstones of samples within some series, and of some whole series.
fn delete_some(peer: &str, start: u64, end: u64) {
    let (from, to) = (start + (end - start) / 3, start + (end - start) / 2);
    for selector in ["go_goroutines", "target_latency_seconds"] {
        let selector = percent_encode(selector);
        let query = format!("match[]={selector}&start={from}&end={to}");
        post(peer, &format!("/api/v1/admin/tsdb/delete_series?{query}"));
    }
    post(peer, "/api/v1/admin/tsdb/delete_series?match[]=go_info");
}

fn post(address: &str, path: &str) -> String {
    let head = format!(
        "POST {path} HTTP/1.1\r\nHost: {address}\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
    );
    let (status, body) = request(address, &head, &[]);
    assert!((200..300).contains(&status), "{path}: {status} {body}");
    body
}

/// Imports a folder with the binary; returns its output.
fn import(store: &Path, folder: &Path) -> (bool, String) {
    let output = Command::new(env!("CARGO_BIN_EXE_tessella"))
        .arg("import")
        .arg(format!("--storage.url={}", store.display()))
        .arg(folder)
        .output()
        .unwrap();
    let said = [output.stdout, output.stderr].concat();
    (output.status.success(), String::from_utf8(said).unwrap())
}

fn compare(peer: &str, address: &str, start: u64, end: u64, encodings: &str) {
    let times = Times { start: start + (end - start) / 2, end, step: 1 };
    let recorded = ["recorded", "recorded_rate"];
    for histogram in HISTOGRAMS.iter().chain(CUSTOM_HISTOGRAMS).chain(&recorded) {
        let (_, answer) = get(peer, &range_path(histogram, &times));
        assert!(answer.contains("\"histograms\""), "{histogram} has none: {answer}");
    }
    let histograms: Vec<&str> =
        HISTOGRAMS.iter().chain(CUSTOM_HISTOGRAMS).chain(&recorded).copied().collect();
    let more = ["go_goroutines", "count_over_time(go_goroutines[1h])", "go_info"];
    let queries: Vec<&str> = QUERIES.iter().copied().chain(more).collect();
    let (mut differences, mut compared) = (Vec::new(), 0);
    for query in all_queries("7s", &queries, &histograms) {
        differences.extend(compare_query(&query, &times, peer, &[address], &[encodings]));
        compared += 2;
    }
    println!("{encodings}: {compared} answers compared, {} differences", differences.len());
    assert!(
        differences.is_empty(),
        "{} differences:\n{}",
        differences.len(),
        differences.join("\n")
    );
}
