//! Deleting series: what a delete covers, until the samples are gone from every file.
//!
//! ```text
//! delete  the log epoch ends; a tombstone that names it is durable; the head drops what it
//!         covers; selections mask what it covers in sealed runs; acknowledged
//! replay  reaches the end of that epoch, and the head drops what it covers again
//! clean   runs that it covers are written anew without the samples; then it masks nothing, and
//!         goes with the last log record that it covers
//! ```
//!
//! A tombstone covers what is in log epochs up to its own, and in runs numbered so: what has been
//! written before it, and nothing that is written after it, whatever its time. A seal that is
//! under way when the delete comes is numbered by an earlier epoch, so what it publishes is
//! covered; one that begins later finds the samples gone from the head.

mod mask;
mod value;

use std::collections::BTreeMap;
use std::sync::{Arc, PoisonError, RwLock};

use model::Matcher;

pub(crate) use mask::{KeptSamples, Masks, kept_parts};
pub(crate) use value::{decode, encode};

use crate::error::StoreError;

/// Deletes that may be held before they are cleaned. Each costs a look-up in every selection of
/// its times.
pub const TOMBSTONES_MAX: usize = 1000;
/// Bytes that the matchers of one delete may take.
pub const TOMBSTONE_BYTES_MAX: usize = 64 << 10;
/// Bytes that the matchers of all deletes may take that are held.
pub const TOMBSTONES_BYTES_MAX: usize = 4 << 20;
/// What a matcher counts beside its texts.
const MATCHER_BYTES: usize = 32;

/// Samples that have been deleted.
#[derive(Debug)]
pub(crate) struct Tombstone {
    /// The log epoch up to which samples are covered; each tombstone has its own.
    pub(crate) epoch: u32,
    /// First and last time, in ms.
    pub(crate) start_ms: i64,
    pub(crate) end_ms: i64,
    /// Series that pass all matchers of one of these are covered.
    pub(crate) selectors: Vec<Vec<Matcher>>,
    /// Whether no run holds samples that it covers: it is kept for the log alone.
    pub(crate) is_cleaned: bool,
}

impl Tombstone {
    /// Bytes that it counts.
    fn bytes(&self) -> usize {
        bytes_of(&self.selectors)
    }

    /// Whether it masks something of a range of time in runs from a number on.
    pub(crate) fn masks(&self, start_ms: i64, end_ms: i64, run_min: u32) -> bool {
        !self.is_cleaned
            && self.epoch >= run_min
            && self.start_ms <= end_ms
            && self.end_ms >= start_ms
    }
}

fn bytes_of(selectors: &[Vec<Matcher>]) -> usize {
    let matcher_bytes = |m: &Matcher| MATCHER_BYTES + m.name().len() + m.value().len();
    selectors.iter().map(|s| MATCHER_BYTES + s.iter().map(matcher_bytes).sum::<usize>()).sum()
}

/// The tombstones of a store, by epoch.
#[derive(Debug, Default)]
pub(crate) struct Tombstones(RwLock<Arc<BTreeMap<u32, Arc<Tombstone>>>>);

/// The tombstones at one time.
pub(crate) type Snapshot = Arc<BTreeMap<u32, Arc<Tombstone>>>;

impl Tombstones {
    /// What has been read at a start.
    pub(crate) fn new(all: Vec<Tombstone>) -> Tombstones {
        let all = all.into_iter().map(|tombstone| (tombstone.epoch, Arc::new(tombstone)));
        Tombstones(RwLock::new(Arc::new(all.collect())))
    }

    /// Those that hold now.
    pub(crate) fn all(&self) -> Snapshot {
        Arc::clone(&self.0.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// How many there are, and how many of them mask something.
    pub(crate) fn counts(&self) -> (usize, usize) {
        let all = self.all();
        (all.len(), all.values().filter(|tombstone| !tombstone.is_cleaned).count())
    }

    /// Sets which ones hold from now on.
    pub(crate) fn set(&self, all: Vec<Tombstone>) {
        let all = all.into_iter().map(|tombstone| (tombstone.epoch, Arc::new(tombstone)));
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(all.collect());
    }

    /// Adds one, in place of another of the same epoch.
    pub(crate) fn put(&self, tombstone: Tombstone) {
        self.change(|all| drop(all.insert(tombstone.epoch, Arc::new(tombstone))));
    }

    /// Forgets one.
    pub(crate) fn remove(&self, epoch: u32) {
        self.change(|all| drop(all.remove(&epoch)));
    }

    /// Adds some, and forgets others, at once.
    pub(crate) fn exchange(&self, new: Vec<Tombstone>, old: &[u32]) {
        self.change(|all| {
            old.iter().for_each(|epoch| drop(all.remove(epoch)));
            all.extend(new.into_iter().map(|tombstone| (tombstone.epoch, Arc::new(tombstone))));
        });
    }

    fn change(&self, change: impl FnOnce(&mut BTreeMap<u32, Arc<Tombstone>>)) {
        let mut all = self.0.write().unwrap_or_else(PoisonError::into_inner);
        change(Arc::make_mut(&mut all));
    }

    /// Whether there is room for another delete.
    ///
    /// Errors: the limit that it passes.
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
