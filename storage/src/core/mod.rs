//! State that the tasks of a store share, and the part of it that is in view.

mod counters;
mod delete;
mod open;
pub(crate) mod seal_state;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicI64};
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::Duration;

use model::TimeRange;
use roaring::RoaringBitmap;
use tokio::sync::Notify;

use self::counters::CoreCounters;
use self::seal_state::SealState;
use crate::delete::Tombstones;
use crate::error::StoreError;
use crate::exemplar::Exemplars;
use crate::head::Head;
use crate::index::cache::IndexCache;
use crate::index::partition::PartitionIndex;
use crate::log::commit::{Log, LogTarget};
use crate::log::counters::LogCounters;
use crate::log::queue::Queue;
use crate::lsm::{Lsm, ReadTracker};
use crate::metadata::Metadata;
use crate::options::StoreOptions;
use crate::retention::{
    ClockReading, Keeping, Observed, RETENTION_RULES_MAX, ReferenceTime, Retention, RetentionTime,
};
use crate::samples::columns::ColumnCache;
use crate::window::{
    TIME_MAX_MS, TIME_MIN_MS, TimeBounds, partition_end_ms, partition_of_window, window_of,
};

/// How long ago a write may have failed that tells why others wait: longer than the tree takes to
/// repeat one.
const REASON_SPAN_MIN: Duration = Duration::from_secs(5);

/// What the tasks of a store share.
pub(crate) struct Core {
    pub(crate) lsm: Lsm,
    pub(crate) head: Head,
    /// Exemplars, of series that may have left the head since.
    pub(crate) exemplars: Exemplars,
    /// Metadata of metrics.
    pub(crate) metadata: Metadata,
    /// Decoded floats of what has been read.
    pub(crate) columns: Arc<ColumnCache>,
    pub(crate) options: StoreOptions,
    /// How long samples are kept now.
    pub(crate) keeping: RwLock<Arc<Keeping>>,
    /// The time that the retention is measured against.
    pub(crate) reference: ReferenceTime,
    /// What the store says of rules: the value of its key.
    pub(crate) stored_rules: Mutex<Option<Vec<u8>>>,
    /// Selections under way: what they may still want stays.
    pub(crate) selections: ReadTracker,
    /// What has been deleted and is still in files.
    pub(crate) tombstones: Tombstones,
    /// The one writer of log and head.
    pub(crate) log: tokio::sync::Mutex<Log>,
    /// Counts of commits and refused writes.
    pub(crate) log_counters: LogCounters,
    /// Counts of all else.
    pub(crate) counters: CoreCounters,
    /// Held by whoever seals, deletes, or forgets series: slots stay what they are meanwhile.
    pub(crate) sealing: tokio::sync::Mutex<SealState>,
    /// Held by whoever cleans up after deletes, before `sealing`.
    pub(crate) cleaning: tokio::sync::Mutex<()>,
    /// Partitions by number, and how many series are registered in each.
    pub(crate) partitions: RwLock<BTreeMap<i64, u32>>,
    /// What is known of them.
    pub(crate) index: IndexCache,
    /// Set once the store is to be closed: a seal ends before its next window.
    pub(crate) is_closing: AtomicBool,
    /// When deletes may be cleaned up by themselves again, after it has failed.
    pub(crate) clean_from_ms: AtomicI64,
    pub(crate) queue: Queue,
    /// Told when nobody leads any more.
    pub(crate) idle: Notify,
    /// Notified when maintenance is due at once: the log or the head is too large, or the clock was
    /// set back.
    pub(crate) maintenance_wanted: Notify,
    /// Notified when the retention has changed.
    pub(crate) has_retention: Notify,
}

impl Core {
    /// Errors: [`StoreError::ReadOnly`].
    pub(crate) fn check_writable(&self) -> Result<(), StoreError> {
        if self.lsm.is_read_only() { Err(StoreError::ReadOnly) } else { Ok(()) }
    }

    /// Returns the places that a commit writes to.
    pub(crate) fn log_target(&self) -> LogTarget<'_> {
        let Core { lsm, head, exemplars, metadata, .. } = self;
        LogTarget { lsm, head, exemplars, metadata }
    }

    /// Observes the clock. Returns the earliest visible time, in ms: the start of the first
    /// partition kept.
    pub(crate) fn observe_visible_min_ms(&self) -> i64 {
        let floor = self.floor_partition(self.observe_retention_time());
        let floor_ms = floor.map_or(i64::MIN, |first_kept| partition_end_ms(first_kept - 1));
        self.head.changes.kept_from_ms().max(floor_ms)
    }

    /// The first partition that the retention keeps by time, if that is limited and confirmed.
    pub(crate) fn floor_partition(&self, time: RetentionTime) -> Option<i64> {
        self.keeping().floor_ms(time).map(|floor_ms| partition_of_window(window_of(floor_ms)))
    }

    /// Observes the clock, and returns the time that the retention is measured against.
    ///
    /// Logs steps of the clock. If one makes deleted times visible again, it invalidates cached
    /// results and wakes maintenance.
    pub(crate) fn observe_retention_time(&self) -> RetentionTime {
        let clock = &self.options.clock;
        let reading = ClockReading { wall_ms: clock.now_ms(), monotonic: clock.monotonic() };
        let observed = self.reference.observe(reading, self.newest_ms());
        self.note_observed(&observed);
        observed.time
    }

    fn note_observed(&self, observed: &Observed) {
        if let Some(lowered_from_ms) = observed.lowered_from_ms {
            // Times before may be in view again, and deleted days may be written to again.
            self.head.changes.note_expired_before(lowered_from_ms);
            self.maintenance_wanted.notify_one();
        }
        let is_deleting = !self.lsm.is_read_only() && self.keeping().is_limited();
        let suspended = self.reference.suspension();
        if let Some(ahead_ms) = observed.ahead_ms.filter(|_| is_deleting) {
            tracing::warn!(
                ahead_seconds = ahead_ms / 1000,
                ?suspended,
                "the system clock is ahead of the newest sample; deletion by retention is suspended"
            );
        }
        if let Some(step_ms) = observed.step_ms {
            let step_seconds = step_ms / 1000;
            if !is_deleting {
                tracing::warn!(step_seconds, "the system clock was set");
            } else {
                tracing::warn!(
                    step_seconds,
                    ?suspended,
                    "the system clock was set; deletion by retention is suspended"
                );
            }
        }
        if observed.is_resumed && is_deleting {
            tracing::info!("the system clock has been steady; retention applies again");
        }
    }

    /// The time of the newest acknowledged sample: after a start of which all is sealed, the start of
    /// the newest day.
    fn newest_ms(&self) -> Option<i64> {
        let newest_day = self.read_partitions(|all| all.last_key_value().map(|(day, _)| *day));
        let sealed_ms = newest_day.map(|day| partition_end_ms(day - 1));
        self.log_counters.newest_ms().max(sealed_ms)
    }

    /// How long samples are kept now.
    pub(crate) fn keeping(&self) -> Arc<Keeping> {
        Arc::clone(&self.keeping.read().unwrap_or_else(PoisonError::into_inner))
    }

    pub(crate) fn set_retention(&self, retention: Retention) {
        assert!(retention.rules.len() <= RETENTION_RULES_MAX, "too many rules of the retention");
        // Times hidden by the previous setting stay hidden until maintenance releases those that the
        // new one keeps.
        self.head.changes.note_deleted_before(self.observe_visible_min_ms());
        {
            let mut keeping = self.keeping.write().unwrap_or_else(PoisonError::into_inner);
            *keeping = Arc::new(Keeping::new(retention, &keeping));
        }
        self.has_retention.notify_one();
    }

    /// The partitions that overlap a range of time, as they are now, and the tree to read them
    /// from.
    pub(crate) fn partitions_between(&self, times: TimeRange) -> (Lsm, Vec<Arc<PartitionIndex>>) {
        let first = partition_of_window(window_of(times.start_ms));
        let last = partition_of_window(window_of(times.end_ms));
        self.read_partitions(|partitions| {
            // Under this lock a reader exchanges both: so the files have what the facts say.
            let lsm = self.lsm.fixed();
            if first > last {
                return (lsm, Vec::new());
            }
            let index = |(number, count): (&i64, &u32)| self.index.partition(*number, *count);
            (lsm, partitions.range(first..=last).map(index).collect())
        })
    }

    /// One partition as it is now, if there is one.
    pub(crate) fn partition(&self, partition: i64) -> Option<Arc<PartitionIndex>> {
        self.read_partitions(|all| {
            all.get(&partition).map(|count| self.index.partition(partition, *count))
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
    pub(crate) fn set_deleted(&self, partition: i64, gone: RoaringBitmap) {
        // Together with the number of series, as in the look-ups.
        self.read_partitions(|_| self.index.set_deleted(partition, gone));
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
    pub(crate) fn refused(&self, error: StoreError) -> StoreError {
        match &error {
            StoreError::Stalled { .. } => self.log_counters.note_stalled(),
            StoreError::HeadFull { .. } => self.log_counters.note_head_full(),
            _ => {}
        }
        self.with_reason(error)
    }

    /// Adds to an error why the object store takes no writes, where it has said so.
    pub(crate) fn with_reason(&self, mut error: StoreError) -> StoreError {
        if let StoreError::Stalled { waited, reason, .. } = &mut error {
            *reason = self.lsm.write_failure((*waited).max(REASON_SPAN_MIN));
        }
        error
    }

    pub(crate) fn bounds(&self, keeping: &Keeping, time: RetentionTime) -> TimeBounds {
        let floor_ms = keeping.floor_ms(time).unwrap_or(TIME_MIN_MS);
        let ahead = self.options.ahead_max_ms;
        TimeBounds {
            min_ms: floor_ms.max(self.head.changes.kept_from_ms()).max(TIME_MIN_MS),
            max_ms: ahead.map_or(TIME_MAX_MS, |ms| time.now_ms.saturating_add(ms)).min(TIME_MAX_MS),
            out_of_order_window_ms: self.options.out_of_order_window_ms,
        }
    }
}
