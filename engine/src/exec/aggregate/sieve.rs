//! Selection of the values between two bounds, in eight columns at a time.
//!
//! A quantile, or the k-th best value of a group, changes little from step to step. So bounds are
//! set around the previous result. One pass over the rows counts the values below the bounds and
//! collects the values between them, and only these are sorted. If a result is not between the
//! bounds, the whole column is read, so that no result depends on the bounds.

use std::ops::Range;

use model::{Checkpoint, widest};

use crate::error::QueryError;
use crate::exec::aggregate::block::{Block, COLUMNS, ROWS_AT_ONCE};
use crate::exec::aggregate::topk::Cell;
use crate::exec::numeric::quantile::{ascending, neighbours, place};

/// Result of a pass over the rows of a group, for each of eight columns.
#[derive(Debug, Default)]
pub(super) struct Sieve {
    /// Number of values.
    pub(super) counts: [usize; COLUMNS],
    /// Number of values that are below the bounds or NaN.
    pub(super) below: [usize; COLUMNS],
    /// Values between the bounds, in the order of rows.
    pub(super) between: [Vec<Cell>; COLUMNS],
    /// Number of values between the bounds, before [`Sieve::best`] reduces them.
    passed: [usize; COLUMNS],
}

/// Inclusive bounds within which a quantile or the k best values are searched.
#[derive(Debug, Clone, Copy)]
pub(super) struct Bounds {
    pub(super) lower: f64,
    pub(super) upper: f64,
}

impl Sieve {
    /// Processes up to eight steps from step `first` of the block on; `first` is a multiple of
    /// eight.
    ///
    /// Errors: errors of the checkpoint.
    pub(super) fn sift(
        &mut self,
        block: &Block<'_>,
        rows: Range<usize>,
        first: usize,
        bounds: Bounds,
        checkpoint: &mut Checkpoint,
    ) -> Result<(), QueryError> {
        self.between.iter_mut().for_each(Vec::clear);
        self.passed = [0; COLUMNS];
        let mut pass = Pass {
            bounds,
            whole_rows: 0,
            counts: [0; COLUMNS],
            below: [0.0; COLUMNS],
            between: &mut self.between,
        };
        for start in rows.clone().step_by(ROWS_AT_ONCE) {
            let run = start..rows.end.min(start + ROWS_AT_ONCE);
            checkpoint.work(run.len() * COLUMNS)?;
            widest(
                #[inline(always)]
                || {
                    block.each_row(
                        run,
                        #[inline(always)]
                        |row, values, presence| {
                            // Eight steps never cross a presence word; after the last step no bit
                            // is set.
                            let present = (presence[first / 64] >> (first % 64)) as u8;
                            pass.add(row as u32, &values[first..], present);
                        },
                    );
                },
            );
        }
        self.counts = pass.counts.map(|count| count + pass.whole_rows);
        self.below = pass.below.map(|count| count as usize);
        Ok(())
    }

    /// Returns the φ-quantile of a column, or `None` if it may be outside the bounds.
    pub(super) fn quantile(&self, column: usize, phi: f64, scratch: &mut Vec<f64>) -> Option<f64> {
        let count = self.counts[column];
        let place = match place(phi, count) {
            Ok(place) => place,
            Err(answer) => return Some(answer),
        };
        let cells = &self.between[column];
        let lower = place.lower.checked_sub(self.below[column])?;
        let is_upper_there = place.lower + 1 == count || lower + 1 < cells.len();
        if lower >= cells.len() || !is_upper_there {
            return None;
        }
        scratch.clear();
        scratch.extend(cells.iter().map(|cell| cell.value));
        let (low, high) = neighbours(scratch, lower);
        Some(place.between(low, high))
    }

    /// Returns bounds for the next columns, after the result of `column` was between the current
    /// bounds: these or narrower ones. Returns `None` if the result was too close to a bound.
    pub(super) fn centred(
        &self,
        column: usize,
        phi: f64,
        Bounds { lower, upper }: Bounds,
        scratch: &mut Vec<f64>,
    ) -> Option<Bounds> {
        let (count, below) = (self.counts[column], self.below[column]);
        let between = self.between[column].len();
        let (margin, at) = (margin(count), place(phi, count).ok()?.lower.checked_sub(below)?);
        let above = count - below - between;
        let behind = between.checked_sub(at + 1)?;
        if (below > 0 && at < margin / 2) || (above > 0 && behind < margin / 2) {
            return None;
        }
        if between <= 4 * margin {
            return Some(Bounds { lower, upper });
        }
        scratch.clear();
        scratch.extend(self.between[column].iter().map(|cell| cell.value));
        let Bounds { lower: least, upper: greatest } = around(scratch, at, margin);
        Some(Bounds { lower: least.max(lower), upper: greatest.min(upper) })
    }

    /// Reduces the values between the bounds in a column to the `k` best. Returns false if one of
    /// the `k` best is outside the bounds, or if equal values compete for the last slot.
    pub(super) fn best(&mut self, column: usize, k: usize, is_top: bool) -> bool {
        let count = self.counts[column];
        let cells = &mut self.between[column];
        if cells.len() <= k {
            return cells.len() == k.min(count);
        }
        cells.select_nth_unstable_by(k - 1, |a, b| match is_top {
            true => b.value.total_cmp(&a.value),
            false => a.value.total_cmp(&b.value),
        });
        let worst = cells[k - 1].value;
        let is_clear = cells[k..].iter().all(|cell| cell.value != worst);
        self.passed[column] = cells.len();
        cells.truncate(k);
        is_clear
    }
}

impl Sieve {
    /// Returns whether far more than `k` values of a column are between the bounds.
    pub(super) fn is_loose(&self, column: usize, k: usize) -> bool {
        self.passed[column] > 4 * k + 32
    }
}

/// Returns the distance from a quantile to its bounds, as a number of values. Even for random
/// values, the quantile moves less in a few steps.
fn margin(count: usize) -> usize {
    4 + count / 16
}

/// Returns bounds around the φ-quantile of `values`; reorders `values`.
pub(super) fn around_quantile(phi: f64, values: &mut [f64]) -> Bounds {
    match place(phi, values.len()) {
        Ok(place) => around(values, place.lower, margin(values.len())),
        // The result does not depend on the values.
        Err(_) => Bounds { lower: f64::INFINITY, upper: f64::NEG_INFINITY },
    }
}

/// Returns the values `margin` before and after index `at` in ascending order; past the ends, there
/// is no bound.
fn around(values: &mut [f64], at: usize, margin: usize) -> Bounds {
    let (mut lower, mut upper) = (f64::NEG_INFINITY, f64::INFINITY);
    if at + 1 + margin < values.len() {
        upper = *values.select_nth_unstable_by(at + 1 + margin, ascending).1;
    }
    if let Some(least) = at.checked_sub(margin) {
        lower = *values.select_nth_unstable_by(least, ascending).1;
    }
    // NaN sorts below all numbers, so it means that there is no lower bound.
    Bounds { lower: if lower.is_nan() { f64::NEG_INFINITY } else { lower }, upper }
}

/// Returns bounds that contain somewhat more than the `k` best values; reorders `values`.
pub(super) fn around_best(k: usize, is_top: bool, values: &mut Vec<f64>) -> Bounds {
    values.retain(|value| !value.is_nan());
    let wanted = 2 * k + 8;
    let (mut lower, mut upper) = (f64::NEG_INFINITY, f64::INFINITY);
    if let Some(rest) = values.len().checked_sub(wanted + 1) {
        if is_top {
            lower = *values.select_nth_unstable_by(rest, ascending).1;
        } else {
            upper = *values.select_nth_unstable_by(wanted, ascending).1;
        }
    }
    Bounds { lower, upper }
}

/// One pass over the rows, in progress.
struct Pass<'a> {
    bounds: Bounds,
    /// Number of rows with a value in each column.
    whole_rows: usize,
    /// Number of values of other rows.
    counts: [usize; COLUMNS],
    /// Number of values below the bounds or NaN: floats, so that the lanes are as wide as the
    /// values.
    below: [f64; COLUMNS],
    between: &'a mut [Vec<Cell>; COLUMNS],
}

impl Pass<'_> {
    /// Adds the values of a row in the columns whose bits are set in `present`.
    #[inline(always)]
    fn add(&mut self, row: u32, values: &[f64], present: u8) {
        let Bounds { lower, upper } = self.bounds;
        if let Some(eight) = values.first_chunk().filter(|_| present == u8::MAX) {
            self.whole_rows += 1;
            if self.count_below(eight) {
                for (column, value) in eight.iter().enumerate() {
                    if (lower..=upper).contains(value) {
                        self.between[column].push(Cell { value: *value, row });
                    }
                }
            }
            return;
        }
        let mut bits = present;
        while bits != 0 {
            let column = bits.trailing_zeros() as usize;
            let value = values[column];
            self.counts[column] += 1;
            if (lower..=upper).contains(&value) {
                self.between[column].push(Cell { value, row });
            } else if value.is_nan() || value < lower {
                self.below[column] += 1.0;
            }
            bits &= bits - 1;
        }
    }

    /// Counts the values below the bounds. Returns whether any value is between them. Without
    /// branches, so that the columns are lanes of a vector.
    #[inline(always)]
    fn count_below(&mut self, values: &[f64; COLUMNS]) -> bool {
        let Bounds { lower, upper } = self.bounds;
        let inside: [u64; COLUMNS] = std::array::from_fn(|column| {
            let value = values[column];
            u64::from((value >= lower) & (value <= upper))
        });
        for (below, value) in self.below.iter_mut().zip(values) {
            // A NaN is not at least the bound.
            *below += if *value >= lower { 0.0 } else { 1.0 };
        }
        inside.iter().fold(0, |all, inside| all | inside) != 0
    }
}

#[cfg(test)]
mod tests {
    use model::Budget;
    use proptest::prelude::*;

    use super::*;
    use crate::exec::aggregate::topk::Heap;
    use crate::exec::numeric::quantile::quantile;
    use crate::tile::{Tile, TileShape, set_present};

    /// Generates rows of one width with slowly moving, random, and special values.
    fn rows() -> impl Strategy<Value = Vec<Vec<Option<f64>>>> {
        let odd = [f64::NAN, f64::INFINITY, f64::NEG_INFINITY, -0.0, 0.0];
        let cell = prop_oneof![
            8 => (-9i32..9).prop_map(|n| Some(f64::from(n))),
            40 => (-1e3..1e3_f64).prop_map(Some),
            1 => prop::sample::select(odd.to_vec()).prop_map(Some),
            1 => Just(None),
        ];
        let width = prop_oneof![1usize..10, 62usize..67];
        (width, 1usize..70, any::<bool>()).prop_flat_map(move |(width, count, is_steady)| {
            let cells = prop::collection::vec(cell.clone(), width);
            prop::collection::vec(cells, count).prop_map(move |mut rows| {
                if is_steady {
                    for row in &mut rows {
                        let first = row[0];
                        for (step, cell) in row.iter_mut().enumerate() {
                            *cell = first.map(|value| value + step as f64);
                        }
                    }
                }
                rows
            })
        })
    }

    fn tiles(rows: &[Vec<Option<f64>>], height: usize) -> Vec<Tile> {
        let width = rows[0].len();
        let tile = |rows: &[Vec<Option<f64>>]| {
            let mut tile = Tile::new(TileShape { series: height, steps: width + 3 });
            tile.reset(rows.len(), width);
            for (index, row) in rows.iter().enumerate() {
                let (values, presence) = tile.row_mut(index);
                for (step, cell) in row.iter().enumerate() {
                    // The value of an absent cell is arbitrary.
                    values[step] = cell.unwrap_or(1.0);
                    if cell.is_some() {
                        set_present(presence, step);
                    }
                }
            }
            tile
        };
        rows.chunks(height).map(tile).collect()
    }

    fn is_same(a: f64, b: f64) -> bool {
        a.to_bits() == b.to_bits() || (a.is_nan() && b.is_nan())
    }

    proptest! {
        #[test]
        fn what_is_found_between_bounds_is_what_the_whole_column_gives(
            rows in rows(),
            height in 1usize..80,
            phi in prop_oneof![9 => 0.0..=1.0_f64, 1 => prop::sample::select(vec![-1.0, 0.0, 1.0, 2.0])],
            k in 1usize..9,
            is_top in any::<bool>(),
        ) {
            let width = rows[0].len();
            let tiles = tiles(&rows, height);
            let tiles: Vec<&Tile> = tiles.iter().collect();
            let block = Block { tiles, height, first_row: 0, step: 0, width };
            let mut checkpoint = Checkpoint::new(&Budget::unlimited());
            let mut sieve = Sieve::default();
            let (mut near, mut best) = (None, None);
            for first in (0..width).step_by(COLUMNS) {
                let columns = COLUMNS.min(width - first);
                let cells_at = |column: usize| -> Vec<Cell> {
                    let step = first + column;
                    let cell = |(row, cells): (usize, &Vec<Option<f64>>)| {
                        Some(Cell { value: cells[step]?, row: row as u32 })
                    };
                    rows.iter().enumerate().filter_map(cell).collect()
                };
                let values_at = |column| -> Vec<f64> {
                    cells_at(column).iter().map(|cell| cell.value).collect()
                };
                let bounds =
                    near.unwrap_or_else(|| around_quantile(phi, &mut values_at(0)));
                sieve.sift(&block, 0..rows.len(), first, bounds, &mut checkpoint).unwrap();
                let mut scratch = Vec::new();
                for column in 0..columns {
                    let expected = quantile(phi, &mut values_at(column));
                    prop_assert_eq!(sieve.counts[column], cells_at(column).len());
                    let found = sieve.quantile(column, phi, &mut scratch);
                    // The column that the bounds were set around is between them.
                    prop_assert!(near.is_some() || column > 0 || expected.is_nan() || found.is_some());
                    if let Some(found) = found {
                        prop_assert!(is_same(found, expected), "{} is not {}", found, expected);
                    }
                }
                near = sieve.centred(columns - 1, phi, bounds, &mut scratch);

                let bounds =
                    best.unwrap_or_else(|| around_best(k, is_top, &mut values_at(0)));
                best = Some(bounds);
                sieve.sift(&block, 0..rows.len(), first, bounds, &mut checkpoint).unwrap();
                for column in 0..columns {
                    if !sieve.best(column, k, is_top) {
                        best = None;
                        continue;
                    }
                    let mut heap = Heap::new(is_top);
                    cells_at(column).iter().for_each(|cell| heap.offer(*cell, k));
                    let rows_of = |cells: &[Cell]| {
                        let mut rows: Vec<u32> = cells.iter().map(|cell| cell.row).collect();
                        rows.sort_unstable();
                        rows
                    };
                    prop_assert_eq!(rows_of(&sieve.between[column]), rows_of(&heap.into_cells()));
                }
            }
        }
    }
}
