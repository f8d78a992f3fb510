//! Reading ahead of queries, while the days are deleted.

use std::sync::Arc;

use futures::poll;
use model::{Budget, TimeRange};

use super::harness::{self, batch, labels, open_with};
use crate::parallel::yielder::Yielder;
use crate::read::warm::warm_up;
use crate::window::PARTITION_MS;
use crate::{ManualClock, Store, StoreOptions};

/// Start of the test, and the retention.
const NOW_MS: i64 = 100 * PARTITION_MS;
const KEPT_MS: i64 = 2 * PARTITION_MS;

/// Returns a newly opened store with a sealed day.
async fn with_day(clock: &Arc<ManualClock>) -> Store {
    let objects = harness::memory();
    let options = StoreOptions {
        clock: Arc::clone(clock) as _,
        retention_ms: Some(KEPT_MS),
        cache_bytes_max: 1 << 20,
        ..harness::options()
    };
    let store = open_with(&objects, options.clone()).await.unwrap();
    let series = labels(&[("__name__", "a")]);
    store.append(batch(&series, &[(NOW_MS - PARTITION_MS, 1.0)])).await.unwrap();
    store.seal_all().await.unwrap();
    store.close().await.unwrap();
    open_with(&objects, options).await.unwrap()
}

/// Sets the clock, and confirms it with a sample.
async fn pass_to(clock: &ManualClock, store: &Store, now_ms: i64) {
    clock.set(now_ms);
    store.append(batch(&labels(&[("__name__", "a")]), &[(now_ms, 1.0)])).await.unwrap();
}

/// Runs on one thread, so that no read-ahead happens during the test's turn.
fn run(test: impl Future<Output = ()>) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.unwrap().block_on(test);
}

#[test]
fn a_day_that_is_read_ahead_is_deleted_afterwards() {
    run(async {
        let clock = Arc::new(ManualClock::new(NOW_MS));
        let store = with_day(&clock).await;
        let mut warming = Box::pin(warm_up(Arc::clone(store.core()), KEPT_MS));
        assert!(poll!(&mut warming).is_pending(), "reading ahead waits for the object store");
        pass_to(&clock, &store, NOW_MS + KEPT_MS).await;
        store.maintain().await.unwrap();
        assert_eq!(store.stats().partitions_deleted, 0, "the index is being read");
        warming.await;
        assert!(store.stats().warmed_bytes > 0, "the whole day was read");
        store.maintain().await.unwrap();
        assert_eq!(store.stats().partitions_deleted, 1);
    });
}

#[test]
fn a_day_that_is_about_to_be_deleted_is_not_read_ahead() {
    run(async {
        let clock = Arc::new(ManualClock::new(NOW_MS));
        let store = with_day(&clock).await;
        // A running selection keeps the day from being deleted.
        let selection = store.core().selections.begin();
        pass_to(&clock, &store, NOW_MS + KEPT_MS).await;
        store.maintain().await.unwrap();
        assert_eq!(store.stats().partitions_deleted, 0);
        warm_up(Arc::clone(store.core()), 2 * KEPT_MS).await;
        assert_eq!(store.stats().warmed_bytes, 0);
        drop(selection);
        store.maintain().await.unwrap();
        assert_eq!(store.stats().partitions_deleted, 1);
    });
}

#[test]
fn labels_that_the_head_holds_are_counted_once_it_forgets_them() {
    run(async {
        let clock = Arc::new(ManualClock::new(NOW_MS));
        let options = StoreOptions { clock: Arc::clone(&clock) as _, ..harness::options() };
        let store = open_with(&harness::memory(), options).await.unwrap();
        let long = "a".repeat(10_000);
        let series = labels(&[("__name__", "a"), ("b", &long)]);
        store.append(batch(&series, &[(NOW_MS, 1.0)])).await.unwrap();
        store.seal_all().await.unwrap();
        let (lsm, index) = store.core().partitions_between(TimeRange::new(NOW_MS, NOW_MS));
        let mut yielder = Yielder::new(&Budget::unlimited());
        let ids = [0].into();
        let found = index[0].labels_of(&lsm, &store.core().head, &ids, &mut yielder).await;
        assert_eq!(found.unwrap(), [(0, series)]);
        assert!(store.stats().index_cache_bytes < long.len());

        pass_to(&clock, &store, NOW_MS + 2 * PARTITION_MS).await;
        store.seal_all().await.unwrap();
        assert!(store.stats().index_cache_bytes > long.len());
    });
}
