//! What metrics are, as it is kept for each of them.

use std::sync::Arc;

/// The type of a metric.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum MetricKind {
    /// Nobody has said.
    #[default]
    Unknown,
    /// Only grows, but for resets.
    Counter,
    /// Goes up and down.
    Gauge,
    /// Observations in buckets, classic or native.
    Histogram,
    /// Observations in buckets that can go down.
    GaugeHistogram,
    /// Observations with quantiles.
    Summary,
    /// Labels that describe something.
    Info,
    /// One of some states.
    StateSet,
}

impl MetricKind {
    /// The word for it in Prometheus' API.
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

/// What has been said about a metric.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MetricMetadata {
    /// Its type.
    pub kind: MetricKind,
    /// What it counts or measures.
    pub help: String,
    /// The unit of its values.
    pub unit: String,
}

/// A metric and all that has been said about it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KnownMetric {
    /// Its name.
    pub metric: Arc<str>,
    /// Each once, the latest last.
    pub entries: Arc<[MetricMetadata]>,
}
