//! Deleted samples never return; samples written later are there.

use std::sync::Arc;
use std::time::Duration;

use model::{
    Batch, Budget, Labels, MatchOp, Matcher, MetadataQuery, SmolStr, Source, TimeRange, stale_nan,
};

use super::harness::{
    self, Contents, at, batch, histogram, histogram_batch, labels, open, open_with, read, read_all,
    read_full,
};
use crate::block::DecodedBlock;
use crate::keys;
use crate::store::begin_delete;
use crate::window::{PartitionId, WINDOW_MS, Window};
use crate::{Store, StoreError, StoreOptions, TOMBSTONE_BYTES_MAX, TOMBSTONES_MAX};

fn series(number: i64) -> Labels {
    labels(&[("__name__", "a"), ("n", &number.to_string())])
}

fn of(number: i64) -> Vec<Vec<Matcher>> {
    vec![vec![Matcher::equal("n", number.to_string())]]
}

fn contents(samples: &[(i64, &[(i64, f64)])]) -> Contents {
    let bits = |s: &&[(i64, f64)]| s.iter().map(|(t, v)| (*t, v.to_bits())).collect();
    samples.iter().map(|(number, samples)| (series(*number), bits(samples))).collect()
}

async fn series_between(store: &Store, start_ms: i64, end_ms: i64) -> Vec<Labels> {
    let selectors = vec![vec![Matcher::equal("__name__", "a")]];
    let query = MetadataQuery { selectors, times: TimeRange::new(start_ms, end_ms), limit: 0 };
    store.series(&query, &Budget::unlimited()).await.unwrap()
}

async fn values(store: &Store) -> Vec<SmolStr> {
    let query = MetadataQuery { selectors: vec![], times: TimeRange::new(0, WINDOW_MS), limit: 0 };
    store.label_values("n", &query, &Budget::unlimited()).await.unwrap()
}

#[test]
fn a_delete_does_not_wait_until_there_may_be_a_commit() {
    harness::run(async {
        let commit_interval_min = Duration::from_secs(3600);
        let options = StoreOptions { commit_interval_min, ..harness::options() };
        let store = Arc::new(open_with(&harness::memory(), options).await.unwrap());
        store.append(batch(&series(1), &[(1000, 1.0)])).await.unwrap();
        let waiting = Arc::clone(&store);
        let waiting = tokio::spawn(async move {
            waiting.append(batch(&series(2), &[(1000, 2.0)])).await.map(drop)
        });
        while store.stats().queue_samples == 0 {
            tokio::task::yield_now().await;
        }
        // The committer has checked the time by then.
        for _ in 0..100 {
            tokio::task::yield_now().await;
        }
        store.delete(of(1), 0, 2000).await.unwrap();
        assert_eq!(read_all(store.as_ref()).await.unwrap(), []);
        waiting.abort();
    });
}

#[test]
fn blocks_of_shared_times_are_cleaned() {
    harness::run(async {
        let objects = harness::memory();
        let store = open(&objects).await.unwrap();
        let value = |number: i64, scrape: i64| match scrape {
            120 => stale_nan(),
            _ => (number + scrape * scrape % 101) as f64 * 4096.0,
        };
        // Uneven times, the same for all series.
        let time = |scrape: i64| scrape * 15_000 + scrape * scrape * 37 % 199;
        let samples = |number: i64| -> Vec<(i64, f64)> {
            (0..200).map(|scrape| (time(scrape), value(number, scrape))).collect()
        };
        for number in 0..6 {
            store.append(batch(&series(number), &samples(number))).await.unwrap();
        }
        store.seal_all().await.unwrap();
        let is_shared = || async {
            let blocks = keys::blocks(PartitionId::new(0));
            let all = super::damage::entries(&store, &blocks).await;
            let decoded = |(key, bytes): (Vec<u8>, Vec<u8>)| {
                let stored_len = bytes.len();
                DecodedBlock::new(&key, &bytes.into()).unwrap().len() > stored_len
            };
            all.into_iter().map(decoded).collect::<Vec<_>>()
        };
        assert_eq!(is_shared().await, [true, true], "of three series each");
        // The first series of a block has its columns.
        store.delete(of(0), i64::MIN, i64::MAX).await.unwrap();
        store.delete(of(2), time(50), time(99)).await.unwrap();
        let mut expected: Vec<_> = (1..6).map(|number| (number, samples(number))).collect();
        expected[1].1.drain(50..100);
        let expected: Vec<(i64, &[(i64, f64)])> =
            expected.iter().map(|(number, samples)| (*number, &samples[..])).collect();
        let expected = contents(&expected);
        assert_eq!(read_all(&store).await.unwrap(), expected);
        store.clean_tombstones().await.unwrap();
        assert_eq!(read_all(&store).await.unwrap(), expected);
        store.close().await.unwrap();
        let reopened = open(&objects).await.unwrap();
        assert_eq!(read_all(&reopened).await.unwrap(), expected);
    });
}

#[test]
fn deleted_samples_stay_away_over_seals_and_restarts() {
    harness::run(async {
        let objects = harness::memory();
        let mut store = open(&objects).await.unwrap();
        for number in 1..4 {
            let samples = [(1000, 1.0), (2000, 2.0), (3000, 3.0)];
            store.append(batch(&series(number), &samples)).await.unwrap();
        }
        // Sealed, in the log of a sealed epoch, and in the head.
        store.seal_all().await.unwrap();
        store.append(batch(&series(1), &[(4000, 4.0)])).await.unwrap();
        store.delete(of(1), 2000, 4000).await.unwrap();
        store.delete(of(2), i64::MIN, i64::MAX).await.unwrap();
        let all = [(1000, 1.0), (2000, 2.0), (3000, 3.0)];
        let expected = contents(&[(1, &all[..1]), (3, &all)]);
        assert_eq!(read_all(&store).await.unwrap(), expected);
        // The same value at the same time is a new sample.
        store.append(batch(&series(1), &[(4000, 4.0), (2000, 2.5)])).await.unwrap();
        let expected = contents(&[(1, &[(1000, 1.0), (2000, 2.5), (4000, 4.0)]), (3, &all)]);
        assert_eq!(read_all(&store).await.unwrap(), expected);
        for step in 0..4 {
            match step {
                0 => store.seal_all().await.unwrap(),
                2 => store.clean_tombstones().await.unwrap(),
                _ => {
                    drop(store);
                    store = open(&objects).await.unwrap();
                }
            }
            assert_eq!(read_all(&store).await.unwrap(), expected, "after step {step}");
        }
        assert_eq!(store.core().tombstones.counts(), (0, 0), "no tombstone is left");
    });
}

#[test]
fn the_newest_sample_can_be_written_again() {
    harness::run(async {
        let store = open(&harness::memory()).await.unwrap();
        store.append(batch(&series(1), &[(1000, 1.0), (2000, 2.0)])).await.unwrap();
        store.delete(of(1), 2000, 2000).await.unwrap();
        let outcome = store.append(batch(&series(1), &[(2000, 7.0)])).await.unwrap();
        assert_eq!((outcome.accepted, outcome.rejected.total()), (1, 0));
        // The remaining samples are still known.
        store.delete(of(1), 2000, 2000).await.unwrap();
        let outcome = store.append(batch(&series(1), &[(1000, 1.0)])).await.unwrap();
        assert_eq!((outcome.accepted, outcome.duplicates), (0, 1));
        let outcome = store.append(batch(&series(1), &[(1000, 9.0)])).await.unwrap();
        assert_eq!(outcome.rejected.total(), 1);
    });
}

#[test]
fn hints_after_a_gap_are_unknown() {
    harness::run(async {
        let store = open(&harness::memory()).await.unwrap();
        let samples: Vec<_> = (0..6).map(|i| at(i * 1000, histogram(&[1 + i as u32, 2]))).collect();
        store.append(histogram_batch(&series(1), &samples)).await.unwrap();
        for is_sealed in [false, true] {
            if is_sealed {
                store.append(histogram_batch(&series(1), &samples)).await.unwrap();
                store.seal_all().await.unwrap();
            }
            store.delete(of(1), 2000, 3000).await.unwrap();
            let full = read_full(&store, vec![], i64::MIN, i64::MAX).await.unwrap();
            let times: Vec<i64> = full[0].1.iter().map(|read| read.timestamp_ms).collect();
            assert_eq!(times, [0, 1000, 4000, 5000]);
            let hint = full[0].1[2].histogram().unwrap().reset_hint;
            assert_eq!(hint, model::ResetHint::Unknown);
        }
    });
}

#[test]
fn series_without_samples_are_not_listed() {
    harness::run(async {
        let objects = harness::memory();
        let mut store = open(&objects).await.unwrap();
        for number in 1..9 {
            let samples = [(1000, 1.0), (WINDOW_MS + 1000, 2.0)];
            store.append(batch(&series(number), &samples)).await.unwrap();
        }
        store.seal_all().await.unwrap();
        store.delete(of(1), 0, WINDOW_MS * 2).await.unwrap();
        store.delete(of(2), 0, WINDOW_MS - 1).await.unwrap();
        let others: Vec<Labels> = (3..9).map(series).collect();
        let with = |first: &[i64]| -> Vec<Labels> {
            first.iter().map(|number| series(*number)).chain(others.clone()).collect()
        };
        assert_eq!(series_between(&store, 0, WINDOW_MS - 1).await, others);
        assert_eq!(series_between(&store, 0, WINDOW_MS * 2).await, with(&[2]));
        assert_eq!(values(&store).await.len(), 8, "as in Prometheus, names stay until then");
        for is_reopened in [false, true] {
            if is_reopened {
                drop(store);
                store = open(&objects).await.unwrap();
            }
            store.clean_tombstones().await.unwrap();
            assert_eq!(series_between(&store, 0, WINDOW_MS * 2).await, with(&[2]));
            let absent = vec![vec![Matcher::new(MatchOp::NotEqual, "x", "y").unwrap()]];
            let query = MetadataQuery { selectors: absent, times: TimeRange::new(0, 9), limit: 0 };
            let found = store.series(&query, &Budget::unlimited()).await.unwrap();
            assert_eq!(found, with(&[2]));
            assert_eq!(values(&store).await.len(), 7);
        }
        // It returns with a new sample.
        store.append(batch(&series(1), &[(1000, 5.0)])).await.unwrap();
        store.seal_all().await.unwrap();
        assert_eq!(series_between(&store, 0, 9000).await, with(&[1, 2]));
        let found = read(&store, of(1).remove(0), 0, WINDOW_MS).await.unwrap();
        assert_eq!(found, contents(&[(1, &[(1000, 5.0)])]));
    });
}

/// Returns lists with and without a matcher: series, values of `n`, and names.
async fn lists(store: &Store) -> Vec<Vec<SmolStr>> {
    let mut lists = Vec::new();
    for selectors in [vec![], vec![vec![Matcher::equal("__name__", "a")]], of(2)] {
        let query = MetadataQuery { selectors, times: TimeRange::ALL, limit: 0 };
        let budget = Budget::unlimited();
        let series = store.series(&query, &budget).await.unwrap();
        lists.push(series.iter().map(|labels| labels.get("n").into()).collect());
        lists.push(store.label_values("n", &query, &budget).await.unwrap());
        lists.push(store.label_names(&query, &budget).await.unwrap());
    }
    lists
}

#[test]
fn deleted_series_are_not_listed_once_they_are_cleaned_up() {
    // Places of the samples: in blocks, in the log, in both.
    for is_sealed_after in [&[0][..], &[], &[0, 1], &[1]] {
        harness::run(async {
            let objects = harness::memory();
            let store = open(&objects).await.unwrap();
            let mut gone = labels(&[("__name__", "a"), ("n", "2"), ("only", "here")]);
            for round in 0..2 {
                let time_ms = 1000 + round;
                store.append(batch(&series(1), &[(time_ms, 1.0)])).await.unwrap();
                store.append(batch(&gone, &[(time_ms, 2.0)])).await.unwrap();
                if is_sealed_after.contains(&round) {
                    store.seal_all().await.unwrap();
                }
                gone = labels(&[("__name__", "a"), ("n", "2")]);
            }
            store.delete(of(2), i64::MIN, i64::MAX).await.unwrap();
            store.clean_tombstones().await.unwrap();
            let left = |list: &[&str]| list.iter().map(|text| (*text).to_owned()).collect();
            let of_left: [Vec<String>; 3] = [left(&["1"]), left(&["1"]), left(&["__name__", "n"])];
            let none = [const { Vec::new() }; 3];
            let expected = [of_left.clone(), of_left, none].concat();
            assert_eq!(lists(&store).await, expected, "sealed after {is_sealed_after:?}");
            store.close().await.unwrap();
            let store = open(&objects).await.unwrap();
            assert_eq!(lists(&store).await, expected, "{is_sealed_after:?}, opened again");
            // It is listed again after a new write.
            store.append(batch(&series(2), &[(1000, 3.0)])).await.unwrap();
            assert_eq!(lists(&store).await[1], ["1", "2"], "{is_sealed_after:?}, written again");
        });
    }
}

#[test]
fn selections_under_way_keep_the_blocks_they_have_found() {
    harness::run(async {
        let objects = harness::memory();
        let store = open(&objects).await.unwrap();
        store.append(batch(&series(1), &[(1000, 1.0), (2000, 2.0)])).await.unwrap();
        store.append(batch(&series(2), &[(1000, 1.0)])).await.unwrap();
        store.seal_all().await.unwrap();
        let facts = store.core().partition(PartitionId::new(0)).unwrap();
        let metric = crate::keys::metric_hash("a");
        let old = facts.runs_of(&store.core().lsm, &[metric]).await.unwrap().remove(0);
        let key =
            crate::keys::block(metric, Window::new(0), old[0].epoch, old[0].blocks[0].first_id);
        let selection = store.core().selections.begin();
        store.delete(of(1), 2000, 2000).await.unwrap();
        store.clean_tombstones().await.unwrap();
        let expected = contents(&[(1, &[(1000, 1.0)]), (2, &[(1000, 1.0)])]);
        assert_eq!(read_all(&store).await.unwrap(), expected);
        store.maintain().await.unwrap();
        assert!(store.core().lsm.get(&key).await.unwrap().is_some(), "it may be read");
        drop(selection);
        store.maintain().await.unwrap();
        assert!(store.core().lsm.get(&key).await.unwrap().is_none());
        assert_eq!(read_all(&store).await.unwrap(), expected);
    });
}

#[test]
fn limits_of_deletes_are_named() {
    harness::run(async {
        let store = open(&harness::memory()).await.unwrap();
        let huge = vec![vec![Matcher::equal("n", "x".repeat(TOMBSTONE_BYTES_MAX))]];
        let error = store.delete(huge, 0, 1).await.unwrap_err();
        assert!(matches!(error, StoreError::LimitExceeded(_)), "{error}");
        assert!(error.to_string().contains("65536"), "{error}");
        for _ in 0..TOMBSTONES_MAX {
            store.delete(of(1), 0, 1).await.unwrap();
        }
        let error = store.delete(of(1), 0, 1).await.unwrap_err().to_string();
        assert!(error.contains("1001") && error.contains("clean tombstones"), "{error}");
        store.clean_tombstones().await.unwrap();
        store.delete(of(1), 0, 1).await.unwrap();
        // A range that ends before it begins deletes nothing.
        store.append(batch(&series(1), &[(1000, 1.0)])).await.unwrap();
        store.delete(of(1), 2000, 500).await.unwrap();
        assert_eq!(read_all(&store).await.unwrap(), contents(&[(1, &[(1000, 1.0)])]));
    });
}

#[test]
fn kept_answers_know_of_deletes() {
    harness::run(async {
        let store = open(&harness::memory()).await.unwrap();
        store.append(batch(&series(1), &[(1000, 1.0), (9000, 2.0)])).await.unwrap();
        let version = store.version().unwrap();
        assert_eq!(store.unchanged_since(version).end, i64::MAX);
        store.delete(of(1), 5000, 6000).await.unwrap();
        assert_eq!(store.unchanged_since(version).end, 5000);
    });
}

#[test]
fn space_is_given_back() {
    harness::run(async {
        let store = open(&harness::memory()).await.unwrap();
        for number in 0..40 {
            let mut seed = number as u64 + 1;
            let mut value = || {
                seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                f64::from_bits(seed >> 12 | 0x3ff0_0000_0000_0000)
            };
            let samples: Vec<(i64, f64)> = (0..1000).map(|t| (t * 1000, value())).collect();
            store.append(batch(&series(number), &samples)).await.unwrap();
        }
        store.seal_all().await.unwrap();
        crate::seal::write_out(store.core()).await.unwrap();
        let day = PartitionId::new(0);
        let partition = || store.core().lsm.live_bytes().0.get(&day).copied().unwrap_or_default();
        let before = partition();
        let selector = Matcher::new(MatchOp::Regex, "n", "[1-3].").unwrap();
        store.delete(vec![vec![selector]], i64::MIN, i64::MAX).await.unwrap();
        assert!(partition() >= before);
        store.clean_tombstones().await.unwrap();
        // Compaction runs in the background.
        let limit = std::time::Instant::now() + std::time::Duration::from_secs(60);
        while partition() > before / 2 {
            assert!(std::time::Instant::now() < limit, "{} of {before} bytes", partition());
            tokio::time::sleep(std::time::Duration::from_millis(20)).await;
        }
        assert_eq!(read_all(&store).await.unwrap().len(), 10);
    });
}

#[test]
fn deletes_hold_with_concurrent_seals_and_writes() {
    harness::run(async {
        let objects = harness::memory();
        let mut store = Arc::new(open(&objects).await.unwrap());
        let mut kept: Vec<(i64, f64)> = Vec::new();
        for round in 0..25_i64 {
            let start_ms = round * WINDOW_MS / 3;
            let samples: Vec<(i64, f64)> = (0..50).map(|i| (start_ms + i * 1000, 1.0)).collect();
            let mut all = Batch::default();
            all.push(&series(1), &samples);
            all.push(&series(2), &samples);
            store.append(all).await.unwrap();
            let (sealing, cleaning) = (Arc::clone(&store), Arc::clone(&store));
            let seal = tokio::spawn(async move { sealing.seal_all().await });
            let clean = (round % 3 == 0)
                .then(|| tokio::spawn(async move { cleaning.clean_tombstones().await }));
            for _ in 0..round % 7 {
                tokio::task::yield_now().await;
            }
            store.delete(of(1), start_ms + 10_000, start_ms + 19_000).await.unwrap();
            kept.extend(
                samples.iter().filter(|(t, _)| !(10_000..=19_000).contains(&(t - start_ms))),
            );
            let found = read(&*store, of(1).remove(0), 0, i64::MAX).await.unwrap();
            assert_eq!(found, contents(&[(1, &kept)]), "round {round}");
            seal.await.unwrap().unwrap();
            if let Some(clean) = clean {
                clean.await.unwrap().unwrap();
            }
            if round % 5 == 4 {
                drop(store);
                store = Arc::new(open(&objects).await.unwrap());
            }
            let found = read(&*store, of(1).remove(0), 0, i64::MAX).await.unwrap();
            assert_eq!(found, contents(&[(1, &kept)]), "after round {round}");
        }
        assert_eq!(read_all(&*store).await.unwrap()[1].1.len(), 25 * 50);
    });
}

#[test]
fn a_delete_under_way_when_cleaning_begins_stays() {
    harness::run(async {
        let objects = harness::memory();
        let store = open(&objects).await.unwrap();
        let samples = [(1000, 1.0), (2000, 2.0), (3000, 3.0)];
        for number in 1..4 {
            store.append(batch(&series(number), &samples)).await.unwrap();
        }
        store.seal_all().await.unwrap();
        // Cleaning for this delete rewrites the window of the next one.
        store.delete(of(1), 1000, 1000).await.unwrap();
        let log = store.core().log.lock().await;
        let release = async {
            for _ in 0..100 {
                tokio::task::yield_now().await;
            }
            drop(log);
        };
        // Both wait for the log, cleaning first.
        let (cleaned, deleted, ()) =
            tokio::join!(store.clean_tombstones(), store.delete(of(2), 2000, 2000), release);
        cleaned.unwrap();
        deleted.unwrap();
        let expected =
            contents(&[(1, &samples[1..]), (2, &[(1000, 1.0), (3000, 3.0)]), (3, &samples)]);
        assert_eq!(read_all(&store).await.unwrap(), expected);
        store.clean_tombstones().await.unwrap();
        assert_eq!(read_all(&store).await.unwrap(), expected, "cleaned again");
        drop(store);
        let store = open(&objects).await.unwrap();
        assert_eq!(read_all(&store).await.unwrap(), expected, "opened again");
    });
}

#[test]
fn a_failed_cleaning_does_not_prevent_sealing() {
    harness::run(async {
        let store = open(&harness::memory()).await.unwrap();
        store.append(batch(&series(1), &[(1000, 1.0), (2000, 2.0)])).await.unwrap();
        store.seal_all().await.unwrap();
        let block = crate::keys::blocks(PartitionId::new(0));
        for (key, mut value) in super::damage::entries(&store, &block).await {
            let middle = value.len() / 2;
            value[middle] ^= 0xff;
            super::damage::put(&store, &key, value).await;
        }
        for _ in 0..TOMBSTONES_MAX / 2 {
            store.delete(of(1), 1000, 1000).await.unwrap();
        }
        let append = |window: i64| store.append(batch(&series(2), &[(WINDOW_MS * window, 1.0)]));
        append(3).await.unwrap();
        let before = store.stats().seals;
        store.maintain().await.unwrap();
        let after = store.stats().seals;
        assert!(after > before, "the closed window is sealed");
        // Cleaning would seal everything first, so it is not retried soon.
        append(4).await.unwrap();
        store.maintain().await.unwrap();
        assert_eq!(store.stats().seals, after);
        assert!(store.clean_tombstones().await.is_err(), "the block is still damaged");
    });
}

#[test]
fn writes_and_seals_take_turns_with_a_delete_of_many_series() {
    harness::run(async {
        let objects = harness::memory();
        let mut store = Arc::new(open(&objects).await.unwrap());
        let mut all = Batch::default();
        for number in 0..300 {
            all.push(&series(number), &[(1000, 1.0), (2000, 2.0)]);
        }
        store.append(all).await.unwrap();
        let selectors = vec![vec![Matcher::equal("__name__", "a")]];
        let dropped =
            begin_delete(store.core(), selectors, TimeRange::new(2000, 2000)).await.unwrap();
        for _ in 0..=100 {
            store.core().take_turn(store.core().log.lock().await).await;
        }
        // Deleted samples are not duplicates, whether the series has had its turn or not.
        let mut again = Batch::default();
        for number in [0, 150, 299] {
            again.push(&series(number), &[(2000, 2.0)]);
        }
        let outcome = store.append(again).await.unwrap();
        assert_eq!((outcome.accepted, outcome.duplicates), (3, 0));
        assert!(store.core().log.lock().await.is_dropping(), "the write waited for all turns");
        store.seal_all().await.unwrap();
        assert!(!store.core().log.lock().await.is_dropping(), "the seal did not wait");
        store.core().drop_deleted(dropped).await.unwrap();
        let samples = |number: i64| {
            let is_again = [0, 150, 299].contains(&number);
            let both = [(1000, 1.0_f64.to_bits()), (2000, 2.0_f64.to_bits())];
            (series(number), both[..1 + usize::from(is_again)].to_vec())
        };
        let mut expected: Contents = (0..300).map(samples).collect();
        expected.sort_by(|a, b| a.0.cmp(&b.0));
        for step in 0..3 {
            assert_eq!(read_all(&*store).await.unwrap(), expected, "in step {step}");
            if step == 1 {
                store.clean_tombstones().await.unwrap();
            } else {
                drop(store);
                store = Arc::new(open(&objects).await.unwrap());
            }
        }
        assert_eq!(read_all(&*store).await.unwrap(), expected);
    });
}

#[test]
fn a_crash_in_the_middle_of_a_delete_of_many_series_brings_none_back() {
    let objects = harness::memory();
    harness::run(async {
        let store = open(&objects).await.unwrap();
        let mut all = Batch::default();
        for number in 0..300 {
            all.push(&series(number), &[(1000, 1.0)]);
        }
        store.append(all).await.unwrap();
        let _dropped =
            begin_delete(store.core(), vec![vec![]], TimeRange::new(0, 2000)).await.unwrap();
        for _ in 0..=100 {
            store.core().take_turn(store.core().log.lock().await).await;
        }
        assert_eq!(read_all(&store).await.unwrap().len(), 200, "the delete is half done");
        store.append(batch(&series(299), &[(1500, 5.0)])).await.unwrap();
    });
    harness::run(async {
        let store = open(&objects).await.unwrap();
        assert_eq!(read_all(&store).await.unwrap(), contents(&[(299, &[(1500, 5.0)])]));
    });
}

#[test]
fn writes_do_not_wait_until_the_series_of_a_delete_are_found() {
    harness::run(async {
        let store = Arc::new(open(&harness::memory()).await.unwrap());
        for number in 0..4 {
            let both = [(1000, 1.0), (2000, 2.0)];
            store.append(batch(&series(number), &both)).await.unwrap();
        }
        let selectors = vec![
            vec![Matcher::new(MatchOp::Regex, "n", "0|1").unwrap()],
            vec![Matcher::equal("n", "2")],
        ];
        let dropped =
            begin_delete(store.core(), selectors, TimeRange::new(2000, 2000)).await.unwrap();
        let (epoch, sought) = store.core().log.lock().await.next_search().unwrap();
        let found = store.core().head.covered(&sought);
        // Some are written meanwhile: one twice, one outside of the delete, one new.
        let mut outcomes = Vec::new();
        for (number, value) in [(0, 2.0), (0, 2.0), (2, 5.0), (3, 2.0), (1000, 2.0)] {
            let outcome = store.append(batch(&series(number), &[(2000, value)])).await.unwrap();
            outcomes.push((outcome.accepted, outcome.duplicates));
        }
        assert_eq!(outcomes, [(1, 0), (0, 1), (1, 0), (0, 1), (1, 0)]);
        assert!(
            store.core().log.lock().await.next_search().is_some(),
            "a write waited for the search"
        );
        store.core().log.lock().await.note_found(epoch, found);
        store.core().drop_deleted(dropped).await.unwrap();
        let left = read_all(&*store).await.unwrap();
        let expected = contents(&[
            (0, &[(1000, 1.0), (2000, 2.0)]),
            (1, &[(1000, 1.0)]),
            (1000, &[(2000, 2.0)]),
            (2, &[(1000, 1.0), (2000, 5.0)]),
            (3, &[(1000, 1.0), (2000, 2.0)]),
        ]);
        assert_eq!(left, expected);
    });
}
