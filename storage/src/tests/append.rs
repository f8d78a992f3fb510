//! Accepted, ignored and refused samples; limits; retention.

use std::sync::Arc;
use std::time::Duration;

use model::{
    Batch, Budget, BudgetError, BudgetLimits, RejectReason, Selection, Source, SourceError,
    TimeRange,
};

use super::harness::{self, batch, labels, open, open_with, read_all};
use crate::audit::verify_at;
use crate::log::queue::PendingWrite;
use crate::lsm::Location;
use crate::retention::Keeping;
use crate::window::{PARTITION_MS, PartitionId, TimeBounds, WINDOW_MS};
use crate::{AppendOutcome, Clock, ManualClock, Store, StoreError, StoreOptions};

const HOUR_MS: i64 = 60 * 60 * 1000;

/// Appends samples one by one, and returns the outcome of each.
async fn fates(store: &Store, samples: &[(i64, f64)]) -> Vec<Result<&'static str, RejectReason>> {
    let mut fates = Vec::new();
    for sample in samples {
        let outcome = store.append(batch(&labels(&[("a", "b")]), &[*sample])).await.unwrap();
        fates.push(match (outcome.accepted, outcome.duplicates, outcome.rejected.total()) {
            (1, 0, 0) => Ok("accepted"),
            (0, 1, 0) => Ok("duplicate"),
            (0, 0, 1) => Err(outcome.rejections[0].reason),
            _ => panic!("{outcome:?}"),
        });
    }
    fates
}

#[test]
fn out_of_order_window_decides_as_prometheus_does() {
    use RejectReason::{DuplicateTimestamp, OutOfBounds, OutOfOrder, TooOld};
    let newest_ms = 10 * HOUR_MS;
    let samples = [
        (newest_ms, 1.0),
        (newest_ms, 1.0),
        (newest_ms, 2.0),
        (newest_ms - 1000, 1.0),
        (newest_ms - 2 * HOUR_MS, 1.0),
        (newest_ms - 4 * HOUR_MS, 1.0),
    ];
    let accepted = Ok("accepted");
    let first = [accepted, Ok("duplicate"), Err(DuplicateTimestamp)];
    for (window_ms, rest) in [
        (None, [accepted, accepted, accepted]),
        (Some(0), [Err(OutOfOrder), Err(OutOfBounds), Err(OutOfBounds)]),
        (Some(3 * HOUR_MS), [accepted, accepted, Err(TooOld)]),
    ] {
        harness::run(async {
            let options = StoreOptions { out_of_order_window_ms: window_ms, ..harness::options() };
            let store = open_with(&harness::memory(), options).await.unwrap();
            assert_eq!(fates(&store, &samples).await, [first, rest].concat(), "{window_ms:?}");
        });
    }
}

#[test]
fn nan_payloads_are_distinguished() {
    harness::run(async {
        let store = open(&harness::memory()).await.unwrap();
        let samples = [model::stale_nan(), model::stale_nan(), f64::NAN].map(|value| (1, value));
        let expected = [Ok("accepted"), Ok("duplicate"), Err(RejectReason::DuplicateTimestamp)];
        assert_eq!(fates(&store, &samples).await, expected);
    });
}

#[test]
fn decisions_survive_a_restart() {
    harness::run(async {
        let objects = harness::memory();
        let store = open(&objects).await.unwrap();
        fates(&store, &[(5, 1.0)]).await;
        drop(store);
        let store = open(&objects).await.unwrap();
        let found = fates(&store, &[(5, 1.0), (5, 2.0)]).await;
        assert_eq!(found, [Ok("duplicate"), Err(RejectReason::DuplicateTimestamp)]);
    });
}

#[test]
fn times_outside_of_retention_and_clock_are_out_of_bounds() {
    harness::run(async {
        let now_ms = 100 * PARTITION_MS;
        let options = StoreOptions {
            retention_ms: Some(10 * PARTITION_MS),
            clock: Arc::new(ManualClock::new(now_ms)),
            ..harness::options()
        };
        let store = open_with(&harness::memory(), options).await.unwrap();
        // Nothing is too old before a sample confirms the clock.
        let other = labels(&[("__name__", "other")]);
        let samples = [(now_ms - 20 * PARTITION_MS, 1.0), (now_ms, 1.0)];
        assert_eq!(store.append(batch(&other, &samples)).await.unwrap().accepted, 2);
        let late_ms = 10 * 60 * 1000;
        let times =
            [now_ms, now_ms + late_ms, now_ms + late_ms + 1, now_ms - 10 * PARTITION_MS - 1];
        let samples = times.map(|t| (t, 1.0));
        let out = Err(RejectReason::OutOfBounds);
        let expected = [Ok("accepted"), Ok("accepted"), out, out];
        assert_eq!(fates(&store, &samples).await, expected);
        assert_eq!(fates(&store, &[(i64::MIN, 1.0), (i64::MAX, 1.0)]).await, [out, out]);
    });
}

#[test]
fn a_store_of_a_later_format_is_refused_and_left_alone() {
    harness::run(async {
        let objects = harness::memory();
        let store = open(&objects).await.unwrap();
        let set = |format: u32| {
            let mut set = crate::lsm::WriteSet::default();
            let key = crate::keys::FORMAT;
            set.put(key.to_vec(), crate::value::encode_u32(key, format));
            set
        };
        store.append(batch(&labels(&[("a", "b")]), &[(1, 1.0)])).await.unwrap();
        store.core().lsm.commit(set(9)).await.unwrap();
        store.close().await.unwrap();
        let error = open(&objects).await.unwrap_err();
        assert_eq!(error, crate::StoreError::NewerFormat { found: 9, supported: 4 });
        assert!(error.to_string().contains("format 9"), "{error}");
        assert!(error.to_string().contains("up to 4"), "{error}");
        let (location, options) = (crate::lsm::Location::on(objects.clone()), harness::options());
        let lsm = crate::lsm::Lsm::open(&location, &options).await.unwrap();
        assert!(lsm.get(crate::keys::OWNER).await.unwrap().is_none());
        lsm.commit(set(2)).await.unwrap();
        lsm.close().await.unwrap();
        let store = open(&objects).await.unwrap();
        assert_eq!(harness::read_all(&store).await.unwrap().len(), 1);
        let format = store.core().lsm.get(crate::keys::FORMAT).await.unwrap().unwrap();
        assert_eq!(crate::value::decode_u32(crate::keys::FORMAT, &format), Ok(4));
    });
}

#[test]
fn long_labels_are_refused_and_the_rest_is_kept() {
    harness::run(async {
        let store = open(&harness::memory()).await.unwrap();
        let long = "x".repeat(20_000);
        let mut all = Batch::default();
        all.push(&labels(&[("a", &long)]), &[(1, 1.0), (2, 2.0)]);
        all.push(&labels(&[("a", "b")]), &[(1, 1.0)]);
        let outcome = store.append(all).await.unwrap();
        assert_eq!((outcome.accepted, outcome.rejected.total()), (1, 2));
        assert_eq!(outcome.rejections[0].reason, RejectReason::LabelLimit);
        assert_eq!(read_all(&store).await.unwrap().len(), 1);
        // The maximum length, with every byte escaped.
        let zeros = "\0".repeat(crate::keys::VALUE_BYTES_MAX);
        store.append(batch(&labels(&[("a", &zeros)]), &[(1, 1.0)])).await.unwrap();
        store.seal_all().await.unwrap();
        assert_eq!(read_all(&store).await.unwrap().len(), 2);
    });
}

#[test]
fn writes_beyond_the_queue_are_refused_as_overload() {
    harness::run(async {
        let options = StoreOptions { queue_samples_max: 2, ..harness::options() };
        let store = Arc::new(open_with(&harness::memory(), options).await.unwrap());
        let append = |t: i64| {
            let store = Arc::clone(&store);
            async move { store.append(batch(&labels(&[("a", "b")]), &[(t, 1.0)])).await }
        };
        // No commit can run while this lock is held.
        let log = store.core().log.lock().await;
        let first = tokio::spawn(append(1));
        let second = tokio::spawn(append(2));
        while store.stats().queue_samples < 2 {
            tokio::task::yield_now().await;
        }
        let expected = StoreError::Overloaded { waiting: 3, limit: 2 };
        assert_eq!(append(3).await, Err(expected));
        drop(log);
        let accepted = AppendOutcome { accepted: 1, ..AppendOutcome::default() };
        assert_eq!(first.await.unwrap(), Ok(accepted.clone()));
        assert_eq!(second.await.unwrap(), Ok(accepted));
        assert!(append(3).await.is_ok());
    });
}

#[test]
fn days_beyond_the_retention_are_hidden_and_deleted() {
    harness::run(async {
        let clock = Arc::new(ManualClock::new(100 * PARTITION_MS));
        let options = StoreOptions {
            retention_ms: Some(2 * PARTITION_MS),
            clock: Arc::clone(&clock) as Arc<dyn Clock>,
            ..harness::options()
        };
        let objects = harness::memory();
        let store = open_with(&objects, options.clone()).await.unwrap();
        let sealed = labels(&[("__name__", "sealed")]);
        let both = labels(&[("__name__", "both")]);
        let now_ms = 100 * PARTITION_MS;
        store.append(batch(&sealed, &[(now_ms - PARTITION_MS, 1.0)])).await.unwrap();
        store.append(batch(&both, &[(now_ms - PARTITION_MS, 1.0)])).await.unwrap();
        store.seal_all().await.unwrap();
        store.core().lsm.flush_to_files().await.unwrap();
        let dead = crate::keys::partition(PartitionId::new(99));
        assert!(store.core().lsm.segments().contains(&bytes::Bytes::from(dead.clone())));
        store
            .append(batch(&both, &[(now_ms - PARTITION_MS + 1, 2.0), (now_ms, 3.0)]))
            .await
            .unwrap();
        let later_ms = now_ms + 3 * PARTITION_MS - 1;
        clock.set(later_ms);
        store.append(batch(&both, &[(later_ms, 4.0)])).await.unwrap();
        let kept = [(now_ms, 3.0_f64.to_bits()), (later_ms, 4.0_f64.to_bits())];
        let left = vec![(both.clone(), kept.to_vec())];
        assert_eq!(read_all(&store).await.unwrap(), left, "the days are hidden");
        store.maintain().await.unwrap();
        assert_eq!(store.stats().partitions_deleted, 1);
        assert_eq!(read_all(&store).await.unwrap(), left);
        for prefix in [
            &crate::keys::partition(PartitionId::new(99))[..],
            &crate::keys::dictionary_of_pair("__name__", "sealed"),
        ] {
            let mut scan = store.core().lsm.scan_prefix(prefix).await.unwrap();
            assert_eq!(scan.next().await.unwrap(), None, "deleted");
        }
        // Garbage collection deletes the SSTs.
        while store.core().lsm.segments().contains(&bytes::Bytes::from(dead.clone())) {
            tokio::task::yield_now().await;
        }
        drop(store);
        let store = open_with(&objects, options).await.unwrap();
        assert_eq!(read_all(&store).await.unwrap(), left);
    });
}

#[test]
fn the_size_limit_deletes_the_oldest_days() {
    harness::run(async {
        let objects = harness::memory();
        let series = labels(&[("__name__", "a")]);
        let store = open(&objects).await.unwrap();
        for day in 0..4 {
            let samples: Vec<(i64, f64)> =
                (0..200).map(|i| (day * PARTITION_MS + i * 1000, (i * i) as f64)).collect();
            store.append(batch(&series, &samples)).await.unwrap();
        }
        store.seal_all().await.unwrap();
        crate::seal::write_out(store.core()).await.unwrap();
        let (partitions, others) = store.core().lsm.live_bytes();
        assert_eq!(partitions.len(), 4);
        store.close().await.unwrap();
        let first_two: u64 = partitions.range(..PartitionId::new(2)).map(|(_, bytes)| bytes).sum();
        let all = others + partitions.values().sum::<u64>();
        for (bytes_max, kept) in [(all + 8192, 4), (all - first_two, 2), (1, 1)] {
            let options = StoreOptions { retention_bytes: Some(bytes_max), ..harness::options() };
            let store = open_with(&objects, options).await.unwrap();
            store.maintain().await.unwrap();
            let left = read_all(&store).await.unwrap();
            assert!(left[0].1.len() <= kept * 200, "of {bytes_max} bytes: {}", left[0].1.len());
            assert!(left[0].1.len() >= 200, "the newest day stays");
            assert_eq!(left[0].1.last().unwrap().0, 3 * PARTITION_MS + 199_000);
            if kept == 4 {
                assert_eq!(left[0].1.len(), 4 * 200);
            }
            if kept == 1 {
                let late = store.append(batch(&series, &[(1000, 1.0)])).await.unwrap();
                assert_eq!(late.rejections[0].reason, RejectReason::OutOfBounds);
            }
            store.close().await.unwrap();
            let mut damages = Vec::new();
            let mut note = |damage| damages.push(damage);
            let location = Location::on(Arc::clone(&objects));
            let verified =
                verify_at(&location, &harness::options(), &mut |_, _| {}, &mut note).await.unwrap();
            assert_eq!(damages, [], "with a limit of {bytes_max} bytes");
            // Compaction changes the size of SSTs, so one more day may be hidden or deleted since:
            // whole days are left, and no more than the limit allows.
            let days: Vec<u64> = (1..=kept as u64).map(|days| days * 200).collect();
            assert!(days.contains(&verified.samples), "{} of {bytes_max} bytes", verified.samples);
        }
    });
}

#[test]
fn days_deleted_by_size_stay_away_over_a_restart() {
    harness::run(async {
        let objects = harness::memory();
        let series = labels(&[("__name__", "a")]);
        let bounded = |bytes_max: Option<u64>| StoreOptions {
            retention_bytes: bytes_max,
            ..harness::options()
        };
        let store = open(&objects).await.unwrap();
        for day in 0..3 {
            let samples: Vec<(i64, f64)> =
                (0..200).map(|i| (day * PARTITION_MS + i * 1000, (i * i) as f64)).collect();
            store.append(batch(&series, &samples)).await.unwrap();
        }
        store.seal_all().await.unwrap();
        crate::seal::write_out(store.core()).await.unwrap();
        store.close().await.unwrap();
        let is_taken = |store: Arc<Store>| {
            let late = batch(&series, &[(PARTITION_MS + 5, 1.0)]);
            async move { store.append(late).await.unwrap().rejected.total() == 0 }
        };
        // Before and after deletion by the limit, and with a lower limit.
        for (bytes_max, is_maintained) in [(9, true), (9, false), (9, false), (8, false)] {
            let store = open_with(&objects, bounded(Some(bytes_max))).await.unwrap();
            let store = Arc::new(store);
            assert!(!is_taken(Arc::clone(&store)).await, "{bytes_max} {is_maintained}");
            assert_eq!(read_all(&*store).await.unwrap()[0].1.len(), 200, "the newest day");
            if is_maintained {
                store.maintain().await.unwrap();
                assert_eq!(store.stats().partitions_deleted, 2);
            }
            store.close().await.unwrap();
        }
        // A raised limit allows writes to deleted days, and their samples do not come back.
        for bytes_max in [Some(10), None, Some(1 << 40)] {
            let store = Arc::new(open_with(&objects, bounded(bytes_max)).await.unwrap());
            let is_in_files = store.core().lsm.live_bytes().0.len() > 1;
            assert!(is_taken(Arc::clone(&store)).await || is_in_files, "{bytes_max:?}");
            let kept = store.core().lsm.get(crate::keys::KEPT_BY_SIZE).await.unwrap();
            assert_eq!(kept, None);
            store.close().await.unwrap();
        }
    });
}

#[test]
fn a_selection_under_way_sees_a_day_whole_while_it_is_deleted() {
    harness::run(async {
        let clock = Arc::new(ManualClock::new(100 * PARTITION_MS));
        let options = StoreOptions {
            retention_ms: Some(2 * PARTITION_MS),
            clock: Arc::clone(&clock) as Arc<dyn Clock>,
            ..harness::options()
        };
        let store = open_with(&harness::memory(), options).await.unwrap();
        let series = labels(&[("__name__", "a")]);
        let day_ms = 99 * PARTITION_MS;
        store.append(batch(&series, &[(day_ms, 1.0)])).await.unwrap();
        store.seal_all().await.unwrap();
        store.append(batch(&series, &[(day_ms + 1, 2.0)])).await.unwrap();
        let selection = Selection {
            matchers: Vec::new(),
            times: TimeRange::new(i64::MIN, 102 * PARTITION_MS),
            only_newest: false,
            windows: None,
        };
        let budget = Budget::unlimited();
        let under_way = Source::select(&store, &selection, &budget);
        let later_ms = 103 * PARTITION_MS;
        clock.set(later_ms);
        store.append(batch(&series, &[(later_ms, 3.0)])).await.unwrap();
        store.maintain().await.unwrap();
        let left = vec![(series.clone(), vec![(later_ms, 3.0_f64.to_bits())])];
        assert_eq!(read_all(&store).await.unwrap(), left, "later selections do not see the day");
        assert_eq!(store.stats().partitions_deleted, 0);
        let set = under_way.await.unwrap();
        assert_eq!(set.sample_count_estimate(0), 2, "a sealed and an open sample");
        store.maintain().await.unwrap();
        assert_eq!(store.stats().partitions_deleted, 1);
        // Setting the clock back does not show hidden samples again.
        clock.set(100 * PARTITION_MS);
        assert_eq!(read_all(&store).await.unwrap(), left);
    });
}

#[test]
fn budgets_are_charged_and_released() {
    harness::run(async {
        let store = open(&harness::memory()).await.unwrap();
        for number in 0..10 {
            let labels = labels(&[("n", &number.to_string())]);
            store.append(batch(&labels, &[(1, 1.0), (WINDOW_MS, 2.0)])).await.unwrap();
            if number == 5 {
                store.seal_all().await.unwrap();
            }
        }
        let selection = Selection {
            matchers: Vec::new(),
            times: TimeRange::new(0, i64::MAX),
            only_newest: false,
            windows: None,
        };
        let limited = |limits| Budget::new(limits);
        let budget = limited(BudgetLimits { series_max: 9, ..BudgetLimits::default() });
        let result = store.select(&selection, &budget).await.err();
        assert!(matches!(
            result,
            Some(SourceError::Budget(BudgetError::Exceeded { limit: 9, reached: 10, .. }))
        ));
        let budget = limited(BudgetLimits { memory_bytes_max: 100, ..BudgetLimits::default() });
        assert!(matches!(store.select(&selection, &budget).await, Err(SourceError::Budget(_))));
        let budget = limited(BudgetLimits { memory_bytes_max: 1 << 20, ..BudgetLimits::default() });
        for _ in 0..1000 {
            let set = store.select(&selection, &budget).await.unwrap();
            assert_eq!(set.len(), 10);
        }
        budget.cancel();
        assert!(matches!(
            store.select(&selection, &budget).await,
            Err(SourceError::Budget(BudgetError::Canceled))
        ));
    });
}

#[test]
fn idle_series_leave_the_head_and_stay_readable() {
    harness::run(async {
        let clock = Arc::new(ManualClock::new(10 * WINDOW_MS));
        let options =
            StoreOptions { clock: Arc::clone(&clock) as Arc<dyn Clock>, ..harness::options() };
        let store = open_with(&harness::memory(), options).await.unwrap();
        let (old, new) = (labels(&[("n", "old")]), labels(&[("n", "new")]));
        store.append(batch(&old, &[(WINDOW_MS, 1.0)])).await.unwrap();
        store.append(batch(&new, &[(10 * WINDOW_MS, 1.0)])).await.unwrap();
        assert_eq!(store.stats().head_series, 2);
        store.maintain().await.unwrap();
        assert_eq!(store.stats().head_series, 1);
        assert_eq!(read_all(&store).await.unwrap().len(), 2);
        // Another series takes the slot, and the old one returns in a third.
        store.append(batch(&labels(&[("n", "third")]), &[(10 * WINDOW_MS, 1.0)])).await.unwrap();
        store.append(batch(&old, &[(WINDOW_MS + 1, 1.0)])).await.unwrap();
        assert_eq!(read_all(&store).await.unwrap().len(), 3);
        assert_eq!((store.stats().head_series, store.stats().series_created), (3, 4));
    });
}

#[test]
fn writes_between_the_turns_of_forgetting_stay() {
    harness::run(async {
        let store = open(&harness::memory()).await.unwrap();
        let series = |number: usize| labels(&[("n", &number.to_string())]);
        let mut expected = Vec::new();
        for number in 0..200 {
            store.append(batch(&series(number), &[(1, 1.0)])).await.unwrap();
            expected.push((series(number), vec![(1, 1.0_f64.to_bits())]));
        }
        store.seal_all().await.unwrap();
        let core = store.core();
        let mut turns = core.head.forget_in_turns();
        for turn in 0.. {
            let is_any = {
                let _log = core.log.lock().await;
                turns.next(|_| true)
            };
            if !is_any {
                break;
            }
            // Series of earlier and of later turns.
            if turn < 50 {
                store.append(batch(&series(turn * 4), &[(2, 2.0)])).await.unwrap();
                expected[turn * 4].1.push((2, 2.0_f64.to_bits()));
            }
        }
        expected.sort_by(|a, b| a.0.cmp(&b.0));
        assert_eq!(read_all(&store).await.unwrap(), expected);
        assert_eq!(store.stats().head_series, 50);
        let counted = core.head.bytes();
        let _log = core.log.lock().await;
        core.head.forget(|_| false);
        assert!(counted >= core.head.bytes(), "{counted}");
    });
}

#[test]
fn a_slot_found_before_its_series_was_forgotten_is_looked_up_again() {
    for is_reused in [false, true] {
        harness::run(async {
            let store = open(&harness::memory()).await.unwrap();
            let (old, other) = (labels(&[("n", "old")]), labels(&[("n", "other")]));
            store.append(batch(&old, &[(1, 1.0)])).await.unwrap();
            store.seal_all().await.unwrap();
            let core = store.core();
            let (answer, _outcome) = tokio::sync::oneshot::channel();
            let pending = PendingWrite::new(&core.head, batch(&old, &[(2, 2.0)]), None, answer);
            {
                let _log = core.log.lock().await;
                assert_eq!(core.head.forget(|_| true), 1);
            }
            let mut expected = vec![(old, vec![(1, 1.0_f64.to_bits()), (2, 2.0_f64.to_bits())])];
            if is_reused {
                store.append(batch(&other, &[(1, 5.0)])).await.unwrap();
                expected.push((other, vec![(1, 5.0_f64.to_bits())]));
            }
            let bounds =
                TimeBounds { min_ms: i64::MIN, max_ms: i64::MAX, out_of_order_window_ms: None };
            let mut log = core.log.lock().await;
            let keeping = Keeping::default();
            let floors = keeping.floors(core.observe_retention_time());
            let mut group = [pending];
            let committed =
                log.commit(&core.log_target(), bounds, &floors, &mut group).await.unwrap();
            drop(log);
            let accepted = AppendOutcome { accepted: 1, ..AppendOutcome::default() };
            assert_eq!(committed.outcomes, [accepted]);
            assert_eq!(read_all(&store).await.unwrap(), expected);
        });
    }
}

#[test]
fn a_reservation_is_held_until_the_batch_is_released() {
    harness::run(async {
        let store = open(&harness::memory()).await.unwrap();
        let (series, reserved) = (labels(&[("a", "b")]), Arc::new(()));
        let log = store.core().log.lock().await;
        let reservation = Box::new(Arc::clone(&reserved));
        let mut appending =
            Box::pin(store.append_reserved(batch(&series, &[(1, 1.0)]), reservation));
        assert!(futures::poll!(&mut appending).is_pending());
        drop(appending);
        assert_eq!(Arc::strong_count(&reserved), 2, "the write waits although its caller left");
        drop(log);
        // Commits come in the order of writes.
        store.append(batch(&series, &[(2, 2.0)])).await.unwrap();
        assert_eq!(Arc::strong_count(&reserved), 1);
        assert_eq!(read_all(&store).await.unwrap()[0].1.len(), 2);
    });
}

#[tokio::test(start_paused = true)]
async fn a_close_does_not_wait_for_a_seal_that_does_not_end() {
    let objects = harness::memory();
    let options = StoreOptions { background: true, ..harness::options() };
    let store = open_with(&objects, options).await.unwrap();
    let series = labels(&[("__name__", "a")]);
    store.append(batch(&series, &[(1_000, 1.0)])).await.unwrap();
    let sealing = store.core().sealing.lock().await;
    let closed = tokio::time::timeout(Duration::from_secs(3_600), store.close()).await;
    closed.expect("the close ends").unwrap();
    drop(sealing);
    let store = open(&objects).await.unwrap();
    assert_eq!(read_all(&store).await.unwrap(), [(series, vec![(1_000, 1_f64.to_bits())])]);
}

#[test]
fn closed_stores_refuse_writes_and_open_again() {
    harness::run(async {
        let objects = harness::memory();
        let store = open(&objects).await.unwrap();
        store.append(batch(&labels(&[("a", "b")]), &[(1, 1.0)])).await.unwrap();
        store.close().await.unwrap();
        let refused = store.append(batch(&labels(&[("a", "b")]), &[(2, 1.0)])).await;
        assert_eq!(refused, Err(StoreError::Closed));
        let store = open(&objects).await.unwrap();
        assert_eq!(read_all(&store).await.unwrap().len(), 1);
    });
}

#[test]
fn files_and_memory_are_opened_by_url() {
    let folder = std::env::temp_dir().join(format!("tessella-store-{}", std::process::id()));
    harness::run(async {
        let url = format!("file://{}", folder.display());
        let store = Store::open(&url, harness::options()).await.unwrap();
        store.append(batch(&labels(&[("a", "b")]), &[(1, 1.0)])).await.unwrap();
        drop(store);
        let path = folder.display().to_string();
        let store = Store::open(&path, harness::options()).await.unwrap();
        assert_eq!(read_all(&store).await.unwrap().len(), 1);
        store.close().await.unwrap();
        let memory = Store::open("memory:///", harness::options()).await.unwrap();
        assert!(read_all(&memory).await.unwrap().is_empty());
    });
    std::fs::remove_dir_all(&folder).unwrap();
}

#[test]
fn sealed_samples_are_neither_in_the_head_nor_replayed() {
    harness::run(async {
        let objects = harness::memory();
        let clock = Arc::new(ManualClock::new(10 * WINDOW_MS));
        let options =
            StoreOptions { clock: Arc::clone(&clock) as Arc<dyn Clock>, ..harness::options() };
        let store = open_with(&objects, options.clone()).await.unwrap();
        let times = [8 * WINDOW_MS, 9 * WINDOW_MS, 10 * WINDOW_MS];
        let samples = times.map(|t| (t, 1.0));
        store.append(batch(&labels(&[("a", "b")]), &samples)).await.unwrap();
        store.maintain().await.unwrap();
        let check = async |store: &Store| {
            let mut held = Vec::new();
            store.core().head.for_each(|_, series| {
                held.extend(times.map(|t| series.overlaps(t, t)));
            });
            assert_eq!(held, [false, true, true], "the last closed window stays in the head");
            assert_eq!(read_all(store).await.unwrap()[0].1.len(), 3);
        };
        check(&store).await;
        let partition = crate::keys::partition(PartitionId::new(0));
        let has_blocks = || store.core().lsm.segments().iter().any(|s| s[..] == partition[..]);
        assert!(!has_blocks(), "they are in memory and in the WAL");
        crate::seal::write_out(store.core()).await.unwrap();
        assert!(has_blocks());
        drop(store);
        let store = open_with(&objects, options).await.unwrap();
        check(&store).await;
        store.core().lsm.flush_to_files().await.unwrap();
        let has_log = || store.core().lsm.segments().iter().any(|s| s.starts_with(b"l"));
        assert!(has_log());
        assert!(store.stats().file_bytes > 0, "files in use are counted");
        store.seal_all().await.unwrap();
        assert_eq!(store.stats().log_bytes, 0, "the log is empty once everything is sealed");
        // Garbage collection deletes its SSTs.
        while has_log() {
            tokio::task::yield_now().await;
        }
    });
}

#[test]
fn many_windows_with_few_late_samples_are_sealed_once_no_more_come() {
    harness::run(async {
        let clock = Arc::new(ManualClock::new(40 * WINDOW_MS));
        let options = StoreOptions { clock: clock as Arc<dyn Clock>, ..harness::options() };
        let store = open_with(&harness::memory(), options).await.unwrap();
        let series = labels(&[("a", "b")]);
        let append = async |window: i64, count: i64| {
            let samples: Vec<(i64, f64)> =
                (0..count).map(|at| (window * WINDOW_MS + at, at as f64)).collect();
            store.append(batch(&series, &samples)).await.unwrap();
            store.maintain().await.unwrap();
            store.stats().seals
        };
        assert_eq!(append(0, 1).await, 1, "the window that closed before the first check");
        for window in 1..=14 {
            assert_eq!(append(window, 150).await, 1, "few, and more may come");
        }
        assert_eq!(append(15, 150).await, 15, "all but the newest window");
        store.maintain().await.unwrap();
        assert_eq!(store.stats().seals, 15, "few");
        let held: usize = read_all(&store).await.unwrap().iter().map(|(_, s)| s.len()).sum();
        assert_eq!(held, 1 + 15 * 150);
    });
}

#[test]
fn much_that_comes_late_is_sealed_once_it_stops() {
    harness::run(async {
        let objects = harness::memory();
        let clock = Arc::new(ManualClock::new(10 * WINDOW_MS));
        let options =
            StoreOptions { clock: Arc::clone(&clock) as Arc<dyn Clock>, ..harness::options() };
        let store = open_with(&objects, options).await.unwrap();
        let series = labels(&[("a", "b")]);
        let append = async |from: i64, count: i64| {
            let samples: Vec<(i64, f64)> = (from..from + count).map(|t| (t, t as f64)).collect();
            store.append(batch(&series, &samples)).await.unwrap();
            store.maintain().await.unwrap();
            store.stats().seals
        };
        assert_eq!(append(0, 1).await, 1, "the window that closed before the first check");
        assert_eq!(append(100, 50).await, 1, "few");
        store.maintain().await.unwrap();
        assert_eq!(append(1_000, 200).await, 1, "more may come");
        store.maintain().await.unwrap();
        assert_eq!(store.stats().seals, 2, "no more has come");
        assert_eq!(append(10_000, 1_900).await, 2, "more may come");
        assert_eq!(append(20_000, 100).await, 3, "too much to wait for the end");
        let held: usize = read_all(&store).await.unwrap().iter().map(|(_, s)| s.len()).sum();
        assert_eq!(held, 1 + 50 + 200 + 1_900 + 100);
    });
}
