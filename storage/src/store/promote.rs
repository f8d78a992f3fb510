//! Promotion of a reader to the writer of its store: a warm standby.
//!
//! ```text
//! claim     the lock or the lease is free, has expired, or is taken on command
//! approach  apply what the writer has committed so far
//! fence     open the LSM for writing: an earlier writer cannot commit any more
//! complete  apply its last commits, and check that the log has no others
//! continue  exchange the LSM below the head, with its caches, in one step
//! begin     what every opening does: recover, record the owner, start the tasks, accept writes
//! ```
//!
//! Nothing that was acknowledged is missed, as the last commits are read after the fence. Selections
//! run all the time. If the head cannot be completed, the store is opened as at a start, and the
//! reader answers meanwhile.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::sync::{Mutex, watch};

use super::Store;
use super::open::{StoredMarks, begin_writing, overtaken, release_unless_open, write_tasks};
use crate::core::Core;
use crate::error::StoreError;
use crate::follow::Follower;
use crate::lsm::{Claim, Location, Lsm};
use crate::options::StoreOptions;
use crate::retention::Retention;
use crate::seal;

/// Interval of checking whether selections of the time before the promotion have ended, and whether
/// the store is closed during a replay.
const CHECK_INTERVAL: Duration = Duration::from_secs(1);

/// Right of this process to become the writer of a store.
pub struct StoreClaim {
    location: Location,
    claim: Claim,
}

impl StoreClaim {
    /// Gives the store up: another process can claim it at once.
    pub async fn release(self) {
        self.claim.release().await;
    }
}

impl Store {
    /// Claims a store once its writer has closed it, has ended, or has not renewed its lease; at
    /// once when `take_over` becomes true.
    ///
    /// Errors: as [`Store::open`]; [`StoreError::InUse`] if it is to take over a store on a local
    /// disk that is in use.
    pub async fn claim(
        url: &str,
        options: &StoreOptions,
        take_over: &mut watch::Receiver<bool>,
    ) -> Result<StoreClaim, StoreError> {
        let mut location = Location::parse(url, &options.remote)?;
        location.check().await?;
        Store::claim_at(location, options, take_over).await
    }

    /// Claims the store at a resolved location.
    pub(crate) async fn claim_at(
        location: Location,
        options: &StoreOptions,
        take_over: &mut watch::Receiver<bool>,
    ) -> Result<StoreClaim, StoreError> {
        let claim = Claim::wait(&location, options, take_over).await?;
        Ok(StoreClaim { location, claim })
    }

    /// Opens or creates a claimed store, and replays the log.
    ///
    /// Errors: as [`Store::open`].
    pub async fn open_claimed(
        claim: StoreClaim,
        options: StoreOptions,
    ) -> Result<Store, StoreError> {
        let StoreClaim { location, claim } = claim;
        let lsm = Lsm::open_claimed(&location, &options, claim, None).await.map_err(overtaken)?;
        release_unless_open(&lsm, Store::open_on(lsm.clone(), options).await).await
    }

    /// Returns the reason for which a reader cannot become the writer at present, if there is one.
    pub fn unpromotable(&self) -> Option<StoreError> {
        self.behind()?.error.filter(|error| !can_replay_after(error))
    }

    /// Returns whether this process writes to the store.
    pub fn is_writer(&self) -> bool {
        !self.core.lsm.is_read_only()
    }

    /// Makes a reader the writer of its store. Selections continue meanwhile.
    ///
    /// Returns `None` if it continues with its head. Otherwise returns the writer, which was opened
    /// as at a start; this store remains a reader.
    /// Errors: as [`Store::open`]. This store is still a reader, unless [`Store::is_writer`]; then
    /// it has to be closed.
    pub async fn promote(&self, claim: StoreClaim) -> Result<Option<Store>, StoreError> {
        let StoreClaim { location, claim } = claim;
        let core = &self.core;
        let Some(follower) = &self.follower else {
            claim.release().await;
            return Err(StoreError::ReadOnly);
        };
        let mut following = follower.lock().await;
        if self.is_writer() || core.is_closing.load(Ordering::Relaxed) {
            claim.release().await;
            return Err(StoreError::Closed);
        }
        // Before the fence, so that the time without a writer is short, and so that a standby that
        // cannot follow the store does not end a working writer.
        if let Err(error) = following.catch_up().await
            && (claim.is_taken_over() || !can_replay_after(&error))
        {
            claim.release().await;
            return Err(error);
        }
        let opened = Lsm::open_claimed(&location, &core.options, claim, Some(&core.lsm)).await;
        let lsm = opened.map_err(overtaken)?;
        let recovered = seal::recover(&lsm).await;
        let meta = recovered.inspect_err(|_| close_later(&lsm))?;
        if let Err(error) = following.complete(&lsm, &meta).await {
            tracing::warn!(
                %error,
                "the head of this standby cannot be used; it is rebuilt from the log"
            );
            return self.replay_instead(&mut following, lsm).await.map(Some);
        }
        let marks = StoredMarks::of(&meta);
        core.promote(lsm.clone(), meta).await.inspect_err(|_| close_later(&lsm))?;
        self.take_background().iter().for_each(tokio::task::JoinHandle::abort);
        begin_writing(core, marks).await?;
        core.queue.accept();
        let mut tasks = write_tasks(core);
        tasks.push(tokio::spawn(retire(Arc::clone(core), Arc::clone(follower))));
        self.lock_background().append(&mut tasks);
        // A close waits until here.
        drop(following);
        Ok(None)
    }

    /// Opens the store as at a start, on an LSM that is open for writing, with the retention in
    /// force. Releases the store if this reader is closed meanwhile.
    async fn replay_instead(
        &self,
        following: &mut Follower,
        lsm: Lsm,
    ) -> Result<Store, StoreError> {
        let core = &self.core;
        let Retention { time_ms, samples_ms, bytes, rules } = core.keeping().retention();
        let options = StoreOptions {
            retention_ms: time_ms,
            retention_samples_ms: samples_ms,
            retention_bytes: bytes,
            retention_rules: rules,
            ..core.options.clone()
        };
        let mut opening = Box::pin(Store::open_on(lsm.clone(), options));
        let is_closing = || core.is_closing.load(Ordering::Relaxed);
        loop {
            match tokio::time::timeout(CHECK_INTERVAL, &mut opening).await {
                Ok(opened) => {
                    let opened = opened.inspect_err(|_| close_later(&lsm))?;
                    if is_closing() {
                        opened.close().await?;
                        return Err(StoreError::Closed);
                    }
                    opened.core.head.changes.replace(&core.head.changes);
                    return Ok(opened);
                }
                Err(_) if is_closing() => {
                    drop(opening);
                    lsm.close().await?;
                    return Err(StoreError::Closed);
                }
                // Selections of this reader continue.
                Err(_) => following.keep_files().await,
            }
        }
    }

    /// Returns whether a step or a promotion of the follower is under way.
    #[cfg(test)]
    pub(crate) fn is_followed(&self) -> bool {
        self.follower.as_ref().is_some_and(|follower| follower.try_lock().is_err())
    }

    /// Closes a reader that another store has replaced, once its selections have ended.
    pub async fn close_after_reads(&self) -> Result<(), StoreError> {
        if let Some(follower) = &self.follower {
            wait_for_reads(&self.core, follower).await;
        }
        self.close().await
    }
}

/// Returns whether a replay of the log may give a head after a follower has failed.
fn can_replay_after(error: &StoreError) -> bool {
    matches!(error, StoreError::Corrupt { .. })
}

/// Closes an LSM that is not used, which releases the store. An outage delays this until its end.
fn close_later(lsm: &Lsm) {
    let lsm = lsm.clone();
    tokio::spawn(async move {
        if let Err(error) = lsm.close().await {
            tracing::warn!(%error, "the store cannot be closed after a failed promotion");
        }
    });
}

/// Closes a follower once no selection reads its views.
async fn retire(core: Arc<Core>, follower: Arc<Mutex<Follower>>) {
    wait_for_reads(&core, &follower).await;
    follower.lock().await.retire().await;
}

/// Waits until the selections up to now have ended, and keeps their files.
async fn wait_for_reads(core: &Core, follower: &Mutex<Follower>) {
    let next = core.selections.next();
    while !core.selections.have_ended_before(next) {
        follower.lock().await.keep_files().await;
        tokio::time::sleep(CHECK_INTERVAL).await;
    }
}
