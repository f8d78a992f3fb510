//! Backup, restore and downgrade as docs/operations.md describes them: a snapshot that is copied away and started
//! after the loss of the store, with the samples since then from an export; the same by export alone.

use std::path::Path;
use std::process::Command;

use serde_json::json;
use testkit::{Server, binary, get, request, temporary_directory};

use super::{now_seconds, query, stop, write};

fn snapshot(address: &str) -> String {
    let head = format!(
        "POST /api/v1/admin/tsdb/snapshot HTTP/1.1\r\nHost: {address}\r\nContent-Length: 0\r\n\
         Connection: close\r\n\r\n"
    );
    let (status, answer) = request(address, &head, &[]);
    assert_eq!(status, 200, "{answer}");
    let answer: serde_json::Value = serde_json::from_str(&answer).unwrap();
    answer["data"]["name"].as_str().unwrap().to_owned()
}

fn copy_folder(from: &Path, to: &Path) {
    let status = Command::new("cp").arg("-r").args([from, to]).status().unwrap();
    assert!(status.success());
}

/// Runs a tool on a store.
fn tool(name: &str, store: &Path, arguments: &[String]) {
    let url = format!("--storage.url={}", store.display());
    let output = Command::new(binary()).args([name, &url]).args(arguments).output().unwrap();
    assert!(output.status.success(), "{output:?}");
}

/// Sends a sample for each second of a time, whose values are their times.
fn send(server: &Server, seconds: std::ops::Range<i64>) {
    let samples = seconds.map(|second| (second * 1000, second as f64)).collect();
    write(&server.address, &[(&[("__name__", "m"), ("job", "shop")], samples)]);
}

#[test]
fn a_store_is_restored_from_a_snapshot() {
    let directory = temporary_directory("backup");
    let store = directory.path().join("store");
    let start = now_seconds() - 1000;
    let server = Server::start(&store, &["--self-metrics=false", "--web.enable-admin-api"]);
    send(&server, start..start + 500);
    let name = snapshot(&server.address);
    send(&server, start + 500..start + 1000);
    let copy = directory.path().join("copy");
    copy_folder(&store.join("snapshots").join(name), &copy);
    stop(server);
    std::fs::remove_dir_all(&store).unwrap();

    // The copy becomes the store, and takes further writes.
    std::fs::rename(&copy, &store).unwrap();
    let server = Server::start(&store, &["--self-metrics=false"]);
    let found = query(&server.address, "count_over_time(m[1h])", start + 1000);
    assert_eq!(found[0]["value"][1], "500");
    send(&server, start + 500..start + 600);
    let found = query(&server.address, "max_over_time(m[1h])", start + 1000);
    assert_eq!(found[0]["value"][1], json!((start + 599).to_string()));
    stop(server);
    tool("verify", &store, &[]);
}

#[test]
fn a_downgrade_keeps_the_samples_since_the_snapshot() {
    let directory = temporary_directory("downgrade");
    let [store, older] = ["store", "older"].map(|name| directory.path().join(name));
    let start = now_seconds() - 1000;
    let server = Server::start(&store, &["--self-metrics=false", "--web.enable-admin-api"]);
    send(&server, start..start + 500);
    let name = snapshot(&server.address);
    copy_folder(&store.join("snapshots").join(name), &older);
    send(&server, start + 500..start + 1000);
    stop(server);
    // Samples that the snapshot has, too, are not stored twice.
    let text = directory.path().join("since.om");
    let since = format!("--start={}", start + 400);
    let output = format!("--output={}", text.display());
    tool("export", &store, &["--match={__name__!=\"\"}".to_owned(), since, output]);
    tool("import", &older, &[text.display().to_string()]);
    let server = Server::start(&older, &["--self-metrics=false"]);
    let found = query(&server.address, "count_over_time(m[1h])", start + 1000);
    assert_eq!(found[0]["value"][1], "1000");
}

#[test]
fn a_store_is_restored_from_an_export() {
    let directory = temporary_directory("backup-text");
    let [store, other] = ["store", "other"].map(|name| directory.path().join(name));
    let start = now_seconds() - 1000;
    let server = Server::start(&store, &["--self-metrics=false"]);
    send(&server, start..start + 500);
    let text = directory.path().join("all.om");
    // The export has the contents of the store at its start, next to the server.
    let output = format!("--output={}", text.display());
    tool("export", &store, &["--match={__name__!=\"\"}".to_owned(), output]);
    tool("import", &other, &[text.display().to_string()]);
    let restored = Server::start(&other, &["--self-metrics=false"]);
    let [before, after] = [&server, &restored].map(|server| {
        get(&server.address, &format!("/api/v1/query?query=m[1h]&time={}", start + 1000)).1
    });
    assert!(before.contains(&(start + 499).to_string()), "{before}");
    assert_eq!(before, after);
}
