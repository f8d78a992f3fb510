//! Histograms and start timestamps through the store: acceptance, reset hints, restarts, and stores
//! of an earlier version.

use std::sync::Arc;

use model::ResetHint::{self, Gauge, NotReset, Unknown};
use model::{
    Advance, Batch, Budget, Histogram, HistogramSample, Labels, RejectReason, SampleBatch,
    Selection, Source, Span, TimeRange,
};

use super::harness::{
    self, Read, ReadValue, at, batch, histogram, histogram_batch, labels, memory, open, open_with,
    read_full,
};
use crate::chunk::Encoding;
use crate::epoch::Epoch;
use crate::lsm::WriteSet;
use crate::samples::part::{Part, Parts, TailRoom};
use crate::window::WINDOW_MS;
use crate::{AppendOutcome, Store, StoreError, StoreOptions, keys};

fn series() -> Labels {
    labels(&[("__name__", "h")])
}

async fn append(store: &Store, samples: &[HistogramSample]) -> AppendOutcome {
    store.append(histogram_batch(&series(), samples)).await.unwrap()
}

async fn append_floats(store: &Store, samples: &[(i64, f64)]) -> AppendOutcome {
    store.append(batch(&series(), samples)).await.unwrap()
}

async fn reads(store: &Store) -> Vec<Read> {
    let mut contents = read_full(store, Vec::new(), i64::MIN, i64::MAX).await.unwrap();
    contents.pop().map(|(_, reads)| reads).unwrap_or_default()
}

/// Returns time and hint of each histogram, and the time of each float.
async fn hints(store: &Store) -> Vec<(i64, Option<ResetHint>)> {
    let hint = |read: Read| (read.timestamp_ms, read.histogram().map(|h| h.reset_hint));
    reads(store).await.into_iter().map(hint).collect()
}

/// Checks every state of the same samples: open, replayed, sealed, and mixed.
async fn check_everywhere(write: impl AsyncFn(&Store), check: impl AsyncFn(&Store)) {
    let objects = memory();
    let store = open(&objects).await.unwrap();
    write(&store).await;
    check(&store).await;
    drop(store);
    let store = open(&objects).await.unwrap();
    check(&store).await;
    store.seal_all().await.unwrap();
    check(&store).await;
    drop(store);
    let store = open(&objects).await.unwrap();
    check(&store).await;
}

#[test]
fn hints_are_decided_once_and_come_back() {
    harness::run(check_everywhere(
        async |store| {
            for (time, count, hint) in [
                (1, 5, Unknown),
                (2, 6, Unknown),
                // The hint of a sender's counter is ignored.
                (3, 7, ResetHint::Reset),
                (4, 8, NotReset),
                (5, 2, NotReset),
                (6, 3, Unknown),
                (7, 1, Gauge),
                (8, 9, Unknown),
                (9, 9, Unknown),
            ] {
                let histogram = Histogram { reset_hint: hint, ..histogram(&[count, 1]) };
                append(store, &[at(time, histogram)]).await;
            }
            append(store, &[at(10, Histogram { count: 77.0, ..Histogram::stale() })]).await;
            append(store, &[at(11, histogram(&[9, 9]))]).await;
            append_floats(store, &[(12, 1.0)]).await;
            append(store, &[at(13, histogram(&[9, 9])), at(14, histogram(&[9, 9]))]).await;
        },
        async |store| {
            let expected = [
                (1, Some(Unknown)),
                (2, Some(NotReset)),
                (3, Some(Unknown)),
                (4, Some(NotReset)),
                (5, Some(Unknown)),
                (6, Some(NotReset)),
                (7, Some(Gauge)),
                (8, Some(Unknown)),
                (9, Some(NotReset)),
                (10, Some(Unknown)),
                (11, Some(Unknown)),
                (12, None),
                (13, Some(Unknown)),
                (14, Some(NotReset)),
            ];
            assert_eq!(hints(store).await, expected);
            let stale = reads(store).await[9].histogram().cloned().unwrap();
            assert_eq!(*stale, Histogram::stale());
        },
    ));
}

#[test]
fn hints_hold_from_one_window_to_the_next() {
    harness::run(check_everywhere(
        async |store| {
            for number in 0..700_u32 {
                let time = i64::from(number) * WINDOW_MS / 300;
                append(store, &[at(time, histogram(&[number, 2 * number]))]).await;
                if number == 350 {
                    store.seal_all().await.unwrap();
                }
            }
        },
        async |store| {
            let hints = hints(store).await;
            assert_eq!(hints.len(), 700);
            assert_eq!(hints[0].1, Some(Unknown));
            for (time_ms, hint) in &hints[1..] {
                assert_eq!(*hint, Some(NotReset), "{time_ms}");
            }
        },
    ));
}

#[test]
fn late_histograms_reset_the_hints_of_later_ones() {
    for is_sealed in [false, true] {
        for late in [at(15, histogram(&[90])), at(20, histogram(&[91]))] {
            harness::run(check_everywhere(
                async |store| {
                    for number in 1..=3_u32 {
                        append(store, &[at(i64::from(number) * 10, histogram(&[number]))]).await;
                    }
                    if is_sealed {
                        store.seal_all().await.unwrap();
                    }
                    let outcome = append(store, std::slice::from_ref(&late)).await;
                    assert_eq!(outcome.accepted, 1);
                    append(store, &[at(40, histogram(&[4]))]).await;
                },
                async |store| {
                    let mut expected = vec![(10, Some(Unknown)), (20, Some(Unknown))];
                    if late.timestamp_ms == 20 {
                        expected.push((30, Some(Unknown)));
                    } else {
                        expected.insert(1, (15, Some(Unknown)));
                        expected.push((30, Some(NotReset)));
                    }
                    expected.push((40, Some(NotReset)));
                    assert_eq!(hints(store).await, expected, "sealed {is_sealed}");
                },
            ));
        }
    }
}

#[test]
fn a_replaced_histogram_is_known_from_the_next_window_too() {
    for is_sealed in [false, true] {
        harness::run(check_everywhere(
            async |store| {
                append(store, &[at(10, histogram(&[5])), at(WINDOW_MS, histogram(&[6]))]).await;
                append(store, &[at(10, histogram(&[7]))]).await;
                if is_sealed {
                    store.seal_all().await.unwrap();
                }
            },
            async |store| {
                assert_eq!(hints(store).await, [10, WINDOW_MS].map(|t| (t, Some(Unknown))));
            },
        ));
    }
}

#[test]
fn late_histograms_between_frames_are_seen_as_well() {
    harness::run(check_everywhere(
        async |store| {
            append(store, &[at(WINDOW_MS - 10, histogram(&[5]))]).await;
            append(store, &[at(WINDOW_MS + 10, histogram(&[6]))]).await;
            append(store, &[at(WINDOW_MS, histogram(&[1]))]).await;
        },
        async |store| {
            let expected = [WINDOW_MS - 10, WINDOW_MS, WINDOW_MS + 10].map(|t| (t, Some(Unknown)));
            assert_eq!(hints(store).await, expected);
        },
    ));
}

#[test]
fn duplicates_keep_their_hints() {
    harness::run(check_everywhere(
        async |store| {
            let samples: Vec<_> = (1..=4_u32).map(|n| at(n.into(), histogram(&[n]))).collect();
            append(store, &samples).await;
            // The newest is known to be a duplicate; the others are compared by reading.
            let outcome = append(store, &samples).await;
            assert_eq!((outcome.accepted, outcome.duplicates), (3, 1));
        },
        async |store| {
            let not_reset = Some(NotReset);
            let expected = [(1, Some(Unknown)), (2, not_reset), (3, not_reset), (4, not_reset)];
            assert_eq!(hints(store).await, expected);
        },
    ));
}

#[test]
fn other_values_of_the_newest_time_are_refused_whatever_their_kind() {
    harness::run(async {
        let store = open(&memory()).await.unwrap();
        let is_duplicate = |outcome: AppendOutcome| {
            assert_eq!(outcome.rejections[0].reason, RejectReason::DuplicateTimestamp);
        };
        append(&store, &[at(1, histogram(&[1]))]).await;
        let gauge = Histogram { reset_hint: Gauge, ..histogram(&[1]) };
        assert_eq!(append(&store, &[at(1, gauge)]).await.duplicates, 1);
        is_duplicate(append(&store, &[at(1, histogram(&[2]))]).await);
        // A float is refused even with the bits of the histogram's sum.
        is_duplicate(append_floats(&store, &[(1, histogram(&[1]).sum)]).await);
        append_floats(&store, &[(2, 5.0)]).await;
        is_duplicate(append(&store, &[at(2, histogram(&[1]))]).await);
        assert_eq!(reads(&store).await.len(), 2);
        assert_eq!(store.stats().histograms_appended, 1);
    });
}

#[test]
fn out_of_order_window_holds_for_histograms() {
    harness::run(async {
        let hour_ms = 60 * 60 * 1000;
        let options =
            StoreOptions { out_of_order_window_ms: Some(3 * hour_ms), ..harness::options() };
        let store = open_with(&memory(), options).await.unwrap();
        append(&store, &[at(10 * hour_ms, histogram(&[1]))]).await;
        assert_eq!(append(&store, &[at(8 * hour_ms, histogram(&[1]))]).await.accepted, 1);
        let outcome = append(&store, &[at(6 * hour_ms, histogram(&[1]))]).await;
        assert_eq!(outcome.rejections[0].reason, RejectReason::TooOld);
        assert_eq!(store.stats().samples_out_of_order, 1);
    });
}

#[test]
fn invalid_histograms_are_refused_and_the_rest_is_kept() {
    harness::run(async {
        let store = open(&memory()).await.unwrap();
        let short =
            Histogram { positive_spans: vec![Span { offset: 0, length: 9 }], ..histogram(&[1, 2]) };
        let outcome = append(&store, &[at(1, short), at(2, histogram(&[1]))]).await;
        assert_eq!((outcome.accepted, outcome.rejected.total()), (1, 1));
        assert_eq!(outcome.rejections[0].reason, RejectReason::Histogram);
        // A new series without accepted samples is not created.
        let long = labels(&[("a", &"x".repeat(20_000))]);
        let outcome =
            store.append(histogram_batch(&long, &[at(1, histogram(&[1]))])).await.unwrap();
        assert_eq!(outcome.rejections[0].reason, RejectReason::LabelLimit);
        assert_eq!(store.stats().head_series, 1);
    });
}

#[test]
fn histograms_are_accounted_by_their_size() {
    harness::run(async {
        let options = StoreOptions { queue_samples_max: 100, ..harness::options() };
        let store = Arc::new(open_with(&memory(), options).await.unwrap());
        let write = |counts: Vec<u32>| {
            let store = Arc::clone(&store);
            async move { store.append(histogram_batch(&series(), &[at(1, histogram(&counts))])).await }
        };
        // No commit can run while this lock is held.
        let log = store.core().log.lock().await;
        let first = tokio::spawn(write(vec![1; 60]));
        while store.stats().queue_samples == 0 {
            tokio::task::yield_now().await;
        }
        let weight = store.stats().queue_samples;
        assert!((40..60).contains(&weight), "{weight} for 60 counts");
        let refused = write(vec![1; 200]).await;
        assert!(matches!(refused, Err(StoreError::Overloaded { limit: 100, .. })), "{refused:?}");
        drop(log);
        assert_eq!(first.await.unwrap().unwrap().accepted, 1);
    });
}

#[test]
fn floats_and_histograms_of_one_write_are_taken_by_time() {
    harness::run(check_everywhere(
        async |store| {
            let mut all = Batch::default();
            all.push(&series(), &[(1, 1.0), (3, 3.0), (5, 5.0)]);
            all.starts = vec![0, 2];
            let mut second = at(4, histogram(&[4]));
            second.start_ms = 3;
            all.push_histograms(&[at(2, histogram(&[2])), second, at(6, histogram(&[6]))]);
            let outcome = store.append(all).await.unwrap();
            assert_eq!(outcome.accepted, 6);
        },
        async |store| {
            assert_eq!(store.stats().samples_out_of_order, 0);
            let found: Vec<_> = reads(store)
                .await
                .into_iter()
                .map(|r| (r.timestamp_ms, r.start_ms, r.histogram().is_some()))
                .collect();
            let expected = [
                (1, 0, false),
                (2, 0, true),
                (3, 2, false),
                (4, 3, true),
                (5, 0, false),
                (6, 0, true),
            ];
            assert_eq!(found, expected);
        },
    ));
}

#[test]
fn spans_are_stored_in_their_fewest_form() {
    harness::run(async {
        let store = open(&memory()).await.unwrap();
        let spans = vec![
            Span { offset: 1, length: 1 },
            Span { offset: 0, length: 0 },
            Span { offset: 0, length: 2 },
        ];
        let scattered = Histogram { positive_spans: spans, ..histogram(&[1, 2, 3]) };
        append(&store, &[at(1, scattered)]).await;
        assert_eq!(append(&store, &[at(1, histogram(&[1, 2, 3]))]).await.duplicates, 1);
        assert_eq!(**reads(&store).await[0].histogram().unwrap(), histogram(&[1, 2, 3]));
    });
}

#[test]
fn long_runs_are_read_a_batch_at_a_time() {
    harness::run(async {
        let store = open(&memory()).await.unwrap();
        let samples: Vec<_> =
            (0..480_u32).map(|n| at(i64::from(n) * 15_000, histogram(&[n, n, 7]))).collect();
        append(&store, &samples).await;
        let selection = Selection {
            matchers: Vec::new(),
            times: TimeRange::new(30_000, i64::MAX),
            only_newest: false,
            windows: None,
        };
        let set = store.select(&selection, &Budget::unlimited()).await.unwrap();
        assert!(set.has_histograms(0));
        let mut cursor = set.cursor(0);
        let mut batch = SampleBatch::new();
        let mut sizes = Vec::new();
        while cursor.next_batch(i64::MAX, &mut batch).unwrap() == Advance::Full {
            sizes.push(batch.histograms.len());
            batch.clear();
        }
        assert_eq!(sizes, [64; 7]);
        assert_eq!(batch.histograms.len(), 478 - 7 * 64);
    });
}

#[test]
fn starts_are_kept_where_they_are_known_and_cost_nothing_elsewhere() {
    harness::run(async {
        let store = open(&memory()).await.unwrap();
        let mut all = Batch::default();
        let times: Vec<(i64, f64)> = (0..200).map(|n| (n * 1000, n as f64)).collect();
        all.push(&labels(&[("a", "plain")]), &times);
        all.push(&labels(&[("a", "starts")]), &times);
        all.starts = vec![0; 200];
        all.starts.extend((0..200).map(|n| if n < 100 { 500 } else { n * 1000 - 1000 }));
        store.append(all).await.unwrap();
        let check = async |store: &Store| {
            let contents = read_full(store, Vec::new(), 0, i64::MAX).await.unwrap();
            assert!(contents[0].1.iter().all(|read| read.start_ms == 0));
            for (at, read) in contents[1].1.iter().enumerate() {
                let expected = if at < 100 { 500 } else { at as i64 * 1000 - 1000 };
                assert_eq!(read.start_ms, expected, "{at}");
                assert_eq!(read.value, ReadValue::Float((at as f64).to_bits()));
            }
        };
        check(&store).await;
        let mut encodings = Vec::new();
        store.core().head.for_each(|_, series| {
            let (mut parts, mut room) = (Parts::new(), TailRoom::default());
            series.parts(0, i64::MAX, false, &mut parts, &mut room);
            for part in parts {
                if let Part::Frame(frame) = part {
                    let has_starts = series.labels.get("a") == "starts";
                    encodings.push((has_starts, frame.header.unwrap().encoding));
                }
            }
        });
        encodings.sort_by_key(|(has_starts, _)| *has_starts);
        encodings.dedup();
        assert_eq!(encodings, [(false, Encoding::Gorilla), (true, Encoding::GorillaStarts)]);
        store.seal_all().await.unwrap();
        check(&store).await;
    });
}

#[test]
fn a_log_of_the_version_before_is_replayed() {
    harness::run(async {
        let objects = memory();
        let store = open(&objects).await.unwrap();
        // One series a="b", two floats: the bytes of a record of version 1.
        let head = [1, 0, 1, 4, 1, b'a', 1, b'b', 1, 0, 2];
        let times = [0xd0, 0x0f, 0xd0, 0x0f];
        let body = [&head[..], &times, &1.5_f64.to_le_bytes(), &2.5_f64.to_le_bytes()].concat();
        let record = [&crc32c::crc32c(&body).to_le_bytes(), &body[..]].concat();
        let mut set = WriteSet::default();
        set.put(keys::log(Epoch::FIRST, 0), record);
        store.core().lsm.commit(set).await.unwrap();
        drop(store);
        let store = open(&objects).await.unwrap();
        let expected: Vec<(i64, u64)> = vec![(1000, 1.5_f64.to_bits()), (2000, 2.5_f64.to_bits())];
        let found = harness::read_all(&store).await.unwrap();
        assert_eq!(found, vec![(labels(&[("a", "b")]), expected)]);
        // New samples are appended after it.
        let more = [at(3000, histogram(&[1])), at(4000, histogram(&[2]))];
        store.append(histogram_batch(&labels(&[("a", "b")]), &more)).await.unwrap();
        drop(store);
        let store = open(&objects).await.unwrap();
        let expected = [(1000, None), (2000, None), (3000, Some(Unknown)), (4000, Some(NotReset))];
        assert_eq!(hints(&store).await, expected);
    });
}
