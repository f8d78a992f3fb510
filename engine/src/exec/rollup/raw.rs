//! Range selectors and subqueries as the answer of an instant query: the samples themselves.

use std::sync::Arc;

use model::{Histogram, Labels};

use crate::error::QueryError;
use crate::exec::charge::Charge;
use crate::exec::operator::{Context, SeriesMeta};
use crate::exec::rollup::buffer::Buffer;
use crate::exec::rollup::{Feed, Origin, extended, take, whole_reach};
use crate::exec::watch::Intake;
use crate::parse::ast::RangeMode;
use crate::plan::RangeInput;

/// The samples of one series.
pub struct RawSamples {
    /// Its labels, and whether the name goes.
    pub meta: SeriesMeta,
    /// Times, ascending.
    pub times: Vec<i64>,
    /// Values, as many as times.
    pub values: Vec<f64>,
    /// Native histograms with their times, ascending.
    pub histograms: Vec<(i64, Arc<Histogram>)>,
}

/// The samples in the range of the first step; series without any are left out.
pub fn raw_series(
    ctx: &Context,
    input: &RangeInput,
    origin: &Origin,
) -> Result<(Vec<RawSamples>, Charge), QueryError> {
    let end_ms = input.times.time(0);
    let start_ms = end_ms.saturating_sub(input.range_ms);
    let reach = whole_reach(input);
    let after_ms = end_ms.saturating_sub(reach.back_ms);
    let until_ms = end_ms.saturating_add(reach.ahead_ms);
    let mut charge = Charge::new(&ctx.budget, 0)?;
    let mut found = Vec::new();
    for (index, meta) in origin.series(ctx).into_iter().enumerate() {
        ctx.budget.check()?;
        let mut times = Vec::new();
        let mut values = Vec::new();
        let are_decoded = matches!(origin, Origin::Set(_));
        let mut intake = Intake::new(&ctx.budget, are_decoded)?;
        match Feed::new(ctx, origin, &[index as u32]) {
            Feed::Grid(mut grid) => grid.pull(until_ms, &mut intake, |_, time_ms, value| {
                times.push(time_ms);
                values.push(value);
            })?,
            Feed::Cursors { mut cursors, mut batch } => {
                let mut buffer = Buffer::default();
                for cursor in &mut cursors {
                    take(cursor, until_ms, &mut batch, &mut intake, &mut buffer)?;
                }
                (times, values) = buffer.into_samples();
            }
        }
        let from = times.partition_point(|t| *t <= after_ms);
        let to = times.partition_point(|t| *t <= until_ms);
        let (seen_times, seen_values) = (&times[from..to], &values[from..to]);
        let (times, values) = match input.mode {
            RangeMode::Plain => (seen_times.to_vec(), seen_values.to_vec()),
            RangeMode::Anchored | RangeMode::Smoothed => extended::extended_samples(
                seen_times,
                seen_values,
                (start_ms, end_ms),
                input.mode == RangeMode::Smoothed,
            ),
        };
        intake.finish()?;
        charge.grow((times.len() * 16 + size_of::<Labels>()) as u64)?;
        if !times.is_empty() {
            found.push(RawSamples { meta, times, values, histograms: Vec::new() });
        }
    }
    Ok((found, charge))
}
