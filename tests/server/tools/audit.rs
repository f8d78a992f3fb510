//! `tessella inspect` and `tessella verify`.

use std::path::{Path, PathBuf};

use serde_json::Value;

use super::{Ran, command, tool};
use testkit::{Server, get, temporary_directory};

/// A store with two days of 20 series, sealed.
fn fill(store: &Path, directory: &Path) {
    let mut text = String::from("# TYPE m gauge\n# HELP m What it is.\n");
    for series in 0..20 {
        for sample in 0..200 {
            let at = 1_600_000_000 + sample * 600;
            text.push_str(&format!("m{{series=\"{series}\"}} {} {at}\n", series * sample));
        }
    }
    text.push_str("# EOF\n");
    let file = directory.join("m.om");
    std::fs::write(&file, text).unwrap();
    assert_eq!(tool("import", store, &[&file.display().to_string()]).status, Some(0));
}

fn inspected(store: &Path) -> Value {
    let ran = tool("inspect", store, &["--format=json"]);
    assert_eq!(ran.status, Some(0), "{ran:?}");
    serde_json::from_str(&ran.stdout).unwrap()
}

/// The files of a kind.
fn files(store: &Path, kind: &str) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(store.join("tessella").join(kind)).unwrap();
    let mut files: Vec<PathBuf> = entries.map(|entry| entry.unwrap().path()).collect();
    files.sort();
    files
}

#[test]
fn inspect_lists_the_content_of_a_store() {
    let directory = temporary_directory("inspect");
    let store = directory.path().join("store");
    let ran = tool("inspect", &store, &[]);
    assert!(ran.status == Some(1) && ran.stderr.contains("no store here"), "{ran:?}");
    fill(&store, directory.path());
    let all = || ["compacted", "manifest", "wal"].map(|kind| files(&store, kind));
    let before = all();
    let survey = inspected(&store);
    let days = survey["partitions"].as_array().unwrap();
    let sum = |name: &str| days.iter().map(|day| day[name].as_u64().unwrap()).sum::<u64>();
    assert_eq!((sum("samples"), sum("series"), days.len()), (4000, 40, 2), "{survey}");
    assert_eq!(days[0]["timesMs"][0], 1_600_000_000_000_u64);
    assert_eq!(days[1]["timesMs"][1], 1_600_119_400_000_u64);
    assert_eq!(survey["owner"], Value::Null);
    assert_eq!((&survey["log"]["samples"], &survey["damages"]), (&0.into(), &0.into()));
    assert_eq!(survey["metricsDescribed"], 1);
    assert!(survey["notes"][0].as_str().unwrap().starts_with("import/text/"), "{survey}");
    let ran = tool("inspect", &store, &[]);
    assert!(ran.stdout.contains("2020-09-13") && ran.stdout.contains("none: the store is closed"));
    assert_eq!(all(), before, "nothing is written");
}

#[test]
fn a_closed_pipe_is_no_failure() {
    let directory = temporary_directory("closed-pipe");
    let store = directory.path().join("store");
    fill(&store, directory.path());
    for name in ["inspect", "verify"] {
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let ran = Ran::from(command(name, &store, &[]).stdout(writer).output().unwrap());
        assert!(ran.status == Some(0) && ran.stderr.is_empty(), "{name}: {ran:?}");
    }
}

#[test]
fn a_server_continues_while_its_store_is_inspected() {
    let directory = temporary_directory("inspect-running");
    let store = directory.path().join("store");
    fill(&store, directory.path());
    let server = Server::start(&store, &["--web.enable-admin-api"]);
    let delete = "/api/v1/admin/tsdb/delete_series?match[]=m{series=\"3\"}&start=1600000000";
    let post = |path: &str| {
        let head = format!(
            "POST {path} HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
        );
        testkit::request(&server.address, &head, &[])
    };
    assert_eq!(post(delete).0, 204);
    let survey = inspected(&store);
    assert!(survey["owner"].as_str().unwrap().starts_with("process "), "{survey}");
    assert_eq!(survey["tombstones"][0]["selectors"][0], "{series=\"3\", __name__=\"m\"}");
    let ran = tool("verify", &store, &[]);
    assert!(ran.status == Some(0) && ran.stdout.contains("; 0 damages"), "{ran:?}");
    assert_eq!(post(delete).0, 204, "the server writes on");
    assert_eq!(get(&server.address, "/-/ready").0, 200);
}

#[test]
fn a_store_that_is_whole_has_no_damage_and_every_changed_byte_is_found() {
    let directory = temporary_directory("verify");
    let store = directory.path().join("store");
    fill(&store, directory.path());
    let ran = tool("verify", &store, &[]);
    assert_eq!(ran.status, Some(0), "{ran:?}");
    assert!(ran.stdout.contains("40 series and 4000 samples"), "{ran:?}");
    let (mut changed, mut missed) = (0, Vec::new());
    for file in files(&store, "compacted") {
        let bytes = std::fs::read(&file).unwrap();
        for part in 1..4 {
            let mut damaged = bytes.clone();
            let Some(byte) = damaged.get_mut(bytes.len() * part / 4) else { continue };
            *byte ^= 0x10;
            std::fs::write(&file, damaged).unwrap();
            let ran = tool("verify", &store, &[]);
            changed += 1;
            if ran.status != Some(1) || !names(&ran, &file) {
                missed.push((file.clone(), bytes.len() * part / 4, bytes.len(), ran));
            }
        }
        std::fs::write(&file, bytes).unwrap();
    }
    assert!(changed > 10, "{changed}");
    assert!(missed.is_empty(), "{} of {changed} missed: {missed:#?}", missed.len());
    assert_eq!(tool("verify", &store, &[]).status, Some(0));
}

#[test]
fn damage_only_in_the_wal_is_found_and_the_rest_is_checked() {
    let directory = temporary_directory("verify-log");
    let store = directory.path().join("store");
    fill(&store, directory.path());
    let server = Server::start(&store, &["--self-metrics=false", "--web.enable-admin-api"]);
    let head = "POST /api/v1/admin/tsdb/delete_series?match[]=m HTTP/1.1\r\nHost: x\r\n\
                Content-Length: 0\r\nConnection: close\r\n\r\n";
    assert_eq!(testkit::request(&server.address, head, &[]).0, 204);
    // Killed: the tombstone is in no other file.
    drop(server);
    let ran = tool("verify", &store, &[]);
    assert_eq!(ran.status, Some(0), "{ran:?}");
    let newest = files(&store, "wal").pop().unwrap();
    let mut bytes = std::fs::read(&newest).unwrap();
    let middle = bytes.len() / 3;
    bytes[middle] ^= 0x10;
    std::fs::write(&newest, bytes).unwrap();
    let ran = tool("verify", &store, &[]);
    assert_eq!(ran.status, Some(1), "{ran:?}");
    assert!(names(&ran, &newest) && !ran.stdout.contains("verified 0 files"), "{ran:?}");
    let manifest = files(&store, "manifest").pop().unwrap();
    let mut bytes = std::fs::read(&manifest).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 0x10;
    std::fs::write(&manifest, bytes).unwrap();
    let ran = tool("verify", &store, &[]);
    assert!(ran.status == Some(1) && ran.stdout.contains("damage in the manifest"), "{ran:?}");
}

/// Returns whether the damage of a file is reported.
fn names(ran: &Ran, file: &Path) -> bool {
    let name = file.file_name().unwrap().to_str().unwrap();
    ran.stdout.lines().any(|line| line.starts_with("damage") && line.contains(name))
}
