//! What metrics are, as it is kept for each of them.

use std::sync::Arc;

use crate::batch::MetricKind;

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
