//! Lists of sealed partitions (label names, values of a label, label sets), kept for the next
//! lookup of the same partitions. A dashboard asks for the values of its variables over its range.
//!
//! Each index has the number of its series' state, so a list is valid for the same numbers.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use hashbrown::Equivalent;
use model::{Labels, Matcher};
use smol_str::SmolStr;

use super::partition::PartitionIndex;
use super::results::{MatcherKey, SelectionRef};
use crate::lock::lock;

/// Maximum number of lists.
const LISTS_MAX: usize = 64;
/// Minimum number of partitions of a list that is kept.
const PARTITIONS_MIN: usize = 2;
/// Divisor of the memory of all lists: the maximum size of one list.
const LIST_SHARE: usize = 4;
/// Bytes that a list counts in addition to its key and its items.
const LIST_BYTES: usize = 256;

/// Item of a list.
pub(crate) trait Item: Clone {
    /// Returns the size in memory.
    fn bytes(&self) -> usize;
}

/// Lists of one kind.
#[derive(Debug)]
pub(crate) struct KeptLists<T> {
    bytes_max: usize,
    lists: Mutex<Lists<T>>,
    hits: AtomicU64,
    misses: AtomicU64,
}

/// Statistics of lists.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ListStats {
    pub(crate) bytes: usize,
    pub(crate) bytes_max: usize,
    pub(crate) hits: u64,
    pub(crate) misses: u64,
}

#[derive(Debug)]
struct Lists<T> {
    /// The least recently used first.
    lists: VecDeque<KeptList<T>>,
    bytes: usize,
}

#[derive(Debug)]
struct KeptList<T> {
    /// Label whose values are listed.
    label: Option<Box<str>>,
    matchers: Box<[MatcherKey]>,
    /// States of the partitions.
    states: Vec<u64>,
    items: Arc<[T]>,
    bytes: usize,
}

/// Lookup in partitions, by which a list is found.
pub(crate) struct ListKey<'a> {
    label: Option<&'a str>,
    matchers: SelectionRef<'a>,
    states: Vec<u64>,
}

impl<'a> ListKey<'a> {
    /// Returns the key of a lookup; `None` if its list is not kept.
    pub(crate) fn of(
        label: Option<&'a str>,
        matchers: &'a [Matcher],
        partitions: &[Arc<PartitionIndex>],
    ) -> Option<ListKey<'a>> {
        let is_kept =
            partitions.len() >= PARTITIONS_MIN && partitions.iter().all(|index| index.is_cached());
        let states = || partitions.iter().map(|index| index.state).collect();
        let matchers = SelectionRef::of(matchers);
        is_kept.then(|| ListKey { label, matchers, states: states() })
    }

    fn bytes(&self) -> usize {
        let label = self.label.map_or(0, str::len);
        label + self.matchers.bytes() + size_of_val(&self.states[..])
    }
}

impl<T: Item> KeptLists<T> {
    /// Creates an empty cache of at most `bytes_max` bytes.
    pub(crate) fn new(bytes_max: usize) -> KeptLists<T> {
        KeptLists {
            bytes_max,
            lists: Mutex::new(Lists { lists: VecDeque::new(), bytes: 0 }),
            hits: AtomicU64::new(0),
            misses: AtomicU64::new(0),
        }
    }

    /// Returns the list of an earlier lookup of the same partitions in the same states.
    pub(crate) fn find(&self, key: &ListKey<'_>) -> Option<Arc<[T]>> {
        let mut lists = lock(&self.lists);
        let found = lists.lists.iter().position(|list| list.is_of(key));
        let list = found.and_then(|at| lists.lists.remove(at));
        let counter = if list.is_some() { &self.hits } else { &self.misses };
        counter.fetch_add(1, Ordering::Relaxed);
        let list = list?;
        let items = Arc::clone(&list.items);
        lists.lists.push_back(list);
        Some(items)
    }

    /// Keeps a complete list, and drops the least recently used ones beyond the limits.
    pub(crate) fn keep(&self, key: ListKey<'_>, items: &[T]) {
        let bytes = LIST_BYTES + key.bytes() + items.iter().map(Item::bytes).sum::<usize>();
        if bytes > self.bytes_max / LIST_SHARE {
            return;
        }
        let items = Arc::from(items);
        // Dropped outside the lock, as lists may be long.
        let mut dropped = Vec::new();
        let mut lists = lock(&self.lists);
        // Another lookup may have kept the same list in the meantime.
        if lists.lists.iter().any(|list| list.is_of(&key)) {
            return;
        }
        let ListKey { label, matchers, states } = key;
        let (label, matchers) = (label.map(Box::from), matchers.into_owned());
        lists.bytes += bytes;
        lists.lists.push_back(KeptList { label, matchers, states, items, bytes });
        while (lists.bytes > self.bytes_max || lists.lists.len() > LISTS_MAX)
            && let Some(oldest) = lists.lists.pop_front()
        {
            lists.bytes -= oldest.bytes;
            dropped.push(oldest);
        }
        drop(lists);
    }

    /// Returns the statistics.
    pub(crate) fn stats(&self) -> ListStats {
        ListStats {
            bytes: lock(&self.lists).bytes,
            bytes_max: self.bytes_max,
            hits: self.hits.load(Ordering::Relaxed),
            misses: self.misses.load(Ordering::Relaxed),
        }
    }
}

impl<T> KeptList<T> {
    fn is_of(&self, key: &ListKey<'_>) -> bool {
        self.states == key.states
            && self.label.as_deref() == key.label
            && key.matchers.equivalent(&self.matchers)
    }
}

impl Item for SmolStr {
    fn bytes(&self) -> usize {
        size_of::<SmolStr>() + if self.is_heap_allocated() { self.len() } else { 0 }
    }
}

impl Item for Labels {
    fn bytes(&self) -> usize {
        size_of::<Labels>() + self.as_bytes().len()
    }
}
