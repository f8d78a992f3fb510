//! Exemplars: single observations that point at something beside the series, such as a trace.

use crate::hash::xxh64;
use crate::labels::Labels;

/// One exemplar of a series.
#[derive(Debug, Clone, PartialEq)]
pub struct Exemplar {
    /// Its own labels, such as a trace id.
    pub labels: Labels,
    /// Its time, ms since the epoch.
    pub timestamp_ms: i64,
    /// The value that was observed.
    pub value: f64,
}

/// A series and some of its exemplars.
#[derive(Debug, Clone, PartialEq)]
pub struct SeriesExemplars {
    /// The series.
    pub labels: Labels,
    /// Its exemplars by time, those of one time as they came.
    pub exemplars: Vec<Exemplar>,
}

impl Exemplar {
    /// Whether the other says the same. One with a NaN is never the same.
    ///
    /// Source: `Exemplar.Equals` of Prometheus.
    pub fn is_same(&self, other: &Exemplar) -> bool {
        self.timestamp_ms == other.timestamp_ms
            && self.value == other.value
            && self.labels == other.labels
    }

    /// Whether it stands before another of the same time: by value, then by the hash of the
    /// labels.
    ///
    /// Source: `validateExemplar` in `tsdb/exemplar.go` of Prometheus.
    pub fn is_before_at_same_time(&self, other: &Exemplar) -> bool {
        let hash = |exemplar: &Exemplar| xxh64(exemplar.labels.as_bytes());
        self.value < other.value || (self.value == other.value && hash(self) < hash(other))
    }
}
