//! Exemplars: a ring of the newest, kept over a restart.
//!
//! ```text
//! decide      by the newest exemplar of the series: accepted, ignored, refused  stage
//! one value   for all exemplars of a commit, written with its log record        value
//! apply       once that is durable; evicts the oldest                           ring
//! ```
//!
//! The ring is bounded in exemplars, in exemplars per series, and in bytes of memory and of stored
//! values. A value is deleted with the first commit after the last of its exemplars is evicted. A
//! start reads all values. A damaged one is logged and reported in every answer, and only its own
//! exemplars are lost.

mod ring;
mod stage;
#[cfg(test)]
mod tests;
mod value;

use std::sync::{Mutex, MutexGuard, PoisonError};

use model::{
    Answer, Budget, BudgetError, Checkpoint, Exemplar, ExemplarQuery, Labels, SeriesExemplars,
};

use crate::error::StoreError;
use crate::keys;
use crate::lsm::{Lsm, WriteSet};

pub(crate) use ring::RingStats;
use ring::{Limits, Ring};
pub(crate) use stage::ExemplarStage;

/// Maximum number of exemplars of one series, so that a busy one does not evict all others.
pub const EXEMPLARS_PER_SERIES_MAX: usize = 10_000;
/// Maximum mean size of an exemplar in bytes, with the labels of its series. Larger exemplars leave
/// room for fewer.
pub const EXEMPLAR_BYTES_MEAN_MAX: usize = 1024;
/// Maximum number of warnings in an answer; the rest is counted.
const WARNINGS_MAX: usize = 10;

/// Newest exemplars of a store, in memory and stored.
pub(crate) struct ExemplarRing(Mutex<Ring>);

/// Checks a key and its value.
pub(crate) fn check_entry(key: &[u8], bytes: &[u8]) -> Result<(), StoreError> {
    keys::parse_exemplars(key).ok_or_else(|| crate::value::corrupt(key, "malformed key"))?;
    value::decode(key, bytes).map(drop)
}

impl ExemplarRing {
    /// Returns an empty ring with a maximum number of exemplars; 0 turns it off.
    pub(crate) fn new(exemplars_max: usize) -> ExemplarRing {
        ExemplarRing(Mutex::new(Ring::new(Limits {
            exemplars_max,
            per_series_max: EXEMPLARS_PER_SERIES_MAX,
            bytes_max: exemplars_max.saturating_mul(EXEMPLAR_BYTES_MEAN_MAX),
        })))
    }

    /// Reads the stored exemplars.
    pub(crate) async fn open(lsm: &Lsm, exemplars_max: usize) -> Result<ExemplarRing, StoreError> {
        let exemplars = ExemplarRing::new(exemplars_max);
        let mut scan = lsm.scan_prefix(keys::EXEMPLARS_PREFIX).await?;
        while let Some((key, bytes)) = scan.next().await? {
            exemplars.lock().replay(&key, &bytes);
        }
        Ok(exemplars)
    }

    /// Adds a value that another process has stored.
    pub(crate) fn follow(&self, key: &[u8], bytes: &[u8]) {
        let mut ring = self.lock();
        ring.replay(key, bytes);
        // The writer deletes them from the store.
        ring.forget_dead();
    }

    /// Replaces all exemplars by those that another process has stored.
    pub(crate) async fn reload(&self, lsm: &Lsm) -> Result<(), StoreError> {
        let exemplars_max = self.stats().exemplars_max;
        let read = ExemplarRing::open(lsm, exemplars_max).await?;
        std::mem::swap(&mut *self.lock(), &mut *read.lock());
        Ok(())
    }

    /// Returns the exemplars of matching series, sorted by labels and, within a series, by time.
    pub(crate) fn select(
        &self,
        query: &ExemplarQuery,
        budget: &Budget,
    ) -> Result<Answer<SeriesExemplars>, BudgetError> {
        let (all, warnings) = {
            let ring = self.lock();
            (ring.series_between(query.times), bounded(ring.damages()))
        };
        // Matching takes a while; commits need not wait for it.
        let mut watch = Checkpoint::new(budget);
        let mut matching = Vec::new();
        for labels in all {
            watch.work(labels.as_bytes().len() * query.selectors.len())?;
            let passes = |matchers: &Vec<model::Matcher>| {
                matchers.iter().all(|matcher| matcher.matches(labels.get(matcher.name())))
            };
            if query.selectors.iter().any(passes) {
                matching.push(labels);
            }
        }
        matching.sort_unstable();
        budget.charge_series(matching.len() as u64)?;
        let mut found = Vec::new();
        let ring = self.lock();
        for labels in matching {
            let exemplars = ring.exemplars_between(&labels, query.times);
            // Label sets are shared with the ring.
            let bytes = exemplars.len() * size_of::<Exemplar>() + size_of::<SeriesExemplars>();
            budget.charge_memory(bytes as u64)?;
            if !exemplars.is_empty() {
                found.push(SeriesExemplars { labels, exemplars });
            }
        }
        Ok(Answer { found, warnings })
    }

    /// Returns the counters of the ring.
    pub(crate) fn stats(&self) -> RingStats {
        self.lock().stats()
    }

    /// Adds staged exemplars to a write, and deletes values whose exemplars are all evicted.
    pub(crate) fn put(&self, stage: &ExemplarStage, set: &mut WriteSet) -> usize {
        let ring = self.lock();
        for key in ring.dead() {
            set.delete(key);
        }
        if stage.is_empty() {
            return 0;
        }
        let key = keys::exemplars(ring.next_number());
        let bytes = value::encode(&key, stage.exemplars());
        let len = bytes.len();
        set.put(key, bytes);
        len
    }

    /// Adds exemplars that are durable now. `value_bytes` is the result of [`ExemplarRing::put`].
    pub(crate) fn apply(&self, stage: &mut ExemplarStage, value_bytes: usize) {
        let mut ring = self.lock();
        ring.forget_dead();
        ring.apply(stage.take(), value_bytes);
    }

    fn lock(&self) -> MutexGuard<'_, Ring> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Returns the first few lines, and the number of the others.
pub(crate) fn bounded<'a>(lines: impl Iterator<Item = &'a str>) -> Vec<String> {
    let mut lines = lines;
    let mut shown: Vec<String> = lines.by_ref().take(WARNINGS_MAX).map(str::to_owned).collect();
    let rest = lines.count();
    if rest > 0 {
        shown.push(format!("{rest} more warnings"));
    }
    shown
}

/// An accepted exemplar and its series.
pub(crate) type AcceptedExemplar = (Labels, Exemplar);
