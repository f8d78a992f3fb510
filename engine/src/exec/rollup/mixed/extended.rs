//! `anchored` and `smoothed` ranges of histograms.

use std::sync::Arc;

use model::{Histogram, ResetHint};

use crate::exec::rollup::mixed::counter::add;
use crate::exec::rollup::mixed::history::HistoryEntry;
use crate::exec::rollup::mixed::range_annotation::{RangeAnnotation, RangeAnnotations};
use crate::exec::rollup::mixed::{Answer, MixedFrame, MixedKernel};

/// `rate`, `increase`, `delta` of an extended range.
///
/// Source: `extendedHistogramRate` of Prometheus.
#[derive(Debug)]
pub(in crate::exec::rollup) struct Rate {
    pub(in crate::exec::rollup) is_counter: bool,
    pub(in crate::exec::rollup) is_rate: bool,
    pub(in crate::exec::rollup) is_smoothed: bool,
    pub(in crate::exec::rollup) range_seconds: f64,
}

impl MixedKernel for Rate {
    fn follows_floats(&self) -> bool {
        true
    }

    fn looks_at_all(&self) -> bool {
        true
    }

    fn answer(&mut self, frame: &MixedFrame<'_>, remarks: &mut RangeAnnotations) -> Answer {
        match frame.kinds() {
            (_, false) => Answer::AsFloats,
            (true, true) => {
                remarks.add(RangeAnnotation::MixedFloats);
                Answer::Nothing
            }
            (false, true) => match self.rise(frame, remarks) {
                Some(rise) => Answer::Histogram(Arc::new(rise)),
                None => Answer::Nothing,
            },
        }
    }
}

impl Rate {
    fn rise(&self, frame: &MixedFrame<'_>, remarks: &mut RangeAnnotations) -> Option<Histogram> {
        let entries = frame.entries();
        let newest = entries.len() - 1;
        let first_after = entries[..newest].partition_point(|e| e.at.time_ms <= frame.start_ms);
        let first = first_after.saturating_sub(1);
        let last = match self.is_smoothed {
            true => entries[..newest].partition_point(|e| e.at.time_ms < frame.end_ms),
            false => newest,
        };
        let is_beyond = self.is_smoothed && entries[first].at.time_ms > frame.end_ms;
        if entries[last].at.time_ms <= frame.start_ms || is_beyond {
            return None;
        }
        if !self.check(&entries[first..=last], remarks) {
            return None;
        }
        let between = |pair: [usize; 2], time_ms, remarks: &mut RangeAnnotations| {
            between(pair.map(|at| &entries[at]), time_ms, self.is_counter, remarks)
        };
        let is_between = self.is_smoothed && entries[first].at.time_ms < frame.start_ms;
        let left = match is_between {
            true => between([first, first + 1], frame.start_ms, remarks)?,
            false => (*entries[first].histogram).clone(),
        };
        let right = match self.is_smoothed && last > 0 && entries[last].at.time_ms > frame.end_ms {
            true => between([last - 1, last], frame.end_ms, remarks)?,
            false => (*entries[last].histogram).clone(),
        };
        let is_gauge = |histogram: &Histogram| histogram.reset_hint == ResetHint::Gauge;
        let are_gauges = is_gauge(&left) && is_gauge(&right);
        remarks.add_if(!self.is_counter && !are_gauges, RangeAnnotation::NotGauge);
        let mut rise = right.clone();
        sub(&mut rise, &left, remarks)?;
        if self.is_counter {
            let within = Within { entries, first, last, is_between };
            if let Some(lost) = within.lost(&left, &right, remarks)? {
                add(&mut rise, &lost, remarks)?;
            }
        }
        if self.is_rate {
            rise.div(self.range_seconds);
        }
        rise.reset_hint = ResetHint::Gauge;
        rise.compact(0);
        Some(rise)
    }

    /// Returns whether the histograms can be combined.
    ///
    /// Source: `validateHistogramRange` of Prometheus.
    fn check(&self, entries: &[HistoryEntry], remarks: &mut RangeAnnotations) -> bool {
        let is_custom = entries[0].histogram.has_custom_buckets();
        for entry in entries {
            if entry.histogram.has_custom_buckets() != is_custom {
                remarks.add(RangeAnnotation::MixedSchemas);
                return false;
            }
            remarks.add_if(self.is_counter && entry.is_gauge(), RangeAnnotation::NotCounter);
        }
        true
    }
}

/// Histograms of an extended range; `first` and `last` determine the left and the right boundary.
struct Within<'a> {
    entries: &'a [HistoryEntry],
    first: usize,
    last: usize,
    /// True if the left boundary is between two histograms.
    is_between: bool,
}

impl Within<'_> {
    /// Returns the sum of the histograms before all resets between the boundaries. The outer `None`
    /// means that histograms cannot be combined.
    ///
    /// A reset at the left boundary is already part of it. The last histogram is excluded, because
    /// the right boundary is derived from it and has its hint.
    ///
    /// Source: `correctForCounterResetsHistogram` of Prometheus.
    fn lost(
        &self,
        left: &Histogram,
        right: &Histogram,
        remarks: &mut RangeAnnotations,
    ) -> Option<Option<Histogram>> {
        let Within { entries, first, last, is_between } = *self;
        let skips_one = is_between && entries[first + 1].is_reset;
        let from = first + 1 + usize::from(skips_one);
        if from > last {
            return Some(None);
        }
        let mut before: &Histogram = if skips_one { &entries[first + 1].histogram } else { left };
        let mut lost: Option<Histogram> = None;
        let inner = entries[from..last].iter().map(|entry| &*entry.histogram);
        for (index, histogram) in inner.chain([right]).enumerate() {
            let at = from + index;
            // The relation of an entry to the previous one holds only between these two.
            let is_reset = match at < last && (index > 0 || skips_one) {
                true => entries[at].is_reset,
                false => histogram.detect_reset(before),
            };
            if is_reset {
                match &mut lost {
                    None => lost = Some(before.clone()),
                    Some(lost) => add(lost, before, remarks)?,
                }
            }
            before = histogram;
        }
        Some(lost)
    }
}

/// Interpolates between two histograms; if a counter was reset in between, interpolates from zero.
/// `None` if the histograms cannot be combined.
///
/// Source: `interpolateHistograms` of Prometheus.
fn between(
    [before, after]: [&HistoryEntry; 2],
    time_ms: i64,
    is_counter: bool,
    remarks: &mut RangeAnnotations,
) -> Option<Histogram> {
    if time_ms == before.at.time_ms {
        return Some((*before.histogram).clone());
    }
    let mut value = (*after.histogram).clone();
    if time_ms == after.at.time_ms {
        return Some(value);
    }
    let fraction =
        (time_ms - before.at.time_ms) as f64 / (after.at.time_ms - before.at.time_ms) as f64;
    if is_counter && after.histogram.detect_reset(&before.histogram) {
        value.mul(fraction);
        return Some(value);
    }
    sub(&mut value, &before.histogram, remarks)?;
    value.mul(fraction);
    add(&mut value, &before.histogram, remarks)?;
    Some(value)
}

fn sub(value: &mut Histogram, other: &Histogram, remarks: &mut RangeAnnotations) -> Option<()> {
    match value.sub(other) {
        Ok(combined) => {
            remarks.add_if(combined.bounds_reconciled, RangeAnnotation::ReconciledSub);
            Some(())
        }
        Err(_) => {
            remarks.add(RangeAnnotation::MixedSchemas);
            None
        }
    }
}

/// `smoothed` instant selector: interpolates between the histograms before and after each step.
///
/// Source: `smoothSeries` of Prometheus.
#[derive(Debug)]
pub(in crate::exec::rollup) struct SmoothedLookup;

impl MixedKernel for SmoothedLookup {
    fn follows_floats(&self) -> bool {
        true
    }

    fn answer(&mut self, frame: &MixedFrame<'_>, remarks: &mut RangeAnnotations) -> Answer {
        match frame.kinds() {
            (_, false) => return Answer::AsFloats,
            (true, true) => {
                remarks.add(RangeAnnotation::MixedFloats);
                return Answer::Nothing;
            }
            (false, true) => {}
        }
        let entries = frame.entries();
        let at = entries.partition_point(|entry| entry.at.time_ms < frame.end_ms);
        let next = entries.get(at);
        if let Some(next) = next
            && next.at.time_ms == frame.end_ms
        {
            return Answer::Histogram(Arc::clone(&next.histogram));
        }
        let Some(before) = at.checked_sub(1).map(|at| &entries[at]) else {
            return Answer::Nothing;
        };
        let Some(next) = next else {
            // The hint compares `before` with its previous histogram; here it has no meaning.
            let reset_hint = ResetHint::Unknown;
            let histogram = Histogram { reset_hint, ..(*before.histogram).clone() };
            return Answer::Histogram(Arc::new(histogram));
        };
        if before.histogram.has_custom_buckets() != next.histogram.has_custom_buckets() {
            remarks.add(RangeAnnotation::MixedSchemas);
            return Answer::Nothing;
        }
        let is_counter = !before.is_gauge() || !next.is_gauge();
        match between([before, next], frame.end_ms, is_counter, remarks) {
            Some(histogram) => Answer::Histogram(Arc::new(histogram)),
            None => Answer::Nothing,
        }
    }
}
