//! Cache of the indexes of sealed partitions.
//!
//! There is one index per partition and state. A change (a registration, a published run, the
//! retention) replaces it; readers of the old one may continue, as it stays valid for the state
//! that they began with. If the cache is full, it evicts the least recently used partitions as a
//! whole.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use foldhash::fast::RandomState;
use hashbrown::HashMap;
use roaring::RoaringBitmap;

use super::KnownLabels;
use super::partition::PartitionIndex;
use crate::sizes::Sizes;
use crate::window::PartitionId;

/// Bounded cache of partition indexes.
pub(crate) struct IndexCache {
    /// 0 disables the cache.
    bytes_max: usize,
    sizes: Sizes,
    entries: Mutex<Entries>,
    usage: Arc<Usage>,
}

/// Counters of cache hits and misses.
#[derive(Debug, Default)]
pub(crate) struct Usage {
    hits: AtomicU64,
    misses: AtomicU64,
}

/// Statistics of the index cache.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct IndexCacheStats {
    pub(crate) bytes: usize,
    pub(crate) bytes_max: usize,
    pub(crate) hits: u64,
    pub(crate) misses: u64,
}

#[derive(Default)]
struct Entries {
    partitions: HashMap<PartitionId, IndexEntry, RandomState>,
    /// Deleted ids by partition. There are few such partitions, and they are never evicted.
    deleted: HashMap<PartitionId, Arc<RoaringBitmap>, RandomState>,
    /// Number of series of each partition, and of their state, which outlive an eviction.
    states: HashMap<PartitionId, (u32, u64), RandomState>,
    /// Number of the last state.
    last_state: u64,
    /// Increments with each look-up.
    clock: u64,
}

struct IndexEntry {
    index: Arc<PartitionIndex>,
    used: u64,
}

impl Usage {
    /// Counts a hit.
    pub(crate) fn hit(&self) {
        self.hits.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts a miss.
    pub(crate) fn miss(&self) {
        self.misses.fetch_add(1, Ordering::Relaxed);
    }
}

impl IndexCache {
    /// Creates a cache of at most `bytes_max` bytes.
    pub(crate) fn new(bytes_max: usize, sizes: Sizes) -> IndexCache {
        IndexCache { bytes_max, sizes, entries: Mutex::default(), usage: Arc::default() }
    }

    /// Returns the index of a partition with `series_count` series. The caller locks the list of
    /// partitions, so that the count is current.
    pub(crate) fn partition(
        &self,
        partition: PartitionId,
        series_count: u32,
    ) -> Arc<PartitionIndex> {
        let mut entries = self.entries();
        entries.clock += 1;
        let clock = entries.clock;
        if let Some(entry) = entries.partitions.get_mut(&partition)
            && entry.index.series_count == series_count
        {
            entry.used = clock;
            return Arc::clone(&entry.index);
        }
        let state = entries.state(partition, series_count);
        let index = match entries.partitions.get(&partition) {
            Some(entry) => entry.index.with_series_count(state, series_count),
            None => {
                let results_max = self.bytes_max / 4;
                let deleted = entries.deleted.get(&partition).cloned().unwrap_or_default();
                let usage = Arc::clone(&self.usage);
                PartitionIndex::new(
                    partition,
                    state,
                    series_count,
                    deleted,
                    results_max,
                    self.sizes,
                    usage,
                )
            }
        };
        let index = Arc::new(index);
        if self.bytes_max > 0 {
            entries
                .partitions
                .insert(partition, IndexEntry { index: Arc::clone(&index), used: clock });
        }
        index
    }

    /// Invalidates the runs of a partition, as new ones have been published.
    pub(crate) fn invalidate_runs(&self, partition: PartitionId) {
        let mut entries = self.entries();
        if let Some(entry) = entries.partitions.get_mut(&partition) {
            entry.index = Arc::new(entry.index.without_cached_runs());
        }
    }

    /// Sets the deleted ids of a partition.
    pub(crate) fn set_deleted(&self, partition: PartitionId, deleted: RoaringBitmap) {
        let mut entries = self.entries();
        entries.deleted.insert(partition, Arc::new(deleted));
        entries.partitions.remove(&partition);
        entries.states.remove(&partition);
    }

    /// Returns whether a partition has deleted ids.
    pub(crate) fn has_deleted(&self, partition: PartitionId) -> bool {
        self.entries().deleted.contains_key(&partition)
    }

    /// Removes a deleted partition.
    pub(crate) fn remove(&self, partition: PartitionId) {
        let mut entries = self.entries();
        entries.partitions.remove(&partition);
        entries.deleted.remove(&partition);
        entries.states.remove(&partition);
    }

    /// Counts the bytes of labels again, after series that shared them have left memory, and evicts
    /// partitions until the indexes fit.
    pub(crate) fn count_again(&self, known: &impl KnownLabels) {
        let indexes: Vec<_> =
            self.entries().partitions.values().map(|entry| Arc::clone(&entry.index)).collect();
        indexes.iter().for_each(|index| index.count_again(known));
        self.trim();
    }

    /// Returns whether an insertion would evict.
    pub(crate) fn is_full(&self) -> bool {
        self.entries().bytes() >= self.bytes_max
    }

    /// Evicts partitions until the indexes fit.
    pub(crate) fn trim(&self) {
        let mut entries = self.entries();
        let mut bytes = entries.bytes();
        while bytes > self.bytes_max
            && let Some(oldest) =
                entries.partitions.iter().min_by_key(|(_, e)| e.used).map(|(number, _)| *number)
            && let Some(entry) = entries.partitions.remove(&oldest)
        {
            bytes -= entry.index.bytes().min(bytes);
        }
    }

    /// Returns the statistics.
    pub(crate) fn stats(&self) -> IndexCacheStats {
        IndexCacheStats {
            bytes: self.entries().bytes(),
            bytes_max: self.bytes_max,
            hits: self.usage.hits.load(Ordering::Relaxed),
            misses: self.usage.misses.load(Ordering::Relaxed),
        }
    }

    fn entries(&self) -> MutexGuard<'_, Entries> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Entries {
    /// Returns the number of the state of a partition with `series_count` series.
    fn state(&mut self, partition: PartitionId, series_count: u32) -> u64 {
        match self.states.get(&partition) {
            Some((count, state)) if *count == series_count => *state,
            _ => {
                self.last_state += 1;
                self.states.insert(partition, (series_count, self.last_state));
                self.last_state
            }
        }
    }

    fn bytes(&self) -> usize {
        self.partitions.values().map(|entry| entry.index.bytes()).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::Matcher;

    fn known(cache: &IndexCache, partition: i64) -> bool {
        cache.partition(PartitionId::new(partition), 9).knows(&Matcher::equal("a", "b"))
    }

    #[test]
    fn the_least_recently_used_partition_is_evicted_whole() {
        let cache = IndexCache::new(1 << 20, Sizes::default());
        let one = {
            cache.partition(PartitionId::new(1), 9).note_none(&Matcher::equal("a", "b"));
            cache.stats().bytes
        };
        for partition in 2..5 {
            cache.partition(PartitionId::new(partition), 9).note_none(&Matcher::equal("a", "b"));
        }
        assert_eq!(cache.stats().bytes, 4 * one);
        assert!(known(&cache, 1));
        let cache = IndexCache { bytes_max: 2 * one, ..cache };
        cache.trim();
        assert_eq!(cache.stats().bytes, 2 * one);
        assert_eq!(
            [1, 2, 3, 4].map(|partition| known(&cache, partition)),
            [true, false, false, true]
        );
    }

    #[test]
    fn registrations_and_deletions_begin_other_facts() {
        let cache = IndexCache::new(1 << 20, Sizes::default());
        let before = cache.partition(PartitionId::new(1), 9);
        before.note_none(&Matcher::equal("a", "b"));
        cache.invalidate_runs(PartitionId::new(1));
        assert!(known(&cache, 1), "runs do not change postings");
        assert!(!cache.partition(PartitionId::new(1), 10).knows(&Matcher::equal("a", "b")));
        assert!(before.knows(&Matcher::equal("a", "b")), "readers of the old index may continue");
        cache.remove(PartitionId::new(1));
        assert!(!known(&cache, 1));
    }

    #[test]
    fn a_cache_without_bytes_keeps_nothing() {
        let cache = IndexCache::new(0, Sizes::default());
        cache.partition(PartitionId::new(1), 9).note_none(&Matcher::equal("a", "b"));
        assert!(!known(&cache, 1));
        assert_eq!(cache.stats().bytes, 0);
    }
}
