//! A native histogram with its time.

use std::sync::Arc;

use super::Histogram;

/// A native histogram as a sample.
#[derive(Debug, Clone)]
pub struct HistogramSample {
    /// Its time, ms since the epoch.
    pub timestamp_ms: i64,
    /// Since when its counter counts, ms since the epoch; 0 where that is not known.
    pub start_ms: i64,
    /// Its value; a staleness marker is one whose sum is.
    pub histogram: Arc<Histogram>,
}
