//! Kept selections: they change no answer, and are invalidated by changes of their times alone.

use std::sync::Arc;

use model::{
    Budget, BudgetLimits, MatchOp, Matcher, Selection, Source, TimeRange, WantedWindows,
    WindowPart, Windows,
};

use super::harness::{self, FullContents, batch, labels, open_with};
use crate::sizes::Sizes;
use crate::window::{PARTITION_MS, WINDOW_MS};
use crate::{ManualClock, Retention, RetentionRule, Store, StoreOptions};

const NOW_MS: i64 = 100 * PARTITION_MS;
/// First sample.
const FIRST_MS: i64 = NOW_MS - 2 * PARTITION_MS;
const STEP_MS: i64 = 60_000;
/// Times of each series: over two windows.
const SAMPLES: i64 = 3 * WINDOW_MS / 2 / STEP_MS;
const LAST_MS: i64 = FIRST_MS + (SAMPLES - 1) * STEP_MS;
const SERIES: usize = 5;

fn options(kept_sets_max: usize) -> StoreOptions {
    let options = harness::options();
    StoreOptions {
        clock: Arc::new(ManualClock::new(NOW_MS)),
        sizes: Sizes { kept_sets_max, ..options.sizes },
        ..options
    }
}

fn series(index: usize) -> model::Labels {
    labels(&[("__name__", "requests"), ("instance", &index.to_string())])
}

async fn filled(options: StoreOptions) -> Store {
    filled_with(SERIES, options).await
}

async fn filled_with(series_count: usize, options: StoreOptions) -> Store {
    let store = open_with(&harness::memory(), options).await.unwrap();
    for index in 0..series_count {
        let samples: Vec<_> =
            (0..SAMPLES).map(|at| (FIRST_MS + at * STEP_MS, at as f64 + index as f64)).collect();
        store.append(batch(&series(index), &samples)).await.unwrap();
    }
    store
}

fn selection(start_ms: i64, end_ms: i64) -> Selection {
    let matchers = vec![Matcher::equal("__name__", "requests")];
    Selection {
        matchers,
        times: TimeRange::new(start_ms, end_ms),
        only_newest: false,
        windows: None,
    }
}

fn all() -> Selection {
    selection(FIRST_MS, LAST_MS)
}

async fn read(store: &Store, selection: &Selection) -> FullContents {
    harness::read_selection(store, selection).await.unwrap()
}

/// Reads twice: the first time samples may be decoded, the second time the series are kept.
async fn keep(store: &Store, selection: &Selection) {
    read(store, selection).await;
    read(store, selection).await;
}

/// Returns the contents, and whether they were kept.
async fn read_again(store: &Store, selection: &Selection) -> (FullContents, bool) {
    let before = store.stats().kept_selections_hits;
    let contents = read(store, selection).await;
    (contents, store.stats().kept_selections_hits > before)
}

/// Checks that a change after which a selection is read invalidates it or not, and that the answer
/// is the one of a store that keeps no selections.
async fn check(is_kept: bool, selection: Selection, change: impl AsyncFn(&Store)) {
    let (store, slow) = (filled(options(8)).await, filled(options(0)).await);
    keep(&store, &selection).await;
    assert!(read_again(&store, &selection).await.1, "kept before the change");
    change(&store).await;
    change(&slow).await;
    let (contents, was_kept) = read_again(&store, &selection).await;
    let (expected, was_slow_kept) = read_again(&slow, &selection).await;
    assert_eq!(contents, expected);
    assert_eq!((was_kept, was_slow_kept), (is_kept, false));
    // Once more, as the changed series may be kept now.
    keep(&store, &selection).await;
    assert_eq!(read(&store, &selection).await, expected);
}

async fn write(store: &Store, index: usize, timestamp_ms: i64) {
    store.append(batch(&series(index), &[(timestamp_ms, 77.0)])).await.unwrap();
}

#[test]
fn writes_to_the_times_of_a_selection_invalidate_it() {
    harness::run(async {
        let to_end = || selection(FIRST_MS, LAST_MS + STEP_MS);
        check(true, all(), async |_| {}).await;
        // New sample, new series, late sample, sample of another selection.
        check(false, to_end(), async |store| write(store, 0, LAST_MS + STEP_MS).await).await;
        check(false, all(), async |store| write(store, SERIES, LAST_MS).await).await;
        check(false, all(), async |store| write(store, 0, FIRST_MS + 1).await).await;
        check(true, all(), async |store| write(store, 0, LAST_MS + STEP_MS).await).await;
        // Only the earliest changed time is known.
        check(false, all(), async |store| write(store, 0, FIRST_MS - 1).await).await;
    });
}

#[test]
fn derived_values_are_kept_with_their_selection() {
    harness::run(async {
        let selection = selection(FIRST_MS, LAST_MS + STEP_MS);
        let store = filled(options(8)).await;
        let budget = Budget::new(BudgetLimits::default());
        keep(&store, &selection).await;
        let found = async || {
            let set = store.select(&selection, &budget).await.unwrap();
            let derived = set.derived().expect("the set is kept");
            let found = derived.find::<u32>(b"key").map(|value| *value);
            derived.keep(b"key".to_vec(), Arc::new(7_u32), 4);
            found
        };
        assert_eq!([found().await, found().await], [None, Some(7)]);
        write(&store, 0, LAST_MS + STEP_MS).await;
        keep(&store, &selection).await;
        assert_eq!(found().await, None, "of changed series");
    });
}

#[test]
fn seals_leave_selections_valid() {
    harness::run(async {
        check(true, all(), async |store| store.seal_all().await.unwrap()).await;
        check(false, all(), async |store| {
            store.seal_all().await.unwrap();
            write(store, 1, FIRST_MS + 1).await;
        })
        .await;
    });
}

#[test]
fn deletes_invalidate_selections() {
    harness::run(async {
        let matchers = || vec![vec![Matcher::equal("instance", "1")]];
        let delete = async |store: &Store, start_ms, end_ms| {
            store.delete(matchers(), start_ms, end_ms).await.unwrap();
        };
        check(false, all(), async |store| delete(store, FIRST_MS, FIRST_MS + WINDOW_MS).await)
            .await;
        check(true, all(), async |store| delete(store, LAST_MS + 1, LAST_MS + 2).await).await;
        check(false, all(), async |store| {
            delete(store, FIRST_MS, FIRST_MS + WINDOW_MS).await;
            store.clean_tombstones().await.unwrap();
        })
        .await;
    });
}

/// Checks that a kept selection has the samples that a retention leaves, before and after they are
/// deleted.
async fn check_retention(retention: Retention, is_sealed: bool) {
    let (store, slow) = (filled(options(8)).await, filled(options(0)).await);
    for store in [&store, &slow] {
        // Confirms the clock.
        write(store, 0, NOW_MS).await;
        if is_sealed {
            store.seal_all().await.unwrap();
        }
    }
    keep(&store, &all()).await;
    assert!(read_again(&store, &all()).await.1, "kept before the change");
    let before = read(&slow, &all()).await;
    for store in [&store, &slow] {
        store.set_retention(retention.clone());
    }
    assert_eq!(read(&store, &all()).await, read(&slow, &all()).await);
    for store in [&store, &slow] {
        store.maintain().await.unwrap();
    }
    let after = read(&slow, &all()).await;
    assert!(after != before, "{retention:?} deletes samples");
    assert_eq!(read(&store, &all()).await, after);
    keep(&store, &all()).await;
    assert_eq!(read(&store, &all()).await, after);
}

#[test]
fn kept_selections_have_no_samples_beyond_the_retention() {
    harness::run(async {
        let day = Retention { time_ms: Some(PARTITION_MS), ..Retention::default() };
        let matchers = vec![Matcher::equal("instance", "1")];
        // In the middle of the samples.
        let rule = RetentionRule { matchers, time_ms: NOW_MS - FIRST_MS - WINDOW_MS };
        let rule = Retention { rules: vec![rule], ..Retention::default() };
        for is_sealed in [false, true] {
            check_retention(day.clone(), is_sealed).await;
            check_retention(rule.clone(), is_sealed).await;
        }
    });
}

#[test]
fn kept_selections_follow_the_retention_with_the_clock() {
    harness::run(async {
        let clock = Arc::new(ManualClock::new(NOW_MS));
        let bounded = |kept_sets_max| StoreOptions {
            clock: Arc::clone(&clock) as _,
            retention_ms: Some(2 * PARTITION_MS + WINDOW_MS),
            ..options(kept_sets_max)
        };
        let (store, slow) = (filled(bounded(8)).await, filled(bounded(0)).await);
        keep(&store, &all()).await;
        let before = read(&slow, &all()).await;
        for now_ms in [NOW_MS + WINDOW_MS, NOW_MS + PARTITION_MS + WINDOW_MS] {
            clock.set(now_ms);
            for store in [&store, &slow] {
                write(store, 0, now_ms).await;
            }
            assert_eq!(read(&store, &all()).await, read(&slow, &all()).await);
        }
        assert!(read(&slow, &all()).await != before, "the retention hides samples");
    });
}

#[test]
fn newest_samples_are_kept_until_a_write() {
    harness::run(async {
        let newest =
            || Selection { only_newest: true, ..selection(LAST_MS - STEP_MS, LAST_MS + STEP_MS) };
        check(true, newest(), async |_| {}).await;
        check(false, newest(), async |store| write(store, 2, LAST_MS + STEP_MS).await).await;
    });
}

#[test]
fn kept_selections_are_charged_to_every_query() {
    harness::run(async {
        let store = filled(options(8)).await;
        let series_of = async |limits: BudgetLimits| {
            let budget = Budget::new(limits);
            let set = store.select(&all(), &budget).await;
            set.map(|set| (set.len(), budget.series_count(), budget.memory_bytes()))
        };
        let series_max = SERIES as u64 - 1;
        let few = BudgetLimits { series_max, ..BudgetLimits::default() };
        read(&store, &all()).await;
        let loaded = series_of(BudgetLimits::default()).await.unwrap();
        assert!(loaded.2 > 0);
        assert_eq!(store.stats().kept_selections_hits, 0);
        assert_eq!(series_of(BudgetLimits::default()).await.unwrap(), loaded);
        assert_eq!(store.stats().kept_selections_hits, 1);
        assert!(series_of(few).await.is_err(), "the limit holds for kept series");
    });
}

#[test]
fn a_selection_is_kept_from_a_number_of_parts_on() {
    harness::run(async {
        let options = options(8);
        let sizes = Sizes { kept_parts_min: 2 * SERIES, ..options.sizes };
        let store = filled(StoreOptions { sizes, ..options }).await;
        let matchers = vec![Matcher::equal("instance", "0")];
        let one = Selection { matchers, ..all() };
        // Two windows of each series have twice as many parts as there are series.
        for (selection, is_kept) in [(all(), true), (one, false)] {
            keep(&store, &selection).await;
            assert_eq!(read_again(&store, &selection).await.1, is_kept);
        }
    });
}

#[test]
fn long_selections_from_the_end_of_a_sealed_block_are_kept() {
    harness::run(async {
        let store = open_with(&harness::memory(), options(8)).await.unwrap();
        for index in 0..SERIES {
            let times = (FIRST_MS..=LAST_MS).step_by(5_000);
            // Such values are shorter as several frames than packed into one.
            let value =
                |at: usize| if at % 256 < 128 { index as f64 } else { 0.1 + (at as f64).sin() };
            let samples: Vec<_> = times.enumerate().map(|(at, time)| (time, value(at))).collect();
            store.append(batch(&series(index), &samples)).await.unwrap();
        }
        store.seal_all().await.unwrap();
        let first_ms = FIRST_MS + WINDOW_MS - 3 * STEP_MS;
        for (end_ms, is_kept) in [(first_ms + 2 * STEP_MS, false), (LAST_MS, true)] {
            keep(&store, &selection(first_ms, end_ms)).await;
            assert_eq!(read_again(&store, &selection(first_ms, end_ms)).await.1, is_kept);
        }
    });
}

/// The first window of the store has samples that a window of the query sees, the second has none.
#[test]
fn floats_between_windows_are_not_loaded_and_prevent_no_keeping() {
    harness::run(async {
        let second_ms = FIRST_MS + WINDOW_MS;
        let windows =
            Windows { first_end_ms: FIRST_MS, step_ms: 5 * WINDOW_MS, span_ms: STEP_MS, count: 3 };
        for part in [WindowPart::Newest, WindowPart::Samples] {
            let wanted = Some(WantedWindows { windows, part });
            let seen = Selection { windows: wanted, ..selection(FIRST_MS, NOW_MS) };
            let store = filled(options(8)).await;
            // In the head, in one block each, in two blocks of two seals.
            for state in 0..3 {
                match state {
                    0 => {}
                    1 => store.seal_all().await.unwrap(),
                    _ => {
                        for index in 0..SERIES {
                            write(&store, index, second_ms + 1).await;
                        }
                        store.seal_all().await.unwrap();
                    }
                }
                keep(&store, &seen).await;
                let (contents, is_kept) = read_again(&store, &seen).await;
                assert!(is_kept, "{part:?}, {state}");
                assert_eq!(contents.len(), SERIES);
                let latest = contents.iter().flat_map(|(_, reads)| reads).map(|r| r.timestamp_ms);
                assert!(latest.max().is_some_and(|ms| ms < second_ms), "{part:?}, {state}");
            }
        }
    });
}

#[test]
fn selections_are_kept_for_their_windows_alone() {
    harness::run(async {
        let windows = |first_end_ms| {
            let step_ms = 3 * WINDOW_MS;
            let windows = Windows { first_end_ms, step_ms, span_ms: STEP_MS, count: 3 };
            Some(WantedWindows { windows, part: WindowPart::Samples })
        };
        let of = |windows| Selection { windows, ..selection(FIRST_MS, NOW_MS) };
        let [first, second] = [FIRST_MS, FIRST_MS + WINDOW_MS].map(|ms| of(windows(ms)));
        for is_sealed in [false, true] {
            let (store, slow) = (filled(options(8)).await, filled(options(0)).await);
            if is_sealed {
                store.seal_all().await.unwrap();
                slow.seal_all().await.unwrap();
            }
            let mut counts = Vec::new();
            for selection in [&first, &second, &of(None)] {
                keep(&store, selection).await;
                let (contents, is_kept) = read_again(&store, selection).await;
                assert!(is_kept, "{selection:?}");
                assert_eq!(contents, read(&slow, selection).await);
                counts.push(contents[0].1.len());
            }
            assert!(counts[0] < counts[2] && counts[1] < counts[2], "{counts:?}");
        }
    });
}

/// One series of a block has samples that windows see, the others have none.
#[test]
fn blocks_are_read_once_if_no_window_sees_some_of_their_series() {
    harness::run(async {
        let store = open_with(&harness::memory(), options(0)).await.unwrap();
        for index in 0..SERIES {
            let count = if index == 0 { 90 } else { 10 };
            let samples: Vec<_> = (0..count).map(|at| (FIRST_MS + at * STEP_MS, 1.0)).collect();
            store.append(batch(&series(index), &samples)).await.unwrap();
        }
        store.seal_all().await.unwrap();
        let first_end_ms = FIRST_MS + 80 * STEP_MS;
        let windows = Windows { first_end_ms, step_ms: 3 * WINDOW_MS, span_ms: STEP_MS, count: 3 };
        let windows = Some(WantedWindows { windows, part: WindowPart::Samples });
        let seen = Selection { windows, ..selection(FIRST_MS, NOW_MS) };
        for hits in [0, 1, 2] {
            assert_eq!(read(&store, &seen).await.len(), 1);
            assert_eq!(store.stats().columns_hits, hits);
        }
    });
}

#[test]
fn a_full_cache_evicts_selections_and_their_columns() {
    harness::run(async {
        let columns_bytes_max = 8 << 10;
        let store = filled_with(15, StoreOptions { columns_bytes_max, ..options(1000) }).await;
        let slow = filled_with(15, options(0)).await;
        for instances in ["[0-4]", "[5-9]", "1[0-4]"] {
            let matcher = Matcher::new(MatchOp::Regex, "instance", instances).unwrap();
            for first in 0..SAMPLES / 2 {
                let mut of_times = selection(FIRST_MS + first * STEP_MS, LAST_MS);
                of_times.matchers.push(matcher.clone());
                keep(&store, &of_times).await;
                assert_eq!(read(&store, &of_times).await, read(&slow, &of_times).await);
                let stats = store.stats();
                assert!(stats.columns_bytes <= columns_bytes_max, "{}", stats.columns_bytes);
            }
        }
        assert!(store.stats().kept_selections_hits > 0);
        assert!(store.stats().columns_evicted > 0);
    });
}

#[test]
fn selections_of_many_series_stay_within_the_cache() {
    harness::run(async {
        let columns_bytes_max = 2 << 20;
        let store = filled_with(1000, StoreOptions { columns_bytes_max, ..options(1000) }).await;
        let of_round = |round| selection(FIRST_MS + round * STEP_MS, LAST_MS);
        for round in 0..16 {
            keep(&store, &of_round(round)).await;
            let bytes = store.stats().columns_bytes;
            assert!(bytes <= columns_bytes_max, "{bytes} bytes after {round} selections");
        }
        assert!(read_again(&store, &of_round(15)).await.1);
    });
}

#[test]
fn the_least_recently_used_selection_is_removed() {
    harness::run(async {
        let store = filled(options(2)).await;
        let [a, b, c] = [0, 1, 2].map(|index| selection(FIRST_MS + index, LAST_MS));
        for of_times in [&a, &b, &a, &c] {
            keep(&store, of_times).await;
        }
        assert!(read_again(&store, &a).await.1);
        assert!(read_again(&store, &c).await.1);
        assert!(!read_again(&store, &b).await.1);
    });
}
