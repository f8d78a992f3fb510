//! Following a store that another process writes to: from view to view ([`crate::lsm::follow::view`]).
//!
//! ```text
//! each time      the files that the log has gained                      1 request, and 1 a file
//! now and then   is there another manifest? if its files are others,    1 request
//!                they are pinned, and become the base of the next view
//! a third of a   the checkpoints of what is still read are renewed,
//! lifetime       those of what is not are deleted
//! ```
//!
//! A reader that has been held up for long finds the next file of the log gone. What it held is in
//! the files of the newest manifest by then, so the next view is of these, and says that there is a
//! gap: what has changed since the view before is not known by row.

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

/// Bytes that the log adds to the files, from which others are looked for each time.
const ADDED_BYTES_MAX: usize = 64 << 20;
/// Bytes that a row takes beside its key and value.
const ROW_BYTES: usize = 96;

/// The view that reads begin with.
pub(in crate::lsm) type CurrentView = Arc<RwLock<Arc<View>>>;

/// What follows the store.
pub(crate) struct LsmFollower {
    location: ViewLocation,
    tail: Tail,
    current: CurrentView,
    /// How often another manifest is looked for.
    look_interval: Duration,
    /// The newest view, which may not be shown yet.
    view: Arc<View>,
    /// Rows that no view has yet.
    pending: Vec<Row>,
    has_gap: bool,
    /// Rows of the log up to this one are of no use any more.
    applied_seq: u64,
    seen_manifest: u64,
    /// When another manifest was looked for; none where one is wanted at once.
    looked_at: Option<Instant>,
    renewed_at: Instant,
    /// Bases before, as long as somebody reads them, and what keeps their files.
    bases: Vec<(Weak<ViewBase>, CheckpointCreateResult)>,
}

/// What has been committed since the step before.
pub(crate) struct FollowStep {
    pub(in crate::lsm) view: Arc<View>,
    /// The rows, in the order of commits.
    pub(crate) rows: Vec<Row>,
    /// Whether the rows are not all that has changed.
    pub(crate) has_gap: bool,
}

impl LsmFollower {
    /// Follows from a base on, which is current.
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
            location,
            view,
        }
    }

    /// Reads what has been committed since; none where nothing has.
    ///
    /// Errors: the object store cannot be read; what has been read comes with the next step.
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

    /// The number of the newest commit that is there.
    pub(in crate::lsm) fn newest_commit(&self) -> u64 {
        let seqs = self.view.added.values().map(|(seq, _)| *seq);
        seqs.fold(self.view.base.manifest.last_l0_seq(), u64::max)
    }

    /// The last step once more, for one that could not be taken.
    pub(crate) fn repeat_step(&self) -> FollowStep {
        FollowStep { view: Arc::clone(&self.view), rows: Vec::new(), has_gap: true }
    }

    /// Shows the view of a step to reads that begin from now on.
    pub(crate) fn publish(&self, step: &FollowStep) {
        *self.current.write().unwrap_or_else(PoisonError::into_inner) = Arc::clone(&step.view);
    }

    /// Notes that all records of the log up to the newest view are in the head.
    pub(crate) fn note_applied(&mut self) {
        let seqs = self.view.added.values().map(|(seq, _)| *seq);
        self.applied_seq = seqs.fold(self.applied_seq, u64::max);
    }

    /// Renews what keeps files that are read, and lets go of others.
    ///
    /// Errors: the object store does not answer; the files are kept for the rest of the lifetime.
    pub(crate) async fn keep_files(&mut self) -> Result<(), StoreError> {
        let gone = self.bases.extract_if(.., |(base, _)| base.strong_count() == 0);
        for (_, checkpoint) in gone.collect::<Vec<_>>() {
            if let Err(error) = self.location.unpin(&checkpoint).await {
                tracing::debug!(%error, "a checkpoint of this reader ends by its lifetime");
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
            tracing::warn!("the files of a view were not kept for long enough; others are taken");
            self.request_base();
        }
        self.renewed_at = Instant::now();
        Ok(())
    }

    /// Takes the newest files with the next step, whatever they are.
    pub(crate) fn request_base(&mut self) {
        self.seen_manifest = 0;
        self.looked_at = None;
    }

    /// Lets go of everything that is kept for this reader.
    pub(crate) async fn close(&mut self) {
        let current = self.view.base.checkpoint.clone();
        let before = self.bases.drain(..).map(|(_, checkpoint)| checkpoint);
        for checkpoint in before.chain(current).collect::<Vec<_>>() {
            if let Err(error) = self.location.unpin(&checkpoint).await {
                tracing::warn!(%error, "a checkpoint of this reader ends by its lifetime");
            }
        }
    }

    /// Files that are to be read from now on, if they are others than before.
    async fn look(&mut self) -> Result<Option<ViewBase>, StoreError> {
        let must_pin = self.seen_manifest == 0;
        // Behind a long pause the next one may have come and gone.
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
        // What was written before the files were is in them or in the log; what is in both is to
        // be known by its rows, too.
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
            Err(error) => Err(StoreError::Unavailable(error.to_string())),
        }
    }

    /// Makes the next view.
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

/// Whether two manifests list the same files.
fn has_same_files(a: &VersionedManifest, b: &VersionedManifest) -> bool {
    a.last_l0_seq() == b.last_l0_seq()
        && a.l0() == b.l0()
        && a.compacted() == b.compacted()
        && a.segments() == b.segments()
}
