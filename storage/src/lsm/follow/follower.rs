//! Follows a store that another process writes to, from view to view
//! ([`crate::lsm::follow::view`]).
//!
//! ```text
//! each step      read new WAL files                                     1 request, and 1 a file
//! now and then   look for a newer manifest; if its SSTs differ,         1 request
//!                pin them as the base of the next view
//! a third of a   renew checkpoints of bases that are read,
//! lifetime       delete those of all others
//! ```
//!
//! A reader that was paused for long finds the next WAL file missing. Its rows are in the SSTs of
//! the newest manifest by then. So the next view starts from that manifest and reports a gap: the
//! changes since the previous view are not known row by row.

use std::sync::{Arc, PoisonError, RwLock, Weak};
use std::time::{Duration, Instant};

use bytes::Bytes;
use slatedb::object_store::{self, ObjectStoreExt};
use slatedb::{CheckpointCreateResult, VersionedManifest};

use crate::error::StoreError;
use crate::keys;
use crate::lsm::follow::tail::Tail;
use crate::lsm::follow::view::{Row, View, ViewBase, ViewLocation, WalRows};
use crate::lsm::settings::MANIFEST_AGE_MIN;
use crate::lsm::unavailable;

/// Bytes of WAL rows from which each step looks for a newer manifest.
const ADDED_BYTES_MAX: usize = 64 << 20;
/// Bytes that a row takes in addition to its key and value.
const ROW_BYTES: usize = 96;

/// View that new reads use.
pub(in crate::lsm) type CurrentView = Arc<RwLock<Arc<View>>>;

/// Follower of the LSM of another process.
pub(crate) struct LsmFollower {
    location: ViewLocation,
    tail: Tail,
    current: CurrentView,
    /// Interval between look-ups of a newer manifest.
    look_interval: Duration,
    /// Newest view, which may not be published yet.
    view: Arc<View>,
    /// Rows that are in no view yet.
    pending: Vec<Row>,
    has_gap: bool,
    /// Log rows up to this sequence number are in the head, and are left out of views.
    applied_seq: u64,
    seen_manifest: u64,
    /// Time of the last look-up of a manifest; `None` if one is wanted at once.
    looked_at: Option<Instant>,
    renewed_at: Instant,
    /// Earlier bases that are still read, with their checkpoints.
    bases: Vec<(Weak<ViewBase>, CheckpointCreateResult)>,
    /// Set once all checkpoints have been deleted.
    is_closed: bool,
}

/// Commits since the previous step.
pub(crate) struct FollowStep {
    pub(in crate::lsm) view: Arc<View>,
    /// Rows in the order of commits.
    pub(crate) rows: Vec<Row>,
    /// Set if the rows are not all that has changed.
    pub(crate) has_gap: bool,
}

impl LsmFollower {
    /// Creates a follower that starts from the current view.
    pub(in crate::lsm) fn new(
        location: ViewLocation,
        current: CurrentView,
        look_interval: Duration,
    ) -> LsmFollower {
        let view = Arc::clone(&current.read().unwrap_or_else(PoisonError::into_inner));
        let manifest = &view.base.manifest;
        let next = manifest.replay_after_wal_id() + 1;
        let tail = Tail::new(Arc::clone(&location.objects), location.path.clone(), next);
        let now = Instant::now();
        LsmFollower {
            tail,
            current,
            look_interval,
            pending: Vec::new(),
            has_gap: false,
            applied_seq: 0,
            seen_manifest: manifest.id(),
            looked_at: Some(now),
            renewed_at: now,
            bases: Vec::new(),
            is_closed: false,
            location,
            view,
        }
    }

    /// Reads new commits; returns `None` if there are none.
    ///
    /// Errors: the object store cannot be read. Rows read so far come with the next step.
    pub(crate) async fn advance(&mut self) -> Result<Option<FollowStep>, StoreError> {
        self.tail.read(&mut self.pending).await?;
        let is_due = self.looked_at.is_none_or(|at| at.elapsed() >= self.look_interval)
            || self.added_bytes() > ADDED_BYTES_MAX;
        let is_pinned = self.view.base.checkpoint.is_some();
        let base = if is_due && is_pinned { self.look().await? } else { None };
        if base.is_none() && self.pending.is_empty() {
            return Ok(None);
        }
        let rows = std::mem::take(&mut self.pending);
        let has_gap = std::mem::take(&mut self.has_gap);
        self.make_view(base, &rows);
        Ok(Some(FollowStep { view: Arc::clone(&self.view), rows, has_gap }))
    }

    /// Returns the sequence number of the newest commit.
    pub(in crate::lsm) fn newest_commit(&self) -> u64 {
        let seqs = self.view.added.values().map(|(seq, _)| *seq);
        seqs.fold(self.view.base.manifest.last_l0_seq(), u64::max)
    }

    /// Returns the last step again, for a caller that failed to apply it.
    pub(crate) fn repeat_step(&self) -> FollowStep {
        FollowStep { view: Arc::clone(&self.view), rows: Vec::new(), has_gap: true }
    }

    /// Makes the view of a step current for new reads.
    pub(crate) fn publish(&self, step: &FollowStep) {
        *self.current.write().unwrap_or_else(PoisonError::into_inner) = Arc::clone(&step.view);
    }

    /// Notes that the head has all log records up to the newest view.
    pub(crate) fn note_applied(&mut self) {
        let seqs = self.view.added.values().map(|(seq, _)| *seq);
        self.applied_seq = seqs.fold(self.applied_seq, u64::max);
    }

    /// Renews the checkpoints of SSTs that are read, and deletes all others.
    ///
    /// Errors: the object store does not answer; the SSTs are kept for the rest of the lifetime.
    pub(crate) async fn keep_files(&mut self) -> Result<(), StoreError> {
        let gone = self.bases.extract_if(.., |(base, _)| base.strong_count() == 0);
        for (_, checkpoint) in gone.collect::<Vec<_>>() {
            if let Err(error) = self.location.unpin(&checkpoint).await {
                tracing::debug!(%error, "a checkpoint of this reader is left to expire");
            }
        }
        if self.renewed_at.elapsed() < self.location.checkpoint_lifetime / 3 {
            return Ok(());
        }
        let current = self.view.base.checkpoint.clone();
        let mut is_lost = false;
        for checkpoint in self.bases.iter().map(|(_, checkpoint)| checkpoint).chain(&current) {
            match self.location.renew(checkpoint).await {
                Ok(()) => {}
                Err(StoreError::Corrupt { .. }) => is_lost = true,
                Err(error) => return Err(error),
            }
        }
        if is_lost {
            tracing::warn!("the checkpoint of a view has expired; the newest one is used");
            self.request_base();
        }
        self.renewed_at = Instant::now();
        Ok(())
    }

    /// Takes a new base with the next step, even if the manifest has not changed.
    pub(crate) fn request_base(&mut self) {
        self.seen_manifest = 0;
        self.looked_at = None;
    }

    /// Frees the rows of the newest view, which must not be read any more.
    pub(crate) fn free_rows(&mut self) {
        self.pending = Vec::new();
        let base = Arc::clone(&self.view.base);
        self.view = Arc::new(View { base, added: Arc::default() });
        *self.current.write().unwrap_or_else(PoisonError::into_inner) = Arc::clone(&self.view);
    }

    /// Deletes all checkpoints of this reader. Its views must not be read any more.
    pub(crate) async fn close(&mut self) {
        if std::mem::replace(&mut self.is_closed, true) {
            return;
        }
        let current = self.view.base.checkpoint.clone();
        let before = self.bases.drain(..).map(|(_, checkpoint)| checkpoint);
        for checkpoint in before.chain(current).collect::<Vec<_>>() {
            if let Err(error) = self.location.unpin(&checkpoint).await {
                tracing::warn!(%error, "a checkpoint of this reader is left to expire");
            }
        }
    }

    /// Returns a new base, if the newest manifest has other SSTs.
    async fn look(&mut self) -> Result<Option<ViewBase>, StoreError> {
        let must_pin = self.seen_manifest == 0;
        // After a long pause, the next manifest may have been created and deleted.
        let has_paused = self.looked_at.is_none_or(|at| at.elapsed() >= MANIFEST_AGE_MIN / 2);
        let may_be_new = has_paused || self.has_manifest(self.seen_manifest + 1).await?;
        if !must_pin && !may_be_new {
            self.looked_at = Some(Instant::now());
            return Ok(None);
        }
        let newest = self.location.newest_manifest().await?;
        let newest = newest.ok_or_else(|| StoreError::NoStore("it has been deleted".to_owned()))?;
        let base = &self.view.base.manifest;
        if !must_pin && has_same_files(base, &newest) {
            self.seen_manifest = newest.id();
            self.looked_at = Some(Instant::now());
            return Ok(None);
        }
        let base = self.location.pin().await?;
        // Earlier writes are in the new SSTs or in the log. Those in both are needed as rows, too.
        self.tail.read(&mut self.pending).await?;
        if base.manifest.replay_after_wal_id() >= self.tail.next {
            self.has_gap = true;
            self.tail.next = base.manifest.replay_after_wal_id() + 1;
            self.tail.read(&mut self.pending).await?;
        }
        self.seen_manifest = base.manifest.id();
        self.looked_at = Some(Instant::now());
        Ok(Some(base))
    }

    async fn has_manifest(&self, id: u64) -> Result<bool, StoreError> {
        let path = self.location.path.clone().join("manifest").join(format!("{id:020}.manifest"));
        match self.location.objects.head(&path).await {
            Ok(_) => Ok(true),
            Err(object_store::Error::NotFound { .. }) => Ok(false),
            Err(error) => Err(unavailable(&error)),
        }
    }

    /// Creates the next view.
    fn make_view(&mut self, base: Option<ViewBase>, rows: &[Row]) {
        let base = match base {
            None => Arc::clone(&self.view.base),
            Some(base) => {
                let before = &self.view.base;
                if let Some(checkpoint) = &before.checkpoint {
                    self.bases.push((Arc::downgrade(before), checkpoint.clone()));
                }
                Arc::new(base)
            }
        };
        let in_files = base.manifest.last_l0_seq();
        let is_wanted = |key: &Bytes, seq: u64| {
            seq > in_files && (seq > self.applied_seq || keys::parse_log(key).is_none())
        };
        let mut added: WalRows = self
            .view
            .added
            .iter()
            .filter(|(key, (seq, _))| is_wanted(key, *seq))
            .map(|(key, row)| (key.clone(), row.clone()))
            .collect();
        for row in rows.iter().filter(|row| is_wanted(&row.key, row.seq)) {
            added.insert(row.key.clone(), (row.seq, row.value.clone()));
        }
        self.view = Arc::new(View { base, added: Arc::new(added) });
    }

    fn added_bytes(&self) -> usize {
        let bytes = |key: &Bytes, value: &Option<Bytes>| {
            ROW_BYTES + key.len() + value.as_ref().map_or(0, Bytes::len)
        };
        let added = self.view.added.iter().map(|(key, (_, value))| bytes(key, value));
        let pending = self.pending.iter().map(|row| bytes(&row.key, &row.value));
        added.chain(pending).sum()
    }
}

/// Returns whether two manifests reference the same SSTs.
fn has_same_files(a: &VersionedManifest, b: &VersionedManifest) -> bool {
    a.last_l0_seq() == b.last_l0_seq()
        && a.l0() == b.l0()
        && a.compacted() == b.compacted()
        && a.segments() == b.segments()
}
