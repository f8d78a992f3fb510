//! Root of query execution: evaluates a plan and builds the result.
//!
//! The last steps drop names, merge equal label sets, and sort.

use std::sync::Arc;

use model::checkpoint::sort_by;
use model::{Checkpoint, Labels, Reservation, SeriesSet};

use crate::error::QueryError;
use crate::exec::adapter::rearranged::Rearranged;
use crate::exec::adapter::unique::{Meeting, SAME_LABELSET, unique};
use crate::exec::evaluate::{evaluate, origin};
use crate::exec::matrix::scan::each_tile;
use crate::exec::matrix::{Matrix, into_matrix};
use crate::exec::operator::{Context, Operand, SeriesMeta, VectorOperator, without_schema};
use crate::exec::rollup::{Origin, raw_series};
use crate::exec::schedule::fair::QueryThread;
use crate::plan::{NodeKind, Plan, RangeInput};
use crate::result::{RawSeries, Row, SampleValue, Value};
use crate::tile::{
    HistogramCell, Tile, TileShape, copy_bits, histogram_bytes_behind, is_present, stripe_rows,
};

/// Executes a plan over loaded series.
///
/// Shape: `sets` are the loaded series, by selector number.
/// Errors: errors of the evaluation, and equal label sets with values at the same time.
pub fn execute(
    ctx: &Context,
    plan: &Plan,
    sets: &[Arc<dyn SeriesSet>],
    is_instant: bool,
) -> Result<Value, QueryError> {
    let steps = plan.root.steps;
    let time_ms = steps.start_ms;
    if let NodeKind::Range(input) = &plan.root.kind {
        return samples(ctx, sets, input);
    }
    match (evaluate(ctx, sets, &plan.root)?, is_instant) {
        (Operand::String(value), _) => Ok(Value::String { time_ms, value }),
        (Operand::Scalar(values), true) => {
            let value = values.first().copied().unwrap_or(f64::NAN);
            Ok(Value::Scalar { time_ms, value })
        }
        (Operand::Scalar(values), false) => {
            let mut presence = vec![0; steps.count.div_ceil(64)];
            let all = vec![u64::MAX; presence.len()];
            copy_bits(&mut presence, 0, &all, steps.count);
            let histograms = Vec::new();
            let rows = vec![Row { labels: Labels::empty(), values, presence, histograms }];
            Ok(Value::Grid { steps, rows })
        }
        (Operand::Vector(operator), true) => {
            let matrix = into_matrix(ctx, named(ctx, operator)?)?;
            let samples = matrix
                .series()
                .iter()
                .enumerate()
                .filter_map(|(index, meta)| Some((meta.labels.clone(), at_first(&matrix, index)?)))
                .collect();
            Ok(Value::Vector { time_ms, samples })
        }
        (Operand::Vector(operator), false) => {
            let rows = rows(ctx, &*named(ctx, operator)?)?;
            Ok(Value::Grid { steps, rows })
        }
    }
}

/// Returns the value of a series at the first step; if it has a float and a histogram, the
/// histogram.
fn at_first(matrix: &Matrix, series_index: usize) -> Option<SampleValue> {
    if let Some(Some(histogram)) = matrix.histograms(series_index).first() {
        return Some(SampleValue::Histogram(Arc::clone(histogram)));
    }
    let (values, presence) = matrix.row(series_index);
    is_present(presence, 0).then(|| SampleValue::Float(values[0]))
}

/// Drops metric names, and merges equal label sets.
///
/// Source: `cleanupMetricLabels` of Prometheus.
fn named(
    ctx: &Context,
    mut operator: Box<dyn VectorOperator>,
) -> Result<Box<dyn VectorOperator>, QueryError> {
    operator.become_answer();
    if operator.series().iter().all(|meta| !meta.drop_name) {
        return answer(ctx, operator);
    }
    let mut checkpoint = Checkpoint::new(&ctx.budget);
    let mut reservation = Reservation::new(&ctx.budget, 0)?;
    let mut series = Vec::with_capacity(operator.series().len());
    for meta in operator.series() {
        let label_bytes = meta.labels.as_bytes().len();
        checkpoint.work(label_bytes)?;
        reservation.grow((label_bytes + size_of::<SeriesMeta>()) as u64)?;
        series.push(finished(meta));
    }
    answer(ctx, Box::new(Rearranged::relabeled(operator, series)))
}

fn answer(
    ctx: &Context,
    operator: Box<dyn VectorOperator>,
) -> Result<Box<dyn VectorOperator>, QueryError> {
    let mut operator = unique(ctx, operator, Meeting::Merged)?;
    operator.become_answer();
    Ok(operator)
}

fn finished(meta: &SeriesMeta) -> SeriesMeta {
    let labels = if meta.drop_name { without_schema(&meta.labels) } else { meta.labels.clone() };
    SeriesMeta { labels, drop_name: false }
}

/// Returns the rows of all series that have a value, sorted by labels.
fn rows(ctx: &Context, operator: &dyn VectorOperator) -> Result<Vec<Row>, QueryError> {
    let shape = ctx.tile_shape_of(operator);
    let indices: Vec<u32> = (0..operator.series().len() as u32).collect();
    let stripes = ctx
        .map(indices.chunks(shape.series.min(stripe_rows(indices.len()))), |series, thread| {
            stripe(ctx, thread, operator, series, shape)
        })?;
    let (stripes, _reservations): (Vec<_>, Vec<Reservation>) = stripes.into_iter().unzip();
    let rows: Vec<Row> = stripes.into_iter().flatten().collect();
    let mut checkpoint = Checkpoint::new(&ctx.budget);
    let weight = |row: &Row| row.labels.as_bytes().len();
    Ok(sort_by(rows, &mut checkpoint, weight, |a, b| a.labels.cmp(&b.labels))?)
}

fn stripe(
    ctx: &Context,
    thread: &QueryThread,
    operator: &dyn VectorOperator,
    series: &[u32],
    shape: TileShape,
) -> Result<(Vec<Row>, Reservation), QueryError> {
    let steps = operator.steps();
    let words = steps.count.div_ceil(64);
    let mut reservation = Reservation::new(&ctx.budget, 0)?;
    let mut rows: Vec<Option<Row>> = vec![None; series.len()];
    each_tile(ctx, thread, operator, series, shape, |step, width, tile| {
        ctx.budget.charge_answer(sample_count(tile))?;
        for (index, row) in rows.iter_mut().enumerate() {
            let (values, presence) = tile.row(index);
            let histograms = tile.histograms(index);
            let has_histograms = histograms.iter().any(Option::is_some);
            if !has_histograms && presence.iter().all(|word| *word == 0) {
                continue;
            }
            let row = match row {
                Some(row) => row,
                None => {
                    reservation.grow(((steps.count + words) * 8 + size_of::<Row>()) as u64)?;
                    let labels = operator.series()[series[index] as usize].labels.clone();
                    let (values, presence) = (vec![0.0; steps.count], vec![0; words]);
                    row.insert(Row { labels, values, presence, histograms: Vec::new() })
                }
            };
            row.values[step..step + width].copy_from_slice(values);
            copy_bits(&mut row.presence, step, presence, width);
            if has_histograms {
                if row.histograms.is_empty() {
                    reservation.grow((steps.count * size_of::<HistogramCell>()) as u64)?;
                    row.histograms = vec![None; steps.count];
                }
                // The operator outlives this charge.
                if !operator.holds_histograms() {
                    let last = step.checked_sub(1).and_then(|at| row.histograms[at].as_ref());
                    reservation.grow(histogram_bytes_behind(last, histograms))?;
                }
                row.histograms[step..step + width].clone_from_slice(histograms);
            }
        }
        Ok(())
    })?;
    Ok((rows.into_iter().flatten().collect(), reservation))
}

/// Returns the number of floats and histograms of a tile.
fn sample_count(tile: &Tile) -> u64 {
    let count_of = |row: usize| {
        let floats: u32 = tile.row(row).1.iter().map(|word| word.count_ones()).sum();
        u64::from(floats) + tile.histograms(row).iter().flatten().count() as u64
    };
    (0..tile.series()).map(count_of).sum()
}

/// Returns the raw samples of a range, sorted by labels.
fn samples(
    ctx: &Context,
    sets: &[Arc<dyn SeriesSet>],
    input: &RangeInput,
) -> Result<Value, QueryError> {
    let Some(mut origin) = origin(ctx, sets, input)? else { return Ok(Value::Samples(Vec::new())) };
    if let Origin::Operator(operator) = &mut origin {
        operator.become_answer();
    }
    let (found, _reservation) = raw_series(ctx, input, &origin)?;
    let series: Vec<RawSeries> = found
        .into_iter()
        .map(|raw| RawSeries {
            labels: finished(&raw.meta).labels,
            timestamps: raw.times,
            values: raw.values,
            histograms: raw.histograms,
        })
        .collect();
    let mut checkpoint = Checkpoint::new(&ctx.budget);
    let weight = |series: &RawSeries| series.labels.as_bytes().len();
    let series = sort_by(series, &mut checkpoint, weight, |a, b| a.labels.cmp(&b.labels))?;
    let mut merged: Vec<RawSeries> = Vec::with_capacity(series.len());
    for next in series {
        match merged.last_mut() {
            Some(last) if last.labels == next.labels => merge(last, &next, &mut checkpoint)?,
            _ => merged.push(next),
        }
    }
    Ok(Value::Samples(merged))
}

/// Source: `mergeSeriesWithSameLabelset` of Prometheus.
fn merge(
    series: &mut RawSeries,
    other: &RawSeries,
    checkpoint: &mut Checkpoint,
) -> Result<(), QueryError> {
    let mine = series.timestamps.iter().zip(&series.values);
    let floats: Vec<(i64, f64)> = mine
        .chain(other.timestamps.iter().zip(&other.values))
        .map(|(time_ms, value)| (*time_ms, *value))
        .collect();
    let floats = sort_by(floats, checkpoint, |_| 1, |(a, _), (b, _)| a.cmp(b))?;
    let mut histograms = std::mem::take(&mut series.histograms);
    histograms.extend_from_slice(&other.histograms);
    let histograms = sort_by(histograms, checkpoint, |_| 1, |(a, _), (b, _)| a.cmp(b))?;
    // Floats and histograms with the same timestamp are both kept.
    let repeats_float = floats.windows(2).any(|pair| pair[0].0 == pair[1].0);
    if repeats_float || histograms.windows(2).any(|pair| pair[0].0 == pair[1].0) {
        return Err(QueryError::Execution(SAME_LABELSET.to_owned()));
    }
    (series.timestamps, series.values) = floats.into_iter().unzip();
    series.histograms = histograms;
    Ok(())
}
