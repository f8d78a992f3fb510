//! What the tasks of a store share, and what of it is in view.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicI64};
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::Duration;

use roaring::RoaringBitmap;
use tokio::sync::Notify;

use crate::columns::ColumnCache;
use crate::delete::Tombstones;
use crate::error::StoreError;
use crate::head::Head;
use crate::head::commit::{Bounds, Log, Queue};
use crate::index::cache::IndexCache;
use crate::index::facts::Facts;
use crate::lsm::{Lsm, Reads};
use crate::options::StoreOptions;
use crate::retention::{Keeping, RETENTION_RULES_MAX, Retention};
use crate::seal;
use crate::stats::Counters;
use crate::window::{TIME_MAX_MS, TIME_MIN_MS, partition_end_ms, partition_of_window, window_of};

/// How long ago a write may have failed that tells why others wait: longer than the tree takes to
/// repeat one.
const REASON_SPAN_MIN: Duration = Duration::from_secs(5);

/// What the tasks of a store share.
pub(crate) struct Inner {
    pub(crate) lsm: Lsm,
    pub(crate) head: Head,
    /// Decoded floats of what has been read.
    pub(crate) columns: Arc<ColumnCache>,
    pub(crate) options: StoreOptions,
    /// How long samples are kept now.
    pub(super) keeping: RwLock<Arc<Keeping>>,
    /// What the store says of rules: the value of its key.
    pub(crate) stored_rules: Mutex<Option<Vec<u8>>>,
    /// Selections under way: what they may still want stays.
    pub(crate) selections: Reads,
    /// What has been deleted and is still in files.
    pub(crate) tombstones: Tombstones,
    /// The one writer of log and head.
    pub(crate) log: tokio::sync::Mutex<Log>,
    pub(crate) counters: Counters,
    /// Held by whoever seals, deletes, or forgets series: slots stay what they are meanwhile.
    pub(crate) sealing: tokio::sync::Mutex<seal::State>,
    /// Held by whoever cleans up after deletes, before `sealing`.
    pub(crate) cleaning: tokio::sync::Mutex<()>,
    /// Partitions by number, and how many series are registered in each.
    pub(crate) partitions: RwLock<BTreeMap<i64, u32>>,
    /// What is known of them.
    pub(crate) index: IndexCache,
    /// Set once the store is to be closed: a seal ends before its next window.
    pub(crate) is_closing: AtomicBool,
    /// When deletes may be cleaned up by themselves again, after it has failed.
    pub(super) clean_from_ms: AtomicI64,
    pub(super) queue: Queue,
    /// Told when nobody leads any more.
    pub(super) idle: Notify,
    /// Told when the log has grown too large, or the head.
    pub(super) log_is_large: Notify,
    /// Told when the retention has been set anew.
    pub(super) has_retention: Notify,
}

impl Inner {
    /// Errors: [`StoreError::ReadOnly`].
    pub(super) fn check_writable(&self) -> Result<(), StoreError> {
        if self.lsm.is_read_only() { Err(StoreError::ReadOnly) } else { Ok(()) }
    }

    /// The earliest time that is still shown: the start of the first partition kept.
    pub(crate) fn visible_min_ms(&self) -> i64 {
        // What has been hidden once stays so, even where the clock is set back.
        self.head.changes.kept_from_ms().max(match self.keeping().time_ms {
            None => i64::MIN,
            Some(retention_ms) => {
                let oldest_ms = self.options.clock.now_ms().saturating_sub(retention_ms);
                partition_end_ms(partition_of_window(window_of(oldest_ms)) - 1)
            }
        })
    }

    /// How long samples are kept now.
    pub(crate) fn keeping(&self) -> Arc<Keeping> {
        Arc::clone(&self.keeping.read().unwrap_or_else(PoisonError::into_inner))
    }

    pub(super) fn set_retention(&self, retention: Retention) {
        assert!(retention.rules.len() <= RETENTION_RULES_MAX, "too many rules of the retention");
        // What is hidden by the setting before stays so.
        self.head.changes.note_deleted_before(self.visible_min_ms());
        {
            let mut keeping = self.keeping.write().unwrap_or_else(PoisonError::into_inner);
            *keeping = Arc::new(Keeping::new(retention, &keeping));
        }
        self.has_retention.notify_one();
    }

    /// The partitions that overlap a range of time, as they are now, and the tree to read them
    /// from.
    pub(crate) fn partitions_between(&self, start_ms: i64, end_ms: i64) -> (Lsm, Vec<Arc<Facts>>) {
        let first = partition_of_window(window_of(start_ms));
        let last = partition_of_window(window_of(end_ms));
        self.read_partitions(|partitions| {
            // Under this lock a reader exchanges both: so the files have what the facts say.
            let lsm = self.lsm.fixed();
            if first > last {
                return (lsm, Vec::new());
            }
            let facts = |(number, count): (&i64, &u32)| self.index.facts(*number, *count);
            (lsm, partitions.range(first..=last).map(facts).collect())
        })
    }

    /// One partition as it is now, if there is one.
    pub(crate) fn partition(&self, partition: i64) -> Option<Arc<Facts>> {
        self.read_partitions(|all| {
            all.get(&partition).map(|count| self.index.facts(partition, *count))
        })
    }

    pub(crate) fn read_partitions<T>(&self, read: impl FnOnce(&BTreeMap<i64, u32>) -> T) -> T {
        read(&self.partitions.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// How many series are registered in a partition.
    pub(crate) fn series_count(&self, partition: i64) -> u32 {
        self.read_partitions(|partitions| partitions.get(&partition).copied().unwrap_or(0))
    }

    /// Notes of which series of a partition nothing is left.
    pub(crate) fn set_gone(&self, partition: i64, gone: RoaringBitmap) {
        // Together with the number of series, as in the look-ups.
        self.read_partitions(|_| self.index.set_gone(partition, gone));
    }

    /// Notes how many series are registered in a partition.
    pub(crate) fn set_series_count(&self, partition: i64, series_count: u32) {
        let mut partitions = self.partitions.write().unwrap_or_else(PoisonError::into_inner);
        partitions.insert(partition, series_count);
    }

    /// Forgets a partition that has been deleted.
    pub(crate) fn remove_partition(&self, partition: i64) {
        let mut partitions = self.partitions.write().unwrap_or_else(PoisonError::into_inner);
        partitions.remove(&partition);
        self.index.remove(partition);
    }

    /// Whether writes are being committed.
    #[cfg(test)]
    pub(crate) fn is_committing(&self) -> bool {
        self.queue.is_committing()
    }

    /// Counts a write that is refused, and adds why the object store takes none.
    pub(super) fn refused(&self, mut error: StoreError) -> StoreError {
        match &mut error {
            StoreError::Stalled { waited, reason, .. } => {
                *reason = self.lsm.write_failure((*waited).max(REASON_SPAN_MIN));
                self.counters.note_stalled();
            }
            StoreError::HeadFull { .. } => self.counters.note_head_full(),
            _ => {}
        }
        error
    }

    pub(super) fn bounds(&self, keeping: &Keeping, now_ms: i64) -> Bounds {
        let before = |span: Option<i64>| span.map_or(TIME_MIN_MS, |ms| now_ms.saturating_sub(ms));
        let ahead = self.options.ahead_max_ms;
        Bounds {
            min_ms: before(keeping.time_ms).max(self.head.changes.kept_from_ms()).max(TIME_MIN_MS),
            max_ms: ahead.map_or(TIME_MAX_MS, |ms| now_ms.saturating_add(ms)).min(TIME_MAX_MS),
            out_of_order_window_ms: self.options.out_of_order_window_ms,
        }
    }
}
