//! Limits of one write request, and of all at once.

use std::time::Duration;

use model::labels::LABEL_BYTES_MAX;

/// Limits of write requests.
#[derive(Debug, Clone)]
pub struct Limits {
    /// Bytes of a request as sent.
    pub body_bytes_max: usize,
    /// Bytes of a request once decompressed.
    pub decompressed_bytes_max: usize,
    /// Series of a request.
    pub series_max: usize,
    /// Samples of a request.
    pub samples_max: usize,
    /// Labels of a series.
    pub labels_per_series_max: usize,
    /// Bytes of a label name.
    pub label_name_bytes_max: usize,
    /// Bytes of a label value.
    pub label_value_bytes_max: usize,
    /// Bytes of all requests at once, compressed and decompressed.
    pub inflight_bytes_max: usize,
    /// Timeout for receiving a request.
    pub body_timeout: Duration,
    /// Names of the limits in error texts.
    pub names: LimitNames,
}

/// Names of [`Limits`] in error texts, such as the settings behind them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs, reason = "each field is the name of the limit that has its name")]
pub struct LimitNames {
    pub decompressed_bytes_max: &'static str,
    pub series_max: &'static str,
    pub samples_max: &'static str,
    pub labels_per_series_max: &'static str,
    pub label_name_bytes_max: &'static str,
    pub label_value_bytes_max: &'static str,
}

impl LimitNames {
    /// Names of the fields.
    pub const FIELDS: LimitNames = LimitNames {
        decompressed_bytes_max: "decompressed_bytes_max",
        series_max: "series_max",
        samples_max: "samples_max",
        labels_per_series_max: "labels_per_series_max",
        label_name_bytes_max: "label_name_bytes_max",
        label_value_bytes_max: "label_value_bytes_max",
    };
}

/// Largest valid [`Limits::decompressed_bytes_max`]: positions in a decoded request have 32 bits.
pub const DECOMPRESSED_BYTES_CEILING: usize = 1 << 30;

/// Returns the maximum length of a text by its limit and the packed form.
pub(crate) fn text_bytes_max(limit: usize) -> usize {
    limit.min(LABEL_BYTES_MAX)
}

impl Limits {
    /// Returns a function from name and value of a label to whether they are within the limits.
    #[inline]
    pub(crate) fn fits_label(&self) -> impl Fn(&str, &str) -> bool {
        let [name_bytes_max, value_bytes_max] =
            [self.label_name_bytes_max, self.label_value_bytes_max].map(text_bytes_max);
        move |name, value| name.len() <= name_bytes_max && value.len() <= value_bytes_max
    }
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
            names: LimitNames::FIELDS,
        }
    }
}
