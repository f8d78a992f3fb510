//! Reading any choice of an operator's series, however many, a row each.

use model::{Budget, Reservation};

use crate::error::QueryError;
use crate::exec::operator::{Context, TileReader, VectorOperator};
use crate::tile::{HistogramCell, Tile, TileShape};

/// A reader of listed series that may be more than a tile holds.
///
/// Shape: row `i` is the `i`-th series of the list; rows are kept in tiles of the query's
/// tile height, one reader a tile.
/// Invariant: the bytes of the tiles are charged to the query's budget.
pub struct Gather<'a> {
    budget: Budget,
    height: usize,
    width: usize,
    stripes: Vec<Stripe<'a>>,
    reservation: Option<Reservation>,
    /// For the histograms that were read last.
    held: Vec<Reservation>,
}

struct Stripe<'a> {
    reader: Box<dyn TileReader + 'a>,
    rows: usize,
    tile: Tile,
}

impl<'a> Gather<'a> {
    /// A reader of the listed series, in that order, at the first step.
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
    /// Errors: what the operator's readers give, and the memory limit of the query.
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

    /// Reads the next steps of all rows, a tile after the other: shows each to `visit` with the
    /// index of its first row, and drops its histograms.
    ///
    /// Errors: as for [`Gather::next`], and those of `visit`.
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

    /// Drops the histograms that were read last.
    pub fn drop_histograms(&mut self) {
        self.stripes.iter_mut().for_each(|stripe| stripe.tile.drop_histograms());
        self.held.clear();
    }

    /// The values and presence of a row at the steps that were read last.
    #[inline]
    pub fn row(&self, row_index: usize) -> (&[f64], &[u64]) {
        self.stripes[row_index / self.height].tile.row(row_index % self.height)
    }

    /// The histograms of a row; an empty slice where its tile has none.
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
