//! Ownership of a store: a lock on a local disk, a lease on an object store.
//!
//! ```text
//! P/tessella/lock    local disk: a file that the writer locks (flock); it holds the owner as JSON
//! P/tessella/lease   object store: the owner as JSON, with a counter that grows with each renewal
//! ```
//!
//! Neither replaces fencing, which prevents that two writers are both acknowledged. They prevent
//! that a second writer fences off a working one.
//!
//! ```text
//! lock    held by a living process        → refused: the owner has to stop
//! lease   absent                          → taken
//!         of a dead process, this machine → taken at once
//!         unchanged for its duration      → taken; the observer's monotonic clock decides
//!         --take-over                     → taken at once, the owner is fenced off
//! ```
//!
//! A standby waits for a lock, too ([`Claim::wait`]), and may be promoted meanwhile.
//!
//! Clocks of two machines are never compared: an observer measures how long it has seen the same
//! bytes. [`crate::lsm::objects::guarded`] checks that the store is still the one that was opened.

mod process;

use std::fs::{File, OpenOptions, TryLockError};
use std::io::{self, Read, Seek, Write};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use slatedb::object_store::path::Path as ObjectPath;
use slatedb::object_store::{
    Error, ObjectStore, ObjectStoreExt, PutMode, PutOptions, UpdateVersion,
};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::Instant;

pub use process::LEASE_DURATION_MAX;
use process::{Owner, described};

use crate::error::StoreError;
use crate::lsm::compaction::orphans::unanswered;
use crate::lsm::objects::guarded::{self, OwnershipStatus};
use crate::lsm::{Location, OBJECT_STORE};
use crate::options::StoreOptions;

/// Names of the lock file and the lease object, in the folder of the LSM.
pub(super) const LOCK: &str = "lock";
pub(super) const LEASE: &str = "lease";
/// Number of renewals of a lease within its duration.
const RENEWALS: u32 = 3;
/// Number of checks of another owner's lease within its duration.
const CHECKS: u32 = 20;
/// Interval between attempts to lock a local store that another process has locked.
const LOCK_INTERVAL: Duration = Duration::from_millis(250);
/// Interval between checks of a local store.
const LOCAL_INTERVAL: Duration = Duration::from_secs(1);
/// Maximum length of a lock or a lease.
const OWNER_BYTES_MAX: u64 = 4096;

/// Right to open a store for writing, which this process has acquired ahead of the opening.
pub(crate) struct Claim(pub(super) Ownership);

impl Claim {
    /// Claims a store once its owner has released it, has ended, or has not renewed its lease; at
    /// once when `take_over` becomes true.
    ///
    /// Errors: [`StoreError::InUse`] if it is to take over a locked folder; the folder cannot be
    /// locked at all; the object store does not answer.
    pub(crate) async fn wait(
        location: &Location,
        options: &StoreOptions,
        take_over: &mut watch::Receiver<bool>,
    ) -> Result<Claim, StoreError> {
        Ownership::wait(location, options, take_over).await.map(Claim)
    }

    /// Returns whether another process held the lease when this one took it.
    pub(crate) fn is_taken_over(&self) -> bool {
        self.0.replaced.is_some()
    }

    /// Gives the store up, before the LSM is open: a process whose lease was taken over has it
    /// again, otherwise the next process can open the store at once.
    pub(crate) async fn release(self) {
        self.0.give_back().await;
    }
}

/// Ownership of a store, until it is released or dropped.
pub(super) struct Ownership {
    held: OwnerLock,
    status: Arc<OwnershipStatus>,
    watching: Option<JoinHandle<()>>,
    /// Lease of another process that had not expired when this process took it over.
    replaced: Option<Bytes>,
}

enum OwnerLock {
    /// A store in memory.
    Nothing,
    /// Lock of a local folder; `None` if the file system has no locks.
    Lock(Option<File>),
    Lease(Lease, Box<Owner>),
}

impl Ownership {
    /// Acquires a store for this process. Waits for another owner's lease to expire.
    ///
    /// Errors: [`StoreError::InUse`]; the lock cannot be created; the object store does not answer.
    pub(super) async fn acquire(
        location: &Location,
        options: &StoreOptions,
    ) -> Result<Ownership, StoreError> {
        let owner = Owner::this(options.address.clone());
        if let Some(folder) = location.lsm_folder() {
            let lock = lock(&folder, &owner)?;
            return Ok(Ownership::locked(&folder, lock));
        }
        let (_sender, mut take_over) = watch::channel(options.take_over);
        Ownership::acquire_remote(location, options, owner, &mut take_over).await
    }

    /// Acquires a store as [`Claim::wait`] does.
    async fn wait(
        location: &Location,
        options: &StoreOptions,
        take_over: &mut watch::Receiver<bool>,
    ) -> Result<Ownership, StoreError> {
        let owner = Owner::this(options.address.clone());
        let Some(folder) = location.lsm_folder() else {
            return Ownership::acquire_remote(location, options, owner, take_over).await;
        };
        loop {
            match lock(&folder, &owner) {
                Ok(Some(file)) => return Ok(Ownership::locked(&folder, Some(file))),
                Ok(None) => {
                    let detail = "the file system has no locks, so no standby can wait for one";
                    return Err(StoreError::Unavailable(format!("{}: {detail}", folder.display())));
                }
                Err(StoreError::InUse(_)) if !*take_over.borrow() => {}
                Err(error) => return Err(error),
            }
            pause(LOCK_INTERVAL, take_over).await;
        }
    }

    fn locked(folder: &Path, lock: Option<File>) -> Ownership {
        let status = Arc::new(OwnershipStatus::local(folder, LOCK));
        let watching = Some(tokio::spawn(watch_local(Arc::clone(&status))));
        Ownership { held: OwnerLock::Lock(lock), status, watching, replaced: None }
    }

    async fn acquire_remote(
        location: &Location,
        options: &StoreOptions,
        mut owner: Owner,
        take_over: &mut watch::Receiver<bool>,
    ) -> Result<Ownership, StoreError> {
        let status = Arc::new(OwnershipStatus::remote());
        if !location.has_lease {
            let held = OwnerLock::Nothing;
            return Ok(Ownership { held, status, watching: None, replaced: None });
        }
        let duration = options.lease_duration.min(LEASE_DURATION_MAX);
        owner.lease_ms = Some(u64::try_from(duration.as_millis()).unwrap_or(u64::MAX));
        let lease = Lease {
            objects: Arc::clone(&location.object_store),
            folder: location.path.clone(),
            is_conditional: location.has_conditional_overwrite,
            request_timeout: options.read_timeout,
            duration,
        };
        let replaced = lease.take(&mut owner, take_over).await?;
        let renewing = lease.clone().renew_forever(owner.clone(), Arc::clone(&status));
        let watching = Some(tokio::spawn(renewing));
        let held = OwnerLock::Lease(lease, Box::new(owner));
        Ok(Ownership { held, status, watching, replaced })
    }

    /// Returns the status of the store.
    pub(super) fn status(&self) -> &Arc<OwnershipStatus> {
        &self.status
    }

    /// Releases the store, whose LSM this process may not have opened. An earlier writer that was
    /// not fenced off still works, so it has its lease again.
    pub(super) async fn give_back(&self) {
        let (OwnerLock::Lease(lease, owner), Some(replaced)) = (&self.held, &self.replaced) else {
            return self.release().await;
        };
        if let Some(watching) = &self.watching {
            watching.abort();
        }
        if let Err(error) = lease.restore(owner, replaced.clone()).await {
            tracing::warn!(%error, "the lease of the store cannot be given back");
        }
    }

    /// Releases the store: the next process can open it at once.
    pub(super) async fn release(&self) {
        if let Some(watching) = &self.watching {
            watching.abort();
        }
        match &self.held {
            OwnerLock::Nothing => {}
            OwnerLock::Lock(file) => {
                // The owner's name is no longer true.
                drop(file.as_ref().map(|file| file.set_len(0)));
                self.unlock();
            }
            OwnerLock::Lease(lease, owner) => {
                if let Err(error) = lease.remove(owner).await {
                    tracing::warn!(%error, "the lease of the store cannot be removed");
                }
            }
        }
    }
}

impl Ownership {
    /// Unlocks a local folder; otherwise the lock ends with the last handle of the file.
    pub(super) fn unlock(&self) {
        if let OwnerLock::Lock(Some(file)) = &self.held
            && let Err(error) = file.unlock()
        {
            tracing::warn!(%error, "the folder of the store cannot be unlocked");
        }
    }
}

impl Drop for Ownership {
    fn drop(&mut self) {
        if let Some(watching) = &self.watching {
            watching.abort();
        }
    }
}

/// Locks a local folder. If the file system has no locks, logs that and returns `None`.
fn lock(folder: &Path, owner: &Owner) -> Result<Option<File>, StoreError> {
    let shown = folder.display();
    let unusable = |error: io::Error| StoreError::Unavailable(format!("{shown}: {error}"));
    guarded::create_folder(folder).map_err(unusable)?;
    let path = folder.join(LOCK);
    let opened = OpenOptions::new().read(true).write(true).create(true).truncate(false).open(path);
    let mut file = opened.map_err(unusable)?;
    match file.try_lock() {
        Ok(()) => {}
        Err(TryLockError::WouldBlock) => {
            let mut bytes = Vec::new();
            let _ = file.take(OWNER_BYTES_MAX).read_to_end(&mut bytes);
            return Err(StoreError::InUse(described(&bytes)));
        }
        Err(TryLockError::Error(error)) => {
            tracing::warn!(%error, folder = %shown, "the folder of the store cannot be locked");
            return Ok(None);
        }
    }
    let written = file.set_len(0).and_then(|()| {
        file.rewind()?;
        file.write_all(&owner.encode())
    });
    if let Err(error) = written {
        // The lock holds anyway; a full disk must not prevent reads of the store.
        tracing::warn!(%error, "the owner of the store cannot be written to its lock file");
    }
    Ok(Some(file))
}

/// Checks the store on the disk until it is lost. A disk that does not answer blocks only a
/// blocking thread.
async fn watch_local(status: Arc<OwnershipStatus>) {
    while status.lost().is_none() {
        let looked_at = Arc::clone(&status);
        // The status records the result.
        let _ = tokio::task::spawn_blocking(move || looked_at.check()).await;
        tokio::time::sleep(LOCAL_INTERVAL).await;
    }
}

/// Lease of a store on an object store.
#[derive(Clone)]
struct Lease {
    objects: Arc<dyn ObjectStore>,
    /// Folder of the LSM.
    folder: ObjectPath,
    is_conditional: bool,
    request_timeout: Duration,
    duration: Duration,
}

/// Lease as it was read.
struct FoundLease {
    bytes: Bytes,
    version: UpdateVersion,
}

/// Another owner's lease as observed.
struct Observed {
    bytes: Bytes,
    since: Instant,
    logged_at: Instant,
}

impl Lease {
    /// Takes the lease: at once if it is free, otherwise after it has expired. Returns the lease that
    /// it replaces if that had not expired.
    async fn take(
        &self,
        owner: &mut Owner,
        take_over: &mut watch::Receiver<bool>,
    ) -> Result<Option<Bytes>, StoreError> {
        let mut observed: Option<Observed> = None;
        loop {
            let is_taken_over = *take_over.borrow_and_update();
            let found = self.read().await?;
            let other = found.as_ref().filter(|found| !found.is_of(owner));
            let held = other.filter(|other| {
                let is_dead = |other: Owner| other.is_dead(owner);
                !Owner::decode(&other.bytes).is_some_and(is_dead)
                    && !self.is_expired(&other.bytes, observed.as_ref())
            });
            let replaced = held.map(|held| held.bytes.clone());
            if replaced.is_none() || is_taken_over {
                if let Some(other) = other {
                    let owner = described(&other.bytes);
                    tracing::warn!(owner, take_over = is_taken_over, "taking over the store");
                }
                if self.write(owner, found.map(|found| found.version)).await? {
                    return Ok(replaced);
                }
                // Another process was faster.
            } else if let Some(found) = found {
                self.observe(found.bytes, &mut observed);
            }
            pause(self.duration / CHECKS, take_over).await;
        }
    }

    /// Returns whether a lease has not changed for its owner's duration, which may differ from that
    /// of this process.
    fn is_expired(&self, bytes: &Bytes, observed: Option<&Observed>) -> bool {
        let duration = Owner::decode(bytes).map_or(self.duration, |owner| owner.lease_duration());
        observed.is_some_and(|o| o.bytes == bytes && o.since.elapsed() >= duration)
    }

    /// Records another owner's lease, and since when it is unchanged; logs it from time to time.
    fn observe(&self, bytes: Bytes, observed: &mut Option<Observed>) {
        let now = Instant::now();
        let owner = described(&bytes);
        let logged_at = observed.as_ref().map(|observed| observed.logged_at);
        if observed.as_ref().is_some_and(|observed| observed.bytes == bytes) {
            return;
        }
        let is_logged = logged_at.is_some_and(|logged_at| logged_at + self.duration > now);
        if !is_logged {
            let seconds = self.duration.as_secs();
            tracing::info!(
                owner,
                seconds,
                "the store is owned by another process; this one writes once that has stopped or \
                 has not renewed its lease for this time, and at once on command (--take-over at \
                 the start, POST /-/promote for a standby)"
            );
        }
        let logged_at = logged_at.filter(|_| is_logged).unwrap_or(now);
        *observed = Some(Observed { bytes, since: now, logged_at });
    }

    /// Renews the lease until the store is lost.
    async fn renew_forever(self, mut owner: Owner, status: Arc<OwnershipStatus>) {
        let mut is_failing = false;
        loop {
            tokio::time::sleep(self.duration / RENEWALS).await;
            match self.renew(&mut owner, &status).await {
                Ok(()) if is_failing => {
                    tracing::info!("the lease of the store is renewed again");
                    is_failing = false;
                }
                Ok(()) => {}
                Err(error @ StoreError::Lost(_)) => {
                    status.lose(error);
                    return;
                }
                Err(error) if !std::mem::replace(&mut is_failing, true) => {
                    tracing::warn!(%error, "the lease of the store cannot be renewed");
                }
                Err(_) => {}
            }
        }
    }

    /// Errors: [`StoreError::Lost`]; the object store does not answer.
    async fn renew(&self, owner: &mut Owner, status: &OwnershipStatus) -> Result<(), StoreError> {
        let limit = self.request_timeout;
        answered(limit, status.check_manifest(&self.objects, &self.folder)).await?;
        let found = self.read().await?;
        if let Some(found) = found.as_ref().filter(|found| !found.is_of(owner)) {
            let other = described(&found.bytes);
            return Err(StoreError::Lost(format!("it has been taken over by {other}")));
        }
        owner.renewals += 1;
        // If another process has changed it in between, the next renewal reports that.
        self.write(owner, found.map(|found| found.version)).await.map(drop)
    }

    /// Replaces the lease of `owner` by the one of another process.
    async fn restore(&self, owner: &Owner, replaced: Bytes) -> Result<(), StoreError> {
        match self.read().await?.filter(|found| found.is_of(owner)) {
            Some(found) => self.put(replaced, Some(found.version)).await.map(drop),
            None => Ok(()),
        }
    }

    async fn remove(&self, owner: &Owner) -> Result<(), StoreError> {
        let found = self.read().await?;
        if found.is_some_and(|found| found.is_of(owner)) {
            let path = self.path();
            let deleting = async {
                match self.objects.delete(&path).await {
                    Ok(()) | Err(Error::NotFound { .. }) => Ok(()),
                    Err(error) => Err(unavailable(&error)),
                }
            };
            answered(self.request_timeout, deleting).await?;
        }
        Ok(())
    }

    async fn read(&self) -> Result<Option<FoundLease>, StoreError> {
        let path = self.path();
        let reading = async {
            match self.objects.get(&path).await {
                Ok(found) => {
                    let (e_tag, version) = (found.meta.e_tag.clone(), found.meta.version.clone());
                    let bytes = found.bytes().await.map_err(|error| unavailable(&error))?;
                    let version = UpdateVersion { e_tag, version };
                    Ok(Some(FoundLease { bytes, version }))
                }
                Err(Error::NotFound { .. }) => Ok(None),
                Err(error) => Err(unavailable(&error)),
            }
        };
        answered(self.request_timeout, reading).await
    }

    /// Writes the lease over a version of it, or creates it. Returns `false` if another process has
    /// changed it.
    async fn write(&self, owner: &Owner, over: Option<UpdateVersion>) -> Result<bool, StoreError> {
        self.put(owner.encode().into(), over).await
    }

    async fn put(&self, lease: Bytes, over: Option<UpdateVersion>) -> Result<bool, StoreError> {
        let mode = match over {
            None => PutMode::Create,
            Some(version) if self.is_conditional => PutMode::Update(version),
            Some(_) => PutMode::Overwrite,
        };
        let path = self.path();
        let how = PutOptions { mode, ..PutOptions::default() };
        let writing = async {
            match self.objects.put_opts(&path, lease.into(), how).await {
                Ok(_) => Ok(true),
                Err(
                    Error::AlreadyExists { .. }
                    | Error::Precondition { .. }
                    | Error::NotFound { .. },
                ) => Ok(false),
                Err(error) => Err(unavailable(&error)),
            }
        };
        answered(self.request_timeout, writing).await
    }

    fn path(&self) -> ObjectPath {
        self.folder.clone().join(LEASE)
    }
}

/// Waits for an interval, or until `take_over` changes.
async fn pause(interval: Duration, take_over: &mut watch::Receiver<bool>) {
    let changed = async {
        // The sender of an opening without a standby is gone.
        if take_over.changed().await.is_err() {
            std::future::pending::<()>().await;
        }
    };
    let _ = tokio::time::timeout(interval, changed).await;
}

impl FoundLease {
    fn is_of(&self, owner: &Owner) -> bool {
        Owner::decode(&self.bytes).is_some_and(|found| found.id == owner.id)
    }
}

/// Waits for the object store, with a timeout.
async fn answered<T>(
    limit: Duration,
    request: impl Future<Output = Result<T, StoreError>>,
) -> Result<T, StoreError> {
    tokio::time::timeout(limit, request).await.unwrap_or_else(|_| Err(unanswered(limit)))
}

fn unavailable(error: &Error) -> StoreError {
    StoreError::Unavailable(format!("{OBJECT_STORE}: {error}"))
}

#[cfg(test)]
mod tests;
