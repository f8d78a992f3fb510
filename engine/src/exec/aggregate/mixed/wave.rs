//! Reader of rows with histograms: a few stripes at a time, tile by tile.

use std::ops::Range;
use std::sync::Arc;

use model::{Histogram, Reservation};

use crate::error::QueryError;
use crate::exec::operator::{Context, TileReader, VectorOperator};
use crate::tile::{Tile, TileShape, is_present};

/// Value of a series at a step.
#[derive(Clone, Copy)]
pub(super) enum Sample<'a> {
    Float(f64),
    Histogram(&'a Arc<Histogram>),
}

/// Tiles of consecutive rows at the same steps.
pub(super) struct Wave<'a> {
    /// Rows, by position in the requested order.
    pub(super) rows: Range<usize>,
    /// First step.
    pub(super) first_step: usize,
    /// Number of steps.
    pub(super) width: usize,
    tiles: &'a [&'a Tile],
    /// Rows of each tile but the last.
    height: usize,
}

impl Wave<'_> {
    /// Returns the value of a row at a step, relative to the first one of the wave.
    #[inline]
    pub(super) fn at(&self, row: usize, step: usize) -> Option<Sample<'_>> {
        let row = row - self.rows.start;
        let tile = self.tiles[row / self.height];
        let row = row % self.height;
        if let Some(Some(histogram)) = tile.histograms(row).get(step) {
            return Some(Sample::Histogram(histogram));
        }
        let (values, presence) = tile.row(row);
        is_present(presence, step).then(|| Sample::Float(values[step]))
    }
}

/// Rows of one reader, with its current tile.
struct Stripe<'a> {
    reader: Box<dyn TileReader + 'a>,
    tile: Tile,
    /// Charge for the tile without its histograms.
    _reservation: Reservation,
    /// Charge for the histograms in the tile.
    histograms: Option<Reservation>,
}

impl Stripe<'_> {
    fn next_tile(&mut self, ctx: &Context, width: usize) -> Result<(), QueryError> {
        self.histograms = None;
        self.reader.next_tile(width, &mut self.tile)?;
        self.histograms = Some(Reservation::new(&ctx.budget, self.tile.histogram_bytes())?);
        Ok(())
    }
}

/// Calls `visit` for all rows of an operator, wave by wave; within the same rows, in the order of
/// steps.
///
/// Shape: rows are the listed series, in their order.
/// Errors: errors of the operator's readers and of `visit`, and the limits of the query.
pub(super) fn each_wave(
    ctx: &Context,
    input: &dyn VectorOperator,
    order: &[u32],
    mut visit: impl FnMut(&Wave<'_>) -> Result<(), QueryError>,
) -> Result<(), QueryError> {
    let steps = input.steps();
    let shape = ctx.tile_shape_of(input);
    let height = shape.series.max(1);
    let wave_rows = height * ctx.threads();
    for (index, order) in order.chunks(wave_rows).enumerate() {
        let rows = index * wave_rows..index * wave_rows + order.len();
        let stripes = order.chunks(height).map(|series| open(ctx, input, series, shape));
        let mut stripes = stripes.collect::<Result<Vec<_>, QueryError>>()?;
        let mut first_step = 0;
        while first_step < steps.count {
            let width = shape.steps.min(steps.count - first_step);
            ctx.for_each(stripes.iter_mut(), |stripe, thread| {
                thread.yield_if_due()?;
                stripe.next_tile(ctx, width)
            })?;
            let rows = rows.clone();
            let tiles: Vec<&Tile> = stripes.iter().map(|stripe| &stripe.tile).collect();
            visit(&Wave { rows, first_step, width, tiles: &tiles, height })?;
            first_step += width;
        }
    }
    Ok(())
}

fn open<'a>(
    ctx: &Context,
    input: &'a dyn VectorOperator,
    series: &[u32],
    shape: TileShape,
) -> Result<Stripe<'a>, QueryError> {
    let shape = TileShape { series: series.len(), ..shape };
    let reservation = Reservation::new(&ctx.budget, Tile::bytes(shape))?;
    let (reader, tile) = (input.open(series), Tile::new(shape));
    Ok(Stripe { reader, tile, _reservation: reservation, histograms: None })
}
