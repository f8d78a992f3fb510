//! Smallest and largest values of ranges, with a bounded number of operations per sample.

use std::collections::VecDeque;

use model::WantedFact;

use crate::exec::rollup::alike::AlikeRanges;
use crate::exec::rollup::buffer::{Frame, Kernel, Samples};
use crate::exec::rollup::facts::{FoundWindows, KnownWindows};

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
    /// Number of the next sample to compare.
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

    /// Compares a sample with the earlier ones.
    #[inline]
    fn enter(&mut self, samples: Samples<'_>, at: usize) {
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

impl<const IS_TIME: bool> Kernel for Extreme<IS_TIME> {
    #[inline]
    fn value(&mut self, frame: &Frame<'_>) -> Option<f64> {
        let samples = frame.samples;
        let (first, last) = (samples.number(frame.lo), frame.hi - 1);
        while self.candidates.front().is_some_and(|front| front.number < first) {
            self.candidates.pop_front();
        }
        for at in samples.place(self.end.max(first))..frame.hi {
            self.enter(samples, at);
        }
        self.end = samples.number(frame.hi);
        let (time_ms, value) = match self.candidates.front() {
            Some(best) => (best.time_ms, best.value),
            None => (samples.times[last], samples.values[last]),
        };
        Some(if IS_TIME { time_ms as f64 / 1000.0 } else { value })
    }

    const ROLLS_ALIKE: bool = !IS_TIME;

    fn roll_alike(&mut self, ranges: &AlikeRanges<'_>, out: &mut [f64]) {
        // `is_max` is a constant in each call, so that the loops have no branch.
        match self.is_max {
            true => ranges.best(
                out,
                #[inline(always)]
                |first, second| if second > first || first.is_nan() { second } else { first },
            ),
            false => ranges.best(
                out,
                #[inline(always)]
                |first, second| if second < first || first.is_nan() { second } else { first },
            ),
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
