//! Cleanup of deleted series: nothing is left once no selection needs them.

use std::sync::Arc;

use model::{Batch, Budget, Labels, MatchOp, Matcher, MetadataQuery, SmolStr, Source, TimeRange};

use super::harness::{self, batch, labels, open, read, read_all};
use crate::epoch::Epoch;
use crate::keys;
use crate::window::{PARTITION_MS, PartitionId, WINDOW_MS};
use crate::{Store, StoreError};

fn series(name: &str, number: i64) -> Labels {
    labels(&[("__name__", name), ("n", &number.to_string())])
}

fn named(name: &str) -> Vec<Vec<Matcher>> {
    vec![vec![Matcher::equal("__name__", name)]]
}

/// Returns a sealed store with two metrics on some days.
async fn with_days(days: i64) -> Store {
    let store = open(&harness::memory()).await.unwrap();
    for day in 0..days {
        let mut all = Batch::default();
        for number in 0..12 {
            for name in ["a", "b"] {
                all.push(&series(name, number), &[(day * PARTITION_MS + number, day as f64)]);
            }
        }
        store.append(all).await.unwrap();
    }
    store.seal_all().await.unwrap();
    store
}

/// Returns the keys with a prefix.
async fn keys_of(store: &Store, prefix: &[u8]) -> Vec<Vec<u8>> {
    let mut scan = store.core().lsm.scan_prefix(prefix).await.unwrap();
    let mut found = Vec::new();
    while let Some((key, _)) = scan.next().await.unwrap() {
        found.push(key.to_vec());
    }
    found
}

async fn names(store: &Store) -> Vec<SmolStr> {
    let query =
        MetadataQuery { selectors: vec![], times: TimeRange::new(0, 9 * PARTITION_MS), limit: 0 };
    store.label_values("__name__", &query, &Budget::unlimited()).await.unwrap()
}

#[test]
fn the_index_forgets_series_once_no_selection_wants_them() {
    harness::run(async {
        let store = with_days(1).await;
        let postings = || async {
            let of = |name: &str| keys::postings_of_pair(PartitionId::new(0), "__name__", name);
            (keys_of(&store, &of("a")).await.len(), keys_of(&store, &of("b")).await.len())
        };
        let dictionary = |name: &'static str| {
            let prefix = keys::dictionary_of_pair("__name__", name);
            let store = &store;
            async move { keys_of(store, &prefix).await.len() }
        };
        let before = postings().await;
        assert!(before.0 > 1 && before.1 > 1, "in several registrations: {before:?}");
        let selection = store.core().selections.begin();
        store.delete(named("a"), i64::MIN, i64::MAX).await.unwrap();
        store.clean_tombstones().await.unwrap();
        assert_eq!(postings().await, before, "a selection may need them");
        drop(selection);
        store.maintain().await.unwrap();
        assert_eq!(postings().await, (0, before.1));
        assert_eq!((dictionary("a").await, dictionary("b").await), (0, 1));
        let mut scan =
            store.core().lsm.scan_prefix(&keys::forward(PartitionId::new(0))).await.unwrap();
        let mut left = 0;
        while let Some((key, bytes)) = scan.next().await.unwrap() {
            let page = crate::block::page::decode(&key, &bytes).unwrap();
            assert!(page.iter().all(|labels| labels.metric_name() != "a"));
            left += page.iter().filter(|labels| !labels.as_bytes().is_empty()).count();
        }
        assert_eq!(left, 12);
        // They return with new ids, next to a registration that fills a page.
        let again = [series("a", 3), series("c", 1)];
        for series in &again {
            store.append(batch(series, &[(WINDOW_MS, 5.0)])).await.unwrap();
        }
        store.seal_all().await.unwrap();
        for round in 0..2 {
            let found = read_all(&store).await.unwrap();
            assert_eq!(found.len(), 14, "round {round}");
            assert_eq!((&found[0].0, &found[13].0), (&again[0], &again[1]));
            assert_eq!(names(&store).await, ["a", "b", "c"]);
            let absent = Matcher::new(MatchOp::NotEqual, "x", "y").unwrap();
            assert_eq!(read(&store, vec![absent], 0, i64::MAX).await.unwrap(), found);
            store.core().index.remove(PartitionId::new(0));
        }
    });
}

#[test]
fn a_day_without_samples_is_deleted_whole() {
    harness::run(async {
        let objects = harness::memory();
        let store = with_days(3).await;
        store.delete(vec![vec![]], PARTITION_MS, 2 * PARTITION_MS - 1).await.unwrap();
        store.clean_tombstones().await.unwrap();
        assert_eq!(
            keys_of(&store, &keys::partition(PartitionId::new(1))).await,
            Vec::<Vec<u8>>::new()
        );
        assert_eq!(
            store.core().lsm.get(&keys::partition_entry(PartitionId::new(1))).await.unwrap(),
            None
        );
        assert_eq!(
            store.core().lsm.get(&keys::deleted_ids(PartitionId::new(1))).await.unwrap(),
            None
        );
        assert_eq!(keys_of(&store, &keys::dictionary_of_pair("__name__", "a")).await.len(), 2);
        assert_eq!(store.stats().partitions, 2);
        // Compaction runs in the background.
        let segment = bytes::Bytes::from(keys::partition(PartitionId::new(1)));
        let limit = std::time::Instant::now() + std::time::Duration::from_secs(60);
        while store
            .core()
            .lsm
            .live_bytes()
            .0
            .get(&PartitionId::new(1))
            .is_some_and(|bytes| *bytes > 0)
        {
            let segments = store.core().lsm.segments();
            assert!(std::time::Instant::now() < limit, "{}", segments.contains(&segment));
            tokio::time::sleep(std::time::Duration::from_millis(20)).await;
        }
        // The day may come back.
        store.append(batch(&series("a", 1), &[(PARTITION_MS, 7.0)])).await.unwrap();
        store.seal_all().await.unwrap();
        let found = read(&store, named("a").remove(0), PARTITION_MS, 2 * PARTITION_MS - 1).await;
        assert_eq!(found.unwrap(), [(series("a", 1), vec![(PARTITION_MS, 7.0_f64.to_bits())])]);
        drop((store, objects));
    });
}

#[test]
fn seals_come_between_the_days_of_a_cleaning() {
    harness::run(async {
        let store = Arc::new(with_days(12).await);
        let one = vec![vec![Matcher::equal("__name__", "a"), Matcher::equal("n", "1")]];
        store.delete(one, i64::MIN, i64::MAX).await.unwrap();
        let sealing = Arc::clone(&store);
        let sealer = tokio::spawn(async move {
            for round in 0..40 {
                let sample = (20 * PARTITION_MS + round * WINDOW_MS, 1.0);
                sealing.append(batch(&series("new", 1), &[sample])).await?;
                sealing.seal_all().await?;
            }
            Ok::<(), StoreError>(())
        });
        store.clean_tombstones().await.unwrap();
        sealer.await.unwrap().unwrap();
        let (mut cleaned, mut sealed) = (Vec::new(), Vec::new());
        for day in (0..12).chain(20..24) {
            for key in keys_of(&store, &keys::directories(PartitionId::new(day))).await {
                let (metric, _, epoch) = keys::parse_directory(&key).unwrap();
                if metric == keys::metric_hash("a") {
                    cleaned.push(epoch);
                } else if day >= 20 {
                    sealed.push(epoch);
                }
            }
        }
        cleaned.sort_unstable();
        assert_eq!((cleaned.len(), sealed.len()), (12, 40));
        cleaned.dedup();
        assert_eq!(cleaned.len(), 12, "each day has an epoch of its own");
        let is_between = |epoch: &&Epoch| (cleaned[0]..cleaned[11]).contains(*epoch);
        assert!(sealed.iter().filter(is_between).count() > 4, "{cleaned:?} {sealed:?}");
        assert_eq!(read_all(&*store).await.unwrap().len(), 24);
    });
}
