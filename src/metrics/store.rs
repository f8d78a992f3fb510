//! The figures of the store.

use prometheus::{Gauge, IntCounter, IntCounterVec, IntGauge};
use storage::{Reader, RefusedSeries, StoreStats};

use super::Own;

/// Takes one figure out of all.
type Figure = fn(&StoreStats) -> u64;

/// Name, help and figure of what goes up and down.
const GAUGES: [(&str, &str, Figure); 20] = [
    (
        "tessella_storage_block_cache_bytes",
        "Bytes of blocks of files that are kept in memory.",
        |s| s.block_cache_bytes as u64,
    ),
    ("tessella_storage_disk_cache_bytes", "Bytes of the cache on disk.", |s| s.disk_cache_bytes),
    ("tessella_storage_head_series", "Series in the head.", |s| s.head_series as u64),
    ("tessella_storage_active_series", "Series with samples that are not sealed.", |s| {
        s.active_series as u64
    }),
    ("tessella_storage_head_bytes", "Bytes of memory that the head takes, about.", |s| {
        s.head_bytes as u64
    }),
    ("tessella_storage_queue_samples", "Samples that wait for the log.", |s| {
        s.queue_samples as u64
    }),
    ("tessella_storage_log_bytes", "Bytes of the log that are not sealed.", |s| s.log_bytes),
    (
        "tessella_storage_file_bytes",
        "Bytes of the files in use; those of the write-ahead log are not among them.",
        |s| s.file_bytes,
    ),
    (
        "tessella_storage_unmerged_segments",
        "Days, and the dictionary of all, whose files are not merged into one run.",
        |s| s.unmerged_segments as u64,
    ),
    ("tessella_storage_partitions", "Partitions that hold something sealed.", |s| {
        s.partitions as u64
    }),
    (
        "tessella_storage_index_cache_bytes",
        "Bytes of the index of sealed days that are kept in memory.",
        |s| s.index_cache_bytes as u64,
    ),
    ("tessella_storage_exemplars", "Exemplars that are held.", |s| s.exemplars as u64),
    ("tessella_storage_exemplars_max", "Exemplars that may be held.", |s| s.exemplars_max as u64),
    ("tessella_storage_exemplar_series", "Series that have exemplars.", |s| {
        s.exemplar_series as u64
    }),
    ("tessella_storage_exemplar_bytes", "Bytes that exemplars take in memory.", |s| {
        s.exemplar_bytes as u64
    }),
    ("tessella_storage_metadata_metrics", "Metrics with metadata.", |s| s.metadata_metrics as u64),
    ("tessella_storage_metadata_bytes", "Bytes that metadata take in memory.", |s| {
        s.metadata_bytes as u64
    }),
    (
        "tessella_storage_damaged_values",
        "Stored values of exemplars and metadata that cannot be read.",
        |s| s.damaged_values as u64,
    ),
    ("tessella_storage_columns_bytes", "Bytes of decoded samples that are kept.", |s| {
        s.columns_bytes as u64
    }),
    ("tessella_storage_columns_bytes_max", "Bytes of decoded samples that may be kept.", |s| {
        s.columns_bytes_max as u64
    }),
];

/// Name, help and figure of what only grows.
const COUNTERS: [(&str, &str, Figure); 33] = [
    (
        "tessella_storage_block_cache_hits_total",
        "Look-ups of blocks and indexes of files that were in memory.",
        |s| s.block_cache_hits,
    ),
    (
        "tessella_storage_block_cache_misses_total",
        "Look-ups of blocks and indexes of files that were not in memory.",
        |s| s.block_cache_misses,
    ),
    (
        "tessella_storage_disk_cache_hits_total",
        "Parts of files that were in the cache on disk when they were wanted.",
        |s| s.disk_cache_hits,
    ),
    (
        "tessella_storage_disk_cache_misses_total",
        "Parts of files that had to be fetched because the cache on disk did not have them.",
        |s| s.disk_cache_misses,
    ),
    (
        "tessella_storage_disk_cache_evicted_total",
        "Parts of files that left the cache on disk to make room for others.",
        |s| s.disk_cache_evicted,
    ),
    (
        "tessella_storage_disk_cache_failures_total",
        "Parts of files that could not be written to the cache on disk.",
        |s| s.disk_cache_failures,
    ),
    (
        "tessella_storage_warmed_bytes_total",
        "Bytes of blocks that were read ahead of queries after the start.",
        |s| s.warmed_bytes,
    ),
    ("tessella_storage_samples_appended_total", "Samples accepted.", |s| s.samples_appended),
    (
        "tessella_storage_histograms_appended_total",
        "Native histograms among the accepted samples.",
        |s| s.histograms_appended,
    ),
    ("tessella_storage_samples_duplicate_total", "Samples that were held already.", |s| {
        s.samples_duplicate
    }),
    ("tessella_storage_samples_rejected_total", "Samples refused.", |s| s.samples_rejected),
    (
        "tessella_storage_samples_out_of_order_total",
        "Accepted samples that were older than the newest of their series.",
        |s| s.samples_out_of_order,
    ),
    (
        "tessella_storage_writes_stalled_total",
        "Writes refused because the object store took none for too long.",
        |s| s.writes_stalled,
    ),
    (
        "tessella_storage_writes_head_full_total",
        "Writes refused because the head took more memory than it may.",
        |s| s.writes_head_full,
    ),
    ("tessella_storage_log_records_total", "Records written to the log.", |s| s.log_records),
    ("tessella_storage_log_written_bytes_total", "Bytes written to the log.", |s| {
        s.log_bytes_written
    }),
    ("tessella_storage_seals_total", "Windows sealed.", |s| s.seals),
    ("tessella_storage_sealed_blocks_total", "Blocks sealed.", |s| s.sealed_blocks),
    ("tessella_storage_sealed_bytes_total", "Bytes of sealed blocks.", |s| s.sealed_bytes),
    ("tessella_storage_partitions_deleted_total", "Partitions deleted by the retention.", |s| {
        s.partitions_deleted
    }),
    (
        "tessella_storage_orphans_deleted_total",
        "Files, and halves of such, that crashes had left and that were deleted.",
        |s| s.orphans_deleted,
    ),
    (
        "tessella_storage_orphan_bytes_deleted_total",
        "Bytes of files that crashes had left and that were deleted; not those of halves of \
         uploads to an object store.",
        |s| s.orphan_bytes_deleted,
    ),
    (
        "tessella_storage_index_cache_hits_total",
        "Look-ups in the index of sealed days that were answered from memory.",
        |s| s.index_cache_hits,
    ),
    (
        "tessella_storage_index_cache_misses_total",
        "Look-ups in the index of sealed days that had to read.",
        |s| s.index_cache_misses,
    ),
    ("tessella_storage_exemplars_appended_total", "Exemplars accepted.", |s| s.exemplars_appended),
    (
        "tessella_storage_exemplars_ignored_total",
        "Exemplars that were held already, overtaken in the same write, or turned off.",
        |s| s.exemplars_ignored,
    ),
    (
        "tessella_storage_exemplars_dropped_total",
        "Exemplars of unknown series or too far in the future.",
        |s| s.exemplars_dropped,
    ),
    (
        "tessella_storage_exemplars_out_of_order_total",
        "Exemplars refused because they were behind the newest of their series.",
        |s| s.exemplars_out_of_order,
    ),
    ("tessella_storage_metadata_dropped_total", "Metadata entries that were too long.", |s| {
        s.metadata_dropped
    }),
    (
        "tessella_storage_metadata_evicted_total",
        "Metrics whose metadata had to go because there were too many.",
        |s| s.metadata_evicted,
    ),
    (
        "tessella_storage_columns_hits_total",
        "Runs of samples that were kept decoded when a query wanted them.",
        |s| s.columns_hits,
    ),
    (
        "tessella_storage_columns_misses_total",
        "Runs of samples that a query had to decode, and that were kept then.",
        |s| s.columns_misses,
    ),
    (
        "tessella_storage_columns_evicted_total",
        "Decoded runs of samples that were let go of to make room for others.",
        |s| s.columns_evicted,
    ),
];

/// The metrics of the store, refreshed on each gathering.
pub(super) struct StoreMetrics {
    newest_seconds: Gauge,
    exemplar_oldest_seconds: Gauge,
    gauges: Vec<(IntGauge, Figure)>,
    counters: Vec<(IntCounter, Figure)>,
    reads: IntCounterVec,
    read_bytes: IntCounterVec,
    refused: IntCounterVec,
}

impl StoreMetrics {
    pub(super) fn new(own: &Own<'_>) -> StoreMetrics {
        let gauge = |(name, help, figure)| (own.int_gauge(name, help), figure);
        let counter = |(name, help, figure)| (own.int_counter(name, help), figure);
        StoreMetrics {
            newest_seconds: own.gauge(
                "tessella_storage_newest_sample_timestamp_seconds",
                "Time of the newest sample in the head; 0 without one.",
            ),
            exemplar_oldest_seconds: own.gauge(
                "tessella_storage_exemplar_oldest_timestamp_seconds",
                "Time of the exemplar that makes room next; 0 without one.",
            ),
            gauges: GAUGES.map(gauge).to_vec(),
            counters: COUNTERS.map(counter).to_vec(),
            reads: own.int_counter_vec(
                "tessella_storage_object_store_reads_total",
                "Reads (GETs) of the object store, by who makes them.",
                &["reader"],
            ),
            read_bytes: own.int_counter_vec(
                "tessella_storage_object_store_read_bytes_total",
                "Bytes that reads of the object store fetched, by who makes them.",
                &["reader"],
            ),
            refused: own.int_counter_vec(
                "tessella_storage_series_refused_samples_total",
                "Samples of new series that were refused, by limit and metric; those of many more \
                 metrics together, without a name.",
                &["limit", "metric"],
            ),
        }
    }

    pub(super) fn refresh(&self, stats: &StoreStats, refused: &[RefusedSeries]) {
        self.newest_seconds.set(stats.newest_ms.unwrap_or(0) as f64 / 1000.0);
        self.exemplar_oldest_seconds.set(stats.exemplar_oldest_ms.unwrap_or(0) as f64 / 1000.0);
        for (gauge, figure) in &self.gauges {
            gauge.set(i64::try_from(figure(stats)).unwrap_or(i64::MAX));
        }
        for (counter, figure) in &self.counters {
            // The figures only grow.
            counter.inc_by(figure(stats).saturating_sub(counter.get()));
        }
        for RefusedSeries { metric, reason, samples } in refused {
            let limit = reason.as_str();
            let counter = self.refused.with_label_values(&[limit, metric]);
            counter.inc_by(samples.saturating_sub(counter.get()));
        }
        for (reader, count) in Reader::ALL.iter().zip(&stats.object_store_reads) {
            for (metric, figure) in [(&self.reads, count.reads), (&self.read_bytes, count.bytes)] {
                let counter = metric.with_label_values(&[reader.name()]);
                counter.inc_by(figure.saturating_sub(counter.get()));
            }
        }
    }
}
