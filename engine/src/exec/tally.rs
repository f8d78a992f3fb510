//! How many samples each step of a query sees, as Prometheus counts them.
//!
//! This is counted apart from the execution, over the series that have been loaded for it, and
//! only where it is asked for: operators read some series twice and leave out others, so what
//! they decode says little about a step.

use std::sync::{Arc, Mutex, PoisonError};

use model::SeriesSet;

use crate::error::QueryError;
use crate::exec::charge::Charge;
use crate::exec::evaluate::origin;
use crate::exec::operator::{Context, VectorOperator};
use crate::exec::rollup::{RollupOperator, raw_series};
use crate::exec::scan::{all_series, scan};
use crate::exec::select::InstantSelector;
use crate::plan::{InstantValue, Node, NodeKind, RangeInput, RangeOrigin};
use crate::tile::Tile;
use crate::window::Steps;

/// How many samples each step of a node sees: of an instant selector those that it yields, of
/// a range all that are in it.
///
/// Errors: as for evaluation; samples count towards the query's limit once more.
/// Source: `TotalSamplesPerStep` of Prometheus. What is evaluated once counts at every step; of
/// a subquery only the ranges over it count.
pub fn tally(
    ctx: &Context,
    sets: &[Arc<dyn SeriesSet>],
    node: &Node,
) -> Result<Vec<u64>, QueryError> {
    let _charge = Charge::new(&ctx.budget, node.steps.count as u64 * 8)?;
    let mut counts = vec![0; node.steps.count];
    add(ctx, sets, node, &mut counts)?;
    Ok(counts)
}

/// Adds what a node and those below it see.
fn add(
    ctx: &Context,
    sets: &[Arc<dyn SeriesSet>],
    node: &Node,
    counts: &mut [u64],
) -> Result<(), QueryError> {
    match &node.kind {
        NodeKind::Number(_) | NodeKind::String(_) => Ok(()),
        NodeKind::Instant(instant) => match instant.yields {
            // Prometheus does not count what these look at.
            InstantValue::Smoothed => Ok(()),
            InstantValue::Sample | InstantValue::Timestamp => {
                let set = Arc::clone(&sets[instant.selector]);
                let selector = InstantSelector::new(ctx, set, node.steps, instant.clone())?;
                add_values(ctx, &selector, |_| 1, counts)
            }
        },
        NodeKind::Range(input) => {
            let count = samples_of_range(ctx, sets, input)?;
            counts.iter_mut().for_each(|sum| *sum += count);
            Ok(())
        }
        NodeKind::Rollup(rollup) => {
            rollup.args.iter().try_for_each(|arg| add(ctx, sets, arg, counts))?;
            add_ranges(ctx, sets, node.steps, &rollup.input, counts)
        }
        NodeKind::Call { args, .. } => args.iter().try_for_each(|arg| add(ctx, sets, arg, counts)),
        NodeKind::Negate(operand) => add(ctx, sets, operand, counts),
        NodeKind::Binary { lhs, rhs, .. } => {
            add(ctx, sets, lhs, counts)?;
            add(ctx, sets, rhs, counts)
        }
        NodeKind::Aggregate(aggregation) => {
            if let Some(param) = &aggregation.param {
                add(ctx, sets, param, counts)?;
            }
            add(ctx, sets, &aggregation.input, counts)
        }
        NodeKind::Invariant(inner) => {
            let once: u64 = tally(ctx, sets, inner)?.iter().sum();
            counts.iter_mut().for_each(|sum| *sum += once);
            Ok(())
        }
    }
}

/// How many samples an answer of ranges is made from.
fn samples_of_range(
    ctx: &Context,
    sets: &[Arc<dyn SeriesSet>],
    input: &RangeInput,
) -> Result<u64, QueryError> {
    match &input.origin {
        RangeOrigin::Subquery(None) => Ok(0),
        RangeOrigin::Subquery(Some(inner)) => Ok(tally(ctx, sets, inner)?.iter().sum()),
        RangeOrigin::Selector(_) => {
            let Some(origin) = origin(ctx, sets, input)? else { return Ok(0) };
            let (series, _charge) = raw_series(ctx, input, &origin)?;
            Ok(series.iter().map(|raw| raw.times.len() as u64).sum())
        }
    }
}

fn add_ranges(
    ctx: &Context,
    sets: &[Arc<dyn SeriesSet>],
    steps: Steps,
    input: &RangeInput,
    counts: &mut [u64],
) -> Result<(), QueryError> {
    let Some(origin) = origin(ctx, sets, input)? else { return Ok(()) };
    let sizes = RollupOperator::range_sizes(ctx, steps, input, origin)?;
    add_values(ctx, &sizes, |size| size as u64, counts)
}

/// Adds up over all series what the values of a step count for.
fn add_values(
    ctx: &Context,
    operator: &dyn VectorOperator,
    count_of: impl Fn(f64) -> u64 + Sync,
    counts: &mut [u64],
) -> Result<(), QueryError> {
    let counts = Mutex::new(counts);
    scan(ctx, operator, &all_series(operator), |series, first_step, tile: &Tile| {
        // Numbers stay whole where another thread has panicked.
        let mut counts = counts.lock().unwrap_or_else(PoisonError::into_inner);
        let counts = &mut counts[first_step..];
        for row in 0..series.len() {
            let (values, presence) = tile.row(row);
            for (word_index, word) in presence.iter().enumerate() {
                let mut bits = *word;
                while bits != 0 {
                    let index = word_index * 64 + bits.trailing_zeros() as usize;
                    counts[index] += count_of(values[index]);
                    bits &= bits - 1;
                }
            }
        }
    })
}
