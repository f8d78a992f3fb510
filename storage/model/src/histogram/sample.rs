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

impl HistogramSample {
    /// Returns the bytes that the sample takes in memory, shared ones included.
    pub fn memory_bytes(&self) -> usize {
        size_of::<HistogramSample>()
            + size_of::<Histogram>()
            + self.histogram.heap_bytes()
            + size_of_val(&*self.histogram.custom_bounds)
    }
}
