//! Retention rules: expired samples are never seen again, and their space is freed.

use std::sync::Arc;

use model::{Budget, Labels, MatchOp, Matcher, MetadataQuery, RejectReason, Source, TimeRange};
use slatedb::object_store::ObjectStore;

use super::faults::Faulty;
use super::harness::{self, Contents, batch, labels, open_with, read_all};
use crate::window::{PARTITION_MS, PartitionId, WINDOW_MS};
use crate::{ManualClock, Retention, RetentionRule, Store, StoreError, StoreOptions};

/// Start of the tests: at noon, in the middle of a window.
const NOW_MS: i64 = 100 * PARTITION_MS + PARTITION_MS / 2 + WINDOW_MS / 3;

fn debug() -> Labels {
    labels(&[("__name__", "debug_x")])
}

fn other() -> Labels {
    labels(&[("__name__", "x")])
}

fn rule(time_ms: i64) -> RetentionRule {
    let matcher = Matcher::new(MatchOp::Regex, "__name__", "debug_.*").unwrap();
    RetentionRule { matchers: vec![matcher], time_ms }
}

fn options(clock: &Arc<ManualClock>, time_ms: i64) -> StoreOptions {
    StoreOptions {
        retention_rules: vec![rule(time_ms)],
        clock: Arc::clone(clock) as Arc<dyn crate::Clock>,
        ..harness::options()
    }
}

/// Returns samples in a time range, some in each window.
fn samples(start_ms: i64, end_ms: i64) -> Vec<(i64, f64)> {
    (start_ms..end_ms).step_by(WINDOW_MS as usize / 4 + 1).map(|t| (t, t as f64)).collect()
}

/// Returns the rest of both series if the rule keeps one from a time on.
fn left(samples: &[(i64, f64)], kept_from_ms: i64) -> Contents {
    let from = |start_ms: i64| -> Vec<(i64, u64)> {
        let kept = samples.iter().filter(|(t, _)| *t >= start_ms);
        kept.map(|(t, v)| (*t, v.to_bits())).collect()
    };
    let all = [(debug(), from(kept_from_ms)), (other(), from(i64::MIN))];
    all.into_iter().filter(|(_, samples)| !samples.is_empty()).collect()
}

/// Returns the start of the window with samples of an age.
fn oldest_window_start(now_ms: i64, age_ms: i64) -> i64 {
    (now_ms - age_ms).div_euclid(WINDOW_MS) * WINDOW_MS
}

async fn append(store: &Store, samples: &[(i64, f64)]) -> Vec<RejectReason> {
    let mut both = batch(&debug(), samples);
    both.push(&other(), samples);
    let outcome = store.append(both).await.unwrap();
    outcome.rejections.iter().map(|rejection| rejection.reason).collect()
}

#[test]
fn rules_expire_windows_and_no_others_over_seals_and_restarts() {
    harness::run(async {
        let clock = Arc::new(ManualClock::new(NOW_MS));
        let age_ms = 2 * PARTITION_MS;
        let objects = harness::memory();
        let mut store = open_with(&objects, options(&clock, age_ms)).await.unwrap();
        let mut all = samples(oldest_window_start(NOW_MS, age_ms), NOW_MS);
        assert_eq!(append(&store, &all).await, []);
        for step in 0..40 {
            let now_ms = NOW_MS + step * WINDOW_MS * 2 / 3;
            clock.set(now_ms);
            assert_eq!(append(&store, &[(now_ms, 2.0)]).await, []);
            all.push((now_ms, 2.0));
            store.maintain().await.unwrap();
            let expected = left(&all, oldest_window_start(now_ms, age_ms));
            assert_eq!(read_all(&store).await.unwrap(), expected, "step {step}");
            // Late samples, some of which the rule refuses.
            let late = oldest_window_start(now_ms, age_ms) + (step % 3 - 1) * WINDOW_MS + 7;
            let refused = append(&store, &[(late, 1.0)]).await;
            assert_eq!(
                refused.len(),
                usize::from(late < oldest_window_start(now_ms, age_ms)),
                "step {step}"
            );
            assert!(refused.iter().all(|reason| *reason == RejectReason::OutOfBounds));
            all.retain(|(t, _)| *t != late);
            all.push((late, 1.0));
            all.sort_by_key(|(t, _)| *t);
            let expected = left(&all, oldest_window_start(now_ms, age_ms));
            assert_eq!(read_all(&store).await.unwrap(), expected, "step {step}, written");
            match step % 7 {
                1 | 4 => store.seal_all().await.unwrap(),
                3 => store.clean_tombstones().await.unwrap(),
                5 => {
                    drop(store);
                    store = open_with(&objects, options(&clock, age_ms)).await.unwrap();
                }
                _ => continue,
            }
            assert_eq!(read_all(&store).await.unwrap(), expected, "step {step}, then");
        }
        assert!(store.core().tombstones.counts().0 < 6, "{:?}", store.core().tombstones);
    });
}

#[test]
fn histograms_that_a_rule_has_expired_are_refused() {
    harness::run(async {
        let clock = Arc::new(ManualClock::new(NOW_MS));
        let options = options(&clock, PARTITION_MS);
        let store = open_with(&harness::memory(), options).await.unwrap();
        let now = batch(&labels(&[("__name__", "now")]), &[(NOW_MS, 1.0)]);
        store.append(now).await.unwrap();
        let gone_ms = oldest_window_start(NOW_MS, PARTITION_MS) - 1;
        let samples = [gone_ms, gone_ms + 1].map(|t| harness::at(t, harness::histogram(&[1, 2])));
        for (series, accepted) in [(debug(), 1), (other(), 2)] {
            let outcome = store.append(harness::histogram_batch(&series, &samples)).await.unwrap();
            assert_eq!((outcome.accepted, outcome.rejected.total()), (accepted, 2 - accepted));
        }
    });
}

#[test]
fn the_shortest_rule_counts_and_expired_samples_stay_away() {
    harness::run(async {
        let clock = Arc::new(ManualClock::new(NOW_MS));
        let objects = harness::memory();
        let store = open_with(&objects, options(&clock, 3 * PARTITION_MS)).await.unwrap();
        let all = samples(NOW_MS - 6 * WINDOW_MS, NOW_MS);
        append(&store, &all).await;
        store.seal_all().await.unwrap();
        let set = |times_ms: &[i64]| {
            let rules = times_ms.iter().map(|time_ms| rule(*time_ms)).collect();
            store.set_retention(Retention { rules, ..Retention::default() });
        };
        set(&[5 * WINDOW_MS, 2 * WINDOW_MS, 4 * WINDOW_MS]);
        store.maintain().await.unwrap();
        let gone = oldest_window_start(NOW_MS, 2 * WINDOW_MS);
        assert_eq!(read_all(&store).await.unwrap(), left(&all, gone));
        // Neither a longer rule nor none restores anything.
        for times_ms in [&[5 * WINDOW_MS][..], &[]] {
            set(times_ms);
            store.maintain().await.unwrap();
            assert_eq!(read_all(&store).await.unwrap(), left(&all, gone));
        }
        assert_eq!(store.core().lsm.get(crate::keys::RULES).await.unwrap(), None);
        // Samples written without the rule are there, and expire when it returns.
        let old = samples(NOW_MS - 5 * WINDOW_MS, NOW_MS - 4 * WINDOW_MS);
        assert_eq!(append(&store, &old).await, []);
        let found = read_all(&store).await.unwrap();
        assert_eq!(found[0].1.len(), left(&all, gone)[0].1.len() + old.len());
        store.seal_all().await.unwrap();
        set(&[2 * WINDOW_MS]);
        store.maintain().await.unwrap();
        assert_eq!(read_all(&store).await.unwrap()[0], left(&all, gone)[0]);
    });
}

#[test]
fn cached_results_respect_expiry() {
    harness::run(async {
        let clock = Arc::new(ManualClock::new(NOW_MS));
        let options = StoreOptions { ahead_max_ms: None, ..options(&clock, PARTITION_MS) };
        let store = open_with(&harness::memory(), options).await.unwrap();
        append(&store, &samples(NOW_MS - PARTITION_MS, NOW_MS + WINDOW_MS + 1)).await;
        append(&store, &[(NOW_MS + WINDOW_MS, 1.0)]).await;
        let version = store.version().unwrap();
        assert_eq!(store.unchanged_since(version), i64::MIN..i64::MAX);
        clock.set(NOW_MS + WINDOW_MS);
        store.maintain().await.unwrap();
        let unchanged = store.unchanged_since(version);
        assert_eq!(unchanged, oldest_window_start(NOW_MS + WINDOW_MS, PARTITION_MS)..i64::MAX);
        assert_eq!(store.unchanged_since(store.version().unwrap()), i64::MIN..i64::MAX);
    });
}

#[test]
fn series_of_which_nothing_is_kept_are_not_listed() {
    harness::run(async {
        let clock = Arc::new(ManualClock::new(NOW_MS));
        let store = open_with(&harness::memory(), options(&clock, PARTITION_MS)).await.unwrap();
        append(&store, &samples(NOW_MS - WINDOW_MS, NOW_MS)).await;
        store.seal_all().await.unwrap();
        let later_ms = NOW_MS + 3 * PARTITION_MS;
        clock.set(later_ms);
        store.append(batch(&other(), &[(later_ms, 1.0)])).await.unwrap();
        store.maintain().await.unwrap();
        let query = MetadataQuery {
            selectors: vec![],
            times: TimeRange::new(NOW_MS - WINDOW_MS, NOW_MS),
            limit: 0,
        };
        let budget = Budget::unlimited();
        assert_eq!(store.series(&query, &budget).await.unwrap(), [other()]);
        assert_eq!(store.label_values("__name__", &query, &budget).await.unwrap(), ["x"]);
        assert_eq!(store.core().tombstones.counts().1, 0, "cleaned up after the end of the day");
    });
}

#[test]
fn space_of_expired_samples_is_given_back() {
    harness::run(async {
        let clock = Arc::new(ManualClock::new(NOW_MS));
        let objects = harness::memory();
        let store = open_with(&objects, options(&clock, 2 * PARTITION_MS)).await.unwrap();
        let mut seed = 1_u64;
        for number in 0..40 {
            let name = if number < 30 { "debug_x" } else { "x" };
            let series = labels(&[("__name__", name), ("n", &number.to_string())]);
            let mut value = || {
                seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                f64::from_bits(seed >> 12 | 0x3ff0_0000_0000_0000)
            };
            let samples: Vec<(i64, f64)> =
                (0..1000).map(|t| (NOW_MS - t * 1000, value())).collect();
            store.append(batch(&series, &samples)).await.unwrap();
        }
        store.seal_all().await.unwrap();
        crate::seal::write_out(store.core()).await.unwrap();
        let partition = PartitionId::new(100);
        let day = || store.core().lsm.live_bytes().0.get(&partition).copied().unwrap_or_default();
        let before = day();
        assert!(before > 40 * 1000 * 6, "{before} bytes");
        // Expired, but not the whole day yet.
        let pass_to = async |later_ms: i64| {
            clock.set(later_ms);
            let series = labels(&[("__name__", "x"), ("n", "39")]);
            store.append(batch(&series, &[(later_ms, 1.0)])).await.unwrap();
            store.maintain().await.unwrap();
        };
        pass_to(NOW_MS + 2 * PARTITION_MS + WINDOW_MS).await;
        assert_eq!(read_all(&store).await.unwrap().len(), 10);
        assert!(day() >= before);
        pass_to(NOW_MS + 3 * PARTITION_MS).await;
        // Compaction runs in the background.
        let limit = std::time::Instant::now() + std::time::Duration::from_secs(60);
        while day() > before * 3 / 10 {
            assert!(std::time::Instant::now() < limit, "{} of {before} bytes", day());
            tokio::time::sleep(std::time::Duration::from_millis(20)).await;
        }
        assert_eq!(read_all(&store).await.unwrap().len(), 10);
    });
}

/// Maintains a store with some days; the first error ends it.
async fn live_on(
    objects: &Arc<dyn ObjectStore>,
    clock: &Arc<ManualClock>,
    now_ms: i64,
) -> Result<(), StoreError> {
    let store = open_with(objects, options(clock, 2 * PARTITION_MS)).await?;
    clock.set(now_ms);
    store.append(batch(&other(), &[(now_ms, 1.0)])).await?;
    store.maintain().await?;
    store.seal_all().await?;
    store.clean_tombstones().await
}

#[test]
fn rules_hold_after_a_crash_at_every_write() {
    let mut writes = 0;
    let mut is_done = false;
    let mut has_ended_between = false;
    while !is_done {
        for last_lands in [false, true] {
            is_done = harness::run(async {
                let objects = harness::memory();
                let clock = Arc::new(ManualClock::new(NOW_MS));
                let store = open_with(&objects, options(&clock, 2 * PARTITION_MS)).await.unwrap();
                let all = samples(NOW_MS - 2 * PARTITION_MS, NOW_MS);
                append(&store, &all[..12]).await;
                store.seal_all().await.unwrap();
                append(&store, &all[12..]).await;
                store.close().await.unwrap();
                let now_ms = NOW_MS + PARTITION_MS;
                let faulty = Faulty::on(&objects, writes, last_lands);
                let lived = live_on(&faulty, &clock, now_ms).await;
                clock.set(now_ms);
                // Without the rule: a partial expiry completes.
                let none =
                    StoreOptions { retention_rules: vec![], ..options(&clock, PARTITION_MS) };
                let store = open_with(&objects, none).await.unwrap();
                let mut found = read_all(&store).await.unwrap();
                found.iter_mut().for_each(|(_, samples)| samples.retain(|(t, _)| *t != now_ms));
                let has_gone = found == left(&all, oldest_window_start(now_ms, 2 * PARTITION_MS));
                assert!(has_gone || found == left(&all, i64::MIN), "after {writes} writes");
                assert!(has_gone || lived.is_err(), "after {writes} writes");
                has_ended_between |= has_gone && lived.is_err();
                drop(store);
                let store = open_with(&objects, options(&clock, 2 * PARTITION_MS)).await.unwrap();
                store.append(batch(&other(), &[(now_ms, 1.0)])).await.unwrap();
                store.maintain().await.unwrap();
                store.clean_tombstones().await.unwrap();
                let mut found = read_all(&store).await.unwrap();
                found.iter_mut().for_each(|(_, samples)| samples.retain(|(t, _)| *t != now_ms));
                assert_eq!(found, left(&all, oldest_window_start(now_ms, 2 * PARTITION_MS)));
                lived.is_ok()
            });
        }
        writes += 1;
    }
    assert!(has_ended_between, "{writes} writes");
}
