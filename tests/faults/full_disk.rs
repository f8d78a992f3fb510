//! Full disks of the store, and of the cache of an object store: writes are rejected with the
//! reason, queries work, memory is bounded, and writes resume once there is space.

use crate::load::{Answer, Load};
use crate::small_disk::SmallDisk;
use crate::wait_for;
use testkit::remote_write::Connection;
use testkit::s3::{BUCKET, S3Server};
use testkit::{Server, get};

const HOUR_MS: i64 = 3_600_000;
const ARGS: [&str; 3] =
    ["--self-metrics=false", "--storage.log-size=256KiB", "--storage.write-timeout=5s"];
const IS_FULL: &str = "No space left on device";

fn start(disk: &SmallDisk) -> Server {
    let server = disk.spawn(&disk.path().join("store").display().to_string(), &ARGS, &[]);
    server.wait_until_ready();
    server
}

/// Checks a rejection that senders retry, and its reason.
fn assert_refused(answer: &Answer) {
    assert_eq!(answer.status, 503, "{}", answer.text);
    assert!(answer.head.contains("retry-after:"), "{}", answer.head);
    assert!(answer.text.contains(IS_FULL), "{}", answer.text);
}

/// Sends until the disk is full, and some more requests.
fn send_until_refused(load: &mut Load, connection: &mut Connection, disk: &SmallDisk) {
    let mut refused = 0;
    for _ in 0..100_000 {
        let answer = load.send(connection);
        if answer.status != 204 {
            assert_refused(&answer);
            refused += 1;
        } else if refused > 0 {
            // Compacted files have been deleted by then.
            disk.fill();
        }
        if refused == 5 {
            return;
        }
    }
    panic!("the disk is never full");
}

fn memory_kib(server: &Server) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{}/status", server.child.0.id())).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.split_whitespace().next().unwrap().parse().unwrap()
}

#[test]
fn a_full_disk_refuses_writes_answers_queries_and_recovers() {
    let Some(disk) = SmallDisk::new("store", 16 << 10) else { return };
    let mut server = start(&disk);
    let mut connection = Connection::open(&server.address).unwrap();
    let mut load = Load::new(30 * HOUR_MS);
    for _ in 0..100 {
        assert_eq!(load.send(&mut connection).status, 204);
    }
    disk.fill();
    send_until_refused(&mut load, &mut connection, &disk);
    assert!(load.check(&server.address) >= 100, "what is known is queried on");

    // Senders that never pause.
    let before_kib = memory_kib(&server);
    for _ in 0..500 {
        let answer = load.send(&mut connection);
        if answer.status == 204 {
            disk.fill();
        }
    }
    let after_kib = memory_kib(&server);
    assert!(after_kib < before_kib + (48 << 10), "{before_kib} KiB, then {after_kib} KiB");
    wait_for("word of it", || {
        let (status, text) = get(&server.address, "/-/ready");
        status == 503 && text.starts_with("No writes are accepted: ") && text.contains(IS_FULL)
    });
    load.check(&server.address);

    disk.make_room();
    // It recovers without a write.
    server.wait_until_ready();
    wait_for("write that is taken", || load.send(&mut connection).status == 204);
    load.check(&server.address);

    // A killed process starts on a full disk.
    disk.fill();
    send_until_refused(&mut load, &mut connection, &disk);
    server.child.0.kill().unwrap();
    server.child.0.wait().unwrap();
    disk.fill();
    let server = disk.spawn(&disk.path().join("store").display().to_string(), &ARGS, &[]);
    wait_for("word of it", || server.log().contains(IS_FULL));
    assert_eq!(get(&server.address, "/-/healthy").0, 200);
    // Queries work as before the start.
    wait_for("answer to a query", || get(&server.address, "/api/v1/query?query=1").0 == 200);
    load.check(&server.address);
    let (status, text) = get(&server.address, "/-/ready");
    assert_eq!(status, 503, "{text}");
    assert!(text.starts_with("No writes are accepted: ") && text.contains(IS_FULL), "{text}");
    disk.make_room();
    server.wait_until_ready();
    load.check(&server.address);
    let mut connection = Connection::open(&server.address).unwrap();
    assert_eq!(load.send(&mut connection).status, 204);
    load.check(&server.address);
}

#[test]
fn a_store_that_fills_its_disk_loses_nothing() {
    let Some(disk) = SmallDisk::new("growth", 5 << 10) else { return };
    let mut server = start(&disk);
    let mut connection = Connection::open(&server.address).unwrap();
    let mut load = Load::new(30 * HOUR_MS);
    send_until_refused(&mut load, &mut connection, &disk);
    let stored = load.check(&server.address);
    server.child.0.kill().unwrap();
    server.child.0.wait().unwrap();
    let server = disk.spawn(&disk.path().join("store").display().to_string(), &ARGS, &[]);
    disk.resize(32 << 10);
    server.wait_until_ready();
    assert!(load.check(&server.address) >= stored, "what was read was durable");
    let mut connection = Connection::open(&server.address).unwrap();
    wait_for("write that is taken", || load.send(&mut connection).status == 204);
    load.check(&server.address);
}

fn metric(address: &str, name: &str) -> f64 {
    let (_, text) = get(address, "/metrics");
    let figure = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    figure.unwrap_or_else(|| panic!("no {name} in\n{text}")).parse().unwrap()
}

#[test]
fn reads_continue_when_the_disk_of_the_cache_is_full() {
    let Some(disk) = SmallDisk::new("cache", 64) else { return };
    let Some(s3) = S3Server::versitygw("full-cache") else { return };
    let (url, owned) = (format!("s3://{BUCKET}"), s3.variables());
    let variables: Vec<(&str, &str)> = owned.iter().map(|(n, v)| (*n, v.as_str())).collect();
    let mut load = Load::new(30 * HOUR_MS);
    let server =
        Server::start_on(&url, &["--self-metrics=false", "--storage.log-size=1"], &variables);
    let mut connection = Connection::open(&server.address).unwrap();
    for _ in 0..20 {
        assert_eq!(load.send(&mut connection).status, 204);
    }
    wait_for("seal", || metric(&server.address, "tessella_storage_seals_total") >= 1.0);
    drop(server);

    disk.fill();
    let folder = format!("--storage.disk-cache.folder={}", disk.path().join("cache").display());
    let server = disk.spawn(&url, &["--self-metrics=false", &folder], &variables);
    server.wait_until_ready();
    for _ in 0..3 {
        assert_eq!(load.check(&server.address), 20);
    }
    wait_for("failure of the cache", || {
        metric(&server.address, "tessella_storage_disk_cache_failures_total") > 0.0
    });
    assert_eq!(metric(&server.address, "tessella_storage_disk_cache_bytes"), 0.0);
    disk.make_room();
    assert_eq!(load.check(&server.address), 20);
}
