//! A decoded request. Texts are borrowed from the message if possible.
//!
//! Source: `opentelemetry/proto/metrics/v1/metrics.proto` and `common/v1/common.proto` of the
//! OpenTelemetry protocol, without fields that Prometheus ignores.

use std::borrow::Cow;

use super::protobuf::EncodedAttributes;

/// Maximum depth of nested values.
pub(super) const VALUE_DEPTH_MAX: usize = 64;

/// Bit of `flags` that marks the end of a series.
const NO_RECORDED_VALUE: u32 = 1;

/// A text, borrowed from the message unless it has escapes.
pub(super) type Text<'a> = Cow<'a, str>;

/// Metrics of one resource.
#[derive(Debug, Default)]
pub(super) struct ResourceMetrics<'a> {
    pub(super) attributes: Vec<Attribute<'a>>,
    pub(super) scopes: Vec<ScopeMetrics<'a>>,
    /// Scopes of old senders, used if there are no others.
    pub(super) deprecated_scopes: Vec<ScopeMetrics<'a>>,
}

/// Metrics of one instrumentation scope.
#[derive(Debug, Default)]
pub(super) struct ScopeMetrics<'a> {
    pub(super) scope: Scope<'a>,
    pub(super) schema_url: Text<'a>,
    pub(super) metrics: Vec<Metric<'a>>,
}

/// An instrumentation scope.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Scope<'a> {
    pub(super) name: Text<'a>,
    pub(super) version: Text<'a>,
    pub(super) attributes: Vec<Attribute<'a>>,
}

/// A metric with its data points.
#[derive(Debug, Default)]
pub(super) struct Metric<'a> {
    pub(super) name: Text<'a>,
    pub(super) description: Text<'a>,
    pub(super) unit: Text<'a>,
    pub(super) data: Data<'a>,
}

/// Data points of one kind.
#[derive(Debug, Default)]
pub(super) enum Data<'a> {
    #[default]
    Empty,
    Gauge(DataPoints<NumberPoint<'a>>),
    Sum(DataPoints<NumberPoint<'a>>),
    Histogram(DataPoints<HistogramPoint<'a>>),
    Exponential(DataPoints<ExponentialPoint<'a>>),
    Summary(DataPoints<SummaryPoint<'a>>),
}

/// Kind of data points.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum DataKind {
    Gauge,
    Sum,
    Histogram,
    Exponential,
    Summary,
}

impl DataKind {
    /// Returns the name of the field of a metric.
    pub(super) fn name(self) -> &'static str {
        match self {
            DataKind::Gauge => "gauge",
            DataKind::Sum => "sum",
            DataKind::Histogram => "histogram",
            DataKind::Exponential => "exponential_histogram",
            DataKind::Summary => "summary",
        }
    }

    /// Returns whether data points of this kind are deltas or cumulative.
    pub(super) fn has_temporality(self) -> bool {
        !matches!(self, DataKind::Gauge | DataKind::Summary)
    }
}

/// Data points of one kind, with their common properties.
#[derive(Debug)]
pub(super) struct DataPoints<P> {
    pub(super) points: Vec<P>,
    /// Of sums and of histograms.
    pub(super) temporality: i32,
    /// Of sums.
    pub(super) is_monotonic: bool,
}

impl<P> Default for DataPoints<P> {
    fn default() -> Self {
        DataPoints { points: Vec::new(), temporality: 0, is_monotonic: false }
    }
}

/// Common fields of all data points. Units: ns since the epoch, 0 if unknown.
#[derive(Debug, Default)]
pub(super) struct Point<'a> {
    pub(super) attributes: Vec<Attribute<'a>>,
    /// Attributes that follow those. They are decoded when they are needed: mostly, they differ in
    /// a few values from those of the data point before.
    pub(super) encoded: Option<EncodedAttributes<'a>>,
    pub(super) start_ns: u64,
    pub(super) time_ns: u64,
    pub(super) flags: u32,
}

/// A data point with a number; 0 if absent.
#[derive(Debug, Default)]
pub(super) struct NumberPoint<'a> {
    pub(super) point: Point<'a>,
    pub(super) value: f64,
    pub(super) exemplars: Vec<Exemplar<'a>>,
}

/// A data point with a histogram of explicit bounds.
#[derive(Debug, Default)]
pub(super) struct HistogramPoint<'a> {
    pub(super) point: Point<'a>,
    pub(super) count: u64,
    pub(super) sum: Option<f64>,
    pub(super) bucket_counts: Vec<u64>,
    pub(super) explicit_bounds: Vec<f64>,
    pub(super) exemplars: Vec<Exemplar<'a>>,
}

/// A data point with an exponential histogram.
#[derive(Debug, Default)]
pub(super) struct ExponentialPoint<'a> {
    pub(super) point: Point<'a>,
    pub(super) count: u64,
    pub(super) sum: Option<f64>,
    pub(super) scale: i32,
    pub(super) zero_count: u64,
    pub(super) positive: Buckets,
    pub(super) negative: Buckets,
    pub(super) exemplars: Vec<Exemplar<'a>>,
}

/// The buckets on one side of zero, without gaps.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Buckets {
    pub(super) offset: i32,
    pub(super) counts: Vec<u64>,
}

/// A data point with a summary.
#[derive(Debug, Default)]
pub(super) struct SummaryPoint<'a> {
    pub(super) point: Point<'a>,
    pub(super) count: u64,
    pub(super) sum: f64,
    pub(super) quantiles: Vec<Quantile>,
}

/// A quantile and its value.
#[derive(Debug, Default, Clone, Copy, PartialEq)]
pub(super) struct Quantile {
    pub(super) quantile: f64,
    pub(super) value: f64,
}

/// An exemplar.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Exemplar<'a> {
    pub(super) attributes: Vec<Attribute<'a>>,
    pub(super) time_ns: u64,
    pub(super) value: Option<f64>,
    /// All 0 if absent, like `span_id`.
    pub(super) trace_id: [u8; 16],
    pub(super) span_id: [u8; 8],
}

/// A name and its value.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Attribute<'a> {
    pub(super) key: Text<'a>,
    pub(super) value: AnyValue<'a>,
}

/// The value of an attribute.
#[derive(Debug, Default, PartialEq)]
pub(super) enum AnyValue<'a> {
    #[default]
    Empty,
    Text(Text<'a>),
    Bool(bool),
    Integer(i64),
    Double(f64),
    List(Vec<AnyValue<'a>>),
    Map(Vec<Attribute<'a>>),
    Bytes(Cow<'a, [u8]>),
}

impl<'a> ResourceMetrics<'a> {
    /// Returns the scopes in use.
    pub(super) fn scopes(&self) -> &[ScopeMetrics<'a>] {
        if self.scopes.is_empty() { &self.deprecated_scopes } else { &self.scopes }
    }
}

impl Point<'_> {
    /// Returns whether the point is a staleness marker.
    pub(super) fn is_stale(&self) -> bool {
        self.flags & NO_RECORDED_VALUE != 0
    }
}

impl Data<'_> {
    /// Number of data points.
    pub(super) fn point_count(&self) -> usize {
        match self {
            Data::Empty => 0,
            Data::Gauge(numbers) | Data::Sum(numbers) => numbers.points.len(),
            Data::Histogram(histograms) => histograms.points.len(),
            Data::Exponential(exponentials) => exponentials.points.len(),
            Data::Summary(summaries) => summaries.points.len(),
        }
    }
}
