//! Exemplars: single observations with a reference to data outside the series, such as a trace.

use crate::hash::xxh64;
use crate::labels::Labels;

/// One exemplar of a series.
#[derive(Debug, Clone, PartialEq)]
pub struct Exemplar {
    /// Labels of the exemplar, such as a trace id.
    pub labels: Labels,
    /// Time in ms since the epoch.
    pub timestamp_ms: i64,
    /// Observed value.
    pub value: f64,
}

/// A series and some of its exemplars.
#[derive(Debug, Clone, PartialEq)]
pub struct SeriesExemplars {
    /// Labels of the series.
    pub labels: Labels,
    /// Exemplars by time; those of one time in order of arrival.
    pub exemplars: Vec<Exemplar>,
}

impl Exemplar {
    /// Returns whether both have the same time, value and labels; never if the value is NaN.
    ///
    /// Source: `Exemplar.Equals` of Prometheus.
    pub fn is_same(&self, other: &Exemplar) -> bool {
        self.timestamp_ms == other.timestamp_ms
            && self.value == other.value
            && self.labels == other.labels
    }

    /// Returns whether it sorts before another of the same time: by value, then by the hash of
    /// the labels.
    ///
    /// Source: `validateExemplar` in `tsdb/exemplar.go` of Prometheus.
    pub fn is_before_at_same_time(&self, other: &Exemplar) -> bool {
        let hash = |exemplar: &Exemplar| xxh64(exemplar.labels.as_bytes());
        self.value < other.value || (self.value == other.value && hash(self) < hash(other))
    }
}
