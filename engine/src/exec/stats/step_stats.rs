//! Number of samples that each step of a query sees, as Prometheus counts them.
//!
//! The samples are counted on request, separately from execution: operators may read a series twice
//! or not at all, so they cannot count correctly.

use std::sync::{Arc, Mutex, PoisonError};

use model::{Histogram, Reservation, SeriesSet};

use crate::error::QueryError;
use crate::exec::evaluate::origin;
use crate::exec::matrix::scan::{all_series, scan};
use crate::exec::operator::{Context, VectorOperator};
use crate::exec::rollup::{RawSamples, RollupOperator, raw_series};
use crate::exec::selector::instant::InstantSelector;
use crate::plan::{LookupValue, Node, NodeKind, RangeInput, RangeOrigin};
use crate::result::StepStats;
use crate::steps::{Reach, Steps};
use crate::tile::Tile;

/// Counts, for each step of a node, the samples that it sees and the samples that it reads, which
/// are the seen samples that no earlier step has seen. An instant selector sees one sample per
/// series, a range sees all its samples.
///
/// Errors: as for evaluation.
/// Source: `TotalSamplesPerStep` and `SamplesReadPerStep` of Prometheus. Samples of a node that is
/// evaluated once are seen by every step and read by the first step. For a subquery, the samples of
/// its ranges are seen, and the samples of its inner expression are read.
pub fn count_step_samples(
    ctx: &Context,
    sets: &[Arc<dyn SeriesSet>],
    node: &Node,
) -> Result<StepStats, QueryError> {
    let count = node.steps.count;
    let _reservation = Reservation::new(&ctx.budget, count as u64 * 16)?;
    let (counts, read_counts) = (vec![0; count], vec![0; count]);
    let mut stats = StepStats { steps: node.steps, counts, read_counts };
    add(ctx, sets, node, &mut stats)?;
    Ok(stats)
}

/// Adds the samples that a node and its descendants see.
fn add(
    ctx: &Context,
    sets: &[Arc<dyn SeriesSet>],
    node: &Node,
    stats: &mut StepStats,
) -> Result<(), QueryError> {
    match &node.kind {
        NodeKind::Number(_) | NodeKind::String(_) => Ok(()),
        NodeKind::Lookup(lookup) => match lookup.value {
            // Prometheus does not count the samples of smoothed selectors.
            LookupValue::Smoothed => Ok(()),
            LookupValue::Sample
            | LookupValue::Timestamp
            | LookupValue::FloatTimestamp
            | LookupValue::StartTimestamp => {
                let set = Arc::clone(&sets[lookup.selector]);
                let selector = InstantSelector::new(ctx, set, node.steps, lookup.clone())?;
                let counts = counts_of(ctx, &selector, |_| 1)?;
                add_to(&mut stats.counts, &counts);
                add_to(&mut stats.read_counts, &counts);
                Ok(())
            }
        },
        NodeKind::Range(input) => samples_of_range(ctx, sets, input, stats),
        NodeKind::Rollup(rollup) => {
            rollup.args.iter().try_for_each(|arg| add(ctx, sets, arg, stats))?;
            add_ranges(ctx, sets, &rollup.input, stats)
        }
        NodeKind::Call { args, .. } => args.iter().try_for_each(|arg| add(ctx, sets, arg, stats)),
        NodeKind::Negate(operand) => add(ctx, sets, operand, stats),
        NodeKind::Binary { lhs, rhs, .. } => {
            add(ctx, sets, lhs, stats)?;
            add(ctx, sets, rhs, stats)
        }
        NodeKind::Aggregate(aggregation) => {
            if let Some(param) = &aggregation.param {
                add(ctx, sets, param, stats)?;
            }
            add(ctx, sets, &aggregation.input, stats)
        }
        NodeKind::Invariant(inner) => {
            let once = count_step_samples(ctx, sets, inner)?;
            let count: u64 = once.counts.iter().sum();
            stats.counts.iter_mut().for_each(|sum| *sum += count);
            stats.read_counts[0] += once.read_counts.iter().sum::<u64>();
            Ok(())
        }
    }
}

/// Adds the samples of a range selector or subquery that is the result of an instant query.
fn samples_of_range(
    ctx: &Context,
    sets: &[Arc<dyn SeriesSet>],
    input: &RangeInput,
    stats: &mut StepStats,
) -> Result<(), QueryError> {
    let (count, read_count) = match &input.origin {
        RangeOrigin::Subquery(None) => (0, 0),
        RangeOrigin::Subquery(Some(inner)) => {
            let inner = count_step_samples(ctx, sets, inner)?;
            (inner.counts.iter().sum(), inner.read_counts.iter().sum())
        }
        RangeOrigin::Selector(_) => {
            let Some(origin) = origin(ctx, sets, input)? else { return Ok(()) };
            let (series, _reservation) = raw_series(ctx, input, &origin)?;
            let histogram_count = |raw: &RawSamples| -> u64 {
                raw.histograms.iter().map(|(_, histogram)| sample_count(histogram)).sum()
            };
            let count =
                series.iter().map(|raw| raw.times.len() as u64 + histogram_count(raw)).sum();
            (count, count)
        }
    };
    stats.counts[0] += count;
    stats.read_counts[0] += read_count;
    Ok(())
}

/// Adds the samples in the ranges of a range function.
fn add_ranges(
    ctx: &Context,
    sets: &[Arc<dyn SeriesSet>],
    input: &RangeInput,
    stats: &mut StepStats,
) -> Result<(), QueryError> {
    let Some(whole) = origin(ctx, sets, input)? else { return Ok(()) };
    let steps = stats.steps;
    let sizes = RollupOperator::range_sizes(ctx, steps, input, whole)?;
    let sizes = counts_of(ctx, &sizes, |size| size as u64)?;
    add_to(&mut stats.counts, &sizes);
    if let RangeOrigin::Subquery(Some(inner)) = &input.origin {
        add_read_below(input, &count_step_samples(ctx, sets, inner)?, stats);
        return Ok(());
    }
    stats.read_counts[0] += sizes[0];
    // A range with a fixed time is read only by the first step.
    if steps.count == 1 || input.times.step_ms == 0 {
        return Ok(());
    }
    let Some(whole) = origin(ctx, sets, input)? else { return Ok(()) };
    // Part of each range that is after the end of the previous range.
    let reach_ms = input.range_ms.saturating_add(input.margin.back_ms);
    let fresh = RangeInput {
        range_ms: reach_ms.min(steps.step_ms.saturating_sub(input.margin.ahead_ms)),
        margin: Reach { back_ms: 0, ..input.margin },
        ..input.clone()
    };
    let sizes = RollupOperator::range_sizes(ctx, steps, &fresh, whole)?;
    let sizes = counts_of(ctx, &sizes, |size| size as u64)?;
    add_to(&mut stats.read_counts[1..], &sizes[1..]);
    Ok(())
}

/// Adds the samples that the inner expression of a subquery reads: those of each inner step to the
/// first step whose range may contain it. Inner steps between two ranges are not counted.
///
/// Source: `MergeSamplesReadFromSubquery` of Prometheus.
fn add_read_below(input: &RangeInput, inner: &StepStats, stats: &mut StepStats) {
    let Steps { start_ms, step_ms, count } = stats.steps;
    if count == 1 {
        stats.read_counts[0] += inner.read_counts.iter().sum::<u64>();
        return;
    }
    // A fixed time does not move with the steps.
    let is_fixed = input.times.step_ms == 0;
    let offset_ms = if is_fixed { 0 } else { start_ms.saturating_sub(input.times.first_ms) };
    for (index, read_count) in inner.read_counts.iter().enumerate() {
        let time_ms = inner.steps.time(index).saturating_add(offset_ms);
        let behind_ms = time_ms.saturating_sub(start_ms).max(0).unsigned_abs();
        let step = behind_ms.div_ceil(step_ms.unsigned_abs().max(1));
        let step = usize::try_from(step).map_or(count - 1, |step| step.min(count - 1));
        if time_ms > stats.steps.time(step).saturating_sub(input.range_ms) {
            stats.read_counts[step] += read_count;
        }
    }
}

fn add_to(sums: &mut [u64], counts: &[u64]) {
    for (sum, count) in sums.iter_mut().zip(counts) {
        *sum += count;
    }
}

/// Returns the number of samples that a histogram counts as: one for each 16 bytes of its size in
/// Prometheus.
///
/// Source: `HPoint.size` in `promql/value.go` and `Size` in `model/histogram/float_histogram.go`
/// of Prometheus.
pub(crate) fn sample_count(histogram: &Histogram) -> u64 {
    let spans = histogram.positive_spans.len() + histogram.negative_spans.len();
    let counts = histogram.positive_counts.len() + histogram.negative_counts.len();
    let words = (spans + counts + histogram.custom_bounds.len()) as u64;
    (168 + 8 * words + 8) / 16
}

/// Returns, for each step, the sum over all series of `count_of` their values, and of the samples
/// that their histograms count as.
fn counts_of(
    ctx: &Context,
    operator: &dyn VectorOperator,
    count_of: impl Fn(f64) -> u64 + Sync,
) -> Result<Vec<u64>, QueryError> {
    let step_count = operator.steps().count;
    let _reservation = Reservation::new(&ctx.budget, step_count as u64 * 8)?;
    let counts = Mutex::new(vec![0; step_count]);
    scan(ctx, operator, &all_series(operator), |series, first_step, tile: &Tile| {
        // A poisoned lock means that another thread panicked; the counts themselves are intact.
        let mut counts = counts.lock().unwrap_or_else(PoisonError::into_inner);
        let counts = &mut counts[first_step..];
        for row in 0..series.len() {
            for (index, histogram) in tile.histograms(row).iter().enumerate() {
                counts[index] += histogram.as_deref().map_or(0, sample_count);
            }
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
    })?;
    Ok(counts.into_inner().unwrap_or_else(PoisonError::into_inner))
}
