//! Lifetime of the record of the first kept day after the retention has deleted days.

use std::sync::Arc;

use model::Labels;
use slatedb::object_store::ObjectStore;

use super::harness::{self, batch, labels, open_with, read_all};
use crate::expiry;
use crate::keys::KEPT_FROM;
use crate::lsm::WriteSet;
use crate::meta;
use crate::seal;
use crate::window::{PARTITION_MS, PartitionId, WINDOW_MS};
use crate::{Clock, ManualClock, RETENTION_CONFIRMATION, Retention, Store, StoreOptions};

/// Times in the deleted day and in the kept one, and the clock time from which a retention of two
/// days expires the former, once a sample confirms it.
const DELETED_MS: i64 = 99 * PARTITION_MS;
const KEPT_MS: i64 = 101 * PARTITION_MS;
const DELETED_AT_MS: i64 = 102 * PARTITION_MS + WINDOW_MS;

/// Opens a store at some time, with a retention of two days or without one.
async fn open(objects: &Arc<dyn ObjectStore>, is_bounded: bool, now_ms: i64) -> Store {
    let options = StoreOptions {
        retention_ms: is_bounded.then_some(2 * PARTITION_MS),
        clock: Arc::new(ManualClock::new(now_ms)) as Arc<dyn Clock>,
        ..harness::options()
    };
    open_with(objects, options).await.unwrap()
}

fn series() -> Labels {
    labels(&[("__name__", "a")])
}

/// Returns whether a sample with a time is accepted.
async fn takes(store: &Store, timestamp_ms: i64) -> bool {
    store.append(batch(&series(), &[(timestamp_ms, 1.0)])).await.unwrap().accepted == 1
}

async fn has_first_kept_day(store: &Store) -> bool {
    store.core().lsm.get(KEPT_FROM).await.unwrap().is_some()
}

async fn times(store: &Store) -> Vec<i64> {
    let series = read_all(store).await.unwrap();
    series.into_iter().flat_map(|(_, samples)| samples).map(|(time_ms, _)| time_ms).collect()
}

#[test]
fn the_first_kept_day_is_removed_with_the_days_without_log_records() {
    harness::run(async {
        let objects = harness::memory();
        let store = open(&objects, true, KEPT_MS).await;
        assert!(takes(&store, DELETED_MS).await);
        store.seal_all().await.unwrap();
        assert!(takes(&store, KEPT_MS).await, "its window stays open");
        store.close().await.unwrap();

        let store = open(&objects, true, DELETED_AT_MS).await;
        assert!(takes(&store, DELETED_AT_MS).await);
        expiry::delete_expired(store.core()).await.unwrap();
        assert_eq!(store.stats().partitions_deleted, 1);
        assert!(!has_first_kept_day(&store).await);
        assert!(!takes(&store, DELETED_MS + 1).await, "the retention is unchanged");
        store.close().await.unwrap();

        let store = open(&objects, false, DELETED_AT_MS).await;
        assert!(takes(&store, DELETED_MS + 1).await);
        assert_eq!(times(&store).await, [DELETED_MS + 1, KEPT_MS, DELETED_AT_MS]);
    });
}

#[test]
fn the_first_kept_day_stays_until_the_records_of_the_days_are_sealed() {
    harness::run(async {
        let objects = harness::memory();
        let store = open(&objects, true, KEPT_MS).await;
        assert!(takes(&store, DELETED_MS).await && takes(&store, KEPT_MS).await);
        // Only closed windows: the log epoch stays for the open ones.
        store.maintain().await.unwrap();
        assert_eq!(store.stats().partitions, 1);
        store.close().await.unwrap();

        let store = open(&objects, true, DELETED_AT_MS).await;
        assert!(takes(&store, DELETED_AT_MS).await);
        expiry::delete_expired(store.core()).await.unwrap();
        assert_eq!(store.stats().partitions_deleted, 1);
        assert!(has_first_kept_day(&store).await, "the log has a record of the day");
        store.close().await.unwrap();

        // The day's watermark is deleted: without the record, its samples would return.
        let store = open(&objects, false, DELETED_AT_MS).await;
        for is_maintained in [false, true] {
            if is_maintained {
                expiry::delete_expired(store.core()).await.unwrap();
            }
            let left = [KEPT_MS, DELETED_AT_MS];
            assert_eq!(times(&store).await, left, "maintained: {is_maintained}");
            assert!(has_first_kept_day(&store).await && !takes(&store, DELETED_MS + 1).await);
        }
        store.seal_all().await.unwrap();
        assert!(!has_first_kept_day(&store).await, "the last log record removes it");
        assert!(!takes(&store, DELETED_MS + 1).await, "hidden days stay hidden");
        assert!(takes(&store, KEPT_MS + 1).await, "the write begins a log epoch");
        expiry::delete_expired(store.core()).await.unwrap();
        assert!(takes(&store, DELETED_MS + 1).await, "the day is deleted");
        let all = [DELETED_MS + 1, KEPT_MS, KEPT_MS + 1, DELETED_AT_MS];
        assert_eq!(times(&store).await, all);
        store.close().await.unwrap();

        let store = open(&objects, false, DELETED_AT_MS).await;
        assert_eq!(times(&store).await, all);
        store.seal_all().await.unwrap();
        assert_eq!(times(&store).await, all);
    });
}

#[test]
fn an_unneeded_first_kept_day_is_removed_at_a_start() {
    harness::run(async {
        let objects = harness::memory();
        let store = open(&objects, true, DELETED_AT_MS).await;
        assert!(takes(&store, KEPT_MS).await);
        // As written by stores that did not remove it in time.
        let mut set = WriteSet::default();
        set.put(KEPT_FROM.to_vec(), meta::encode_kept_from(PartitionId::new(100)));
        store.core().lsm.commit(set).await.unwrap();
        store.close().await.unwrap();

        let store = open(&objects, false, DELETED_AT_MS).await;
        assert!(!has_first_kept_day(&store).await);
        assert!(takes(&store, DELETED_MS).await);
    });
}

#[test]
fn an_unconfirmed_retention_releases_nothing() {
    harness::run(async {
        let objects = harness::memory();
        let store = open(&objects, true, KEPT_MS).await;
        assert!(takes(&store, DELETED_MS).await && takes(&store, KEPT_MS).await);
        store.close().await.unwrap();
        let store = open(&objects, true, DELETED_AT_MS).await;
        assert!(takes(&store, DELETED_AT_MS).await);
        expiry::delete_expired(store.core()).await.unwrap();
        assert!(has_first_kept_day(&store).await, "the log has a record of the day");
        store.close().await.unwrap();

        let options = StoreOptions {
            retention_ms: Some(2 * PARTITION_MS),
            retention_confirmation: RETENTION_CONFIRMATION,
            clock: Arc::new(ManualClock::new(DELETED_AT_MS)) as Arc<dyn Clock>,
            ..harness::options()
        };
        let store = open_with(&objects, options).await.unwrap();
        expiry::delete_expired(store.core()).await.unwrap();
        assert!(has_first_kept_day(&store).await);
        assert!(!expiry::has_deleted_records(store.core()).await);
        store.seal_all().await.unwrap();
        expiry::delete_expired(store.core()).await.unwrap();
        assert!(!has_first_kept_day(&store).await && !takes(&store, DELETED_MS + 1).await);
        // Without a time limit there is nothing to confirm.
        store.set_retention(Retention::default());
        expiry::delete_expired(store.core()).await.unwrap();
        assert!(takes(&store, DELETED_MS + 1).await);
    });
}

#[test]
fn days_deleted_by_size_cause_no_seal() {
    harness::run(async {
        for retention_ms in [None, Some(1000 * PARTITION_MS)] {
            let objects = harness::memory();
            let options = StoreOptions {
                retention_ms,
                retention_bytes: Some(1),
                clock: Arc::new(ManualClock::new(DELETED_AT_MS)) as Arc<dyn Clock>,
                ..harness::options()
            };
            let store = open_with(&objects, options).await.unwrap();
            for time_ms in [DELETED_MS, KEPT_MS] {
                assert!(takes(&store, time_ms).await);
            }
            store.seal_all().await.unwrap();
            // In an open window: its log epoch stays, with a record of the deleted day.
            assert!(takes(&store, DELETED_MS + 1).await && takes(&store, DELETED_AT_MS).await);
            seal::write_out(store.core()).await.unwrap();
            expiry::delete_expired(store.core()).await.unwrap();
            assert_eq!(store.stats().partitions_deleted, 1);
            assert!(has_first_kept_day(&store).await, "the log has a record of the day");
            assert!(!expiry::has_deleted_records(store.core()).await);
            assert!(!takes(&store, DELETED_MS + 2).await);
        }
    });
}

#[test]
fn a_shorter_retention_that_is_reverted_at_once_deletes_nothing() {
    harness::run(async {
        for time_ms in [None, Some(10 * PARTITION_MS)] {
            let store = open(&harness::memory(), false, DELETED_AT_MS).await;
            let retention = |time_ms| Retention { time_ms, ..Retention::default() };
            store.set_retention(retention(time_ms));
            assert!(takes(&store, DELETED_MS).await);
            store.seal_all().await.unwrap();
            assert!(takes(&store, DELETED_MS + 1).await && takes(&store, DELETED_AT_MS).await);
            store.set_retention(retention(Some(PARTITION_MS)));
            assert_eq!(times(&store).await, [DELETED_AT_MS]);
            store.set_retention(retention(time_ms));
            store.maintain().await.unwrap();
            assert_eq!(store.stats().partitions_deleted, 0);
            assert!(takes(&store, DELETED_MS + 2).await);
            let all = [DELETED_MS, DELETED_MS + 1, DELETED_MS + 2, DELETED_AT_MS];
            assert_eq!(times(&store).await, all, "{time_ms:?}");
            store.seal_all().await.unwrap();
            assert_eq!(times(&store).await, all, "{time_ms:?}");
            // A setting that stays deletes days.
            store.set_retention(retention(Some(PARTITION_MS)));
            store.maintain().await.unwrap();
            assert_eq!(store.stats().partitions_deleted, 1);
        }
    });
}
