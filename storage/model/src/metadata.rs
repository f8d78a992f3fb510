//! Metadata of metrics: type, description and unit.

use std::sync::Arc;

/// Type of a metric.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum MetricKind {
    /// No type was sent.
    #[default]
    Unknown,
    /// Only increases, except at resets.
    Counter,
    /// Increases and decreases.
    Gauge,
    /// Observations in buckets, classic or native.
    Histogram,
    /// Observations in buckets whose counts can decrease.
    GaugeHistogram,
    /// Observations with quantiles.
    Summary,
    /// Descriptive labels, with the value 1.
    Info,
    /// State out of a fixed set.
    StateSet,
}

impl MetricKind {
    /// Returns its name in the API of Prometheus.
    pub fn as_str(self) -> &'static str {
        match self {
            MetricKind::Unknown => "unknown",
            MetricKind::Counter => "counter",
            MetricKind::Gauge => "gauge",
            MetricKind::Histogram => "histogram",
            MetricKind::GaugeHistogram => "gaugehistogram",
            MetricKind::Summary => "summary",
            MetricKind::Info => "info",
            MetricKind::StateSet => "stateset",
        }
    }
}

/// One metadata entry of a metric.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MetricMetadata {
    /// Type.
    pub kind: MetricKind,
    /// Description.
    pub help: String,
    /// Unit of the values.
    pub unit: String,
}

/// Metric with all of its metadata entries.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KnownMetric {
    /// Name of the metric.
    pub metric: Arc<str>,
    /// Distinct entries, the latest last.
    pub entries: Arc<[MetricMetadata]>,
}
