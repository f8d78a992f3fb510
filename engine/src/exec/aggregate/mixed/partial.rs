//! State of one group at one step with floats and histograms.

use std::collections::BTreeSet;
use std::sync::Arc;

use model::histogram::{Combined, HistogramError, HistogramMean, HistogramSum};
use model::{Histogram, ResetHint};

use super::wave::Sample;
use crate::exec::numeric::compensated::Sum;

/// `sum` or `avg`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::exec::aggregate) enum Total {
    Sum,
    Mean,
}

/// Conditions that cause annotations.
#[derive(Debug, Default)]
pub(super) struct Notes {
    /// A group has both floats and histograms.
    pub(super) is_mixed: bool,
    /// One histogram of a group is marked as reset, another as not reset.
    pub(super) has_collision: bool,
    /// Custom bounds differ.
    pub(super) has_other_bounds: bool,
    /// Metrics of histograms whose buckets are incompatible with earlier ones.
    pub(super) incompatible: BTreeSet<String>,
}

impl Notes {
    /// Adds the conditions of `other`.
    pub(super) fn merge(&mut self, other: Notes) {
        self.is_mixed |= other.is_mixed;
        self.has_collision |= other.has_collision;
        self.has_other_bounds |= other.has_other_bounds;
        self.incompatible.extend(other.incompatible);
    }
}

/// State of a group at a step.
///
/// Source: `aggregation` in `promql/engine.go` of Prometheus.
#[derive(Debug, Clone)]
pub(super) struct Partial {
    kind: Kind,
    float: Float,
    histogram: Added,
    /// True if a histogram is marked as reset.
    has_reset: bool,
    /// True if a histogram is marked as not reset.
    has_not_reset: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Empty,
    Floats,
    Histograms,
    /// Floats, then histograms: there is no result, and later values are ignored.
    FloatsFirst,
    /// Histograms, then floats: there is no result, but histograms are still added for their
    /// annotations.
    HistogramsFirst,
    /// Incompatible histograms: later values are ignored.
    Incompatible {
        is_mixed: bool,
    },
}

/// Result of a group at a step.
pub(super) enum Answer {
    Float(f64),
    Histogram(Arc<Histogram>),
}

impl Partial {
    /// Returns the state without values.
    pub(super) fn new(total: Total) -> Partial {
        let nothing = Histogram::default();
        Partial {
            kind: Kind::Empty,
            float: Float { total, sum: Sum::default(), count: 0.0, moves: false },
            histogram: match total {
                Total::Sum => Added::Sum(HistogramSum::new(nothing)),
                Total::Mean => Added::Mean(HistogramMean::new(nothing)),
            },
            has_reset: false,
            has_not_reset: false,
        }
    }

    /// Removes all values but keeps allocations.
    pub(super) fn clear(&mut self) {
        self.kind = Kind::Empty;
        (self.has_reset, self.has_not_reset) = (false, false);
    }

    /// Returns the bytes on the heap.
    pub(super) fn heap_bytes(&self) -> usize {
        self.histogram.heap_bytes()
    }

    /// Adds the value of a series. `metric` returns its name.
    #[inline]
    pub(super) fn update<'a>(
        &mut self,
        sample: Sample<'_>,
        notes: &mut Notes,
        metric: impl Fn() -> &'a str,
    ) {
        match sample {
            Sample::Float(value) => self.update_float(value),
            Sample::Histogram(histogram) => self.update_histogram(histogram, notes, metric),
        }
    }

    fn update_float(&mut self, value: f64) {
        match self.kind {
            Kind::Empty => {
                self.kind = Kind::Floats;
                self.float.restart(value);
            }
            Kind::Floats => self.float.add(value),
            Kind::Histograms => self.kind = Kind::HistogramsFirst,
            Kind::FloatsFirst | Kind::HistogramsFirst | Kind::Incompatible { .. } => {}
        }
    }

    fn update_histogram<'a>(
        &mut self,
        histogram: &Histogram,
        notes: &mut Notes,
        metric: impl Fn() -> &'a str,
    ) {
        match self.kind {
            Kind::Empty => {
                self.kind = Kind::Histograms;
                self.histogram.restart(histogram);
                self.see_hint(histogram.reset_hint);
            }
            Kind::Histograms | Kind::HistogramsFirst => {
                self.see_hint(histogram.reset_hint);
                match self.histogram.add(histogram) {
                    Ok(combined) => notes.has_other_bounds |= combined.bounds_reconciled,
                    Err(_) => {
                        let metric = metric();
                        if !notes.incompatible.contains(metric) {
                            notes.incompatible.insert(metric.to_owned());
                        }
                        let is_mixed = self.kind == Kind::HistogramsFirst;
                        self.kind = Kind::Incompatible { is_mixed };
                    }
                }
            }
            Kind::Floats => self.kind = Kind::FloatsFirst,
            Kind::FloatsFirst | Kind::Incompatible { .. } => {}
        }
    }

    fn see_hint(&mut self, hint: ResetHint) {
        self.has_reset |= hint == ResetHint::Reset;
        self.has_not_reset |= hint == ResetHint::NotReset;
    }

    /// Returns the result, if any. Afterwards, the state must be cleared.
    pub(super) fn finish(&mut self, notes: &mut Notes) -> Option<Answer> {
        match self.kind {
            Kind::Empty | Kind::Incompatible { is_mixed: false } => None,
            Kind::Floats => Some(Answer::Float(self.float.finish())),
            Kind::Histograms => {
                notes.has_collision |= self.has_reset && self.has_not_reset;
                let mut histogram = self.histogram.finish();
                histogram.compact(0);
                Some(Answer::Histogram(Arc::new(histogram)))
            }
            Kind::FloatsFirst | Kind::HistogramsFirst | Kind::Incompatible { is_mixed: true } => {
                notes.is_mixed = true;
                None
            }
        }
    }
}

/// Sum or mean of floats.
#[derive(Debug, Clone, Copy)]
struct Float {
    total: Total,
    sum: Sum,
    count: f64,
    /// True if `sum` is a running mean, because the sum would overflow.
    moves: bool,
}

impl Float {
    fn restart(&mut self, first: f64) {
        *self = Float { total: self.total, sum: Sum::new(first), count: 1.0, moves: false };
    }

    fn add(&mut self, value: f64) {
        let sum = self.sum.plus(value);
        if self.total == Total::Sum {
            self.sum = sum;
            return;
        }
        self.count += 1.0;
        if !self.moves {
            if !sum.sum.is_infinite() {
                self.sum = sum;
                return;
            }
            self.moves = true;
            self.sum = divided(self.sum, self.count - 1.0);
        }
        let weight = (self.count - 1.0) / self.count;
        let Sum { sum, compensation } = self.sum;
        let weighted = Sum { sum: weight * sum, compensation: weight * compensation };
        self.sum = weighted.plus(value / self.count);
    }

    fn finish(&self) -> f64 {
        let is_done = self.total == Total::Sum || self.moves;
        let Sum { sum, compensation } =
            if is_done { self.sum } else { divided(self.sum, self.count) };
        sum + compensation
    }
}

fn divided(sum: Sum, by: f64) -> Sum {
    Sum { sum: sum.sum / by, compensation: sum.compensation / by }
}

#[derive(Debug, Clone)]
enum Added {
    Sum(HistogramSum),
    Mean(HistogramMean),
}

impl Added {
    fn restart(&mut self, first: &Histogram) {
        match self {
            Added::Sum(sum) => sum.restart(first),
            Added::Mean(mean) => mean.restart(first),
        }
    }

    fn add(&mut self, other: &Histogram) -> Result<Combined, HistogramError> {
        match self {
            Added::Sum(sum) => sum.add(other),
            Added::Mean(mean) => mean.add(other),
        }
    }

    fn finish(&mut self) -> Histogram {
        match self {
            Added::Sum(sum) => sum.finish(),
            Added::Mean(mean) => mean.finish(),
        }
    }

    fn heap_bytes(&self) -> usize {
        match self {
            Added::Sum(sum) => sum.heap_bytes(),
            Added::Mean(mean) => mean.heap_bytes(),
        }
    }
}
