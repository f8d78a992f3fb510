//! Deletes of series: tombstones hide samples until no SST holds them.
//!
//! ```text
//! delete  the log epoch ends; a tombstone naming it becomes durable; the head drops covered
//!         samples, selections mask them in sealed runs; the delete is acknowledged
//! replay  at the end of that epoch, the head drops the covered samples again
//! clean   covered runs are rewritten without the samples; then the tombstone masks nothing, and
//!         is deleted with the last log record that it covers
//! ```
//!
//! A tombstone covers log epochs and runs up to its own epoch: everything written before the
//! delete, and nothing written after it, whatever its time. A seal that runs during the delete has
//! the number of an earlier epoch, so the delete covers its blocks. Before a later seal, the head
//! drops the samples.

mod mask;
mod value;

use std::collections::BTreeMap;
use std::sync::{Arc, PoisonError, RwLock};

use model::Matcher;

pub(crate) use mask::{KeptSamples, Masks, kept_parts};
pub(crate) use value::{decode, encode};

use crate::epoch::Epoch;
use crate::error::StoreError;

/// Maximum number of uncleaned deletes. Each costs a look-up in every selection of its times.
pub const TOMBSTONES_MAX: usize = 1000;
/// Maximum bytes of the matchers of one delete.
pub const TOMBSTONE_BYTES_MAX: usize = 64 << 10;
/// Maximum bytes of the matchers of all uncleaned deletes.
pub const TOMBSTONES_BYTES_MAX: usize = 4 << 20;
/// Bytes that a matcher counts in addition to its texts.
const MATCHER_BYTES: usize = 32;

/// A delete of samples.
#[derive(Debug)]
pub(crate) struct Tombstone {
    /// Last log epoch whose samples are covered, unique to each tombstone.
    pub(crate) epoch: Epoch,
    /// First and last time, in ms.
    pub(crate) start_ms: i64,
    pub(crate) end_ms: i64,
    /// Selectors; a series is covered if it passes all matchers of one selector.
    pub(crate) selectors: Vec<Vec<Matcher>>,
    /// Set if no run has covered samples: the tombstone is kept only for the log.
    pub(crate) is_cleaned: bool,
}

impl Tombstone {
    /// Returns the bytes that count towards the limits.
    fn bytes(&self) -> usize {
        bytes_of(&self.selectors)
    }

    /// Returns whether the tombstone masks times of a range in runs from `epoch_min` on.
    pub(crate) fn masks(&self, start_ms: i64, end_ms: i64, epoch_min: Epoch) -> bool {
        !self.is_cleaned
            && self.epoch >= epoch_min
            && self.start_ms <= end_ms
            && self.end_ms >= start_ms
    }
}

fn bytes_of(selectors: &[Vec<Matcher>]) -> usize {
    let matcher_bytes = |m: &Matcher| MATCHER_BYTES + m.name().len() + m.value().len();
    selectors.iter().map(|s| MATCHER_BYTES + s.iter().map(matcher_bytes).sum::<usize>()).sum()
}

/// Tombstones of a store, by epoch.
#[derive(Debug, Default)]
pub(crate) struct Tombstones(RwLock<Arc<BTreeMap<Epoch, Arc<Tombstone>>>>);

/// Tombstones at one point in time.
pub(crate) type TombstoneSnapshot = Arc<BTreeMap<Epoch, Arc<Tombstone>>>;

impl Tombstones {
    /// Creates a set of the tombstones that a start has read.
    pub(crate) fn new(all: Vec<Tombstone>) -> Tombstones {
        let all = all.into_iter().map(|tombstone| (tombstone.epoch, Arc::new(tombstone)));
        Tombstones(RwLock::new(Arc::new(all.collect())))
    }

    /// Returns the current tombstones.
    pub(crate) fn all(&self) -> TombstoneSnapshot {
        Arc::clone(&self.0.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Returns the number of all tombstones, and of uncleaned tombstones.
    pub(crate) fn counts(&self) -> (usize, usize) {
        let all = self.all();
        (all.len(), all.values().filter(|tombstone| !tombstone.is_cleaned).count())
    }

    /// Replaces all tombstones.
    pub(crate) fn set(&self, all: Vec<Tombstone>) {
        let all = all.into_iter().map(|tombstone| (tombstone.epoch, Arc::new(tombstone)));
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(all.collect());
    }

    /// Adds a tombstone, or replaces the tombstone of the same epoch.
    pub(crate) fn put(&self, tombstone: Tombstone) {
        self.change(|all| drop(all.insert(tombstone.epoch, Arc::new(tombstone))));
    }

    /// Removes a tombstone.
    pub(crate) fn remove(&self, epoch: Epoch) {
        self.change(|all| drop(all.remove(&epoch)));
    }

    /// Adds the tombstones `new` and removes the epochs `old`, atomically.
    pub(crate) fn exchange(&self, new: Vec<Tombstone>, old: &[Epoch]) {
        self.change(|all| {
            old.iter().for_each(|epoch| drop(all.remove(epoch)));
            all.extend(new.into_iter().map(|tombstone| (tombstone.epoch, Arc::new(tombstone))));
        });
    }

    fn change(&self, change: impl FnOnce(&mut BTreeMap<Epoch, Arc<Tombstone>>)) {
        let mut all = self.0.write().unwrap_or_else(PoisonError::into_inner);
        change(Arc::make_mut(&mut all));
    }

    /// Checks that the limits allow another delete.
    ///
    /// Errors: the exceeded limit.
    pub(crate) fn admit(&self, selectors: &[Vec<Matcher>]) -> Result<(), StoreError> {
        let bytes = bytes_of(selectors);
        if bytes > TOMBSTONE_BYTES_MAX {
            return Err(StoreError::LimitExceeded(format!(
                "the matchers of the delete take {bytes} bytes, the limit is {TOMBSTONE_BYTES_MAX}"
            )));
        }
        let all = self.all();
        let count = all.len() + 1;
        if count > TOMBSTONES_MAX {
            return Err(StoreError::Uncleaned(format!(
                "{count} deletes are not cleaned up yet, the limit is {TOMBSTONES_MAX}; clean \
                 tombstones first"
            )));
        }
        let total = bytes + all.values().map(|tombstone| tombstone.bytes()).sum::<usize>();
        if total > TOMBSTONES_BYTES_MAX {
            return Err(StoreError::Uncleaned(format!(
                "the matchers of deletes that are not cleaned up yet take {total} bytes, the limit \
                 is {TOMBSTONES_BYTES_MAX}; clean tombstones first"
            )));
        }
        Ok(())
    }
}
