//! Reasons for which samples of a write are refused.

use std::fmt;

/// Reason for which a sample was refused. Prints as Prometheus words it, where Prometheus has it.
///
/// Source: `ErrOutOfBounds` and its neighbours in `storage/interface.go` of Prometheus.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum RejectReason {
    /// No metric name, an empty label name, or bytes that are not UTF-8.
    InvalidLabels,
    /// A label name occurs twice.
    DuplicateLabel,
    /// A reference to a symbol that is not there, or an odd number of references.
    Reference,
    /// A series without samples, histograms and exemplars.
    Shape,
    /// Labels are more or longer than the limits allow.
    LabelLimit,
    /// A native histogram contradicts itself or has too many buckets.
    Histogram,
    /// A data point, or all of a metric, has nothing that can be stored.
    DataPoint,
    /// Deltas, or sums without a temporality.
    Temporality,
    /// Older than the newest sample of its series, while no out-of-order window is set.
    OutOfOrder,
    /// Older than the out-of-order window.
    TooOld,
    /// Older than the retention, or too far in the future.
    OutOfBounds,
    /// Another value is already stored for that time.
    DuplicateTimestamp,
    /// The limit of active series is reached.
    ActiveSeries,
    /// The limit of active series of one metric is reached.
    ActiveSeriesOfMetric,
    /// The limit of active series of one tenant is reached.
    ActiveSeriesOfTenant,
    /// The head has no memory for new series.
    HeadSize,
}

impl RejectReason {
    /// All reasons, in the order of their discriminants.
    pub const ALL: [RejectReason; 16] = [
        RejectReason::InvalidLabels,
        RejectReason::DuplicateLabel,
        RejectReason::Reference,
        RejectReason::Shape,
        RejectReason::LabelLimit,
        RejectReason::Histogram,
        RejectReason::DataPoint,
        RejectReason::Temporality,
        RejectReason::OutOfOrder,
        RejectReason::TooOld,
        RejectReason::OutOfBounds,
        RejectReason::DuplicateTimestamp,
        RejectReason::ActiveSeries,
        RejectReason::ActiveSeriesOfMetric,
        RejectReason::ActiveSeriesOfTenant,
        RejectReason::HeadSize,
    ];

    /// Returns whether a limit of the head was reached, which may have room later. The store logs
    /// these.
    pub fn is_for_want_of_room(self) -> bool {
        use RejectReason::{ActiveSeries, ActiveSeriesOfMetric, ActiveSeriesOfTenant, HeadSize};
        matches!(self, ActiveSeries | ActiveSeriesOfMetric | ActiveSeriesOfTenant | HeadSize)
    }

    /// Returns the value of the label `reason` in metrics.
    pub fn as_str(self) -> &'static str {
        match self {
            RejectReason::InvalidLabels => "invalid_labels",
            RejectReason::DuplicateLabel => "duplicate_label",
            RejectReason::Reference => "invalid_reference",
            RejectReason::Shape => "invalid_series",
            RejectReason::LabelLimit => "label_limit",
            RejectReason::Histogram => "invalid_histogram",
            RejectReason::DataPoint => "invalid_data_point",
            RejectReason::Temporality => "unsupported_temporality",
            RejectReason::OutOfOrder => "out_of_order",
            RejectReason::TooOld => "too_old",
            RejectReason::OutOfBounds => "out_of_bounds",
            RejectReason::DuplicateTimestamp => "duplicate_timestamp",
            RejectReason::ActiveSeries => "active_series",
            RejectReason::ActiveSeriesOfMetric => "active_series_per_metric",
            RejectReason::ActiveSeriesOfTenant => "active_series_per_tenant",
            RejectReason::HeadSize => "head_size",
        }
    }
}

impl fmt::Display for RejectReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            RejectReason::InvalidLabels => "invalid labels",
            RejectReason::DuplicateLabel => "duplicate label name",
            RejectReason::Reference => "invalid symbol reference",
            RejectReason::Shape => "series without samples",
            RejectReason::LabelLimit => "label name or value too long",
            RejectReason::Histogram => "histogram with invalid or too many buckets",
            RejectReason::DataPoint => "invalid data point",
            RejectReason::Temporality => "unsupported temporality",
            RejectReason::OutOfOrder => "out of order sample",
            RejectReason::TooOld => "too old sample",
            RejectReason::OutOfBounds => "out of bounds",
            RejectReason::DuplicateTimestamp => "duplicate sample for timestamp",
            RejectReason::ActiveSeries => "too many active series",
            RejectReason::ActiveSeriesOfMetric => "too many active series of one metric",
            RejectReason::ActiveSeriesOfTenant => "too many active series of the tenant",
            RejectReason::HeadSize => "no memory for new series",
        })
    }
}
