//! Visits of every tile of an operator, in parallel by stripe of series.

use model::Reservation;

use crate::error::QueryError;
use crate::exec::operator::{Context, VectorOperator};
use crate::exec::schedule::fair::QueryThread;
use crate::tile::{Tile, TileShape, stripe_rows};

/// Calls `visit` for each tile of the listed series, with the series of its rows and the index of
/// its first step. Tiles of a stripe are in the order of their steps, stripes in any order.
///
/// Errors: errors of the operator's readers, and the limits of the query.
pub fn scan(
    ctx: &Context,
    operator: &dyn VectorOperator,
    series: &[u32],
    visit: impl Fn(&[u32], usize, &Tile) + Sync,
) -> Result<(), QueryError> {
    let shape = ctx.tile_shape_of(operator);
    let height = shape.series.min(stripe_rows(series.len())).max(1);
    ctx.for_each(series.chunks(height), |stripe, thread| {
        each_tile(ctx, thread, operator, stripe, shape, |first_step, _, tile| {
            visit(stripe, first_step, tile);
            Ok(())
        })
    })
}

/// Calls `visit` for each tile of one stripe, in the order of steps, with the index of its first
/// step and its number of steps. Tiles are at most as large as `shape`.
///
/// Errors: as for [`scan`], and errors of `visit`.
pub fn each_tile(
    ctx: &Context,
    thread: &QueryThread,
    operator: &dyn VectorOperator,
    stripe: &[u32],
    shape: TileShape,
    mut visit: impl FnMut(usize, usize, &Tile) -> Result<(), QueryError>,
) -> Result<(), QueryError> {
    let steps = operator.steps();
    let shape = TileShape { series: stripe.len(), ..shape };
    let _reservation = Reservation::new(&ctx.budget, Tile::bytes(shape))?;
    let mut tile = Tile::new(shape);
    let mut reader = operator.open(stripe);
    let mut first_step = 0;
    while first_step < steps.count {
        thread.yield_if_due()?;
        let width = shape.steps.min(steps.count - first_step);
        reader.next_tile(width, &mut tile)?;
        let bytes = match operator.holds_histograms() {
            true => tile.plane_bytes(),
            false => tile.histogram_bytes(),
        };
        let _histograms = Reservation::new(&ctx.budget, bytes)?;
        visit(first_step, width, &tile)?;
        first_step += width;
    }
    Ok(())
}

/// Evaluates the listed series only for their errors and annotations, if there may be any.
///
/// Errors: as for [`scan`].
pub fn drain(
    ctx: &Context,
    operator: &dyn VectorOperator,
    series: &[u32],
) -> Result<(), QueryError> {
    if operator.has_effects() { scan(ctx, operator, series, |_, _, _| {}) } else { Ok(()) }
}

/// Returns the indices of all series of an operator.
pub fn all_series(operator: &dyn VectorOperator) -> Vec<u32> {
    (0..operator.series().len() as u32).collect()
}

/// Returns the 64 bits of `bits` from bit `step_index` on; bits after the end are 0.
#[inline]
pub fn word_at(bits: &[u64], step_index: usize) -> u64 {
    let shift = step_index % 64;
    let at = step_index / 64;
    let low = bits.get(at).map_or(0, |word| word >> shift);
    match (shift, bits.get(at + 1)) {
        (1.., Some(high)) => low | high << (64 - shift),
        _ => low,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::tile::{is_present, set_present};

    proptest! {
        #[test]
        fn a_word_is_64_bits_from_anywhere(steps in prop::collection::vec(0usize..200, 0..90), from in 0usize..300) {
            let mut bits = vec![0; 4];
            steps.iter().for_each(|step| set_present(&mut bits, *step));
            let word = word_at(&bits, from);
            for bit in 0..64 {
                let expected = from + bit < 256 && is_present(&bits, from + bit);
                prop_assert_eq!(word >> bit & 1 == 1, expected);
            }
        }
    }
}
