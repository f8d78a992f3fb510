//! The order of the head's series by labels, so that selections need not sort them.
//!
//! The first large selection builds it. From then on, new series wait in a list until the next
//! large selection merges them into the order.

use std::cmp::Ordering;
use std::sync::{Arc, Mutex};

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
        let new = {
            let mut waiting = lock(&self.waiting);
            if sorted.generation != generation || waiting.is_none() {
                *waiting = Some(Vec::new());
                None
            } else {
                waiting.as_mut().map(std::mem::take)
            }
        };
        let entries = match new {
            Some(new) if new.is_empty() => return Arc::clone(&sorted.slots),
            Some(new) => merged(std::mem::take(&mut sorted.entries), sort_label_sets(new)),
            None => sort_halves(all(), self.halved_len_min),
        };
        let slots = entries.iter().map(|(_, slot)| *slot).collect();
        *sorted = Sorted { entries, slots, generation };
        Arc::clone(&sorted.slots)
    }
}

/// Sorts entries, many of them on two threads.
fn sort_halves(mut entries: Vec<OrderedSeries>, halved_len_min: usize) -> Vec<OrderedSeries> {
    if entries.len() < halved_len_min {
        return sort_label_sets(entries);
    }
    let half = entries.split_off(entries.len() / 2);
    std::thread::scope(|scope| {
        let sorting = scope.spawn(|| sort_label_sets(half));
        let entries = sort_label_sets(entries);
        let half = sorting.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        merged(entries, half)
    })
}

/// Merges two sorted lists and removes duplicates.
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
