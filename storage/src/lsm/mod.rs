//! The log-structured merge tree below everything: the only place that names slatedb.
//!
//! Leaves to others what keys and values mean ([`crate::keys`]). Adds to slatedb: one commit
//! that is durable when it returns, scans that read ahead, a cache, our own errors. Of [`Lsm`] here
//! is what is written and what there is; [`open`] opens it, [`read`] reads it.

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
use std::panic::AssertUnwindSafe;
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use futures::FutureExt;
use model::Budget;
use slatedb::config::{FlushOptions, FlushType};
use slatedb::manifest::{SortedRun, SsTableView};
use slatedb::{CloseReason, Db, DbStatus, ErrorKind, VersionedManifest, WriteBatch};

use cache::blocks::BlockCacheStats;
use cache::disk::DiskCacheStats;
pub(crate) use compaction::garbage::{Read, Reads};
pub(crate) use compaction::orphans::OrphanStats;
pub(crate) use follow::follower::{FollowStep, LsmFollower};
pub(crate) use follow::view::Row;
use follow::view::View;
pub(crate) use objects::files::{ObjectEntry, Objects};
#[cfg(test)]
pub(crate) use objects::layer::{Layer, Layered};
pub(crate) use objects::location::Location;
#[cfg(test)]
pub(crate) use objects::location::Simulated;
pub use objects::location::{SharedMemory, local_folder};
pub use objects::metered::{ReadCount, Reader};
use snapshot::FOLDER as SNAPSHOTS_FOLDER;
pub(crate) use snapshot::Snapshot;
#[cfg(test)]
pub(crate) use testing::{
    checkpoint_count, collect_garbage, delete_unlisted, end_checkpoints, file_count,
};

use crate::error::StoreError;
use crate::keys;

/// Where damage lies of which slatedb tells.
pub(crate) const OBJECT_STORE: &str = "the object store";
/// Where it lies, if it is in no file of the log.
const MANIFEST_OBJECTS: &str = "the newest object below manifest/ or compactions/";

/// How long is waited for files to be written out.
const FLUSH_TIMEOUT: Duration = Duration::from_secs(60);

/// An open tree. Copies share it.
#[derive(Clone)]
pub(crate) struct Lsm {
    access: Access,
    compaction_requests: compaction::schedule::CompactionRequests,
    reads: compaction::garbage::Reads,
    /// What a crash has left; none where the tree can only be read.
    orphans: Option<Arc<compaction::orphans::Orphans>>,
    read_timeout: Duration,
    blocks: Arc<cache::blocks::BlockCache>,
    files: snapshot::Files,
    disk: Option<Arc<dyn Fn() -> DiskCacheStats + Send + Sync>>,
    counters: Arc<objects::metered::ReadCounters>,
    failures: Arc<objects::failures::Failures>,
    /// Where commits are noted, on a local disk.
    mark: Option<Arc<mark::Mark>>,
    /// That this process owns the tree; none where it only reads it.
    ownership: Option<Arc<owner::Ownership>>,
    idle: tracing_account::IdleDispatchers,
    /// Who pays for reads, if not the store itself.
    account: Option<Arc<tracing_account::Account>>,
}

/// Who has opened the tree.
#[derive(Clone)]
enum Access {
    /// The one that writes to it.
    Writer(Db),
    /// One that reads it: always this view, or the one that is current.
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

    /// Removes a key.
    pub(crate) fn delete(&mut self, key: &[u8]) {
        self.batch.get_or_insert_default().delete(key);
    }
}

impl Lsm {
    /// Whether the tree can only be read.
    pub(crate) fn is_read_only(&self) -> bool {
        matches!(self.access, Access::Reader(..))
    }

    /// The tree as it is now, and stays, where another process writes to it.
    pub(crate) fn fixed(&self) -> Lsm {
        let access = match &self.access {
            Access::Writer(db) => Access::Writer(db.clone()),
            Access::Reader(fixed, current) => {
                Access::Reader(Some(view_of(fixed, current)), Arc::clone(current))
            }
        };
        Lsm { access, ..self.clone() }
    }

    /// The tree as it is after a step.
    pub(crate) fn at(&self, step: &FollowStep) -> Lsm {
        let access = match &self.access {
            Access::Writer(db) => Access::Writer(db.clone()),
            Access::Reader(_, current) => {
                Access::Reader(Some(Arc::clone(&step.view)), Arc::clone(current))
            }
        };
        Lsm { access, ..self.clone() }
    }

    /// What writes to the tree.
    fn db(&self) -> Result<&Db, StoreError> {
        match &self.access {
            Access::Writer(db) => Ok(db),
            Access::Reader(..) => Err(StoreError::ReadOnly),
        }
    }

    /// Why this process may no longer write to the tree, as far as that is known: within a second
    /// or two on a local disk and after fencing, within the duration of a lease otherwise.
    pub(crate) fn lost(&self) -> Option<StoreError> {
        let lost = self.ownership.as_ref().and_then(|ownership| ownership.standing().lost());
        lost.or_else(|| match &self.access {
            Access::Writer(db) => is_fenced(&db.status()).then_some(StoreError::Fenced),
            Access::Reader(..) => None,
        })
    }

    /// Waits until this process may no longer write to the tree, and returns why.
    pub(crate) async fn wait_until_lost(&self) -> StoreError {
        let (Access::Writer(db), Some(ownership)) = (&self.access, &self.ownership) else {
            return std::future::pending().await;
        };
        let mut status = db.subscribe();
        let fenced = async {
            match status.wait_for(is_fenced).await.is_ok() {
                true => StoreError::Fenced,
                // The tree has gone.
                false => std::future::pending().await,
            }
        };
        tokio::select! {
            error = ownership.standing().wait() => error,
            error = fenced => error,
        }
    }

    fn manifest(&self) -> VersionedManifest {
        match &self.access {
            Access::Writer(db) => db.manifest(),
            Access::Reader(fixed, current) => view_of(fixed, current).base.manifest.clone(),
        }
    }

    /// The tree, with reads that count for a query and stop where it has made too many.
    pub(crate) fn for_query(&self, budget: &Budget) -> Lsm {
        let account = Some(Arc::new(tracing_account::Account::new(budget.clone(), &self.idle)));
        Lsm { account, ..self.fixed() }
    }

    /// Deletes what a crash has left, as far as it may go by now.
    pub(crate) async fn collect_orphans(&self) {
        if let Some(orphans) = &self.orphans {
            orphans.collect().await;
        }
    }

    /// Whether something that a crash has left is still to be deleted that no checkpoint keeps.
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
        self.compaction_requests.drop_partitions_before(partition);
    }

    /// Merges the files of partitions from one on as those of others, since they may be written to.
    pub(crate) fn keep_partitions_from(&self, partition: i64) {
        self.compaction_requests.keep_partitions_from(partition);
    }

    /// Lets go of the files of log epochs before one. No start reads them again.
    pub(crate) fn drop_log_before(&self, epoch: u32) {
        self.compaction_requests.drop_log_before(epoch);
    }

    /// Merges the files of a partition into one run, so that what has been deleted gives its space
    /// back. It has been written to files.
    pub(crate) fn compact_partition(&self, partition: i64) {
        self.compaction_requests.compact_partition(partition, self.manifest().id());
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

    /// Why a write to the object store has failed within so long, if one has.
    pub(crate) fn write_failure(&self, within: Duration) -> Option<String> {
        self.failures.within(within)
    }

    /// Writes what is in memory to its final place, and closes.
    pub(crate) async fn close(&self) -> Result<(), StoreError> {
        let Access::Writer(db) = &self.access else { return Ok(()) };
        let closed = db.close().await.map_err(|e| store_error(&e));
        self.disown().await;
        closed
    }

    /// Unlocks a store on a local disk that was not closed.
    pub(crate) fn unlock(&self) {
        if let Some(ownership) = &self.ownership {
            ownership.unlock();
        }
    }

    /// Gives the store back that this process owns.
    pub(crate) async fn disown(&self) {
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

/// Errors: some bytes of a manifest, which has no checksum, are such that slatedb panics.
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

fn store_error(error: &slatedb::Error) -> StoreError {
    if let Some(damage) = objects::checksummed::damage_in(error) {
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
