//! Limits of one remote write request, and of all at once.

use std::time::Duration;

use model::labels::LABEL_BYTES_MAX;

/// Limits of `POST /api/v1/write`, each with its flag.
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
    /// `--remote-write.max-inflight-size`: bytes of all requests at once, compressed and
    /// decompressed.
    pub inflight_bytes_max: usize,
    /// `--remote-write.body-timeout`: timeout for receiving a request.
    pub body_timeout: Duration,
}

/// Name of the flag of [`Limits::body_bytes_max`].
pub const BODY_FLAG: &str = "remote-write.max-body-size";
/// Name of the flag of [`Limits::decompressed_bytes_max`].
pub const DECOMPRESSED_FLAG: &str = "remote-write.max-decompressed-size";
/// Name of the flag of [`Limits::series_max`].
pub const SERIES_FLAG: &str = "remote-write.max-series-per-request";
/// Name of the flag of [`Limits::samples_max`].
pub const SAMPLES_FLAG: &str = "remote-write.max-samples-per-request";
/// Name of the flag of [`Limits::labels_per_series_max`].
pub const LABELS_FLAG: &str = "remote-write.max-labels-per-series";
/// Name of the flag of [`Limits::label_name_bytes_max`].
pub const LABEL_NAME_FLAG: &str = "remote-write.max-label-name-length";
/// Name of the flag of [`Limits::label_value_bytes_max`].
pub const LABEL_VALUE_FLAG: &str = "remote-write.max-label-value-length";
/// Name of the flag of [`Limits::inflight_bytes_max`].
pub const INFLIGHT_FLAG: &str = "remote-write.max-inflight-size";
/// Name of the flag that limits active series.
pub const ACTIVE_FLAG: &str = "remote-write.max-active-series";
/// Name of the flag that limits active series of one metric.
pub const ACTIVE_PER_METRIC_FLAG: &str = "remote-write.max-active-series-per-metric";
/// Name of the flag that limits the memory of the head.
pub const HEAD_FLAG: &str = "storage.head-size";
/// Name of the flag of [`Limits::body_timeout`].
pub const BODY_TIMEOUT_FLAG: &str = "remote-write.body-timeout";

/// Largest valid [`Limits::decompressed_bytes_max`]: positions in a decoded request have 32 bits.
pub const DECOMPRESSED_BYTES_CEILING: usize = 1 << 30;

/// Returns the maximum length of a text by its limit and the packed form.
pub(crate) fn text_bytes_max(limit: usize) -> usize {
    limit.min(LABEL_BYTES_MAX)
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            // As in the receiver of Prometheus.
            body_bytes_max: 32 << 20,
            decompressed_bytes_max: 32 << 20,
            series_max: 100_000,
            samples_max: 1_000_000,
            labels_per_series_max: 512,
            // Prometheus has no such limits.
            label_name_bytes_max: 1024,
            label_value_bytes_max: 16 << 10,
            inflight_bytes_max: 256 << 20,
            body_timeout: Duration::from_secs(30),
        }
    }
}
