//! The log-structured merge tree below everything: the only place that names slatedb.
//!
//! Leaves to others what keys and values mean ([`crate::keys`]). Adds to slatedb: one commit
//! that is durable when it returns, scans that read ahead, a cache, our own errors.

mod account;
mod cache;
mod counted;
mod disk;
mod drain;
mod garbage;
mod location;
mod snapshot;

use std::collections::{BTreeMap, HashSet};
use std::ops::Bound;
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;

use bytes::Bytes;
use model::Budget;
use slatedb::config::{
    CompactionWorkerOptions, CompactorOptions, DurabilityLevel, FlushOptions, FlushType,
    GarbageCollectorDirectoryOptions, GarbageCollectorOptions, ReadOptions, ScanOptions, Settings,
};
use slatedb::object_store::ObjectStore;
use slatedb::{
    BlockCachePolicy, CacheTarget, CloseReason, CompactorBuilder, Db, ErrorKind,
    GarbageCollectorBuilder, PrefixExtractor, PrefixTarget, SstBlockSize, WriteBatch,
};
use std::time::Duration;

use cache::BlockCacheStats;
pub use counted::{ReadCount, Reader};
use disk::{DiskCache, DiskCacheStats};
pub(crate) use garbage::{Read, Reads};
pub(crate) use location::Location;
pub use location::SharedMemory;
use slatedb::db_cache::DbCache;
pub(crate) use snapshot::Snapshot;

use crate::error::StoreError;
use crate::keys;
use crate::options::StoreOptions;

/// Bytes that one request of a scan fetches, or all of its range: scans end where what is wanted
/// does. SlateDB's default is one block.
const READ_AHEAD_BYTES: usize = 4 << 20;
/// Requests of one scan in flight.
const FETCH_TASKS_MAX: usize = 3;
/// The size from which the memtable is written out. It holds little but the log, of which the head
/// has a copy that takes a third of it.
const MEMTABLE_BYTES: usize = 8 << 20;
/// Bytes that are not written out yet, from which writers wait.
const UNFLUSHED_BYTES_MAX: usize = 256 << 20;
/// Files that are not merged yet, from which the memtable is not written out. Those of the log
/// are never merged; of any other key there may be slatedb's default of 8.
const FILES_UNMERGED_MAX: usize = 1024;
/// How old manifests and lists of merges must be before they are deleted: longer than a process
/// can hang and then go on, as some object stores cannot tell that it comes late.
const MANIFEST_AGE_MIN: Duration = Duration::from_secs(20 * 60);
/// The same for files of the write-ahead log, which nobody reads but a start.
const LOG_AGE_MIN: Duration = Duration::from_secs(60);
/// The same for all other files, beside what [`garbage`] asks of them: those that are being
/// written are not in the tree yet.
const FILE_AGE_MIN: Duration = Duration::from_secs(60);
/// How long the collector is kept from the files of a merge by itself. Who reads them does that
/// by [`garbage`].
const MERGED_FILES_KEPT: Duration = Duration::from_secs(10);

/// How long is waited for files to be written out.
const FLUSH_TIMEOUT: Duration = Duration::from_secs(60);

/// An open tree. Copies share it.
#[derive(Clone)]
pub(crate) struct Lsm {
    db: Db,
    dead: drain::Dead,
    reads: garbage::Reads,
    read_timeout: Duration,
    blocks: Arc<cache::BlockCache>,
    files: snapshot::Files,
    disk: Option<Arc<dyn Fn() -> DiskCacheStats + Send + Sync>>,
    counters: Arc<counted::ReadCounters>,
    idle: account::Idle,
    /// Who pays for reads, if not the store itself.
    account: Option<Arc<account::Account>>,
}

/// Writes that become visible and durable together.
#[derive(Default)]
pub(crate) struct WriteSet {
    batch: Option<WriteBatch>,
}

impl WriteSet {
    /// Sets a key.
    pub(crate) fn put(&mut self, key: Vec<u8>, value: impl Into<Bytes>) {
        self.batch.get_or_insert_default().put_bytes(Bytes::from(key), value.into());
    }

    /// Removes a key.
    pub(crate) fn delete(&mut self, key: &[u8]) {
        self.batch.get_or_insert_default().delete(key);
    }
}

/// Routes each key to its segment.
struct Segments;

impl PrefixExtractor for Segments {
    fn name(&self) -> &str {
        "tessella-segments-2"
    }

    fn prefix_len(&self, target: &PrefixTarget) -> Option<usize> {
        match target {
            PrefixTarget::Point(key) | PrefixTarget::Prefix(key) => keys::segment_len(key),
        }
    }
}

impl Lsm {
    /// Opens or creates the tree at a location, and takes over from whoever writes to it.
    pub(crate) async fn open(
        location: &Location,
        options: &StoreOptions,
    ) -> Result<Lsm, StoreError> {
        let counters = Arc::<counted::ReadCounters>::default();
        let objects: Arc<dyn ObjectStore> = Arc::new(counted::Counted::new(
            Arc::clone(&location.object_store),
            Arc::clone(&counters),
        ));
        let settings = settings(options);
        let dead = drain::Dead::default();
        let schedule = drain::Schedule::new(&dead, options.settled_after);
        let compactor = CompactorBuilder::new(location.path.clone(), Arc::clone(&objects))
            .with_options(compactor_options(options.merge_interval))
            .with_scheduler_supplier(Arc::new(schedule));
        let reads = garbage::Reads::default();
        let collector = GarbageCollectorBuilder::new(location.path.clone(), Arc::clone(&objects))
            .with_options(collector_options(location, options))
            .with_gc_filter(Arc::new(garbage::Unread::new(reads.clone())));
        let counted = objects;
        let mut objects = Arc::clone(&counted);
        let mut disk: Option<Arc<dyn Fn() -> DiskCacheStats + Send + Sync>> = None;
        if let Some(cache) = open_disk_cache(location, counted, options)? {
            disk = Some(Arc::new(cache.figures()));
            objects = Arc::new(cache);
        }
        let blocks = Arc::new(cache::BlockCache::new(options.cache_bytes_max));
        let cache: Arc<dyn DbCache> = Arc::clone(&blocks) as _;
        let db = Db::builder(location.path.clone(), objects)
            .with_settings(settings)
            .with_sst_block_size(SstBlockSize::Block64Kib)
            .with_segment_extractor(Arc::new(Segments))
            .with_compactor_builder(compactor)
            .with_gc_builder(collector)
            .with_block_cache_policy(cache_policy())
            .with_db_cache(cache, 0)
            .build()
            .await
            .map_err(|e| store_error(&e))?;
        let files = snapshot::Files {
            object_store: Arc::clone(&location.object_store),
            path: location.path.clone(),
        };
        files.remove_unfinished(&db).await?;
        Ok(Lsm {
            db,
            dead,
            reads,
            read_timeout: options.read_timeout,
            blocks,
            disk,
            files,
            counters,
            idle: account::Idle::default(),
            account: None,
        })
    }

    /// The tree, with reads that count for a query and stop where it has made too many.
    pub(crate) fn for_query(&self, budget: &Budget) -> Lsm {
        let account = Some(Arc::new(account::Account::new(budget.clone(), &self.idle)));
        Lsm { account, ..self.clone() }
    }

    /// The reads of the object store since the start, in the order of [`Reader::ALL`].
    pub(crate) fn read_counts(&self) -> [ReadCount; Reader::ALL.len()] {
        self.counters.counts()
    }

    /// Lets go of the files of partitions before one. Their keys have been deleted.
    pub(crate) fn drop_partitions_before(&self, partition: i64) {
        self.dead.drop_partitions_before(partition);
    }

    /// Lets go of the files of log epochs before one. No start reads them again.
    pub(crate) fn drop_log_before(&self, epoch: u32) {
        self.dead.drop_log_before(epoch);
    }

    /// Merges the files of a partition into one run, so that what has been deleted gives its space
    /// back. It has been written to files.
    pub(crate) fn shrink(&self, partition: i64) {
        self.dead.shrink(partition, self.db.manifest().id());
    }

    /// Writes what is in memory to files of their segments.
    ///
    /// Errors: [`StoreError::Unavailable`] where the object store takes no files for a minute; the
    /// tree goes on trying.
    pub(crate) async fn flush_to_files(&self) -> Result<(), StoreError> {
        let options = FlushOptions { flush_type: FlushType::MemTable };
        match tokio::time::timeout(FLUSH_TIMEOUT, self.db.flush_with_options(options)).await {
            Ok(result) => result.map_err(|e| store_error(&e)),
            Err(_) => Err(StoreError::Unavailable(format!(
                "the object store has taken no files for {} s; what is sealed stays in memory and \
                 in the log until it does",
                FLUSH_TIMEOUT.as_secs()
            ))),
        }
    }

    /// The segments that have files.
    #[cfg(test)]
    pub(crate) fn segments(&self) -> Vec<Bytes> {
        let manifest = self.db.manifest();
        let has_files =
            |s: &&slatedb::manifest::Segment| !s.l0().is_empty() || !s.compacted().is_empty();
        manifest.segments().iter().filter(has_files).map(|s| s.prefix().clone()).collect()
    }

    /// Bytes of the files by partition, and of all others; what is about to go does not count.
    pub(crate) fn live_bytes(&self) -> (BTreeMap<i64, u64>, u64) {
        let manifest = self.db.manifest();
        let (mut partitions, mut others) = (BTreeMap::new(), 0);
        for segment in manifest.segments() {
            let prefix = segment.prefix();
            if self.dead.contains(prefix) {
                continue;
            }
            let runs = segment.compacted().iter().flat_map(|run| run.sst_views().iter());
            let views = segment.l0().iter().chain(runs);
            let bytes: u64 = views.map(|view| view.sst.estimate_size()).sum();
            match keys::parse_partition(prefix) {
                Some(partition) => *partitions.entry(partition).or_default() += bytes,
                None => others += bytes,
            }
        }
        (partitions, others)
    }

    /// Partitions, and the dictionary of all, that have more than one run of files: each is read by
    /// itself.
    pub(crate) fn unmerged_segments(&self) -> usize {
        let manifest = self.db.manifest();
        let is_read = |prefix: &Bytes| {
            keys::parse_partition(prefix).is_some() || keys::DICTIONARY_PREFIX == prefix
        };
        let segments = manifest.segments().iter().filter(|segment| is_read(segment.prefix()));
        segments.filter(|segment| segment.l0().len() + segment.compacted().len() > 1).count()
    }

    /// Bytes of the files that hold what is here, those of the write-ahead log aside.
    pub(crate) fn file_bytes(&self) -> u64 {
        let manifest = self.db.manifest();
        let mut seen = HashSet::new();
        let views = manifest.all_sst_views().filter(|view| seen.insert(view.sst.id));
        views.map(|view| view.sst.estimate_size()).sum()
    }

    /// Figures of the cache of blocks in memory.
    pub(crate) fn block_cache_stats(&self) -> BlockCacheStats {
        self.blocks.stats()
    }

    /// Figures of the cache on disk, all 0 without one.
    pub(crate) fn disk_cache_stats(&self) -> DiskCacheStats {
        self.disk.as_ref().map(|stats| stats()).unwrap_or_default()
    }

    /// Writes everything of a set or nothing; it is durable on return.
    ///
    /// Errors: after one, whether the set has been written is not known, and the tree takes
    /// no more writes until it is opened again.
    pub(crate) async fn commit(&self, set: WriteSet) -> Result<(), StoreError> {
        let Some(batch) = set.batch else { return Ok(()) };
        let handle = self.db.write(batch).await.map_err(|e| store_error(&e))?;
        self.db
            .flush_with_options(FlushOptions { flush_type: FlushType::Wal })
            .await
            .map_err(|e| store_error(&e))?;
        handle.await_durable().await.map_err(|e| store_error(&e))
    }

    /// The value of a key.
    pub(crate) async fn get(&self, key: &[u8]) -> Result<Option<Bytes>, StoreError> {
        let options = ReadOptions {
            durability_filter: DurabilityLevel::Memory,
            cache_blocks: true,
            ..ReadOptions::default()
        };
        let _read = self.reads.begin();
        let reading = self.db.get_with_options(key, &options);
        bounded(self.read_timeout, self.account.as_deref(), reading).await
    }

    /// The keys that begin with a prefix, in order.
    pub(crate) async fn scan_prefix(&self, prefix: &[u8]) -> Result<Scan, StoreError> {
        let options = scan_options();
        let read = self.reads.begin();
        let opening = self.db.scan_prefix_with_options(prefix, .., &options);
        let iterator = bounded(self.read_timeout, self.account.as_deref(), opening).await?;
        Ok(self.scanning(Some((iterator, read))))
    }

    /// The keys from `start` on and before `end`, in order.
    pub(crate) async fn scan(&self, start: &[u8], end: &[u8]) -> Result<Scan, StoreError> {
        self.scan_with(start, end, &scan_options()).await
    }

    async fn scan_with(
        &self,
        start: &[u8],
        end: &[u8],
        options: &ScanOptions,
    ) -> Result<Scan, StoreError> {
        if start >= end {
            return Ok(self.scanning(None));
        }
        let range: (Bound<&[u8]>, Bound<&[u8]>) = (Bound::Included(start), Bound::Excluded(end));
        let read = self.reads.begin();
        let opening = self.db.scan_with_options(range, options);
        let iterator = bounded(self.read_timeout, self.account.as_deref(), opening).await?;
        Ok(self.scanning(Some((iterator, read))))
    }

    /// The first key from `start` on and before `end`: no more is fetched than it takes.
    pub(crate) async fn first(
        &self,
        start: &[u8],
        end: &[u8],
    ) -> Result<Option<(Bytes, Bytes)>, StoreError> {
        let options = scan_options().with_read_ahead_bytes(1).with_max_fetch_tasks(1);
        self.scan_with(start, end, &options).await?.next().await
    }

    fn scanning(&self, open: Option<(slatedb::DbIterator, garbage::Read)>) -> Scan {
        Scan { open, timeout: self.read_timeout, account: self.account.clone() }
    }

    /// Writes what is in memory to its final place, and closes.
    pub(crate) async fn close(&self) -> Result<(), StoreError> {
        self.db.close().await.map_err(|e| store_error(&e))
    }
}

/// The cache on disk, where one is wanted.
fn open_disk_cache(
    location: &Location,
    objects: Arc<dyn ObjectStore>,
    options: &StoreOptions,
) -> Result<Option<DiskCache>, StoreError> {
    let Some(cache) = &options.disk_cache else { return Ok(None) };
    let invalid = |detail: String| StoreError::InvalidSetting {
        setting: format!("the disk cache {}", cache.folder.display()),
        detail,
    };
    if !location.is_remote() {
        return Err(invalid("it is for object stores behind a network".to_owned()));
    }
    let opened = DiskCache::open(objects, &cache.folder, cache.bytes_max);
    opened.map(Some).map_err(|error| invalid(error.to_string()))
}

/// A scan under way.
pub(crate) struct Scan {
    /// None where the range is empty, which slatedb takes for a mistake.
    open: Option<(slatedb::DbIterator, garbage::Read)>,
    timeout: Duration,
    account: Option<Arc<account::Account>>,
}

impl Scan {
    /// The next key and its value.
    pub(crate) async fn next(&mut self) -> Result<Option<(Bytes, Bytes)>, StoreError> {
        let Some((iterator, _)) = &mut self.open else { return Ok(None) };
        let entry = bounded(self.timeout, self.account.as_deref(), iterator.next()).await?;
        Ok(entry.map(|entry| (entry.key, entry.value)))
    }
}

/// Waits for a read, but not for ever: the tree repeats requests that fail without end.
async fn bounded<T>(
    limit: Duration,
    account: Option<&account::Account>,
    read: impl Future<Output = Result<T, slatedb::Error>>,
) -> Result<T, StoreError> {
    let Some(account) = account else { return in_time(limit, read).await };
    account.check()?;
    let result = in_time(limit, account.on(read)).await;
    // Also where nothing is read any more.
    account.check()?;
    result
}

async fn in_time<T>(
    limit: Duration,
    read: impl Future<Output = Result<T, slatedb::Error>>,
) -> Result<T, StoreError> {
    let mut read = pin!(read);
    // Most keys are in memory already, and cost no look at the clock.
    let result = match futures::poll!(read.as_mut()) {
        Poll::Ready(result) => Ok(result),
        Poll::Pending => tokio::time::timeout(limit, read).await,
    };
    match result {
        Ok(result) => result.map_err(|e| store_error(&e)),
        Err(_) => Err(StoreError::Unavailable(format!(
            "the object store has not answered a read for {} s",
            limit.as_millis() as f64 / 1000.0
        ))),
    }
}

fn scan_options() -> ScanOptions {
    ScanOptions::default()
        .with_read_ahead_bytes(READ_AHEAD_BYTES)
        .with_max_fetch_tasks(FETCH_TASKS_MAX)
        .with_cache_blocks(true)
}

fn compactor_options(interval: Option<Duration>) -> CompactorOptions {
    CompactorOptions {
        poll_interval: interval.unwrap_or(poll_interval(5)),
        checkpoint_lifetime: MERGED_FILES_KEPT,
        // A merge in parts makes a file of each, and every file has an index to be read.
        worker: Some(CompactionWorkerOptions {
            max_subcompactions: 1,
            ..CompactionWorkerOptions::default()
        }),
        ..CompactorOptions::default()
    }
}

/// What is written is found in the cache once it has been read: most of it is the log, which is
/// read at a start alone.
fn cache_policy() -> BlockCachePolicy {
    let small = [CacheTarget::Index, CacheTarget::Filters];
    BlockCachePolicy::default().with_flush_targets(&small)
}

fn collector_options(location: &Location, options: &StoreOptions) -> GarbageCollectorOptions {
    let of_age = |min_age: Duration| {
        Some(GarbageCollectorDirectoryOptions {
            interval: Some(location.garbage_interval.max(min_age / 4)),
            min_age,
            dry_run: false,
        })
    };
    GarbageCollectorOptions {
        manifest_options: of_age(MANIFEST_AGE_MIN),
        wal_options: of_age(LOG_AGE_MIN),
        wal_fence_options: None,
        compacted_options: of_age(FILE_AGE_MIN),
        compactions_options: of_age(MANIFEST_AGE_MIN),
        detach_options: None,
        boundary_files_enabled: location.has_conditional_overwrite,
        object_store_max_retries: options.object_store_retries_max,
        ..GarbageCollectorOptions::default()
    }
}

/// So many seconds, but next to none in tests, which wait for it.
fn poll_interval(seconds: u64) -> Duration {
    if cfg!(test) { Duration::from_millis(20) } else { Duration::from_secs(seconds) }
}

fn settings(options: &StoreOptions) -> Settings {
    Settings {
        // Commits flush by themselves: a timer would only add its period to each of them.
        flush_interval: None,
        manifest_poll_interval: poll_interval(1),
        l0_sst_size_bytes: MEMTABLE_BYTES,
        max_unflushed_bytes: UNFLUSHED_BYTES_MAX,
        l0_max_ssts: FILES_UNMERGED_MAX,
        // Given by its builder, which knows how to drop partitions.
        compactor_options: None,
        // Given by its builder, which knows what is being read.
        garbage_collector_options: None,
        object_store_max_retries: options.object_store_retries_max,
        ..Settings::default()
    }
}

fn store_error(error: &slatedb::Error) -> StoreError {
    match error.kind() {
        ErrorKind::Closed(CloseReason::Fenced) => StoreError::Fenced,
        ErrorKind::Closed(CloseReason::Clean) => StoreError::Closed,
        ErrorKind::Data => StoreError::Corrupt {
            location: "the object store".to_owned(),
            detail: error.to_string(),
        },
        _ => StoreError::Unavailable(error.to_string()),
    }
}
