//! A histogram with the decision on its hint.

use model::{Histogram, HistogramSample};

use crate::chunk::HistogramBefore;

/// A histogram that has been accepted.
#[derive(Debug, Clone)]
pub(crate) struct Decided {
    /// Canonical, with the hint that holds.
    pub(crate) sample: HistogramSample,
    /// The histogram that the hint was decided against, where it says that the counter went on.
    pub(crate) before: Option<HistogramBefore>,
}

/// Whether two histograms differ in their hints at most.
///
/// Source: `Histogram.Equals` in `model/histogram/histogram.go` of Prometheus, by which its head
/// tells duplicates.
pub(crate) fn has_same_value(a: &Histogram, b: &Histogram) -> bool {
    if a.reset_hint == b.reset_hint {
        return a == b;
    }
    *a == Histogram { reset_hint: a.reset_hint, ..b.clone() }
}
