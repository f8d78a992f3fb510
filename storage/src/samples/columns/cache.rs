//! Slots of columns, and the limit of their total size.
//!
//! A selection whose columns exceed the limit evicts none: each new column would evict another one of
//! the same selection, so the next query would find none. It adds columns while there is room.
//!
//! Eviction is second chance: a column that was read since the last check is kept once more; the
//! others are evicted in order of insertion until the limit is met.

use std::collections::{HashMap, VecDeque};
use std::ops::Deref;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock, Weak};

use foldhash::fast::RandomState;
use model::{TimeRange, prefetch};

use super::Column;
use crate::epoch::Epoch;
use crate::lock::lock;
use crate::window::Window;

/// Bytes that a column counts in addition to its own, for the slot and the queue.
const ENTRY_BYTES: usize = 64;
/// Minimum bytes of a sample in a column; the maximum is 16.
const SAMPLE_BYTES_MIN: usize = 3;
/// Bytes of the slots of a block, and of each of its series.
const BLOCK_BYTES: usize = 192;
const SERIES_BYTES: usize = 56;
/// Maximum number of recently read entries that one insertion passes; the next one goes on.
const READ_PASSED_MAX: usize = 256;
/// Maximum number of held columns that one insertion passes. Small, because a query that holds more
/// columns than the cache may have inserts all others as well.
const HELD_PASSED_MAX: usize = 32;
/// Minimum length of the queue at which entries of dropped slots are removed.
const PURGE_LEN_MIN: usize = 1024;

/// Slot for the column of one run of samples.
#[derive(Debug, Default)]
pub(crate) struct Slot {
    column: Mutex<Option<Arc<KeptColumn>>>,
    is_read: AtomicBool,
}

/// Column that is charged while anyone holds it.
#[derive(Debug)]
pub(crate) struct KeptColumn {
    column: Column,
    account: Arc<Account>,
}

/// Sealed block, by the fields of its key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct BlockKey {
    pub(crate) metric: u64,
    /// Windows since the epoch.
    pub(crate) window: Window,
    pub(crate) epoch: Epoch,
    pub(crate) first_id: u32,
}

/// Slots of the series of one sealed block.
#[derive(Debug)]
pub(crate) struct BlockSlots {
    key: BlockKey,
    /// Ascending.
    ids: Box<[u32]>,
    slots: Box<[Slot]>,
    /// Times of each series that is known to have only floats.
    float_times: Box<[OnceLock<TimeRange>]>,
    /// Number of filled slots.
    filled_count: AtomicU32,
    account: Arc<Account>,
}

/// Slot for a column.
#[derive(Debug, Clone)]
pub(crate) enum ColumnSlot {
    /// Of the encoded frames of a series in a window of the head.
    Frames(Arc<Slot>),
    /// Of a series of a sealed block, with its index.
    Sealed(Arc<BlockSlots>, u32),
}

/// Cache of columns, bounded in bytes.
#[derive(Debug)]
pub(crate) struct ColumnCache {
    bytes_max: usize,
    account: Arc<Account>,
    blocks: Mutex<HashMap<BlockKey, Arc<BlockSlots>, RandomState>>,
    queue: Mutex<Queue>,
}

/// Access to the cache for one selection.
#[derive(Debug, Clone, Copy)]
pub(crate) struct SelectionColumns<'a> {
    cache: &'a ColumnCache,
    /// Whether decoded columns may evict others.
    may_evict: bool,
}

/// Memory that counts in the cache and holds columns of it.
pub(crate) trait Evict: Send + Sync + std::fmt::Debug {
    /// Releases the memory, unless it was read since the last check.
    fn evict(&self) -> Eviction;
}

/// Result of the attempt to evict an entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Eviction {
    /// The memory is released.
    Done,
    /// The entry was read since the last check.
    WasRead,
    /// A query holds the column.
    IsHeld,
}

/// Bytes that count in the cache until they are dropped.
#[derive(Debug)]
pub(crate) struct HeldBytes {
    bytes: usize,
    account: Arc<Account>,
}

impl Drop for HeldBytes {
    fn drop(&mut self) {
        self.account.release(self.bytes);
    }
}

/// Entries in order of insertion.
#[derive(Debug, Default)]
struct Queue {
    entries: VecDeque<ColumnEntry>,
    /// Length of the queue at which entries of dropped slots are removed.
    purge_len: usize,
}

/// Entry that can be evicted.
#[derive(Debug)]
enum ColumnEntry {
    Frames(Weak<Slot>),
    Sealed(Weak<BlockSlots>, u32),
    /// Slots of a block; evicted when none is filled.
    Block(BlockKey),
    /// Memory that holds columns.
    Held(Weak<dyn Evict>),
}

#[derive(Debug, Default)]
struct Account {
    bytes: AtomicUsize,
    hits: AtomicU64,
    misses: AtomicU64,
    evictions: AtomicU64,
}

/// Statistics of the column cache.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct ColumnStats {
    pub(crate) bytes: usize,
    pub(crate) bytes_max: usize,
    pub(crate) hits: u64,
    pub(crate) misses: u64,
    pub(crate) evictions: u64,
}

impl Slot {
    /// Returns the column of the slot.
    pub(crate) fn column(&self) -> Option<Arc<KeptColumn>> {
        let column = lock(&self.column).clone()?;
        self.is_read.store(true, Ordering::Relaxed);
        Some(column)
    }

    /// Prefetches the column of the slot.
    pub(crate) fn fetch(&self) {
        if let Some(column) = &*lock(&self.column) {
            prefetch(&**column);
        }
    }

    /// Empties the slot, unless it was read since the last check, or the column is held: that would
    /// release no memory.
    fn evict(&self) -> Eviction {
        if self.is_read.swap(false, Ordering::Relaxed) {
            return Eviction::WasRead;
        }
        let mut column = lock(&self.column);
        if column.as_ref().is_some_and(|column| Arc::strong_count(column) > 1) {
            return Eviction::IsHeld;
        }
        drop(column.take());
        Eviction::Done
    }
}

impl Deref for KeptColumn {
    type Target = Column;

    fn deref(&self) -> &Column {
        &self.column
    }
}

impl KeptColumn {
    /// Returns the bytes that the column counts in the cache.
    pub(crate) fn kept_bytes(&self) -> usize {
        self.column.bytes() + ENTRY_BYTES
    }

    /// Estimates the bytes that a column counts in the cache: at least as many.
    pub(crate) fn kept_bytes_min(sample_count: usize) -> usize {
        ENTRY_BYTES + size_of::<Column>() + SAMPLE_BYTES_MIN * sample_count
    }
}

impl Drop for KeptColumn {
    fn drop(&mut self) {
        self.account.release(self.kept_bytes());
    }
}

impl BlockSlots {
    /// Returns the ids of the series, ascending.
    pub(crate) fn ids(&self) -> &[u32] {
        &self.ids
    }

    /// Notes the times of the series at an index, which has only floats.
    pub(crate) fn note_floats(&self, at: usize, times: TimeRange) {
        self.float_times[at].get_or_init(|| times);
    }

    /// Returns the times of the series at an index if it is known to have only floats.
    pub(crate) fn float_times(&self, at: usize) -> Option<TimeRange> {
        self.float_times[at].get().copied()
    }

    /// Prefetches the column of the series at an index.
    pub(crate) fn fetch(&self, at: usize) {
        if let Some(slot) = self.slots.get(at) {
            slot.fetch();
        }
    }

    /// Returns the column of the series at an index.
    pub(crate) fn column(&self, at: usize) -> Option<Arc<KeptColumn>> {
        self.slots[at].column()
    }
}

impl Drop for BlockSlots {
    fn drop(&mut self) {
        self.account.release(block_bytes(self.ids.len()));
    }
}

fn block_bytes(series_count: usize) -> usize {
    BLOCK_BYTES + SERIES_BYTES * series_count
}

impl ColumnSlot {
    /// Returns the column of the slot.
    pub(crate) fn column(&self) -> Option<Arc<KeptColumn>> {
        self.slot().column()
    }

    /// Prefetches the slot.
    #[inline]
    pub(crate) fn fetch(&self) {
        prefetch(self.slot());
    }

    fn slot(&self) -> &Slot {
        match self {
            ColumnSlot::Frames(slot) => slot,
            ColumnSlot::Sealed(block, at) => &block.slots[*at as usize],
        }
    }

    fn entry(&self) -> ColumnEntry {
        match self {
            ColumnSlot::Frames(slot) => ColumnEntry::Frames(Arc::downgrade(slot)),
            ColumnSlot::Sealed(block, at) => ColumnEntry::Sealed(Arc::downgrade(block), *at),
        }
    }
}

impl ColumnCache {
    /// Creates a cache of at most `bytes_max` bytes.
    pub(crate) fn new(bytes_max: usize) -> ColumnCache {
        ColumnCache {
            bytes_max,
            account: Arc::default(),
            blocks: Mutex::default(),
            queue: Mutex::default(),
        }
    }

    /// Returns the access for a selection whose columns have at least `bytes` in total.
    pub(crate) fn for_selection(&self, bytes: usize) -> SelectionColumns<'_> {
        SelectionColumns { cache: self, may_evict: bytes <= self.bytes_max }
    }

    /// Returns the maximum size; 0 if nothing is cached.
    pub(crate) fn bytes_max(&self) -> usize {
        self.bytes_max
    }

    /// Returns the slots of a block that was read before.
    pub(crate) fn block(&self, key: &BlockKey) -> Option<Arc<BlockSlots>> {
        lock(&self.blocks).get(key).cloned()
    }

    /// Returns the slots of a block, and creates them if needed; `ids` ascend.
    pub(crate) fn add_block(
        &self,
        key: BlockKey,
        ids: impl Iterator<Item = u32>,
    ) -> Arc<BlockSlots> {
        let block = {
            let mut blocks = lock(&self.blocks);
            if let Some(block) = blocks.get(&key) {
                return Arc::clone(block);
            }
            let ids: Box<[u32]> = ids.collect();
            let slots = ids.iter().map(|_| Slot::default()).collect();
            let float_times = ids.iter().map(|_| OnceLock::new()).collect();
            self.account.bytes.fetch_add(block_bytes(ids.len()), Ordering::Relaxed);
            let (filled_count, account) = (AtomicU32::new(0), Arc::clone(&self.account));
            let block =
                Arc::new(BlockSlots { key, ids, slots, float_times, filled_count, account });
            blocks.insert(key, Arc::clone(&block));
            block
        };
        self.admit(ColumnEntry::Block(key));
        block
    }

    /// Puts a column in its slot, and returns it. If the slot has a column up to the same time,
    /// returns that one. A longer column stays in the slot.
    pub(crate) fn put(&self, column_slot: &ColumnSlot, column: Column) -> Arc<KeptColumn> {
        let kept = self.charged(column);
        let replaced = {
            let mut column = lock(&column_slot.slot().column);
            match &*column {
                Some(column) if column.max_ms() > kept.max_ms() => return kept,
                Some(column) if column.max_ms() == kept.max_ms() => return Arc::clone(column),
                _ => {}
            }
            column.replace(Arc::clone(&kept))
        };
        if replaced.is_some() {
            return kept;
        }
        if let ColumnSlot::Sealed(block, _) = column_slot {
            block.filled_count.fetch_add(1, Ordering::Relaxed);
        }
        self.admit(column_slot.entry());
        kept
    }

    /// Returns whether a column fits without evicting others.
    fn has_room(&self, column: &Column) -> bool {
        let bytes = self.account.bytes.load(Ordering::Relaxed) + column.bytes() + ENTRY_BYTES;
        bytes <= self.bytes_max
    }

    /// Wraps a column, whose bytes count in the cache until it is dropped.
    fn charged(&self, column: Column) -> Arc<KeptColumn> {
        self.account.misses.fetch_add(1, Ordering::Relaxed);
        let kept = Arc::new(KeptColumn { column, account: Arc::clone(&self.account) });
        self.account.bytes.fetch_add(kept.kept_bytes(), Ordering::Relaxed);
        kept
    }

    /// Counts bytes that are about to be held in addition to columns.
    pub(crate) fn hold(&self, bytes: usize) -> HeldBytes {
        self.account.bytes.fetch_add(bytes, Ordering::Relaxed);
        HeldBytes { bytes, account: Arc::clone(&self.account) }
    }

    /// Lets held memory be evicted like a column.
    pub(crate) fn admit_held(&self, held: Weak<dyn Evict>) {
        self.admit(ColumnEntry::Held(held));
    }

    /// Counts hits.
    pub(crate) fn count_hits(&self, count: usize) {
        self.account.hits.fetch_add(count as u64, Ordering::Relaxed);
    }

    /// Returns the statistics.
    pub(crate) fn stats(&self) -> ColumnStats {
        let Account { bytes, hits, misses, evictions } = &*self.account;
        ColumnStats {
            bytes: bytes.load(Ordering::Relaxed),
            bytes_max: self.bytes_max,
            hits: hits.load(Ordering::Relaxed),
            misses: misses.load(Ordering::Relaxed),
            evictions: evictions.load(Ordering::Relaxed),
        }
    }

    /// Adds an entry, and evicts others if the limit is exceeded.
    fn admit(&self, entry: ColumnEntry) {
        let mut queue = lock(&self.queue);
        queue.purge();
        let queue = &mut queue.entries;
        queue.push_back(entry);
        // The first round clears the read marks, the second evicts what holds columns, the third the
        // columns that were held.
        let (mut read_passed, mut held_passed) = (0, 0);
        for _ in 0..queue.len() * 3 {
            let is_small = self.account.bytes.load(Ordering::Relaxed) <= self.bytes_max;
            if is_small || read_passed > READ_PASSED_MAX || held_passed > HELD_PASSED_MAX {
                return;
            }
            let Some(entry) = queue.pop_front() else { return };
            match self.evict(&entry) {
                Eviction::Done => {
                    self.account.evictions.fetch_add(1, Ordering::Relaxed);
                    continue;
                }
                Eviction::WasRead => read_passed += 1,
                Eviction::IsHeld => held_passed += 1,
            }
            queue.push_back(entry);
        }
    }

    fn evict(&self, entry: &ColumnEntry) -> Eviction {
        let evicted = match entry {
            ColumnEntry::Frames(slot) => slot.upgrade().map(|slot| slot.evict()),
            ColumnEntry::Sealed(block, at) => {
                block.upgrade().map(|block| self.evict_sealed(&block, *at))
            }
            ColumnEntry::Block(key) => {
                self.remove_if_empty(key);
                None
            }
            ColumnEntry::Held(held) => held.upgrade().map(|held| held.evict()),
        };
        evicted.unwrap_or(Eviction::Done)
    }

    /// Empties a slot of a block, unless it was read. Removes the block after its last slot.
    fn evict_sealed(&self, block: &BlockSlots, at: u32) -> Eviction {
        let evicted = block.slots[at as usize].evict();
        let is_done = evicted == Eviction::Done;
        if is_done && block.filled_count.fetch_sub(1, Ordering::Relaxed) == 1 {
            self.remove_if_empty(&block.key);
        }
        evicted
    }

    fn remove_if_empty(&self, key: &BlockKey) {
        let mut blocks = lock(&self.blocks);
        let is_empty = |block: &Arc<BlockSlots>| block.filled_count.load(Ordering::Relaxed) == 0;
        if blocks.get(key).is_some_and(is_empty) {
            blocks.remove(key);
        }
    }
}

impl SelectionColumns<'_> {
    /// Returns a decoded column, and puts it in its slot, unless the cache is full and the selection
    /// evicts no others.
    pub(crate) fn add(self, column_slot: &ColumnSlot, column: Column) -> Arc<KeptColumn> {
        if self.may_evict || self.cache.has_room(&column) {
            self.cache.put(column_slot, column)
        } else {
            self.cache.charged(column)
        }
    }
}

impl Queue {
    /// Removes entries of dropped slots, each time the queue has doubled since.
    fn purge(&mut self) {
        if self.entries.len() < self.purge_len {
            return;
        }
        self.entries.retain(|entry| match entry {
            ColumnEntry::Frames(slot) => slot.strong_count() > 0,
            ColumnEntry::Sealed(block, _) => block.strong_count() > 0,
            ColumnEntry::Block(_) => true,
            ColumnEntry::Held(held) => held.strong_count() > 0,
        });
        self.purge_len = (2 * self.entries.len()).max(PURGE_LEN_MIN);
    }
}

impl Account {
    fn release(&self, bytes: usize) {
        self.bytes.fetch_sub(bytes, Ordering::Relaxed);
    }
}
