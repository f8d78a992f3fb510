//! The server's own metrics in its own store, so that a fresh start has something to query.
//!
//! Fewer series than in `/metrics` are written:
//!
//! - every second bucket of a histogram, including the last one and `+Inf`;
//! - of histograms by HTTP handler, those of [`HANDLERS`] only;
//! - of a counter with more than 16 series, the first one and those above zero.
//!
//! A new series of a counter or histogram gets a 0 at the time of the previous write, so that `rate`
//! and `increase` include its first increase.

use std::collections::HashSet;
use std::future::Future;
use std::time::Duration;

use model::{Batch, BatchMetadata, Labels, LabelsBuilder, METRIC_NAME, MetricKind};
use prometheus::proto::{Histogram, Metric, MetricFamily, MetricType, Summary};
use storage::Store;
use tokio::time::MissedTickBehavior;
use tracing::warn;

use super::metrics::IngestMetrics;

/// Interval of writes.
pub const INTERVAL: Duration = Duration::from_secs(15);

/// Value of the label `job`, which differs from that of a scrape job of the server, whose series would
/// be the same.
pub const JOB: &str = "tessella-self";

/// Label whose values are HTTP handlers.
const HANDLER_LABEL: &str = "handler";

/// HTTP handlers whose durations are written: queries and writes.
const HANDLERS: [&str; 5] = [
    "/api/v1/query",
    "/api/v1/query_range",
    "/api/v1/read",
    "/api/v1/write",
    "/api/v1/otlp/v1/metrics",
];

/// Maximum number of series of a counter whose zeros are all written.
const ZEROS_MAX: usize = 16;

/// Series of the previous write.
#[derive(Debug, Default)]
struct Written {
    /// Series of counters and histograms.
    series: HashSet<Labels>,
    last_ms: Option<i64>,
}

/// Writes what `gather` returns into the store, at once and then every [`INTERVAL`], under
/// the names that `/metrics` shows, with the labels `job` and `instance`, and with `up`.
/// Returns when `stop` completes, or when the store takes no more writes.
pub async fn run(
    store: &Store,
    gather: impl Fn() -> Vec<MetricFamily>,
    instance: &str,
    metrics: &IngestMetrics,
    stop: impl Future<Output = ()>,
) {
    let mut ticks = tokio::time::interval(INTERVAL);
    // After a pause of the machine, one write replaces all missed ones.
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    tokio::pin!(stop);
    let mut written = Written::default();
    loop {
        tokio::select! {
            () = &mut stop => return,
            _ = ticks.tick() => {}
        }
        let batch = batch_of(&gather(), instance, super::now_ms(), &mut written);
        match store.append(batch).await {
            Ok(_) => {}
            Err(error) if error.ends_writes() => {
                warn!(%error, "own metrics are no longer written");
                return;
            }
            Err(error) => {
                metrics.self_metrics_failures.inc();
                warn!(%error, "cannot write own metrics");
            }
        }
    }
}

/// Returns the samples of one write, and adds their series to `written`.
fn batch_of(
    families: &[MetricFamily],
    instance: &str,
    timestamp_ms: i64,
    written: &mut Written,
) -> Batch {
    let mut scrape = Scrape { batch: Batch::default(), instance, timestamp_ms, written };
    for family in families {
        scrape.describe(family);
        let metrics = family.get_metric();
        for (index, metric) in metrics.iter().enumerate() {
            // The first one shows that nothing has been counted.
            let with_zero = metrics.len() <= ZEROS_MAX || index == 0;
            scrape.metric(family.name(), family.get_field_type(), metric, with_zero);
        }
    }
    scrape.push("up", &[], None, Kind::Gauge, 1.0);
    scrape.written.last_ms = Some(timestamp_ms);
    scrape.batch
}

/// Kind of a series: counter or gauge.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Gauge,
    /// Starts at 0 and grows.
    Cumulative,
}

/// Returns whether a bucket of a histogram with `count` bounds is written.
fn is_bucket_written(index: usize, count: usize) -> bool {
    (count - 1 - index).is_multiple_of(2)
}

/// Returns whether a histogram with these labels is written.
fn is_histogram_written(pairs: &[(&str, &str)]) -> bool {
    let handler = pairs.iter().find(|(name, _)| *name == HANDLER_LABEL);
    handler.is_none_or(|(_, value)| HANDLERS.contains(value))
}

struct Scrape<'a> {
    batch: Batch,
    instance: &'a str,
    timestamp_ms: i64,
    written: &'a mut Written,
}

impl Scrape<'_> {
    fn describe(&mut self, family: &MetricFamily) {
        let kind = match family.get_field_type() {
            MetricType::COUNTER => MetricKind::Counter,
            MetricType::GAUGE => MetricKind::Gauge,
            MetricType::HISTOGRAM => MetricKind::Histogram,
            MetricType::SUMMARY => MetricKind::Summary,
            MetricType::UNTYPED => MetricKind::Unknown,
        };
        self.batch.metadata.push(BatchMetadata {
            metric: family.name().to_owned(),
            kind,
            help: family.help().to_owned(),
            unit: String::new(),
        });
    }

    /// Adds a metric; a counter that is zero only `with_zero`.
    fn metric(&mut self, name: &str, kind: MetricType, metric: &Metric, with_zero: bool) {
        let pairs: Vec<(&str, &str)> =
            metric.get_label().iter().map(|pair| (pair.name(), pair.value())).collect();
        match kind {
            MetricType::COUNTER => {
                let value = metric.get_counter().get_value();
                if value != 0.0 || with_zero {
                    self.push(name, &pairs, None, Kind::Cumulative, value);
                }
            }
            MetricType::GAUGE => {
                self.push(name, &pairs, None, Kind::Gauge, metric.get_gauge().get_value());
            }
            MetricType::HISTOGRAM => self.histogram(name, &pairs, metric.get_histogram()),
            MetricType::SUMMARY => self.summary(name, &pairs, metric.get_summary()),
            MetricType::UNTYPED => {}
        }
    }

    fn histogram(&mut self, name: &str, pairs: &[(&str, &str)], histogram: &Histogram) {
        if !is_histogram_written(pairs) {
            return;
        }
        let bucket = format!("{name}_bucket");
        let count = histogram.get_sample_count() as f64;
        let buckets = histogram.get_bucket();
        for (index, entry) in buckets.iter().enumerate() {
            if is_bucket_written(index, buckets.len()) {
                let bound = entry.upper_bound().to_string();
                let below = entry.cumulative_count() as f64;
                self.push(&bucket, pairs, Some(("le", &bound)), Kind::Cumulative, below);
            }
        }
        self.push(&bucket, pairs, Some(("le", "+Inf")), Kind::Cumulative, count);
        let sum = histogram.get_sample_sum();
        self.push(&format!("{name}_sum"), pairs, None, Kind::Cumulative, sum);
        self.push(&format!("{name}_count"), pairs, None, Kind::Cumulative, count);
    }

    fn summary(&mut self, name: &str, pairs: &[(&str, &str)], summary: &Summary) {
        for entry in summary.get_quantile() {
            let bound = entry.quantile().to_string();
            self.push(name, pairs, Some(("quantile", &bound)), Kind::Gauge, entry.value());
        }
        let (sum, count) = (summary.sample_sum(), summary.sample_count() as f64);
        self.push(&format!("{name}_sum"), pairs, None, Kind::Cumulative, sum);
        self.push(&format!("{name}_count"), pairs, None, Kind::Cumulative, count);
    }

    fn push(
        &mut self,
        name: &str,
        pairs: &[(&str, &str)],
        bound: Option<(&str, &str)>,
        kind: Kind,
        value: f64,
    ) {
        let mut builder = LabelsBuilder::default();
        for (name, value) in pairs {
            builder.set(name, value);
        }
        if let Some((name, value)) = bound {
            builder.set(name, value);
        }
        builder.set(METRIC_NAME, name).set("job", JOB).set("instance", self.instance);
        let labels: Labels = builder.build();
        let is_new = kind == Kind::Cumulative && self.written.series.insert(labels.clone());
        match self.written.last_ms {
            Some(last_ms) if is_new && last_ms < self.timestamp_ms => {
                self.batch.push(&labels, &[(last_ms, 0.0), (self.timestamp_ms, value)]);
            }
            _ => self.batch.push(&labels, &[(self.timestamp_ms, value)]),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use prometheus::{HistogramOpts, HistogramVec, IntCounterVec, Opts, Registry, TextEncoder};

    use super::*;

    fn registry() -> Registry {
        let registry = Registry::new();
        let counter = IntCounterVec::new(Opts::new("requests_total", "h"), &["code"]).unwrap();
        counter.with_label_values(&["200"]).inc_by(7);
        registry.register(Box::new(counter)).unwrap();
        let options = HistogramOpts::new("wait_seconds", "h").buckets(vec![0.5, 1.0, 2.5]);
        let histogram = HistogramVec::new(options, &["slice"]).unwrap();
        histogram.with_label_values(&["a\"b"]).observe(0.7);
        histogram.with_label_values(&["a\"b"]).observe(9.0);
        registry.register(Box::new(histogram)).unwrap();
        registry
    }

    /// Series and values, by the text that `/metrics` shows for the series.
    fn shown(text: &str) -> BTreeMap<String, f64> {
        text.lines()
            .filter(|line| !line.starts_with('#'))
            .map(|line| {
                let (series, value) = line.rsplit_once(' ').unwrap();
                (series.to_owned(), value.parse().unwrap())
            })
            .collect()
    }

    fn written(batch: &Batch) -> BTreeMap<String, f64> {
        (0..batch.series.len())
            .map(|index| {
                let labels = batch.labels(index);
                assert_eq!((labels.get("job"), labels.get("instance")), (JOB, "localhost:9090"));
                let rest = labels.filtered(|name| !matches!(name, "job" | "instance"));
                let name = rest.metric_name().to_owned();
                let pairs = rest.without_metric_name().to_string().replace(", ", ",");
                let pairs = if pairs == "{}" { "" } else { &pairs };
                (format!("{name}{pairs}"), batch.values[batch.samples(index).start])
            })
            .collect()
    }

    #[test]
    fn what_is_written_is_what_metrics_shows() {
        let families = registry().gather();
        let batch = batch_of(&families, "localhost:9090", 42, &mut Written::default());
        assert!(batch.timestamps.iter().all(|t| *t == 42));
        let text = TextEncoder::new().encode_to_string(&families).unwrap();
        // The encoder writes `le` last, labels here are sorted by name.
        let mut expected: BTreeMap<String, f64> = shown(&text)
            .into_iter()
            .map(|(series, value)| match series.split_once("{slice=\"a\\\"b\",le=") {
                Some((name, bound)) => {
                    let bound = bound.trim_end_matches('}');
                    (format!("{name}{{le={bound},slice=\"a\\\"b\"}}"), value)
                }
                None => (series, value),
            })
            .collect();
        assert_eq!(expected.len(), 7);
        // Every second bucket.
        assert!(expected.remove("wait_seconds_bucket{le=\"1\",slice=\"a\\\"b\"}").is_some());
        expected.insert("up".to_owned(), 1.0);
        assert_eq!(written(&batch), expected);
        let described: Vec<_> = batch
            .metadata
            .iter()
            .map(|known| (&known.metric[..], known.kind, &known.help[..]))
            .collect();
        let expected = [
            ("requests_total", MetricKind::Counter, "h"),
            ("wait_seconds", MetricKind::Histogram, "h"),
        ];
        assert_eq!(described, expected);
    }

    #[test]
    fn counters_that_are_zero_are_left_out_until_they_count() {
        let registry = Registry::new();
        let counter = IntCounterVec::new(Opts::new("rejected_total", "h"), &["reason"]).unwrap();
        registry.register(Box::new(counter.clone())).unwrap();
        for reason in 'a'..='z' {
            counter.with_label_values(&[&reason.to_string()]);
        }
        let mut written = Written::default();
        let mut write = |timestamp_ms| -> Vec<(String, Vec<(i64, f64)>)> {
            let batch = batch_of(&registry.gather(), "i", timestamp_ms, &mut written);
            let samples = |index| {
                let samples = batch.samples(index);
                samples.map(|at| (batch.timestamps[at], batch.values[at])).collect()
            };
            let series = (0..batch.series.len())
                .map(|index| (batch.labels(index).get("reason").to_owned(), samples(index)));
            series.filter(|(reason, _)| !reason.is_empty()).collect()
        };
        assert_eq!(write(10), [("a".to_owned(), vec![(10, 0.0)])]);
        counter.with_label_values(&["c"]).inc_by(3);
        let a = |time| ("a".to_owned(), vec![(time, 0.0)]);
        assert_eq!(write(20), [a(20), ("c".to_owned(), vec![(10, 0.0), (20, 3.0)])]);
        assert_eq!(write(30), [a(30), ("c".to_owned(), vec![(30, 3.0)])]);
    }

    #[test]
    fn durations_are_written_for_handlers_of_queries_and_writes() {
        let registry = Registry::new();
        let options = HistogramOpts::new("http_seconds", "h").buckets(vec![0.5, 1.0]);
        let histogram = HistogramVec::new(options, &["handler"]).unwrap();
        registry.register(Box::new(histogram.clone())).unwrap();
        for handler in ["/api/v1/query", "/api/v1/labels"] {
            histogram.with_label_values(&[handler]).observe(0.7);
        }
        let batch = batch_of(&registry.gather(), "i", 1, &mut Written::default());
        let handlers = (0..batch.series.len()).map(|at| batch.labels(at).get("handler").to_owned());
        let handlers: Vec<String> = handlers.filter(|handler| !handler.is_empty()).collect();
        assert_eq!(handlers, ["/api/v1/query"; 4]);
    }

    #[tokio::test]
    async fn the_first_write_does_not_wait() {
        let options = storage::StoreOptions { background: false, ..Default::default() };
        let store = Store::open("memory:///", options).await.unwrap();
        let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
        let gathered = std::cell::Cell::new(0);
        let gather = || {
            gathered.set(gathered.get() + 1);
            registry().gather()
        };
        let metrics = IngestMetrics::new(&Registry::new());
        let running = run(&store, gather, "localhost:9090", &metrics, async {
            let _ = stopped.await;
        });
        let watching = async {
            while store.stats().samples_appended == 0 {
                tokio::task::yield_now().await;
            }
            drop(stop);
        };
        tokio::join!(running, watching);
        assert_eq!(gathered.get(), 1);
        assert_eq!(store.stats().samples_appended, 7);
        store.close().await.unwrap();
    }
}
