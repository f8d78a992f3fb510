//! `rate`, `increase`, `delta` of histograms, and of floats with start timestamps.

use std::sync::Arc;

use model::{Histogram, ResetHint, TimeRange};

use crate::exec::rollup::counter::Resets;
use crate::exec::rollup::mixed::history::HistoryEntry;
use crate::exec::rollup::mixed::range_annotation::{RangeAnnotation, RangeAnnotations};
use crate::exec::rollup::mixed::starts::{self, Started};
use crate::exec::rollup::mixed::{Answer, Entered, MixedFrame, MixedKernel};

/// Source: `extrapolatedRate` and `histogramRate` of Prometheus.
#[derive(Debug)]
pub(in crate::exec::rollup) struct Rate {
    /// Whether a decrease is a counter reset.
    is_counter: bool,
    /// Whether the result is per second.
    is_rate: bool,
    range_seconds: f64,
    /// Resets of the floats.
    resets: Resets,
    /// Number of the last float that has a start timestamp before the previous float.
    last_overlap: Option<u64>,
}

impl Rate {
    pub(in crate::exec::rollup) fn new(
        is_counter: bool,
        is_rate: bool,
        range_seconds: f64,
    ) -> Rate {
        let resets = Resets::default();
        Rate { is_counter, is_rate, range_seconds, resets, last_overlap: None }
    }
}

impl MixedKernel for Rate {
    fn enter(&mut self, frame: &MixedFrame<'_>, sample: Entered, _number: u64) {
        let Entered::Float(at) = sample else { return };
        if !self.is_counter || at <= frame.float_lo {
            return;
        }
        let [before, after] = [at - 1, at].map(|at| frame.started(at));
        let values = frame.samples.values;
        if starts::overlaps(before, after) {
            self.last_overlap = Some(frame.samples.number(at));
        }
        if values[at] < values[at - 1] || starts::is_reset(before, after) {
            let time_ms = frame.samples.times[at - 1];
            self.resets.push(frame.samples.number(at), time_ms, values[at - 1]);
        }
    }

    fn answer(&mut self, frame: &MixedFrame<'_>, remarks: &mut RangeAnnotations) -> Answer {
        let answer = match frame.kinds() {
            (true, true) => {
                remarks.add(RangeAnnotation::MixedFloats);
                None
            }
            (true, false) => self.floats(frame, remarks).map(Answer::Float),
            (false, _) => self.histograms(frame, remarks).map(Answer::Histogram),
        };
        answer.unwrap_or(Answer::Nothing)
    }

    fn bytes(&self) -> u64 {
        self.resets.bytes()
    }
}

/// Timestamps of a range's samples.
struct Sampled {
    first: Started,
    last_ms: i64,
    /// Number of samples after the first.
    gaps: usize,
}

impl Rate {
    fn floats(&mut self, frame: &MixedFrame<'_>, remarks: &mut RangeAnnotations) -> Option<f64> {
        let (times, values) = (frame.times(), frame.values());
        let last = times.len() - 1;
        let mut rise = values[last] - values[0];
        let first_number = frame.samples.number(frame.float_lo);
        self.resets.forget_up_to(first_number);
        rise = self.resets.add_to(rise, TimeRange::new(frame.start_ms, frame.end_ms));
        let overlaps = self.last_overlap.is_some_and(|number| number > first_number);
        remarks.add_if(overlaps, RangeAnnotation::Overlap);
        let sampled =
            Sampled { first: frame.started(frame.float_lo), last_ms: times[last], gaps: last };
        let is_started = self.is_started(frame, &sampled);
        if is_started {
            rise += values[0];
        }
        let share = (rise > 0.0 && values[0] >= 0.0).then(|| values[0] / rise);
        Some(rise * self.factor(frame, &sampled, is_started, share)?)
    }

    fn histograms(
        &mut self,
        frame: &MixedFrame<'_>,
        remarks: &mut RangeAnnotations,
    ) -> Option<Arc<Histogram>> {
        let entries = frame.entries();
        let last = entries.len() - 1;
        let first = &entries[0].histogram;
        let mut rise = match last {
            0 => None,
            _ => Some(self.rise(frame, remarks)?),
        };
        let sampled =
            Sampled { first: entries[0].at, last_ms: entries[last].at.time_ms, gaps: last };
        let is_started = self.is_started(frame, &sampled);
        let share = rise
            .as_ref()
            .filter(|rise| rise.count > 0.0 && first.count >= 0.0)
            .map(|rise| first.count / rise.count);
        let factor = self.factor(frame, &sampled, is_started, share)?;
        if is_started {
            match &mut rise {
                None => rise = Some((**first).clone()),
                Some(rise) => add(rise, first, remarks)?,
            }
        }
        let mut rise = rise?;
        rise.mul(factor);
        Some(Arc::new(rise))
    }

    /// Returns whether the counter is known to have started at zero between the start of the range
    /// and its first sample.
    fn is_started(&self, frame: &MixedFrame<'_>, sampled: &Sampled) -> bool {
        let Started { start_ms, time_ms } = sampled.first;
        self.is_counter && start_ms != 0 && start_ms > frame.start_ms && start_ms < time_ms
    }

    /// Returns the factor that extrapolates an increase to the range; `None` if there are too few
    /// samples. `share` is the first value as a fraction of the increase.
    fn factor(
        &self,
        frame: &MixedFrame<'_>,
        sampled: &Sampled,
        is_started: bool,
        share: Option<f64>,
    ) -> Option<f64> {
        let seconds = |from_ms: i64, to_ms: i64| (to_ms - from_ms) as f64 / 1000.0;
        let Sampled { first, last_ms, gaps } = *sampled;
        let mut sampled = seconds(first.time_ms, last_ms);
        let average = if gaps > 0 { sampled / gaps as f64 } else { 0.0 };
        let threshold = average * 1.1;
        let mut to_start = seconds(frame.start_ms, first.time_ms);
        let mut to_end = seconds(last_ms, frame.end_ms);
        if is_started {
            to_start = 0.0;
            sampled = seconds(first.start_ms, last_ms);
        } else if gaps == 0 {
            return None;
        } else {
            if to_start >= threshold {
                to_start = average / 2.0;
            }
            if let Some(share) = share.filter(|_| self.is_counter) {
                let to_zero = sampled * share;
                if to_zero < to_start {
                    to_start = to_zero;
                }
            }
        }
        if to_end >= threshold {
            to_end = average / 2.0;
        }
        let mut factor = if sampled == 0.0 { 1.0 } else { (sampled + to_start + to_end) / sampled };
        if self.is_rate {
            factor /= self.range_seconds;
        }
        Some(factor)
    }

    /// Returns the increase of at least two histograms.
    ///
    /// Reads the histograms in between only if there may be a reset or a change of schema.
    fn rise(&self, frame: &MixedFrame<'_>, remarks: &mut RangeAnnotations) -> Option<Histogram> {
        let entries = frame.entries();
        let (first, last) = (&entries[0], &entries[entries.len() - 1]);
        let is_steady = last.steady_from <= frame.entries_base + frame.entry_lo as u64;
        let mut said = RangeAnnotations::default();
        said.add_if(
            self.is_counter && (first.is_gauge() || last.is_gauge()),
            RangeAnnotation::NotCounter,
        );
        let nothing = (self.is_counter && entries[1].is_reset).then(|| before_all(&entries[1]));
        let base = nothing.as_ref().unwrap_or(&first.histogram);
        let is_custom = base.has_custom_buckets();
        if last.histogram.has_custom_buckets() != is_custom {
            said.add(RangeAnnotation::MixedSchemas);
            remarks.merge(said);
            return None;
        }
        let mut schema = last.histogram.schema.min(base.schema);
        if self.is_counter && !is_steady {
            for entry in &entries[1..entries.len() - 1] {
                said.add_if(entry.is_gauge(), RangeAnnotation::NotCounter);
                schema = schema.min(entry.histogram.schema);
                if entry.histogram.has_custom_buckets() != is_custom {
                    remarks.add(RangeAnnotation::MixedSchemas);
                    return None;
                }
            }
        }
        let mut rise = (*last.histogram).clone();
        if schema < rise.schema && rise.reduce_resolution(schema).is_err() {
            return None;
        }
        let Ok(combined) = rise.sub(base) else {
            remarks.add(RangeAnnotation::MixedSchemas);
            return None;
        };
        said.add_if(combined.bounds_reconciled, RangeAnnotation::ReconciledSub);
        if !self.is_counter {
            said.add_if(!first.is_gauge() || !last.is_gauge(), RangeAnnotation::NotGauge);
        } else if !is_steady && !add_resets(&mut rise, base, entries, &mut said) {
            remarks.add(RangeAnnotation::MixedSchemas);
            return None;
        }
        remarks.merge(said);
        rise.reset_hint = ResetHint::Gauge;
        rise.compact(0);
        Some(rise)
    }
}

/// Returns an empty histogram with the bucket layout of `entry`.
fn before_all(entry: &HistoryEntry) -> Histogram {
    let Histogram { schema, custom_bounds, .. } = &*entry.histogram;
    Histogram { schema: *schema, custom_bounds: Arc::clone(custom_bounds), ..Histogram::default() }
}

/// Adds the histogram before each reset to `rise`, with `base` in place of the first histogram.
/// Returns false if a histogram cannot be added.
fn add_resets(
    rise: &mut Histogram,
    base: &Histogram,
    entries: &[HistoryEntry],
    said: &mut RangeAnnotations,
) -> bool {
    let mut before: &Histogram = base;
    for (index, pair) in entries.windows(2).enumerate() {
        let [earlier, entry] = pair else { continue };
        said.add_if(entry.overlaps, RangeAnnotation::Overlap);
        let is_reset = match index {
            0 if entry.is_reset => {
                starts::is_reset(earlier.at, entry.at) || entry.histogram.detect_reset(base)
            }
            _ => entry.is_reset,
        };
        if is_reset {
            match rise.add(before) {
                Ok(combined) => {
                    said.add_if(combined.bounds_reconciled, RangeAnnotation::ReconciledAdd);
                }
                Err(_) => return false,
            }
        }
        before = &entry.histogram;
    }
    true
}

/// Adds `other` to `sum`, and the resulting annotations to `remarks`; `None` if the histograms
/// cannot be combined.
pub(in crate::exec::rollup) fn add(
    sum: &mut Histogram,
    other: &Histogram,
    remarks: &mut RangeAnnotations,
) -> Option<()> {
    match sum.add(other) {
        Ok(combined) => {
            remarks.add_if(combined.bounds_reconciled, RangeAnnotation::ReconciledAdd);
            Some(())
        }
        Err(_) => {
            remarks.add(RangeAnnotation::MixedSchemas);
            None
        }
    }
}
