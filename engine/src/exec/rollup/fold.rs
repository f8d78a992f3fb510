//! Sums and means over ranges, with a bounded number of operations per sample.

use model::{WantedFact, widest};

use crate::exec::numeric::compensated::{self, Sum};
use crate::exec::rollup::alike::AlikeRanges;
use crate::exec::rollup::buffer::{Frame, Kernel};
use crate::exec::rollup::facts::{FoundWindows, KnownWindows};
use crate::exec::rollup::halves::{Both, Halves};

/// Sums below this fraction of the sum of absolute values are recomputed in Prometheus' order.
const CANCELLATION_MAX: f64 = 1e-11;

/// `sum_over_time`, `avg_over_time`.
#[derive(Debug)]
pub(super) struct Fold {
    /// True if the result is the mean.
    is_mean: bool,
    halves: Halves<PartialSum>,
}

/// Sum of values, and sum of their absolute values.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct PartialSum {
    pub(super) sum: Sum,
    pub(super) absolute: f64,
}

impl PartialSum {
    #[inline(always)]
    pub(super) fn plus(self, value: f64) -> PartialSum {
        PartialSum { sum: self.sum.plus(value), absolute: self.absolute + value.abs() }
    }

    #[inline(always)]
    pub(super) fn merged(self, other: PartialSum) -> PartialSum {
        PartialSum { sum: self.sum.merged(other.sum), absolute: self.absolute + other.absolute }
    }
}

impl Fold {
    pub(super) fn new(is_mean: bool) -> Fold {
        Fold { is_mean, halves: Halves::default() }
    }

    /// Returns the result from the sums of `count` values; NaN if the order of additions matters,
    /// because terms cancel or overflow.
    #[inline(always)]
    fn of_sums(is_mean: bool, sums: PartialSum, count: f64) -> f64 {
        let PartialSum { sum, absolute } = sums;
        let is_exact = absolute < f64::MAX && sum.total().abs() >= absolute * CANCELLATION_MAX;
        let result = if is_mean { sum.sum / count + sum.compensation / count } else { sum.total() };
        if is_exact { result } else { f64::NAN }
    }

    /// Returns the result from values, added in Prometheus' order.
    fn in_order(&self, values: &[f64]) -> f64 {
        match self.is_mean {
            true => compensated::mean(values),
            false => values.iter().fold(Sum::default(), |sum, value| sum.plus(*value)).total(),
        }
    }
}

impl Kernel for Fold {
    #[inline]
    fn value(&mut self, frame: &Frame<'_>) -> Option<f64> {
        let both = self.halves.of_samples(frame, |part, _, value| part.plus(value));
        let sums = match both {
            Both { front: Some(front), back: Some(back) } => front.merged(back),
            Both { front, back } => front.or(back)?,
        };
        let result = Fold::of_sums(self.is_mean, sums, (frame.hi - frame.lo) as f64);
        Some(if result.is_nan() { self.in_order(frame.values()) } else { result })
    }

    const ROLLS_ALIKE: bool = true;

    fn roll_alike(&mut self, ranges: &AlikeRanges<'_>, out: &mut [f64]) {
        let count = ranges.values(0).len() as f64;
        // `is_mean` is a constant in each call, so that the loop has no branch.
        match self.is_mean {
            true => ranges.sum(
                out,
                #[inline(always)]
                |sums| Fold::of_sums(true, sums, count),
            ),
            false => ranges.sum(
                out,
                #[inline(always)]
                |sums| Fold::of_sums(false, sums, count),
            ),
        }
        for (range, out) in out.iter_mut().enumerate().filter(|(_, out)| out.is_nan()) {
            *out = self.in_order(ranges.values(range));
        }
    }

    #[inline]
    fn wanted_fact(&self) -> Option<WantedFact> {
        Some(WantedFact::Sum)
    }

    fn of_facts(&self, known: &KnownWindows<'_>, out: &mut [f64]) -> FoundWindows {
        // The sums are exact, so they have no compensation.
        let sums = &known.facts.fact;
        if known.have_samples() {
            if self.is_mean {
                known.count_samples(out);
                let both = out.iter_mut().zip(sums);
                widest(
                    #[inline(always)]
                    || both.for_each(|(out, sum)| *out = sum / *out),
                );
            } else {
                out.copy_from_slice(&sums[..out.len()]);
            }
            return FoundWindows::All;
        }
        known.each(out, |index, window| {
            let sum = sums[index];
            Some(if self.is_mean { sum / window.samples.count as f64 } else { sum })
        })
    }

    fn bytes(&self) -> u64 {
        self.halves.bytes()
    }
}

/// Functions that need only the first and last sample or their number.
#[derive(Debug, Clone, Copy)]
pub(super) enum Boundary {
    /// `count_over_time`
    Count,
    /// `present_over_time`
    Present,
    /// `last_over_time`
    Last,
    /// `first_over_time`
    First,
    /// `ts_of_last_over_time`
    LastTime,
    /// `ts_of_first_over_time`
    FirstTime,
}

impl Kernel for Boundary {
    #[inline]
    fn value(&mut self, frame: &Frame<'_>) -> Option<f64> {
        let last = frame.hi - 1;
        let samples = frame.samples;
        Some(match self {
            Boundary::Count => (frame.hi - frame.lo) as f64,
            Boundary::Present => 1.0,
            Boundary::Last => samples.values[last],
            Boundary::First => samples.values[frame.lo],
            Boundary::LastTime => samples.times[last] as f64 / 1000.0,
            Boundary::FirstTime => samples.times[frame.lo] as f64 / 1000.0,
        })
    }

    #[inline]
    fn wanted_fact(&self) -> Option<WantedFact> {
        Some(WantedFact::Ends)
    }

    fn of_facts(&self, known: &KnownWindows<'_>, out: &mut [f64]) -> FoundWindows {
        let facts = known.facts;
        if matches!(self, Boundary::Count) && known.have_samples() {
            known.count_samples(out);
            return FoundWindows::All;
        }
        known.each(out, |index, window| {
            Some(match self {
                Boundary::Count => window.samples.count as f64,
                Boundary::Present => 1.0,
                Boundary::Last => facts.fact[index],
                Boundary::First => facts.first[index],
                Boundary::LastTime => window.samples.last_ms as f64 / 1000.0,
                Boundary::FirstTime => window.samples.first_ms as f64 / 1000.0,
            })
        })
    }
}
