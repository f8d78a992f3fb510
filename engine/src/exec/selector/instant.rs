//! Lookup selectors: the newest sample of each series at each step.
//!
//! A reader keeps one cursor per series and the newest sample. It reads samples up to the tile's
//! last step and advances samples and steps together, so each sample is processed once, however
//! long the lookback is. Series that may have native histograms are processed separately.

use std::sync::Arc;

use model::{
    Advance, Checkpoint, FilledSteps, Histogram, LookupSteps, Reservation, SampleBatch, SeriesSet,
    StepRanges, is_stale,
};

use crate::error::QueryError;
use crate::exec::operator::{Context, DerivedOfSeries, SeriesMeta, TileReader, VectorOperator};
use crate::exec::selector::output_series::OutputSeries;
use crate::exec::selector::series_cursor::{ROWS_AHEAD, SeriesCursor, WantedSeries};
use crate::plan::{Lookup, LookupValue};
use crate::steps::Steps;
use crate::tile::{Tile, set_all_present, set_present};

/// Series of an instant selector.
pub struct InstantSelector {
    ctx: Context,
    set: Arc<dyn SeriesSet>,
    series: OutputSeries,
    steps: Steps,
    lookup: Lookup,
    has_histograms: bool,
    _reservation: Reservation,
}

impl InstantSelector {
    /// Returns an operator over the loaded series of a selector. The output is values or
    /// timestamps, as `lookup` requests.
    pub fn new(
        ctx: &Context,
        set: Arc<dyn SeriesSet>,
        steps: Steps,
        mut lookup: Lookup,
    ) -> Result<InstantSelector, QueryError> {
        let bytes = set.len() * size_of::<SeriesMeta>();
        let reservation = Reservation::new(&ctx.budget, bytes as u64)?;
        let series = OutputSeries::of_set(ctx, &*set, lookup.drops_name);
        let has_histograms = set.has_any_histograms();
        // Other operators may report histograms at any step.
        lookup.seen = lookup.seen.filter(|_| !has_histograms);
        let ctx = ctx.clone();
        Ok(InstantSelector {
            ctx,
            set,
            series,
            steps,
            lookup,
            has_histograms,
            _reservation: reservation,
        })
    }
}

impl InstantSelector {
    /// Returns the kind of result in mixed rows; `None` if start timestamps are requested but
    /// disabled.
    fn mixed_value(&self) -> Option<LookupValue> {
        let value = self.lookup.value;
        let is_ignored = value == LookupValue::StartTimestamp && !self.ctx.uses_start_timestamps;
        (!is_ignored).then_some(value)
    }
}

impl VectorOperator for InstantSelector {
    fn series(&self) -> &[SeriesMeta] {
        self.series.metas(&self.ctx, &*self.set)
    }

    fn steps(&self) -> Steps {
        self.steps
    }

    fn has_histograms(&self) -> bool {
        self.has_histograms
            && matches!(
                self.lookup.value,
                LookupValue::Sample | LookupValue::Smoothed | LookupValue::FloatTimestamp
            )
    }

    fn has_effects(&self) -> bool {
        false
    }

    fn is_sorted(&self) -> bool {
        self.series.are_sorted
    }

    fn derived(&self) -> Option<DerivedOfSeries<'_>> {
        self.series.derived(&self.ctx, &*self.set)
    }

    fn open<'a>(&'a self, series: &[u32]) -> Box<dyn TileReader + 'a> {
        let row = |index: &u32| Row {
            series: *index,
            cursor: SeriesCursor::Before,
            newest_ms: i64::MIN,
            newest: 0.0,
            newest_start_ms: 0,
            newest_histogram: None,
            is_mixed: self.lookup.value == LookupValue::StartTimestamp
                || self.has_histograms && self.set.has_histograms(*index as usize),
        };
        Box::new(InstantReader {
            selector: self,
            rows: series.iter().map(row).collect(),
            step_ranges: self.lookup.times.step_ranges(self.lookup.reach, true),
            batch: SampleBatch::new(),
            step: 0,
        })
    }
}

struct InstantReader<'a> {
    selector: &'a InstantSelector,
    rows: Vec<Row<'a>>,
    /// Ranges that steps read, if there are gaps between them.
    step_ranges: Option<StepRanges>,
    batch: Box<SampleBatch>,
    step: usize,
}

/// State of reading one series.
struct Row<'a> {
    series: u32,
    cursor: SeriesCursor<'a>,
    /// Timestamp of the newest sample read; `i64::MIN` before the first.
    newest_ms: i64,
    newest: f64,
    /// Start timestamp of the newest sample; only in mixed rows.
    newest_start_ms: i64,
    /// The newest sample if it is a histogram; only in mixed rows.
    newest_histogram: Option<Arc<Histogram>>,
    /// True if the series may have histograms, or if start timestamps are requested.
    is_mixed: bool,
}

/// Evenly spaced steps, each of which sees the sample `stride` after that of the previous step.
#[derive(Clone, Copy)]
struct Even {
    /// Index of the sample that the first step sees.
    first: usize,
    /// Number of samples from one step to the next.
    stride: usize,
    /// Number of steps; at least one.
    count: usize,
    /// Time from each sample to its step.
    age_ms: i64,
}

impl Even {
    /// Returns the first of `steps` that see samples of the batch, if samples and steps are evenly
    /// spaced.
    #[inline]
    fn of(
        batch: &SampleBatch,
        times: LookupSteps,
        steps: std::ops::Range<usize>,
        is_last: bool,
    ) -> Option<Even> {
        let sample_ms = batch.even_step_ms()?;
        let passed_ms = times.time(steps.start) - batch.timestamps[0];
        if steps.is_empty() || passed_ms < 0 || times.step_ms % sample_ms != 0 {
            return None;
        }
        let (first, age_ms) = ((passed_ms / sample_ms) as usize, passed_ms % sample_ms);
        let stride = (times.step_ms / sample_ms) as usize;
        // The next batch may have a newer sample for the step that sees the last sample of this
        // one.
        let end = batch.len - usize::from(!is_last);
        if first >= end || stride == 0 || age_ms >= times.lookback_ms {
            return None;
        }
        let count = steps.len().min((end - 1 - first) / stride + 1);
        Some(Even { first, stride, count, age_ms })
    }

    /// Writes the result of each step to `out`; `yields` maps a timestamp and a value to it.
    #[inline]
    fn fill(
        self,
        first_ms: i64,
        batch: &SampleBatch,
        out: &mut [f64],
        yields: &impl Fn(i64, f64) -> f64,
    ) {
        let Even { first, stride, count, age_ms } = self;
        let sample_ms = batch.even_step_ms * stride as i64;
        let mut time_ms = first_ms - age_ms;
        let seen = &batch.values[first..first + (count - 1) * stride + 1];
        for (out, value) in out.iter_mut().zip(seen.iter().step_by(stride)) {
            *out = yields(time_ms, *value);
            time_ms += sample_ms;
        }
    }
}

/// Sets the presence of the steps, except for samples that are staleness markers.
#[inline]
fn set_seen(values: &[f64], even: Even, steps: std::ops::Range<usize>, presence: &mut [u64]) {
    let Even { first, stride, count, .. } = even;
    let seen = values[first..first + (count - 1) * stride + 1].iter().step_by(stride);
    let is_any_stale = seen.clone().fold(false, |any, value| any | is_stale(*value));
    if is_any_stale {
        for (step, _) in steps.zip(seen).filter(|(_, value)| !is_stale(**value)) {
            set_present(presence, step);
        }
    } else {
        set_all_present(presence, steps);
    }
}

/// Sets the presence of the first steps, except for values that are staleness markers.
#[inline]
fn set_present_unless_stale(values: &[f64], presence: &mut [u64]) {
    for (values, word) in values.chunks(64).zip(presence) {
        let bits =
            values.iter().rev().fold(0, |bits, value| bits << 1 | u64::from(!is_stale(*value)));
        *word |= bits;
    }
}

impl TileReader for InstantReader<'_> {
    fn next_tile(&mut self, step_count: usize, tile: &mut Tile) -> Result<(), QueryError> {
        tile.reset(self.rows.len(), step_count);
        let lookup = &self.selector.lookup;
        if lookup.seen.is_some_and(|seen| lookup.times.are_outside(&seen, self.step, step_count)) {
            self.step += step_count;
            return Ok(());
        }
        let times = LookupSteps {
            first_ms: lookup.times.time(self.step),
            step_ms: lookup.times.step_ms,
            lookback_ms: lookup.reach.back_ms,
        };
        let until_ms = lookup.times.time(self.step + step_count - 1);
        let mut reading = Reading {
            set: &*self.selector.set,
            step_ranges: self.step_ranges,
            batch: &mut self.batch,
            decoded: Checkpoint::of_samples(&self.selector.ctx.budget),
            until_ms,
            is_last: self.step + step_count >= self.selector.steps.count,
        };
        for index in 0..self.rows.len() {
            for (ahead, row) in self.rows[index + 1..].iter().take(ROWS_AHEAD).enumerate() {
                row.cursor.prefetch(reading.set, row.series, ahead);
            }
            let row = &mut self.rows[index];
            if row.is_mixed {
                let value = self.selector.mixed_value();
                row.fill_mixed(times, &mut reading, tile, index, value)?;
                continue;
            }
            let (values, presence) = tile.row_mut(index);
            match lookup.value {
                LookupValue::Timestamp | LookupValue::FloatTimestamp => {
                    row.fill(times, 0, &mut reading, values, presence, |time_ms, _| {
                        time_ms as f64 / 1000.0
                    })?;
                }
                LookupValue::Sample | LookupValue::Smoothed | LookupValue::StartTimestamp => {
                    row.fill_values(times, &mut reading, values, presence)?;
                }
            }
        }
        self.step += step_count;
        Ok(reading.decoded.settle()?)
    }
}

/// Reading state that the rows of a tile share.
struct Reading<'s, 'b> {
    set: &'s dyn SeriesSet,
    step_ranges: Option<StepRanges>,
    batch: &'b mut SampleBatch,
    decoded: Checkpoint,
    /// Last lookup time of the tile.
    until_ms: i64,
    /// True if no tile follows.
    is_last: bool,
}

impl<'s> Reading<'s, '_> {
    fn wanted(&self, series: u32, step_ranges: Option<StepRanges>) -> WantedSeries<'s> {
        WantedSeries { set: self.set, series, step_ranges }
    }
}

impl<'s> Row<'s> {
    /// Reads samples of the series into the empty batch; returns whether there are more.
    #[inline]
    fn next_batch(&mut self, reading: &mut Reading<'s, '_>) -> Result<Advance, QueryError> {
        reading.batch.clear();
        let step_ranges = reading.step_ranges.filter(|_| !self.is_mixed);
        let wanted = reading.wanted(self.series, step_ranges);
        let advance = self.cursor.next_batch(wanted, reading.until_ms, reading.batch)?;
        if reading.is_last && advance == Advance::Reached {
            self.cursor.close();
        }
        reading.decoded.work(reading.batch.sample_count())?;
        Ok(advance)
    }

    /// Writes a tile's row like [`Row::fill`], for a series that may have both floats and
    /// histograms.
    fn fill_mixed(
        &mut self,
        times: LookupSteps,
        reading: &mut Reading<'s, '_>,
        tile: &mut Tile,
        row: usize,
        value: Option<LookupValue>,
    ) -> Result<(), QueryError> {
        let step_count = tile.steps();
        let mut step = 0;
        loop {
            let is_last = self.next_batch(reading)? != Advance::Full;
            let batch = &*reading.batch;
            let (mut float, mut histogram) = (0, 0);
            while step < step_count {
                let time_ms = times.time(step);
                self.look_to(time_ms, batch, &mut float, &mut histogram);
                let is_exhausted = float == batch.len && histogram == batch.histograms.len();
                if is_exhausted && !is_last {
                    break;
                }
                if self.newest_ms > time_ms.saturating_sub(times.lookback_ms) {
                    self.put(row, step, tile, value);
                }
                step += 1;
            }
            if is_last {
                return Ok(());
            }
        }
    }

    /// Advances to the newest sample up to `time_ms`, moving the indices `float` and `histogram`.
    fn look_to(
        &mut self,
        time_ms: i64,
        batch: &SampleBatch,
        float: &mut usize,
        histogram: &mut usize,
    ) {
        let (float_times, floats) = batch.samples();
        let (float_before, histogram_before) = (*float, *histogram);
        while *float < float_times.len() && float_times[*float] <= time_ms {
            *float += 1;
        }
        while let Some(sample) = batch.histograms.get(*histogram)
            && sample.timestamp_ms <= time_ms
        {
            *histogram += 1;
        }
        if *float > float_before {
            let at = *float - 1;
            (self.newest_ms, self.newest) = (float_times[at], floats[at]);
            self.newest_start_ms = batch.start(at);
            self.newest_histogram = None;
        }
        if *histogram > histogram_before {
            let sample = &batch.histograms[*histogram - 1];
            if sample.timestamp_ms >= self.newest_ms {
                (self.newest_ms, self.newest_start_ms) = (sample.timestamp_ms, sample.start_ms);
                self.newest_histogram = Some(Arc::clone(&sample.histogram));
            }
        }
    }

    /// Writes the result for the newest sample, unless it is a staleness marker.
    fn put(&self, row: usize, step: usize, tile: &mut Tile, value: Option<LookupValue>) {
        let Some(value) = value else { return };
        let is_end = match &self.newest_histogram {
            Some(histogram) => histogram.is_stale(),
            None => is_stale(self.newest),
        };
        if is_end {
            return;
        }
        let value = match (value, &self.newest_histogram) {
            (
                LookupValue::Sample | LookupValue::Smoothed | LookupValue::FloatTimestamp,
                Some(histogram),
            ) => {
                tile.set_histogram(row, step, Arc::clone(histogram));
                return;
            }
            (LookupValue::Sample | LookupValue::Smoothed, None) => self.newest,
            (LookupValue::Timestamp | LookupValue::FloatTimestamp, _) => {
                self.newest_ms as f64 / 1000.0
            }
            (LookupValue::StartTimestamp, _) => self.newest_start_ms as f64 / 1000.0,
        };
        let (values, presence) = tile.row_mut(row);
        values[step] = value;
        set_present(presence, step);
    }

    /// Writes the values of one tile's row: of the first steps without a batch, as far as the
    /// cursor can.
    #[inline]
    fn fill_values(
        &mut self,
        times: LookupSteps,
        reading: &mut Reading<'s, '_>,
        values: &mut [f64],
        presence: &mut [u64],
    ) -> Result<(), QueryError> {
        let wanted = reading.wanted(self.series, reading.step_ranges);
        let FilledSteps { steps, samples, newest_ms, newest, are_all_seen } =
            self.cursor.fill_steps(wanted, times, values)?;
        reading.decoded.work(samples)?;
        if steps > 0 {
            if are_all_seen {
                set_all_present(presence, 0..steps);
            } else {
                set_present_unless_stale(&values[..steps], presence);
            }
            (self.newest_ms, self.newest) = (newest_ms, newest);
        }
        if steps < values.len() {
            return self.fill(times, steps, reading, values, presence, |_, value| value);
        }
        if reading.is_last {
            self.cursor.close();
        }
        Ok(())
    }

    /// Writes the values of one tile's row from a step on.
    #[inline]
    fn fill(
        &mut self,
        times: LookupSteps,
        first_step: usize,
        reading: &mut Reading<'s, '_>,
        values: &mut [f64],
        presence: &mut [u64],
        yields: impl Fn(i64, f64) -> f64,
    ) -> Result<(), QueryError> {
        let mut step = first_step;
        loop {
            let is_last = self.next_batch(reading)? != Advance::Full;
            let batch = &*reading.batch;
            let (sample_times, samples) = batch.samples();
            let (mut newest_ms, mut newest) = (self.newest_ms, self.newest);
            let mut at = 0;
            if let Some(even) = Even::of(batch, times, step..values.len(), is_last) {
                let out = step..step + even.count;
                even.fill(times.time(step), batch, &mut values[out.clone()], &yields);
                set_seen(&batch.values, even, out.clone(), presence);
                step = out.end;
                at = even.first + (even.count - 1) * even.stride + 1;
                // Even if the tile has no further step: the next tile may have no newer sample.
                (newest_ms, newest) = (sample_times[at - 1], samples[at - 1]);
            }
            // The presence of 64 steps is collected in a register: changing single bits in memory
            // would wait for the previous change.
            let mut word = 0;
            while step < values.len() {
                let time_ms = times.time(step);
                while at < sample_times.len() && sample_times[at] <= time_ms {
                    at += 1;
                }
                if at > 0 {
                    newest_ms = sample_times[at - 1];
                    newest = samples[at - 1];
                }
                if at == sample_times.len() && !is_last {
                    // The newest sample for this step may be in the next batch.
                    break;
                }
                let is_seen =
                    newest_ms > time_ms.saturating_sub(times.lookback_ms) && !is_stale(newest);
                values[step] = yields(newest_ms, newest);
                word |= u64::from(is_seen) << (step % 64);
                if step % 64 == 63 {
                    presence[step / 64] |= word;
                    word = 0;
                }
                step += 1;
            }
            if word != 0 {
                presence[step / 64] |= word;
            }
            (self.newest_ms, self.newest) = (newest_ms, newest);
            if is_last {
                return Ok(());
            }
        }
    }
}
