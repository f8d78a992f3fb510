//! Reader: follows the store that another process writes to, with a head of its own.
//!
//! ```text
//! step     read the commits since the last step as rows, and a view that includes them
//! hide     hide deleted days; running selections of them may end first
//! show     publish the view and its partitions under one lock
//! apply    apply log records and the deletes between them to the head, in the order of both
//! drop     drop the windows that the view has sealed from the head
//! ```
//!
//! Sealed samples are shown before the head drops them, as in the writer. A selection copies from
//! the head first, so it finds them in at least one of both. Records are applied without checks, as
//! in a replay: a reader's head is that of a restarted writer.
//!
//! After a failed step, or if rows are missing, everything but the head is reloaded, and the log is
//! read from the last applied record on.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use bytes::Bytes;
use tokio::sync::Notify;

use crate::core::Core;
use crate::error::StoreError;
use crate::keys;
use crate::log::commit::Log;
use crate::log::replay::{Replay, check_ends};
use crate::lsm::{FollowStep, Lsm, LsmFollower, Row};
use crate::meta::{self, Meta};
use crate::seal;
use crate::window::PartitionId;

/// Interval of checking whether selections of deleted days have ended.
const READS_ENDED_INTERVAL: Duration = Duration::from_millis(20);
/// A reader keeps up if it is behind by at most this multiple of its lag, or by the minimum below.
const LAGS_BEHIND_MAX: u32 = 3;
const BEHIND_MIN: Duration = Duration::from_secs(10);

/// Lag of a reader behind the store, and counters of its steps.
pub(crate) struct Progress {
    lag: Duration,
    state: Mutex<FollowState>,
    steps: AtomicU64,
    gaps: AtomicU64,
    failures: AtomicU64,
    /// Notified when another attempt is wanted at once.
    wanted: Notify,
    /// Notified after each attempt.
    tried: Notify,
}

struct FollowState {
    /// Start of the last attempt that found nothing more.
    complete_at: Instant,
    /// Error of the last attempt.
    error: Option<StoreError>,
    /// Set once SSTs of the view are missing.
    has_lost_files: bool,
}

/// Lag of a reader behind the store.
#[derive(Debug, Clone)]
pub struct Behind {
    /// Time since the last complete attempt: writes acknowledged before it are visible.
    pub behind: Duration,
    /// The lag that it must keep.
    pub lag: Duration,
    /// Error of the last attempt to read new commits.
    pub error: Option<StoreError>,
}

/// Counters of a reader.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct FollowStats {
    /// Lag behind the store in ms.
    pub behind_ms: u64,
    /// Number of steps with changes.
    pub steps: u64,
    /// Number of steps whose rows were not all known.
    pub gaps: u64,
    /// Number of failed attempts.
    pub failures: u64,
}

impl Behind {
    /// Returns whether the reader is about within its lag.
    pub fn keeps_up(&self) -> bool {
        self.behind <= self.lag.saturating_mul(LAGS_BEHIND_MAX).max(BEHIND_MIN)
    }
}

impl Progress {
    fn new(lag: Duration) -> Progress {
        let state = FollowState { complete_at: Instant::now(), error: None, has_lost_files: false };
        Progress {
            lag,
            state: Mutex::new(state),
            steps: AtomicU64::new(0),
            gaps: AtomicU64::new(0),
            failures: AtomicU64::new(0),
            wanted: Notify::new(),
            tried: Notify::new(),
        }
    }

    /// Returns the lag of the reader.
    pub(crate) fn behind(&self) -> Behind {
        let state = self.lock();
        let behind = state.complete_at.elapsed();
        Behind { behind, lag: self.lag, error: state.error.clone() }
    }

    pub(crate) fn stats(&self) -> FollowStats {
        FollowStats {
            behind_ms: u64::try_from(self.behind().behind.as_millis()).unwrap_or(u64::MAX),
            steps: self.steps.load(Ordering::Relaxed),
            gaps: self.gaps.load(Ordering::Relaxed),
            failures: self.failures.load(Ordering::Relaxed),
        }
    }

    /// Requests a view with other SSTs, as some are missing, and waits for the attempt.
    pub(crate) async fn take_other_files(&self, patience: Duration) {
        let is_waiting = || self.lock().has_lost_files;
        self.lock().has_lost_files = true;
        let waiting = async {
            loop {
                let tried = self.tried.notified();
                self.wanted.notify_one();
                tried.await;
                // An attempt that was already under way did not know of it.
                if !is_waiting() {
                    return;
                }
            }
        };
        // After a timeout, the next read shows whether the files are there.
        let _ = tokio::time::timeout(patience, waiting).await;
    }

    /// Waits until another attempt is wanted at once.
    #[cfg(test)]
    pub(crate) async fn wanted(&self) {
        self.wanted.notified().await;
    }

    fn note(&self, began: Instant, result: &Result<(), StoreError>) {
        let mut state = self.lock();
        match result {
            Ok(()) => {
                if state.error.take().is_some() {
                    tracing::info!("the reader follows the store again");
                }
                state.complete_at = began;
            }
            Err(error) => {
                self.failures.fetch_add(1, Ordering::Relaxed);
                if state.error.is_none() {
                    tracing::warn!(
                        %error,
                        "the reader cannot follow the store; it answers from what it has"
                    );
                }
                state.error = Some(error.clone());
            }
        }
        drop(state);
        self.tried.notify_waiters();
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, FollowState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Follower of a store.
pub(crate) struct Follower {
    core: Arc<Core>,
    progress: Arc<Progress>,
    following: LsmFollower,
    replay: Replay,
    /// Records of the store about itself in the view that is shown.
    meta: Meta,
    /// First partition that is kept, as far as any has been deleted.
    first_kept: PartitionId,
    /// Set while a step is under way, and after an interrupted one.
    is_torn: bool,
}

impl Follower {
    /// Returns a follower that continues from a rebuilt state.
    pub(crate) fn new(
        core: Arc<Core>,
        following: LsmFollower,
        replay: Replay,
        meta: Meta,
        lag: Duration,
    ) -> Follower {
        let first_kept = meta.kept_from.unwrap_or(PartitionId::MIN);
        let progress = Arc::new(Progress::new(lag));
        let mut follower =
            Follower { core, progress, following, replay, meta, first_kept, is_torn: false };
        follower.following.note_applied();
        follower
    }

    /// Returns the lag.
    pub(crate) fn progress(&self) -> &Arc<Progress> {
        &self.progress
    }

    /// Applies all commits up to now.
    pub(crate) async fn catch_up(&mut self) -> Result<(), StoreError> {
        let began = Instant::now();
        if std::mem::take(&mut self.progress.lock().has_lost_files) {
            self.following.request_base();
        }
        let result = self.try_to_catch_up().await;
        self.progress.note(began, &result);
        if result.is_ok() {
            self.keep_files().await;
        }
        result
    }

    /// Applies the last commits of a fenced writer, and compares the result with the LSM that
    /// includes all of them, and with the records `meta` that it has of the store.
    ///
    /// Errors: the commits cannot be read or applied; the head is incomplete.
    pub(crate) async fn complete(&mut self, fenced: &Lsm, meta: &Meta) -> Result<(), StoreError> {
        // Old files of the log may be deleted; only a newer base shows that.
        self.following.request_base();
        self.catch_up().await?;
        let incomplete = |location: String, detail: &str| {
            Err(StoreError::Corrupt { location, detail: detail.to_owned() })
        };
        let log = self.core.log.lock().await;
        let (epoch, sequence) = self.replay.next_record(&log);
        if epoch >= meta.first_epoch
            && let Some(last) = sequence.checked_sub(1).map(|last| keys::log(epoch, last))
            && fenced.get(&last).await?.is_none()
        {
            let location = format!("log record {}", keys::printable(&last));
            return incomplete(location, "the head has it, and the log does not");
        }
        let next = keys::log(epoch, sequence).max(keys::log_epoch(meta.first_epoch));
        if let Some((key, _)) = fenced.first(&next, keys::LOG_END).await? {
            let location = format!("log record {}", keys::printable(&key));
            return incomplete(location, "the head does not have it");
        }
        check_ends(&log, meta)?;
        let known = &self.meta;
        let is_same = known.first_epoch == meta.first_epoch
            && known.watermarks == meta.watermarks
            && known.partitions == meta.partitions;
        match is_same {
            true => Ok(()),
            false => incomplete("the sealed windows".to_owned(), "a seal has not been followed"),
        }
    }

    /// Renews the checkpoints of views that are read.
    pub(crate) async fn keep_files(&mut self) {
        if let Err(error) = self.following.keep_files().await {
            tracing::warn!(%error, "the checkpoint of this reader cannot be renewed");
        }
    }

    /// Deletes the checkpoint of this reader.
    pub(crate) async fn close(&mut self) {
        self.following.close().await;
    }

    /// Deletes the checkpoint, and frees the memory of a reader that has become the writer.
    pub(crate) async fn retire(&mut self) {
        self.close().await;
        self.following.free_rows();
        self.replay = Replay::default();
    }

    async fn try_to_catch_up(&mut self) -> Result<(), StoreError> {
        let step = self.following.advance().await?;
        let step = step.or_else(|| self.is_torn.then(|| self.following.repeat_step()));
        if let Some(step) = step {
            self.take(step).await?;
            self.progress.steps.fetch_add(1, Ordering::Relaxed);
        }
        Ok(())
    }

    async fn take(&mut self, step: FollowStep) -> Result<(), StoreError> {
        let has_gap = std::mem::replace(&mut self.is_torn, true) || step.has_gap;
        let lsm = self.core.lsm.at(&step);
        let has_meta = step.rows.iter().any(|row| keys::is_meta(&row.key));
        let meta = if has_gap || has_meta { Some(meta::read_meta(&lsm).await?) } else { None };
        if has_gap {
            self.progress.gaps.fetch_add(1, Ordering::Relaxed);
            self.core.exemplar_ring.reload(&lsm).await?;
            self.core.metadata.reload(&lsm).await?;
        } else {
            self.take_exemplars_and_metadata(&step.rows);
        }
        if let Some(meta) = &meta {
            self.hide(meta).await;
        }
        self.show(&step, meta, has_gap);
        self.apply(&lsm, &step.rows, has_gap).await?;
        if has_gap || has_meta {
            self.drop_sealed().await;
            self.release();
        }
        if has_gap {
            self.core.head.changes.note(i64::MIN);
        }
        self.following.note_applied();
        self.is_torn = false;
        Ok(())
    }

    fn take_exemplars_and_metadata(&self, rows: &[Row]) {
        for Row { key, value, .. } in rows {
            if key.starts_with(keys::EXEMPLARS_PREFIX) {
                // Values deleted from the store have left the ring, or are about to.
                if let Some(value) = value {
                    self.core.exemplar_ring.follow(key, value);
                }
            } else if key.starts_with(keys::METADATA_PREFIX) {
                self.core.metadata.follow(key, value.as_ref());
            }
        }
    }

    /// Hides days deleted from the store, and waits for their running selections, at most for the
    /// lag.
    async fn hide(&mut self, meta: &Meta) {
        let kept_from = meta.kept_from.unwrap_or(PartitionId::MIN);
        let is_deleted = |partition: &&PartitionId| !meta.partitions.contains_key(partition);
        let deleted = self.core.read_partitions(|all| all.keys().filter(is_deleted).max().copied());
        let first_kept = kept_from.max(deleted.map_or(PartitionId::MIN, PartitionId::next));
        if first_kept <= self.first_kept {
            return;
        }
        self.first_kept = first_kept;
        let floor_ms = first_kept.start_ms();
        self.core.head.changes.note_deleted_before(floor_ms);
        self.core.head.changes.note_expired_before(floor_ms);
        let (began, next) = (Instant::now(), self.core.selections.next());
        while !self.core.selections.have_ended_before(next) && began.elapsed() < self.progress.lag {
            tokio::time::sleep(READS_ENDED_INTERVAL).await;
        }
    }

    /// Shows new writes to deleted days, once the log has no older records of them.
    fn release(&mut self) {
        if self.meta.kept_from.is_none() {
            self.first_kept = PartitionId::MIN;
            self.core.head.changes.release_deleted(i64::MIN);
        }
    }

    /// Publishes the view of a step and its partitions.
    fn show(&mut self, step: &FollowStep, meta: Option<Meta>, has_gap: bool) {
        let changed: BTreeSet<PartitionId> =
            step.rows.iter().filter_map(|row| keys::partition_of_directory(&row.key)).collect();
        let core = &self.core;
        let mut partitions = core.partitions.write().unwrap_or_else(PoisonError::into_inner);
        self.following.publish(step);
        if let Some(meta) = meta {
            for partition in partitions.keys().filter(|p| !meta.partitions.contains_key(p)) {
                core.index.remove(*partition);
                core.counters.note_deleted();
            }
            partitions.clone_from(&meta.partitions);
            for (partition, deleted) in &meta.deleted_ids {
                if self.meta.deleted_ids.get(partition) != Some(deleted) {
                    core.index.set_deleted(*partition, deleted.clone());
                }
            }
            self.meta = meta;
            core.tombstones.set(std::mem::take(&mut self.meta.tombstones));
        }
        if has_gap {
            partitions.keys().for_each(|partition| core.index.invalidate_runs(*partition));
        } else {
            changed.into_iter().for_each(|partition| core.index.invalidate_runs(partition));
        }
    }

    /// Applies new log records, and the deletes between them.
    async fn apply(&mut self, lsm: &Lsm, rows: &[Row], has_gap: bool) -> Result<(), StoreError> {
        let core = Arc::clone(&self.core);
        let mut log = core.log.lock().await;
        self.replay.expect_deletes(&core.tombstones.all());
        if has_gap {
            let (epoch, sequence) = self.replay.next_record(&log);
            let first = keys::log(epoch, sequence).max(keys::log_epoch(self.meta.first_epoch));
            let mut scan = lsm.scan(&first, keys::LOG_END).await?;
            while let Some((key, value)) = scan.next().await? {
                self.apply_record(&mut log, &key, &value).await?;
            }
        } else {
            for Row { key, value, .. } in rows {
                if let Some(value) = value
                    && keys::parse_log(key).is_some()
                {
                    self.apply_record(&mut log, key, value).await?;
                }
            }
        }
        self.replay.end_deletes(&core.head)
    }

    async fn apply_record(
        &mut self,
        log: &mut Log,
        key: &Bytes,
        value: &Bytes,
    ) -> Result<(), StoreError> {
        let core = &self.core;
        if self.replay.begins_epoch(key) {
            // References of the previous epoch name series by slots, and are not used any more.
            let now_ms = core.options.clock.now_ms();
            let idle_since_ms = seal::idle_since_ms(now_ms, log.newest_ms);
            if core.head.forget(|series| series.newest_ms < idle_since_ms) > 0 {
                core.count_shared_labels().await;
            }
        }
        let first_window = self.first_kept.first_window();
        let meta = &self.meta;
        let is_open = |window, epoch| window >= first_window && meta.is_open(window, epoch);
        let earliest_ms = self.replay.record(&core.head, log, key, value, is_open)?;
        core.log_counters.note_log(log.bytes(), log.newest_ms);
        // After its samples are visible, as for a write.
        if let Some(earliest_ms) = earliest_ms {
            core.head.changes.note(earliest_ms);
        }
        tokio::task::yield_now().await;
        Ok(())
    }

    /// Drops windows from the head that the view has sealed or deleted.
    async fn drop_sealed(&mut self) {
        let core = &self.core;
        let mut log = core.log.lock().await;
        let first_window = self.first_kept.first_window();
        let meta = &self.meta;
        let is_open = |window, epoch| window >= first_window && meta.is_open(window, epoch);
        let mut has_sealed = false;
        for (epoch, info) in &mut log.epochs {
            let before = info.windows.len();
            info.windows.retain(|window, _| is_open(*window, *epoch));
            has_sealed |= info.windows.len() < before;
        }
        let current = self.replay.epoch();
        // A start finds the records of all epochs from the first one on, open or not.
        let first_epoch = meta.first_epoch;
        log.epochs.retain(|epoch, info| {
            Some(*epoch) == current || *epoch >= first_epoch || !info.windows.is_empty()
        });
        if has_sealed {
            core.head.set_open(log.open_windows());
        }
        core.head.for_each(|_, series| {
            if has_sealed {
                core.head.note_shrunk(series.retain_open(is_open));
            }
            // Records that are applied after a gap may have no open samples.
            core.head.deactivate_if_empty(series);
        });
        core.log_counters.note_log(log.bytes(), log.newest_ms);
    }
}

/// Follows until it is ended, every half of the lag, or sooner if files are missing.
pub(crate) async fn follow_forever(follower: Arc<tokio::sync::Mutex<Follower>>) {
    let progress = Arc::clone(follower.lock().await.progress());
    let mut ticks = tokio::time::interval(progress.lag / 2);
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            _ = ticks.tick() => {}
            () = progress.wanted.notified() => {}
        }
        let result = follower.lock().await.catch_up().await;
        // Other errors are recorded, and the next attempt may succeed.
        if let Err(error @ StoreError::NewerFormat { .. }) = result {
            tracing::error!(%error, "the reader stops following the store");
            return;
        }
    }
}
