//! Selection of the k largest or smallest values of a column.

use model::BudgetError;
use model::checkpoint::{Checkpoint, sort_by};

use crate::exec::numeric::quantile::nan_first;

/// A value with its row.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Cell {
    pub(super) value: f64,
    pub(super) row: u32,
}

/// Binary heap of the k best entries; a better entry replaces its top, the worst of them.
///
/// Among equal entries, the shape of the heap decides which one is replaced. So the heap works like
/// Go's `container/heap`, with the order of `vectorByValueHeap` of Prometheus.
#[derive(Debug)]
pub(super) struct Heap {
    entries: Vec<Cell>,
    is_top: bool,
}

impl Heap {
    pub(super) fn new(is_top: bool) -> Heap {
        Heap { entries: Vec::new(), is_top }
    }

    /// Inserts an entry if the heap has fewer than `k` entries or a worse one; `k >= 1`.
    ///
    /// Inlined, because most entries of a long column are not better than the worst one kept.
    #[inline]
    pub(super) fn offer(&mut self, entry: Cell, k: usize) {
        if self.entries.len() < k {
            self.entries.push(entry);
            self.up(self.entries.len() - 1);
            return;
        }
        let worst = self.entries[0].value;
        let is_better = if self.is_top { worst < entry.value } else { worst > entry.value };
        if is_better || (worst.is_nan() && !entry.value.is_nan()) {
            self.entries[0] = entry;
            self.down(0);
        }
    }

    /// Returns the entries, best first, NaN last.
    ///
    /// Errors: errors of the checkpoint.
    pub(super) fn into_sorted(self, checkpoint: &mut Checkpoint) -> Result<Vec<Cell>, BudgetError> {
        let is_top = self.is_top;
        sort_by(
            self.entries,
            checkpoint,
            |_| 1,
            |a, b| match (a.value.is_nan(), b.value.is_nan()) {
                (false, false) if is_top => nan_first(&b.value, &a.value),
                (false, false) => nan_first(&a.value, &b.value),
                (a_nan, b_nan) => a_nan.cmp(&b_nan),
            },
        )
    }

    /// Returns the entries in any order.
    pub(super) fn into_cells(self) -> Vec<Cell> {
        self.entries
    }

    fn less(&self, i: usize, j: usize) -> bool {
        let (a, b) = (self.entries[i].value, self.entries[j].value);
        a.is_nan() || if self.is_top { a < b } else { a > b }
    }

    #[inline(never)]
    fn up(&mut self, mut at: usize) {
        while at > 0 {
            let parent = (at - 1) / 2;
            if !self.less(at, parent) {
                break;
            }
            self.entries.swap(at, parent);
            at = parent;
        }
    }

    #[inline(never)]
    fn down(&mut self, mut at: usize) {
        loop {
            let mut child = 2 * at + 1;
            if child >= self.entries.len() {
                break;
            }
            if child + 1 < self.entries.len() && self.less(child + 1, child) {
                child += 1;
            }
            if !self.less(child, at) {
                break;
            }
            self.entries.swap(at, child);
            at = child;
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn best(values: &[f64], k: usize, is_top: bool) -> Vec<u32> {
        let mut heap = Heap::new(is_top);
        for (row, value) in values.iter().enumerate() {
            heap.offer(Cell { value: *value, row: row as u32 }, k);
        }
        let mut checkpoint = Checkpoint::new(&model::Budget::unlimited());
        heap.into_sorted(&mut checkpoint).unwrap().iter().map(|entry| entry.row).collect()
    }

    #[test]
    fn best_come_first_and_nan_only_where_nothing_else_is_left() {
        let values = [3.0, f64::NAN, 5.0, 1.0, 4.0];
        assert_eq!(best(&values, 2, true), [2, 4]);
        assert_eq!(best(&values, 2, false), [3, 0]);
        assert_eq!(best(&values, 9, true), [2, 4, 0, 3, 1]);
        assert_eq!(best(&values, 9, false), [3, 0, 4, 2, 1]);
        assert_eq!(best(&[f64::NAN, f64::NAN], 1, true), [0]);
    }

    proptest! {
        #[test]
        fn the_best_are_those_of_a_sorted_column(
            order in Just((0..40).collect::<Vec<i32>>()).prop_shuffle(),
            count in 0usize..40,
            k in 1usize..45,
            nan_count in 0usize..3,
        ) {
            let mut values: Vec<f64> = order[..count].iter().map(|n| f64::from(*n) - 20.0).collect();
            for (index, value) in values.iter_mut().enumerate() {
                match *value {
                    -20.0 => *value = f64::NEG_INFINITY,
                    19.0 => *value = f64::INFINITY,
                    _ if index < nan_count => *value = f64::NAN,
                    _ => {}
                }
            }
            for is_top in [true, false] {
                let mut rows: Vec<u32> =
                    (0..count as u32).filter(|row| !values[*row as usize].is_nan()).collect();
                rows.sort_by(|a, b| values[*a as usize].total_cmp(&values[*b as usize]));
                if is_top {
                    rows.reverse();
                }
                let found = best(&values, k, is_top);
                let numbers = rows.len().min(k);
                prop_assert_eq!(&found[..numbers], &rows[..numbers]);
                prop_assert_eq!(found.len(), count.min(k));
                prop_assert!(found[numbers..].iter().all(|row| values[*row as usize].is_nan()));
            }
        }
    }
}
