//! Smallest and largest values of ranges, with a bounded number of operations per sample.

use std::collections::VecDeque;

use model::{WantedFact, widest};

use crate::exec::rollup::alike::AlikeRanges;
use crate::exec::rollup::buffer::{EvenRanges, Frame, Kernel, Samples};
use crate::exec::rollup::facts::{FoundWindows, KnownWindows};

/// Values that are compared at the same time.
const LANES: usize = 8;

/// `min_over_time` and `max_over_time`, or with `IS_TIME` `ts_of_min_over_time` and
/// `ts_of_max_over_time`.
///
/// The deque holds the samples that are or may become the extreme: each beats all later samples in
/// it.
/// Source: `compareOverTime` of Prometheus: NaN loses to every number.
#[derive(Debug)]
pub(super) struct Extreme<const IS_TIME: bool> {
    is_max: bool,
    candidates: VecDeque<Candidate>,
    /// Number of the next sample to add. Ranges that are rolled at once add none.
    end: u64,
}

#[derive(Debug, Clone, Copy)]
struct Candidate {
    number: u64,
    time_ms: i64,
    value: f64,
}

impl<const IS_TIME: bool> Extreme<IS_TIME> {
    pub(super) fn new(is_max: bool) -> Extreme<IS_TIME> {
        Extreme { is_max, candidates: VecDeque::new(), end: 0 }
    }

    /// Adds a sample, and removes those that it beats.
    #[inline]
    fn add_candidate(&mut self, samples: Samples<'_>, at: usize) {
        let value = samples.values[at];
        if value.is_nan() {
            return;
        }
        while let Some(last) = self.candidates.back() {
            let is_beaten = if self.is_max { value > last.value } else { value < last.value };
            // Of equal values, the last one has the wanted timestamp.
            let is_replaced = is_beaten || (IS_TIME && value == last.value);
            if !is_replaced {
                break;
            }
            self.candidates.pop_back();
        }
        let (number, time_ms) = (samples.number(at), samples.times[at]);
        self.candidates.push_back(Candidate { number, time_ms, value });
    }
}

#[inline(always)]
fn larger(first: f64, second: f64) -> f64 {
    if second > first || first.is_nan() { second } else { first }
}

#[inline(always)]
fn smaller(first: f64, second: f64) -> f64 {
    if second < first || first.is_nan() { second } else { first }
}

/// Writes the extreme of each range to `out`.
fn extremes_of_each(
    ranges: &EvenRanges<'_>,
    out: &mut [f64],
    better_of: impl Fn(f64, f64) -> f64 + Copy,
) {
    widest(
        #[inline(always)]
        || {
            for (number, out) in out.iter_mut().enumerate() {
                let moved = ranges.stride * number;
                let place = ranges.first.start + moved..ranges.first.end + moved;
                *out = extreme_of(&ranges.samples.values[place], better_of);
            }
        },
    );
}

/// Returns the extreme of some values, at least one.
#[inline(always)]
fn extreme_of(values: &[f64], better_of: impl Fn(f64, f64) -> f64 + Copy) -> f64 {
    let (mut extremes, rest) = ([values[0]; LANES], values.chunks_exact(LANES).remainder());
    for chunk in values.chunks_exact(LANES) {
        extremes = std::array::from_fn(|lane| better_of(extremes[lane], chunk[lane]));
    }
    let extreme = extremes.into_iter().chain(rest.iter().copied()).fold(values[0], better_of);
    // Between 0 and -0, the order of the values decides.
    if extreme == 0.0 { values.iter().copied().fold(values[0], better_of) } else { extreme }
}

impl<const IS_TIME: bool> Kernel for Extreme<IS_TIME> {
    #[inline]
    fn value(&mut self, frame: &Frame<'_>) -> Option<f64> {
        let samples = frame.samples;
        let (first, last) = (samples.number(frame.lo), frame.hi - 1);
        while self.candidates.front().is_some_and(|front| front.number < first) {
            self.candidates.pop_front();
        }
        for at in samples.place(self.end.max(first))..frame.hi {
            self.add_candidate(samples, at);
        }
        self.end = samples.number(frame.hi);
        let (time_ms, value) = match self.candidates.front() {
            Some(best) => (best.time_ms, best.value),
            None => (samples.times[last], samples.values[last]),
        };
        Some(if IS_TIME { time_ms as f64 / 1000.0 } else { value })
    }

    const ROLLS_EVENLY: bool = !IS_TIME;

    fn roll_evenly(&mut self, ranges: &EvenRanges<'_>, out: &mut [f64]) -> bool {
        let is_apart = ranges.stride >= ranges.first.len();
        match self.is_max {
            _ if !is_apart => {}
            true => extremes_of_each(ranges, out, larger),
            false => extremes_of_each(ranges, out, smaller),
        }
        is_apart
    }

    const ROLLS_ALIKE: bool = !IS_TIME;

    fn roll_alike(&mut self, ranges: &AlikeRanges<'_>, out: &mut [f64]) {
        match self.is_max {
            true => ranges.extremes(out, larger),
            false => ranges.extremes(out, smaller),
        }
    }

    #[inline]
    fn wanted_fact(&self) -> Option<WantedFact> {
        let wanted = if self.is_max { WantedFact::Max } else { WantedFact::Min };
        (!IS_TIME).then_some(wanted)
    }

    fn of_facts(&self, known: &KnownWindows<'_>, out: &mut [f64]) -> FoundWindows {
        if known.have_samples() {
            out.copy_from_slice(&known.facts.fact[..out.len()]);
            return FoundWindows::All;
        }
        known.each(out, |index, _| Some(known.facts.fact[index]))
    }

    fn bytes(&self) -> u64 {
        (self.candidates.capacity() * size_of::<Candidate>()) as u64
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn lanes_find_the_first_of_equal_values(
            values in prop_oneof![
                prop::collection::vec(prop::sample::select(vec![0.0, -0.0, f64::NAN]), 1..40),
                prop::collection::vec(prop::sample::select(vec![f64::NAN, -f64::NAN]), 1..40),
                prop::collection::vec(-3.0..3.0, 1..40),
            ],
        ) {
            for better_of in [larger, smaller] {
                let in_order = values.iter().copied().fold(f64::NAN, better_of);
                prop_assert_eq!(extreme_of(&values, better_of).to_bits(), in_order.to_bits());
            }
        }
    }
}
