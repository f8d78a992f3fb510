//! The server's own metrics in its own store, so that a fresh start has something to query.

use std::future::Future;
use std::time::Duration;

use model::{Batch, BatchMetadata, Labels, LabelsBuilder, METRIC_NAME, MetricKind};
use prometheus::proto::{Histogram, Metric, MetricFamily, MetricType, Summary};
use storage::Store;
use tokio::time::MissedTickBehavior;
use tracing::warn;

use super::metrics::IngestMetrics;

/// How often the metrics are written.
pub const INTERVAL: Duration = Duration::from_secs(15);

/// The value of the label `job`.
pub const JOB: &str = "tessella";

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
    // After a pause of the machine there is one write, not one for each tick missed.
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    tokio::pin!(stop);
    loop {
        tokio::select! {
            () = &mut stop => return,
            _ = ticks.tick() => {}
        }
        let batch = batch_of(&gather(), instance, super::now_ms());
        match store.append(batch).await {
            Ok(_) => {}
            Err(error) if error.ends_writes() => {
                warn!(%error, "Own metrics are no longer written.");
                return;
            }
            Err(error) => {
                metrics.self_metrics_failures.inc();
                warn!(%error, "Own metrics cannot be written.");
            }
        }
    }
}

/// The samples of one scrape, as Prometheus would take them from `/metrics`.
fn batch_of(families: &[MetricFamily], instance: &str, timestamp_ms: i64) -> Batch {
    let mut scrape = Scrape { batch: Batch::default(), instance, timestamp_ms };
    for family in families {
        scrape.describe(family);
        for metric in family.get_metric() {
            scrape.metric(family.name(), family.get_field_type(), metric);
        }
    }
    scrape.push("up", &[], None, 1.0);
    scrape.batch
}

struct Scrape<'a> {
    batch: Batch,
    instance: &'a str,
    timestamp_ms: i64,
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

    fn metric(&mut self, name: &str, kind: MetricType, metric: &Metric) {
        let pairs: Vec<(&str, &str)> =
            metric.get_label().iter().map(|pair| (pair.name(), pair.value())).collect();
        match kind {
            MetricType::COUNTER => self.push(name, &pairs, None, metric.get_counter().get_value()),
            MetricType::GAUGE => self.push(name, &pairs, None, metric.get_gauge().get_value()),
            MetricType::HISTOGRAM => self.histogram(name, &pairs, metric.get_histogram()),
            MetricType::SUMMARY => self.summary(name, &pairs, metric.get_summary()),
            MetricType::UNTYPED => {}
        }
    }

    fn histogram(&mut self, name: &str, pairs: &[(&str, &str)], histogram: &Histogram) {
        let bucket = format!("{name}_bucket");
        let count = histogram.get_sample_count() as f64;
        for entry in histogram.get_bucket() {
            let bound = entry.upper_bound().to_string();
            self.push(&bucket, pairs, Some(("le", &bound)), entry.cumulative_count() as f64);
        }
        self.push(&bucket, pairs, Some(("le", "+Inf")), count);
        self.push(&format!("{name}_sum"), pairs, None, histogram.get_sample_sum());
        self.push(&format!("{name}_count"), pairs, None, count);
    }

    fn summary(&mut self, name: &str, pairs: &[(&str, &str)], summary: &Summary) {
        for entry in summary.get_quantile() {
            let bound = entry.quantile().to_string();
            self.push(name, pairs, Some(("quantile", &bound)), entry.value());
        }
        self.push(&format!("{name}_sum"), pairs, None, summary.sample_sum());
        self.push(&format!("{name}_count"), pairs, None, summary.sample_count() as f64);
    }

    fn push(
        &mut self,
        name: &str,
        pairs: &[(&str, &str)],
        bound: Option<(&str, &str)>,
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
        self.batch.push(&labels, &[(self.timestamp_ms, value)]);
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
        let batch = batch_of(&families, "localhost:9090", 42);
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
        assert_eq!(store.stats().samples_appended, 8);
        store.close().await.unwrap();
    }
}
