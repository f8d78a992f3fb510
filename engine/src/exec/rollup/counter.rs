//! Functions of counters: what they rose by, how often they were reset or changed.

use std::collections::VecDeque;
use std::ops::Range;

use crate::exec::rollup::buffer::{Frame, Kernel, Samples};

/// Up to so many resets in a range are added one by one, in Prometheus' order.
const RESETS_ADDED_MAX: usize = 32;

/// `rate`, `increase`, `delta`.
///
/// Source: `extrapolatedRate` of Prometheus.
#[derive(Debug, Default)]
pub(super) struct Extrapolated {
    /// Whether a fall means that the counter began anew.
    pub(super) is_counter: bool,
    /// Whether the answer is per second.
    pub(super) is_rate: bool,
    /// The length of the ranges.
    pub(super) range_seconds: f64,
    pub(super) resets: Resets,
}

impl Kernel for Extrapolated {
    #[inline]
    fn enter(&mut self, samples: Samples<'_>, lo: usize, at: usize) {
        if self.is_counter {
            self.resets.enter(samples, lo, at);
        }
    }

    #[inline]
    fn value(&mut self, frame: &Frame<'_>) -> Option<f64> {
        let last = frame.hi - 1;
        if last == frame.lo {
            return None;
        }
        let (times, values) = (frame.samples.times, frame.samples.values);
        let first_value = values[frame.lo];
        let mut rise = values[last] - first_value;
        if !self.resets.is_empty() {
            self.resets.forget_up_to(frame.samples.number(frame.lo));
            rise = self.resets.add_to(rise);
        }
        let first_ms = times[frame.lo];
        let last_ms = times[last];
        let mut to_start = (first_ms - frame.start_ms) as f64 / 1000.0;
        let mut to_end = (frame.end_ms - last_ms) as f64 / 1000.0;
        let sampled = (last_ms - first_ms) as f64 / 1000.0;
        let average = sampled / (last - frame.lo) as f64;
        let threshold = average * 1.1;
        if to_start >= threshold {
            to_start = average / 2.0;
        }
        // A counter is not extrapolated to below zero. Where zero is clearly further away than
        // the start, the division is spared.
        let may_reach_zero = || sampled * first_value <= to_start * rise * 1.001;
        if self.is_counter && rise > 0.0 && first_value >= 0.0 && may_reach_zero() {
            let to_zero = sampled * (first_value / rise);
            if to_zero < to_start {
                to_start = to_zero;
            }
        }
        if to_end >= threshold {
            to_end = average / 2.0;
        }
        let mut factor = (sampled + to_start + to_end) / sampled;
        if self.is_rate {
            factor /= self.range_seconds;
        }
        Some(rise * factor)
    }

    fn bytes(&self) -> u64 {
        self.resets.bytes()
    }
}

/// The resets of a counter inside the range, with sums that need no walk over all of them.
#[derive(Debug, Default)]
pub(super) struct Resets {
    entries: VecDeque<Reset>,
    /// The sum of all finite values since the deque was last empty or rebuilt.
    total: Wide,
    /// How many entries are infinite; they are left out of the sums.
    infinite_count: usize,
}

#[derive(Debug, Clone, Copy)]
struct Reset {
    /// The number of the sample after the reset.
    number: u64,
    /// The value before it.
    value: f64,
    /// The sum of the finite values of the entries before.
    sum_before: Wide,
}

/// A number in twice the precision.
#[derive(Debug, Clone, Copy, Default)]
struct Wide {
    high: f64,
    low: f64,
}

impl Wide {
    fn plus(self, value: f64) -> Wide {
        let sum = self.high + value;
        let part = sum - self.high;
        let lost = (self.high - (sum - part)) + (value - part);
        Wide::normal(sum, self.low + lost)
    }

    fn minus(self, other: Wide) -> Wide {
        let difference = self.plus(-other.high);
        Wide::normal(difference.high, difference.low - other.low)
    }

    fn normal(high: f64, low: f64) -> Wide {
        let sum = high + low;
        Wide { high: sum, low: low - (sum - high) }
    }
}

impl Resets {
    #[inline]
    fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Takes a sample that has come into a range, which begins at `lo`.
    #[inline]
    pub(super) fn enter(&mut self, samples: Samples<'_>, lo: usize, at: usize) {
        if at > lo && samples.values[at] < samples.values[at - 1] {
            self.push(samples.number(at), samples.values[at - 1]);
        }
    }

    /// Takes the number of the sample after a reset, and the value before it.
    pub(super) fn push(&mut self, number: u64, value: f64) {
        if self.entries.is_empty() {
            self.total = Wide::default();
        }
        self.entries.push_back(Reset { number, value, sum_before: self.total });
        if value.is_finite() {
            self.total = self.total.plus(value);
        } else {
            self.infinite_count += 1;
        }
    }

    /// Forgets resets of which the sample before, or both, lie before a sample.
    pub(super) fn forget_up_to(&mut self, number: u64) {
        while let Some(front) = self.entries.front()
            && front.number <= number
        {
            self.infinite_count -= usize::from(!front.value.is_finite());
            self.entries.pop_front();
        }
    }

    /// A rise with the values before all resets added to it.
    pub(super) fn add_to(&mut self, rise: f64) -> f64 {
        self.add_some(rise, 0..self.entries.len())
    }

    /// A rise with the values before those resets added to it of which the sample after lies
    /// between two others.
    pub(super) fn add_between(&mut self, rise: f64, after: u64, before: u64) -> f64 {
        let from = self.entries.partition_point(|reset| reset.number <= after);
        let to = self.entries.partition_point(|reset| reset.number < before);
        self.add_some(rise, from..to.max(from))
    }

    #[inline(never)]
    fn add_some(&mut self, rise: f64, some: Range<usize>) -> f64 {
        let in_order = |entries: &VecDeque<Reset>| {
            entries.range(some.clone()).fold(rise, |sum, reset| sum + reset.value)
        };
        if some.len() <= RESETS_ADDED_MAX || self.infinite_count > 0 {
            return in_order(&self.entries);
        }
        let total = self.entries.get(some.end).map_or(self.total, |after| after.sum_before);
        let correction = total.minus(self.entries[some.start].sum_before);
        // What was lost below the total's precision must not matter for the difference.
        if !correction.high.is_finite()
            || correction.high.abs() * (1u64 << 40) as f64 <= total.high.abs()
        {
            self.rebuild();
            return in_order(&self.entries);
        }
        (rise + correction.high) + correction.low
    }

    /// How many bytes are held.
    pub(super) fn bytes(&self) -> u64 {
        (self.entries.capacity() * size_of::<Reset>()) as u64
    }

    fn rebuild(&mut self) {
        self.total = Wide::default();
        for entry in &mut self.entries {
            entry.sum_before = self.total;
            if entry.value.is_finite() {
                self.total = self.total.plus(entry.value);
            }
        }
    }
}

/// `irate`, `idelta`: from the last two samples.
///
/// Source: `instantValue` of Prometheus.
#[derive(Debug)]
pub(super) struct LastTwo {
    /// Whether the answer is per second and a fall means a reset.
    pub(super) is_rate: bool,
}

impl Kernel for LastTwo {
    #[inline]
    fn value(&mut self, frame: &Frame<'_>) -> Option<f64> {
        let ([.., before_ms, last_ms], [.., before, last]) = (frame.times(), frame.values()) else {
            return None;
        };
        let is_reset = self.is_rate && last < before;
        let rise = if is_reset { *last } else { last - before };
        let seconds = (last_ms - before_ms) as f64 / 1000.0;
        Some(if self.is_rate { rise / seconds } else { rise })
    }
}

/// `resets`, `changes`: how many neighbours in the range differ.
#[derive(Debug)]
pub(super) struct Neighbours {
    /// Whether only falls count.
    pub(super) only_falls: bool,
    count: u64,
}

impl Neighbours {
    pub(super) fn new(only_falls: bool) -> Neighbours {
        Neighbours { only_falls, count: 0 }
    }

    #[inline]
    pub(super) fn counts(&self, before: f64, after: f64) -> bool {
        if self.only_falls {
            after < before
        } else {
            after != before && !(after.is_nan() && before.is_nan())
        }
    }
}

impl Kernel for Neighbours {
    #[inline]
    fn enter(&mut self, samples: Samples<'_>, lo: usize, at: usize) {
        if at > lo {
            self.count += u64::from(self.counts(samples.values[at - 1], samples.values[at]));
        }
    }

    #[inline]
    fn leave(&mut self, samples: Samples<'_>, at: usize, hi: usize) {
        if at + 1 < hi {
            self.count -= u64::from(self.counts(samples.values[at], samples.values[at + 1]));
        }
    }

    #[inline]
    fn value(&mut self, _frame: &Frame<'_>) -> Option<f64> {
        Some(self.count as f64)
    }
}
