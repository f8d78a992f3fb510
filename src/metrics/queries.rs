//! Metrics of queries.

use std::time::Duration;

use engine::result::QueryStats;
use prometheus::{Histogram, HistogramVec, IntCounter, IntCounterVec, IntGauge};

use super::{Metrics, Registrar};

/// Bucket bounds of reads.
const READS_BUCKETS: [f64; 10] = [0.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0, 300.0, 1000.0, 10_000.0];

/// Metrics of queries.
pub(super) struct QueryMetrics {
    seconds: HistogramVec,
    samples: IntCounter,
    series: IntCounter,
    reads: Histogram,
    cached_bytes: IntCounter,
    failures: IntCounterVec,
    running: IntGauge,
    waiting: IntGauge,
    memory: IntGauge,
    memory_peak: IntGauge,
}

impl QueryMetrics {
    pub(super) fn new(registrar: &Registrar<'_>, queries_max: usize) -> QueryMetrics {
        registrar
            .int_gauge(
                "tessella_engine_queries_concurrent_max",
                "Maximum number of concurrent queries.",
            )
            .set(i64::try_from(queries_max).unwrap_or(i64::MAX));
        QueryMetrics {
            seconds: registrar.histogram_vec(
                "tessella_engine_query_duration_seconds",
                "Time that queries spent in each stage.",
                "slice",
            ),
            samples: registrar
                .int_counter("tessella_engine_query_samples_total", "Samples decoded by queries."),
            series: registrar
                .int_counter("tessella_engine_query_series_total", "Series selected by queries."),
            reads: registrar.histogram(
                "tessella_engine_query_object_store_reads",
                "Reads (GETs) of the object store that a query made.",
                &READS_BUCKETS,
            ),
            cached_bytes: registrar.int_counter(
                "tessella_engine_query_cached_bytes_total",
                "Bytes of the store's files that queries read from the cache.",
            ),
            failures: registrar.int_counter_vec(
                "tessella_engine_query_failures_total",
                "Failed queries, by type of the error.",
                &["type"],
            ),
            running: registrar.int_gauge("tessella_engine_queries", "Running queries."),
            waiting: registrar
                .int_gauge("tessella_engine_queries_waiting", "Queries that wait for a slot."),
            memory: registrar.int_gauge(
                "tessella_engine_query_memory_bytes",
                "Memory of queries, including answers until they are sent.",
            ),
            memory_peak: registrar
                .int_gauge("tessella_engine_query_memory_peak_bytes", "Peak memory of queries."),
        }
    }
}

impl Metrics {
    /// Counts a successful query.
    pub(crate) fn query(&self, stats: &QueryStats, waited: Duration) {
        let slices = [
            ("queue", waited.as_secs_f64()),
            ("prepare", stats.prepare_seconds),
            ("load", stats.load_seconds),
            ("execute", stats.execute_seconds),
        ];
        for (slice, seconds) in slices {
            self.queries.seconds.with_label_values(&[slice]).observe(seconds);
        }
        self.queries.samples.inc_by(stats.sample_count);
        self.queries.series.inc_by(stats.series_count);
        self.queries.reads.observe(stats.object_store.reads as f64);
        self.queries.cached_bytes.inc_by(stats.object_store.cached_bytes);
    }

    /// Counts a failed query.
    pub(crate) fn query_failed(&self, error_type: &str) {
        self.queries.failures.with_label_values(&[error_type]).inc();
    }

    /// Sets the numbers of running and waiting queries.
    pub(crate) fn set_queries(&self, running: usize, waiting: usize) {
        self.queries.running.set(i64::try_from(running).unwrap_or(i64::MAX));
        self.queries.waiting.set(i64::try_from(waiting).unwrap_or(i64::MAX));
    }

    /// Sets memory and peak memory of queries.
    pub(crate) fn set_query_memory(&self, bytes: u64, bytes_peak: u64) {
        self.queries.memory.set(i64::try_from(bytes).unwrap_or(i64::MAX));
        self.queries.memory_peak.set(i64::try_from(bytes_peak).unwrap_or(i64::MAX));
    }
}
