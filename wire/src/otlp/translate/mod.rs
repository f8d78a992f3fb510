//! Translation of data points to series and samples.
//!
//! | OpenTelemetry | here |
//! |---|---|
//! | gauge | a gauge: one series per data point; its exemplars are dropped |
//! | sum, monotonic, cumulative | a counter, with exemplars |
//! | sum, not monotonic, cumulative | a gauge, with exemplars |
//! | histogram | `_sum` (if there is one), `_count`, a `_bucket` for each bound and one for `+Inf`; each exemplar at the first bucket that holds its value |
//! | histogram, with `convert_histograms_to_nhcb` | a native histogram with custom buckets |
//! | exponential histogram | a native histogram; zero threshold 1e-128 |
//! | summary | `_sum`, `_count`, and a series with `quantile` for each quantile |
//! | `start_time_unix_nano` | the start timestamp of each of these samples |
//! | the flag `NO_RECORDED_VALUE` | a staleness marker, without exemplars |
//! | name, unit, description | metadata of the metric, under its translated name |
//! | `service.namespace`, a slash, `service.name` | `job` |
//! | `service.instance.id` | `instance` |
//! | the resource, if it has other attributes and `job` or `instance` | `target_info`, from the first to the last timestamp of its data points, half a lookback apart; at most the newest 4,096 |
//! | the scope, with `promote_scope_metadata` | `otel_scope_name`, `…_version`, `…_schema_url`, and its attributes |
//! | delta temporality | rejected; or stored as it is, of unknown type, histograms as gauges |
//!
//! Timestamps are truncated to ms. Invalid metrics and data points are rejected and all others
//! stored; Prometheus stores nothing of such a request. A data point without a timestamp is
//! rejected; for Prometheus its timestamp is in 1970, which is mostly out of bounds.
//!
//! Source: `storage/remote/otlptranslator` of Prometheus.

mod target_info;

use std::collections::{HashMap, HashSet};
use std::hash::RandomState;
use std::sync::Arc;

use model::histogram::WireHistogram;
use model::labels::quoted;
use model::number_text::plain;
use model::{BatchSeries, HistogramSample, MetricKind, RejectReason, ResetHint, stale_nan};

use super::labels::{LabelNames, Refusal};
use super::message::{
    Data, Exemplar, ExponentialPoint, HistogramPoint, Metric, NumberPoint, Point, ResourceMetrics,
    SummaryPoint,
};
use super::naming::{NameKind, metric_name, unit_name};
use super::point_labels::{CommonLabels, PointLabels};
use super::resource::{PointTimes, ResourceLabels, ScopeLabels};
use super::{Settings, exemplar, histogram};
use crate::batch_builder::{BatchBuilder, SeriesMark};
use crate::rejects::Counts;
use crate::slow_path::check_lengths;
use crate::{DecodeError, Decoded};

const NS_PER_MS: u64 = 1_000_000;
/// Maximum timestamp of a data point.
const TIME_NS_MAX: u64 = i64::MAX as u64;

/// The numbers of temporalities.
const DELTA: i32 = 1;
const CUMULATIVE: i32 = 2;

/// Size of a sample in the batch, without its labels.
const SAMPLE_BYTES: usize = size_of::<BatchSeries>() + 3 * size_of::<i64>();

/// Translates a request.
pub(super) fn translate<'t>(
    resources: &'t [ResourceMetrics<'t>],
    settings: &'t Settings,
    builder: BatchBuilder<'_>,
) -> Result<Decoded, DecodeError> {
    let mut translator = Translator {
        settings,
        names: LabelNames::new(settings, builder.limits),
        builder,
        last_metadata: HashMap::new(),
        hasher: RandomState::new(),
        seen_targets: HashSet::new(),
        target_steps: 0,
        shared_bounds: Arc::default(),
    };
    for resource in resources {
        translator.resource(resource)?;
    }
    Ok(translator.builder.decoded)
}

/// Translates one request.
struct Translator<'t, 'b> {
    settings: &'t Settings,
    names: LabelNames<'t>,
    builder: BatchBuilder<'b>,
    /// Index of the latest metadata in the batch, by metric.
    last_metadata: HashMap<String, usize>,
    hasher: RandomState,
    /// Hashes of labels, and timestamps, of samples of `target_info`: a resource may occur more
    /// than once.
    seen_targets: HashSet<(u64, i64)>,
    /// Number of lookups in `seen_targets`.
    target_steps: usize,
    /// Custom bounds of the histogram before, which those of a metric mostly share.
    shared_bounds: Arc<[f64]>,
}

/// State of the data points of a resource so far.
#[derive(Default)]
struct PointsState<'t> {
    labels: PointLabels<'t>,
    times: Option<PointTimes>,
}

/// A metric, for the translation of its data points.
struct MetricContext<'c, 't> {
    name: &'c str,
    common: CommonLabels<'c, 't>,
    /// Reset hint of native histograms.
    reset_hint: ResetHint,
}

impl<'t> Translator<'t, '_> {
    fn resource(&mut self, resource: &'t ResourceMetrics<'t>) -> Result<(), DecodeError> {
        let (settings, limits) = (self.settings, self.builder.limits);
        let names = &mut self.names;
        let labels = match ResourceLabels::of(&resource.attributes, settings, names, limits) {
            Ok(labels) => labels,
            Err((reason, text)) => {
                let metrics = resource.scopes().iter().flat_map(|scope| &scope.metrics);
                self.refuse(metrics.map(|metric| counts_of(&metric.data)), reason, || {
                    format!("{text} of a resource")
                });
                return Ok(());
            }
        };
        let mut points = PointsState::default();
        for scope in resource.scopes() {
            match ScopeLabels::of(scope, settings, &self.names, limits) {
                Ok(scope_labels) => {
                    points.labels.begin_scope();
                    let common = CommonLabels { resource: &labels, scope: &scope_labels };
                    for metric in &scope.metrics {
                        self.metric(metric, common, &mut points)?;
                    }
                }
                Err((reason, text)) => {
                    let counts = scope.metrics.iter().map(|metric| counts_of(&metric.data));
                    self.refuse(counts, reason, || format!("{text} of a scope"));
                }
            }
        }
        self.target_info(&resource.attributes, &labels, points.times)
    }

    /// Rejects data points.
    #[cold]
    fn refuse(
        &mut self,
        counts: impl IntoIterator<Item = Counts>,
        reason: RejectReason,
        text: impl FnOnce() -> String,
    ) {
        let counts = counts.into_iter().fold(Counts::default(), |sum, counts| sum + counts);
        self.builder.decoded.rejects.add(reason, counts, text);
    }

    fn metric(
        &mut self,
        metric: &'t Metric<'t>,
        common: CommonLabels<'_, 't>,
        points: &mut PointsState<'t>,
    ) -> Result<(), DecodeError> {
        let temporality = temporality(&metric.data);
        let name = match self.check_metric(metric, temporality) {
            Ok(name) => name,
            Err((reason, text)) => {
                self.refuse([counts_of(&metric.data)], reason, || text);
                return Ok(());
            }
        };
        let is_delta = temporality == Some(DELTA);
        let reset_hint = if is_delta { ResetHint::Gauge } else { ResetHint::Unknown };
        let family = MetricContext { name: &name, common, reset_hint };
        let series_count = self.builder.batch.series.len();
        match &metric.data {
            Data::Empty => {}
            Data::Gauge(numbers) => {
                for point in &numbers.points {
                    self.number(point, &[], &family, points)?;
                }
            }
            Data::Sum(numbers) => {
                for point in &numbers.points {
                    self.number(point, &point.exemplars, &family, points)?;
                }
            }
            Data::Histogram(histograms) => {
                for point in &histograms.points {
                    self.explicit_histogram(point, &family, points)?;
                }
            }
            Data::Exponential(exponentials) => {
                for point in &exponentials.points {
                    self.exponential_histogram(point, &family, points)?;
                }
            }
            Data::Summary(summaries) => {
                for point in &summaries.points {
                    self.summary(point, &family, points)?;
                }
            }
        }
        if self.builder.batch.series.len() == series_count {
            return Ok(());
        }
        let kind = metric_kind(&metric.data, is_delta);
        self.metadata(name, kind, &metric.description, &unit_name(&metric.unit))
    }

    /// Checks a metric and translates its name.
    ///
    /// Errors: in the words of Prometheus.
    fn check_metric(
        &self,
        metric: &Metric<'_>,
        temporality: Option<i32>,
    ) -> Result<String, Refusal> {
        let Metric { name, unit, data, .. } = metric;
        let shown = &name[..name.floor_char_boundary(1024)];
        // Checked before the translation, which may take several times their memory.
        for (what, text) in [("name", name), ("unit", unit)] {
            if let Err(text) = check_lengths(0, text.len(), self.builder.limits) {
                let text = format!("{text} for the {what} of metric {}", quoted(shown));
                return Err((RejectReason::LabelLimit, text));
            }
        }
        if matches!(data, Data::Empty) {
            let text = format!(
                "could not get aggregation temporality for {shown} as it has unsupported metric \
                 type Empty"
            );
            return Err((RejectReason::DataPoint, text));
        }
        match temporality {
            None | Some(CUMULATIVE) => {}
            Some(DELTA) if self.settings.allow_delta => {}
            Some(other) => {
                let shown = quoted(shown);
                let mut text =
                    format!("invalid temporality and type combination for metric {shown}");
                if other == DELTA {
                    text.push_str(
                        ": delta temporality is not taken, cumulative is \
                         (--otlp.native-delta-ingestion stores deltas as they are)",
                    );
                }
                return Err((RejectReason::Temporality, text));
            }
        }
        let kind = match data {
            Data::Gauge(_) => NameKind::Gauge,
            Data::Sum(numbers) if numbers.is_monotonic => NameKind::Counter,
            _ => NameKind::Other,
        };
        let built = metric_name(self.settings, name, unit, kind);
        let built = built.map_err(|text| (RejectReason::InvalidLabels, text))?;
        if data.point_count() == 0 {
            return Err((
                RejectReason::DataPoint,
                format!("empty data points. {shown} is dropped"),
            ));
        }
        Ok(built)
    }

    /// Sets the labels of a data point without the metric name, and notes its timestamp. Returns
    /// false if it is rejected.
    fn begin_point(
        &mut self,
        point: &Point<'t>,
        family: &MetricContext<'_, 't>,
        counts: Counts,
        labels: &mut PointLabels<'t>,
    ) -> Result<bool, DecodeError> {
        self.builder.count_series("data points")?;
        let (limits, budget) = (self.builder.limits, &mut self.builder.budget);
        let read = match point.time_ns {
            1..=TIME_NS_MAX => {
                labels.read(point, family.common, &mut self.names, limits, budget)?
            }
            other => {
                let text = format!("out of bounds: time_unix_nano is {other}");
                Err((RejectReason::OutOfBounds, text))
            }
        };
        if let Err((reason, text)) = read {
            self.refuse([counts], reason, || {
                let name = &family.name[..family.name.floor_char_boundary(1024)];
                format!("{text} for a data point of metric {}", quoted(name))
            });
            return Ok(false);
        }
        Ok(true)
    }

    fn number(
        &mut self,
        point: &'t NumberPoint<'t>,
        exemplars: &'t [Exemplar<'t>],
        family: &MetricContext<'_, 't>,
        points: &mut PointsState<'t>,
    ) -> Result<(), DecodeError> {
        let counts = Counts { floats: 1, ..Counts::default() };
        if !self.begin_point(&point.point, family, counts, &mut points.labels)? {
            return Ok(());
        }
        PointTimes::add(&mut points.times, point.point.time_ns);
        let series =
            Series { labels: &points.labels, point: &point.point, metric: family.name, more: None };
        self.float(&series, point.value, exemplars)
    }

    fn explicit_histogram(
        &mut self,
        point: &'t HistogramPoint<'t>,
        family: &MetricContext<'_, 't>,
        points: &mut PointsState<'t>,
    ) -> Result<(), DecodeError> {
        if self.settings.to_custom_buckets {
            let hint = family.reset_hint;
            let made = histogram::of_explicit(point, hint, &mut self.shared_bounds);
            return self.native_histogram(made, &point.point, &point.exemplars, family, points);
        }
        let HistogramPoint { count, sum, bucket_counts, explicit_bounds, exemplars, .. } = point;
        let buckets = bucket_counts.len().min(explicit_bounds.len());
        let counts = Counts { floats: 2 + buckets as u64, ..Counts::default() };
        if !self.begin_point(&point.point, family, counts, &mut points.labels)? {
            return Ok(());
        }
        if let Err(text) = histogram::check_len(bucket_counts.len().max(explicit_bounds.len())) {
            let text = || format!("{text} for a data point of metric {}", quoted(family.name));
            self.refuse([counts], RejectReason::Histogram, text);
            return Ok(());
        }
        PointTimes::add(&mut points.times, point.point.time_ns);
        let [sums, counts, metric] =
            ["sum", "count", "bucket"].map(|suffix| format!("{}_{suffix}", family.name));
        let named =
            |metric| Series { labels: &points.labels, point: &point.point, metric, more: None };
        if let Some(sum) = sum {
            self.float(&named(&sums), *sum, &[])?;
        }
        self.float(&named(&counts), *count as f64, &[])?;
        let mut rest = &exemplars[..];
        let mut below = 0u64;
        for (bound, count) in explicit_bounds.iter().zip(bucket_counts) {
            below = below.wrapping_add(*count);
            // Exemplars are sorted by value.
            let is_above = |e: &Exemplar<'_>| e.value.is_some_and(|value| value > *bound);
            let held = rest.iter().position(is_above).unwrap_or(rest.len());
            let le = plain(*bound);
            let series = Series { more: Some(("le", &le)), ..named(&metric) };
            self.float(&series, below as f64, &rest[..held])?;
            rest = &rest[held..];
        }
        let series = Series { more: Some(("le", "+Inf")), ..named(&metric) };
        self.float(&series, *count as f64, rest)
    }

    fn exponential_histogram(
        &mut self,
        point: &'t ExponentialPoint<'t>,
        family: &MetricContext<'_, 't>,
        points: &mut PointsState<'t>,
    ) -> Result<(), DecodeError> {
        let made = histogram::of_exponential(point, family.reset_hint);
        self.native_histogram(made, &point.point, &point.exemplars, family, points)
    }

    fn native_histogram(
        &mut self,
        made: Result<WireHistogram, String>,
        point: &'t Point<'t>,
        exemplars: &'t [Exemplar<'t>],
        family: &MetricContext<'_, 't>,
        points: &mut PointsState<'t>,
    ) -> Result<(), DecodeError> {
        let counts = Counts { histograms: 1, ..Counts::default() };
        if !self.begin_point(point, family, counts, &mut points.labels)? {
            return Ok(());
        }
        let wire = match made {
            Ok(wire) => wire,
            Err(text) => {
                let text = || format!("{text} for a data point of metric {}", quoted(family.name));
                self.refuse([counts], RejectReason::Histogram, text);
                return Ok(());
            }
        };
        PointTimes::add(&mut points.times, point.time_ns);
        let series = Series { labels: &points.labels, point, metric: family.name, more: None };
        let mark = self.builder.mark();
        self.charge(&series)?;
        let held = self.builder.batch.histograms.len();
        let sample = |histogram| HistogramSample {
            timestamp_ms: ms(point.time_ns),
            start_ms: ms(point.start_ns),
            histogram,
        };
        self.builder.take_histogram(wire.into_histogram(), sample)?;
        if self.builder.batch.histograms.len() > held && !point.is_stale() {
            self.exemplars(exemplars)?;
        }
        self.close(mark, &series);
        Ok(())
    }

    fn summary(
        &mut self,
        point: &'t SummaryPoint<'t>,
        family: &MetricContext<'_, 't>,
        points: &mut PointsState<'t>,
    ) -> Result<(), DecodeError> {
        let counts = Counts { floats: 2 + point.quantiles.len() as u64, ..Counts::default() };
        if !self.begin_point(&point.point, family, counts, &mut points.labels)? {
            return Ok(());
        }
        PointTimes::add(&mut points.times, point.point.time_ns);
        let [sums, counts] = ["sum", "count"].map(|suffix| format!("{}_{suffix}", family.name));
        let named =
            |metric| Series { labels: &points.labels, point: &point.point, metric, more: None };
        self.float(&named(&sums), point.sum, &[])?;
        self.float(&named(&counts), point.count as f64, &[])?;
        for quantile in &point.quantiles {
            let text = plain(quantile.quantile);
            let series = Series { more: Some(("quantile", &text)), ..named(family.name) };
            self.float(&series, quantile.value, &[])?;
        }
        Ok(())
    }

    /// Adds a series of one float.
    fn float(
        &mut self,
        series: &Series<'_, 't>,
        value: f64,
        exemplars: &'t [Exemplar<'t>],
    ) -> Result<(), DecodeError> {
        let mark = self.builder.mark();
        self.charge(series)?;
        let is_stale = series.point.is_stale();
        self.builder
            .push_sample(ms(series.point.time_ns), if is_stale { stale_nan() } else { value });
        self.builder.set_start_timestamp(ms(series.point.start_ns));
        self.builder.check_samples()?;
        if !is_stale {
            self.exemplars(exemplars)?;
        }
        self.close(mark, series);
        Ok(())
    }

    fn charge(&mut self, series: &Series<'_, '_>) -> Result<(), DecodeError> {
        let more = series.more.map_or(0, |(name, value)| name.len() + value.len());
        let labels = series.labels.packed_bytes() + series.metric.len() + more;
        self.builder.budget.charge(SAMPLE_BYTES + labels)
    }

    /// Finishes a series, with the samples since the mark.
    fn close(&mut self, mark: SeriesMark, series: &Series<'_, '_>) {
        let Series { labels, metric, more, .. } = series;
        let (limits, arena) = (self.builder.limits, &mut self.builder.batch.labels_arena);
        let packed = labels.pack(metric, *more, limits, arena);
        self.close_packed(mark, packed);
    }

    /// Finishes a series whose labels are packed, or rejected.
    fn close_packed(&mut self, mark: SeriesMark, packed: Result<(), Refusal>) {
        match packed {
            Ok(()) => self.builder.close_series(mark),
            Err((reason, text)) => self.builder.refuse_series(mark, reason, text),
        }
    }

    fn exemplars(&mut self, exemplars: &'t [Exemplar<'t>]) -> Result<(), DecodeError> {
        for exemplar in exemplars {
            let Some(value) = exemplar.value else {
                let fault = "unsupported exemplar value type: Empty";
                self.builder.refuse_exemplar(RejectReason::DataPoint, fault);
                continue;
            };
            // As in Prometheus.
            let time_ms = (exemplar.time_ns as i64).div_euclid(NS_PER_MS as i64);
            let labels = exemplar::labels(exemplar);
            let bytes = labels.as_ref().map_or(0, |labels| labels.as_bytes().len());
            self.builder.take_exemplar(labels, bytes, time_ms, value)?;
        }
        Ok(())
    }

    /// Adds the metadata of a metric, unless they equal its latest ones.
    fn metadata(
        &mut self,
        metric: String,
        kind: MetricKind,
        help: &str,
        unit: &str,
    ) -> Result<(), DecodeError> {
        if kind == MetricKind::Unknown && help.is_empty() && unit.is_empty() {
            return Ok(());
        }
        let held = &self.builder.batch.metadata;
        let last = self.last_metadata.get(&metric).and_then(|index| held.get(*index));
        if last.is_some_and(|last| last.kind == kind && last.help == help && last.unit == unit) {
            return Ok(());
        }
        self.builder.push_metadata(metric.as_bytes(), kind, help.as_bytes(), unit.as_bytes())?;
        self.last_metadata.insert(metric, self.builder.batch.metadata.len() - 1);
        Ok(())
    }
}

/// A series of one sample.
struct Series<'c, 't> {
    labels: &'c PointLabels<'t>,
    point: &'c Point<'t>,
    metric: &'c str,
    more: Option<(&'c str, &'c str)>,
}

fn temporality(data: &Data<'_>) -> Option<i32> {
    match data {
        Data::Empty | Data::Gauge(_) | Data::Summary(_) => None,
        Data::Sum(numbers) => Some(numbers.temporality),
        Data::Histogram(histograms) => Some(histograms.temporality),
        Data::Exponential(exponentials) => Some(exponentials.temporality),
    }
}

fn metric_kind(data: &Data<'_>, is_delta: bool) -> MetricKind {
    match data {
        _ if is_delta => MetricKind::Unknown,
        Data::Empty => MetricKind::Unknown,
        Data::Sum(numbers) if numbers.is_monotonic => MetricKind::Counter,
        Data::Gauge(_) | Data::Sum(_) => MetricKind::Gauge,
        Data::Histogram(_) | Data::Exponential(_) => MetricKind::Histogram,
        Data::Summary(_) => MetricKind::Summary,
    }
}

/// Counts the data points of a metric.
fn counts_of(data: &Data<'_>) -> Counts {
    let points = data.point_count() as u64;
    match data {
        Data::Exponential(_) => Counts { histograms: points, ..Counts::default() },
        _ => Counts { floats: points, ..Counts::default() },
    }
}

fn ms(time_ns: u64) -> i64 {
    time_ns as i64 / NS_PER_MS as i64
}
