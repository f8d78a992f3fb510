//! `anchored` and `smoothed` ranges, which also use samples outside the range.
//!
//! Frames are larger than the range: they include the margins of the plan.

use std::collections::VecDeque;

use model::TimeRange;

use crate::exec::rollup::buffer::{Frame, Kernel, Samples};
use crate::exec::rollup::counter::{Neighbours, Resets};

/// `rate`, `increase`, `delta` of an extended range.
///
/// Source: `extendedRate` of Prometheus.
#[derive(Debug)]
pub(super) struct ExtendedRate {
    pub(super) is_counter: bool,
    pub(super) is_rate: bool,
    pub(super) is_smoothed: bool,
    /// Resets among all samples of the frame.
    pub(super) resets: Resets,
}

/// Samples of a frame that belong to the extended range, and the values at both boundaries.
pub(super) struct Extent {
    /// First sample in the range.
    pub(super) first: usize,
    /// Index after the last sample in the range.
    pub(super) end: usize,
    pub(super) left: f64,
    pub(super) right: f64,
}

/// Returns the samples of a frame that belong to the extended range; `None` if no sample is after
/// the start of the range.
pub(super) fn extent(
    times: &[i64],
    values: &[f64],
    TimeRange { start_ms, end_ms }: TimeRange,
    is_smoothed: bool,
    is_counter: bool,
) -> Option<Extent> {
    let newest = times.len().checked_sub(1)?;
    let mut first = times[..newest].partition_point(|t| *t <= start_ms).saturating_sub(1);
    let mut last = newest;
    if is_smoothed {
        last = times[..newest].partition_point(|t| *t < end_ms);
    }
    if times[last] <= start_ms {
        return None;
    }
    let between = |at: usize, time_ms: i64| {
        interpolate(&times[at..at + 2], &values[at..at + 2], time_ms, is_counter)
    };
    let left = if is_smoothed && times[first] < start_ms {
        between(first, start_ms)
    } else {
        values[first]
    };
    let right = if is_smoothed && last > 0 && times[last] > end_ms {
        between(last - 1, end_ms)
    } else {
        values[last]
    };
    if times[first] <= start_ms {
        first += 1;
    }
    let end = if times[last] >= end_ms { last } else { last + 1 };
    Some(Extent { first, end: end.max(first), left, right })
}

/// Returns the value at `time_ms` between two samples; if a counter decreased, interpolates from 0.
///
/// Source: `interpolate` of Prometheus.
fn interpolate(times: &[i64], values: &[f64], time_ms: i64, is_counter: bool) -> f64 {
    let low = if is_counter && values[1] < values[0] { 0.0 } else { values[0] };
    low + (values[1] - low) * (time_ms - times[0]) as f64 / (times[1] - times[0]) as f64
}

impl Kernel for ExtendedRate {
    #[inline]
    fn enter(&mut self, samples: Samples<'_>, lo: usize, at: usize) {
        if self.is_counter {
            self.resets.enter(samples, lo, at);
        }
    }

    fn value(&mut self, frame: &Frame<'_>) -> Option<f64> {
        let (times, values) = (frame.times(), frame.values());
        let range = TimeRange::new(frame.start_ms, frame.end_ms);
        if self.is_smoothed && times.first().is_some_and(|first| *first > frame.end_ms) {
            return None;
        }
        let extent = extent(times, values, range, self.is_smoothed, self.is_counter)?;
        let mut rise = extent.right - extent.left;
        if self.is_counter {
            rise += self.correction(frame, &extent);
        }
        if self.is_rate {
            rise /= (frame.end_ms - frame.start_ms) as f64 / 1000.0;
        }
        Some(rise)
    }

    fn bytes(&self) -> u64 {
        self.resets.bytes()
    }
}

impl ExtendedRate {
    /// Sums the value just before each reset between the boundaries.
    fn correction(&mut self, frame: &Frame<'_>, extent: &Extent) -> f64 {
        self.resets.forget_up_to(frame.samples.number(frame.lo));
        let lost = |before: f64, after: f64| if after < before { before } else { 0.0 };
        let inside = &frame.values()[extent.first..extent.end];
        let (Some(first), Some(last)) = (inside.first(), inside.last()) else {
            return lost(extent.left, extent.right);
        };
        let number = |at: usize| frame.samples.number(frame.lo + at);
        let correction = self.resets.add_between(
            lost(extent.left, *first),
            number(extent.first),
            number(extent.end),
            TimeRange::new(frame.start_ms, frame.end_ms),
        );
        correction + lost(*last, extent.right)
    }
}

/// `resets`, `changes` of an anchored range.
///
/// Source: `pickFirstSampleIndices` of Prometheus.
#[derive(Debug)]
pub(super) struct AnchoredNeighbours {
    neighbours: Neighbours,
    /// Numbers of the samples of the frame that differ from the previous one.
    counted: VecDeque<u64>,
}

impl AnchoredNeighbours {
    pub(super) fn new(only_falls: bool) -> AnchoredNeighbours {
        AnchoredNeighbours { neighbours: Neighbours::new(only_falls), counted: VecDeque::new() }
    }
}

impl Kernel for AnchoredNeighbours {
    #[inline]
    fn enter(&mut self, samples: Samples<'_>, lo: usize, at: usize) {
        if at > lo && self.neighbours.counts(samples.values[at - 1], samples.values[at]) {
            self.counted.push_back(samples.number(at));
        }
    }

    fn value(&mut self, frame: &Frame<'_>) -> Option<f64> {
        let within = frame.times().partition_point(|t| *t <= frame.start_ms);
        if within == frame.times().len() {
            return None;
        }
        let number = |at: usize| frame.samples.number(at);
        while self.counted.front().is_some_and(|counted| *counted <= number(frame.lo)) {
            self.counted.pop_front();
        }
        let first = number(frame.lo + within.saturating_sub(1));
        let before = self.counted.partition_point(|counted| *counted <= first);
        Some((self.counted.len() - before) as f64)
    }

    fn bytes(&self) -> u64 {
        (self.counted.capacity() * size_of::<u64>()) as u64
    }
}

/// `smoothed` instant selector: the value interpolated between the samples around each step.
///
/// Source: `smoothSeries` of Prometheus.
#[derive(Debug)]
pub(super) struct SmoothedLookup;

impl Kernel for SmoothedLookup {
    fn value(&mut self, frame: &Frame<'_>) -> Option<f64> {
        let (times, values) = (frame.times(), frame.values());
        let at = times.partition_point(|t| *t < frame.end_ms);
        if at < times.len() && times[at] == frame.end_ms {
            return Some(values[at]);
        }
        let before = at.checked_sub(1)?;
        if at == times.len() {
            return Some(values[before]);
        }
        Some(interpolate(&times[before..=at], &values[before..=at], frame.end_ms, false))
    }
}

/// Returns the samples that the result of an extended range selector contains.
///
/// Source: `extendFloats` of Prometheus.
pub(super) fn extended_samples(
    times: &[i64],
    values: &[f64],
    range: TimeRange,
    is_smoothed: bool,
) -> (Vec<i64>, Vec<f64>) {
    let Some(extent) = extent(times, values, range, is_smoothed, false) else {
        return (Vec::new(), Vec::new());
    };
    let inside = extent.first..extent.end;
    let mut shown_times = vec![range.start_ms];
    let mut shown_values = vec![extent.left];
    shown_times.extend_from_slice(&times[inside.clone()]);
    shown_values.extend_from_slice(&values[inside]);
    shown_times.push(range.end_ms);
    shown_values.push(extent.right);
    (shown_times, shown_values)
}
