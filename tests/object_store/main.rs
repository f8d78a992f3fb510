//! One suite for every kind of store: write, end without closing, recover, read, fence, delete,
//! copy, retain.
//! Processes are the real binary and are killed; in memory, a store is dropped without closing.
//!
//! For stores over a network also: errors at the start, and an object store that fails for a while.

#![allow(clippy::unwrap_used, reason = "tests may panic")]

mod caches;
mod costs;
mod nodes;
mod outage;
mod owner;
mod readers;
mod standby;
mod startup;

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use nodes::{Contents, Place, Settings};
use testkit::emulators::Emulator;
use testkit::s3::S3Server;
use testkit::temporary_directory;

const DAY_MS: i64 = 86_400_000;

fn now_ms() -> i64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_millis() as i64
}

/// Waits for background work.
fn wait_for(what: &str, mut is_so: impl FnMut() -> bool) {
    let started = Instant::now();
    while !is_so() {
        assert!(started.elapsed() < Duration::from_secs(180), "no {what} after 180 s");
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
    let old = samples(now - 4 * DAY_MS);
    let recent = recovers(place, now, &old);
    let recent = fences(place, now, &old, &recent);
    let (old, recent) = deletes(place, now, &old, &recent);
    copies(place, now, &merged(&[&old, &recent]));
    retains(place, now, &recent);
}

/// Writes and is killed; returns the samples written in addition to the old ones.
fn recovers(place: &dyn Place, now: i64, old: &Contents) -> Contents {
    let recent = samples(now - 60_000);
    // Recover from the log.
    let keeping = Settings::default();
    let mut node = place.open(&keeping);
    node.write(old).unwrap();
    node.write(&recent).unwrap();
    assert_eq!(node.read(), merged(&[old, &recent]));
    node.kill();

    // The same samples are sealed, as the log is small.
    let mut node = place.open(&Settings { log_bytes_max: 1, ..keeping });
    assert_eq!(node.read(), merged(&[old, &recent]), "after a kill");
    let more = samples(now - 50_000);
    node.write(&more).unwrap();
    node.maintain();
    wait_for("partition", || node.partitions() >= 2);
    assert_eq!(node.read(), merged(&[old, &recent, &more]));
    node.kill();
    let node = place.open(&keeping);
    assert_eq!(node.read(), merged(&[old, &recent, &more]), "after a seal and a kill");
    node.kill();
    merged(&[&recent, &more])
}

/// A second writer takes over, unless the store is locked.
fn fences(place: &dyn Place, now: i64, old: &Contents, recent: &Contents) -> Contents {
    let mut first = place.open(&Settings::default());
    let Some(mut second) = place.take_over() else {
        first.kill();
        return recent.clone();
    };
    let refused = samples(now - 40_000);
    for _ in 0..2 {
        let error = first.write(&refused).unwrap_err();
        let parts = ["another process has taken over this store", "it has been taken over by"];
        // It responds with that error until it stops.
        let is_over = error.starts_with(nodes::NO_ANSWER) || error == "Service Unavailable";
        assert!(is_over || parts.iter().any(|part| error.contains(part)), "{error}");
    }
    let taken = samples(now - 30_000);
    second.write(&taken).unwrap();
    let all = merged(&[old, recent, &taken]);
    assert_eq!(second.read(), all, "what was refused is not stored");
    first.end_without_store();
    second.kill();
    merged(&[recent, &taken])
}

/// Deletes samples in SSTs and in the log: they never return, and later samples stay.
fn deletes(place: &dyn Place, now: i64, old: &Contents, recent: &Contents) -> (Contents, Contents) {
    let keeping = Settings::default();
    let (mut old, mut recent) = (old.clone(), recent.clone());
    let mut node = place.open(&keeping);
    // One series, and a part of another.
    node.delete(1, now - 10 * DAY_MS, now);
    old.remove(&1);
    recent.remove(&1);
    node.delete(2, now - 5 * DAY_MS, now - 2 * DAY_MS);
    old.remove(&2);
    assert_eq!(node.read(), merged(&[&old, &recent]));
    // The deleted samples are written again.
    let again: Contents =
        samples(now - 60_000).into_iter().filter(|(series, _)| *series == 1).collect();
    node.write(&again).unwrap();
    recent = merged(&[&recent, &again]);
    assert_eq!(node.read(), merged(&[&old, &recent]), "written after the delete");
    node.kill();
    for is_cleaned in [false, true] {
        let mut node = place.open(&Settings { log_bytes_max: 1, ..keeping });
        assert_eq!(node.read(), merged(&[&old, &recent]), "cleaned: {is_cleaned}, after a kill");
        if !is_cleaned {
            node.clean();
            assert_eq!(node.read(), merged(&[&old, &recent]), "once they are out of the files");
        }
        node.maintain();
        node.kill();
    }
    (old, recent)
}

/// Another process opens a copy, which is independent of the store.
fn copies(place: &dyn Place, now: i64, all: &Contents) {
    let keeping = Settings::default();
    let mut node = place.open(&keeping);
    let copy = node.snapshot();
    let mut other = copy.open(&keeping);
    assert_eq!(other.read(), *all);
    let more = samples(now - 20_000);
    other.write(&more).unwrap();
    other.delete(0, now - 10 * DAY_MS, now - 60_000);
    assert_eq!(node.read(), *all, "what is done to the copy");
    other.kill();
    node.kill();
    let node = place.open(&keeping);
    assert_eq!(node.read(), *all, "after a kill");
    let other = copy.open(&keeping);
    let mut expected = merged(&[all, &more]);
    expected.entry(0).or_default().retain(|time_ms, _| *time_ms > now - 60_000);
    assert_eq!(other.read(), expected, "the copy after a kill");
    node.kill();
    other.kill();
}

/// Drops what is too old.
fn retains(place: &dyn Place, now: i64, recent: &Contents) {
    let keeping = Settings::default();
    // With a small log, a write starts maintenance, which otherwise comes every 15 seconds.
    let mut node = place.open(&Settings { retention_ms: Some(2 * DAY_MS), log_bytes_max: 1 });
    // The retention counts from the newest sample.
    let current = samples(now - 10_000);
    node.write(&current).unwrap();
    let recent = &merged(&[recent, &current]);
    assert_eq!(node.read(), *recent, "beyond the retention");
    assert!(node.write(&samples(now - 3 * DAY_MS)).is_err(), "older than the retention");
    node.maintain();
    wait_for("deleted partition", || node.partitions_deleted() >= 1);
    assert_eq!(node.read(), *recent);
    node.kill();
    let node = place.open(&keeping);
    assert_eq!(node.read(), *recent, "deleted for good");
    node.kill();
}

#[test]
fn a_store_in_memory_passes_the_suite() {
    suite(&nodes::InMemory::default());
}

#[test]
fn a_store_on_disk_passes_the_suite() {
    let folder = temporary_directory("place");
    suite(&nodes::Processes::on_disk(folder.path()));
}

#[test]
fn a_store_on_versitygw_passes_the_suite() {
    if let Some(server) = S3Server::versitygw("place") {
        suite(&nodes::Processes::on_s3(&server));
    }
}

#[test]
fn a_store_on_moto_passes_the_suite() {
    if let Some(server) = S3Server::moto("place") {
        suite(&nodes::Processes::on_s3(&server));
    }
}

#[test]
fn a_store_on_azurite_passes_the_suite() {
    if let Some(emulator) = Emulator::azurite("place") {
        suite(&nodes::Processes::on_emulator(&emulator));
    }
}

#[test]
fn a_store_on_fake_gcs_server_passes_the_suite() {
    if let Some(emulator) = Emulator::fake_gcs("place") {
        suite(&nodes::Processes::on_emulator(&emulator));
    }
}
