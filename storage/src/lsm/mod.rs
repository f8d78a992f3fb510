//! The log-structured merge tree (LSM) that holds all data. The only module that names SlateDB.
//!
//! The meaning of keys and values is in [`crate::keys`]. This module adds to SlateDB: commits that
//! are durable on return, read-ahead in scans, caches, and our errors. This file has the writes and
//! statistics of [`Lsm`]; [`open`] opens it, [`read`] reads it.

mod cache;
mod clock;
mod compaction;
mod follow;
mod mark;
mod objects;
mod open;
mod owner;
mod read;
mod settings;
mod snapshot;
#[cfg(test)]
mod testing;
mod tracing_account;

use std::collections::{BTreeMap, HashMap, HashSet};
use std::ops::RangeInclusive;
use std::panic::AssertUnwindSafe;
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use futures::FutureExt;
use model::Budget;
use slatedb::config::{FlushOptions, FlushType};
use slatedb::manifest::{SortedRun, SsTableView};
use slatedb::{CloseReason, Db, DbStatus, ErrorKind, SstReader, VersionedManifest, WriteBatch};

use cache::blocks::BlockCacheStats;
use cache::disk::{DiskCache, DiskCacheStats};
use cache::fetches::Fetches;
pub(crate) use compaction::garbage::{ReadGuard, ReadTracker};
pub(crate) use compaction::orphans::OrphanStats;
pub(crate) use follow::follower::{FollowStep, LsmFollower};
pub(crate) use follow::view::Row;
use follow::view::View;
pub(crate) use objects::files::{ObjectEntry, Objects};
#[cfg(test)]
pub(crate) use objects::layer::Layer;
pub(crate) use objects::layer::Layered;
pub(crate) use objects::location::Location;
#[cfg(test)]
pub(crate) use objects::location::Simulated;
pub use objects::location::{SharedMemory, local_folder};
pub use objects::metered::{ReadCount, Reader, WriteCount};
pub(crate) use owner::Claim;
pub use owner::LEASE_DURATION_MAX;
pub(crate) use read::{READ_AHEAD_BYTES, SCAN_BYTES_MAX, Scan};
use snapshot::FOLDER as SNAPSHOTS_FOLDER;
pub(crate) use snapshot::Snapshot;
#[cfg(test)]
pub(crate) use testing::{
    checkpoint_count, collect_garbage, delete_unlisted, end_checkpoints, file_count,
};

use crate::epoch::Epoch;
use crate::error::StoreError;
use crate::keys;
use crate::window::PartitionId;

/// Location of damage that SlateDB does not name.
pub(crate) const OBJECT_STORE: &str = "the object store";
/// Location of damage that is in no WAL file.
const MANIFEST_OBJECTS: &str = "the newest object below manifest/ or compactions/";

/// Timeout for a flush of the memtable.
const FLUSH_TIMEOUT: Duration = Duration::from_secs(60);

/// Handle of an open LSM. Clones share it.
#[derive(Clone)]
pub(crate) struct Lsm {
    access: Access,
    compaction_requests: compaction::schedule::CompactionRequests,
    reads: compaction::garbage::ReadTracker,
    /// Cleanup after crashes; `None` if this process only reads.
    orphans: Option<Arc<compaction::orphans::Orphans>>,
    read_timeout: Duration,
    blocks: Arc<cache::blocks::BlockCache>,
    fetches: Arc<Layered<Fetches>>,
    /// Reader of the indexes of SSTs.
    indexes: Arc<SstReader>,
    files: snapshot::Files,
    disk: Option<DiskCache>,
    counters: Arc<objects::metered::RequestCounters>,
    failures: Arc<objects::failures::Failures>,
    /// Mark of the newest commit, on a local disk.
    mark: Option<Arc<mark::Mark>>,
    /// Ownership of the store; `None` if this process only reads.
    ownership: Option<Arc<owner::Ownership>>,
    idle: tracing_account::IdleDispatchers,
    /// Account of the query that reads, if one does.
    account: Option<Arc<tracing_account::Account>>,
    /// Maximum number of concurrent reads of a partition.
    reads_at_once: usize,
}

/// Concurrent reads that the partitions of a query share: a prefix of S3 answers 5,500 a second.
const QUERY_READS: usize = 256;
/// Minimum and maximum number of concurrent reads of a partition.
const PARTITION_READS: RangeInclusive<usize> = 8..=32;

/// Access of this process to the LSM.
#[derive(Clone)]
enum Access {
    /// The process that writes to it.
    Writer(Db),
    /// A reader: of a fixed view, or of the current one.
    Reader(Option<Arc<View>>, follow::follower::CurrentView),
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

    /// Deletes a key.
    pub(crate) fn delete(&mut self, key: &[u8]) {
        self.batch.get_or_insert_default().delete(key);
    }
}

impl Lsm {
    /// Returns whether this process only reads.
    pub(crate) fn is_read_only(&self) -> bool {
        matches!(self.access, Access::Reader(..))
    }

    /// Returns a handle that stays at the current view, if another process writes.
    pub(crate) fn fixed(&self) -> Lsm {
        let access = match &self.access {
            Access::Writer(db) => Access::Writer(db.clone()),
            Access::Reader(fixed, current) => {
                Access::Reader(Some(view_of(fixed, current)), Arc::clone(current))
            }
        };
        Lsm { access, ..self.clone() }
    }

    /// Returns a handle at the view of a step.
    pub(crate) fn at(&self, step: &FollowStep) -> Lsm {
        let access = match &self.access {
            Access::Writer(db) => Access::Writer(db.clone()),
            Access::Reader(_, current) => {
                Access::Reader(Some(Arc::clone(&step.view)), Arc::clone(current))
            }
        };
        Lsm { access, ..self.clone() }
    }

    /// Returns the database for writes.
    fn db(&self) -> Result<&Db, StoreError> {
        match &self.access {
            Access::Writer(db) => Ok(db),
            Access::Reader(..) => Err(StoreError::ReadOnly),
        }
    }

    /// Returns why this process has lost the store, if that is known. A loss is noticed within two
    /// seconds on a local disk or after fencing, otherwise within the lease duration.
    pub(crate) fn lost(&self) -> Option<StoreError> {
        let lost = self.ownership.as_ref().and_then(|ownership| ownership.status().lost());
        lost.or_else(|| match &self.access {
            Access::Writer(db) => is_fenced(&db.status()).then_some(StoreError::Fenced),
            Access::Reader(..) => None,
        })
    }

    /// Waits until this process has lost the store, and returns why.
    pub(crate) async fn wait_until_lost(&self) -> StoreError {
        let (Access::Writer(db), Some(ownership)) = (&self.access, &self.ownership) else {
            return std::future::pending().await;
        };
        let mut status = db.subscribe();
        let fenced = async {
            match status.wait_for(is_fenced).await.is_ok() {
                true => StoreError::Fenced,
                // The database was dropped.
                false => std::future::pending().await,
            }
        };
        tokio::select! {
            error = ownership.status().wait() => error,
            error = fenced => error,
        }
    }

    fn manifest(&self) -> VersionedManifest {
        match &self.access {
            Access::Writer(db) => db.manifest(),
            Access::Reader(fixed, current) => view_of(fixed, current).base.manifest.clone(),
        }
    }

    /// Returns a handle whose reads are charged to a query, and fail if its budget is exceeded.
    pub(crate) fn for_query(&self, budget: &Budget) -> Lsm {
        let account = Some(Arc::new(tracing_account::Account::new(budget.clone(), &self.idle)));
        Lsm { account, ..self.fixed() }
    }

    /// Returns a handle for a query that loads this many partitions at a time.
    pub(crate) fn shared_by(&self, partitions: usize) -> Lsm {
        let share = QUERY_READS / partitions.max(1);
        let reads_at_once = share.clamp(*PARTITION_READS.start(), *PARTITION_READS.end());
        Lsm { reads_at_once, ..self.clone() }
    }

    /// Returns the maximum number of concurrent reads of a partition.
    pub(crate) fn reads_at_once(&self) -> usize {
        self.reads_at_once
    }

    /// Deletes orphans of crashes, as far as they may be deleted by now.
    pub(crate) async fn collect_orphans(&self) {
        if let Some(orphans) = &self.orphans {
            orphans.collect().await;
        }
    }

    /// Returns whether orphans are left that no checkpoint references.
    #[cfg(test)]
    pub(crate) async fn has_orphans(&self) -> bool {
        match &self.orphans {
            Some(orphans) => orphans.is_waiting().await,
            None => false,
        }
    }

    /// Returns statistics of deleted orphans.
    pub(crate) fn orphan_stats(&self) -> OrphanStats {
        self.orphans.as_ref().map(|orphans| orphans.stats()).unwrap_or_default()
    }

    /// Returns the reads of the object store since the start, in the order of [`Reader::ALL`].
    pub(crate) fn read_counts(&self) -> [ReadCount; Reader::ALL.len()] {
        self.counters.reads()
    }

    /// Returns the other requests to the object store since the start.
    pub(crate) fn write_count(&self) -> WriteCount {
        self.counters.writes()
    }

    /// Drops the segments of partitions before one, which frees space without reading SSTs.
    ///
    /// The caller has deleted all keys: the compactor drops segments later, and not at all if the
    /// process ends first.
    pub(crate) fn drop_partitions_before(&self, partition: PartitionId) {
        self.compaction_requests.drop_partitions_before(partition);
    }

    /// Stops dropping segments of partitions from one on, as they may be written to.
    pub(crate) fn keep_partitions_from(&self, partition: PartitionId) {
        self.compaction_requests.keep_partitions_from(partition);
    }

    /// Drops the segments of log epochs before one. No start reads them again.
    pub(crate) fn drop_log_before(&self, epoch: Epoch) {
        self.compaction_requests.drop_log_before(epoch);
    }

    /// Compacts a partition into one sorted run, to free the space of deleted keys. The deletes
    /// must have been flushed.
    pub(crate) fn compact_partition(&self, partition: PartitionId) {
        self.compaction_requests.compact_partition(partition, self.manifest().id());
    }

    /// Flushes the memtable to SSTs.
    ///
    /// Errors: [`StoreError::Unavailable`] if the object store accepts no files for a minute; the
    /// flush continues in the background.
    pub(crate) async fn flush_to_files(&self) -> Result<(), StoreError> {
        let options = FlushOptions { flush_type: FlushType::MemTable };
        match tokio::time::timeout(FLUSH_TIMEOUT, self.db()?.flush_with_options(options)).await {
            Ok(result) => result.map_err(|e| store_error(&e)),
            Err(_) => Err(StoreError::Unavailable(format!(
                "the object store has accepted no files for {} s; sealed data stays in memory and \
                 in the log until it does",
                FLUSH_TIMEOUT.as_secs()
            ))),
        }
    }

    /// Returns the SSTs, each with its segment.
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

    /// Returns the segments that have SSTs.
    #[cfg(test)]
    pub(crate) fn segments(&self) -> Vec<Bytes> {
        let manifest = self.manifest();
        let has_files =
            |s: &&slatedb::manifest::Segment| !s.l0().is_empty() || !s.compacted().is_empty();
        manifest.segments().iter().filter(has_files).map(|s| s.prefix().clone()).collect()
    }

    /// Returns the bytes of SSTs of each partition, and of all other SSTs together. Segments that
    /// are to be dropped are not counted.
    pub(crate) fn live_bytes(&self) -> (BTreeMap<PartitionId, u64>, u64) {
        let manifest = self.manifest();
        let (mut partitions, mut others) = (BTreeMap::new(), 0);
        for segment in manifest.segments() {
            let prefix = segment.prefix();
            if self.compaction_requests.is_dropped(prefix) {
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

    /// Returns the number of partitions with more than one sorted run or level 0 SST, as each of
    /// these is read separately. The dictionary counts as a partition.
    pub(crate) fn uncompacted_segments(&self) -> usize {
        let manifest = self.manifest();
        let is_read = |prefix: &Bytes| {
            keys::parse_partition(prefix).is_some() || keys::DICTIONARY_PREFIX == prefix
        };
        let segments = manifest.segments().iter().filter(|segment| is_read(segment.prefix()));
        segments.filter(|segment| segment.l0().len() + segment.compacted().len() > 1).count()
    }

    /// Returns the bytes of SSTs of each partition.
    pub(crate) fn partition_bytes(&self) -> HashMap<PartitionId, u64> {
        let manifest = self.manifest();
        let segments = manifest.segments().iter().filter_map(|segment| {
            let partition = keys::parse_partition(segment.prefix())?;
            let level_0: u64 = segment.l0().iter().map(SsTableView::estimate_size).sum();
            let runs: u64 = segment.compacted().iter().map(SortedRun::estimate_size).sum();
            Some((partition, level_0 + runs))
        });
        segments.collect()
    }

    /// Returns the bytes of all SSTs, without the WAL.
    pub(crate) fn file_bytes(&self) -> u64 {
        let manifest = self.manifest();
        let mut seen = HashSet::new();
        let views = manifest.all_sst_views().filter(|view| seen.insert(view.sst.id));
        views.map(|view| view.sst.estimate_size()).sum()
    }

    /// Returns statistics of the block cache.
    pub(crate) fn block_cache_stats(&self) -> BlockCacheStats {
        let blocks = self.blocks.stats();
        BlockCacheStats { bytes: blocks.bytes + self.fetches.ranges().bytes(), ..blocks }
    }

    /// Returns statistics of the disk cache, all 0 without one.
    pub(crate) fn disk_cache_stats(&self) -> DiskCacheStats {
        self.disk.as_ref().map(DiskCache::stats).unwrap_or_default()
    }

    /// Writes all of a set or nothing; it is durable on return.
    ///
    /// Errors: it is unknown whether the set has been written, and no more writes are accepted
    /// until the store is opened again.
    pub(crate) async fn commit(&self, set: WriteSet) -> Result<(), StoreError> {
        let Some(batch) = set.batch else { return Ok(()) };
        let db = self.db()?;
        let durable = async {
            let handle = db.write(batch).await?;
            db.flush_with_options(FlushOptions { flush_type: FlushType::Wal }).await?;
            handle.await_durable().await?;
            Ok(handle.seqnum())
        };
        let commit =
            durable.await.map_err(|error| self.lost().unwrap_or_else(|| store_error(&error)))?;
        if let Some(mark) = &self.mark {
            mark.note(commit);
        }
        Ok(())
    }

    /// Returns the last error of a write to the object store, if one has failed in this period.
    pub(crate) fn write_failure(&self, within: Duration) -> Option<String> {
        self.failures.within(within)
    }

    /// Flushes the memtable, and closes the LSM.
    pub(crate) async fn close(&self) -> Result<(), StoreError> {
        let Access::Writer(db) = &self.access else { return Ok(()) };
        let closed = db.close().await.map_err(|e| store_error(&e));
        self.release_ownership().await;
        closed
    }

    /// Unlocks a store on a local disk that was not closed.
    pub(crate) fn unlock(&self) {
        if let Some(ownership) = &self.ownership {
            ownership.unlock();
        }
    }

    /// Releases the ownership of the store.
    pub(crate) async fn release_ownership(&self) {
        if let Some(ownership) = &self.ownership {
            ownership.release().await;
        }
    }
}

fn is_fenced(status: &DbStatus) -> bool {
    status.close_reason == Some(CloseReason::Fenced)
}

fn view_of(fixed: &Option<Arc<View>>, current: &follow::follower::CurrentView) -> Arc<View> {
    let current = || Arc::clone(&current.read().unwrap_or_else(PoisonError::into_inner));
    fixed.clone().unwrap_or_else(current)
}

/// Returns an error if a future panics.
///
/// Manifests have no checksum in SlateDB, and some damaged bytes make it panic.
async fn unless_it_panics<T>(
    reading: impl Future<Output = Result<T, StoreError>>,
) -> Result<T, StoreError> {
    AssertUnwindSafe(reading).catch_unwind().await.unwrap_or_else(|_| {
        Err(StoreError::Corrupt {
            location: MANIFEST_OBJECTS.to_owned(),
            detail: "it cannot be decoded".to_owned(),
        })
    })
}

fn unavailable(error: &slatedb::object_store::Error) -> StoreError {
    StoreError::Unavailable(error.to_string())
}

fn store_error(error: &slatedb::Error) -> StoreError {
    if let Some(damage) = objects::checksummed::damage_in(error) {
        return damage;
    }
    match error.kind() {
        ErrorKind::Closed(CloseReason::Fenced) => StoreError::Fenced,
        ErrorKind::Closed(CloseReason::Clean) => StoreError::Closed,
        // WAL files are missing.
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
