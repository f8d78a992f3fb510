//! Tiles of consecutive rows at the same steps, read by columns.

use std::ops::Range;

use model::{Checkpoint, Reservation};

use crate::error::QueryError;
use crate::exec::aggregate::topk::Cell;
use crate::exec::operator::TileReader;
use crate::tile::{Tile, TileShape, is_present};

/// Columns gathered in one pass over the rows: a cache line of each row.
pub(super) const COLUMNS: usize = 8;
/// Rows gathered between two checkpoints.
pub(super) const ROWS_AT_ONCE: usize = 1 << 12;
/// Rows of one reader, with its current tile.
pub(super) struct Stripe<'a> {
    pub(super) reader: Box<dyn TileReader + 'a>,
    pub(super) tile: Tile,
    pub(super) _reservation: Reservation,
}

/// Tiles of consecutive rows at the same steps.
pub(super) struct Block<'a> {
    pub(super) tiles: Vec<&'a Tile>,
    /// Rows of each tile but the last.
    pub(super) height: usize,
    /// First row.
    pub(super) first_row: usize,
    /// First step.
    pub(super) step: usize,
    pub(super) width: usize,
}

impl<'a> Block<'a> {
    /// Creates a block of the current tiles of `stripes`, which cover `width` steps from `step` on.
    pub(super) fn new(
        stripes: &'a [Stripe<'_>],
        shape: TileShape,
        first_row: usize,
        step: usize,
        width: usize,
    ) -> Block<'a> {
        let tiles = stripes.iter().map(|stripe| &stripe.tile).collect();
        Block { tiles, height: shape.series, first_row, step, width }
    }

    /// Calls `visit` with the index, values and presence of each row in `rows`.
    #[inline(always)]
    pub(super) fn each_row(
        &self,
        rows: Range<usize>,
        mut visit: impl FnMut(usize, &[f64], &[u64]),
    ) {
        let mut next = rows.start;
        while next < rows.end {
            let tile_index = (next - self.first_row) / self.height;
            let tile = self.tiles[tile_index];
            let tile_start = self.first_row + tile_index * self.height;
            let end = rows.end.min(tile_start + self.height);
            for row in next..end {
                let (values, presence) = tile.row(row - tile_start);
                visit(row, values, presence);
            }
            next = end;
        }
    }

    /// Collects the present values of `rows` at step `at` of the block.
    ///
    /// Errors: errors of the checkpoint.
    pub(super) fn column(
        &self,
        rows: Range<usize>,
        at: usize,
        column: &mut Vec<Cell>,
        checkpoint: &mut Checkpoint,
    ) -> Result<(), QueryError> {
        column.clear();
        for start in rows.clone().step_by(ROWS_AT_ONCE) {
            let run = start..rows.end.min(start + ROWS_AT_ONCE);
            checkpoint.work(run.len())?;
            self.each_row(run, |row, values, presence| {
                if is_present(presence, at) {
                    column.push(Cell { value: values[at], row: row as u32 });
                }
            });
        }
        Ok(())
    }

    /// Collects the present values of `rows` by column, for up to [`COLUMNS`] steps from `first`
    /// on.
    ///
    /// Errors: errors of the checkpoint.
    pub(super) fn gather(
        &self,
        rows: Range<usize>,
        first: usize,
        columns: &mut [Vec<Cell>; COLUMNS],
        checkpoint: &mut Checkpoint,
    ) -> Result<(), QueryError> {
        let width = COLUMNS.min(self.width - first);
        columns.iter_mut().for_each(Vec::clear);
        for start in rows.clone().step_by(ROWS_AT_ONCE) {
            let run = start..rows.end.min(start + ROWS_AT_ONCE);
            checkpoint.work(run.len() * COLUMNS)?;
            self.each_row(run, |row, values, presence| {
                let bits = presence[first / 64] >> (first % 64);
                let mut bits = (bits & 0xff) as usize;
                // A block of eight steps never crosses a presence word.
                while bits != 0 {
                    let column = bits.trailing_zeros() as usize;
                    if column < width {
                        let value = values[first + column];
                        columns[column].push(Cell { value, row: row as u32 });
                    }
                    bits &= bits - 1;
                }
            });
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use model::{Budget, BudgetLimits};
    use proptest::prelude::*;

    use super::*;
    use crate::tile::set_present;

    /// Generates rows of one width; the value of each cell determines its position.
    fn rows() -> impl Strategy<Value = Vec<Vec<Option<f64>>>> {
        let width = prop_oneof![1usize..10, 62usize..67, 126usize..131];
        let percent = prop_oneof![Just(0), Just(100), Just(60)];
        (width, 1usize..9, percent).prop_flat_map(|(width, count, percent)| {
            let cell = (0..100, 0i32..9)
                .prop_map(move |(draw, n)| (draw < percent).then_some(f64::from(n)));
            prop::collection::vec(prop::collection::vec(cell, width), count)
        })
    }

    proptest! {
        #[test]
        fn gathered_columns_hold_what_is_present(rows in rows(), height in 1usize..5, skipped in 0usize..9) {
            let width = rows[0].len();
            let tiles: Vec<Tile> = rows
                .chunks(height)
                .map(|rows| {
                    let mut tile = Tile::new(TileShape { series: height, steps: width + 3 });
                    tile.reset(rows.len(), width);
                    for (index, row) in rows.iter().enumerate() {
                        let (values, presence) = tile.row_mut(index);
                        for (step, cell) in row.iter().enumerate() {
                            values[step] = cell.unwrap_or(f64::NAN);
                            if cell.is_some() {
                                set_present(presence, step);
                            }
                        }
                    }
                    tile
                })
                .collect();
            let tiles: Vec<&Tile> = tiles.iter().collect();
            let block = Block { tiles, height, first_row: 0, step: 0, width };
            let group = skipped.min(rows.len())..rows.len();
            let mut columns: [Vec<Cell>; COLUMNS] = Default::default();
            let mut checkpoint = Checkpoint::new(&Budget::new(BudgetLimits::default()));
            for first in (0..width).step_by(COLUMNS) {
                block.gather(group.clone(), first, &mut columns, &mut checkpoint).unwrap();
                for (index, column) in columns.iter().enumerate() {
                    let cell = |row: usize| {
                        let value = (*rows[row].get(first + index)?)?;
                        Some(Cell { value, row: row as u32 })
                    };
                    prop_assert_eq!(column, &group.clone().filter_map(cell).collect::<Vec<_>>());
                }
            }
        }
    }
}
