//! Increases of counters and differences of gauges, extrapolated to the range.

use model::{PERIOD_MAX, TimeRange, WINDOWS_MAX, WantedFact, widest};

use crate::exec::rollup::buffer::{EvenRanges, Frame, Kernel, Samples};
use crate::exec::rollup::counter::Resets;
use crate::exec::rollup::facts::{FoundWindows, KnownWindow, KnownWindows};

/// Windows that are extrapolated together: if a counter is near zero in one of them, each needs a
/// division.
const EXTRAPOLATED_AT_ONCE: usize = 128;
/// Floats of the widest vectors.
const LANES: usize = 8;
/// Ranges below this have distances of less than 2³⁷ ms.
const SHORT_SECONDS: f64 = ((1_u64 << 37) / 1000) as f64;

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
            self.extrapolate(&span, firsts.iter().zip(lasts).map(fact), out);
        } else {
            let (firsts, lasts) = (firsts.iter().step_by(*stride), lasts.iter().step_by(*stride));
            self.extrapolate(&span, firsts.zip(lasts).map(fact), out);
        }
        self.correct_evenly(ranges, &span, out);
        true
    }

    #[inline]
    fn wanted_fact(&self) -> Option<WantedFact> {
        Some(if self.is_counter { WantedFact::Increase } else { WantedFact::Difference })
    }

    fn of_facts(&self, known: &KnownWindows<'_>, out: &mut [f64]) -> FoundWindows {
        let Some(period) = known.period(2) else { return self.extrapolate_each(known, out) };
        let (mut spans, len) = ([Sampled::default(); PERIOD_MAX], period.len());
        for (span, KnownWindow { samples, start_ms, end_ms }) in spans.iter_mut().zip(period) {
            let sampled = TimeRange::new(samples.first_ms, samples.last_ms);
            *span = self.span(sampled, samples.count - 1, TimeRange::new(start_ms, end_ms));
        }
        let (firsts, rises) = (&known.facts.first[..], &known.facts.fact[..]);
        if let [span] = &spans[..len] {
            let chunks = out.chunks_mut(EXTRAPOLATED_AT_ONCE);
            let firsts = firsts.chunks(EXTRAPOLATED_AT_ONCE);
            let rises = rises.chunks(EXTRAPOLATED_AT_ONCE);
            for (out, (firsts, rises)) in chunks.zip(firsts.zip(rises)) {
                let fact = |(first, rise): (&f64, &f64)| (*first, *rise);
                self.extrapolate(span, firsts.iter().zip(rises).map(fact), out);
            }
        } else {
            self.extrapolate_repeating(&spans[..len], firsts, rises, out);
        }
        FoundWindows::All
    }

    fn bytes(&self) -> u64 {
        self.resets.bytes()
    }
}

/// Distances of the samples in a range, in seconds.
#[derive(Debug, Clone, Copy, Default)]
struct Sampled {
    /// Distance from the first to the last sample.
    sampled: f64,
    /// Extrapolated distances before the first and after the last sample.
    to_start: f64,
    to_end: f64,
}

/// Distances and factors of the windows of a vector.
#[derive(Debug, Clone, Copy, Default)]
struct LaneSpans {
    sampled: [f64; LANES],
    to_start: [f64; LANES],
    factor: [f64; LANES],
}

impl Extrapolated {
    /// Extrapolates the increases of windows with the same distances, given their first values and
    /// increases.
    #[inline]
    fn extrapolate(
        &self,
        span: &Sampled,
        facts: impl Iterator<Item = (f64, f64)> + Clone,
        out: &mut [f64],
    ) {
        let factor = self.whole_factor(span.to_start, span);
        let is_any_near_zero = widest(
            #[inline(always)]
            || {
                let mut is_any_near_zero = false;
                for (out, (first_value, rise)) in out.iter_mut().zip(facts.clone()) {
                    is_any_near_zero |=
                        self.may_reach_zero(span.sampled, span.to_start, first_value, rise);
                    *out = rise * factor;
                }
                is_any_near_zero
            },
        );
        if is_any_near_zero {
            for (out, (first_value, rise)) in out.iter_mut().zip(facts) {
                *out = rise * self.factor(span, first_value, rise);
            }
        }
    }

    /// Extrapolates the increases of windows whose distances repeat after those of `spans`.
    #[inline]
    fn extrapolate_repeating(
        &self,
        spans: &[Sampled],
        firsts: &[f64],
        rises: &[f64],
        out: &mut [f64],
    ) {
        let (whole, rest) = out.as_chunks_mut::<LANES>();
        let (mut factors, mut turns) = ([0.0; PERIOD_MAX], [LaneSpans::default(); PERIOD_MAX]);
        for (factor, span) in factors.iter_mut().zip(spans) {
            *factor = self.whole_factor(span.to_start, span);
        }
        let mut windows = spans.iter().zip(&factors).cycle();
        for turn in &mut turns[..spans.len().min(whole.len())] {
            for (lane, (span, factor)) in (0..LANES).zip(&mut windows) {
                (turn.sampled[lane], turn.to_start[lane]) = (span.sampled, span.to_start);
                turn.factor[lane] = *factor;
            }
        }
        let mut are_near_zero = [false; WINDOWS_MAX / LANES];
        widest(
            #[inline(always)]
            || {
                let facts = firsts.as_chunks::<LANES>().0.iter().zip(rises.as_chunks::<LANES>().0);
                let turns = turns[..spans.len()].iter().cycle();
                let vectors = whole.iter_mut().zip(facts).zip(turns).zip(&mut are_near_zero);
                for (((out, (firsts, rises)), turn), is_any_near_zero) in vectors {
                    // Copies, so that the compiler knows that `out` does not alias them.
                    let (LaneSpans { sampled, to_start, factor }, first, rise) =
                        (*turn, *firsts, *rises);
                    let (mut product, mut near_zero) = ([0.0; LANES], [0_u64; LANES]);
                    for lane in 0..LANES {
                        product[lane] = rise[lane] * factor[lane];
                    }
                    for lane in 0..LANES {
                        let (sampled, to_start) = (sampled[lane], to_start[lane]);
                        let is_near =
                            self.may_reach_zero(sampled, to_start, first[lane], rise[lane]);
                        near_zero[lane] = is_near.into();
                    }
                    *out = product;
                    *is_any_near_zero = near_zero.iter().fold(0, |any, one| any | one) != 0;
                }
            },
        );
        if !rest.is_empty() {
            are_near_zero[whole.len()] = true;
        }
        for (vector, _) in are_near_zero.iter().enumerate().filter(|(_, is_near)| **is_near) {
            for window in vector * LANES..out.len().min((vector + 1) * LANES) {
                let span = &spans[window % spans.len()];
                out[window] = rises[window] * self.factor(span, firsts[window], rises[window]);
            }
        }
    }

    /// Extrapolates the increases of windows, each with distances of its own.
    fn extrapolate_each(&self, known: &KnownWindows<'_>, out: &mut [f64]) -> FoundWindows {
        let (firsts, rises) = (&known.facts.first[..], &known.facts.fact[..]);
        let period = known.period_len();
        for (index, out) in out.chunks_mut(period).enumerate() {
            let first = index * period;
            let facts = firsts[first..].iter().zip(&rises[first..]);
            let windows = known.windows_of_period().zip(facts);
            if self.range_seconds < SHORT_SECONDS {
                self.multiply_each(windows, out, short_seconds);
            } else {
                self.multiply_each(windows, out, seconds);
            }
        }
        known.of_samples(2)
    }

    /// Writes increases, each multiplied by the factor of its window. Windows with fewer than two
    /// samples are no exception, because loops without exceptions are vectorized.
    #[inline]
    fn multiply_each<'a>(
        &self,
        windows: impl Iterator<Item = (KnownWindow, (&'a f64, &'a f64))>,
        out: &mut [f64],
        seconds: impl Fn(i64) -> f64 + Copy,
    ) {
        widest(
            #[inline(always)]
            || {
                for (out, (window, (first_value, rise))) in out.iter_mut().zip(windows) {
                    let KnownWindow { samples, start_ms, end_ms } = window;
                    let sampled = TimeRange::new(samples.first_ms, samples.last_ms);
                    let distances = samples.count.wrapping_sub(1);
                    let range = TimeRange::new(start_ms, end_ms);
                    let span = Sampled::new(sampled, distances, range, seconds);
                    *out = rise * self.factor(&span, *first_value, *rise);
                }
            },
        );
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

    /// Returns the distances in `range`, given the timestamps of its first and last sample and the
    /// number of intervals between its samples.
    #[inline]
    fn span(&self, sampled: TimeRange, distances: usize, range: TimeRange) -> Sampled {
        if self.range_seconds < SHORT_SECONDS {
            Sampled::new(sampled, distances, range, short_seconds)
        } else {
            Sampled::new(sampled, distances, range, seconds)
        }
    }

    /// Returns whether a counter may have been zero within the extrapolated distance. Avoids the
    /// division for counters that are clearly too high.
    #[inline(always)]
    fn may_reach_zero(&self, sampled: f64, to_start: f64, first_value: f64, rise: f64) -> bool {
        // No short circuit: loops over many ranges call this.
        self.is_counter
            & (rise > 0.0)
            & (first_value >= 0.0)
            & (sampled * first_value <= to_start * rise * 1.001)
    }

    /// Returns the factor that extrapolates an increase to the range.
    #[inline(always)]
    fn factor(&self, span: &Sampled, first_value: f64, rise: f64) -> f64 {
        let mut to_start = span.to_start;
        // A counter is not extrapolated below zero.
        if self.may_reach_zero(span.sampled, span.to_start, first_value, rise) {
            let to_zero = span.sampled * (first_value / rise);
            if to_zero < to_start {
                to_start = to_zero;
            }
        }
        self.whole_factor(to_start, span)
    }

    #[inline(always)]
    fn whole_factor(&self, to_start: f64, span: &Sampled) -> f64 {
        let factor = (span.sampled + to_start + span.to_end) / span.sampled;
        if self.is_rate { factor / self.range_seconds } else { factor }
    }
}

impl Sampled {
    /// Returns the distances in `range`, given the timestamps of its first and last sample, the
    /// number of intervals between its samples, and a function from ms to s. Without intervals they
    /// are not defined.
    #[inline(always)]
    fn new(
        TimeRange { start_ms: first_ms, end_ms: last_ms }: TimeRange,
        distances: usize,
        range: TimeRange,
        seconds: impl Fn(i64) -> f64,
    ) -> Sampled {
        let mut to_start = seconds(first_ms - range.start_ms);
        let mut to_end = seconds(range.end_ms - last_ms);
        let sampled = seconds(last_ms - first_ms);
        let distances = distances as f64;
        // Most are clearly below the threshold, without a division.
        let near = sampled * 1.099;
        if (to_start * distances >= near) | (to_end * distances >= near) {
            let average = sampled / distances;
            let threshold = average * 1.1;
            if to_start >= threshold {
                to_start = average / 2.0;
            }
            if to_end >= threshold {
                to_end = average / 2.0;
            }
        }
        Sampled { sampled, to_start, to_end }
    }
}

/// Returns seconds.
#[inline(always)]
fn seconds(ms: i64) -> f64 {
    ms as f64 / 1000.0
}

/// Returns the same bits as [`seconds`] of less than [`SHORT_SECONDS`].
///
/// A thousandth is the sum of two numbers of 16 bits and a small one, so that the product of `ms`
/// with the larger two is exact. What is rounded before the last addition is at most 2⁻⁶⁹ of the
/// result, and no quotient by 1000 is closer than 2⁻⁶⁴ to the middle between two floats.
#[inline(always)]
fn short_seconds(ms: i64) -> f64 {
    const LARGE: f64 = 33_554.0 / (1_u64 << 25) as f64;
    const MIDDLE: f64 = 56_623.0 / (1_u64 << 42) as f64;
    const SMALL: f64 = 0.104 / (1_u64 << 42) as f64;
    let ms = ms as f64;
    ms * LARGE + (ms * MIDDLE + ms * SMALL)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn repeating_windows_are_extrapolated_as_each_is(
            period in 2..=PERIOD_MAX,
            count in 1..=WINDOWS_MAX,
            distances in prop::collection::vec((1..90_u32, 0..40_u32, 0..40_u32), PERIOD_MAX),
            facts in prop::collection::vec((0..9_u32, 0..9_u32), WINDOWS_MAX),
            (is_counter, is_rate) in any::<(bool, bool)>(),
        ) {
            let kernel = Extrapolated { is_counter, is_rate, range_seconds: 300.0, ..Extrapolated::default() };
            let spans: Vec<Sampled> = distances[..period]
                .iter()
                .map(|&(sampled, to_start, to_end)| Sampled {
                    sampled: sampled.into(),
                    to_start: to_start.into(),
                    to_end: to_end.into(),
                })
                .collect();
            let (firsts, rises): (Vec<f64>, Vec<f64>) =
                facts.iter().map(|&(first, rise)| (f64::from(first), f64::from(rise))).unzip();
            let mut out = vec![0.0; count];
            kernel.extrapolate_repeating(&spans, &firsts, &rises, &mut out);
            for (window, out) in out.into_iter().enumerate() {
                let (first, rise) = (firsts[window], rises[window]);
                let expected = rise * kernel.factor(&spans[window % period], first, rise);
                prop_assert_eq!(out.to_bits(), expected.to_bits(), "window {}", window);
            }
        }

        #[test]
        fn short_seconds_are_those_of_a_division(ms in 0_i64..1 << 37, small in 0_i64..1 << 20) {
            for ms in [ms, small, -ms] {
                prop_assert_eq!(short_seconds(ms).to_bits(), seconds(ms).to_bits(), "{}", ms);
            }
        }
    }
}
