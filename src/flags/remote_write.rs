//! Flags of the limits of remote write.

use std::time::Duration;

use wire::{DECOMPRESSED_BYTES_CEILING, Limits};

use super::{names, parse_positive_duration};
use crate::units::parse_bytes;

/// Flags of the limits of remote write.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct RemoteWriteArgs {
    /// Maximum size of a remote write request as sent.
    #[arg(long = names::BODY_FLAG, value_name = "SIZE", default_value = "32MiB", value_parser = parse_bytes)]
    pub(crate) body_bytes_max: u64,

    /// Maximum size of a decompressed remote write request, at most 1GiB.
    #[arg(long = names::DECOMPRESSED_FLAG, value_name = "SIZE", default_value = "32MiB", value_parser = parse_decompressed)]
    pub(crate) decompressed_bytes_max: u64,

    /// Maximum number of series in a remote write request.
    #[arg(
        long = names::SERIES_FLAG,
        value_name = "COUNT",
        default_value_t = 100_000
    )]
    pub(crate) series_max: u32,

    /// Maximum number of samples in a remote write request.
    #[arg(
        long = names::SAMPLES_FLAG,
        value_name = "COUNT",
        default_value_t = 1_000_000
    )]
    pub(crate) samples_max: u32,

    /// Maximum number of active series, which have samples in the head; samples of further series
    /// are rejected with status 429. 0 disables the limit.
    #[arg(
        long = names::ACTIVE_FLAG,
        value_name = "COUNT",
        default_value_t = storage::ACTIVE_SERIES_MAX as u32
    )]
    pub(crate) active_series_max: u32,

    /// Maximum number of active series of one metric; 0 disables the limit.
    #[arg(
        long = names::ACTIVE_PER_METRIC_FLAG,
        value_name = "COUNT",
        default_value_t = storage::ACTIVE_SERIES_PER_METRIC_MAX as u32
    )]
    pub(crate) active_series_per_metric_max: u32,

    /// Maximum number of labels of a series.
    #[arg(
        long = names::LABELS_FLAG,
        value_name = "COUNT",
        default_value_t = 512
    )]
    pub(crate) labels_per_series_max: u32,

    /// Maximum length of a label name, in bytes.
    #[arg(
        long = names::LABEL_NAME_FLAG,
        value_name = "BYTES",
        default_value_t = 1024
    )]
    pub(crate) label_name_bytes_max: u32,

    /// Maximum length of a label value, in bytes.
    #[arg(
        long = names::LABEL_VALUE_FLAG,
        value_name = "BYTES",
        default_value_t = 16384
    )]
    pub(crate) label_value_bytes_max: u32,

    /// Maximum memory of all remote write requests in progress, as a size.
    #[arg(long = names::INFLIGHT_FLAG, value_name = "SIZE", default_value = "256MiB", value_parser = parse_bytes)]
    pub(crate) inflight_bytes_max: u64,

    /// Maximum time to receive a remote write request, as a duration.
    #[arg(long = names::BODY_TIMEOUT_FLAG, value_name = "DURATION", default_value = "30s", value_parser = parse_positive_duration)]
    pub(crate) body_timeout: Duration,
}

impl RemoteWriteArgs {
    /// Returns the limits of the receiver.
    pub(crate) fn limits(&self) -> Limits {
        let size = |bytes: u64| usize::try_from(bytes).unwrap_or(usize::MAX);
        Limits {
            body_bytes_max: size(self.body_bytes_max),
            decompressed_bytes_max: size(self.decompressed_bytes_max),
            series_max: self.series_max as usize,
            samples_max: self.samples_max as usize,
            labels_per_series_max: self.labels_per_series_max as usize,
            label_name_bytes_max: self.label_name_bytes_max as usize,
            label_value_bytes_max: self.label_value_bytes_max as usize,
            inflight_bytes_max: size(self.inflight_bytes_max),
            body_timeout: self.body_timeout,
            names: names::LIMIT_NAMES,
        }
    }
}

fn parse_decompressed(text: &str) -> Result<u64, String> {
    match parse_bytes(text)? {
        bytes if bytes > DECOMPRESSED_BYTES_CEILING as u64 => {
            Err("must be at most 1GiB".to_owned())
        }
        bytes => Ok(bytes),
    }
}
