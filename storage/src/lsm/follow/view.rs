//! The tree of a store that another process writes to, as it was at one time.
//!
//! ```text
//! base    the files of one manifest, pinned by a checkpoint
//! added   the last row of each key that is in the write-ahead log and not in these files
//! ```
//!
//! A view never changes: whoever reads through it sees all of a commit or nothing, and no file of it
//! goes while the checkpoint holds. slatedb's own reader exchanges what it shows while it is read,
//! gives the checkpoint before up at once, and stops for good where a look at the manifest fails; so
//! of it only a reader of one fixed checkpoint is used.

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
use crate::lsm::settings::Segments;
use crate::lsm::store_error;
use crate::options::StoreOptions;

/// How long one request of ours to the lists of files may take with all its repetitions.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(30);
/// How often a reader without checkpoint looks for another manifest by itself: never.
const NEVER: Duration = Duration::from_secs(100 * 365 * 86_400);

/// A key and what a commit has made of it.
#[derive(Debug, Clone)]
pub(crate) struct Row {
    pub(crate) key: Bytes,
    /// None where it has been deleted.
    pub(crate) value: Option<Bytes>,
    /// The number of the commit.
    pub(crate) seq: u64,
}

/// Rows by key.
pub(in crate::lsm) type WalRows = BTreeMap<Bytes, (u64, Option<Bytes>)>;

/// The tree at one time.
pub(crate) struct View {
    pub(in crate::lsm) base: Arc<ViewBase>,
    pub(in crate::lsm) added: Arc<WalRows>,
}

/// The files of one manifest.
pub(crate) struct ViewBase {
    pub(in crate::lsm) reader: DbReader,
    pub(in crate::lsm) manifest: VersionedManifest,
    /// What keeps the files; none where nothing may be written.
    pub(in crate::lsm) checkpoint: Option<CheckpointCreateResult>,
}

/// Where the tree lies, and what its readers share.
#[derive(Clone)]
pub(in crate::lsm) struct ViewLocation {
    /// Metered, and with the cache on disk.
    pub(in crate::lsm) objects: Arc<dyn ObjectStore>,
    pub(in crate::lsm) path: ObjectPath,
    pub(in crate::lsm) cache: Arc<dyn DbCache>,
    pub(in crate::lsm) retries_max: Option<u32>,
    pub(in crate::lsm) checkpoint_lifetime: Duration,
}

impl ViewLocation {
    /// What lists the files.
    fn admin(&self) -> Admin {
        Admin::builder(self.path.clone(), Arc::clone(&self.objects)).build()
    }

    /// The newest manifest, if there is a store.
    pub(in crate::lsm) async fn newest_manifest(
        &self,
    ) -> Result<Option<VersionedManifest>, StoreError> {
        in_time(self.admin().read_manifest(None)).await
    }

    /// The files of the newest manifest, kept by a checkpoint.
    pub(in crate::lsm) async fn pin(&self) -> Result<ViewBase, StoreError> {
        let options = CheckpointOptions {
            lifetime: Some(self.checkpoint_lifetime),
            name: Some(format!("reader, process {}", std::process::id())),
            ..CheckpointOptions::default()
        };
        let created = in_time(self.admin().create_detached_checkpoint(&options)).await?;
        match self.open(DbReaderMode::Checkpoint(created.id)).await {
            Ok(reader) => {
                let manifest = reader.manifest();
                Ok(ViewBase { reader, manifest, checkpoint: Some(created) })
            }
            Err(error) => {
                // It ends by itself where this fails.
                let _ = self.unpin(&created).await;
                Err(error)
            }
        }
    }

    /// The files of the newest manifest, kept by nothing: nothing is written.
    pub(in crate::lsm) async fn look(&self) -> Result<ViewBase, StoreError> {
        let reader = self.open(DbReaderMode::FollowLatest).await?;
        let manifest = reader.manifest();
        Ok(ViewBase { reader, manifest, checkpoint: None })
    }

    async fn open(&self, mode: DbReaderMode) -> Result<DbReader, StoreError> {
        let options = DbReaderOptions {
            manifest_poll_interval: NEVER,
            // The log is read by [`crate::lsm::follow::tail`].
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
        in_time(opening).await
    }

    /// Keeps the files of a checkpoint for another lifetime.
    ///
    /// Errors: [`StoreError::Corrupt`] where the checkpoint has ended.
    pub(in crate::lsm) async fn renew(
        &self,
        pinned: &CheckpointCreateResult,
    ) -> Result<(), StoreError> {
        in_time(self.admin().refresh_checkpoint(pinned.id, Some(self.checkpoint_lifetime))).await
    }

    /// Lets go of the files of a checkpoint.
    pub(in crate::lsm) async fn unpin(
        &self,
        pinned: &CheckpointCreateResult,
    ) -> Result<(), StoreError> {
        in_time(self.admin().delete_checkpoint(pinned.id)).await
    }
}

impl ViewLocation {
    /// The place of a location, with what its reads pass.
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

/// Waits for a request, but not for ever.
async fn in_time<T>(
    request: impl Future<Output = Result<T, slatedb::Error>>,
) -> Result<T, StoreError> {
    match tokio::time::timeout(REQUEST_TIMEOUT, request).await {
        Ok(result) => result.map_err(|error| store_error(&error)),
        Err(_) => Err(StoreError::Unavailable(format!(
            "the object store has not answered for {} s",
            REQUEST_TIMEOUT.as_secs()
        ))),
    }
}

impl View {
    /// A view of some files without more.
    pub(in crate::lsm) fn of(base: ViewBase) -> View {
        View { base: Arc::new(base), added: Arc::default() }
    }

    /// What the log says of a key: some where it says anything.
    pub(in crate::lsm) fn added(&self, key: &[u8]) -> Option<Option<Bytes>> {
        self.added.get(key).map(|(_, value)| value.clone())
    }
}

/// What the log adds to a scan.
pub(in crate::lsm) struct MergedScan {
    view: Arc<View>,
    from: Bound<Bytes>,
    end: ScanEnd,
    /// What the files have next, once it has been asked for.
    in_files: Option<Option<(Bytes, Bytes)>>,
}

/// Where a scan ends.
pub(in crate::lsm) enum ScanEnd {
    Before(Bytes),
    AfterPrefix(Bytes),
}

/// What comes next in a scan.
pub(in crate::lsm) enum ScanStep {
    /// Ask the files, and hand it in.
    Unknown,
    /// This, or the end.
    Known(Option<(Bytes, Bytes)>),
}

impl MergedScan {
    /// A scan of a view from a key on.
    pub(in crate::lsm) fn new(view: &Arc<View>, from: &[u8], end: ScanEnd) -> MergedScan {
        let from = Bound::Included(Bytes::copy_from_slice(from));
        MergedScan { view: Arc::clone(view), from, end, in_files: None }
    }

    /// Takes in what the files have next.
    pub(in crate::lsm) fn put(&mut self, in_files: Option<(Bytes, Bytes)>) {
        self.in_files = Some(in_files);
    }

    /// The next key and its value.
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
                // The later row counts.
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
            // The end stays the end.
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
