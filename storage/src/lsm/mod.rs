//! The log-structured merge tree below everything: the only place that names slatedb.
//!
//! Leaves to others what keys and values mean ([`crate::keys`]). Adds to slatedb: one commit
//! that is durable when it returns, scans that read ahead, a cache, our own errors.

mod account;
mod cache;
mod checked;
mod clock;
mod compared;
mod counted;
mod disk;
mod drain;
mod failures;
mod following;
mod garbage;
mod layer;
mod location;
mod mark;
mod objects;
mod orphans;
mod snapshot;
mod tail;
#[cfg(test)]
mod testing;
mod view;

use std::collections::{BTreeMap, HashMap, HashSet};
use std::ops::Bound;
use std::panic::AssertUnwindSafe;
use std::pin::pin;
use std::sync::{Arc, PoisonError, RwLock};
use std::task::Poll;

use bytes::Bytes;
use futures::FutureExt;
use model::Budget;
use slatedb::admin::Admin;
use slatedb::config::{
    CompactionWorkerOptions, CompactorOptions, DurabilityLevel, FlushOptions, FlushType,
    GarbageCollectorDirectoryOptions, GarbageCollectorOptions, ReadOptions, ScanOptions, Settings,
};
use slatedb::manifest::{SortedRun, SsTableView};
use slatedb::object_store::ObjectStore;
use slatedb::{
    BlockCachePolicy, CacheTarget, CloseReason, CompactorBuilder, Db, ErrorKind,
    GarbageCollectorBuilder, PrefixExtractor, PrefixTarget, SstBlockSize, VersionedCompactions,
    VersionedManifest, WriteBatch,
};
use slatedb_common::clock::{DefaultSystemClock, SystemClock};
use std::time::Duration;

use cache::BlockCacheStats;
pub use counted::{ReadCount, Reader};
use disk::{DiskCache, DiskCacheStats};
pub(crate) use following::{Following, Step};
pub(crate) use garbage::{Read, Reads};
#[cfg(test)]
pub(crate) use layer::Layer;
pub(crate) use layer::Layered;
pub(crate) use location::Location;
pub use location::SharedMemory;
#[cfg(test)]
pub(crate) use location::Simulated;
pub(crate) use objects::{ObjectEntry, Objects};
pub(crate) use orphans::OrphanStats;
use slatedb::db_cache::DbCache;
use snapshot::FOLDER as SNAPSHOTS_FOLDER;
pub(crate) use snapshot::Snapshot;
#[cfg(test)]
pub(crate) use testing::{
    checkpoint_count, collect_garbage, delete_unlisted, end_checkpoints, file_count,
};
pub(crate) use view::Row;
use view::{Added, End, Next, Place, View};

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

/// How long the files that a reader reads are kept where it ends without a word.
const CHECKPOINT_LIFETIME: Duration = Duration::from_secs(10 * 60);

/// Where damage lies of which slatedb tells.
pub(crate) const OBJECT_STORE: &str = "the object store";
/// Where it lies, if it is in no file of the log.
const LISTS: &str = "the newest object below manifest/ or compactions/";

/// How often it is tried to open a tree that another process opens, too.
const BUILDS_MAX: u32 = 4;
/// How long is waited for files to be written out.
const FLUSH_TIMEOUT: Duration = Duration::from_secs(60);

/// An open tree. Copies share it.
#[derive(Clone)]
pub(crate) struct Lsm {
    tree: Tree,
    dead: drain::Dead,
    reads: garbage::Reads,
    /// What a crash has left; none where the tree can only be read.
    orphans: Option<Arc<orphans::Orphans>>,
    read_timeout: Duration,
    blocks: Arc<cache::BlockCache>,
    files: snapshot::Files,
    disk: Option<Arc<dyn Fn() -> DiskCacheStats + Send + Sync>>,
    counters: Arc<counted::ReadCounters>,
    failures: Arc<failures::Failures>,
    /// Where commits are noted, on a local disk.
    mark: Option<Arc<mark::Mark>>,
    idle: account::Idle,
    /// Who pays for reads, if not the store itself.
    account: Option<Arc<account::Account>>,
}

/// Who has opened the tree.
#[derive(Clone)]
enum Tree {
    /// The one that writes to it.
    Written(Db),
    /// One that reads it: always this view, or the one that is shown.
    Read(Option<Arc<View>>, following::Shown),
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
        let Reached { counters, failures, compared, counted, objects, disk, blocks } =
            Reached::of(location, options)?;
        let dead = drain::Dead::default();
        let reads = garbage::Reads::default();
        let parts = Parts {
            location,
            options,
            counted: Arc::clone(&counted),
            objects,
            blocks: Arc::clone(&blocks),
            dead: dead.clone(),
            reads: reads.clone(),
            clock: Arc::new(clock::TreeClock::new(machine_clock(location))),
        };
        let found = parts.look().await;
        let (db, found) = match parts.open(found).await {
            Ok(opened) => opened,
            Err(error) => return Err(objects::with_name(location, error).await),
        };
        let compared = compared.as_deref();
        objects::check_swapped(&parts.counted, location, compared, &db.manifest()).await?;
        let mark = location.tree_folder().and_then(|folder| mark::Mark::open(&folder));
        let mark = mark.map(Arc::new);
        let files = snapshot::Files::of(location);
        files.remove_unfinished(&db).await?;
        let times = (options.read_timeout, options.orphan_age_min);
        let orphans = orphans::Orphans::new(location, counted, reads.clone(), times, found);
        Ok(Lsm {
            tree: Tree::Written(db),
            dead,
            reads,
            orphans: Some(Arc::new(orphans)),
            read_timeout: options.read_timeout,
            blocks,
            disk,
            files,
            counters,
            failures,
            mark,
            idle: account::Idle::default(),
            account: None,
        })
    }

    /// Opens the tree at a location to read it, whoever writes to it, as it is now; and what
    /// follows it from there.
    ///
    /// With `is_pinned`, checkpoints are written to keep the files that are read. Without, nothing
    /// is written, and a file may go while it is wanted if somebody writes to the store.
    /// Errors: [`StoreError::NoStore`].
    pub(crate) async fn open_to_read(
        location: &Location,
        options: &StoreOptions,
        is_pinned: bool,
    ) -> Result<(Lsm, Following), StoreError> {
        let Reached { counters, failures, compared, counted, objects, disk, blocks } =
            Reached::of(location, options)?;
        let folder = location.tree_folder();
        let noted = folder.as_deref().and_then(mark::noted);
        let cache: Arc<dyn DbCache> = Arc::clone(&blocks) as _;
        let path = location.path.clone();
        let place = Place::new(path, objects, cache, CHECKPOINT_LIFETIME, options);
        if unless_it_panics(place.newest_manifest()).await?.is_none() {
            return Err(StoreError::NoStore("no process has written to it yet".to_owned()));
        }
        let base = if is_pinned { place.pin().await? } else { place.look().await? };
        let shown = Arc::new(RwLock::new(Arc::new(View::of(base))));
        let mut following = Following::new(place, Arc::clone(&shown));
        if let Some(step) = following.advance().await? {
            following.show(&step);
        }
        let lsm = Lsm {
            tree: Tree::Read(None, shown),
            dead: drain::Dead::default(),
            reads: garbage::Reads::default(),
            orphans: None,
            read_timeout: options.read_timeout,
            blocks,
            disk,
            files: snapshot::Files::of(location),
            counters,
            failures,
            mark: None,
            idle: account::Idle::default(),
            account: None,
        };
        let (compared, manifest) = (compared.as_deref(), lsm.manifest());
        let mut checked = objects::check_swapped(&counted, location, compared, &manifest).await;
        if let Some(folder) = &folder {
            checked = checked.and(mark::check(folder, noted, following.newest_commit()));
        }
        match checked {
            Ok(()) => Ok((lsm, following)),
            Err(error) => {
                following.close().await;
                Err(error)
            }
        }
    }

    /// Whether the tree can only be read.
    pub(crate) fn is_read_only(&self) -> bool {
        matches!(self.tree, Tree::Read(..))
    }

    /// The tree as it is now, and stays, where another process writes to it.
    pub(crate) fn fixed(&self) -> Lsm {
        let tree = match &self.tree {
            Tree::Written(db) => Tree::Written(db.clone()),
            Tree::Read(fixed, shown) => Tree::Read(Some(view_of(fixed, shown)), Arc::clone(shown)),
        };
        Lsm { tree, ..self.clone() }
    }

    /// The tree as it is after a step.
    pub(crate) fn at(&self, step: &Step) -> Lsm {
        let tree = match &self.tree {
            Tree::Written(db) => Tree::Written(db.clone()),
            Tree::Read(_, shown) => Tree::Read(Some(Arc::clone(&step.view)), Arc::clone(shown)),
        };
        Lsm { tree, ..self.clone() }
    }

    /// What writes to the tree.
    fn db(&self) -> Result<&Db, StoreError> {
        match &self.tree {
            Tree::Written(db) => Ok(db),
            Tree::Read(..) => Err(StoreError::ReadOnly),
        }
    }

    fn manifest(&self) -> VersionedManifest {
        match &self.tree {
            Tree::Written(db) => db.manifest(),
            Tree::Read(fixed, shown) => view_of(fixed, shown).base.manifest.clone(),
        }
    }

    /// The tree, with reads that count for a query and stop where it has made too many.
    pub(crate) fn for_query(&self, budget: &Budget) -> Lsm {
        let account = Some(Arc::new(account::Account::new(budget.clone(), &self.idle)));
        Lsm { account, ..self.fixed() }
    }

    /// Deletes what a crash has left, as far as it may go by now.
    pub(crate) async fn collect_orphans(&self) {
        if let Some(orphans) = &self.orphans {
            orphans.collect().await;
        }
    }

    /// Whether something that a crash has left is still to be deleted.
    #[cfg(test)]
    pub(crate) async fn has_orphans(&self) -> bool {
        match &self.orphans {
            Some(orphans) => orphans.is_waiting().await,
            None => false,
        }
    }

    /// What has been deleted of what crashes had left.
    pub(crate) fn orphan_stats(&self) -> OrphanStats {
        self.orphans.as_ref().map(|orphans| orphans.stats()).unwrap_or_default()
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
        self.dead.shrink(partition, self.manifest().id());
    }

    /// Writes what is in memory to files of their segments.
    ///
    /// Errors: [`StoreError::Unavailable`] where the object store takes no files for a minute; the
    /// tree goes on trying.
    pub(crate) async fn flush_to_files(&self) -> Result<(), StoreError> {
        let options = FlushOptions { flush_type: FlushType::MemTable };
        match tokio::time::timeout(FLUSH_TIMEOUT, self.db()?.flush_with_options(options)).await {
            Ok(result) => result.map_err(|e| store_error(&e)),
            Err(_) => Err(StoreError::Unavailable(format!(
                "the object store has taken no files for {} s; what is sealed stays in memory and \
                 in the log until it does",
                FLUSH_TIMEOUT.as_secs()
            ))),
        }
    }

    /// The files of the tree, each with its segment.
    #[cfg(test)]
    pub(crate) fn files(&self) -> Vec<(Bytes, String)> {
        let manifest = self.manifest();
        let mut files = Vec::new();
        for segment in manifest.segments() {
            let runs = segment.compacted().iter().flat_map(|run| run.sst_views().iter());
            for view in segment.l0().iter().chain(runs) {
                files.push((segment.prefix().clone(), format!("{}.sst", view.sst.id.value())));
            }
        }
        files
    }

    /// The segments that have files.
    #[cfg(test)]
    pub(crate) fn segments(&self) -> Vec<Bytes> {
        let manifest = self.manifest();
        let has_files =
            |s: &&slatedb::manifest::Segment| !s.l0().is_empty() || !s.compacted().is_empty();
        manifest.segments().iter().filter(has_files).map(|s| s.prefix().clone()).collect()
    }

    /// Bytes of the files by partition, and of all others; what is about to go does not count.
    pub(crate) fn live_bytes(&self) -> (BTreeMap<i64, u64>, u64) {
        let manifest = self.manifest();
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
        let manifest = self.manifest();
        let is_read = |prefix: &Bytes| {
            keys::parse_partition(prefix).is_some() || keys::DICTIONARY_PREFIX == prefix
        };
        let segments = manifest.segments().iter().filter(|segment| is_read(segment.prefix()));
        segments.filter(|segment| segment.l0().len() + segment.compacted().len() > 1).count()
    }

    /// Bytes of the files of each partition.
    pub(crate) fn partition_bytes(&self) -> HashMap<i64, u64> {
        let manifest = self.manifest();
        let segments = manifest.segments().iter().filter_map(|segment| {
            let partition = keys::parse_partition(segment.prefix())?;
            let fresh: u64 = segment.l0().iter().map(SsTableView::estimate_size).sum();
            let merged: u64 = segment.compacted().iter().map(SortedRun::estimate_size).sum();
            Some((partition, fresh + merged))
        });
        segments.collect()
    }

    /// Bytes of the files that hold what is here, those of the write-ahead log aside.
    pub(crate) fn file_bytes(&self) -> u64 {
        let manifest = self.manifest();
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
        let db = self.db()?;
        let handle = db.write(batch).await.map_err(|e| store_error(&e))?;
        db.flush_with_options(FlushOptions { flush_type: FlushType::Wal })
            .await
            .map_err(|e| store_error(&e))?;
        handle.await_durable().await.map_err(|e| store_error(&e))?;
        if let Some(mark) = &self.mark {
            mark.note(handle.seqnum());
        }
        Ok(())
    }

    /// Why a write to the object store has failed within so long, if one has.
    pub(crate) fn write_failure(&self, within: Duration) -> Option<String> {
        self.failures.within(within)
    }

    /// The value of a key.
    pub(crate) async fn get(&self, key: &[u8]) -> Result<Option<Bytes>, StoreError> {
        let options = ReadOptions {
            durability_filter: DurabilityLevel::Memory,
            cache_blocks: true,
            ..ReadOptions::default()
        };
        let _read = self.reads.begin();
        let account = self.account.as_deref();
        match &self.tree {
            Tree::Written(db) => {
                bounded(self.read_timeout, account, db.get_with_options(key, &options)).await
            }
            Tree::Read(fixed, shown) => {
                let view = view_of(fixed, shown);
                if let Some(value) = view.added(key) {
                    return Ok(value);
                }
                let reading = view.base.reader.get_with_options(key, &options);
                bounded(self.read_timeout, account, reading).await
            }
        }
    }

    /// The same of a key that is known to be there: the filters of files, which would be fetched to
    /// tell those that lack it, are not asked, and a value that lies in several blocks of a file is
    /// one read.
    pub(crate) async fn get_present(&self, key: &[u8]) -> Result<Option<Bytes>, StoreError> {
        let end = [key, &[0]].concat();
        Ok(self.scan(key, &end).await?.next().await?.map(|(_, value)| value))
    }

    /// The keys that begin with a prefix, in order.
    pub(crate) async fn scan_prefix(&self, prefix: &[u8]) -> Result<Scan, StoreError> {
        let options = scan_options();
        let read = self.reads.begin();
        let account = self.account.as_deref();
        let (iterator, added) = match &self.tree {
            Tree::Written(db) => {
                let opening = db.scan_prefix_with_options(prefix, .., &options);
                (bounded(self.read_timeout, account, opening).await?, None)
            }
            Tree::Read(fixed, shown) => {
                let view = view_of(fixed, shown);
                let opening = view.base.reader.scan_prefix_with_options(prefix, .., &options);
                let iterator = bounded(self.read_timeout, account, opening).await?;
                let end = End::BehindPrefix(Bytes::copy_from_slice(prefix));
                (iterator, Some(Added::new(&view, prefix, end)))
            }
        };
        Ok(self.scanning(Some((iterator, read)), added))
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
            return Ok(self.scanning(None, None));
        }
        let range: (Bound<&[u8]>, Bound<&[u8]>) = (Bound::Included(start), Bound::Excluded(end));
        let read = self.reads.begin();
        let account = self.account.as_deref();
        let (iterator, added) = match &self.tree {
            Tree::Written(db) => {
                let opening = db.scan_with_options(range, options);
                (bounded(self.read_timeout, account, opening).await?, None)
            }
            Tree::Read(fixed, shown) => {
                let view = view_of(fixed, shown);
                let opening = view.base.reader.scan_with_options(range, options);
                let iterator = bounded(self.read_timeout, account, opening).await?;
                let end = End::Before(Bytes::copy_from_slice(end));
                (iterator, Some(Added::new(&view, start, end)))
            }
        };
        Ok(self.scanning(Some((iterator, read)), added))
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

    fn scanning(
        &self,
        open: Option<(slatedb::DbIterator, garbage::Read)>,
        added: Option<Added>,
    ) -> Scan {
        Scan { open, added, timeout: self.read_timeout, account: self.account.clone() }
    }

    /// Writes what is in memory to its final place, and closes.
    pub(crate) async fn close(&self) -> Result<(), StoreError> {
        match &self.tree {
            Tree::Written(db) => db.close().await.map_err(|e| store_error(&e)),
            Tree::Read(..) => Ok(()),
        }
    }
}

fn view_of(fixed: &Option<Arc<View>>, shown: &following::Shown) -> Arc<View> {
    let shown = || Arc::clone(&shown.read().unwrap_or_else(PoisonError::into_inner));
    fixed.clone().unwrap_or_else(shown)
}

/// What is between the tree and its objects.
struct Reached {
    counters: Arc<counted::ReadCounters>,
    failures: Arc<failures::Failures>,
    /// What compares files before they are read, on a local disk.
    compared: Option<Arc<Layered<compared::Compared>>>,
    /// The objects, counted.
    counted: Arc<dyn ObjectStore>,
    /// The same through the cache on disk, if there is one.
    objects: Arc<dyn ObjectStore>,
    disk: Option<Arc<dyn Fn() -> DiskCacheStats + Send + Sync>>,
    blocks: Arc<cache::BlockCache>,
}

impl Reached {
    fn of(location: &Location, options: &StoreOptions) -> Result<Reached, StoreError> {
        let counters = Arc::<counted::ReadCounters>::default();
        let failures = Arc::<failures::Failures>::default();
        let mut near = Arc::clone(&location.object_store);
        let mut compared = None;
        if location.tree_folder().is_some() {
            let comparing = compared::Compared::new(Arc::clone(&near), location.path.clone());
            near = Arc::clone(compared.insert(Arc::new(comparing))) as _;
        }
        let counted: Arc<dyn ObjectStore> =
            Arc::new(counted::Counted::new(near, Arc::clone(&counters), Arc::clone(&failures)));
        let mut objects = Arc::clone(&counted);
        let mut disk: Option<Arc<dyn Fn() -> DiskCacheStats + Send + Sync>> = None;
        if let Some(cache) = open_disk_cache(location, Arc::clone(&counted), options)? {
            disk = Some(Arc::new(cache.figures()));
            objects = Arc::new(cache);
        }
        let blocks = Arc::new(cache::BlockCache::new(options.cache_bytes_max));
        Ok(Reached { counters, failures, compared, counted, objects, disk, blocks })
    }
}

/// A manifest, and the list of merges that was read behind it.
type Lists = (VersionedManifest, Option<VersionedCompactions>);

/// What a tree is put together of.
struct Parts<'a> {
    location: &'a Location,
    options: &'a StoreOptions,
    /// What files are merged and deleted on.
    counted: Arc<dyn ObjectStore>,
    /// The same, perhaps behind a cache.
    objects: Arc<dyn ObjectStore>,
    blocks: Arc<cache::BlockCache>,
    dead: drain::Dead,
    reads: garbage::Reads,
    clock: Arc<clock::TreeClock>,
}

impl Parts<'_> {
    /// What lies on the object store before the tree is opened, if it can be told: a start does
    /// not fail for want of it.
    async fn look(&self) -> Option<orphans::Found> {
        let looking = orphans::Found::before_opening(self.location, &self.counted);
        let looked = tokio::time::timeout(self.options.read_timeout, looking).await;
        let why = match looked {
            Ok(Ok(found)) => return Some(found),
            Ok(Err(error)) => error.to_string(),
            Err(_) => "the object store has not answered".to_owned(),
        };
        tracing::warn!(why, "what a crash may have left is not looked for before the next start");
        None
    }

    /// A tree that can be written to, and what of what was found before its manifest does not
    /// name.
    async fn open(
        &self,
        found: Option<orphans::Found>,
    ) -> Result<(Db, Option<orphans::Found>), StoreError> {
        let lists = unless_it_panics(self.go_on_from_files()).await?;
        let and_lists = |(found, (manifest, merges)): (orphans::Found, Lists)| {
            found.and_lists(&manifest, merges.as_ref())
        };
        let found = found.zip(lists).map(and_lists);
        Ok((self.open_tree().await?, found))
    }

    async fn open_tree(&self) -> Result<Db, StoreError> {
        let folder = self.location.tree_folder();
        let noted = folder.as_deref().and_then(mark::noted);
        let db = self.build().await?;
        if let Some(folder) = &folder {
            mark::check(folder, noted, db.status().durable_seq)?;
        }
        // What another writer has added until it was fenced.
        self.go_on_from(clock::newest_file_ms(&db.manifest()));
        // It looks at the clock with the first write, and is of no use where that fails. So there
        // is one that says nothing; it becomes durable with the next.
        let mut nothing = WriteBatch::new();
        nothing.delete(keys::NOTHING);
        let Err(error) = db.write(nothing).await else { return Ok(db) };
        let Some(newest_ms) = clock::newest_write_ms(&error) else {
            return Err(store_error(&error));
        };
        drop(db);
        self.go_on_from(Some(newest_ms));
        self.build().await
    }

    /// Sees to it that files and merges are later than those before: before there can be any.
    /// Gives the newest lists of those, if there are any.
    async fn go_on_from_files(&self) -> Result<Option<Lists>, StoreError> {
        let objects = Arc::clone(&self.counted);
        let admin = Admin::builder(self.location.path.clone(), objects)
            .with_system_clock(Arc::clone(&self.clock) as _)
            .build();
        let limit = self.options.read_timeout;
        let Some(manifest) = in_time(limit, admin.read_manifest(None)).await? else {
            return Ok(None);
        };
        self.go_on_from(clock::newest_file_ms(&manifest));
        let merges = in_time(limit, admin.read_compactions(None)).await?;
        self.go_on_from(merges.as_ref().and_then(clock::newest_merge_ms));
        Ok(Some((manifest, merges)))
    }

    fn go_on_from(&self, newest_ms: Option<i64>) {
        let behind = newest_ms.map(|newest_ms| self.clock.go_on_from(newest_ms));
        if let Some(behind) = behind.filter(|behind| !behind.is_zero()) {
            tracing::warn!(
                ?behind,
                "the clock is behind what the store was written at; times of files go on from there"
            );
        }
    }

    /// A tree that has not been written to. Another process may have got ahead with the manifest in
    /// the same moment, be it with its last request.
    async fn build(&self) -> Result<Db, StoreError> {
        let mut builds = 1;
        loop {
            let built = unless_it_panics(async { Ok(self.build_once().await) }).await?;
            match built {
                Ok(db) => return Ok(db),
                Err(error) if !is_overtaken(&error) => return Err(store_error(&error)),
                Err(error) if builds == BUILDS_MAX => {
                    return Err(StoreError::Unavailable(error.to_string()));
                }
                Err(error) => {
                    builds += 1;
                    tracing::warn!(%error, "another process opens the store, too; once more");
                }
            }
        }
    }

    async fn build_once(&self) -> Result<Db, slatedb::Error> {
        let Parts { location, options, .. } = self;
        let schedule = drain::Schedule::new(&self.dead, options.settled_after);
        let compactor = CompactorBuilder::new(location.path.clone(), Arc::clone(&self.counted))
            .with_options(compactor_options(options.merge_interval))
            .with_scheduler_supplier(Arc::new(schedule));
        let unread = garbage::Unread::new(self.reads.clone());
        let collector =
            GarbageCollectorBuilder::new(location.path.clone(), Arc::clone(&self.counted))
                .with_options(collector_options(location, options))
                .with_gc_filter(Arc::new(unread));
        let cache: Arc<dyn DbCache> = Arc::clone(&self.blocks) as _;
        let settings = settings(options);
        let builder = Db::builder(location.path.clone(), Arc::clone(&self.objects));
        #[cfg(test)]
        let (builder, settings) = simulated(location, builder, settings);
        builder
            .with_settings(settings)
            .with_system_clock(Arc::clone(&self.clock) as _)
            .with_sst_block_size(SstBlockSize::Block64Kib)
            .with_segment_extractor(Arc::new(Segments))
            .with_compactor_builder(compactor)
            .with_gc_builder(collector)
            .with_block_cache_policy(cache_policy())
            .with_db_cache(cache, 0)
            .build()
            .await
    }
}

/// Errors: some bytes of a manifest, which has no checksum, are such that slatedb panics.
async fn unless_it_panics<T>(
    reading: impl Future<Output = Result<T, StoreError>>,
) -> Result<T, StoreError> {
    AssertUnwindSafe(reading).catch_unwind().await.unwrap_or_else(|_| {
        Err(StoreError::Corrupt {
            location: LISTS.to_owned(),
            detail: "it cannot be decoded".to_owned(),
        })
    })
}

/// Whether another process has written a manifest first: slatedb calls that damage, and tells it
/// in the text alone.
fn is_overtaken(error: &slatedb::Error) -> bool {
    error.to_string().contains("version already exists")
}

#[cfg(not(test))]
fn machine_clock(_: &Location) -> Arc<dyn SystemClock> {
    Arc::new(DefaultSystemClock::new())
}

#[cfg(test)]
fn machine_clock(location: &Location) -> Arc<dyn SystemClock> {
    match &location.simulated {
        Some(simulated) => Arc::clone(&simulated.clock),
        None => Arc::new(DefaultSystemClock::new()),
    }
}

#[cfg(test)]
fn simulated(
    location: &Location,
    builder: slatedb::DbBuilder<slatedb::object_store::path::Path>,
    settings: Settings,
) -> (slatedb::DbBuilder<slatedb::object_store::path::Path>, Settings) {
    match &location.simulated {
        None => (builder, settings),
        Some(simulated) => {
            let manifest_poll_interval = simulated.poll_interval;
            let settings = Settings { manifest_poll_interval, ..settings };
            (builder.with_seed(simulated.seed), settings)
        }
    }
}

/// The cache on disk, where one is wanted.
fn open_disk_cache(
    location: &Location,
    objects: Arc<dyn ObjectStore>,
    options: &StoreOptions,
) -> Result<Option<Layered<DiskCache>>, StoreError> {
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
    /// What the log adds to a view.
    added: Option<Added>,
    timeout: Duration,
    account: Option<Arc<account::Account>>,
}

impl Scan {
    /// The next key and its value.
    pub(crate) async fn next(&mut self) -> Result<Option<(Bytes, Bytes)>, StoreError> {
        loop {
            if let Some(added) = &mut self.added
                && let Next::Known(next) = added.next()
            {
                return Ok(next);
            }
            let Some((iterator, _)) = &mut self.open else { return Ok(None) };
            let entry = bounded(self.timeout, self.account.as_deref(), iterator.next()).await?;
            let entry = entry.map(|entry| (entry.key, entry.value));
            match &mut self.added {
                None => return Ok(entry),
                Some(added) => added.put(entry),
            }
        }
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
    if let Some(damage) = checked::damage_in(error) {
        return damage;
    }
    match error.kind() {
        ErrorKind::Closed(CloseReason::Fenced) => StoreError::Fenced,
        ErrorKind::Closed(CloseReason::Clean) => StoreError::Closed,
        // It has been damaged, if its files do not follow on each other.
        ErrorKind::Internal if error.to_string().contains("WAL replay") => StoreError::Corrupt {
            location: "the write-ahead log".to_owned(),
            detail: error.to_string(),
        },
        ErrorKind::Data => {
            StoreError::Corrupt { location: OBJECT_STORE.to_owned(), detail: error.to_string() }
        }
        _ => StoreError::Unavailable(error.to_string()),
    }
}
