//! The store: opens, appends, deletes and closes; reading is in [`crate::read`].

mod delete;
mod group_commit;
mod maintain;
mod open;
mod snapshot;
mod source;
mod stats;

use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError};

use model::{Batch, Budget, BudgetError, Checkpoint, Matcher, TimeRange};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use crate::core::Core;
use crate::error::StoreError;
use crate::follow::{Behind, Follower, Progress};
use crate::head::cardinality::Cardinality;
use crate::keys;
use crate::log::queue::{BatchReservation, Pending};
use crate::lsm::WriteSet;
use crate::outcome::{AppendOutcome, RefusedSeries};
use crate::retention::Retention;
use crate::seal;
use crate::window::{WINDOW_MS, partition_end_ms};

#[cfg(test)]
pub(crate) use delete::begin_delete;
pub use stats::{DayStats, StoreStats};

/// An open store. Share it in an [`Arc`]; [`Store::close`] ends it properly.
pub struct Store {
    core: Arc<Core>,
    background: Mutex<Vec<JoinHandle<()>>>,
    /// Reads ahead of queries.
    warming: Option<JoinHandle<()>>,
    /// Follower of the store, if another process writes to it.
    follower: Option<Arc<tokio::sync::Mutex<Follower>>>,
    progress: Option<Arc<Progress>>,
}

impl Store {
    /// Returns the distance of a reader from the store; `None` if this process writes to it.
    pub fn behind(&self) -> Option<Behind> {
        self.progress.as_ref().map(|progress| progress.behind())
    }

    /// Why this process may no longer write to the store, as soon as that is known: another one has
    /// it, or it is gone. What is read here is not complete any more.
    pub fn lost(&self) -> Option<StoreError> {
        self.core.lsm.lost()
    }

    /// Waits until this process may no longer write to the store, and returns why. A store that is
    /// only read is never lost.
    pub async fn wait_until_lost(&self) -> StoreError {
        self.core.lsm.wait_until_lost().await
    }

    /// Why every write is refused at the moment, if it is.
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

    /// Takes in what another process has written by now. The background task calls this by itself,
    /// where there is one.
    pub async fn catch_up(&self) -> Result<(), StoreError> {
        match &self.follower {
            Some(follower) => follower.lock().await.catch_up().await,
            None => Ok(()),
        }
    }

    /// Takes in what is new once a read has found files missing.
    #[cfg(test)]
    pub(crate) async fn catch_up_when_wanted(&self) -> Result<(), StoreError> {
        if let Some(progress) = &self.progress {
            progress.wanted().await;
        }
        self.catch_up().await
    }

    /// Whether it is of use to read again, as a read has failed because files have gone: others
    /// have been taken then, if there are any.
    pub(crate) async fn has_other_files(&self, is_lost: bool) -> bool {
        match &self.progress {
            Some(progress) if is_lost => {
                progress.take_other_files(self.core.options.read_timeout).await;
                true
            }
            _ => false,
        }
    }

    /// Appends samples, exemplars and metadata; what the outcome calls accepted is durable, and
    /// seen by the next selection.
    ///
    /// Samples of any age within the retention are taken, in any order, unless
    /// [`StoreOptions::out_of_order_window_ms`] narrows that. A sample that is held already is
    /// ignored; another value for a time that is held is refused where the newest samples of
    /// the series tell, else the later write wins.
    /// It waits for [`StoreOptions::write_timeout`] at most. A write that has been begun by then
    /// goes on, since nobody can know whether the object store has it; one that has not is not
    /// stored.
    /// Errors: after one, whether the samples are kept is not known but where it says so; sending
    /// them again is safe. A caller that stops waiting does not stop the write.
    pub async fn append(&self, batch: Batch) -> Result<AppendOutcome, StoreError> {
        self.append_with(batch, None).await
    }

    /// Appends as [`Store::append`] does, and drops the reservation once the store has released the
    /// batch, which can be later than the caller stops waiting.
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
        let pending = Pending::new(&self.core.head, batch, reservation, answer);
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
            Err(StoreError::Unavailable("the task that commits has ended".to_owned()))
        })
    }

    /// Deletes the samples, from `start_ms` to `end_ms`, of all series that pass every matcher of
    /// one of the selectors. It is durable on return, and no later selection sees them; what is
    /// written from then on does not count, whatever its time.
    ///
    /// Errors: more than [`TOMBSTONES_MAX`](crate::TOMBSTONES_MAX) deletes wait to be cleaned up;
    /// after another error, whether the samples are deleted is not known. It waits for
    /// [`StoreOptions::write_timeout`] at most, and goes on behind that.
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
        // Goes on where the caller stops waiting: what is durable has to be applied.
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

    /// Seals whatever the head holds, open windows included.
    pub async fn seal_all(&self) -> Result<(), StoreError> {
        self.core.check_writable()?;
        seal::seal(&self.core, seal::Which::All).await.map(drop)
    }

    /// Seals whatever the head holds, writes it to files, and lets go of all series that hold
    /// nothing more: for those who write many series once, as an import does, and want to stay
    /// within a bound of memory.
    pub async fn seal_and_forget(&self) -> Result<(), StoreError> {
        self.core.check_writable()?;
        seal::seal(&self.core, seal::Which::All).await?;
        {
            // No commit gives a slot away meanwhile.
            let _log = self.core.log.lock().await;
            self.core.head.forget(|_| true);
        }
        seal::write_out(&self.core).await
    }

    /// The first and the last time that its samples may have, if there are some.
    pub async fn times(&self) -> Option<TimeRange> {
        let sealed = self.core.read_partitions(|partitions| {
            let first = partition_end_ms(partitions.first_key_value()?.0 - 1);
            let last = partition_end_ms(*partitions.last_key_value()?.0) - 1;
            Some(TimeRange::new(first, last))
        });
        let log = self.core.log.lock().await;
        let open = log.epochs.values().flat_map(|info| info.windows.keys());
        let of_window =
            |window: &i64| TimeRange::new(window * WINDOW_MS, (window + 1) * WINDOW_MS - 1);
        let all = sealed.into_iter().chain(open.map(of_window)).reduce(TimeRange::join)?;
        Some(TimeRange::new(all.start_ms.max(self.core.observe_visible_min_ms()), all.end_ms))
    }

    /// Takes deleted samples out of the files, and gives their space back. Answers do not change.
    ///
    /// Errors: what cannot be read stays, and its deletes with it.
    pub async fn clean_tombstones(&self) -> Result<(), StoreError> {
        self.core.check_writable()?;
        let core = Arc::clone(&self.core);
        let cleaning = tokio::spawn(async move { seal::clean_tombstones(&core).await });
        cleaning.await.map_err(|error| StoreError::Unavailable(error.to_string()))?.map(drop)
    }

    /// Seals windows that have closed, and deletes partitions beyond the retention. The
    /// background task calls this by itself, where there is one.
    pub async fn maintain(&self) -> Result<(), StoreError> {
        self.core.check_writable()?;
        maintain::maintain(&self.core).await.map(drop)
    }

    /// What has been refused of series for which the head had no room, by metric and limit: some
    /// tens at most, those of other metrics together.
    pub fn refused_series(&self) -> Vec<RefusedSeries> {
        self.core.head.refused_series()
    }

    /// Which metrics, labels and values have the most series in memory, with at most so many
    /// entries in each list. It takes a while where there are many series.
    ///
    /// Errors: those of the budget.
    pub fn cardinality(&self, limit: usize, budget: &Budget) -> Result<Cardinality, BudgetError> {
        self.core.head.cardinality(limit, &mut Checkpoint::new(budget))
    }

    /// The time of the store's clock, in ms since the epoch.
    pub fn now_ms(&self) -> i64 {
        self.core.options.clock.now_ms()
    }

    /// The sealed days, the earliest first.
    pub fn days(&self) -> Vec<DayStats> {
        let bytes = self.core.lsm.partition_bytes();
        let day = |(partition, series): (&i64, &u32)| DayStats {
            start_ms: partition_end_ms(partition - 1),
            end_ms: partition_end_ms(*partition),
            series: u64::from(*series),
            bytes: bytes.get(partition).copied().unwrap_or(0),
        };
        self.core.read_partitions(|partitions| partitions.iter().map(day).collect())
    }

    /// Commits what waits, writes everything out, and closes. Later writes are refused.
    pub async fn close(&self) -> Result<(), StoreError> {
        if let Some(task) = &self.warming {
            task.abort();
        }
        let tasks = self.take_background();
        if !tasks.is_empty() {
            // Not in the middle of a window: that would be safe, but its work would be lost.
            self.core.is_closing.store(true, Ordering::Relaxed);
            let _sealing = self.core.sealing.lock().await;
            tasks.iter().for_each(JoinHandle::abort);
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
        if let Some(follower) = &self.follower {
            follower.lock().await.close().await;
        }
        let closed = self.core.lsm.close().await;
        disowned.and(closed)
    }

    /// Applies another retention from now on. Times that are hidden stay so until maintenance, which
    /// releases those that the new retention keeps: with their samples, unless those are deleted.
    ///
    /// Panics: more rules than [`RETENTION_RULES_MAX`](crate::RETENTION_RULES_MAX).
    pub fn set_retention(&self, retention: Retention) {
        self.core.set_retention(retention);
    }

    fn take_background(&self) -> Vec<JoinHandle<()>> {
        std::mem::take(&mut *self.background.lock().unwrap_or_else(PoisonError::into_inner))
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
        // Tasks that end later may share what is open.
        self.core.lsm.unlock();
    }
}

impl std::fmt::Debug for Store {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Store").finish_non_exhaustive()
    }
}
