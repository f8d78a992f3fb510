//! Metrics of the server.

mod process;
mod queries;
mod reader;
mod results;
mod store;

use std::sync::{Arc, Mutex, OnceLock, PoisonError, RwLock};
use std::time::{Duration, SystemTime};

use prometheus::proto::MetricFamily;
use prometheus::{
    Counter, Encoder, Gauge, Histogram, HistogramOpts, HistogramVec, IntCounter, IntCounterVec,
    IntGauge, Opts, Registry, TextEncoder,
};

use engine::result_cache::ResultCache;

use storage::{RefusedSeries, StoreStats};

use self::process::ProcessMetrics;
use self::queries::QueryMetrics;
use self::reader::ReaderMetrics;
use self::results::ResultsMetrics;
use self::store::StoreMetrics;
use crate::build_info::{REVISION, VERSION};

/// Bucket bounds of durations, in seconds.
const DURATION_BUCKETS: [f64; 12] =
    [0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0, 60.0];

/// Returns figures of the store, and rejected samples of new series.
type StoreFigures = dyn Fn() -> (StoreStats, Vec<RefusedSeries>) + Send + Sync;

/// Metrics of the server, and their registry.
pub struct Metrics {
    registry: Registry,
    /// Held while figures are refreshed and gathered.
    gathering: Mutex<()>,
    process: ProcessMetrics,
    /// Absent without a result cache.
    results: OnceLock<(ResultsMetrics, Arc<ResultCache>)>,
    store: StoreMetrics,
    /// Absent for a writer.
    reader: OnceLock<ReaderMetrics>,
    store_stats: RwLock<Option<Box<StoreFigures>>>,
    ready: IntGauge,
    writer: IntGauge,
    requests: IntCounterVec,
    request_seconds: HistogramVec,
    requests_refused: IntCounterVec,
    calls: IntCounterVec,
    call_seconds: HistogramVec,
    queries: QueryMetrics,
    reload_successful: IntGauge,
    reload_success_seconds: Gauge,
}

/// Reason to reject a request before its handler.
#[derive(Debug, Clone, Copy)]
pub(crate) enum DenialReason {
    /// The credentials are absent or wrong.
    Credentials,
    /// The rate limit is exceeded.
    Rate,
    /// Too many password checks wait.
    Busy,
}

impl DenialReason {
    fn name(self) -> &'static str {
        match self {
            DenialReason::Credentials => "credentials",
            DenialReason::Rate => "rate",
            DenialReason::Busy => "busy",
        }
    }
}

impl Metrics {
    /// Registers the metrics.
    ///
    /// Panics: two metrics have the same name.
    pub fn new(queries_max: usize) -> Metrics {
        let registry = Registry::new();
        let registrar = Registrar(&registry);
        let build = registrar.int_gauge_vec(
            "tessella_build_info",
            "Always 1, with the version and the revision of the source.",
            &["version", "revision"],
        );
        build.with_label_values(&[VERSION, REVISION]).set(1);
        let metrics = Metrics {
            gathering: Mutex::new(()),
            process: ProcessMetrics::new(&registrar),
            results: OnceLock::new(),
            store: StoreMetrics::new(&registrar),
            reader: OnceLock::new(),
            store_stats: RwLock::default(),
            ready: registrar.int_gauge(
                "tessella_ready",
                "Whether the log has been replayed and requests are served.",
            ),
            writer: registrar.int_gauge(
                "tessella_writer",
                "Whether this server is the writer of its store, and no reader or standby.",
            ),
            requests: registrar.int_counter_vec(
                "tessella_http_requests_total",
                "HTTP requests by handler and status code.",
                &["handler", "code"],
            ),
            requests_refused: registrar.int_counter_vec(
                "tessella_http_requests_refused_total",
                "HTTP requests that the web configuration rejected, by reason; not included in \
                 other counters of requests.",
                &["reason"],
            ),
            calls: registrar.int_counter_vec(
                "tessella_grpc_requests_total",
                "gRPC requests by method and status code, once the response is sent.",
                &["method", "code"],
            ),
            call_seconds: registrar.histogram_vec(
                "tessella_grpc_request_duration_seconds",
                "Time until the response is sent, by method.",
                "method",
            ),
            request_seconds: registrar.histogram_vec(
                "tessella_http_request_duration_seconds",
                "Time until the head of the response, by handler.",
                "handler",
            ),
            queries: QueryMetrics::new(&registrar, queries_max),
            reload_successful: registrar.int_gauge(
                "tessella_config_last_reload_successful",
                "Whether the last load of the configuration succeeded.",
            ),
            reload_success_seconds: registrar.gauge(
                "tessella_config_last_reload_success_timestamp_seconds",
                "Time of the last successful load of the configuration.",
            ),
            registry: registry.clone(),
        };
        metrics.config_read(true);
        for reason in [DenialReason::Credentials, DenialReason::Rate, DenialReason::Busy] {
            // Present from the start, so that the first one is an increase.
            metrics.requests_refused.with_label_values(&[reason.name()]);
        }
        metrics
    }

    /// Registry, for metrics of other modules.
    pub fn registry(&self) -> &Registry {
        &self.registry
    }

    /// Counts a request.
    pub(crate) fn request(&self, handler: &str, status: u16, elapsed: Duration) {
        self.requests.with_label_values(&[handler, &status.to_string()]).inc();
        self.request_seconds.with_label_values(&[handler]).observe(elapsed.as_secs_f64());
    }

    /// Counts a gRPC request, whose response is sent.
    pub(crate) fn call(&self, method: &str, code: u8, elapsed: Duration) {
        self.calls.with_label_values(&[method, &code.to_string()]).inc();
        self.call_seconds.with_label_values(&[method]).observe(elapsed.as_secs_f64());
    }

    /// Counts a rejected request.
    pub(crate) fn count_denied(&self, reason: DenialReason) {
        self.requests_refused.with_label_values(&[reason.name()]).inc();
    }

    /// Sets whether the server is ready.
    pub(crate) fn set_ready(&self, is_ready: bool) {
        self.ready.set(i64::from(is_ready));
    }

    /// Sets whether the server is the writer of its store.
    pub(crate) fn set_writer(&self, is_writer: bool) {
        self.writer.set(i64::from(is_writer));
    }

    /// Sets the source of the store's figures; another one replaces it.
    pub(crate) fn watch_store(
        &self,
        stats: impl Fn() -> (StoreStats, Vec<RefusedSeries>) + Send + Sync + 'static,
    ) {
        *self.store_stats.write().unwrap_or_else(PoisonError::into_inner) = Some(Box::new(stats));
    }

    /// Sets the limits of the head.
    pub(crate) fn set_head_limits(&self, bytes_max: u64, active_series_max: u32) {
        self.store.set_limits(bytes_max, active_series_max);
    }

    /// Sets the free bytes of the local disk of the store.
    pub(crate) fn set_disk_free(&self, bytes: u64) {
        self.store.set_disk_free(&Registrar(&self.registry), bytes);
    }

    /// Adds the metrics of the result cache.
    pub(crate) fn watch_results(&self, results: Arc<ResultCache>) {
        // A process has one result cache.
        self.results.get_or_init(|| (ResultsMetrics::new(&Registrar(&self.registry)), results));
    }

    /// Records the outcome of a load of the configuration.
    pub(crate) fn config_read(&self, is_success: bool) {
        self.reload_successful.set(i64::from(is_success));
        if is_success {
            let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
            self.reload_success_seconds.set(since.unwrap_or_default().as_secs_f64());
        }
    }

    /// Returns whether the last load of the configuration succeeded, and the Unix time in seconds of
    /// the last success.
    pub(crate) fn config_was_read(&self) -> (bool, f64) {
        (self.reload_successful.get() == 1, self.reload_success_seconds.get())
    }

    /// Gathers the metrics, sorted by name.
    pub fn gather(&self) -> Vec<MetricFamily> {
        let _gathering = self.gathering.lock().unwrap_or_else(PoisonError::into_inner);
        self.process.refresh();
        let stats = self.store_stats.read().unwrap_or_else(PoisonError::into_inner);
        if let Some(stats) = &*stats {
            let (stats, refused) = stats();
            self.store.refresh(&stats, &refused);
            if let Some(stats) = &stats.follow {
                let new = || ReaderMetrics::new(&Registrar(&self.registry));
                self.reader.get_or_init(new).refresh(stats);
            } else if let Some(reader) = self.reader.get() {
                reader.note_promoted();
            }
        }
        if let Some((metrics, results)) = self.results.get() {
            metrics.refresh(&results.stats());
        }
        self.registry.gather()
    }
}

/// Encodes metrics in Prometheus' text format.
pub(crate) fn to_text(families: &[MetricFamily]) -> Result<Vec<u8>, prometheus::Error> {
    let mut text = Vec::new();
    TextEncoder::new().encode(families, &mut text)?;
    Ok(text)
}

/// Creates and registers metrics. Names and help are constants, so that only a mistake in the source
/// can fail, at every start.
struct Registrar<'a>(&'a Registry);

impl Registrar<'_> {
    fn add<C: prometheus::core::Collector + Clone + 'static>(
        &self,
        made: prometheus::Result<C>,
    ) -> C {
        let metric = made.expect("the name and the labels are well-formed");
        self.0.register(Box::new(metric.clone())).expect("each name is registered once");
        metric
    }

    fn gauge(&self, name: &str, help: &str) -> Gauge {
        self.add(Gauge::new(name, help))
    }

    fn counter(&self, name: &str, help: &str) -> Counter {
        self.add(Counter::new(name, help))
    }

    fn int_gauge(&self, name: &str, help: &str) -> IntGauge {
        self.add(IntGauge::new(name, help))
    }

    fn int_counter(&self, name: &str, help: &str) -> IntCounter {
        self.add(IntCounter::new(name, help))
    }

    fn int_gauge_vec(&self, name: &str, help: &str, labels: &[&str]) -> prometheus::IntGaugeVec {
        self.add(prometheus::IntGaugeVec::new(Opts::new(name, help), labels))
    }

    fn int_counter_vec(&self, name: &str, help: &str, labels: &[&str]) -> IntCounterVec {
        self.add(IntCounterVec::new(Opts::new(name, help), labels))
    }

    fn histogram(&self, name: &str, help: &str, buckets: &[f64]) -> Histogram {
        let options = HistogramOpts::new(name, help).buckets(buckets.to_vec());
        self.add(Histogram::with_opts(options))
    }

    fn histogram_vec(&self, name: &str, help: &str, label: &str) -> HistogramVec {
        let options = HistogramOpts::new(name, help).buckets(DURATION_BUCKETS.to_vec());
        self.add(HistogramVec::new(options, &[label]))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use engine::result::QueryStats;
    use model::ObjectStoreCost;

    #[test]
    fn text_holds_what_was_counted() {
        let metrics = Metrics::new(20);
        metrics.request("/api/v1/query", 200, Duration::from_millis(3));
        let object_store = ObjectStoreCost { reads: 3, read_bytes: 9, cached_bytes: 8 };
        let stats = QueryStats { sample_count: 7, object_store, ..QueryStats::default() };
        metrics.query(&stats, Duration::ZERO);
        metrics.query_failed("timeout");
        let text = String::from_utf8(to_text(&metrics.gather()).unwrap()).unwrap();
        for line in [
            "tessella_http_requests_total{code=\"200\",handler=\"/api/v1/query\"} 1",
            "tessella_http_request_duration_seconds_bucket{handler=\"/api/v1/query\",le=\"0.005\"} 1",
            "tessella_engine_query_samples_total 7",
            "tessella_engine_query_object_store_reads_bucket{le=\"2\"} 0",
            "tessella_engine_query_object_store_reads_bucket{le=\"5\"} 1",
            "tessella_engine_query_object_store_reads_sum 3",
            "tessella_engine_query_cached_bytes_total 8",
            "tessella_engine_query_failures_total{type=\"timeout\"} 1",
            "tessella_engine_queries_concurrent_max 20",
            &format!("tessella_build_info{{revision=\"{REVISION}\",version=\"{VERSION}\"}} 1"),
        ] {
            assert!(text.lines().any(|l| l == line), "{line} is not in\n{text}");
        }
    }
}
