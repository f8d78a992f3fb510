//! Opening a store to write to it, to read it once, or to follow it.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::task::JoinHandle;

use crate::epoch::Epoch;
use crate::error::StoreError;
use crate::expiry;
use crate::follow::{Follower, follow_forever};
use crate::keys;
use crate::lsm::{Location, Lsm, SharedMemory, WriteSet};
use crate::meta::{self, Meta};
use crate::options::StoreOptions;
use crate::read::warm::warm_up;
use crate::seal;
use crate::value;
use crate::window::PartitionId;

use super::Store;
use super::maintain::{expire_forever, maintain_forever, order_forever};
use crate::core::Core;

impl Store {
    /// Opens or creates a store, and replays the log.
    ///
    /// On a local disk, no other process may have it open to write. On an object store, this waits
    /// until the lease of another owner has expired, unless [`StoreOptions::take_over`] is set;
    /// that owner can no longer write then.
    ///
    /// `url` is a plain path, `file:///path`, `memory:///`, `s3://bucket/prefix`,
    /// `gs://bucket/prefix` or `az://container/prefix`; settings of the last three that
    /// [`StoreOptions::remote`] lacks are read from the environment.
    /// Errors: an invalid URL; an unusable object store, with the reason, within seconds; another
    /// process has the store; its manifest is missing; damaged bytes.
    /// Panics: outside of a tokio runtime.
    pub async fn open(url: &str, options: StoreOptions) -> Result<Store, StoreError> {
        let mut location = Location::parse(url, &options.remote)?;
        location.check().await?;
        Store::open_at(&location, options).await.map_err(overtaken)
    }

    /// Opens a store on objects in memory, which other stores may share.
    pub async fn open_in(
        memory: &SharedMemory,
        options: StoreOptions,
    ) -> Result<Store, StoreError> {
        Store::open_at(&memory.location(), options).await
    }

    /// Opens the store at a resolved location.
    pub(crate) async fn open_at(
        location: &Location,
        options: StoreOptions,
    ) -> Result<Store, StoreError> {
        let lsm = Lsm::open(location, &options).await?;
        release_unless_open(&lsm, Store::open_on(lsm.clone(), options).await).await
    }

    /// Opens a store on an open LSM.
    pub(super) async fn open_on(lsm: Lsm, options: StoreOptions) -> Result<Store, StoreError> {
        let meta = seal::recover(&lsm).await?;
        let marks = StoredMarks::of(&meta);
        let (core, ..) = Core::open(lsm, meta, options).await?;
        // A replay creates deleted series again, without samples, from their log records.
        core.head.forget_deleted();
        begin_writing(&core, marks).await?;
        let background = Mutex::new(write_tasks(&core));
        let warming = core
            .options
            .warm_up_span_ms
            .map(|span_ms| tokio::spawn(warm_up(Arc::clone(&core), span_ms)));
        Ok(Store { core, background, warming, follower: None, progress: None })
    }

    /// Opens the current state of a store to read it, even if another process writes to it. Writes
    /// nothing, and does not see later writes.
    ///
    /// Another process that writes to the store may delete files that this one needs: reads then
    /// return an error.
    /// Errors: as [`Store::open`]; [`StoreError::NoStore`]. Methods that write return
    /// [`StoreError::ReadOnly`].
    pub async fn open_once(url: &str, options: StoreOptions) -> Result<Store, StoreError> {
        let location = Location::find(url, &options.remote)?;
        location.check_readable().await?;
        Store::open_once_at(&location, options).await
    }

    /// Opens the store at a resolved location.
    pub(crate) async fn open_once_at(
        location: &Location,
        options: StoreOptions,
    ) -> Result<Store, StoreError> {
        let (lsm, _) = Lsm::open_to_read(location, &options, false).await?;
        let meta = meta::read_meta(&lsm).await?;
        let (core, ..) = Core::open(lsm, meta, options).await?;
        let background = Mutex::default();
        Ok(Store { core, background, warming: None, follower: None, progress: None })
    }

    /// Opens a store to read it, and follows its writer: acknowledged writes are visible within the
    /// lag, as long as the object store responds.
    ///
    /// Writes checkpoints, which keep the files that it reads; they expire after 10 minutes.
    /// Errors: as [`Store::open_once`].
    pub async fn open_reader(
        url: &str,
        options: StoreOptions,
        lag: Duration,
    ) -> Result<Store, StoreError> {
        let location = Location::find(url, &options.remote)?;
        location.check_readable().await?;
        Store::open_reader_at(&location, options, lag).await
    }

    /// Opens the store at a resolved location.
    pub(crate) async fn open_reader_at(
        location: &Location,
        options: StoreOptions,
        lag: Duration,
    ) -> Result<Store, StoreError> {
        let (lsm, mut following) = Lsm::open_to_read(location, &options, true).await?;
        let rebuilt = async {
            let meta = meta::read_meta(&lsm).await?;
            Core::open(lsm, meta, options).await
        };
        let (core, replay, meta) = match rebuilt.await {
            Ok(rebuilt) => rebuilt,
            Err(error) => {
                following.close().await;
                return Err(error);
            }
        };
        let mut follower = Follower::new(Arc::clone(&core), following, replay, meta, lag);
        let progress = Arc::clone(follower.progress());
        // Applies writes during the replay. On failure, the follower retries later.
        let _ = follower.catch_up().await;
        let follower = Arc::new(tokio::sync::Mutex::new(follower));
        let mut background = Vec::new();
        if core.options.background {
            background.push(tokio::spawn(follow_forever(Arc::clone(&follower))));
            background.push(tokio::spawn(order_forever(Arc::clone(&core))));
        }
        let background = Mutex::new(background);
        let warm = |span_ms| tokio::spawn(warm_up(Arc::clone(&core), span_ms));
        let warming = core.options.warm_up_span_ms.map(warm);
        let (follower, progress) = (Some(follower), Some(progress));
        Ok(Store { core, background, warming, follower, progress })
    }
}

/// Records of the store that an opening replaces.
pub(super) struct StoredMarks {
    format: u32,
    kept_by_size: Option<(PartitionId, u64)>,
}

impl StoredMarks {
    /// Returns those of a store, and logs its last writer if that has not closed it.
    pub(super) fn of(meta: &Meta) -> StoredMarks {
        if let Some(owner) = &meta.owner {
            tracing::warn!(
                owner,
                "the store was not closed by its last writer; this process has taken it over"
            );
        }
        StoredMarks { format: meta.format, kept_by_size: meta.kept_by_size }
    }
}

/// Records this process as the writer of a store whose state is in memory.
pub(super) async fn begin_writing(core: &Arc<Core>, found: StoredMarks) -> Result<(), StoreError> {
    tracing::info!("this process is now the writer of the store");
    let mut set = WriteSet::default();
    let owner = core.options.owner.as_bytes();
    set.put(keys::OWNER.to_vec(), value::encode(keys::OWNER, owner));
    // With the counts, the next start detects records missing at the end of an epoch.
    let records: Vec<(Epoch, u64)> =
        core.log.lock().await.epochs.iter().map(|(e, info)| (*e, info.record_count)).collect();
    set.put(keys::RECORDS.to_vec(), meta::encode_records(&records));
    if found.format < meta::FORMAT {
        // No conversion is needed: values of earlier formats can be read.
        set.put(keys::FORMAT.to_vec(), value::encode_u32(keys::FORMAT, meta::FORMAT));
    }
    if expiry::hide_by_size(core, found.kept_by_size) {
        set.delete(keys::KEPT_BY_SIZE);
    }
    core.lsm.commit(set).await?;
    expiry::drop_dead_log(core, &mut *core.sealing.lock().await).await?;
    seal::note_emptied(core).await;
    Ok(())
}

/// Starts the background tasks of a writer.
pub(super) fn write_tasks(core: &Arc<Core>) -> Vec<JoinHandle<()>> {
    if !core.options.background {
        return Vec::new();
    }
    // Separate tasks, so that expiry by rules does not wait for seals.
    vec![
        tokio::spawn(maintain_forever(Arc::clone(core))),
        tokio::spawn(expire_forever(Arc::clone(core))),
        tokio::spawn(order_forever(Arc::clone(core))),
    ]
}

/// Releases the ownership of an LSM whose store cannot be opened.
pub(super) async fn release_unless_open<T>(
    lsm: &Lsm,
    opened: Result<T, StoreError>,
) -> Result<T, StoreError> {
    match &opened {
        Ok(_) => {}
        // This version must not write to the store.
        Err(StoreError::NewerFormat { .. }) => lsm.close().await?,
        Err(_) => lsm.release_ownership().await,
    }
    opened
}

/// Names the cause if a store is lost while it is opened.
pub(super) fn overtaken(error: StoreError) -> StoreError {
    match error {
        StoreError::Fenced => StoreError::Overtaken,
        error => error,
    }
}
