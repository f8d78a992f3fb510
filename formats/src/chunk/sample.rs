//! Samples of a chunk, and errors of decoding them.

use model::HistogramSample;
use model::histogram::HISTOGRAM_BUCKETS_MAX;

/// A decoded sample.
#[derive(Debug, Clone)]
pub enum ChunkSample {
    /// A float.
    Float {
        /// Timestamp, ms since the epoch.
        timestamp_ms: i64,
        /// Start timestamp; 0 if unknown.
        start_ms: i64,
        /// Value.
        value: f64,
    },
    /// A valid native histogram.
    Histogram(HistogramSample),
    /// A native histogram that contradicts itself.
    Invalid {
        /// Timestamp, ms since the epoch.
        timestamp_ms: i64,
        /// Description of the error.
        detail: String,
    },
}

impl ChunkSample {
    /// Timestamp, ms since the epoch.
    pub fn timestamp_ms(&self) -> i64 {
        match self {
            ChunkSample::Float { timestamp_ms, .. } | ChunkSample::Invalid { timestamp_ms, .. } => {
                *timestamp_ms
            }
            ChunkSample::Histogram(sample) => sample.timestamp_ms,
        }
    }
}

/// Error of decoding a chunk.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ChunkError {
    /// The chunk ends before its last sample.
    #[error("the chunk is truncated")]
    Truncated,
    /// An encoding that is not supported.
    #[error("chunk encoding {0} is not supported")]
    UnknownEncoding(u8),
    /// More buckets than [`HISTOGRAM_BUCKETS_MAX`].
    #[error("a histogram of more than {HISTOGRAM_BUCKETS_MAX} buckets, spans or bounds")]
    TooManyBuckets,
    /// BitWriter that no encoder writes.
    #[error("the chunk has {0}")]
    Invalid(&'static str),
}
