//! Checkpoints of long loops: time and cancellation, by the work done since the last one.

use std::cmp::Ordering;

use crate::budget::{Budget, BudgetError};

/// Values or bytes that a loop processes between two checks of the budget: well below a millisecond
/// for a loop that adds, a few milliseconds for one that sorts.
const WORK_BETWEEN_CHECKS: usize = 1 << 16;
/// Runs up to this length are sorted by insertion.
const INSERTION_LEN: usize = 12;

/// Counts the work of a loop, and checks the budget at intervals.
#[derive(Debug)]
pub struct Checkpoint {
    budget: Budget,
    work: usize,
    counts_samples: bool,
}

impl Checkpoint {
    /// Returns a checkpoint for a loop over values or bytes.
    pub fn new(budget: &Budget) -> Checkpoint {
        Checkpoint { budget: budget.clone(), work: 0, counts_samples: false }
    }

    /// Returns a checkpoint for a loop that decodes samples: its work counts as samples of the
    /// query. [`Checkpoint::settle`] charges the last of them.
    pub fn of_samples(budget: &Budget) -> Checkpoint {
        Checkpoint { counts_samples: true, ..Checkpoint::new(budget) }
    }

    /// Counts values, bytes or samples that the loop processes, before or after it does.
    ///
    /// Errors: the query has run too long, has been canceled, or decodes too many samples.
    #[inline]
    pub fn work(&mut self, count: usize) -> Result<(), BudgetError> {
        self.work = self.work.saturating_add(count);
        if self.work < WORK_BETWEEN_CHECKS { Ok(()) } else { self.settle() }
    }

    /// Checks the budget and charges the samples since the last check.
    ///
    /// Errors: as for [`Checkpoint::work`].
    #[cold]
    pub fn settle(&mut self) -> Result<(), BudgetError> {
        let work = std::mem::take(&mut self.work);
        self.budget.check()?;
        if self.counts_samples { self.budget.charge_samples(work as u64) } else { Ok(()) }
    }
}

/// Sorts items, stable. `weight` is the work of comparing an item once.
///
/// The order need not be consistent: sorting terminates and keeps every item, whatever `compare`
/// returns. Sorted input takes one pass.
///
/// Errors: those of the checkpoint.
pub fn sort_by<T>(
    mut items: Vec<T>,
    checkpoint: &mut Checkpoint,
    weight: impl Fn(&T) -> usize,
    mut compare: impl FnMut(&T, &T) -> Ordering,
) -> Result<Vec<T>, BudgetError> {
    let mut comes_before = |a: &T, b: &T| {
        checkpoint.work(weight(a).saturating_add(weight(b)))?;
        Ok(compare(a, b).is_lt())
    };
    if is_sorted(&items, &mut comes_before)? {
        return Ok(items);
    }
    for run in items.chunks_mut(INSERTION_LEN) {
        for end in 1..run.len() {
            let mut at = end;
            while at > 0 && comes_before(&run[at], &run[at - 1])? {
                run.swap(at, at - 1);
                at -= 1;
            }
        }
    }
    let mut width = INSERTION_LEN;
    while width < items.len() {
        let mut merged = Vec::with_capacity(items.len());
        let mut rest = items.into_iter();
        while rest.len() > 0 {
            let left: Vec<T> = rest.by_ref().take(width).collect();
            let right: Vec<T> = rest.by_ref().take(width).collect();
            merge(left, right, &mut merged, &mut comes_before)?;
        }
        items = merged;
        width *= 2;
    }
    Ok(items)
}

fn is_sorted<T>(
    items: &[T],
    comes_before: &mut impl FnMut(&T, &T) -> Result<bool, BudgetError>,
) -> Result<bool, BudgetError> {
    for pair in items.windows(2) {
        if comes_before(&pair[1], &pair[0])? {
            return Ok(false);
        }
    }
    Ok(true)
}

fn merge<T>(
    left: Vec<T>,
    right: Vec<T>,
    merged: &mut Vec<T>,
    comes_before: &mut impl FnMut(&T, &T) -> Result<bool, BudgetError>,
) -> Result<(), BudgetError> {
    let (mut left, mut right) = (left.into_iter(), right.into_iter());
    while let (Some(first), Some(second)) = (left.as_slice().first(), right.as_slice().first()) {
        let from = if comes_before(second, first)? { &mut right } else { &mut left };
        merged.extend(from.next());
    }
    merged.extend(left);
    merged.extend(right);
    Ok(())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::budget::BudgetLimits;

    fn sorted<T>(items: Vec<T>, compare: impl FnMut(&T, &T) -> Ordering) -> Vec<T> {
        sort_by(items, &mut Checkpoint::new(&Budget::unlimited()), |_| 1, compare).unwrap()
    }

    proptest! {
        #[test]
        fn consistent_orders_are_sorted_and_equal_items_keep_theirs(
            items in prop::collection::vec(0u32..50, 0..200),
        ) {
            let numbered: Vec<(u32, usize)> =
                items.into_iter().enumerate().map(|(at, item)| (item, at)).collect();
            let mut expected = numbered.clone();
            expected.sort_by_key(|(item, _)| *item);
            prop_assert_eq!(sorted(numbered, |(a, _), (b, _)| a.cmp(b)), expected);
        }

        #[test]
        fn inconsistent_orders_lose_nothing(
            items in prop::collection::vec(0u32..50, 0..100),
            answers in prop::collection::vec(any::<bool>(), 1..20),
        ) {
            let mut expected = items.clone();
            expected.sort_unstable();
            let mut turn = 0;
            let mut found = sorted(items, |_, _| {
                turn += 1;
                if answers[turn % answers.len()] { Ordering::Less } else { Ordering::Greater }
            });
            found.sort_unstable();
            prop_assert_eq!(found, expected);
        }
    }

    #[test]
    fn a_sort_stops_soon_after_its_query_is_canceled() {
        let budget = Budget::new(BudgetLimits::default());
        let mut checkpoint = Checkpoint::new(&budget);
        let items: Vec<u32> = (0..100_000).rev().collect();
        let mut compared = 0;
        let stopped = sort_by(
            items,
            &mut checkpoint,
            |_| 1,
            |a, b| {
                compared += 1;
                if compared == 100_000 {
                    budget.cancel();
                }
                a.cmp(b)
            },
        );
        assert_eq!(stopped.unwrap_err(), BudgetError::Canceled);
        assert!(compared < 100_000 + WORK_BETWEEN_CHECKS, "{compared}");
    }
}
