//! Range selectors and subqueries as the result of an instant query: the samples themselves.

use std::sync::Arc;

use model::{Checkpoint, Histogram, Reservation, TimeRange};

use crate::error::QueryError;
use crate::exec::operator::{Context, SeriesMeta};
use crate::exec::rollup::buffer::Buffer;
use crate::exec::rollup::feed::{Feed, histogram_bytes};
use crate::exec::rollup::{Origin, extended, whole_reach};
use crate::parse::ast::RangeMode;
use crate::plan::RangeInput;

/// Samples of one series.
pub struct RawSamples {
    /// Labels, and whether the name is dropped.
    pub meta: SeriesMeta,
    /// Timestamps, ascending.
    pub times: Vec<i64>,
    /// Values, one per timestamp.
    pub values: Vec<f64>,
    /// Native histograms with timestamps, ascending.
    pub histograms: Vec<(i64, Arc<Histogram>)>,
}

/// Returns the samples in the range of the first step, without empty series.
pub fn raw_series(
    ctx: &Context,
    input: &RangeInput,
    origin: &Origin,
) -> Result<(Vec<RawSamples>, Reservation), QueryError> {
    let end_ms = input.times.time(0);
    let start_ms = end_ms.saturating_sub(input.range_ms);
    let reach = whole_reach(input);
    let after_ms = end_ms.saturating_sub(reach.back_ms);
    let until_ms = end_ms.saturating_add(reach.ahead_ms);
    let mut reservation = Reservation::new(&ctx.budget, 0)?;
    let mut found = Vec::new();
    let (series, has_histograms) = (origin.series(ctx, false), origin.has_histograms());
    for (index, meta) in origin.metas(ctx, &series).iter().enumerate() {
        ctx.budget.check()?;
        let mut intake = match origin {
            Origin::Set(_) => Checkpoint::of_samples(&ctx.budget),
            Origin::Operator(_) => Checkpoint::new(&ctx.budget),
        };
        let mut reading = Reservation::empty(&ctx.budget);
        let feed = Feed::new(ctx, origin, has_histograms, &[index as u32], None, None, None);
        let read = read(feed, index as u32, until_ms, &mut intake, &mut reading)?;
        let seen = |times: &dyn Fn(i64) -> usize| times(after_ms)..times(until_ms);
        let floats = seen(&|bound| read.times.partition_point(|t| *t <= bound));
        let histograms = seen(&|bound| read.histograms.partition_point(|(t, _)| *t <= bound));
        let (seen_times, seen_values) = (&read.times[floats.clone()], &read.values[floats]);
        let histograms = &read.histograms[histograms];
        check_mode(input.mode, histograms)?;
        let kept = (seen_times.len() + histograms.len()) * 16 + size_of::<RawSamples>();
        let kept_bytes = |(_, h): &(i64, Arc<Histogram>)| histogram_bytes(h);
        reservation.grow(kept as u64 + histograms.iter().map(kept_bytes).sum::<u64>())?;
        let (times, values) = match input.mode {
            RangeMode::Plain => (seen_times.to_vec(), seen_values.to_vec()),
            RangeMode::Anchored | RangeMode::Smoothed => extended::extended_samples(
                seen_times,
                seen_values,
                TimeRange::new(start_ms, end_ms),
                input.mode == RangeMode::Smoothed,
            ),
        };
        let is_alive = |(_, histogram): &&(i64, Arc<Histogram>)| !histogram.is_stale();
        let histograms: Vec<_> = histograms.iter().filter(is_alive).cloned().collect();
        intake.settle()?;
        if !times.is_empty() || !histograms.is_empty() {
            found.push(RawSamples { meta: meta.clone(), times, values, histograms });
        }
    }
    Ok((found, reservation))
}

/// Samples of a series up to a time.
#[derive(Default)]
struct Read {
    times: Vec<i64>,
    values: Vec<f64>,
    /// Histograms, including staleness markers.
    histograms: Vec<(i64, Arc<Histogram>)>,
}

fn read(
    feed: Feed<'_>,
    series: u32,
    until_ms: i64,
    intake: &mut Checkpoint,
    reservation: &mut Reservation,
) -> Result<Read, QueryError> {
    let mut read = Read::default();
    let mut buffer = Buffer::default();
    let bytes = |histogram: &Histogram| 16 + histogram_bytes(histogram);
    match feed {
        Feed::Grid(mut grid) => grid.pull(until_ms, intake, |_, samples| {
            buffer.make_room(samples.float_count(), reservation)?;
            samples.each_float_run(|start_ms, step_ms, values| {
                buffer.extend_evenly(start_ms, step_ms, values);
            });
            for (time_ms, histogram) in samples.histograms() {
                reservation.grow(bytes(histogram))?;
                read.histograms.push((time_ms, Arc::clone(histogram)));
            }
            Ok(())
        })?,
        Feed::Cursors(mut feed) => {
            feed.take(0, series, until_ms, true, intake, |batch| {
                let (times, values) = batch.samples();
                buffer.make_room(times.len(), reservation)?;
                buffer.extend(times, values);
                reservation.grow(batch.histograms.iter().map(|s| bytes(&s.histogram)).sum())?;
                let histograms = batch.histograms.iter();
                read.histograms
                    .extend(histograms.map(|s| (s.timestamp_ms, Arc::clone(&s.histogram))));
                Ok(())
            })?;
        }
    }
    (read.times, read.values) = buffer.into_samples();
    Ok(read)
}

/// Checks that histograms are allowed in the mode.
///
/// Source: `matrixSelector` of Prometheus, where a staleness marker is a histogram, too.
fn check_mode(mode: RangeMode, histograms: &[(i64, Arc<Histogram>)]) -> Result<(), QueryError> {
    let word = match mode {
        RangeMode::Anchored if !histograms.is_empty() => "anchored",
        RangeMode::Smoothed if !histograms.is_empty() => "smoothed",
        _ => return Ok(()),
    };
    Err(QueryError::Execution(format!("{word} modifier is not supported with histograms")))
}
