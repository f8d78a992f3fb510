//! Lists of sealed days that lookups keep: they change no answer, and are invalidated by changes of
//! the series of these days alone.

use model::{Budget, Labels, Matcher, MetadataQuery, SmolStr, Source, TimeRange};

use super::harness::{self, batch, labels, open_with};
use crate::window::PARTITION_MS;
use crate::{Store, StoreOptions};

const DAYS: i64 = 4;
/// Lookups of [`ask`].
const LOOKUPS: u64 = 3;

type Lists = (Vec<SmolStr>, Vec<SmolStr>, Vec<Labels>);

fn series(index: usize) -> Labels {
    labels(&[("__name__", "requests"), ("instance", &index.to_string())])
}

async fn write(store: &Store, index: usize, day: i64) {
    store.append(batch(&series(index), &[(day * PARTITION_MS + 7, 1.0)])).await.unwrap();
}

/// A store with two series on each sealed day, and one more in the head.
async fn filled(index_cache_bytes_max: usize) -> Store {
    let options = StoreOptions { index_cache_bytes_max, ..harness::options() };
    let store = open_with(&harness::memory(), options).await.unwrap();
    for day in 0..DAYS {
        write(&store, 1, day).await;
        write(&store, 2 + day as usize, day).await;
    }
    store.seal_all().await.unwrap();
    write(&store, 9, DAYS - 1).await;
    store
}

/// Returns names, instances and series of days, and the number of lists that were kept.
async fn ask(store: &Store, days: i64, limit: usize) -> (Lists, u64) {
    let before = store.stats().kept_lists_hits;
    let selectors = vec![vec![Matcher::equal("__name__", "requests")]];
    let times = TimeRange::new(0, days * PARTITION_MS - 1);
    let (query, budget) = (MetadataQuery { selectors, times, limit }, Budget::unlimited());
    let names = store.label_names(&query, &budget).await.unwrap();
    let values = store.label_values("instance", &query, &budget).await.unwrap();
    let series = store.series(&query, &budget).await.unwrap();
    ((names, values, series), store.stats().kept_lists_hits - before)
}

/// Checks the answers and hits of a second lookup after a change.
async fn check(hits: u64, change: impl AsyncFn(&Store)) {
    let (store, slow) = (filled(1 << 20).await, filled(0).await);
    assert_eq!(ask(&store, DAYS, 0).await.1, 0);
    for store in [&store, &slow] {
        change(store).await;
    }
    let (expected, none) = ask(&slow, DAYS, 0).await;
    assert_eq!(none, 0);
    assert_eq!(ask(&store, DAYS, 0).await, (expected.clone(), hits));
    assert_eq!(ask(&store, DAYS, 0).await.0, expected);
}

#[test]
fn lists_are_kept_until_series_of_their_days_change() {
    harness::run(async {
        check(LOOKUPS, async |_| {}).await;
        // The head is listed each time.
        check(LOOKUPS, async |store| write(store, 77, 1).await).await;
        check(0, async |store| {
            write(store, 77, 1).await;
            store.seal_all().await.unwrap();
        })
        .await;
    });
}

#[test]
fn deletes_change_lists() {
    harness::run(async {
        let delete = async |store: &Store| {
            let matchers = vec![vec![Matcher::equal("instance", "3")]];
            store.delete(matchers, 0, DAYS * PARTITION_MS).await.unwrap();
        };
        // Until they are cleaned up, deletes hide series, and no names or values.
        check(LOOKUPS - 1, delete).await;
        check(0, async |store| {
            delete(store).await;
            store.clean_tombstones().await.unwrap();
        })
        .await;
    });
}

#[test]
fn lists_stay_valid_if_no_series_are_added() {
    harness::run(async {
        let store = filled(1 << 20).await;
        store.seal_all().await.unwrap();
        let (first, _) = ask(&store, DAYS, 0).await;
        write(&store, 77, DAYS).await;
        store.append(batch(&series(1), &[(PARTITION_MS + 9, 2.0)])).await.unwrap();
        store.seal_all().await.unwrap();
        assert_eq!(ask(&store, DAYS, 0).await, (first, LOOKUPS));
    });
}

#[test]
fn lists_outlive_evicted_indexes() {
    harness::run(async {
        let store = filled(64 << 10).await;
        for index in 100..400 {
            let padding = index.to_string().repeat(150);
            let name = ("__name__", "requests");
            let padded = labels(&[name, ("padding", &padding)]);
            let timestamp_ms = (index % DAYS) * PARTITION_MS + 7;
            store.append(batch(&padded, &[(timestamp_ms, 1.0)])).await.unwrap();
        }
        store.seal_all().await.unwrap();
        let (first, _) = ask(&store, DAYS, 0).await;
        let misses = store.stats().index_cache_misses;
        // The list of series is too long to be kept, and takes indexes that were evicted.
        assert_eq!(ask(&store, DAYS, 0).await, (first, LOOKUPS - 1));
        assert!(store.stats().index_cache_misses > misses);
    });
}

#[test]
fn lists_are_of_their_selector_and_label() {
    harness::run(async {
        let (store, slow) = (filled(1 << 20).await, filled(0).await);
        let of = |instance| vec![Matcher::equal("instance", instance)];
        for selectors in [vec![of("1")], vec![of("3")], vec![of("1"), of("4")], vec![of("4")]] {
            for name in ["__name__", "instance", "none"] {
                let times = TimeRange::new(0, DAYS * PARTITION_MS);
                let query = MetadataQuery { selectors: selectors.clone(), times, limit: 0 };
                let budget = Budget::unlimited();
                let expected = slow.label_values(name, &query, &budget).await.unwrap();
                for _ in 0..2 {
                    let found = store.label_values(name, &query, &budget).await.unwrap();
                    assert_eq!(found, expected, "{name} of {selectors:?}");
                }
            }
        }
    });
}

#[test]
fn lists_are_of_their_days_and_complete() {
    harness::run(async {
        let store = filled(1 << 20).await;
        let (all, _) = ask(&store, DAYS, 0).await;
        let (fewer, hits) = ask(&store, DAYS - 1, 0).await;
        assert_eq!(hits, 0);
        assert!(fewer.1.len() < all.1.len(), "{fewer:?}");
        // A day alone is listed from its index.
        assert_eq!(ask(&store, 1, 0).await.1, 0);
        assert_eq!(ask(&store, 1, 0).await.1, 0);
        let (first, hits) = ask(&store, DAYS, 1).await;
        let of_all = (all.0[..1].to_vec(), all.1[..1].to_vec(), all.2[..1].to_vec());
        assert_eq!((first, hits), (of_all.clone(), LOOKUPS));
        let limited = filled(1 << 20).await;
        assert_eq!(ask(&limited, DAYS, 1).await, (of_all, 0));
        assert_eq!(ask(&limited, DAYS, 0).await, (all, 0));
    });
}
