//! Resets of counters, and functions of neighbouring samples.

use std::collections::VecDeque;
use std::ops::Range;

use model::TimeRange;

use crate::exec::numeric::compensated::Sum;
use crate::exec::rollup::buffer::{EvenRanges, Frame, Kernel, Samples};
use crate::exec::rollup::halves::{Both, Halves};

/// Maximum number of resets in a range to add one by one, in Prometheus' order.
const RESETS_ADDED_MAX: usize = 32;

/// Resets of a counter in the range, and sums of the values before them, updated incrementally.
#[derive(Debug, Default)]
pub(super) struct Resets {
    entries: VecDeque<Reset>,
    /// Number of dropped entries.
    base: u64,
    halves: Halves<Sum>,
}

#[derive(Debug, Clone, Copy)]
struct Reset {
    /// Number of the sample after the reset.
    number: u64,
    /// Timestamp of the sample before the reset; the reset leaves a range with this sample.
    time_ms: i64,
    /// Value before the reset.
    value: f64,
}

impl Resets {
    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Processes the sample at index `at` that enters a range with start index `lo`.
    #[inline]
    pub(super) fn enter(&mut self, samples: Samples<'_>, lo: usize, at: usize) {
        if at > lo && samples.values[at] < samples.values[at - 1] {
            self.push(samples.number(at), samples.times[at - 1], samples.values[at - 1]);
        }
    }

    /// Processes the samples that enter `ranges`. If many ranges would contain resets, returns
    /// false and only drops earlier resets.
    pub(super) fn enter_evenly(&mut self, ranges: &EvenRanges<'_>) -> bool {
        let EvenRanges { samples, first, stride, .. } = ranges;
        self.forget_up_to(samples.number(first.start));
        // Samples that entered earlier are already processed.
        let entered = ranges.entered.max(first.start + 1);
        let end = (first.end + ranges.moved()).max(entered);
        let pairs = samples.values[entered - 1..end].windows(2);
        if !pairs.clone().fold(false, |falls, pair| falls | (pair[1] < pair[0])) {
            return true;
        }
        // No range sees a decrease at the boundary of two adjacent ranges.
        let is_boundary =
            |at: usize| *stride == first.len() && (at - first.start).is_multiple_of(*stride);
        let falls = (entered..).zip(pairs).filter(|(_, pair)| pair[1] < pair[0]);
        let falls = falls.filter(|(at, _)| !is_boundary(*at));
        if self.entries.len() + falls.clone().count() > RESETS_ADDED_MAX {
            return false;
        }
        for (at, pair) in falls {
            self.push(samples.number(at), samples.times[at - 1], pair[0]);
        }
        true
    }

    /// Adds a reset: `number` is of the sample after it, `time_ms` and `value` are of the sample
    /// before it.
    pub(super) fn push(&mut self, number: u64, time_ms: i64, value: f64) {
        self.entries.push_back(Reset { number, time_ms, value });
    }

    /// Drops the resets up to the one just before sample `number`.
    pub(super) fn forget_up_to(&mut self, number: u64) {
        while self.entries.front().is_some_and(|front| front.number <= number) {
            self.entries.pop_front();
            self.base += 1;
        }
    }

    /// Returns the increase `rise` of a range plus the values before all its resets.
    pub(super) fn add_to(&mut self, rise: f64, range: TimeRange) -> f64 {
        self.add_some(rise, 0..self.entries.len(), range)
    }

    /// Returns `rise` plus the values before the resets between the samples `after` and `before`.
    pub(super) fn add_between(
        &mut self,
        rise: f64,
        after: u64,
        before: u64,
        range: TimeRange,
    ) -> f64 {
        self.add_some(rise, self.between(after, before), range)
    }

    /// Returns the indices of the resets for which the sample after the reset is between the
    /// numbers `after` and `before`, both exclusive.
    fn between(&self, after: u64, before: u64) -> Range<usize> {
        let from = self.entries.partition_point(|reset| reset.number <= after);
        let to = self.entries.partition_point(|reset| reset.number < before);
        from..to.max(from)
    }

    /// Returns the same indices as `between`, searching forward from the indices of an `earlier`
    /// range.
    #[inline]
    pub(super) fn later(&self, earlier: Range<usize>, after: u64, before: u64) -> Range<usize> {
        let Range { start: mut from, end: mut to } = earlier;
        while self.entries.get(from).is_some_and(|reset| reset.number <= after) {
            from += 1;
        }
        to = to.max(from);
        while self.entries.get(to).is_some_and(|reset| reset.number < before) {
            to += 1;
        }
        from..to
    }

    #[inline(never)]
    pub(super) fn add_some(&mut self, rise: f64, some: Range<usize>, range: TimeRange) -> f64 {
        let Resets { entries, base, halves } = self;
        let in_order = |entries: &VecDeque<Reset>| {
            entries.range(some.clone()).fold(rise, |sum, reset| sum + reset.value)
        };
        if some.len() <= RESETS_ADDED_MAX {
            return in_order(entries);
        }
        let number = |place: usize| *base + place as u64;
        let boundary_ms = halves.boundary_ms(range);
        // A reset across the boundary enters with the sample after it, but leaves with the sample
        // before it. So it belongs before the boundary, which was determined without it. It may
        // have left already, if the ranges in between had too few resets to need sums.
        let comes_late = |boundary: u64| {
            let Some(at) = boundary.checked_sub(*base).map(|at| at as usize) else { return true };
            let reset = entries.get(at).filter(|_| at < some.end);
            reset.is_some_and(|reset| reset.time_ms <= boundary_ms)
        };
        if halves.boundary().is_some_and(comes_late) {
            halves.forget_boundary();
        }
        let both = halves.of(
            boundary_ms,
            number(some.start)..number(some.end),
            || {
                let behind = entries.partition_point(|reset| reset.time_ms <= boundary_ms);
                number(behind.clamp(some.start, some.end))
            },
            |numbers| {
                entries.range((numbers.start - *base) as usize..(numbers.end - *base) as usize)
            },
            |sum, reset| sum.plus(reset.value),
        );
        let sum = match both {
            Both { front: Some(front), back: Some(back) } => front.merged(back),
            Both { front, back } => front.or(back).unwrap_or_default(),
        };
        if sum.total().is_finite() { rise + sum.total() } else { in_order(entries) }
    }

    /// Returns the bytes held.
    pub(super) fn bytes(&self) -> u64 {
        (self.entries.capacity() * size_of::<Reset>()) as u64 + self.halves.bytes()
    }
}

/// `irate`, `idelta`: computed from the last two samples.
///
/// Source: `instantValue` of Prometheus.
#[derive(Debug)]
pub(super) struct LastTwo {
    /// True if the result is per second and a decrease is a reset.
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

/// `resets`, `changes`: number of adjacent samples in the range that differ.
#[derive(Debug)]
pub(super) struct Neighbours {
    /// True if only decreases count.
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

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn resets_of_later_ranges_are_found_from_earlier_ones_on(
            gaps in prop::collection::vec(1u64..9, 0..20),
            moves in prop::collection::vec((0u64..9, 0u64..9), 1..20),
        ) {
            let mut resets = Resets::default();
            let mut number = 0;
            for gap in gaps {
                number += gap;
                resets.push(number, number as i64, 1.0);
            }
            let (mut after, mut before, mut some) = (0, 0, 0..0);
            for (first, last) in moves {
                after += first;
                before = (before + last).max(after);
                some = resets.later(some, after, before);
                let expected = resets.between(after, before);
                prop_assert_eq!(some.is_empty(), expected.is_empty());
                if !some.is_empty() {
                    prop_assert_eq!(some.clone(), expected);
                }
            }
        }
    }
}
