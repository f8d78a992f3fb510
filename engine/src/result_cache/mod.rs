//! Result cache: results of range queries. If a panel refreshes with its range moved forward, the
//! engine computes only the new steps and the steps that newly written samples may have changed.
//!
//! The cache holds only results in which each step depends on nothing but the samples that it sees
//! ([`eligibility`]), without annotations and native histograms. It invalidates a step when the
//! source reports a change of one of these samples ([`cached_steps`]). So cached results are
//! bit-identical to computed ones.

mod cached_steps;
mod eligibility;

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

pub(crate) use cached_steps::{CachedSteps, Piece};
pub(crate) use eligibility::cacheable_reach;

/// Bytes of a cached result in addition to its query and steps: its entries in two tables.
const ENTRY_BYTES: u64 = 256;

/// Cache of the results of range queries, limited in bytes; evicts the least recently used result
/// first.
#[derive(Debug)]
pub struct ResultCache {
    bytes_max: u64,
    kept: Mutex<CacheState>,
    counters: Counters,
}

/// Key of a query in the cache.
#[derive(Debug, PartialEq, Eq, Hash)]
pub(crate) struct CacheKey {
    pub(crate) query: String,
    pub(crate) scope: Arc<str>,
    pub(crate) step_ms: i64,
    /// Offset of the steps from multiples of the step.
    pub(crate) phase_ms: i64,
    pub(crate) lookback_ms: i64,
    pub(crate) subquery_step_ms: i64,
}

#[derive(Debug, Default)]
struct CacheState {
    entries: HashMap<Arc<CacheKey>, CacheEntry>,
    /// Entries by their last use.
    by_use: BTreeMap<u64, Arc<CacheKey>>,
    /// Number of uses so far.
    uses: u64,
    bytes: u64,
}

#[derive(Debug)]
struct CacheEntry {
    run: Arc<CachedSteps>,
    bytes: u64,
    used: u64,
}

#[derive(Debug, Default)]
struct Counters {
    hits: AtomicU64,
    partial_hits: AtomicU64,
    misses: AtomicU64,
    invalidations: AtomicU64,
    evictions: AtomicU64,
}

/// Result of a lookup.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum CacheOutcome {
    /// All steps were cached.
    Hit,
    /// Some steps were cached.
    PartialHit,
    /// No step was cached.
    Miss,
}

/// Size and hits of the result cache since the start.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ResultCacheStats {
    /// Bytes of cached results.
    pub bytes: u64,
    /// Maximum of bytes.
    pub bytes_max: u64,
    /// Number of cached results.
    pub entries: u64,
    /// Number of queries with all steps cached.
    pub hits: u64,
    /// Number of queries with only some steps cached.
    pub partial_hits: u64,
    /// Number of eligible queries without a cached step.
    pub misses: u64,
    /// Number of times that steps were invalidated.
    pub invalidations: u64,
    /// Number of results evicted because of the byte limit.
    pub evictions: u64,
}

impl ResultCache {
    /// Creates a cache of at most `bytes_max` bytes.
    pub fn new(bytes_max: u64) -> ResultCache {
        ResultCache { bytes_max, kept: Mutex::default(), counters: Counters::default() }
    }

    /// Returns the size and the counters of the cache.
    pub fn stats(&self) -> ResultCacheStats {
        let (bytes, entries) = {
            let kept = self.lock();
            (kept.bytes, kept.entries.len() as u64)
        };
        let Counters { hits, partial_hits, misses, invalidations, evictions } = &self.counters;
        ResultCacheStats {
            bytes,
            bytes_max: self.bytes_max,
            entries,
            hits: hits.load(Ordering::Relaxed),
            partial_hits: partial_hits.load(Ordering::Relaxed),
            misses: misses.load(Ordering::Relaxed),
            invalidations: invalidations.load(Ordering::Relaxed),
            evictions: evictions.load(Ordering::Relaxed),
        }
    }

    /// Returns the cached steps of a query.
    pub(crate) fn get(&self, key: &CacheKey) -> Option<Arc<CachedSteps>> {
        let mut kept = self.lock();
        let CacheState { entries, by_use, uses, .. } = &mut *kept;
        let entry = entries.get_mut(key)?;
        *uses += 1;
        if let Some(key) = by_use.remove(&entry.used) {
            by_use.insert(*uses, key);
        }
        entry.used = *uses;
        Some(Arc::clone(&entry.run))
    }

    /// Replaces the cached steps of a query.
    pub(crate) fn put(&self, key: CacheKey, run: CachedSteps) {
        let bytes = ENTRY_BYTES + key.query.len() as u64 + run.bytes();
        let mut kept = self.lock();
        kept.remove(&key);
        if bytes > self.bytes_max {
            return;
        }
        while kept.bytes + bytes > self.bytes_max
            && let Some((_, oldest)) = kept.by_use.pop_first()
        {
            kept.remove(&oldest);
            self.counters.evictions.fetch_add(1, Ordering::Relaxed);
        }
        kept.uses += 1;
        let (key, used) = (Arc::new(key), kept.uses);
        kept.by_use.insert(used, Arc::clone(&key));
        kept.entries.insert(key, CacheEntry { run: Arc::new(run), bytes, used });
        kept.bytes += bytes;
    }

    /// Removes the cached steps of a query.
    pub(crate) fn remove(&self, key: &CacheKey) {
        self.lock().remove(key);
    }

    pub(crate) fn count(&self, found: CacheOutcome) {
        let Counters { hits, partial_hits, misses, .. } = &self.counters;
        let counter = match found {
            CacheOutcome::Hit => hits,
            CacheOutcome::PartialHit => partial_hits,
            CacheOutcome::Miss => misses,
        };
        counter.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn count_invalidation(&self) {
        self.counters.invalidations.fetch_add(1, Ordering::Relaxed);
    }

    fn lock(&self) -> MutexGuard<'_, CacheState> {
        // A poisoned lock means that another thread panicked; at worst an entry is missing.
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl CacheState {
    pub(crate) fn remove(&mut self, key: &CacheKey) {
        if let Some(entry) = self.entries.remove(key) {
            self.by_use.remove(&entry.used);
            self.bytes -= entry.bytes;
        }
    }
}
