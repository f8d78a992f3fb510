//! Reader of any number of an operator's series, one row per series.

use model::{Budget, Reservation};

use crate::error::QueryError;
use crate::exec::operator::{Context, TileReader, VectorOperator};
use crate::tile::{HistogramCell, Tile, TileShape};

/// Reader of listed series that may exceed a tile.
///
/// Shape: row `i` is the `i`-th series of the list; rows are in tiles of the query's tile height,
/// with one reader per tile.
/// Invariant: the bytes of the tiles are charged to the query's budget.
pub struct Gather<'a> {
    budget: Budget,
    height: usize,
    width: usize,
    stripes: Vec<Stripe<'a>>,
    reservation: Option<Reservation>,
    /// Charges for the current histograms.
    held: Vec<Reservation>,
}

struct Stripe<'a> {
    reader: Box<dyn TileReader + 'a>,
    rows: usize,
    tile: Tile,
}

impl<'a> Gather<'a> {
    /// Opens a reader of the listed series, in that order, at the first step.
    pub fn open(ctx: &Context, operator: &'a dyn VectorOperator, series: &[u32]) -> Gather<'a> {
        let height = ctx.tile_shape_of(operator).series.max(1);
        let stripes = series
            .chunks(height)
            .map(|chunk| Stripe {
                reader: operator.open(chunk),
                rows: chunk.len(),
                tile: Tile::new(TileShape { series: 0, steps: 1 }),
            })
            .collect();
        let budget = ctx.budget.clone();
        Gather { budget, height, width: 0, stripes, reservation: None, held: Vec::new() }
    }

    /// Reads the next steps of all rows.
    ///
    /// Errors: errors of the operator's readers, and the memory limit of the query.
    pub fn next(&mut self, step_count: usize) -> Result<(), QueryError> {
        if step_count > self.width {
            self.widen(step_count)?;
        }
        self.held.clear();
        for stripe in &mut self.stripes {
            self.budget.check()?;
            stripe.reader.next_tile(step_count, &mut stripe.tile)?;
            if stripe.tile.has_histograms() {
                self.held.push(Reservation::new(&self.budget, stripe.tile.histogram_bytes())?);
            }
        }
        Ok(())
    }

    /// Reads the next steps of all rows, tile by tile: calls `visit` with each tile and the index
    /// of its first row, then drops its histograms.
    ///
    /// Errors: as for [`Gather::next`], and errors of `visit`.
    pub fn each_tile(
        &mut self,
        step_count: usize,
        mut visit: impl FnMut(usize, &mut Tile) -> Result<(), QueryError>,
    ) -> Result<(), QueryError> {
        if step_count > self.width {
            self.widen(step_count)?;
        }
        for (index, stripe) in self.stripes.iter_mut().enumerate() {
            self.budget.check()?;
            stripe.reader.next_tile(step_count, &mut stripe.tile)?;
            let _held = Reservation::new(&self.budget, stripe.tile.histogram_bytes())?;
            visit(index * self.height, &mut stripe.tile)?;
            stripe.tile.drop_histograms();
        }
        Ok(())
    }

    /// Drops the current histograms.
    pub fn drop_histograms(&mut self) {
        self.stripes.iter_mut().for_each(|stripe| stripe.tile.drop_histograms());
        self.held.clear();
    }

    /// Returns the values and presence of a row at the current steps.
    #[inline]
    pub fn row(&self, row_index: usize) -> (&[f64], &[u64]) {
        self.stripes[row_index / self.height].tile.row(row_index % self.height)
    }

    /// Returns the histograms of a row by step; empty if its tile has no histograms.
    #[inline]
    pub fn histograms(&self, row_index: usize) -> &[HistogramCell] {
        self.stripes[row_index / self.height].tile.histograms(row_index % self.height)
    }

    fn widen(&mut self, steps: usize) -> Result<(), QueryError> {
        let shape = |rows| TileShape { series: rows, steps };
        let bytes = self.stripes.iter().map(|stripe| Tile::bytes(shape(stripe.rows))).sum();
        self.reservation = None;
        self.reservation = Some(Reservation::new(&self.budget, bytes)?);
        for stripe in &mut self.stripes {
            stripe.tile = Tile::new(shape(stripe.rows));
        }
        self.width = steps;
        Ok(())
    }
}
