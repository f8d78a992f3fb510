//! The order of the head's series by labels, so that selections need not compare them.
//!
//! It is made when a large selection first asks for it. From then on new series wait in a list
//! until the next one asks, and are merged in.

use std::cmp::Ordering;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use model::Labels;

/// A series and its slot.
type Entry = (Labels, u32);

/// The order of the series, made when it is needed.
#[derive(Default)]
pub(super) struct HeadOrder {
    /// Series that are not in the order yet; nothing while there is no order.
    waiting: Mutex<Option<Vec<Entry>>>,
    sorted: Mutex<Sorted>,
}

#[derive(Default)]
struct Sorted {
    entries: Vec<Entry>,
    /// The place of each slot; of those that are vacant it means nothing.
    ranks: Arc<[u32]>,
    /// How often series had been forgotten.
    generation: u64,
}

impl HeadOrder {
    /// Notes new series, before they can be selected.
    pub(super) fn note(&self, series: &[(u32, Labels)]) {
        if let Some(waiting) = &mut *lock(&self.waiting) {
            waiting.extend(series.iter().map(|(slot, labels)| (labels.clone(), *slot)));
        }
    }

    /// The place of each slot in the order of labels, of all series that have been noted.
    ///
    /// `all` gives every series of the head; `generation` is how often series have been
    /// forgotten.
    pub(super) fn ranks(&self, generation: u64, all: impl Fn() -> Vec<Entry>) -> Arc<[u32]> {
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
            Some(new) if new.is_empty() => return Arc::clone(&sorted.ranks),
            Some(mut new) => {
                new.sort_unstable();
                merged(std::mem::take(&mut sorted.entries), new)
            }
            None => {
                let mut entries = all();
                entries.sort_unstable();
                entries
            }
        };
        let slots = entries.iter().map(|(_, slot)| *slot as usize + 1).max().unwrap_or(0);
        let mut ranks = vec![u32::MAX; slots];
        for (rank, (_, slot)) in entries.iter().enumerate() {
            ranks[*slot as usize] = rank as u32;
        }
        *sorted = Sorted { entries, ranks: ranks.into(), generation };
        Arc::clone(&sorted.ranks)
    }
}

/// Two lists in order as one, entries that are in both once.
fn merged(left: Vec<Entry>, right: Vec<Entry>) -> Vec<Entry> {
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

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
