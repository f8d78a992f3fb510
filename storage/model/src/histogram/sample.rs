//! Native histogram with its time.

use std::sync::Arc;

use super::Histogram;

/// Native histogram as a sample.
#[derive(Debug, Clone)]
pub struct HistogramSample {
    /// Time in ms since the epoch.
    pub timestamp_ms: i64,
    /// Start timestamp in ms since the epoch; 0 if unknown.
    pub start_ms: i64,
    /// Value; a staleness marker if its sum is one.
    pub histogram: Arc<Histogram>,
}
