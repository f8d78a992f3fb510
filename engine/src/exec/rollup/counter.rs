//! Functions of counters: increases, resets and changes.

use std::collections::VecDeque;
use std::ops::Range;

use model::{TimeRange, WantedFact, widest};

use crate::exec::numeric::compensated::Sum;
use crate::exec::rollup::buffer::{EvenRanges, Frame, Kernel, Samples};
use crate::exec::rollup::facts::{FoundWindows, KnownWindow, KnownWindows};
use crate::exec::rollup::halves::{Both, Halves};

/// Maximum number of resets in a range to add one by one, in Prometheus' order.
const RESETS_ADDED_MAX: usize = 32;

/// `rate`, `increase`, `delta`.
///
/// Source: `extrapolatedRate` of Prometheus.
#[derive(Debug, Default)]
pub(super) struct Extrapolated {
    /// True if a decrease is a counter reset.
    pub(super) is_counter: bool,
    /// True if the result is per second.
    pub(super) is_rate: bool,
    /// Duration of the ranges.
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
            rise = self.resets.add_to(rise, TimeRange::new(frame.start_ms, frame.end_ms));
        }
        let span = self.span(
            TimeRange::new(times[frame.lo], times[last]),
            last - frame.lo,
            TimeRange::new(frame.start_ms, frame.end_ms),
        );
        Some(rise * self.factor(&span, first_value, rise))
    }

    const ROLLS_EVENLY: bool = true;

    fn roll_evenly(&mut self, ranges: &EvenRanges<'_>, out: &mut [f64]) -> bool {
        let EvenRanges { samples, first, stride, .. } = ranges;
        let last = first.end - 1;
        if last == first.start || self.is_counter && !self.resets.enter_evenly(ranges) {
            return false;
        }
        let moved = ranges.moved();
        let times = TimeRange::new(samples.times[first.start], samples.times[last]);
        let range = TimeRange::new(ranges.start_ms, ranges.end_ms);
        let span = self.span(times, last - first.start, range);
        let firsts = &samples.values[first.start..first.start + moved + 1];
        let lasts = &samples.values[last..last + moved + 1];
        let fact = |(first, last): (&f64, &f64)| (*first, last - first);
        // Usually each range is one sample further; with a constant stride the loop is vectorized.
        if *stride == 1 {
            self.extrapolate(&span, firsts.iter().zip(lasts).map(fact), out, 1);
        } else {
            let (firsts, lasts) = (firsts.iter().step_by(*stride), lasts.iter().step_by(*stride));
            self.extrapolate(&span, firsts.zip(lasts).map(fact), out, 1);
        }
        self.correct_evenly(ranges, &span, out);
        true
    }

    #[inline]
    fn wanted_fact(&self) -> Option<WantedFact> {
        Some(if self.is_counter { WantedFact::Increase } else { WantedFact::Difference })
    }

    fn of_facts(&self, known: &KnownWindows<'_>, out: &mut [f64]) -> FoundWindows {
        let (firsts, rises) = (&known.facts.first, &known.facts.fact);
        let Some(period) = known.period(2) else {
            return known.each(out, |index, window| {
                (window.samples.count > 1).then(|| {
                    let span = self.span_of(window);
                    rises[index] * self.factor(&span, firsts[index], rises[index])
                })
            });
        };
        let distance = period.len();
        for (index, window) in period.enumerate() {
            let span = self.span_of(window);
            let (firsts, rises) = (firsts[index..].iter(), rises[index..].iter());
            let fact = |(first, rise): (&f64, &f64)| (*first, *rise);
            // With a constant distance the loop is vectorized.
            if distance == 1 {
                self.extrapolate(&span, firsts.zip(rises).map(fact), out, 1);
            } else {
                let facts = firsts.step_by(distance).zip(rises.step_by(distance)).map(fact);
                self.extrapolate(&span, facts, &mut out[index..], distance);
            }
        }
        FoundWindows::All
    }

    fn bytes(&self) -> u64 {
        self.resets.bytes()
    }
}

/// Distances of the samples in a range, in seconds.
struct Sampled {
    /// Distance from the first to the last sample.
    sampled: f64,
    /// Extrapolated distances before the first and after the last sample.
    to_start: f64,
    to_end: f64,
}

impl Extrapolated {
    /// Extrapolates the increases of windows with the same distances, given their first values and
    /// increases. Writes every `distance`th value of `out`.
    #[inline]
    fn extrapolate(
        &self,
        span: &Sampled,
        facts: impl Iterator<Item = (f64, f64)> + Clone,
        out: &mut [f64],
        distance: usize,
    ) {
        let is_any_near_zero = match distance {
            1 => self.multiply(span, facts.clone(), out.iter_mut()),
            _ => self.multiply(span, facts.clone(), out.iter_mut().step_by(distance)),
        };
        if is_any_near_zero {
            for (out, (first_value, rise)) in out.iter_mut().step_by(distance).zip(facts) {
                *out = rise * self.factor(span, first_value, rise);
            }
        }
    }

    /// Writes increases, multiplied by the factor of counters that are not near zero. Returns whether
    /// any counter may have been zero within the extrapolated distance.
    #[inline]
    fn multiply<'a>(
        &self,
        span: &Sampled,
        facts: impl Iterator<Item = (f64, f64)>,
        out: impl Iterator<Item = &'a mut f64>,
    ) -> bool {
        let factor = self.whole_factor(span.to_start, span);
        widest(|| {
            let mut is_any_near_zero = false;
            for (out, (first_value, rise)) in out.zip(facts) {
                is_any_near_zero |= self.may_reach_zero(span, first_value, rise);
                *out = rise * factor;
            }
            is_any_near_zero
        })
    }

    /// Rewrites the values of the ranges that contain a reset.
    fn correct_evenly(&mut self, ranges: &EvenRanges<'_>, span: &Sampled, out: &mut [f64]) {
        let EvenRanges { samples, first, stride, .. } = ranges;
        if self.resets.is_empty() {
            return;
        }
        let mut some = 0..0;
        for (at, out) in out.iter_mut().enumerate() {
            let (lo, hi) = (first.start + at * stride, first.end + at * stride);
            some = self.resets.later(some, samples.number(lo), samples.number(hi));
            if some.is_empty() {
                continue;
            }
            let moved_ms = samples.times[lo] - samples.times[first.start];
            let first_value = samples.values[lo];
            let range = TimeRange::new(ranges.start_ms + moved_ms, ranges.end_ms + moved_ms);
            let rise = samples.values[hi - 1] - first_value;
            let rise = self.resets.add_some(rise, some.clone(), range);
            *out = rise * self.factor(span, first_value, rise);
        }
        self.resets.forget_up_to(samples.number(first.start + ranges.moved()));
    }

    /// Returns the distances in a window of at least two samples.
    #[inline]
    fn span_of(&self, window: KnownWindow) -> Sampled {
        let KnownWindow { samples, start_ms, end_ms } = window;
        let sampled = TimeRange::new(samples.first_ms, samples.last_ms);
        self.span(sampled, samples.count - 1, TimeRange::new(start_ms, end_ms))
    }

    /// Returns the distances in `range`, given the timestamps of its first and last sample and the
    /// number of intervals between its samples.
    #[inline]
    fn span(&self, sampled: TimeRange, distances: usize, range: TimeRange) -> Sampled {
        let TimeRange { start_ms: first_ms, end_ms: last_ms } = sampled;
        let mut to_start = (first_ms - range.start_ms) as f64 / 1000.0;
        let mut to_end = (range.end_ms - last_ms) as f64 / 1000.0;
        let sampled = (last_ms - first_ms) as f64 / 1000.0;
        let average = sampled / distances as f64;
        let threshold = average * 1.1;
        if to_start >= threshold {
            to_start = average / 2.0;
        }
        if to_end >= threshold {
            to_end = average / 2.0;
        }
        Sampled { sampled, to_start, to_end }
    }

    /// Returns whether a counter may have been zero within the extrapolated distance. Avoids the
    /// division for counters that are clearly too high.
    #[inline]
    fn may_reach_zero(&self, span: &Sampled, first_value: f64, rise: f64) -> bool {
        // No short circuit: loops over many ranges call this.
        self.is_counter
            & (rise > 0.0)
            & (first_value >= 0.0)
            & (span.sampled * first_value <= span.to_start * rise * 1.001)
    }

    /// Returns the factor that extrapolates an increase to the range.
    #[inline]
    fn factor(&self, span: &Sampled, first_value: f64, rise: f64) -> f64 {
        let mut to_start = span.to_start;
        // A counter is not extrapolated below zero.
        if self.may_reach_zero(span, first_value, rise) {
            let to_zero = span.sampled * (first_value / rise);
            if to_zero < to_start {
                to_start = to_zero;
            }
        }
        self.whole_factor(to_start, span)
    }

    #[inline]
    fn whole_factor(&self, to_start: f64, span: &Sampled) -> f64 {
        let factor = (span.sampled + to_start + span.to_end) / span.sampled;
        if self.is_rate { factor / self.range_seconds } else { factor }
    }
}

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
    fn is_empty(&self) -> bool {
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
    fn enter_evenly(&mut self, ranges: &EvenRanges<'_>) -> bool {
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
    fn later(&self, earlier: Range<usize>, after: u64, before: u64) -> Range<usize> {
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
    fn add_some(&mut self, rise: f64, some: Range<usize>, range: TimeRange) -> f64 {
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
