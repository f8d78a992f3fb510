//! The order of the head's series by labels, so that selections need not sort them.
//!
//! A background task builds it if there are many series, otherwise the first large selection. From
//! then on, new series wait in a list until either merges them into the order. Series that were removed
//! are dropped then.

use std::cmp::Ordering;
use std::sync::{Arc, Mutex};
use std::thread;

use model::{Labels, sort_label_sets};

use crate::lock::lock;

/// A series and its slot.
type OrderedSeries = (Labels, u32);

/// Order of the series, built on demand.
pub(super) struct HeadOrder {
    /// Series from which two threads sort them.
    halved_len_min: usize,
    /// Series that are not in the order yet; `None` while there is no order.
    waiting: Mutex<Option<Vec<OrderedSeries>>>,
    sorted: Mutex<Sorted>,
}

#[derive(Default)]
struct Sorted {
    entries: Vec<OrderedSeries>,
    /// Slots of `entries`; a slot of a removed series has no meaning.
    slots: Arc<[u32]>,
    /// Generation of the slots when the order was built.
    generation: u64,
}

impl HeadOrder {
    /// Creates an order that is not built yet; two threads sort `halved_len_min` series or more.
    pub(super) fn new(halved_len_min: usize) -> HeadOrder {
        HeadOrder { halved_len_min, waiting: Mutex::default(), sorted: Mutex::default() }
    }

    /// Returns whether the order is to be kept: there are many series, or it exists. Then new series
    /// wait, and must not become too many.
    pub(super) fn is_wanted(&self, series_count: usize) -> bool {
        series_count >= self.halved_len_min || lock(&self.waiting).is_some()
    }

    /// Notes new series, before they can be selected.
    pub(super) fn note(&self, series: &[(u32, Labels)]) {
        if let Some(waiting) = &mut *lock(&self.waiting) {
            waiting.extend(series.iter().map(|(slot, labels)| (labels.clone(), *slot)));
        }
    }

    /// Returns the slots of all noted series, in the order of their labels.
    ///
    /// `all` returns every series of the head; `generation` counts the removals of series.
    pub(super) fn slots(
        &self,
        generation: u64,
        all: impl Fn() -> Vec<OrderedSeries>,
    ) -> Arc<[u32]> {
        let mut sorted = lock(&self.sorted);
        let new = lock(&self.waiting).replace(Vec::new());
        let is_current = sorted.generation >= generation;
        let entries = match new {
            Some(new) if new.is_empty() && is_current => return Arc::clone(&sorted.slots),
            Some(new) => {
                let mut new = sort_halves(new, self.halved_len_min);
                // A series that was removed may have come again.
                new.dedup();
                let mut entries = merged(std::mem::take(&mut sorted.entries), new);
                if !is_current {
                    retain(&mut entries, all());
                }
                entries
            }
            None => sort_halves(all(), self.halved_len_min),
        };
        let slots = entries.iter().map(|(_, slot)| *slot).collect();
        let generation = generation.max(sorted.generation);
        *sorted = Sorted { entries, slots, generation };
        Arc::clone(&sorted.slots)
    }
}

/// Removes the entries that are not in `all`: their series was removed.
fn retain(entries: &mut Vec<OrderedSeries>, all: Vec<OrderedSeries>) {
    let mut by_slot: Vec<Option<Labels>> = Vec::with_capacity(all.len());
    for (labels, slot) in all {
        let slot = slot as usize;
        by_slot.resize(by_slot.len().max(slot + 1), None);
        by_slot[slot] = Some(labels);
    }
    entries.retain(|(labels, slot)| {
        by_slot.get(*slot as usize).and_then(Option::as_ref) == Some(labels)
    });
}

/// Sorts entries, many of them on two threads.
fn sort_halves(mut entries: Vec<OrderedSeries>, halved_len_min: usize) -> Vec<OrderedSeries> {
    if entries.len() < halved_len_min {
        return sort_label_sets(entries);
    }
    let half = Mutex::new(entries.split_off(entries.len() / 2));
    let sort_half = || sort_label_sets(std::mem::take(&mut *lock(&half)));
    thread::scope(|scope| {
        let sorting = thread::Builder::new().spawn_scoped(scope, sort_half);
        let entries = sort_label_sets(entries);
        let half = match sorting {
            Ok(sorting) => sorting.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)),
            // There are no more threads.
            Err(_) => sort_half(),
        };
        merged(entries, half)
    })
}

/// Merges two sorted lists; an entry that both have stays once.
fn merged(left: Vec<OrderedSeries>, right: Vec<OrderedSeries>) -> Vec<OrderedSeries> {
    let mut all = Vec::with_capacity(left.len() + right.len());
    let (mut left, mut right) = (left.into_iter().peekable(), right.into_iter().peekable());
    while let (Some(a), Some(b)) = (left.peek(), right.peek()) {
        match a.cmp(b) {
            Ordering::Less => all.extend(left.next()),
            Ordering::Greater => all.extend(right.next()),
            Ordering::Equal => {
                all.extend(left.next());
                right.next();
            }
        }
    }
    all.extend(left);
    all.extend(right);
    all
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    #[derive(Debug, Clone)]
    enum Op {
        /// Adds a series of this number in a free slot.
        Add(u8, u32),
        Remove(u32),
        Read,
    }

    fn op() -> impl Strategy<Value = Op> {
        prop_oneof![
            4 => (0_u8..12, 0_u32..12).prop_map(|(number, slot)| Op::Add(number, slot)),
            2 => (0_u32..12).prop_map(Op::Remove),
            1 => Just(Op::Read),
        ]
    }

    proptest! {
        #[test]
        fn series_are_in_order_after_any_changes(ops in prop::collection::vec(op(), 1..80)) {
            let order = HeadOrder::new(8);
            let mut series: BTreeMap<u32, Labels> = BTreeMap::new();
            let mut generation = 0;
            for op in ops.into_iter().chain([Op::Read]) {
                match op {
                    Op::Add(number, slot) => {
                        let name = format!("{number:03}");
                        let labels = Labels::from_pairs([("n", name.as_str())]);
                        if series.contains_key(&slot) || series.values().any(|l| *l == labels) {
                            continue;
                        }
                        series.insert(slot, labels.clone());
                        order.note(&[(slot, labels)]);
                    }
                    Op::Remove(slot) => generation += u64::from(series.remove(&slot).is_some()),
                    Op::Read => {
                        let all = || series.iter().map(|(slot, l)| (l.clone(), *slot)).collect();
                        let mut expected: Vec<OrderedSeries> = all();
                        expected.sort();
                        let expected: Vec<u32> = expected.iter().map(|(_, slot)| *slot).collect();
                        prop_assert_eq!(&*order.slots(generation, all), &expected[..]);
                    }
                }
            }
        }
    }
}
