//! Exemplars and metadata in a whole store.

use std::sync::Arc;

use model::{
    Answer, Batch, BatchExemplar, BatchMetadata, Budget, BudgetError, BudgetLimits, ExemplarQuery,
    MatchOp, Matcher, MetricKind, Source, SourceError, TimeRange,
};
use slatedb::object_store::ObjectStore;

use super::damage::{damages, entries, put, reopened};
use super::faults::Faulty;
use super::harness::{self, batch, labels, open, open_with, read_all};
use crate::{AppendOutcome, ExemplarOutcome, Store, StoreOptions, keys};

/// Returns a write of a sample and exemplars of one series, as time and value.
fn with_exemplars(series: &str, exemplars: &[(i64, f64)]) -> Batch {
    let mut all = batch(&labels(&[("__name__", series)]), &[(1, 1.0)]);
    for (timestamp_ms, value) in exemplars {
        let labels = labels(&[("trace_id", &format!("{series}{timestamp_ms}"))]);
        let (timestamp_ms, value) = (*timestamp_ms, *value);
        all.exemplars.push(BatchExemplar { series_index: 0, labels, timestamp_ms, value });
    }
    all
}

fn about(metric: &str, help: &str) -> BatchMetadata {
    let (metric, help) = (metric.to_owned(), help.to_owned());
    BatchMetadata { metric, kind: MetricKind::Counter, help, unit: "seconds".to_owned() }
}

fn of(series: &str) -> Vec<Matcher> {
    vec![Matcher::new(MatchOp::Regex, "__name__", series).unwrap()]
}

async fn append(store: &Store, batch: Batch) -> ExemplarOutcome {
    store.append(batch).await.unwrap().exemplars
}

/// Returns series and times of matching exemplars, and the warnings.
fn found(store: &Store, series: &str, start_ms: i64, end_ms: i64) -> Answer<(String, Vec<i64>)> {
    let query =
        ExemplarQuery { selectors: vec![of(series)], times: TimeRange::new(start_ms, end_ms) };
    let answer = store.exemplars(&query, &Budget::unlimited()).unwrap();
    let found = answer.found.into_iter().map(|series| {
        let times = series.exemplars.iter().map(|exemplar| exemplar.timestamp_ms);
        (series.labels.metric_name().to_owned(), times.collect())
    });
    Answer { found: found.collect(), warnings: answer.warnings }
}

fn all(store: &Store) -> Vec<(String, Vec<i64>)> {
    found(store, ".+", i64::MIN, i64::MAX).found
}

fn known(store: &Store) -> Vec<(String, Vec<String>)> {
    let answer = store.metadata(None, usize::MAX);
    let helps = |known: &model::KnownMetric| known.entries.iter().map(|e| e.help.clone()).collect();
    answer.found.iter().map(|known| (known.metric.to_string(), helps(known))).collect()
}

#[test]
fn exemplars_are_found_by_selector_and_time() {
    harness::run(async {
        let store = open(&harness::memory()).await.unwrap();
        append(&store, with_exemplars("b", &[(10, 1.0), (20, 2.0), (30, 3.0)])).await;
        append(&store, with_exemplars("a", &[(15, 1.0)])).await;
        let found_in = |name: &str, times: &[i64]| (name.to_owned(), times.to_vec());
        let cases = [
            ((".+", i64::MIN, i64::MAX), vec![found_in("a", &[15]), found_in("b", &[10, 20, 30])]),
            (("b", 10, 20), vec![found_in("b", &[10, 20])]),
            (("b", 11, 29), vec![found_in("b", &[20])]),
            ((".+", 21, 29), vec![]),
            (("c", 0, 100), vec![]),
        ];
        for ((series, start_ms, end_ms), expected) in cases {
            let answer = found(&store, series, start_ms, end_ms);
            assert_eq!(answer, Answer { found: expected, warnings: Vec::new() });
        }
        // A series selected twice is returned once.
        let selectors = vec![of("a"), of("a|b"), of("c")];
        let query = ExemplarQuery { selectors, times: TimeRange::new(0, 100) };
        assert_eq!(store.exemplars(&query, &Budget::unlimited()).unwrap().found.len(), 2);
        let limits = BudgetLimits { series_max: 1, ..BudgetLimits::default() };
        let refused = store.exemplars(&query, &Budget::new(limits));
        assert!(matches!(
            refused,
            Err(SourceError::Budget(BudgetError::Exceeded { limit: 1, reached: 2, .. }))
        ));
        let limits = BudgetLimits { memory_bytes_max: 100, ..BudgetLimits::default() };
        let refused = store.exemplars(&query, &Budget::new(limits));
        assert!(matches!(refused, Err(SourceError::Budget(BudgetError::Exceeded { .. }))));
    });
}

/// Returns the counts of accepted, ignored, dropped and out-of-order exemplars.
fn fate(outcome: &ExemplarOutcome) -> [usize; 4] {
    let counts = outcome.counts();
    [counts.accepted, counts.ignored, counts.dropped, counts.out_of_order]
}

#[test]
fn exemplars_are_judged_as_prometheus_does() {
    const MINUTE_MS: i64 = 60_000;
    // Writes of one series, and their outcomes for an out-of-order window.
    type Case = (Option<i64>, &'static [(&'static [(i64, f64)], [usize; 4])], &'static [i64]);
    let cases: [Case; 4] = [
        (
            Some(0),
            &[
                (&[(MINUTE_MS, 1.0)], [1, 0, 0, 0]),
                // A duplicate, a higher value at the same time, a lower value, an earlier time.
                (&[(MINUTE_MS, 1.0)], [0, 1, 0, 0]),
                (&[(MINUTE_MS, 2.0)], [1, 0, 0, 0]),
                (&[(MINUTE_MS, 1.5)], [0, 0, 0, 1]),
                (&[(MINUTE_MS - 1, 9.0)], [0, 0, 0, 1]),
                // Overtaken in the same write: not refused, and not kept.
                (&[(3 * MINUTE_MS, 1.0), (2 * MINUTE_MS, 1.0)], [1, 1, 0, 0]),
            ],
            &[MINUTE_MS, MINUTE_MS, 3 * MINUTE_MS],
        ),
        (
            Some(MINUTE_MS),
            &[
                (&[(3 * MINUTE_MS, 1.0)], [1, 0, 0, 0]),
                (&[(3 * MINUTE_MS - 10, 1.0)], [1, 0, 0, 0]),
                // Late exemplars whose time is held count as duplicates.
                (&[(3 * MINUTE_MS - 10, 2.0)], [0, 1, 0, 0]),
                (&[(3 * MINUTE_MS - 20, 1.0), (3 * MINUTE_MS - 20, 2.0)], [1, 1, 0, 0]),
                (&[(2 * MINUTE_MS, 1.0)], [0, 0, 0, 1]),
                (&[(2 * MINUTE_MS + 1, 1.0)], [1, 0, 0, 0]),
            ],
            &[2 * MINUTE_MS + 1, 3 * MINUTE_MS - 20, 3 * MINUTE_MS - 10, 3 * MINUTE_MS],
        ),
        (
            None,
            &[(&[(3 * MINUTE_MS, 1.0), (1, 1.0), (i64::MIN, 1.0)], [3, 0, 0, 0])],
            &[i64::MIN, 1, 3 * MINUTE_MS],
        ),
        // NaN never equals NaN, and is neither before nor after it.
        (Some(0), &[(&[(1, f64::NAN)], [1, 0, 0, 0]), (&[(1, f64::NAN)], [1, 0, 0, 0])], &[1, 1]),
    ];
    for (window_ms, writes, held) in cases {
        harness::run(async {
            let options = StoreOptions { out_of_order_window_ms: window_ms, ..harness::options() };
            let objects = harness::memory();
            let store = open_with(&objects, options.clone()).await.unwrap();
            for (exemplars, expected) in writes {
                let outcome = append(&store, with_exemplars("a", exemplars)).await;
                assert_eq!(fate(&outcome), *expected, "{window_ms:?} {exemplars:?}");
                assert_eq!(outcome.out_of_order_series.len(), outcome.out_of_order);
            }
            let expected = vec![("a".to_owned(), held.to_vec())];
            assert_eq!(all(&store), expected);
            drop(store);
            let store = open_with(&objects, options).await.unwrap();
            assert_eq!(all(&store), expected, "unchanged by a restart");
        });
    }
}

#[test]
fn exemplars_without_a_series_or_from_the_future_are_dropped() {
    harness::run(async {
        let now_ms = 1 << 40;
        let clock = Arc::new(crate::ManualClock::new(now_ms));
        let options = StoreOptions { clock, ..harness::options() };
        let objects = harness::memory();
        let store = open_with(&objects, options.clone()).await.unwrap();
        let ahead_ms = 10 * 60_000;
        let mut write =
            with_exemplars("a", &[(now_ms + ahead_ms, 1.0), (now_ms + ahead_ms + 1, 1.0)]);
        assert_eq!(fate(&append(&store, write.clone()).await), [1, 0, 1, 0]);
        // Without samples, of a known and of an unknown series.
        write.series[0].samples_end = 0;
        (write.timestamps, write.values) = (Vec::new(), Vec::new());
        write.exemplars[0].value = 2.0;
        assert_eq!(fate(&append(&store, write.clone()).await), [1, 0, 1, 0]);
        write.labels_arena = labels(&[("__name__", "b")]).as_bytes().to_vec();
        let outcome = store.append(write).await.unwrap();
        assert_eq!((outcome.accepted, fate(&outcome.exemplars)), (0, [0, 0, 2, 0]));
        assert_eq!(all(&store), [("a".to_owned(), vec![now_ms + ahead_ms; 2])]);
        let stats = store.stats();
        assert_eq!((stats.exemplars, stats.exemplar_series, stats.exemplars_dropped), (2, 1, 4));
        assert_eq!((stats.log_records, stats.exemplars_appended), (1, 2));
        // None is kept while exemplars are turned off; the sender is not informed.
        drop(store);
        let options = StoreOptions { exemplars_max: 0, ..options };
        let store = open_with(&objects, options).await.unwrap();
        assert_eq!(all(&store), []);
        assert_eq!(fate(&append(&store, with_exemplars("a", &[(1, 1.0)])).await), [0, 1, 0, 0]);
        append(&store, batch(&labels(&[("n", "x")]), &[(1, 1.0)])).await;
        assert_eq!(
            entries(&store, keys::EXEMPLARS_PREFIX).await.len(),
            0,
            "stored values are deleted"
        );
    });
}

#[test]
fn old_exemplars_leave_ring_and_store() {
    harness::run(async {
        let objects = harness::memory();
        let options = StoreOptions { exemplars_max: 3, ..harness::options() };
        let store = open_with(&objects, options.clone()).await.unwrap();
        for time in 0..20 {
            append(&store, with_exemplars(if time % 2 == 0 { "a" } else { "b" }, &[(time, 1.0)]))
                .await;
        }
        let expected = [("a".to_owned(), vec![18]), ("b".to_owned(), vec![17, 19])];
        assert_eq!(all(&store), expected);
        // The next write deletes the value that has just died.
        assert_eq!(entries(&store, keys::EXEMPLARS_PREFIX).await.len(), 4);
        store.seal_all().await.unwrap();
        store.close().await.unwrap();
        let store = open_with(&objects, options).await.unwrap();
        assert_eq!(all(&store), expected, "sealing does not touch them");
        append(&store, batch(&labels(&[("n", "x")]), &[(1, 1.0)])).await;
        assert_eq!(entries(&store, keys::EXEMPLARS_PREFIX).await.len(), 3);
        let stats = store.stats();
        assert_eq!((stats.exemplars, stats.exemplars_max), (3, 3));
        assert_eq!(stats.exemplar_oldest_ms, Some(17));
    });
}

#[test]
fn metadata_are_kept_by_metric() {
    harness::run(async {
        let objects = harness::memory();
        let store = open(&objects).await.unwrap();
        let mut write = Batch::default();
        let long = "x".repeat(crate::ENTRY_TEXT_BYTES_MAX);
        write.metadata = vec![
            about("up", "is up"),
            about("a\0b", "odd"),
            about("up", "is up"),
            about("x", &long),
        ];
        let outcome = store.append(write.clone()).await.unwrap();
        let expected =
            AppendOutcome { metadata_accepted: 3, metadata_dropped: 1, ..AppendOutcome::default() };
        assert_eq!(outcome, expected);
        let keys_of = async |store: &Store| entries(store, keys::METADATA_PREFIX).await;
        let stored = keys_of(&store).await;
        // A repetition writes nothing; a change adds a last entry.
        assert_eq!(store.append(write).await.unwrap(), expected);
        assert_eq!(keys_of(&store).await, stored);
        let mut other = batch(&labels(&[("__name__", "up")]), &[(1, 1.0)]);
        other.metadata = vec![about("up", "other")];
        store.append(other).await.unwrap();
        let odd = ("a\0b".to_owned(), vec!["odd".to_owned()]);
        let up = ("up".to_owned(), vec!["is up".to_owned(), "other".to_owned()]);
        assert_eq!(known(&store), [odd.clone(), up.clone()]);
        assert_eq!((store.stats().metadata_metrics, store.stats().metadata_dropped), (2, 2));
        drop(store);
        let store = open(&objects).await.unwrap();
        assert_eq!(known(&store), [odd, up]);
        let found = |metric, limit| store.metadata(metric, limit).found.len();
        assert_eq!((found(Some("up"), 9), found(Some("up"), 0), found(Some("down"), 9)), (1, 0, 0));
        assert_eq!((found(None, 1), found(None, 0)), (1, 0));
        assert_eq!(read_all(&store).await.unwrap().len(), 1);
    });
}

#[test]
fn damage_is_named_and_takes_only_its_own_away() {
    harness::run(async {
        let objects = harness::memory();
        let store = open(&objects).await.unwrap();
        for (time, name) in [(1, "a"), (2, "b"), (3, "c")] {
            let mut write = with_exemplars(name, &[(time, 1.0)]);
            write.metadata = vec![about(name, "help")];
            store.append(write).await.unwrap();
        }
        let mut all_entries = entries(&store, keys::EXEMPLARS_PREFIX).await;
        all_entries.extend(entries(&store, keys::METADATA_PREFIX).await);
        assert_eq!(all_entries.len(), 6);
        let mut last = store;
        for (index, (key, value)) in all_entries.into_iter().enumerate() {
            for damaged in damages(&key, &value).into_iter().step_by(11) {
                put(&last, &key, damaged).await;
                let store = open(&objects).await.unwrap();
                let exemplars = found(&store, ".+", i64::MIN, i64::MAX);
                let metadata = store.metadata(None, usize::MAX);
                let (mut counts, mut warned) = ([3, 3], [Vec::new(), Vec::new()]);
                counts[index / 3] = 2;
                warned[index / 3].push(keys::printable(&key));
                assert_eq!([exemplars.found.len(), metadata.found.len()], counts);
                for (warnings, names) in
                    [&exemplars.warnings, &metadata.warnings].iter().zip(warned)
                {
                    assert_eq!(warnings.len(), names.len(), "{warnings:?}");
                    assert!(warnings.iter().zip(&names).all(|(w, name)| w.contains(name)));
                }
                assert_eq!(store.stats().damaged_values, 1);
                assert_eq!(read_all(&store).await.unwrap().len(), 3);
                last = store;
            }
            last = reopened(&objects, &key, &value).await;
        }
        assert_eq!((all(&last).len(), known(&last).len()), (3, 3));
        // Metadata sent again replaces a damaged value.
        let key = keys::metadata("b");
        put(&last, &key, b"nothing".to_vec()).await;
        let store = open(&objects).await.unwrap();
        assert_eq!(store.stats().damaged_values, 1);
        let write = Batch { metadata: vec![about("b", "help")], ..Batch::default() };
        store.append(write).await.unwrap();
        assert_eq!((store.stats().damaged_values, known(&store).len()), (0, 3));
    });
}

#[test]
fn acknowledged_values_survive_a_crash_at_any_write() {
    for (writes, last_lands) in (0..24).flat_map(|writes| [(writes, false), (writes, true)]) {
        harness::run(async {
            let objects = harness::memory();
            let faulty: Arc<dyn ObjectStore> = Faulty::on(&objects, writes, last_lands);
            let options = StoreOptions { exemplars_max: 4, ..harness::options() };
            let mut acknowledged = Vec::new();
            let mut sent = 0;
            if let Ok(store) = open_with(&faulty, options.clone()).await {
                for time in 0..12 {
                    sent = time + 1;
                    let mut write = with_exemplars("a", &[(time, 1.0)]);
                    write.metadata = vec![about(&format!("m{time:02}"), "help")];
                    if store.append(write).await.is_err() {
                        break;
                    }
                    acknowledged.push(time);
                }
                // Samples that are not durable are not shown.
                let shown = all(&store).into_iter().flat_map(|(_, times)| times);
                let newest = acknowledged.iter().rev().take(4).rev();
                assert!(shown.eq(newest.copied()), "{writes} {last_lands}");
                assert_eq!(known(&store).len(), acknowledged.len());
            }
            let store = open_with(&objects, options).await.unwrap();
            let found: Vec<i64> = all(&store).into_iter().flat_map(|(_, times)| times).collect();
            let first = sent.max(acknowledged.len() as i64).saturating_sub(4);
            let kept = acknowledged.iter().filter(|time| **time >= first);
            assert!(kept.clone().all(|time| found.contains(time)), "{found:?} {acknowledged:?}");
            assert!(found.iter().all(|time| *time < sent), "never sent");
            let count = known(&store).len();
            assert!((acknowledged.len()..=sent as usize).contains(&count), "{count} of {sent}");
        });
    }
}
