//! Partial of one group at one step, of floats and histograms.

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

/// Conditions that Prometheus warns of.
#[derive(Debug, Default)]
pub(super) struct Notes {
    /// A group has both floats and histograms.
    pub(super) is_mixed: bool,
    /// Of two histograms of a group one is marked as reset, the other as not reset.
    pub(super) has_collision: bool,
    /// Custom buckets had other bounds.
    pub(super) has_other_bounds: bool,
    /// The metrics of the histograms whose buckets do not go with those before them.
    pub(super) incompatible: BTreeSet<String>,
}

impl Notes {
    /// Takes in those of another.
    pub(super) fn merge(&mut self, other: Notes) {
        self.is_mixed |= other.is_mixed;
        self.has_collision |= other.has_collision;
        self.has_other_bounds |= other.has_other_bounds;
        self.incompatible.extend(other.incompatible);
    }
}

/// The state of a group at a step.
///
/// Source: `aggregation` in `promql/engine.go` of Prometheus.
#[derive(Debug, Clone)]
pub(super) struct Partial {
    kind: Kind,
    float: Float,
    histogram: Added,
    /// Some histogram is marked as reset.
    has_reset: bool,
    /// Some histogram is marked as not reset.
    has_not_reset: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Empty,
    Floats,
    Histograms,
    /// Floats first, then histograms, which are not even looked at: there is no answer.
    FloatsFirst,
    /// Histograms first, then floats: there is no answer, but histograms are still added up, for
    /// what is to be said of them.
    HistogramsFirst,
    /// Histograms that do not go together: all that follows is ignored.
    Incompatible {
        is_mixed: bool,
    },
}

/// The answer of a group at a step.
pub(super) enum Answer {
    Float(f64),
    Histogram(Arc<Histogram>),
}

impl Partial {
    /// The state before anything has been seen.
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

    /// Forgets all that has been seen. What has been allocated serves again.
    pub(super) fn clear(&mut self) {
        self.kind = Kind::Empty;
        (self.has_reset, self.has_not_reset) = (false, false);
    }

    /// Bytes on the heap.
    pub(super) fn heap_bytes(&self) -> usize {
        self.histogram.heap_bytes()
    }

    /// Takes in what a series has. `metric` gives its name.
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

    /// The answer, if there is one. The state is of no use then, but it can be cleared.
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

/// A sum or a mean of floats.
#[derive(Debug, Clone, Copy)]
struct Float {
    total: Total,
    sum: Sum,
    count: f64,
    /// True if `sum` is the mean already, since the sum would overflow.
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
