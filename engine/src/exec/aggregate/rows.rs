//! Mergeable aggregations: rows are accumulated into partials.
//!
//! The rows of a group are divided into a few leaves by the hash of their labels. Each leaf is
//! accumulated into a partial by row, in the order of labels, and the leaves of a group are merged
//! in order. So a value depends only on the series with a value at its step, not on other loaded
//! series, tiles or threads.
//!
//! Stripes of whole leaves are read tile by tile; the partial of a leaf stays in L1. A group in one
//! stripe is finished there. For a group in several stripes, each returns the partials of its
//! leaves.

use std::ops::Range;

use model::Reservation;

use crate::error::QueryError;
use crate::exec::aggregate::group::Groups;
use crate::exec::aggregate::leaves::Leaves;
use crate::exec::aggregate::partial::{Fold, Partial};
use crate::exec::matrix::Matrix;
use crate::exec::operator::{Context, TileReader, VectorOperator};
use crate::exec::schedule::fair::QueryThread;
use crate::steps::Steps;
use crate::tile::{Tile, TileShape, copy_bits, stripe_rows_by_work};

type Reader<'a> = Box<dyn TileReader + 'a>;

/// Evaluates a mergeable aggregation in tiles of `shape`.
pub(super) fn reduce(
    ctx: &Context,
    steps: Steps,
    shape: TileShape,
    input: &dyn VectorOperator,
    groups: &Groups,
    fold: Fold,
) -> Result<Matrix, QueryError> {
    let shape = shape.wide(steps.count);
    let mut output = Matrix::new(ctx, groups.metas.clone(), steps)?;
    let leaves = groups.leaves(ctx, input)?;
    let stripes = stripes(groups, leaves, input.row_work());
    let whole: Vec<Range<usize>> = stripes.iter().map(|stripe| stripe.whole.clone()).collect();
    let parts = output.runs_mut(&whole);
    let tasks = stripes.iter().zip(parts);
    let boundaries = ctx.map(tasks, |(stripe, (values, presence)), thread| {
        let task = Task { ctx, steps, input, leaves, fold, shape, stripe };
        task.run(thread, values, presence)
    })?;
    finish_boundaries(boundaries, &mut output);
    Ok(output)
}

/// Consecutive leaves that one thread reads, and the groups that lie entirely in them.
struct Stripe {
    leaves: Range<usize>,
    /// Groups whose rows are all in this stripe.
    whole: Range<usize>,
}

/// Divides the leaves into stripes without cutting small groups, so that few groups are in two
/// stripes.
fn stripes(groups: &Groups, leaves: &Leaves, row_work: usize) -> Vec<Stripe> {
    let rows_min = stripe_rows_by_work(leaves.order.len(), row_work);
    let mut stripes = Vec::new();
    let mut first = 0;
    for leaf in 0..leaves.len() {
        let next = leaf + 1;
        let group = leaves.group(leaf);
        let is_last = next == leaves.len();
        let may_cut = groups.rows(group).len() > rows_min || is_last || leaves.group(next) != group;
        let rows = leaves.rows(leaf).end - leaves.rows(first).start;
        if is_last || (may_cut && rows >= rows_min) {
            stripes.push(Stripe { leaves: first..next, whole: leaves.whole_groups(first..next) });
            first = next;
        }
    }
    stripes
}

/// Partial of a leaf over all steps, for a group in several stripes.
struct Boundary {
    leaf: usize,
    group: usize,
    partial: Partial,
    _reservation: Reservation,
}

struct Task<'a> {
    ctx: &'a Context,
    steps: Steps,
    input: &'a dyn VectorOperator,
    leaves: &'a Leaves,
    fold: Fold,
    shape: TileShape,
    stripe: &'a Stripe,
}

/// Partials of the current leaf and the current group.
struct Folding {
    leaf: Partial,
    group: Partial,
}

impl Task<'_> {
    fn run(
        &self,
        thread: &QueryThread,
        values: &mut [f64],
        presence: &mut [u64],
    ) -> Result<Vec<Boundary>, QueryError> {
        let leaves = &self.stripe.leaves;
        let all = self.leaves.rows(leaves.start).start..self.leaves.rows(leaves.end - 1).end;
        let height = self.shape.series.clamp(1, all.len());
        let shape = TileShape { series: height, ..self.shape };
        let _reservation = Reservation::new(&self.ctx.budget, Tile::bytes(shape))?;
        let mut tile = Tile::new(shape);
        // A reader is opened when first needed: if all steps fit in the tile, the next reader then
        // reuses the memory of the previous one, which is still cached.
        let mut readers: Vec<(Range<usize>, Option<Reader<'_>>)> = all
            .clone()
            .step_by(height)
            .map(|start| (start..(start + height).min(all.end), None))
            .collect();
        let partial = Partial::new(self.fold, shape.steps);
        let mut folding = Folding { leaf: partial.clone(), group: partial };
        let mut boundaries = self.boundaries()?;
        let words = self.steps.count.div_ceil(64);
        let mut step = 0;
        while step < self.steps.count {
            thread.yield_if_due()?;
            let width = shape.steps.min(self.steps.count - step);
            for (rows, reader) in &mut readers {
                let open = || self.input.open(&self.leaves.order[rows.clone()]);
                reader.get_or_insert_with(open).next_tile(width, &mut tile)?;
                if step + width == self.steps.count {
                    *reader = None;
                }
                for leaf in self.leaves.touching(rows) {
                    if !self.fold_leaf(leaf, rows, &tile, &mut folding.leaf) {
                        continue;
                    }
                    let group = self.leaves.group(leaf);
                    if !self.stripe.whole.contains(&group) {
                        if let Some(boundary) = boundaries.iter_mut().find(|b| b.leaf == leaf) {
                            boundary.partial.place(step, &folding.leaf);
                        }
                    } else if self.merge_leaf(leaf, &mut folding) {
                        let index = group - self.stripe.whole.start;
                        let row = &mut values[index * self.steps.count..][..self.steps.count];
                        folding.group.finish(&mut row[step..step + width]);
                        let words = &mut presence[index * words..][..words];
                        copy_bits(words, step, folding.group.presence(), width);
                    }
                }
            }
            step += width;
        }
        Ok(boundaries)
    }

    fn boundaries(&self) -> Result<Vec<Boundary>, QueryError> {
        let is_cut = |leaf: &usize| !self.stripe.whole.contains(&self.leaves.group(*leaf));
        let cut = self.stripe.leaves.clone().filter(is_cut);
        cut.map(|leaf| {
            let reservation = Reservation::new(&self.ctx.budget, Partial::bytes(self.steps.count))?;
            let partial = Partial::new(self.fold, self.steps.count);
            Ok(Boundary {
                leaf,
                group: self.leaves.group(leaf),
                partial,
                _reservation: reservation,
            })
        })
        .collect()
    }

    /// Accumulates the rows of a leaf that are in the tile; returns whether the leaf is complete.
    fn fold_leaf(
        &self,
        leaf: usize,
        here: &Range<usize>,
        tile: &Tile,
        partial: &mut Partial,
    ) -> bool {
        let all = self.leaves.rows(leaf);
        if all.start >= here.start {
            partial.reset(tile.steps());
        }
        for row in all.start.max(here.start)..all.end.min(here.end) {
            let (values, presence) = tile.row(row - here.start);
            partial.update(values, presence);
        }
        all.end <= here.end
    }

    /// Merges a leaf into its group; returns whether the group is complete.
    fn merge_leaf(&self, leaf: usize, folding: &mut Folding) -> bool {
        if self.leaves.is_first(leaf) {
            std::mem::swap(&mut folding.leaf, &mut folding.group);
        } else {
            folding.group.merge(&folding.leaf);
        }
        self.leaves.is_last(leaf)
    }
}

/// Merges the partials of groups in several stripes, in the order of leaves.
fn finish_boundaries(boundaries: Vec<Vec<Boundary>>, output: &mut Matrix) {
    let mut pending: Option<Boundary> = None;
    let finish = |boundary: Boundary, output: &mut Matrix| {
        let (values, presence) = output.row_mut(boundary.group);
        boundary.partial.finish(values);
        presence.copy_from_slice(boundary.partial.presence());
    };
    for boundary in boundaries.into_iter().flatten() {
        match &mut pending {
            Some(before) if before.group == boundary.group => {
                before.partial.merge(&boundary.partial);
            }
            _ => {
                if let Some(done) = pending.replace(boundary) {
                    finish(done, output);
                }
            }
        }
    }
    if let Some(done) = pending {
        finish(done, output);
    }
}
