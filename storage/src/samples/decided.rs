//! Histogram with the final reset hint.

use model::{Histogram, HistogramSample};

use crate::chunk::HistogramBefore;

/// Histogram that has been accepted.
#[derive(Debug, Clone)]
pub(crate) struct DecidedHistogram {
    /// Canonical, with the final hint.
    pub(crate) sample: HistogramSample,
    /// Histogram that the hint refers to, if it states that the counter was not reset.
    pub(crate) before: Option<HistogramBefore>,
}

/// Returns whether two histograms differ at most in their hints.
///
/// Source: `Histogram.Equals` in `model/histogram/histogram.go` of Prometheus, by which its head
/// detects duplicates.
pub(crate) fn has_same_value(a: &Histogram, b: &Histogram) -> bool {
    if a.reset_hint == b.reset_hint {
        return a == b;
    }
    *a == Histogram { reset_hint: a.reset_hint, ..b.clone() }
}
