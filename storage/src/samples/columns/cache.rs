//! The slots of columns, and the bound of what they hold.
//!
//! A column that has been read since it was looked at last is let be once more; the others go
//! in the order in which they came, until the bytes of all are within the bound again.

use std::collections::{HashMap, VecDeque};
use std::ops::Deref;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use foldhash::fast::RandomState;
use model::prefetch;

use super::Column;

/// What a column counts beside its own bytes: its places in the slot and in the queue.
const ENTRY_BYTES: usize = 64;
/// What the slots of a block count, and each of its series.
const BLOCK_BYTES: usize = 192;
const SERIES_BYTES: usize = 32;

/// Where the column of one run of samples is kept, if it is.
#[derive(Debug, Default)]
pub(crate) struct Slot {
    column: Mutex<Option<Arc<KeptColumn>>>,
    is_read: AtomicBool,
}

/// A column that counts for as long as anyone holds it.
#[derive(Debug)]
pub(crate) struct KeptColumn {
    column: Column,
    account: Arc<Account>,
}

/// A sealed block: what its key says.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct BlockKey {
    pub(crate) metric: u64,
    /// Windows since the epoch.
    pub(crate) window: i64,
    pub(crate) run: u32,
    pub(crate) first_id: u32,
}

/// The slots of the series of one sealed block.
#[derive(Debug)]
pub(crate) struct BlockSlots {
    key: BlockKey,
    /// Ascending.
    ids: Box<[u32]>,
    slots: Box<[Slot]>,
    /// How many of them are filled.
    filled_count: AtomicU32,
    account: Arc<Account>,
}

/// A place for a column.
#[derive(Debug, Clone)]
pub(crate) enum ColumnPlace {
    /// Of what the head has encoded of a window of a series.
    Frames(Arc<Slot>),
    /// Of a series of a sealed block, and which it is.
    Sealed(Arc<BlockSlots>, u32),
}

/// The bound of what all slots hold.
#[derive(Debug)]
pub(crate) struct ColumnCache {
    bytes_max: usize,
    account: Arc<Account>,
    blocks: Mutex<HashMap<BlockKey, Arc<BlockSlots>, RandomState>>,
    queue: Mutex<VecDeque<ColumnEntry>>,
}

/// What can be let go of.
#[derive(Debug)]
enum ColumnEntry {
    Frames(Weak<Slot>),
    Sealed(Weak<BlockSlots>, u32),
    /// The slots of a block, which go while none is filled.
    Block(BlockKey),
}

#[derive(Debug, Default)]
struct Account {
    bytes: AtomicUsize,
    hits: AtomicU64,
    misses: AtomicU64,
    evictions: AtomicU64,
}

/// What a cache holds and has done.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct ColumnStats {
    pub(crate) bytes: usize,
    pub(crate) bytes_max: usize,
    pub(crate) hits: u64,
    pub(crate) misses: u64,
    pub(crate) evictions: u64,
}

impl Slot {
    /// The column that is kept here.
    pub(crate) fn column(&self) -> Option<Arc<KeptColumn>> {
        let column = lock(&self.column).clone()?;
        self.is_read.store(true, Ordering::Relaxed);
        Some(column)
    }

    /// Has the column that is kept here brought nearer.
    pub(crate) fn fetch(&self) {
        if let Some(column) = &*lock(&self.column) {
            prefetch(&**column);
        }
    }

    /// Empties the slot unless it has been read since the last time.
    fn evict(&self) -> bool {
        if self.is_read.swap(false, Ordering::Relaxed) {
            return false;
        }
        drop(lock(&self.column).take());
        true
    }
}

impl Deref for KeptColumn {
    type Target = Column;

    fn deref(&self) -> &Column {
        &self.column
    }
}

impl Drop for KeptColumn {
    fn drop(&mut self) {
        self.account.release(self.column.bytes() + ENTRY_BYTES);
    }
}

impl BlockSlots {
    /// The ids of the series, ascending.
    pub(crate) fn ids(&self) -> &[u32] {
        &self.ids
    }

    /// Has the column of the series at a place among the ids brought nearer.
    pub(crate) fn fetch(&self, at: usize) {
        if let Some(slot) = self.slots.get(at) {
            slot.fetch();
        }
    }

    /// The column of the series at a place among the ids.
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

impl ColumnPlace {
    /// The column that is kept there.
    pub(crate) fn column(&self) -> Option<Arc<KeptColumn>> {
        self.slot().column()
    }

    fn slot(&self) -> &Slot {
        match self {
            ColumnPlace::Frames(slot) => slot,
            ColumnPlace::Sealed(block, at) => &block.slots[*at as usize],
        }
    }

    fn entry(&self) -> ColumnEntry {
        match self {
            ColumnPlace::Frames(slot) => ColumnEntry::Frames(Arc::downgrade(slot)),
            ColumnPlace::Sealed(block, at) => ColumnEntry::Sealed(Arc::downgrade(block), *at),
        }
    }
}

impl ColumnCache {
    /// A cache that holds up to so many bytes.
    pub(crate) fn new(bytes_max: usize) -> ColumnCache {
        ColumnCache {
            bytes_max,
            account: Arc::default(),
            blocks: Mutex::default(),
            queue: Mutex::default(),
        }
    }

    /// The most bytes that are held; 0 where nothing is kept.
    pub(crate) fn bytes_max(&self) -> usize {
        self.bytes_max
    }

    /// The slots of a block that was read before.
    pub(crate) fn block(&self, key: &BlockKey) -> Option<Arc<BlockSlots>> {
        lock(&self.blocks).get(key).cloned()
    }

    /// The slots of a block whose series have these ids, ascending.
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
            self.account.bytes.fetch_add(block_bytes(ids.len()), Ordering::Relaxed);
            let (filled_count, account) = (AtomicU32::new(0), Arc::clone(&self.account));
            let block = Arc::new(BlockSlots { key, ids, slots, filled_count, account });
            blocks.insert(key, Arc::clone(&block));
            block
        };
        self.admit(ColumnEntry::Block(key));
        block
    }

    /// Keeps a column in its place, unless one of as many samples is there already; gives the
    /// one that is.
    pub(crate) fn put(&self, place: &ColumnPlace, column: Column) -> Arc<KeptColumn> {
        self.account.misses.fetch_add(1, Ordering::Relaxed);
        self.account.bytes.fetch_add(column.bytes() + ENTRY_BYTES, Ordering::Relaxed);
        let kept = Arc::new(KeptColumn { column, account: Arc::clone(&self.account) });
        let replaced = {
            let mut column = lock(&place.slot().column);
            if let Some(column) = &*column
                && column.len() >= kept.len()
            {
                return Arc::clone(column);
            }
            column.replace(Arc::clone(&kept))
        };
        if replaced.is_some() {
            return kept;
        }
        if let ColumnPlace::Sealed(block, _) = place {
            block.filled_count.fetch_add(1, Ordering::Relaxed);
        }
        self.admit(place.entry());
        kept
    }

    /// Notes columns that were there when they were wanted.
    pub(crate) fn count_hits(&self, count: usize) {
        self.account.hits.fetch_add(count as u64, Ordering::Relaxed);
    }

    /// What is held, and what has been done.
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

    /// Adds an entry, and lets go of what is too much.
    fn admit(&self, entry: ColumnEntry) {
        let mut queue = lock(&self.queue);
        queue.push_back(entry);
        // Once round for what has been read, and once more for what has to go.
        for _ in 0..queue.len() * 2 {
            if self.account.bytes.load(Ordering::Relaxed) <= self.bytes_max {
                return;
            }
            let Some(entry) = queue.pop_front() else { return };
            let is_gone = match &entry {
                ColumnEntry::Frames(slot) => slot.upgrade().is_none_or(|slot| slot.evict()),
                ColumnEntry::Sealed(block, at) => {
                    block.upgrade().is_none_or(|block| self.evict_sealed(&block, *at))
                }
                ColumnEntry::Block(key) => {
                    self.remove_if_empty(key);
                    true
                }
            };
            if is_gone {
                self.account.evictions.fetch_add(1, Ordering::Relaxed);
            } else {
                queue.push_back(entry);
            }
        }
    }

    /// Empties a slot of a block, unless it has been read; the last one takes the block along.
    fn evict_sealed(&self, block: &BlockSlots, at: u32) -> bool {
        let is_gone = block.slots[at as usize].evict();
        if is_gone && block.filled_count.fetch_sub(1, Ordering::Relaxed) == 1 {
            self.remove_if_empty(&block.key);
        }
        is_gone
    }

    fn remove_if_empty(&self, key: &BlockKey) {
        let mut blocks = lock(&self.blocks);
        let is_empty = |block: &Arc<BlockSlots>| block.filled_count.load(Ordering::Relaxed) == 0;
        if blocks.get(key).is_some_and(is_empty) {
            blocks.remove(key);
        }
    }
}

impl Account {
    fn release(&self, bytes: usize) {
        self.bytes.fetch_sub(bytes, Ordering::Relaxed);
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
