//! Retention of samples: summaries replace them, and answer where whole hours are wanted.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use model::{
    Budget, Labels, Matcher, MetadataQuery, RejectReason, Selection, Source, SourceError,
    TimeRange, WantedFact, WantedWindows, WindowFacts, WindowPart, Windows, stale_nan,
};
use slatedb::object_store::ObjectStore;

use super::faults::Faulty;
use super::follow;
use super::harness::{self, Contents, ReadValue, batch, labels, open_with};
use crate::audit::{Damage, verify_at};
use crate::lsm::{Location, WriteSet};
use crate::summary::BUCKET_MS;
use crate::window::{PARTITION_MS, PartitionId, WINDOW_MS};
use crate::{ManualClock, Store, StoreError, StoreOptions, keys, seal};

const START_MS: i64 = 100 * PARTITION_MS;
/// Three days and a half after the start: the first day is summarized.
const NOW_MS: i64 = START_MS + 3 * PARTITION_MS + PARTITION_MS / 2;
/// Time from which samples are kept.
const KEPT_MS: i64 = START_MS + PARTITION_MS;
const STEP_MS: i64 = 7 * 60_000;

fn options(clock: &Arc<ManualClock>, samples_ms: Option<i64>) -> StoreOptions {
    StoreOptions {
        retention_samples_ms: samples_ms,
        clock: Arc::clone(clock) as Arc<dyn crate::Clock>,
        ..harness::options()
    }
}

/// Two days and a bit.
const SAMPLES_MS: Option<i64> = Some(2 * PARTITION_MS + WINDOW_MS);

fn series(number: i64) -> Labels {
    let name = if number % 2 == 0 { "even" } else { "odd" };
    labels(&[("__name__", name), ("n", &number.to_string())])
}

/// Writes some series up to now, in two seals of which the second has late samples.
async fn fill(store: &Store) {
    for (first, step) in [(0, 2), (1, 2)] {
        for number in 0..5 {
            let times = (first..(NOW_MS - START_MS) / STEP_MS).step_by(step);
            let sample = |at: i64| (START_MS + at * STEP_MS, (at * 31 % 97 + number) as f64);
            let samples: Vec<(i64, f64)> = times.map(sample).collect();
            let mut batch = batch(&series(number), &samples);
            // As of counters that OTLP sends.
            batch.starts = if number == 1 { vec![START_MS; samples.len()] } else { Vec::new() };
            store.append(batch).await.unwrap();
        }
        store.seal_all().await.unwrap();
    }
}

/// Returns a store of which the first day is summarized.
async fn summarized(objects: &Arc<dyn ObjectStore>) -> (Store, Arc<ManualClock>) {
    let clock = Arc::new(ManualClock::new(NOW_MS));
    let store = open_with(objects, options(&clock, None)).await.unwrap();
    fill(&store).await;
    store.close().await.unwrap();
    let store = open_with(objects, options(&clock, SAMPLES_MS)).await.unwrap();
    store.append(batch(&series(0), &[(NOW_MS, 1.0)])).await.unwrap();
    store.maintain().await.unwrap();
    (store, clock)
}

/// Returns the last sample of each hour.
async fn hourly(store: &Store, until_ms: i64) -> Result<Contents, SourceError> {
    let count = ((until_ms - START_MS) / BUCKET_MS) as usize + 1;
    let windows = Windows { first_end_ms: START_MS, step_ms: BUCKET_MS, span_ms: BUCKET_MS, count };
    let selection = Selection {
        matchers: Vec::new(),
        times: TimeRange::new(START_MS - BUCKET_MS + 1, until_ms),
        only_newest: false,
        windows: Some(WantedWindows { windows, part: WindowPart::Newest }),
    };
    let mut found = Contents::new();
    for (labels, reads) in harness::read_selection(store, &selection).await? {
        let mut newest: Vec<(i64, u64)> = Vec::new();
        for read in reads {
            let ReadValue::Float(bits) = read.value else { continue };
            let hour = |time_ms: i64| (time_ms + BUCKET_MS - 1).div_euclid(BUCKET_MS);
            newest.pop_if(|(time_ms, _)| hour(*time_ms) == hour(read.timestamp_ms));
            newest.push((read.timestamp_ms, bits));
        }
        found.push((labels, newest));
    }
    Ok(found)
}

fn is_only_summaries<T: std::fmt::Debug>(result: &Result<T, SourceError>) -> bool {
    matches!(result, Err(SourceError::OnlySummaries { time_ms }) if *time_ms < KEPT_MS)
}

async fn damages(objects: &Arc<dyn ObjectStore>) -> Vec<Damage> {
    let mut found = Vec::new();
    let mut note = |damage: Damage| found.push(damage);
    let location = Location::on(Arc::clone(objects));
    verify_at(&location, &harness::options(), &mut |_, _| {}, &mut note).await.unwrap();
    found
}

#[test]
fn old_samples_are_replaced_and_hours_are_still_answered() {
    harness::run(async {
        let objects = harness::memory();
        let clock = Arc::new(ManualClock::new(NOW_MS));
        let store = open_with(&objects, options(&clock, None)).await.unwrap();
        fill(&store).await;
        store.append(batch(&series(0), &[(NOW_MS, 1.0)])).await.unwrap();
        let expected = hourly(&store, NOW_MS).await.unwrap();
        let recent = harness::read(&store, vec![], KEPT_MS, NOW_MS).await.unwrap();
        assert!(harness::read_all(&store).await.unwrap()[0].1.len() > 600);
        store.close().await.unwrap();
        // Once summarized, a day stays so without the setting.
        for samples_ms in [SAMPLES_MS, SAMPLES_MS, None] {
            let store = open_with(&objects, options(&clock, samples_ms)).await.unwrap();
            store.append(batch(&series(0), &[(NOW_MS, 1.0)])).await.unwrap();
            store.maintain().await.unwrap();
            assert_eq!(hourly(&store, NOW_MS).await.unwrap(), expected, "{samples_ms:?}");
            assert_eq!(harness::read(&store, vec![], KEPT_MS, NOW_MS).await.unwrap(), recent);
            let old = harness::read(&store, vec![], START_MS, KEPT_MS - 1).await;
            assert!(is_only_summaries(&old), "{old:?}");
            let late = [(KEPT_MS - 1, 1.0), (KEPT_MS + 1, 1.0)];
            let outcome = store.append(batch(&labels(&[("a", "late")]), &late[..1])).await.unwrap();
            assert_eq!(outcome.rejections[0].reason, RejectReason::OutOfBounds);
            let times = TimeRange::new(START_MS, KEPT_MS - 1);
            let query = MetadataQuery { selectors: vec![], times, limit: 0 };
            assert_eq!(store.series(&query, &Budget::unlimited()).await.unwrap().len(), 5);
            store.close().await.unwrap();
            assert_eq!(damages(&objects).await, []);
        }
    });
}

#[test]
fn queries_of_parts_of_hours_fail_only_where_samples_are_gone() {
    harness::run(async {
        let (store, _) = summarized(&harness::memory()).await;
        let select = |windows: Windows, part| Selection {
            matchers: Vec::new(),
            times: TimeRange::new(windows.after_ms(0) + 1, windows.end_ms(windows.count - 1)),
            only_newest: false,
            windows: Some(WantedWindows { windows, part }),
        };
        let facts = |first_end_ms, step_ms, span_ms, count| {
            select(Windows { first_end_ms, step_ms, span_ms, count }, WindowPart::Facts)
        };
        let budget = Budget::unlimited();
        let (hour, half) = (BUCKET_MS, BUCKET_MS / 2);
        let answered = [
            facts(START_MS + 2 * hour, hour, hour, 40),
            // A scrape interval more, as in `$__rate_interval`.
            facts(START_MS + 2 * hour, hour, hour + 60_000, 20),
            facts(START_MS + 30 * hour, 0, 29 * hour, 1),
            // Of kept days, samples are read.
            facts(KEPT_MS + 5 * hour + half, hour, hour, 20),
        ];
        for selection in answered {
            store.select(&selection, &budget).await.map(drop).unwrap();
        }
        let refused = [
            facts(START_MS + 2 * hour + half, hour, hour, 3),
            facts(START_MS + 2 * hour, hour, half, 3),
            facts(START_MS + 2 * hour, half, hour, 3),
            facts(START_MS + 30 * hour, 0, 27 * hour + half, 1),
            select(
                Windows { first_end_ms: START_MS + hour, step_ms: hour, span_ms: hour, count: 9 },
                WindowPart::Samples,
            ),
        ];
        for selection in refused {
            let result = store.select(&selection, &budget).await.map(drop);
            assert!(is_only_summaries(&result), "{selection:?}");
        }
    });
}

#[test]
fn windows_inside_hours_are_answered_of_days_with_a_sample_an_hour() {
    harness::run(async {
        let objects = harness::memory();
        let clock = Arc::new(ManualClock::new(NOW_MS));
        let store = open_with(&objects, options(&clock, None)).await.unwrap();
        let times = (START_MS + 1..NOW_MS).step_by(BUCKET_MS as usize);
        let samples: Vec<(i64, f64)> = times.map(|time_ms| (time_ms, time_ms as f64)).collect();
        store.append(batch(&series(0), &samples)).await.unwrap();
        store.seal_all().await.unwrap();
        store.close().await.unwrap();
        // It does not know that samples are replaced, unlike the store.
        let reader = follow::reader(&objects, options(&clock, None)).await.unwrap();
        let store = open_with(&objects, options(&clock, SAMPLES_MS)).await.unwrap();
        store.append(batch(&series(0), &[(NOW_MS, 1.0)])).await.unwrap();
        store.maintain().await.unwrap();
        reader.catch_up().await.unwrap();
        let step_ms = 84 * 60_000;
        let windows =
            Windows { first_end_ms: START_MS + step_ms, step_ms, span_ms: step_ms, count: 40 };
        let selection = Selection {
            matchers: Vec::new(),
            times: TimeRange::new(windows.after_ms(0) + 1, windows.end_ms(39)),
            only_newest: false,
            windows: Some(WantedWindows { windows, part: WindowPart::Facts }),
        };
        for source in [&store, &reader] {
            let old = harness::read(source, vec![], START_MS, KEPT_MS - 1).await;
            assert!(is_only_summaries(&old), "{old:?}");
            let set = source.select(&selection, &Budget::unlimited()).await.unwrap();
            let mut facts = WindowFacts::new();
            let filled = set.cursor(0).fill_windows(windows, WantedFact::Ends, &mut facts).unwrap();
            assert_eq!(filled.windows, 40);
            check_ends(&facts, windows, &samples);
        }
        reader.close().await.unwrap();
    });
}

/// Checks the values of the last samples of windows.
fn check_ends(facts: &WindowFacts, windows: Windows, samples: &[(i64, f64)]) {
    for window in 0..windows.count {
        let (after_ms, end_ms) = (windows.after_ms(window), windows.end_ms(window));
        let seen = samples.iter().filter(|(time, _)| after_ms < *time && *time <= end_ms);
        let values: Vec<f64> = seen.map(|(_, value)| *value).collect();
        assert_eq!(facts.counts[window], values.len(), "{window}");
        assert_eq!(facts.fact[window], values[values.len() - 1], "{window}");
    }
}

#[test]
fn facts_of_windows_with_gaps_between_them_are_read_from_samples() {
    harness::run(async {
        let clock = Arc::new(ManualClock::new(START_MS + PARTITION_MS));
        let store = open_with(&harness::memory(), options(&clock, None)).await.unwrap();
        let times = (START_MS..START_MS + PARTITION_MS).step_by(5_000);
        let value = |time_ms: i64| (time_ms / 5_000 * 31 % 97) as f64;
        let samples: Vec<(i64, f64)> = times.map(|time_ms| (time_ms, value(time_ms))).collect();
        store.append(batch(&series(0), &samples)).await.unwrap();
        store.seal_all().await.unwrap();
        // Most windows of the store that they see have one of their boundaries.
        let (step_ms, span_ms) = (7 * BUCKET_MS, 3 * BUCKET_MS);
        let first_end_ms = START_MS + 3 * BUCKET_MS + BUCKET_MS / 3;
        let windows = Windows { first_end_ms, step_ms, span_ms, count: 3 };
        let selection = Selection {
            matchers: Vec::new(),
            times: TimeRange::new(windows.after_ms(0) + 1, windows.end_ms(2)),
            only_newest: false,
            windows: Some(WantedWindows { windows, part: WindowPart::Facts }),
        };
        let set = store.select(&selection, &Budget::unlimited()).await.unwrap();
        // Those of the gaps.
        assert!(store.stats().summarized_blocks > 0);
        let mut facts = WindowFacts::new();
        let mut cursor = set.cursor(0);
        let mut next = windows;
        while next.count > 0 {
            let filled = cursor.fill_windows(next, WantedFact::Ends, &mut facts).unwrap();
            assert!(filled.windows > 0);
            assert_eq!(filled.summarized, 0);
            let count = filled.windows;
            check_ends(&facts, Windows { count, ..next }, &samples);
            next = Windows { count: next.count - count, ..next.from(count) };
        }
    });
}

#[test]
fn deletes_of_summarized_days_cover_whole_windows() {
    harness::run(async {
        let objects = harness::memory();
        let (store, clock) = summarized(&objects).await;
        let before = hourly(&store, NOW_MS).await.unwrap();
        let odd = || vec![vec![Matcher::equal("__name__", "odd")]];
        let (start_ms, end_ms) = (START_MS + 2 * WINDOW_MS, START_MS + 5 * WINDOW_MS - 1);
        for (start_ms, end_ms) in
            [(start_ms + 1, end_ms), (start_ms, end_ms + 1), (start_ms, start_ms)]
        {
            let refused = store.delete(odd(), start_ms, end_ms).await;
            assert_eq!(refused, Err(StoreError::OnlySummaries { before_ms: KEPT_MS }));
        }
        // Of kept days, any time.
        store.delete(odd(), KEPT_MS + 5, KEPT_MS + 5).await.unwrap();
        store.delete(odd(), start_ms, end_ms).await.unwrap();
        let mut expected = before;
        for (labels, samples) in &mut expected {
            let is_odd = labels.get("__name__") == "odd";
            samples.retain(|(t, _)| !is_odd || !(start_ms..=end_ms).contains(t));
        }
        let last = vec![vec![Matcher::equal("n", "4")]];
        store.delete(last.clone(), i64::MIN, i64::MAX).await.unwrap();
        expected.retain(|(labels, _)| labels.get("n") != "4");
        assert_eq!(hourly(&store, NOW_MS).await.unwrap(), expected);
        let times = TimeRange::new(START_MS, KEPT_MS - 1);
        let query = MetadataQuery { selectors: vec![], times, limit: 0 };
        assert_eq!(store.series(&query, &Budget::unlimited()).await.unwrap().len(), 4);
        store.clean_tombstones().await.unwrap();
        assert_eq!(hourly(&store, NOW_MS).await.unwrap(), expected);
        store.close().await.unwrap();
        assert_eq!(damages(&objects).await, []);
        let store = open_with(&objects, options(&clock, SAMPLES_MS)).await.unwrap();
        assert_eq!(store.core().tombstones.counts().1, 0);
        assert_eq!(hourly(&store, NOW_MS).await.unwrap(), expected);
        let values = store.label_values("n", &query, &Budget::unlimited()).await.unwrap();
        assert_eq!(values, ["0", "1", "2", "3"]);
    });
}

#[test]
fn samples_that_summaries_cannot_represent_are_kept() {
    harness::run(async {
        let clock = Arc::new(ManualClock::new(NOW_MS));
        let store = open_with(&harness::memory(), options(&clock, SAMPLES_MS)).await.unwrap();
        clock.set(START_MS + PARTITION_MS / 2);
        let infinite = labels(&[("__name__", "even"), ("n", "infinite")]);
        let samples = [(START_MS + 1, 1.0), (START_MS + 2, f64::INFINITY)];
        store.append(batch(&infinite, &samples)).await.unwrap();
        let counted = labels(&[("__name__", "counted")]);
        let histogram = harness::at(START_MS + 5, harness::histogram(&[1, 2]));
        store.append(harness::histogram_batch(&counted, &[histogram])).await.unwrap();
        for number in 0..5 {
            let mut batch = batch(&series(number), &[(START_MS + 3, 2.0)]);
            batch.starts = if number == 3 { vec![START_MS] } else { Vec::new() };
            store.append(batch).await.unwrap();
        }
        store.seal_all().await.unwrap();
        clock.set(NOW_MS);
        store.append(batch(&series(0), &[(NOW_MS, 1.0)])).await.unwrap();
        store.maintain().await.unwrap();
        let of = async |name: &str, value: &str| {
            let matchers = vec![Matcher::equal(name, value)];
            harness::read_full(&store, matchers, START_MS, KEPT_MS).await
        };
        assert_eq!(of("n", "infinite").await.unwrap()[0].1.len(), 2);
        assert_eq!(of("__name__", "counted").await.unwrap()[0].1.len(), 1);
        assert!(is_only_summaries(&of("n", "3").await));
    });
}

#[test]
fn gauges_are_summarized_except_for_their_increase() {
    harness::run(async {
        let clock = Arc::new(ManualClock::new(START_MS + PARTITION_MS / 2));
        let store = open_with(&harness::memory(), options(&clock, SAMPLES_MS)).await.unwrap();
        let times = (1..4_000).map(|at| START_MS + at * 5_000);
        let value = |time_ms: i64| (time_ms / 5_000 * 31 % 97) as f64 / 10.0;
        let samples: Vec<(i64, f64)> = times.map(|time_ms| (time_ms, value(time_ms))).collect();
        store.append(batch(&series(0), &samples)).await.unwrap();
        store.seal_all().await.unwrap();
        let (step_ms, span_ms) = (BUCKET_MS, BUCKET_MS + 5_000);
        let windows = Windows { first_end_ms: START_MS + step_ms, step_ms, span_ms, count: 4 };
        let select = async |part: WindowPart| {
            let selection = Selection {
                matchers: Vec::new(),
                times: TimeRange::new(windows.after_ms(0) + 1, windows.end_ms(3)),
                only_newest: false,
                windows: Some(WantedWindows { windows, part }),
            };
            store.select(&selection, &Budget::unlimited()).await.unwrap()
        };
        select(WindowPart::FactsWithIncrease).await;
        assert_eq!(store.stats().summarized_blocks, 0);
        let set = select(WindowPart::Facts).await;
        assert!(store.stats().summarized_blocks > 0);
        for wanted in [WantedFact::Ends, WantedFact::Difference, WantedFact::Min, WantedFact::Max] {
            let mut facts = WindowFacts::new();
            let filled = set.cursor(0).fill_windows(windows, wanted, &mut facts).unwrap();
            assert_eq!((filled.windows, filled.summarized), (4, 4), "{wanted:?}");
            for window in 0..4 {
                let (after_ms, end_ms) = (windows.after_ms(window), windows.end_ms(window));
                let seen = samples.iter().filter(|(time, _)| after_ms < *time && *time <= end_ms);
                let values: Vec<f64> = seen.map(|(_, value)| *value).collect();
                let (first, last) = (values[0], values[values.len() - 1]);
                let expected = match wanted {
                    WantedFact::Ends => last,
                    WantedFact::Difference => last - first,
                    WantedFact::Min => values.iter().copied().fold(f64::INFINITY, f64::min),
                    _ => values.iter().copied().fold(f64::NEG_INFINITY, f64::max),
                };
                assert_eq!(facts.counts[window], values.len());
                assert_eq!(facts.fact[window], expected, "{wanted:?} {window}");
            }
        }
        // Their samples are kept: the increase of a counter with decimal places is answered.
        clock.set(NOW_MS);
        store.append(batch(&series(0), &[(NOW_MS, 1.0)])).await.unwrap();
        store.maintain().await.unwrap();
        let old = harness::read(&store, vec![], START_MS, KEPT_MS - 1).await.unwrap();
        assert_eq!(old[0].1.len(), samples.len());
    });
}

#[test]
fn few_series_between_others_keep_their_samples() {
    // Of each metric, series with samples only (P) and those with summaries (S), before and after.
    let expected = [
        ("SS", "SS"),
        ("P", "P"),
        ("PSSSP", "PPPPP"),
        ("PSSSSP", "PSSSSP"),
        ("PSSSSSPSS", "PSSSSSPPP"),
        ("SSPSSSS", "PPPSSSS"),
        ("SSSSSPSSSSP", "SSSSSPSSSSP"),
    ];
    harness::run(async {
        let objects = harness::memory();
        let clock = Arc::new(ManualClock::new(START_MS + PARTITION_MS / 2));
        let mut options = options(&clock, SAMPLES_MS);
        options.sizes.block_series_max = 8;
        let store = open_with(&objects, options).await.unwrap();
        let of = |metric: usize, number: usize| {
            let number = format!("{number:02}");
            labels(&[("__name__", &format!("m{metric}")), ("n", &number)])
        };
        for (metric, (before, _)) in expected.iter().enumerate() {
            for (number, kind) in before.chars().enumerate() {
                let value = if kind == 'P' { f64::INFINITY } else { 1.0 };
                let sample = [(START_MS + 1, value)];
                store.append(batch(&of(metric, number), &sample)).await.unwrap();
            }
        }
        store.seal_all().await.unwrap();
        clock.set(NOW_MS);
        store.append(batch(&series(0), &[(NOW_MS, 1.0)])).await.unwrap();
        store.maintain().await.unwrap();
        for (metric, (before, after)) in expected.iter().enumerate() {
            let mut found = String::new();
            for number in 0..before.len() {
                let matchers = of(metric, number);
                let matchers = matchers.iter().map(|(name, value)| Matcher::equal(name, value));
                let read = harness::read(&store, matchers.collect(), START_MS, KEPT_MS).await;
                found.push(if is_only_summaries(&read) { 'S' } else { 'P' });
            }
            assert_eq!(found, *after, "{before}");
        }
        store.close().await.unwrap();
        assert_eq!(damages(&objects).await, []);
    });
}

#[test]
fn a_day_is_replaced_in_rounds_and_again_after_a_failure() {
    harness::run(async {
        let objects = harness::memory();
        let clock = Arc::new(ManualClock::new(NOW_MS));
        let store = open_with(&objects, options(&clock, None)).await.unwrap();
        fill(&store).await;
        store.close().await.unwrap();
        let store = open_with(&objects, options(&clock, SAMPLES_MS)).await.unwrap();
        store.append(batch(&series(0), &[(NOW_MS, 1.0)])).await.unwrap();
        let expected = hourly(&store, NOW_MS).await.unwrap();
        let core = store.core();
        let directories = keys::directories(PartitionId::new(100));
        let mut scan = core.lsm.scan_prefix(&directories).await.unwrap();
        let (key, directory) = scan.next().await.unwrap().unwrap();
        let write = async |value: Vec<u8>| {
            let mut set = WriteSet::default();
            set.put(key.to_vec(), value);
            core.lsm.commit(set).await.unwrap();
            core.index.invalidate_runs(PartitionId::new(100));
        };
        write(vec![1]).await;
        store.maintain().await.unwrap();
        write(directory.to_vec()).await;
        let old = async || harness::read(&store, vec![], START_MS, KEPT_MS - 1).await;
        store.maintain().await.unwrap();
        assert!(old().await.is_ok());
        clock.set(NOW_MS + 3_600_000);
        let mut rounds = 0;
        while seal::summarize_expired(core).await.unwrap() {
            rounds += 1;
            assert_eq!(hourly(&store, NOW_MS).await.unwrap(), expected, "{rounds} rounds");
        }
        assert!(rounds > 12, "{rounds}");
        assert!(is_only_summaries(&old().await));
    });
}

#[test]
fn a_day_without_summaries_takes_several_rounds() {
    harness::run(async {
        let clock = Arc::new(ManualClock::new(START_MS + PARTITION_MS));
        let store = open_with(&harness::memory(), options(&clock, SAMPLES_MS)).await.unwrap();
        let samples: Vec<(i64, f64)> =
            (0..1200).map(|at| (START_MS + at * 60_000, f64::INFINITY)).collect();
        for number in 0..5 {
            store.append(batch(&series(number), &samples)).await.unwrap();
        }
        store.seal_all().await.unwrap();
        clock.set(NOW_MS);
        store.append(batch(&series(0), &[(NOW_MS, 1.0)])).await.unwrap();
        let mut rounds = 0;
        while seal::summarize_expired(store.core()).await.unwrap() {
            rounds += 1;
        }
        assert!(rounds > 2, "{rounds}");
        let old = harness::read(&store, vec![], START_MS, KEPT_MS - 1).await.unwrap();
        assert!(old.iter().all(|(_, read)| read.len() == samples.len()));
    });
}

#[test]
fn samples_that_only_the_log_has_are_replaced() {
    harness::run(async {
        let clock = Arc::new(ManualClock::new(START_MS + PARTITION_MS / 2));
        let store = open_with(&harness::memory(), options(&clock, SAMPLES_MS)).await.unwrap();
        let samples: Vec<(i64, f64)> = (1..9).map(|at| (START_MS + at, at as f64)).collect();
        store.append(batch(&series(0), &samples)).await.unwrap();
        clock.set(NOW_MS);
        store.append(batch(&series(0), &[(NOW_MS, 1.0)])).await.unwrap();
        store.maintain().await.unwrap();
        let old = harness::read(&store, vec![], START_MS, KEPT_MS - 1).await;
        assert!(is_only_summaries(&old), "{old:?}");
        let hours = hourly(&store, NOW_MS).await.unwrap();
        assert_eq!(hours[0].1, [(START_MS + 8, 8.0_f64.to_bits()), (NOW_MS, 1.0_f64.to_bits())]);
    });
}

#[test]
fn markers_at_the_end_of_an_hour_are_seen() {
    harness::run(async {
        let end_ms = START_MS + WINDOW_MS;
        for samples_ms in [None, SAMPLES_MS] {
            let objects = harness::memory();
            let clock = Arc::new(ManualClock::new(NOW_MS));
            let store = open_with(&objects, options(&clock, None)).await.unwrap();
            for number in [0, 2] {
                let times = (0..).map(|at| START_MS + at * 15_000);
                let until_ms = end_ms + if number == 0 { 0 } else { WINDOW_MS };
                let times = times.take_while(|time_ms| *time_ms <= until_ms);
                let value = |time_ms: i64| {
                    let is_end = number == 0 && time_ms == end_ms;
                    if is_end { stale_nan() } else { (time_ms - START_MS) as f64 }
                };
                let samples: Vec<(i64, f64)> = times.map(|time| (time, value(time))).collect();
                store.append(batch(&series(number), &samples)).await.unwrap();
            }
            store.append(batch(&series(1), &[(NOW_MS, 1.0)])).await.unwrap();
            let expected = hourly(&store, NOW_MS).await.unwrap();
            assert_eq!(expected[0].1.last(), Some(&(end_ms, stale_nan().to_bits())));
            store.seal_all().await.unwrap();
            store.close().await.unwrap();
            let store = open_with(&objects, options(&clock, samples_ms)).await.unwrap();
            store.maintain().await.unwrap();
            assert_eq!(hourly(&store, NOW_MS).await.unwrap(), expected, "{samples_ms:?}");
        }
    });
}

#[test]
fn lost_summaries_are_found() {
    harness::run(async {
        let objects = harness::memory();
        let (store, _) = summarized(&objects).await;
        let mut scan = store
            .core()
            .lsm
            .scan_prefix(&keys::summaries_of_day(PartitionId::new(100)))
            .await
            .unwrap();
        let (key, _) = scan.next().await.unwrap().unwrap();
        let mut set = WriteSet::default();
        set.delete(&key);
        store.core().lsm.commit(set).await.unwrap();
        let result = hourly(&store, NOW_MS).await;
        let is_damage = |detail: &str| detail.contains("summaries are missing");
        assert!(
            matches!(&result, Err(SourceError::Corrupt { detail, .. }) if is_damage(detail)),
            "{result:?}"
        );
        store.close().await.unwrap();
        let found = damages(&objects).await;
        assert!(
            format!("{found:?}").contains("the summaries are listed, but missing"),
            "{found:?}"
        );
    });
}

/// Maintains a store with expired samples; the first error ends it. A failure to replace them by
/// summaries, which maintenance survives, is an error, too.
async fn live_on(
    objects: &Arc<dyn ObjectStore>,
    clock: &Arc<ManualClock>,
) -> Result<(), StoreError> {
    let store = open_with(objects, options(clock, SAMPLES_MS)).await?;
    store.append(batch(&series(0), &[(NOW_MS, 1.0)])).await?;
    store.maintain().await?;
    store.maintain().await?;
    let has_failed = store.core().summarize_from_ms.load(Ordering::Relaxed) != i64::MIN;
    if has_failed { Err(StoreError::Unavailable("it is tried again".to_owned())) } else { Ok(()) }
}

#[test]
fn hours_are_answered_after_a_crash_at_every_write() {
    let (mut writes, mut is_done, mut has_ended_between) = (0, false, false);
    while !is_done {
        for last_lands in [false, true] {
            is_done = harness::run(async {
                let objects = harness::memory();
                let clock = Arc::new(ManualClock::new(NOW_MS));
                let store = open_with(&objects, options(&clock, None)).await.unwrap();
                for (number, late_ms) in [(0, 0), (1, 0), (0, 60_000)] {
                    let times = (0..3).map(|window| START_MS + window * WINDOW_MS + late_ms);
                    let samples: Vec<(i64, f64)> = times.map(|t| (t, number as f64)).collect();
                    store.append(batch(&series(number), &samples)).await.unwrap();
                    store.seal_all().await.unwrap();
                }
                store.append(batch(&series(0), &[(NOW_MS, 1.0)])).await.unwrap();
                let expected = hourly(&store, NOW_MS).await.unwrap();
                store.close().await.unwrap();
                let faulty = Faulty::on(&objects, writes, last_lands);
                let lived = live_on(&faulty, &clock).await;
                for samples_ms in [None, SAMPLES_MS] {
                    let store = open_with(&objects, options(&clock, samples_ms)).await.unwrap();
                    assert_eq!(hourly(&store, NOW_MS).await.unwrap(), expected, "{writes} writes");
                    let old = harness::read(&store, vec![], START_MS, KEPT_MS - 1).await;
                    has_ended_between |= lived.is_err() && is_only_summaries(&old);
                    store.append(batch(&series(0), &[(NOW_MS, 1.0)])).await.unwrap();
                    store.maintain().await.unwrap();
                    assert_eq!(hourly(&store, NOW_MS).await.unwrap(), expected, "{writes} writes");
                    store.close().await.unwrap();
                }
                assert_eq!(damages(&objects).await, [], "{writes} writes");
                lived.is_ok()
            });
        }
        writes += 1;
    }
    assert!(has_ended_between, "{writes} writes");
}
