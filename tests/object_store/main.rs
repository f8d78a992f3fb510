//! One suite for every kind of store: write, end without closing, recover, read, fence, retain.
//! Processes are the real binary and are killed; in memory, a store is dropped without closing.
//!
//! And what only a store behind a network shows: what is wrong is said at the start, and an
//! object store that fails for a while.

#![allow(clippy::unwrap_used, reason = "a test ends where its ground gives way")]

mod caches;
mod nodes;
mod outage;
#[path = "../support/remote_write.rs"]
mod remote_write;
mod startup;
#[path = "../support/mod.rs"]
mod support;

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use nodes::{Contents, Place, Settings};
use support::s3::S3Server;
use support::temporary_directory;

const DAY_MS: i64 = 86_400_000;

fn now_ms() -> i64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_millis() as i64
}

/// Waits for what the background does.
fn wait_for(what: &str, mut is_so: impl FnMut() -> bool) {
    let started = Instant::now();
    while !is_so() {
        assert!(started.elapsed() < Duration::from_secs(90), "no {what} after 90 s");
        std::thread::sleep(Duration::from_millis(100));
    }
}

/// Some samples of three series from a time on.
fn samples(start_ms: i64) -> Contents {
    let of = |series: i64| (0..4).map(move |n| (start_ms + n * 1000, (series * 10 + n) as f64));
    (0..3).map(|series| (series as u32, of(series).collect())).collect()
}

fn merged(parts: &[&Contents]) -> Contents {
    let mut all = Contents::new();
    for (series, samples) in parts.iter().flat_map(|part| part.iter()) {
        all.entry(*series).or_default().extend(samples.iter().map(|(t, v)| (*t, *v)));
    }
    all
}

fn suite(place: &dyn Place) {
    let now = now_ms() / 1000 * 1000;
    let (old, recent) = (samples(now - 4 * DAY_MS), samples(now - 60_000));

    // Write, kill, recover from the log.
    let keeping = Settings::default();
    let mut node = place.open(&keeping);
    node.write(&old).unwrap();
    node.write(&recent).unwrap();
    assert_eq!(node.read(), merged(&[&old, &recent]));
    node.kill();

    // The same from sealed blocks, which a small log makes of it.
    let mut node = place.open(&Settings { log_bytes_max: 1, ..keeping });
    assert_eq!(node.read(), merged(&[&old, &recent]), "after a kill");
    let more = samples(now - 30_000);
    node.write(&more).unwrap();
    node.maintain();
    wait_for("partition", || node.partitions() >= 2);
    assert_eq!(node.read(), merged(&[&old, &recent, &more]));
    node.kill();
    let mut first = place.open(&keeping);
    let all = merged(&[&old, &recent, &more]);
    assert_eq!(first.read(), all, "after a seal and a kill");

    // A second writer takes over.
    let mut second = place.open(&keeping);
    let refused = samples(now - 20_000);
    let error = first.write(&refused).unwrap_err();
    assert!(error.contains("another process has taken over this store"), "{error}");
    let error = first.write(&refused).unwrap_err();
    assert!(error.contains("another process has taken over this store"), "{error}");
    let taken = samples(now - 10_000);
    second.write(&taken).unwrap();
    assert_eq!(second.read(), merged(&[&all, &taken]), "what was refused is not stored");
    first.kill();
    second.kill();

    // Retention.
    let mut node = place.open(&Settings { retention_ms: Some(2 * DAY_MS), ..keeping });
    assert_eq!(node.read(), merged(&[&recent, &more, &taken]), "beyond the retention");
    assert!(node.write(&samples(now - 3 * DAY_MS)).is_err(), "older than the retention");
    node.maintain();
    wait_for("deleted partition", || node.partitions_deleted() >= 1);
    assert_eq!(node.read(), merged(&[&recent, &more, &taken]));
    node.kill();
    let node = place.open(&keeping);
    assert_eq!(node.read(), merged(&[&recent, &more, &taken]), "deleted for good");
    node.kill();
}

#[test]
fn a_store_in_memory_keeps_its_promises() {
    suite(&nodes::InMemory::default());
}

#[test]
fn a_store_on_disk_keeps_its_promises() {
    let folder = temporary_directory("place");
    suite(&nodes::Processes::on_disk(folder.path()));
}

#[test]
fn a_store_on_versitygw_keeps_its_promises() {
    if let Some(server) = S3Server::versitygw("place") {
        suite(&nodes::Processes::on_s3(&server));
    }
}

#[test]
fn a_store_on_moto_keeps_its_promises() {
    if let Some(server) = S3Server::moto("place") {
        suite(&nodes::Processes::on_s3(&server));
    }
}
