//! Sums, means, counts and boundary samples of ranges with histograms.

use std::sync::Arc;

use model::histogram::{Combined, HistogramError, HistogramMean, HistogramSum};
use model::{Histogram, ResetHint};

use crate::exec::rollup::fold::Boundary;
use crate::exec::rollup::mixed::history::HistoryEntry;
use crate::exec::rollup::mixed::range_annotation::{RangeAnnotation, RangeAnnotations};
use crate::exec::rollup::mixed::{Answer, MixedFrame, MixedKernel};
use crate::exec::stats::step_stats::sample_count;

/// `sum_over_time`, `avg_over_time`.
///
/// Recomputes the sum of each range, in Prometheus' order of additions.
/// Source: `funcSumOverTime`, `funcAvgOverTime` of Prometheus.
#[derive(Debug)]
pub(in crate::exec::rollup) struct Fold {
    /// True if the result is the mean.
    pub(in crate::exec::rollup) is_mean: bool,
}

impl MixedKernel for Fold {
    fn follows_floats(&self) -> bool {
        true
    }

    fn looks_at_all(&self) -> bool {
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
        let mut said = RangeAnnotations::default();
        let Ok(folded) = self.fold(entries, &mut said) else {
            remarks.add(RangeAnnotation::MixedSchemas);
            return Answer::Nothing;
        };
        let has = |hint: ResetHint| entries.iter().any(|e| e.histogram.reset_hint == hint);
        said.add_if(has(ResetHint::Reset) && has(ResetHint::NotReset), RangeAnnotation::Collision);
        remarks.merge(said);
        Answer::Histogram(Arc::new(folded))
    }
}

impl Fold {
    fn fold(
        &self,
        entries: &[HistoryEntry],
        said: &mut RangeAnnotations,
    ) -> Result<Histogram, HistogramError> {
        let first = (*entries[0].histogram).clone();
        let mut note = |combined: Combined| {
            said.add_if(combined.bounds_reconciled, RangeAnnotation::ReconciledAggregation);
        };
        if self.is_mean {
            let mut mean = HistogramMean::new(first);
            for entry in &entries[1..] {
                note(mean.add(&entry.histogram)?);
            }
            Ok(mean.finish())
        } else {
            let mut sum = HistogramSum::new(first);
            for entry in &entries[1..] {
                note(sum.add(&entry.histogram)?);
            }
            Ok(sum.finish())
        }
    }
}

impl MixedKernel for Boundary {
    fn answer(&mut self, frame: &MixedFrame<'_>, _remarks: &mut RangeAnnotations) -> Answer {
        let (times, values) = (frame.times(), frame.values());
        let entries = frame.entries();
        let first_ms = || {
            let entry_ms = entries.first().map(|entry| entry.at.time_ms);
            times.first().copied().into_iter().chain(entry_ms).min()
        };
        let last_ms = || {
            let entry_ms = entries.last().map(|entry| entry.at.time_ms);
            times.last().copied().max(entry_ms)
        };
        let seconds = |time_ms: Option<i64>| {
            time_ms.map_or(Answer::Nothing, |time_ms| Answer::Float(time_ms as f64 / 1000.0))
        };
        let sample =
            |time_ms: Option<i64>, float: Option<usize>, entry: Option<&HistoryEntry>| match (
                float, entry,
            ) {
                (_, Some(entry)) if Some(entry.at.time_ms) == time_ms => {
                    Answer::Histogram(Arc::clone(&entry.histogram))
                }
                (Some(at), _) => Answer::Float(values[at]),
                _ => Answer::Nothing,
            };
        match self {
            Boundary::Count => Answer::Float((times.len() + entries.len()) as f64),
            Boundary::Present => Answer::Float(1.0),
            Boundary::Last => sample(last_ms(), times.len().checked_sub(1), entries.last()),
            Boundary::First => {
                sample(first_ms(), (!times.is_empty()).then_some(0), entries.first())
            }
            Boundary::LastTime => seconds(last_ms()),
            Boundary::FirstTime => seconds(first_ms()),
        }
    }
}

/// Number of samples; a histogram counts by its size.
#[derive(Debug)]
pub(in crate::exec::rollup) struct Size;

impl MixedKernel for Size {
    fn looks_at_all(&self) -> bool {
        true
    }

    fn answer(&mut self, frame: &MixedFrame<'_>, _remarks: &mut RangeAnnotations) -> Answer {
        let sizes = frame.entries().iter().map(|entry| sample_count(&entry.histogram));
        Answer::Float((frame.times().len() as u64 + sizes.sum::<u64>()) as f64)
    }
}

/// Functions that ignore histograms.
#[derive(Debug)]
pub(in crate::exec::rollup) struct FloatsAlone;

impl MixedKernel for FloatsAlone {
    fn follows_floats(&self) -> bool {
        true
    }

    fn answer(&mut self, frame: &MixedFrame<'_>, remarks: &mut RangeAnnotations) -> Answer {
        remarks.add_if(frame.kinds() == (true, true), RangeAnnotation::Ignored);
        Answer::AsFloats
    }
}
