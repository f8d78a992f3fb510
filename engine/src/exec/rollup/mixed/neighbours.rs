//! `irate`, `idelta`, `resets`, `changes` of floats and histograms in order of time.

use std::collections::VecDeque;
use std::sync::Arc;

use model::{Histogram, ResetHint};

use crate::exec::rollup::counter;
use crate::exec::rollup::mixed::history::HistoryEntry;
use crate::exec::rollup::mixed::range_annotation::{RangeAnnotation, RangeAnnotations};
use crate::exec::rollup::mixed::starts;
use crate::exec::rollup::mixed::{Answer, Entered, MixedFrame, MixedKernel};
use crate::parse::ast::RangeMode;

/// `irate`, `idelta`: computed from the last two samples.
///
/// Source: `instantValue` of Prometheus.
#[derive(Debug)]
pub(in crate::exec::rollup) struct LastTwo {
    /// True if the result is per second and of a counter.
    pub(in crate::exec::rollup) is_rate: bool,
}

impl MixedKernel for LastTwo {
    fn answer(&mut self, frame: &MixedFrame<'_>, remarks: &mut RangeAnnotations) -> Answer {
        let (times, entries) = (frame.times(), frame.entries());
        // Returns whether the last of the remaining samples is a histogram.
        let newer = |float_at: Option<usize>, entry_at: Option<usize>| match (float_at, entry_at) {
            (Some(float), Some(entry)) => entries[entry].at.time_ms > times[float],
            (None, Some(_)) => true,
            (_, None) => false,
        };
        let last_is_entry = newer(times.len().checked_sub(1), entries.len().checked_sub(1));
        let (float_count, entry_count) = match last_is_entry {
            true => (times.len(), entries.len() - 1),
            false => (times.len() - 1, entries.len()),
        };
        if float_count + entry_count == 0 {
            return Answer::Nothing;
        }
        let before_is_entry = newer(float_count.checked_sub(1), entry_count.checked_sub(1));
        match (before_is_entry, last_is_entry) {
            (false, false) => self.floats(frame),
            (true, true) => {
                let [.., before, last] = entries else { return Answer::Nothing };
                match self.histograms(before, last, remarks) {
                    Some(histogram) => Answer::Histogram(Arc::new(histogram)),
                    None => Answer::Nothing,
                }
            }
            _ => {
                remarks.add(RangeAnnotation::MixedFloats);
                Answer::Nothing
            }
        }
    }
}

impl LastTwo {
    fn floats(&self, frame: &MixedFrame<'_>) -> Answer {
        let [.., before, last] = frame.values() else { return Answer::Nothing };
        let [before_at, last_at] = [2, 1].map(|back| frame.started(frame.float_hi - back));
        let is_reset = self.is_rate && (last < before || starts::is_reset(before_at, last_at));
        let rise = if is_reset { *last } else { last - before };
        let seconds = (last_at.time_ms - before_at.time_ms) as f64 / 1000.0;
        Answer::Float(if self.is_rate { rise / seconds } else { rise })
    }

    fn histograms(
        &self,
        before: &HistoryEntry,
        last: &HistoryEntry,
        remarks: &mut RangeAnnotations,
    ) -> Option<Histogram> {
        let any_gauge = before.is_gauge() || last.is_gauge();
        let any_counter = !before.is_gauge() || !last.is_gauge();
        remarks.add_if(self.is_rate && any_gauge, RangeAnnotation::NotCounter);
        remarks.add_if(!self.is_rate && any_counter, RangeAnnotation::NotGauge);
        let mut rise = (*last.histogram).clone();
        if !self.is_rate || !last.is_reset {
            let Ok(combined) = rise.sub(&before.histogram) else {
                remarks.add(RangeAnnotation::MixedSchemas);
                return None;
            };
            remarks.add_if(combined.bounds_reconciled, RangeAnnotation::ReconciledSub);
        }
        rise.reset_hint = ResetHint::Gauge;
        rise.compact(0);
        if self.is_rate {
            rise.div((last.at.time_ms - before.at.time_ms) as f64 / 1000.0);
        }
        Some(rise)
    }
}

/// `resets`, `changes`: number of adjacent samples in the range that differ.
///
/// Source: `funcResets`, `funcChanges`, `pickFirstSampleIndices` of Prometheus.
#[derive(Debug)]
pub(in crate::exec::rollup) struct Neighbours {
    floats: counter::Neighbours,
    only_falls: bool,
    is_anchored: bool,
    /// Kind and index of the last sample that entered.
    last: Option<Entered>,
    /// Numbers of the samples that differ from the previous one.
    counted: VecDeque<u64>,
}

impl Neighbours {
    pub(in crate::exec::rollup) fn new(only_falls: bool, mode: RangeMode) -> Neighbours {
        Neighbours {
            floats: counter::Neighbours::new(only_falls),
            only_falls,
            is_anchored: mode == RangeMode::Anchored,
            last: None,
            counted: VecDeque::new(),
        }
    }

    /// Returns whether a sample differs from the previous one.
    fn counts(&self, frame: &MixedFrame<'_>, sample: Entered, was_float: bool) -> bool {
        match sample {
            Entered::Float(at) if was_float => {
                let values = frame.samples.values;
                let starts_anew = || starts::is_reset(frame.started(at - 1), frame.started(at));
                self.floats.counts(values[at - 1], values[at]) || self.only_falls && starts_anew()
            }
            Entered::Histogram(at) if !was_float => {
                let [before, after] = [at - 1, at].map(|at| &frame.all_entries[at]);
                match self.only_falls {
                    true => after.is_reset,
                    false => !after.histogram.equals(&before.histogram),
                }
            }
            _ => true,
        }
    }
}

impl MixedKernel for Neighbours {
    fn enter(&mut self, frame: &MixedFrame<'_>, sample: Entered, number: u64) {
        // The first sample of the range is not compared: the previous sample may not be in memory.
        let is_first = frame.times().len() + frame.entries().len() == 1;
        if let Some(last) = self.last
            && !is_first
            && self.counts(frame, sample, matches!(last, Entered::Float(_)))
        {
            self.counted.push_back(number);
        }
        self.last = Some(sample);
    }

    fn answer(&mut self, frame: &MixedFrame<'_>, _remarks: &mut RangeAnnotations) -> Answer {
        while self.counted.front().is_some_and(|counted| *counted <= frame.first) {
            self.counted.pop_front();
        }
        if !self.is_anchored {
            return Answer::Float(self.counted.len() as f64);
        }
        let within = frame.times().partition_point(|t| *t <= frame.start_ms)
            + frame.entries().partition_point(|entry| entry.at.time_ms <= frame.start_ms);
        if within == frame.times().len() + frame.entries().len() {
            return Answer::Nothing;
        }
        let anchor = frame.first + within.saturating_sub(1) as u64;
        let before = self.counted.partition_point(|counted| *counted <= anchor);
        Answer::Float((self.counted.len() - before) as f64)
    }

    fn bytes(&self) -> u64 {
        (self.counted.capacity() * size_of::<u64>()) as u64
    }
}
