//! What one remote write request may cost, and all of them together.

use std::time::Duration;

/// Limits of `POST /api/v1/write`. Each is set by the flag that its comment names.
#[derive(Debug, Clone)]
pub struct Limits {
    /// `--remote-write.max-body-size`: bytes of a request as sent.
    pub body_bytes_max: usize,
    /// `--remote-write.max-decompressed-size`: bytes of a request once decompressed.
    pub decompressed_bytes_max: usize,
    /// `--remote-write.max-series-per-request`.
    pub series_max: usize,
    /// `--remote-write.max-samples-per-request`.
    pub samples_max: usize,
    /// `--remote-write.max-labels-per-series`.
    pub labels_per_series_max: usize,
    /// `--remote-write.max-label-name-length`, in bytes.
    pub label_name_bytes_max: usize,
    /// `--remote-write.max-label-value-length`, in bytes.
    pub label_value_bytes_max: usize,
    /// `--remote-write.max-inflight-size`: bytes that all requests hold at once, each counted
    /// with its body and what it decompresses to.
    pub inflight_bytes_max: usize,
    /// `--remote-write.body-timeout`: how long a client may take to send its request.
    pub body_timeout: Duration,
}

/// Name of the flag behind [`Limits::body_bytes_max`].
pub const BODY_FLAG: &str = "remote-write.max-body-size";
/// Name of the flag behind [`Limits::decompressed_bytes_max`].
pub const DECOMPRESSED_FLAG: &str = "remote-write.max-decompressed-size";
/// Name of the flag behind [`Limits::series_max`].
pub const SERIES_FLAG: &str = "remote-write.max-series-per-request";
/// Name of the flag behind [`Limits::samples_max`].
pub const SAMPLES_FLAG: &str = "remote-write.max-samples-per-request";
/// Name of the flag behind [`Limits::labels_per_series_max`].
pub const LABELS_FLAG: &str = "remote-write.max-labels-per-series";
/// Name of the flag behind [`Limits::label_name_bytes_max`].
pub const LABEL_NAME_FLAG: &str = "remote-write.max-label-name-length";
/// Name of the flag behind [`Limits::label_value_bytes_max`].
pub const LABEL_VALUE_FLAG: &str = "remote-write.max-label-value-length";
/// Name of the flag behind [`Limits::inflight_bytes_max`].
pub const INFLIGHT_FLAG: &str = "remote-write.max-inflight-size";
/// Name of the flag that bounds active series.
pub const ACTIVE_FLAG: &str = "remote-write.max-active-series";
/// Name of the flag that bounds active series of one metric.
pub const ACTIVE_PER_METRIC_FLAG: &str = "remote-write.max-active-series-per-metric";
/// Name of the flag that bounds the memory of the head.
pub const HEAD_FLAG: &str = "storage.head-size";
/// Name of the flag behind [`Limits::body_timeout`].
pub const BODY_TIMEOUT_FLAG: &str = "remote-write.body-timeout";

/// The most that [`Limits::decompressed_bytes_max`] can be set to: positions in a decoded
/// request are 32 bits wide.
pub const DECOMPRESSED_BYTES_CEILING: usize = 1 << 30;

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            // These two are those of Prometheus' receiver.
            body_bytes_max: 32 << 20,
            decompressed_bytes_max: 32 << 20,
            series_max: 100_000,
            samples_max: 1_000_000,
            labels_per_series_max: 512,
            // Prometheus has no limit of its own for these two: as much as the store can keep.
            label_name_bytes_max: 1024,
            label_value_bytes_max: 16 << 10,
            inflight_bytes_max: 256 << 20,
            body_timeout: Duration::from_secs(30),
        }
    }
}
