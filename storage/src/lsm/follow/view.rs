//! Snapshot of an LSM that another process writes to.
//!
//! ```text
//! base    the SSTs of one manifest, pinned by a checkpoint
//! added   the last row of each key that is in the WAL and not in these SSTs
//! ```
//!
//! A view is immutable: readers see all of a commit or nothing, and the checkpoint keeps its SSTs.
//! SlateDB's own reader changes its state during reads, releases the previous checkpoint at once,
//! and stops for good if a manifest look-up fails. So only readers of one fixed checkpoint are
//! used.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use slatedb::admin::Admin;
use slatedb::config::{CheckpointOptions, DbReaderOptions};
use slatedb::db_cache::DbCache;
use slatedb::object_store::ObjectStore;
use slatedb::object_store::path::Path as ObjectPath;
use slatedb::{CheckpointCreateResult, DbReader, DbReaderMode, VersionedManifest};

use crate::error::StoreError;
use crate::lsm::read::in_time;
use crate::lsm::settings::Segments;
use crate::options::StoreOptions;

/// Timeout for one request to the manifest, retries included.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(30);
/// Poll interval of a reader without checkpoint: never.
const NEVER: Duration = Duration::from_secs(100 * 365 * 86_400);

/// Key, and its value after a commit.
#[derive(Debug, Clone)]
pub(crate) struct Row {
    pub(crate) key: Bytes,
    /// `None` if it was deleted.
    pub(crate) value: Option<Bytes>,
    /// Sequence number of the commit.
    pub(crate) seq: u64,
}

/// Last row of each key.
pub(in crate::lsm) type WalRows = BTreeMap<Bytes, (u64, Option<Bytes>)>;

/// Snapshot of the LSM.
pub(crate) struct View {
    pub(in crate::lsm) base: Arc<ViewBase>,
    pub(in crate::lsm) added: Arc<WalRows>,
}

/// SSTs of one manifest.
pub(crate) struct ViewBase {
    pub(in crate::lsm) reader: DbReader,
    pub(in crate::lsm) manifest: VersionedManifest,
    /// Checkpoint that pins the SSTs; `None` if nothing may be written.
    pub(in crate::lsm) checkpoint: Option<CheckpointCreateResult>,
}

/// Location of the LSM, and what its views share.
#[derive(Clone)]
pub(in crate::lsm) struct ViewLocation {
    /// Metered, with the disk cache.
    pub(in crate::lsm) objects: Arc<dyn ObjectStore>,
    pub(in crate::lsm) path: ObjectPath,
    pub(in crate::lsm) cache: Arc<dyn DbCache>,
    pub(in crate::lsm) retries_max: Option<u32>,
    pub(in crate::lsm) checkpoint_lifetime: Duration,
}

impl ViewLocation {
    /// Returns a client for manifests and checkpoints.
    fn admin(&self) -> Admin {
        Admin::builder(self.path.clone(), Arc::clone(&self.objects)).build()
    }

    /// Returns the newest manifest, if there is a store.
    pub(in crate::lsm) async fn newest_manifest(
        &self,
    ) -> Result<Option<VersionedManifest>, StoreError> {
        in_time(REQUEST_TIMEOUT, self.admin().read_manifest(None)).await
    }

    /// Opens the SSTs of the newest manifest, and pins them by a checkpoint.
    pub(in crate::lsm) async fn pin(&self) -> Result<ViewBase, StoreError> {
        let options = CheckpointOptions {
            lifetime: Some(self.checkpoint_lifetime),
            name: Some(format!("reader, process {}", std::process::id())),
            ..CheckpointOptions::default()
        };
        let created =
            in_time(REQUEST_TIMEOUT, self.admin().create_detached_checkpoint(&options)).await?;
        match self.open(DbReaderMode::Checkpoint(created.id)).await {
            Ok(reader) => {
                let manifest = reader.manifest();
                Ok(ViewBase { reader, manifest, checkpoint: Some(created) })
            }
            Err(error) => {
                // If this fails, the checkpoint expires.
                let _ = self.unpin(&created).await;
                Err(error)
            }
        }
    }

    /// Opens the SSTs of the newest manifest without a checkpoint: nothing is written.
    pub(in crate::lsm) async fn look(&self) -> Result<ViewBase, StoreError> {
        let reader = self.open(DbReaderMode::FollowLatest).await?;
        let manifest = reader.manifest();
        Ok(ViewBase { reader, manifest, checkpoint: None })
    }

    async fn open(&self, mode: DbReaderMode) -> Result<DbReader, StoreError> {
        let options = DbReaderOptions {
            manifest_poll_interval: NEVER,
            // [`crate::lsm::follow::tail`] reads the WAL.
            skip_wal_replay: true,
            object_store_max_retries: self.retries_max,
            ..DbReaderOptions::default()
        };
        let opening = DbReader::builder(self.path.clone(), Arc::clone(&self.objects))
            .with_reader_mode(mode)
            .with_options(options)
            .with_segment_extractor(Arc::new(Segments))
            .with_db_cache(Arc::clone(&self.cache), 0)
            .build();
        in_time(REQUEST_TIMEOUT, opening).await
    }

    /// Extends a checkpoint by another lifetime.
    ///
    /// Errors: [`StoreError::Corrupt`] if the checkpoint has expired.
    pub(in crate::lsm) async fn renew(
        &self,
        pinned: &CheckpointCreateResult,
    ) -> Result<(), StoreError> {
        in_time(
            REQUEST_TIMEOUT,
            self.admin().refresh_checkpoint(pinned.id, Some(self.checkpoint_lifetime)),
        )
        .await
    }

    /// Deletes a checkpoint.
    pub(in crate::lsm) async fn unpin(
        &self,
        pinned: &CheckpointCreateResult,
    ) -> Result<(), StoreError> {
        in_time(REQUEST_TIMEOUT, self.admin().delete_checkpoint(pinned.id)).await
    }
}

impl ViewLocation {
    /// Creates a location with the layers that its reads pass.
    pub(in crate::lsm) fn new(
        path: ObjectPath,
        objects: Arc<dyn ObjectStore>,
        cache: Arc<dyn DbCache>,
        checkpoint_lifetime: Duration,
        options: &StoreOptions,
    ) -> ViewLocation {
        let retries_max = options.object_store_retries_max;
        ViewLocation { objects, path, cache, retries_max, checkpoint_lifetime }
    }
}

impl View {
    /// Creates a view without WAL rows.
    pub(in crate::lsm) fn of(base: ViewBase) -> View {
        View { base: Arc::new(base), added: Arc::default() }
    }

    /// Returns the WAL's value of a key: `None` if the WAL does not have it, `Some(None)` if it was
    /// deleted.
    pub(in crate::lsm) fn added(&self, key: &[u8]) -> Option<Option<Bytes>> {
        self.added.get(key).map(|(_, value)| value.clone())
    }
}

/// Scan that merges the WAL rows of a view with its SSTs.
pub(in crate::lsm) struct MergedScan {
    view: Arc<View>,
    from: Bound<Bytes>,
    end: ScanEnd,
    /// Next entry of the SSTs, once it has been read.
    in_files: Option<Option<(Bytes, Bytes)>>,
}

/// End of a scan.
pub(in crate::lsm) enum ScanEnd {
    Before(Bytes),
    AfterPrefix(Bytes),
}

/// Next step of a scan.
pub(in crate::lsm) enum ScanStep {
    /// The caller has to read the SSTs and call [`MergedScan::put`].
    Unknown,
    /// The next entry, or the end.
    Known(Option<(Bytes, Bytes)>),
}

impl MergedScan {
    /// Creates a scan that starts at a key.
    pub(in crate::lsm) fn new(view: &Arc<View>, from: &[u8], end: ScanEnd) -> MergedScan {
        let from = Bound::Included(Bytes::copy_from_slice(from));
        MergedScan { view: Arc::clone(view), from, end, in_files: None }
    }

    /// Sets the next entry of the SSTs.
    pub(in crate::lsm) fn put(&mut self, in_files: Option<(Bytes, Bytes)>) {
        self.in_files = Some(in_files);
    }

    /// Returns the next entry, if it is known.
    pub(in crate::lsm) fn next(&mut self) -> ScanStep {
        loop {
            let Some(in_files) = &self.in_files else { return ScanStep::Unknown };
            let range = (self.from.as_ref(), Bound::Unbounded);
            let added = self.view.added.range::<Bytes, _>(range).next();
            let Some((key, (_, value))) = added.filter(|(key, _)| self.end.contains(key)) else {
                return ScanStep::Known(self.take_in_files());
            };
            match in_files {
                Some((other, _)) if other < key => return ScanStep::Known(self.take_in_files()),
                // The row of the WAL is newer.
                Some((other, _)) if other == key => self.in_files = None,
                _ => {}
            }
            let (key, value) = (key.clone(), value.clone());
            self.from = Bound::Excluded(key.clone());
            if let Some(value) = value {
                return ScanStep::Known(Some((key, value)));
            }
        }
    }

    fn take_in_files(&mut self) -> Option<(Bytes, Bytes)> {
        match self.in_files.take() {
            Some(Some(entry)) => Some(entry),
            // The end of the SSTs has been reached.
            _ => {
                self.in_files = Some(None);
                None
            }
        }
    }
}

impl ScanEnd {
    fn contains(&self, key: &Bytes) -> bool {
        match self {
            ScanEnd::Before(end) => key < end,
            ScanEnd::AfterPrefix(prefix) => key.starts_with(prefix),
        }
    }
}
