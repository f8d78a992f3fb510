//! Aggregations that merge: rows are accumulated into partials.
//!
//! Each stripe of rows, sorted by group, is read tile by tile; a tile's rows are folded into one
//! partial, group after group, which stays in L1. A group that lies in one stripe is finished on
//! the spot; of one that crosses borders each stripe leaves a partial, and they are merged in the
//! order of the stripes. Where stripes end is fixed, and tiles end inside them: so the order of
//! all additions is fixed, and no bit of the answer depends on tiles or threads.

use std::ops::Range;

use crate::error::QueryError;
use crate::exec::aggregate::group::Groups;
use crate::exec::aggregate::partial::{Fold, Partial};
use crate::exec::charge::Charge;
use crate::exec::matrix::Matrix;
use crate::exec::operator::{Context, TileReader, VectorOperator};
use crate::exec::turn::Pace;
use crate::tile::{TILE_SERIES, Tile, TileShape, copy_bits};
use crate::window::Steps;

/// Rows of a stripe.
const STRIPE_ROWS: usize = TILE_SERIES;

/// Evaluates an aggregation that merges, out of tiles of a shape.
pub(super) fn reduce(
    ctx: &Context,
    steps: Steps,
    shape: TileShape,
    input: &dyn VectorOperator,
    groups: &Groups,
    fold: Fold,
) -> Result<Matrix, QueryError> {
    let mut output = Matrix::new(ctx, groups.metas.clone(), steps)?;
    let stripes: Vec<Stripe> = (0..groups.order.len())
        .step_by(STRIPE_ROWS)
        .map(|start| Stripe::new(groups, start..(start + STRIPE_ROWS).min(groups.order.len())))
        .collect();
    let whole: Vec<Range<usize>> = stripes.iter().map(|stripe| stripe.whole.clone()).collect();
    let parts = output.runs_mut(&whole);
    let tasks = stripes.iter().zip(parts);
    let borders = ctx.map(tasks, |(stripe, (values, presence)), pace| {
        let task = Task { ctx, steps, input, groups, fold, shape, stripe };
        task.run(pace, values, presence)
    })?;
    finish_borders(borders, &mut output);
    Ok(output)
}

/// Some rows, and the groups that lie in them.
struct Stripe {
    rows: Range<usize>,
    /// All groups with a row here.
    groups: Range<usize>,
    /// The groups with all their rows here.
    whole: Range<usize>,
}

impl Stripe {
    fn new(groups: &Groups, rows: Range<usize>) -> Stripe {
        let first = groups.group_of_row(rows.start);
        let last = groups.group_of_row(rows.end - 1);
        let is_first_cut =
            groups.rows(first).start < rows.start || groups.rows(first).end > rows.end;
        let is_last_cut = groups.rows(last).end > rows.end || groups.rows(last).start < rows.start;
        let start = if is_first_cut { first + 1 } else { first };
        let end = if is_last_cut { last } else { last + 1 };
        Stripe { rows, groups: first..last + 1, whole: start..end.max(start) }
    }
}

/// What a stripe knows of a group that crosses its borders, over all steps.
struct Border {
    group: usize,
    partial: Partial,
    _charge: Charge,
}

struct Task<'a> {
    ctx: &'a Context,
    steps: Steps,
    input: &'a dyn VectorOperator,
    groups: &'a Groups,
    fold: Fold,
    shape: TileShape,
    stripe: &'a Stripe,
}

impl Task<'_> {
    fn run(
        &self,
        pace: &Pace,
        values: &mut [f64],
        presence: &mut [u64],
    ) -> Result<Vec<Border>, QueryError> {
        let all = self.stripe.rows.clone();
        let height = self.shape.series.clamp(1, all.len());
        let shape = TileShape { series: height, ..self.shape };
        let _charge = Charge::new(&self.ctx.budget, Tile::bytes(shape))?;
        let mut tile = Tile::new(shape);
        let mut readers: Vec<(Range<usize>, Box<dyn TileReader + '_>)> = all
            .clone()
            .step_by(height)
            .map(|start| start..(start + height).min(all.end))
            .map(|rows| (rows.clone(), self.input.open(&self.groups.order[rows])))
            .collect();
        let mut partial = Partial::new(self.fold, shape.steps);
        let mut borders = self.borders()?;
        let words = self.steps.count.div_ceil(64);
        let mut step = 0;
        while step < self.steps.count {
            pace.pause()?;
            let width = shape.steps.min(self.steps.count - step);
            for (rows, reader) in &mut readers {
                reader.next_tile(width, &mut tile)?;
                let last = self.groups.group_of_row(rows.end - 1);
                for group in self.groups.group_of_row(rows.start)..=last {
                    if !self.fold_group(group, rows, &tile, &mut partial) {
                        continue;
                    }
                    if self.stripe.whole.contains(&group) {
                        let index = group - self.stripe.whole.start;
                        let row = &mut values[index * self.steps.count..][..self.steps.count];
                        partial.finish(&mut row[step..step + width]);
                        let words = &mut presence[index * words..][..words];
                        copy_bits(words, step, partial.presence(), width);
                    } else if let Some(border) = borders.iter_mut().find(|b| b.group == group) {
                        border.partial.place(step, &partial);
                    }
                }
            }
            step += width;
        }
        Ok(borders)
    }

    fn borders(&self) -> Result<Vec<Border>, QueryError> {
        let cut = self.stripe.groups.clone().filter(|group| !self.stripe.whole.contains(group));
        cut.map(|group| {
            let charge = Charge::new(&self.ctx.budget, Partial::bytes(self.steps.count))?;
            let partial = Partial::new(self.fold, self.steps.count);
            Ok(Border { group, partial, _charge: charge })
        })
        .collect()
    }

    /// Folds the rows of a group that lie in the tile; gives whether the group has no further
    /// ones in the stripe.
    fn fold_group(
        &self,
        group: usize,
        here: &Range<usize>,
        tile: &Tile,
        partial: &mut Partial,
    ) -> bool {
        let (all, stripe) = (self.groups.rows(group), &self.stripe.rows);
        if all.start.max(stripe.start) >= here.start {
            partial.reset(tile.steps());
        }
        for row in all.start.max(here.start)..all.end.min(here.end) {
            let (values, presence) = tile.row(row - here.start);
            partial.update(values, presence);
        }
        all.end.min(stripe.end) <= here.end
    }
}

/// Merges what the stripes left of groups that cross their borders, in the stripes' order.
fn finish_borders(borders: Vec<Vec<Border>>, output: &mut Matrix) {
    let mut pending: Option<Border> = None;
    let finish = |border: Border, output: &mut Matrix| {
        let (values, presence) = output.row_mut(border.group);
        border.partial.finish(values);
        presence.copy_from_slice(border.partial.presence());
    };
    for border in borders.into_iter().flatten() {
        match &mut pending {
            Some(before) if before.group == border.group => before.partial.merge(&border.partial),
            _ => {
                if let Some(done) = pending.replace(border) {
                    finish(done, output);
                }
            }
        }
    }
    if let Some(done) = pending {
        finish(done, output);
    }
}
