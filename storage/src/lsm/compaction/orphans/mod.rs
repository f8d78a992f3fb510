//! Cleanup of objects that a crash has left, and that SlateDB does not delete.
//!
//! SlateDB deletes an unreferenced SST only after a later compaction has finished and a later SST
//! has been written, which may never happen. It does not know incomplete files at all. So a start
//! lists what exists before it opens the LSM, and later deletes what cannot be in use:
//!
//! ```text
//! compacted/ID.sst      written, but the crash came before a manifest referenced it
//! compacted/ID.sst      unfinished multipart upload
//! …/NAME#1              incomplete file on a local disk
//! check/NAME            object of a preflight check
//! ```
//!
//! The order of events decides what may be deleted, not a clock:
//!
//! ```text
//! list      list the objects; then read the manifest, then the compactions
//! open      a manifest with newer epochs of the writer and the compactor is written
//! wait      until both epochs are newer, and no compaction from before is active: the
//!           processes that wrote the listed objects are fenced, and no longer reference them
//! collect   at least a minute later: what is not referenced by the newest manifest, by the
//!           manifest of a checkpoint, or by a compaction that has just ended
//! ```
//!
//! An SST that only a checkpoint references is deleted after the checkpoint has ended. SlateDB
//! writes a checkpoint of some seconds for each compaction, which stays in the manifest for
//! minutes. After a crash, no other process would delete the inputs of the compaction.
//!
//! SSTs that were referenced between the listing and the opening may be read by this process: they
//! are deleted by the rules of [`garbage`](crate::lsm::compaction::garbage).
//!
//! Rounds have a limited duration, as the caller has other work. A failed deletion does not block
//! the others: it is tried again after them.

mod candidates;

use std::collections::{BTreeSet, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use futures::stream::{self, StreamExt};
use slatedb::admin::Admin;
use slatedb::object_store::path::Path as ObjectPath;
use slatedb::object_store::{self, ObjectStore, ObjectStoreExt};
use tokio::sync::Mutex;
use tokio::time::Instant;

use crate::error::StoreError;
use crate::lsm::OBJECT_STORE;
use crate::lsm::compaction::garbage::TablesInUse;
use crate::lsm::compaction::tables::names_of;
use crate::lsm::objects::location::Location;
use crate::lsm::objects::uploads::Uploads;
use crate::lsm::read::in_time;
use crate::lsm::unavailable;
use crate::options::StoreOptions;
pub(in crate::lsm) use candidates::OrphanCandidates;
use candidates::{Orphan, StagedFile};

/// Maximum number of deletions in flight.
const DELETES_MAX: usize = 8;
/// Maximum duration of a round. Requests that are still in flight are not awaited.
const ROUND_TIMEOUT: Duration = Duration::from_secs(5);

/// Statistics of deleted orphans.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct OrphanStats {
    /// Deleted files, incomplete ones and uploads included.
    pub(crate) files: u64,
    /// Bytes of the files; 0 for uploads.
    pub(crate) bytes: u64,
}

/// Result of a round.
#[derive(Default)]
struct Round {
    done: usize,
    /// First error of a deletion.
    error: Option<StoreError>,
}

/// Cleanup of orphans; it has nothing to do once all are deleted.
pub(in crate::lsm) struct Orphans {
    object_store: Arc<dyn ObjectStore>,
    path: ObjectPath,
    uploads: Option<Arc<dyn Uploads>>,
    in_use: TablesInUse,
    request_timeout: Duration,
    age_min: Duration,
    /// Maximum number of deletions in a round.
    per_round: usize,
    /// `None` once nothing is left.
    leftover: Mutex<Option<(OrphanCandidates, Instant)>>,
    files: AtomicU64,
    bytes: AtomicU64,
}

impl Orphans {
    /// Creates the cleanup. It begins `orphan_age_min` from now at the earliest.
    pub(in crate::lsm) fn new(
        location: &Location,
        objects: Arc<dyn ObjectStore>,
        in_use: TablesInUse,
        options: &StoreOptions,
        found: Option<OrphanCandidates>,
    ) -> Orphans {
        let found = found.filter(|found| !found.is_empty());
        Orphans {
            object_store: objects,
            path: location.path.clone(),
            uploads: location.uploads.clone(),
            in_use,
            request_timeout: options.read_timeout,
            age_min: options.orphan_age_min,
            per_round: options.sizes.orphans_per_round,
            leftover: Mutex::new(found.map(|found| (found, Instant::now()))),
            files: AtomicU64::new(0),
            bytes: AtomicU64::new(0),
        }
    }

    /// Returns the number of files deleted since the start.
    pub(in crate::lsm) fn stats(&self) -> OrphanStats {
        OrphanStats {
            files: self.files.load(Ordering::Relaxed),
            bytes: self.bytes.load(Ordering::Relaxed),
        }
    }

    /// Deletes some of the orphans that may be deleted by now. Failed deletions are tried again
    /// after the others, and after another wait.
    pub(in crate::lsm) async fn collect(&self) {
        let mut leftover = self.leftover.lock().await;
        let Some((found, since)) = leftover.as_mut() else { return };
        if since.elapsed() < self.age_min {
            return;
        }
        let before = self.stats();
        let mut round = Round::default();
        if let Err(error) = self.collect_found(found, &mut round).await {
            round.error = Some(error);
        }
        if let Some(error) = &round.error {
            tracing::warn!(%error, "orphaned files cannot be deleted; the next round tries again");
        }
        let has_stayed = !found.failed.is_empty() || !found.pinned.is_empty();
        if round.done == 0 && (round.error.is_some() || has_stayed) {
            found.orphans.extend(found.failed.drain());
            *since = Instant::now();
        }
        let OrphanStats { files, bytes } = self.stats();
        if files > before.files {
            let (files, bytes) = (files - before.files, bytes - before.bytes);
            tracing::info!(files, bytes, "orphaned files have been deleted");
        }
        if found.is_empty() {
            *leftover = None;
        }
    }

    /// Returns whether orphans are left that no checkpoint references.
    #[cfg(test)]
    pub(in crate::lsm) async fn is_waiting(&self) -> bool {
        let leftover = self.leftover.lock().await;
        leftover.as_ref().is_some_and(|(found, _)| !found.has_only_pinned())
    }

    async fn collect_found(
        &self,
        found: &mut OrphanCandidates,
        round: &mut Round,
    ) -> Result<(), StoreError> {
        let admin = Admin::builder(self.path.clone(), Arc::clone(&self.object_store)).build();
        let limit = self.request_timeout;
        // Compactions first: one leaves the list once the manifest references its output.
        let compactions = in_time(limit, admin.read_compactions(None)).await?;
        let newest = in_time(limit, admin.read_manifest(None)).await?;
        let newest = newest.ok_or_else(|| missing("the newest manifest"))?;
        if !found.is_fenced(&newest, compactions.as_ref()) {
            return Ok(());
        }
        found.orphans.extend(found.pinned.drain());
        found.exclude_referenced(&newest);
        let kept: BTreeSet<u64> = newest.checkpoints().iter().map(|c| c.manifest_id).collect();
        let mut pinned = HashSet::new();
        for id in kept {
            let manifest = in_time(limit, admin.read_manifest(Some(id))).await?;
            pinned.extend(names_of(&manifest.ok_or_else(|| missing(&format!("manifest {id}")))?));
        }
        found.set_pinned(&pinned);
        let allowed = self.in_use.allowed(found.not_in_compaction(compactions.as_ref()));
        let may_go = |orphan: &&Orphan| match orphan {
            Orphan::Table(file) => allowed.contains(file),
            _ => true,
        };
        let tried: Vec<Orphan> =
            found.orphans.iter().filter(may_go).take(self.per_round).cloned().collect();
        self.delete_all(tried, found, round).await;
        Ok(())
    }

    /// Deletes orphans until the time is over, and removes them from the candidates.
    async fn delete_all(
        &self,
        tried: Vec<Orphan>,
        found: &mut OrphanCandidates,
        round: &mut Round,
    ) {
        let until = Instant::now() + ROUND_TIMEOUT;
        let delete = |orphan: Orphan| async move { (self.delete(&orphan).await, orphan) };
        let mut deleting = stream::iter(tried).map(delete).buffer_unordered(DELETES_MAX);
        loop {
            match tokio::time::timeout_at(until, deleting.next()).await {
                Ok(Some((Ok(()), orphan))) => {
                    round.done += 1;
                    found.orphans.remove(&orphan);
                }
                Ok(Some((Err(error), orphan))) => {
                    round.error.get_or_insert(error);
                    found.orphans.remove(&orphan);
                    found.failed.insert(orphan);
                }
                Ok(None) => return,
                Err(_) => {
                    if round.done == 0 {
                        round.error.get_or_insert_with(|| unanswered(ROUND_TIMEOUT));
                    }
                    return;
                }
            }
        }
    }

    /// Deletes one orphan. It is no error if it does not exist.
    async fn delete(&self, orphan: &Orphan) -> Result<(), StoreError> {
        let (deleted, bytes) = match orphan {
            Orphan::Table(file) | Orphan::Check(file) => {
                (self.object_store.delete(&file.location).await, file.size)
            }
            Orphan::Staged(file) => return self.delete_staged(file.clone()).await,
            // The size of an upload is not known.
            Orphan::Upload(upload) => match &self.uploads {
                Some(uploads) => (uploads.abort(upload).await, 0),
                None => return Ok(()),
            },
        };
        match deleted {
            Ok(()) => self.note_deleted(bytes),
            Err(object_store::Error::NotFound { .. }) => {}
            Err(error) => return Err(unavailable(&error)),
        }
        Ok(())
    }

    /// Deletes an incomplete file, unless it has changed since.
    async fn delete_staged(&self, staged: StagedFile) -> Result<(), StoreError> {
        let bytes = staged.bytes;
        let deleting = tokio::task::spawn_blocking(move || {
            let is_same = StagedFile::at(staged.path.clone()).is_some_and(|now| now == staged);
            let deleted = is_same.then(|| std::fs::remove_file(&staged.path));
            let described = |error| format!("{} cannot be deleted: {error}", staged.path.display());
            deleted.transpose().map_err(described)
        });
        let deleted = deleting.await.map_err(|error| error.to_string()).flatten();
        if deleted.map_err(StoreError::Unavailable)?.is_some() {
            self.note_deleted(bytes);
        }
        Ok(())
    }

    fn note_deleted(&self, bytes: u64) {
        self.files.fetch_add(1, Ordering::Relaxed);
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
    }
}

fn missing(what: &str) -> StoreError {
    StoreError::Unavailable(format!("{OBJECT_STORE} has lost {what}"))
}

pub(in crate::lsm) fn unanswered(waited: Duration) -> StoreError {
    StoreError::Unavailable(format!("{OBJECT_STORE} has not answered within {waited:?}"))
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicBool;

    use async_trait::async_trait;

    use super::*;
    use crate::Store;
    use crate::lsm::compaction::garbage::{CurrentTables, ReadTracker};
    use crate::lsm::objects::uploads::Upload;
    use crate::sizes::Sizes;
    use crate::tests::harness::{self, batch, labels, open};

    /// Orphan that a crash might have left.
    const ORPHAN: &str = "tessella/compacted/01ARZ3NDEKTSV4RRFFQ69G5FAV.sst";

    async fn found(location: &Location) -> OrphanCandidates {
        let found =
            OrphanCandidates::before_opening(location, &location.object_store).await.unwrap();
        let admin = Admin::builder(location.path.clone(), Arc::clone(&location.object_store));
        let admin = admin.build();
        let manifest = admin.read_manifest(None).await.unwrap().unwrap();
        let compactions = admin.read_compactions(None).await.unwrap();
        found.exclude_referenced_by(&manifest, compactions.as_ref())
    }

    fn orphans(location: &Location, reads: &ReadTracker, found: OrphanCandidates) -> Orphans {
        let options = StoreOptions {
            read_timeout: Duration::from_secs(10),
            orphan_age_min: Duration::ZERO,
            ..harness::options()
        };
        let objects = Arc::clone(&location.object_store);
        let unread = TablesInUse::new(reads.clone(), CurrentTables::none());
        Orphans::new(location, objects, unread, &options, Some(found))
    }

    async fn is_there(location: &Location) -> bool {
        location.object_store.head(&ObjectPath::from(ORPHAN)).await.is_ok()
    }

    /// Opens a store with an unreferenced SST.
    async fn store_with_orphan() -> (Location, Store) {
        let objects = harness::memory();
        let store = open(&objects).await.unwrap();
        store.append(batch(&labels(&[("a", "b")]), &[(1, 1.0)])).await.unwrap();
        objects.put(&ObjectPath::from(ORPHAN), "x".into()).await.unwrap();
        (Location::on(objects), store)
    }

    const PATIENCE: Duration = Duration::from_secs(120);

    /// Waits until the process that opened a store last is the only one that compacts.
    async fn collect_once_fenced(orphans: &Orphans) {
        let started = Instant::now();
        loop {
            orphans.collect().await;
            if !orphans.is_waiting().await {
                return;
            }
            assert!(started.elapsed() < PATIENCE, "something is not collected");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    #[test]
    fn orphans_stay_until_their_writer_is_fenced() {
        harness::run(async {
            let (location, writer) = store_with_orphan().await;
            // The compactor of the writer has started once there is a compaction list.
            let reads = ReadTracker::default();
            let looked = loop {
                let found = found(&location).await;
                if found.compactor_epoch > 0 {
                    break found;
                }
                tokio::time::sleep(Duration::from_millis(5)).await;
            };
            let orphans = orphans(&location, &reads, looked);
            for _ in 0..5 {
                orphans.collect().await;
                assert!(is_there(&location).await, "its writer may be about to name it");
            }
            let next = open(&location.object_store).await.unwrap();
            collect_once_fenced(&orphans).await;
            assert!(!is_there(&location).await);
            assert_eq!(orphans.stats(), OrphanStats { files: 1, bytes: 1 });
            drop((writer, next));
        });
    }

    #[test]
    fn orphans_stay_while_an_earlier_read_is_in_progress() {
        harness::run(async {
            let (location, store) = store_with_orphan().await;
            let reads = ReadTracker::default();
            let orphans = orphans(&location, &reads, found(&location).await);
            drop(store);
            let _next = open(&location.object_store).await.unwrap();
            let read = reads.begin();
            for _ in 0..200 {
                orphans.collect().await;
                assert!(is_there(&location).await);
                tokio::time::sleep(Duration::from_millis(2)).await;
            }
            drop(read);
            collect_once_fenced(&orphans).await;
            assert!(!is_there(&location).await);
        });
    }

    /// Uploads of which some cannot be aborted, with the number of attempts of each.
    #[derive(Debug)]
    struct Stubborn {
        uploads: Vec<Upload>,
        is_refused: fn(&Upload) -> bool,
        is_over: AtomicBool,
        tries: AtomicU64,
    }

    #[async_trait]
    impl Uploads for Stubborn {
        async fn list(&self, _: &ObjectPath) -> Result<Vec<Upload>, String> {
            Ok(self.uploads.clone())
        }

        async fn abort(&self, upload: &Upload) -> object_store::Result<()> {
            self.tries.fetch_add(1, Ordering::Relaxed);
            match (self.is_refused)(upload) && !self.is_over.load(Ordering::Relaxed) {
                true => Err(object_store::Error::PermissionDenied {
                    path: upload.path.to_string(),
                    source: "not aborted".into(),
                }),
                false => Ok(()),
            }
        }
    }

    #[test]
    fn what_cannot_be_deleted_keeps_nothing_from_it_and_no_round_is_long() {
        harness::run(async {
            let (mut location, store) = store_with_orphan().await;
            drop(store);
            let upload = |number: usize| Upload {
                path: ObjectPath::from(format!("tessella/compacted/{number}.sst")),
                id: number.to_string(),
            };
            let per_round = Sizes::small().orphans_per_round;
            // More than fit into a round, and more than can be deleted.
            let is_refused = |upload: &Upload| upload.id.len() > 1;
            let stubborn = Arc::new(Stubborn {
                uploads: (0..2 * per_round + 10).map(upload).collect(),
                is_refused,
                is_over: AtomicBool::new(false),
                tries: AtomicU64::new(0),
            });
            location.uploads = Some(Arc::clone(&stubborn) as Arc<dyn Uploads>);
            let reads = ReadTracker::default();
            let orphans = orphans(&location, &reads, found(&location).await);
            let _next = open(&location.object_store).await.unwrap();
            let started = Instant::now();
            loop {
                let before = stubborn.tries.load(Ordering::Relaxed);
                orphans.collect().await;
                let tries = stubborn.tries.load(Ordering::Relaxed) - before;
                assert!(tries <= per_round as u64, "{tries} in a round");
                if orphans.stats().files == 11 {
                    break;
                }
                assert!(started.elapsed() < PATIENCE, "{:?}", orphans.stats());
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
            assert_eq!(orphans.stats(), OrphanStats { files: 11, bytes: 1 });
            assert!(!is_there(&location).await && orphans.is_waiting().await);
            stubborn.is_over.store(true, Ordering::Relaxed);
            collect_once_fenced(&orphans).await;
            assert!(!orphans.is_waiting().await);
            assert_eq!(orphans.stats().files, 11 + 2 * per_round as u64);
        });
    }
}
