//! Cache of decoded SST blocks and indexes in memory.
//!
//! It has two generations instead of an exact LRU list. Reads go to the young generation; once that
//! holds half of the limit, it becomes the old one, and the previous old one is dropped. A look-up
//! costs one or two probes, and no order is kept.

use std::collections::HashMap;
use std::mem;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use async_trait::async_trait;
use slatedb::db_cache::{CachedEntry, CachedKey, DbCache};

use crate::lsm::tracing_account;

/// Bytes that an entry counts in addition to its own.
const ENTRY_BYTES: usize = 128;

/// Bounded cache of decoded blocks.
pub(crate) struct BlockCache {
    bytes_max: usize,
    generations: Mutex<Generations>,
    hits: AtomicU64,
    misses: AtomicU64,
}

/// Statistics of the block cache.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct BlockCacheStats {
    pub(crate) bytes: usize,
    pub(crate) hits: u64,
    pub(crate) misses: u64,
}

#[derive(Default)]
struct Generations {
    young: HashMap<CachedKey, CachedEntry>,
    old: HashMap<CachedKey, CachedEntry>,
    young_bytes: usize,
    old_bytes: usize,
}

impl BlockCache {
    /// Creates a cache of at most `bytes_max` bytes.
    pub(crate) fn new(bytes_max: usize) -> BlockCache {
        BlockCache {
            bytes_max,
            generations: Mutex::default(),
            hits: AtomicU64::new(0),
            misses: AtomicU64::new(0),
        }
    }

    /// Returns the statistics.
    pub(crate) fn stats(&self) -> BlockCacheStats {
        let generations = self.generations.lock().unwrap_or_else(PoisonError::into_inner);
        BlockCacheStats {
            bytes: generations.young_bytes + generations.old_bytes,
            hits: self.hits.load(Ordering::Relaxed),
            misses: self.misses.load(Ordering::Relaxed),
        }
    }

    fn get(&self, key: &CachedKey) -> Option<CachedEntry> {
        let found = self.find(key);
        let counter = if found.is_some() { &self.hits } else { &self.misses };
        counter.fetch_add(1, Ordering::Relaxed);
        if let Some(entry) = &found {
            tracing_account::with_budget(|budget| budget.note_cached_bytes(entry.size() as u64));
        }
        found
    }

    /// Returns whether an entry is in the cache; counts nothing.
    pub(crate) fn contains(&self, key: &CachedKey) -> bool {
        let generations = self.generations.lock().unwrap_or_else(PoisonError::into_inner);
        generations.young.contains_key(key) || generations.old.contains_key(key)
    }

    /// Returns whether an entry is small enough to stay in the cache while others are read.
    pub(crate) fn has_space(&self, bytes: u64) -> bool {
        bytes <= self.bytes_max as u64 / 4
    }

    fn find(&self, key: &CachedKey) -> Option<CachedEntry> {
        let mut generations = self.generations.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(entry) = generations.young.get(key) {
            return Some(entry.clone());
        }
        let entry = generations.old.remove(key)?;
        generations.old_bytes -= entry.size() + ENTRY_BYTES;
        self.put(&mut generations, key.clone(), entry.clone());
        Some(entry)
    }

    fn put(&self, generations: &mut Generations, key: CachedKey, entry: CachedEntry) {
        generations.young_bytes += entry.size() + ENTRY_BYTES;
        if let Some(before) = generations.young.insert(key, entry) {
            generations.young_bytes -= before.size() + ENTRY_BYTES;
        }
        if generations.young_bytes > self.bytes_max / 2 {
            generations.old = mem::take(&mut generations.young);
            generations.old_bytes = mem::take(&mut generations.young_bytes);
        }
    }
}

#[async_trait]
impl DbCache for BlockCache {
    async fn get_block(&self, key: &CachedKey) -> Result<Option<CachedEntry>, slatedb::Error> {
        Ok(self.get(key))
    }

    async fn get_index(&self, key: &CachedKey) -> Result<Option<CachedEntry>, slatedb::Error> {
        Ok(self.get(key))
    }

    async fn get_filter(&self, key: &CachedKey) -> Result<Option<CachedEntry>, slatedb::Error> {
        Ok(self.get(key))
    }

    async fn get_stats(&self, key: &CachedKey) -> Result<Option<CachedEntry>, slatedb::Error> {
        Ok(self.get(key))
    }

    async fn insert(&self, key: CachedKey, value: CachedEntry) {
        let mut generations = self.generations.lock().unwrap_or_else(PoisonError::into_inner);
        self.put(&mut generations, key, value);
    }

    async fn remove(&self, key: &CachedKey) {
        let mut generations = self.generations.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(entry) = generations.old.remove(key) {
            generations.old_bytes -= entry.size() + ENTRY_BYTES;
        }
        if let Some(entry) = generations.young.remove(key) {
            generations.young_bytes -= entry.size() + ENTRY_BYTES;
        }
    }

    fn entry_count(&self) -> u64 {
        let generations = self.generations.lock().unwrap_or_else(PoisonError::into_inner);
        (generations.young.len() + generations.old.len()) as u64
    }
}
