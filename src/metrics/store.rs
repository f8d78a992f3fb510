//! The figures of the store.

use prometheus::{Gauge, IntCounter, IntGauge};
use storage::StoreStats;

use super::Own;

/// The metrics of the store, refreshed on each gathering.
pub(super) struct StoreMetrics {
    head_series: IntGauge,
    newest_seconds: Gauge,
    queue_samples: IntGauge,
    log_bytes: IntGauge,
    partitions: IntGauge,
    counters: [(IntCounter, Figure); 10],
}

/// Takes one figure out of all.
type Figure = fn(&StoreStats) -> u64;

impl StoreMetrics {
    pub(super) fn new(own: &Own<'_>) -> StoreMetrics {
        let counter = |name: &str, help: &str| own.int_counter(name, help);
        StoreMetrics {
            head_series: own.int_gauge("tessella_storage_head_series", "Series in the head."),
            newest_seconds: own.gauge(
                "tessella_storage_newest_sample_timestamp_seconds",
                "Time of the newest sample in the head; 0 without one.",
            ),
            queue_samples: own
                .int_gauge("tessella_storage_queue_samples", "Samples that wait for the log."),
            log_bytes: own
                .int_gauge("tessella_storage_log_bytes", "Bytes of the log that are not sealed."),
            partitions: own
                .int_gauge("tessella_storage_partitions", "Partitions that hold something sealed."),
            counters: [
                (counter("tessella_storage_samples_appended_total", "Samples accepted."), |s| {
                    s.samples_appended
                }),
                (
                    counter(
                        "tessella_storage_samples_duplicate_total",
                        "Samples that were held already.",
                    ),
                    |s| s.samples_duplicate,
                ),
                (counter("tessella_storage_samples_rejected_total", "Samples refused."), |s| {
                    s.samples_rejected
                }),
                (
                    counter(
                        "tessella_storage_samples_out_of_order_total",
                        "Accepted samples that were older than the newest of their series.",
                    ),
                    |s| s.samples_out_of_order,
                ),
                (
                    counter("tessella_storage_log_records_total", "Records written to the log."),
                    |s| s.log_records,
                ),
                (
                    counter(
                        "tessella_storage_log_written_bytes_total",
                        "Bytes written to the log.",
                    ),
                    |s| s.log_bytes_written,
                ),
                (counter("tessella_storage_seals_total", "Windows sealed."), |s| s.seals),
                (counter("tessella_storage_sealed_blocks_total", "Blocks sealed."), |s| {
                    s.sealed_blocks
                }),
                (counter("tessella_storage_sealed_bytes_total", "Bytes of sealed blocks."), |s| {
                    s.sealed_bytes
                }),
                (
                    counter(
                        "tessella_storage_partitions_deleted_total",
                        "Partitions deleted by the retention.",
                    ),
                    |s| s.partitions_deleted,
                ),
            ],
        }
    }

    pub(super) fn refresh(&self, stats: &StoreStats) {
        let gauge = |count: u64| i64::try_from(count).unwrap_or(i64::MAX);
        self.head_series.set(gauge(stats.head_series as u64));
        self.newest_seconds.set(stats.newest_ms.unwrap_or(0) as f64 / 1000.0);
        self.queue_samples.set(gauge(stats.queue_samples as u64));
        self.log_bytes.set(gauge(stats.log_bytes));
        self.partitions.set(gauge(stats.partitions as u64));
        for (counter, figure) in &self.counters {
            // The figures only grow.
            counter.inc_by(figure(stats).saturating_sub(counter.get()));
        }
    }
}
