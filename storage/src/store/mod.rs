//! The store: opens, appends, deletes and closes; reading is in [`crate::read`].

mod delete;
mod group_commit;
mod maintain;
mod open;
mod promote;
mod snapshot;
mod source;
mod stats;

use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use model::{Batch, Budget, BudgetError, Checkpoint, Matcher, TimeRange};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use crate::core::Core;
use crate::error::StoreError;
use crate::follow::{Behind, Follower, Progress};
use crate::head::TenantSeriesLimits;
use crate::head::cardinality::Cardinality;
use crate::head::created::CreatedStats;
use crate::keys;
use crate::log::queue::{BatchReservation, PendingWrite};
use crate::lsm::{Reader, WriteSet};
use crate::outcome::{AppendOutcome, RefusedSeries};
use crate::retention::Retention;
use crate::seal;
use crate::window::{PartitionId, Window};

#[cfg(test)]
pub(crate) use delete::begin_delete;
pub use promote::StoreClaim;
pub use stats::{DayStats, StoreStats};

/// Maximum time that a close waits for the end of a seal.
const SEAL_ENDS_TIMEOUT: Duration = Duration::from_secs(5);

/// An open store. Share it in an [`Arc`]; [`Store::close`] ends it properly.
pub struct Store {
    core: Arc<Core>,
    background: Mutex<Vec<JoinHandle<()>>>,
    /// Task that reads ahead of queries.
    warming: Option<JoinHandle<()>>,
    /// Follower of the store, if another process writes to it, or did until the promotion.
    follower: Option<Arc<tokio::sync::Mutex<Follower>>>,
    progress: Option<Arc<Progress>>,
}

impl Store {
    /// Returns the distance of a reader from the store; `None` if this process writes to it.
    pub fn behind(&self) -> Option<Behind> {
        self.following().map(|progress| progress.behind())
    }

    /// Returns the reason why this process may no longer write to the store: another process has
    /// taken it over, or it was deleted. Reads of a lost store are incomplete.
    pub fn lost(&self) -> Option<StoreError> {
        self.core.lsm.lost()
    }

    /// Waits until this process may no longer write to the store, and returns why. A store that is
    /// only read is never lost.
    pub async fn wait_until_lost(&self) -> StoreError {
        self.core.lsm.wait_until_lost().await
    }

    /// Returns the reason why all writes are rejected now, if they are.
    pub fn write_refusal(&self) -> Option<StoreError> {
        let core = &self.core;
        if let Err(error) = core.check_writable() {
            return Some(error);
        }
        if let Some(error) = core.queue.refusal() {
            return Some(error);
        }
        let (bytes, limit) = (core.head.bytes(), core.head.limits().bytes_max);
        if bytes >= limit {
            return Some(StoreError::HeadFull { bytes, limit });
        }
        let waited = core.queue.stalled(core.options.write_timeout)?;
        let error = StoreError::Stalled { waited, may_be_stored: false, reason: None };
        Some(core.with_reason(error))
    }

    /// Applies all writes so far of another process. The background task, if any, calls this.
    pub async fn catch_up(&self) -> Result<(), StoreError> {
        let Some(follower) = &self.follower else { return Ok(()) };
        let mut follower = follower.lock().await;
        if self.is_writer() { Ok(()) } else { follower.catch_up().await }
    }

    /// Applies new writes once a read has found files missing.
    #[cfg(test)]
    pub(crate) async fn catch_up_when_wanted(&self) -> Result<(), StoreError> {
        if let Some(progress) = &self.progress {
            progress.wanted().await;
        }
        self.catch_up().await
    }

    /// Waits for the follower after a read that failed on missing files. Returns whether a
    /// retry of the read may succeed.
    pub(crate) async fn has_other_files(&self, is_lost: bool) -> bool {
        match self.following() {
            Some(progress) if is_lost => {
                progress.take_other_files(self.core.options.read_timeout).await;
                true
            }
            _ => false,
        }
    }

    /// Appends samples, exemplars and metadata. Accepted ones are durable on return, and visible to
    /// the next selection.
    ///
    /// Samples of any age within the retention are accepted, in any order, unless
    /// [`StoreOptions::out_of_order_window_ms`] is set. Duplicates are ignored. Another value for
    /// the time of a raw sample in the head is rejected; for any other time, the later write wins.
    /// Waits for at most [`StoreOptions::write_timeout`]. A commit that has begun by then continues,
    /// since its success is unknown; a write that still waits is withdrawn and not stored.
    /// Errors: the samples may or may not be stored, unless the error says so; sending them again
    /// is safe. A caller that stops waiting does not stop the write.
    pub async fn append(&self, batch: Batch) -> Result<AppendOutcome, StoreError> {
        self.append_with(batch, None).await
    }

    /// Appends as [`Store::append`], and drops the reservation once the store has released the
    /// batch, possibly after the caller has stopped waiting.
    ///
    /// Errors: as [`Store::append`].
    pub async fn append_reserved(
        &self,
        batch: Batch,
        reservation: BatchReservation,
    ) -> Result<AppendOutcome, StoreError> {
        self.append_with(batch, Some(reservation)).await
    }

    async fn append_with(
        &self,
        batch: Batch,
        reservation: Option<BatchReservation>,
    ) -> Result<AppendOutcome, StoreError> {
        if batch.is_empty() {
            return Ok(AppendOutcome::default());
        }
        self.core.check_writable()?;
        let (bytes, limit) = (self.core.head.bytes(), self.core.head.limits().bytes_max);
        if bytes >= limit {
            return Err(self.core.refused(StoreError::HeadFull { bytes, limit }));
        }
        let (answer, outcome) = oneshot::channel();
        let pending = PendingWrite::new(&self.core.head, batch, reservation, answer);
        let patience = self.core.options.write_timeout;
        let queue = &self.core.queue;
        let pushed = queue.push(pending, self.core.options.queue_samples_max, patience);
        let (ticket, is_first) = pushed.map_err(|error| self.core.refused(error))?;
        if is_first {
            tokio::spawn(group_commit::lead(Arc::clone(&self.core)));
        }
        let Ok(outcome) = tokio::time::timeout(patience, outcome).await else {
            let may_be_stored = !queue.withdraw(ticket, patience);
            let error = StoreError::Stalled { waited: patience, may_be_stored, reason: None };
            return Err(self.core.refused(error));
        };
        outcome.unwrap_or_else(|_| {
            Err(StoreError::Unavailable("the commit task has ended".to_owned()))
        })
    }

    /// Deletes the samples, from `start_ms` to `end_ms`, of all series that pass every matcher of
    /// one of the selectors. The delete is durable on return, and no later selection sees the
    /// samples. It does not apply to later writes, whatever their time.
    ///
    /// Errors: more than [`TOMBSTONES_MAX`](crate::TOMBSTONES_MAX) deletes are not cleaned up yet;
    /// after any other error, the samples may or may not be deleted. Waits for at most
    /// [`StoreOptions::write_timeout`]; the delete continues after that.
    pub async fn delete(
        &self,
        selectors: Vec<Vec<Matcher>>,
        start_ms: i64,
        end_ms: i64,
    ) -> Result<(), StoreError> {
        if start_ms > end_ms || selectors.is_empty() {
            return Ok(());
        }
        if let Some(error) = self.core.queue.refusal() {
            return Err(error);
        }
        // Continues if the caller stops waiting, since a durable delete must be applied.
        let deleting =
            tokio::spawn(delete::delete(Arc::clone(&self.core), selectors, start_ms, end_ms));
        let patience = self.core.options.write_timeout;
        match tokio::time::timeout(patience, deleting).await {
            Ok(deleted) => deleted.map_err(|error| StoreError::Unavailable(error.to_string()))?,
            Err(_) => {
                let may_be_stored = true;
                let error = StoreError::Stalled { waited: patience, may_be_stored, reason: None };
                Err(self.core.refused(error))
            }
        }
    }

    /// Seals all samples of the head, including open windows.
    pub async fn seal_all(&self) -> Result<(), StoreError> {
        self.core.check_writable()?;
        seal::seal(&self.core, seal::SealExtent::All).await.map(drop)
    }

    /// Seals all samples of the head, flushes them to SSTs, and removes all empty series. Bounds
    /// the memory of an import, which writes many series once.
    pub async fn seal_and_forget(&self) -> Result<(), StoreError> {
        self.core.check_writable()?;
        seal::seal(&self.core, seal::SealExtent::All).await?;
        {
            // Blocks commits, so that no slot is reused.
            let _log = self.core.log.lock().await;
            self.core.head.forget(|_| true);
        }
        self.core.count_shared_labels().await;
        seal::write_out(&self.core).await
    }

    /// Returns bounds of the times of all samples, if there are any.
    pub async fn times(&self) -> Option<TimeRange> {
        let sealed = self.core.read_partitions(|partitions| {
            let first = partitions.first_key_value()?.0.start_ms();
            let last = partitions.last_key_value()?.0.end_ms() - 1;
            Some(TimeRange::new(first, last))
        });
        let log = self.core.log.lock().await;
        let open = log.epochs.values().flat_map(|info| info.windows.keys());
        let of_window = |window: &Window| TimeRange::new(window.start_ms(), window.end_ms() - 1);
        let all = sealed.into_iter().chain(open.map(of_window)).reduce(TimeRange::join)?;
        Some(TimeRange::new(all.start_ms.max(self.core.observe_visible_min_ms()), all.end_ms))
    }

    /// Removes deleted samples from the SSTs and frees their space. Query results do not change.
    ///
    /// Errors: damaged days are not cleaned, and their tombstones remain.
    pub async fn clean_tombstones(&self) -> Result<(), StoreError> {
        self.core.check_writable()?;
        let core = Arc::clone(&self.core);
        let cleaning = tokio::spawn(async move { seal::clean_tombstones(&core).await });
        cleaning.await.map_err(|error| StoreError::Unavailable(error.to_string()))?.map(drop)
    }

    /// Seals closed windows and deletes partitions beyond the retention. The background task, if
    /// any, calls this.
    pub async fn maintain(&self) -> Result<(), StoreError> {
        self.core.check_writable()?;
        while maintain::maintain(&self.core).await?.has_more {}
        Ok(())
    }

    /// Returns the refused samples of series beyond a limit of the head, by metric and limit.
    /// Beyond some tens of entries, other metrics are counted together.
    pub fn refused_series(&self) -> Vec<RefusedSeries> {
        self.core.head.refused_series()
    }

    /// Returns the metrics, labels and values with the most series in memory that pass all matchers,
    /// with at most `limit` entries in each list. Slow if there are many series.
    ///
    /// Errors: the query exceeds its budget.
    pub fn cardinality(
        &self,
        matchers: &[Matcher],
        limit: usize,
        budget: &Budget,
    ) -> Result<Cardinality, BudgetError> {
        self.core.head.cardinality(matchers, limit, &mut Checkpoint::new(budget))
    }

    /// Returns the number of active series of each tenant that has some, in any order.
    pub fn tenant_series(&self) -> Vec<(String, usize)> {
        self.core.head.tenant_series()
    }

    /// Sets the limits of active series by tenant, if [`StoreOptions::tenant_label`] is set.
    ///
    /// [`StoreOptions::tenant_label`]: crate::StoreOptions::tenant_label
    pub fn set_tenant_limits(&self, limits: TenantSeriesLimits) {
        self.core.head.set_tenant_limits(limits);
    }

    /// Returns the series that commits have created in the last 24 hours, of one metric or of all.
    /// `limit` is the maximum number of listed metrics.
    pub fn created_series(&self, metric: Option<&str>, limit: usize) -> CreatedStats {
        self.core.head.created.stats(self.now_ms(), metric, limit)
    }

    /// Returns the time of the store's clock, in ms since the epoch.
    pub fn now_ms(&self) -> i64 {
        self.core.options.clock.now_ms()
    }

    /// Returns the bytes of unsealed samples in memory, and of their series.
    pub fn head_bytes(&self) -> usize {
        self.core.head.bytes()
    }

    /// Returns the bytes that compactions have read.
    pub fn compacted_bytes(&self) -> u64 {
        self.core.lsm.read_counts()[Reader::Compaction as usize].bytes
    }

    /// Returns the sealed days, in ascending order.
    pub fn days(&self) -> Vec<DayStats> {
        let bytes = self.core.lsm.partition_bytes();
        let day = |(partition, series): (&PartitionId, &u32)| DayStats {
            start_ms: partition.start_ms(),
            end_ms: partition.end_ms(),
            series: u64::from(*series),
            bytes: bytes.get(partition).copied().unwrap_or(0),
        };
        self.core.read_partitions(|partitions| partitions.iter().map(day).collect())
    }

    /// Commits waiting writes, flushes, and closes the store. Later writes are refused.
    pub async fn close(&self) -> Result<(), StoreError> {
        if let Some(task) = &self.warming {
            task.abort();
        }
        self.core.is_closing.store(true, Ordering::Relaxed);
        // Not during a promotion: it ends first, or notices the close.
        let follower = match &self.follower {
            Some(follower) => Some(follower.lock().await),
            None => None,
        };
        let tasks = self.take_background();
        if !tasks.is_empty() {
            // A seal that is cut off is safe, but loses its work.
            let sealing = self.core.sealing.lock();
            let _sealing = tokio::time::timeout(SEAL_ENDS_TIMEOUT, sealing).await;
            tasks.iter().for_each(JoinHandle::abort);
            for task in tasks {
                // Only the end of the task matters.
                let _ = task.await;
            }
        }
        self.core.queue.refuse(&StoreError::Closed);
        loop {
            let idle = self.core.idle.notified();
            if !self.core.queue.is_led() {
                break;
            }
            idle.await;
        }
        let is_intact = self.core.log.lock().await.check().is_ok();
        let disowned = if is_intact && !self.core.lsm.is_read_only() {
            let mut set = WriteSet::default();
            set.delete(keys::OWNER);
            self.core.lsm.commit(set).await
        } else {
            Ok(())
        };
        if let Some(mut follower) = follower {
            follower.close().await;
        }
        let closed = self.core.lsm.close().await;
        disowned.and(closed)
    }

    /// Applies another retention from now on. Maintenance later releases hidden times within the
    /// new retention, with their samples unless these are already deleted.
    ///
    /// Panics: more rules than [`RETENTION_RULES_MAX`](crate::RETENTION_RULES_MAX).
    pub fn set_retention(&self, retention: Retention) {
        self.core.set_retention(retention);
    }

    fn take_background(&self) -> Vec<JoinHandle<()>> {
        std::mem::take(&mut *self.lock_background())
    }

    fn lock_background(&self) -> MutexGuard<'_, Vec<JoinHandle<()>>> {
        self.background.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the progress of a reader.
    fn following(&self) -> Option<&Arc<Progress>> {
        self.progress.as_ref().filter(|_| !self.is_writer())
    }

    /// Returns the state that the tasks of the store share.
    pub(crate) fn core(&self) -> &Arc<Core> {
        &self.core
    }
}

impl Drop for Store {
    fn drop(&mut self) {
        self.take_background().iter().for_each(JoinHandle::abort);
        if let Some(task) = &self.warming {
            task.abort();
        }
        // Tasks that end later may still share the core.
        self.core.lsm.unlock();
    }
}

impl std::fmt::Debug for Store {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Store").finish_non_exhaustive()
    }
}
