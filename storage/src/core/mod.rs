//! State that the tasks of a store share, and its visible partitions and times.

mod active_lsm;
mod counters;
mod delete;
mod open;
mod promote;
pub(crate) mod seal_state;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::Duration;

use model::{Labels, TimeRange};
use roaring::RoaringBitmap;
use smol_str::SmolStr;
use tokio::sync::Notify;

use self::active_lsm::ActiveLsm;
pub(crate) use self::counters::CoreCounters;
use self::seal_state::SealState;
use crate::delete::Tombstones;
use crate::error::StoreError;
use crate::exemplar::ExemplarRing;
use crate::head::Head;
use crate::index::cache::IndexCache;
use crate::index::lists::KeptLists;
use crate::index::partition::PartitionIndex;
use crate::loaded::kept::KeptSets;
use crate::log::commit::{Log, LogTarget};
use crate::log::counters::LogCounters;
use crate::log::queue::Queue;
use crate::lsm::{Lsm, ReadTracker};
use crate::metadata::Metadata;
use crate::options::StoreOptions;
use crate::parallel::shares::apart;
use crate::retention::{
    ClockReading, Keeping, Observed, RETENTION_RULES_MAX, ReferenceTime, Retention, RetentionTime,
};
use crate::samples::columns::ColumnCache;
use crate::window::{PartitionId, TIME_MAX_MS, TIME_MIN_MS, TimeBounds};

/// Maximum age of a failed write whose error explains a stall: longer than SlateDB's retry
/// interval.
const REASON_SPAN_MIN: Duration = Duration::from_secs(5);

/// Number of registered series by partition.
pub(crate) type SeriesCounts = BTreeMap<PartitionId, u32>;

/// State that the tasks of a store share.
pub(crate) struct Core {
    pub(crate) lsm: ActiveLsm,
    pub(crate) head: Arc<Head>,
    /// Exemplars; their series may no longer be in the head.
    pub(crate) exemplar_ring: ExemplarRing,
    /// Metadata of metrics.
    pub(crate) metadata: Metadata,
    /// Decoded floats of earlier reads.
    pub(crate) columns: Arc<ColumnCache>,
    /// Loaded series of earlier selections.
    pub(crate) kept_sets: KeptSets,
    /// Label names and values of sealed partitions.
    pub(crate) kept_texts: KeptLists<SmolStr>,
    /// Label sets of sealed partitions.
    pub(crate) kept_series: KeptLists<Labels>,
    pub(crate) options: StoreOptions,
    /// Present retention.
    pub(crate) keeping: RwLock<Arc<Keeping>>,
    /// Reference time of the retention.
    pub(crate) reference: ReferenceTime,
    /// Stored value of the key of the rules.
    pub(crate) stored_rules: Mutex<Option<Vec<u8>>>,
    /// Running selections, which delay the deletion of data that they may read.
    pub(crate) selections: ReadTracker,
    /// Deletes whose samples are still in SSTs or the log.
    pub(crate) tombstones: Tombstones,
    /// Only writer of log and head.
    pub(crate) log: tokio::sync::Mutex<Log>,
    /// Counts of commits and refused writes.
    pub(crate) log_counters: LogCounters,
    /// Counts of seals, deletions and reads ahead of queries.
    pub(crate) counters: CoreCounters,
    /// Locked to seal, to delete, or to remove series; slots are not reused while it is locked.
    pub(crate) sealing: tokio::sync::Mutex<SealState>,
    /// Locked to clean up after deletes, before `sealing`.
    pub(crate) cleaning: tokio::sync::Mutex<()>,
    /// Partitions with their series.
    pub(crate) partitions: RwLock<SeriesCounts>,
    /// Cached indexes of the partitions.
    pub(crate) index: IndexCache,
    /// Set once the store is to be closed: a seal ends before its next window.
    pub(crate) is_closing: AtomicBool,
    /// Time of the next background cleanup of deletes after a failure.
    pub(crate) clean_from_ms: AtomicI64,
    /// Earliest time of the next replacement of samples by summaries.
    pub(crate) summarize_from_ms: AtomicI64,
    /// Time before which summaries replace samples, or are about to; writes before it are refused.
    pub(crate) summarized_before_ms: AtomicI64,
    pub(crate) queue: Queue,
    /// Notified when the leader of group commits ends.
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

    /// Returns the targets of a commit.
    pub(crate) fn log_target(&self) -> LogTarget<'_> {
        let Core { lsm, head, exemplar_ring, metadata, options, .. } = self;
        LogTarget { lsm, head, exemplar_ring, metadata, clock: &*options.clock }
    }

    /// Observes the clock. Returns the earliest visible time, in ms: the start of the first
    /// partition kept.
    pub(crate) fn observe_visible_min_ms(&self) -> i64 {
        let floor = self.floor_partition(self.observe_retention_time());
        let floor_ms = floor.map_or(i64::MIN, PartitionId::start_ms);
        self.head.changes.kept_from_ms().max(floor_ms)
    }

    /// Returns the first partition within the retention by time, if a limit is set and confirmed.
    pub(crate) fn floor_partition(&self, time: RetentionTime) -> Option<PartitionId> {
        self.keeping().floor_ms(time).map(PartitionId::of)
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
            // Earlier times may be visible again, and writes to deleted days be accepted again.
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

    /// Returns the time of the newest acknowledged sample. After a start with an empty log, that is
    /// the start of the newest day.
    fn newest_ms(&self) -> Option<i64> {
        let newest_day = self.read_partitions(|all| all.last_key_value().map(|(day, _)| *day));
        let sealed_ms = newest_day.map(PartitionId::start_ms);
        self.log_counters.newest_ms().max(sealed_ms)
    }

    /// Returns the current retention.
    pub(crate) fn keeping(&self) -> Arc<Keeping> {
        Arc::clone(&self.keeping.read().unwrap_or_else(PoisonError::into_inner))
    }

    pub(crate) fn set_retention(&self, retention: Retention) {
        assert!(retention.rules.len() <= RETENTION_RULES_MAX, "too many retention rules");
        // Times hidden by the previous retention stay hidden until maintenance releases the times
        // within the new retention.
        self.head.changes.note_deleted_before(self.observe_visible_min_ms());
        {
            let mut keeping = self.keeping.write().unwrap_or_else(PoisonError::into_inner);
            *keeping = Arc::new(Keeping::new(retention, &keeping));
        }
        self.has_retention.notify_one();
    }

    /// Returns the current partitions that overlap a time range, and a consistent view of the LSM
    /// to read them.
    pub(crate) fn partitions_between(&self, times: TimeRange) -> (Lsm, Vec<Arc<PartitionIndex>>) {
        let first = PartitionId::of(times.start_ms);
        let last = PartitionId::of(times.end_ms);
        self.read_partitions(|partitions| {
            // A follower replaces partitions and LSM view under this lock, so both agree.
            let lsm = self.lsm.fixed();
            if first > last {
                return (lsm, Vec::new());
            }
            let partitions = partitions.range(first..=last);
            (lsm, partitions.map(|(id, count)| self.index.partition(*id, *count)).collect())
        })
    }

    /// Counts the labels that the index shares with the head again, after the head has forgotten
    /// series.
    pub(crate) async fn count_shared_labels(self: &Arc<Core>) {
        let core = Arc::clone(self);
        // Fails only if the runtime ends.
        let _ = apart(move || core.index.count_again(&*core.head)).await;
    }

    /// Returns one partition in its current state, if it exists.
    pub(crate) fn partition(&self, partition: PartitionId) -> Option<Arc<PartitionIndex>> {
        self.read_partitions(|all| {
            all.get(&partition).map(|count| self.index.partition(partition, *count))
        })
    }

    pub(crate) fn read_partitions<T>(&self, read: impl FnOnce(&SeriesCounts) -> T) -> T {
        read(&self.partitions.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Returns the number of series that are registered in a partition.
    pub(crate) fn series_count(&self, partition: PartitionId) -> u32 {
        self.read_partitions(|partitions| partitions.get(&partition).copied().unwrap_or(0))
    }

    /// Sets the ids of a partition whose series have no samples left.
    pub(crate) fn set_deleted(&self, partition: PartitionId, deleted: RoaringBitmap) {
        // Together with the number of series, as in the look-ups.
        self.read_partitions(|_| self.index.set_deleted(partition, deleted));
    }

    /// Sets the number of series that are registered in a partition.
    pub(crate) fn set_series_count(&self, partition: PartitionId, series_count: u32) {
        let mut partitions = self.partitions.write().unwrap_or_else(PoisonError::into_inner);
        partitions.insert(partition, series_count);
    }

    /// Removes a deleted partition from the shared state.
    pub(crate) fn remove_partition(&self, partition: PartitionId) {
        let mut partitions = self.partitions.write().unwrap_or_else(PoisonError::into_inner);
        partitions.remove(&partition);
        self.index.remove(partition);
    }

    /// Returns whether writes are being committed.
    #[cfg(test)]
    pub(crate) fn is_committing(&self) -> bool {
        self.queue.is_committing()
    }

    /// Counts a refused write, and adds the error of the object store.
    pub(crate) fn refused(&self, error: StoreError) -> StoreError {
        match &error {
            StoreError::Stalled { .. } => self.log_counters.note_stalled(),
            StoreError::HeadFull { .. } => self.log_counters.note_head_full(),
            _ => {}
        }
        self.with_reason(error)
    }

    /// Adds the last error of the object store to a stall, if there was one recently.
    pub(crate) fn with_reason(&self, mut error: StoreError) -> StoreError {
        if let StoreError::Stalled { waited, reason, .. } = &mut error {
            *reason = self.lsm.write_failure((*waited).max(REASON_SPAN_MIN));
        }
        error
    }

    pub(crate) fn bounds(&self, keeping: &Keeping, time: RetentionTime) -> TimeBounds {
        let floor_ms = keeping.write_floor(time).map_or(TIME_MIN_MS, |(floor_ms, _)| floor_ms);
        let summarized_ms = self.summarized_before_ms.load(Ordering::Acquire);
        let ahead = self.options.ahead_max_ms;
        TimeBounds {
            min_ms: floor_ms
                .max(self.head.changes.kept_from_ms())
                .max(summarized_ms)
                .max(TIME_MIN_MS),
            max_ms: ahead.map_or(TIME_MAX_MS, |ms| time.now_ms.saturating_add(ms)).min(TIME_MAX_MS),
            out_of_order_window_ms: self.options.out_of_order_window_ms,
        }
    }
}
