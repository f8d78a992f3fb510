//! Metrics of the store.

use std::sync::OnceLock;

use prometheus::{Gauge, IntCounter, IntCounterVec, IntGauge};
use storage::{Reader, RefusedSeries, StoreStats};

use super::Registrar;

/// Reads a figure of the statistics.
type Getter = fn(&StoreStats) -> u64;

/// Name, help and getter of gauges.
const GAUGES: [(&str, &str, Getter); 20] = [
    ("tessella_storage_block_cache_bytes", "Bytes of the block cache in memory.", |s| {
        s.block_cache_bytes as u64
    }),
    ("tessella_storage_disk_cache_bytes", "Bytes of the cache on disk.", |s| s.disk_cache_bytes),
    ("tessella_storage_head_series", "Series in the head.", |s| s.head_series as u64),
    ("tessella_storage_active_series", "Series with samples in the head.", |s| {
        s.active_series as u64
    }),
    ("tessella_storage_head_bytes", "Approximate memory of the head, in bytes.", |s| {
        s.head_bytes as u64
    }),
    ("tessella_storage_queue_samples", "Samples that wait for the log.", |s| {
        s.queue_samples as u64
    }),
    ("tessella_storage_log_bytes", "Bytes of the log that are not sealed.", |s| s.log_bytes),
    ("tessella_storage_file_bytes", "Bytes of files in use, without the write-ahead log.", |s| {
        s.file_bytes
    }),
    (
        "tessella_storage_uncompacted_segments",
        "Segments that are not compacted into one sorted run.",
        |s| s.uncompacted_segments as u64,
    ),
    ("tessella_storage_partitions", "Partitions with sealed samples.", |s| s.partitions as u64),
    ("tessella_storage_index_cache_bytes", "Bytes of the index cache for sealed days.", |s| {
        s.index_cache_bytes as u64
    }),
    ("tessella_storage_exemplars", "Exemplars in memory.", |s| s.exemplars as u64),
    ("tessella_storage_exemplars_max", "Maximum number of exemplars.", |s| s.exemplars_max as u64),
    ("tessella_storage_exemplar_series", "Series with exemplars.", |s| s.exemplar_series as u64),
    ("tessella_storage_exemplar_bytes", "Bytes of exemplars in memory.", |s| {
        s.exemplar_bytes as u64
    }),
    ("tessella_storage_metadata_metrics", "Metrics with metadata.", |s| s.metadata_metrics as u64),
    ("tessella_storage_metadata_bytes", "Bytes of metadata in memory.", |s| {
        s.metadata_bytes as u64
    }),
    ("tessella_storage_damaged_values", "Damaged stored values of exemplars and metadata.", |s| {
        s.damaged_values as u64
    }),
    ("tessella_storage_columns_bytes", "Bytes of the cache for decoded samples.", |s| {
        s.columns_bytes as u64
    }),
    (
        "tessella_storage_columns_bytes_max",
        "Maximum bytes of the cache for decoded samples.",
        |s| s.columns_bytes_max as u64,
    ),
];

/// Name, help and getter of counters.
const COUNTERS: [(&str, &str, Getter); 44] = [
    (
        "tessella_storage_block_cache_hits_total",
        "Lookups of blocks and indexes that were in memory.",
        |s| s.block_cache_hits,
    ),
    (
        "tessella_storage_block_cache_misses_total",
        "Lookups of blocks and indexes that were not in memory.",
        |s| s.block_cache_misses,
    ),
    (
        "tessella_storage_disk_cache_hits_total",
        "Parts of files that were in the cache on disk.",
        |s| s.disk_cache_hits,
    ),
    (
        "tessella_storage_disk_cache_misses_total",
        "Parts of files that were not in the cache on disk.",
        |s| s.disk_cache_misses,
    ),
    (
        "tessella_storage_disk_cache_evicted_total",
        "Parts of files evicted from the cache on disk.",
        |s| s.disk_cache_evicted,
    ),
    (
        "tessella_storage_disk_cache_failures_total",
        "Parts of files that could not be written to the cache on disk.",
        |s| s.disk_cache_failures,
    ),
    (
        "tessella_storage_warmed_bytes_total",
        "Bytes of blocks loaded by the warm-up after the start.",
        |s| s.warmed_bytes,
    ),
    (
        "tessella_storage_summarized_blocks_total",
        "Blocks that queries did not read, as their summaries were enough.",
        |s| s.summarized_blocks,
    ),
    (
        "tessella_storage_series_created_total",
        "Series added to the head, also by the replay of the log.",
        |s| s.series_created,
    ),
    ("tessella_storage_samples_appended_total", "Samples accepted.", |s| s.samples_appended),
    (
        "tessella_storage_histograms_appended_total",
        "Native histograms among the accepted samples.",
        |s| s.histograms_appended,
    ),
    ("tessella_storage_samples_duplicate_total", "Samples that were stored already.", |s| {
        s.samples_duplicate
    }),
    ("tessella_storage_samples_rejected_total", "Rejected samples.", |s| s.samples_rejected),
    (
        "tessella_storage_samples_out_of_order_total",
        "Accepted samples that were older than the newest of their series.",
        |s| s.samples_out_of_order,
    ),
    (
        "tessella_storage_writes_stalled_total",
        "Writes rejected because the object store accepted none in time.",
        |s| s.writes_stalled,
    ),
    (
        "tessella_storage_writes_head_full_total",
        "Writes rejected because head memory was full.",
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
        "tessella_storage_partitions_summarized_total",
        "Partitions whose samples were replaced by summaries.",
        |s| s.partitions_summarized,
    ),
    (
        "tessella_storage_orphans_deleted_total",
        "Deleted files and incomplete uploads of crashed processes.",
        |s| s.orphans_deleted,
    ),
    (
        "tessella_storage_orphan_bytes_deleted_total",
        "Bytes of deleted files of crashed processes, without incomplete uploads.",
        |s| s.orphan_bytes_deleted,
    ),
    (
        "tessella_storage_index_cache_hits_total",
        "Lookups in the index of sealed days that were in memory.",
        |s| s.index_cache_hits,
    ),
    (
        "tessella_storage_index_cache_misses_total",
        "Lookups in the index of sealed days that were not in memory.",
        |s| s.index_cache_misses,
    ),
    ("tessella_storage_exemplars_appended_total", "Exemplars accepted.", |s| s.exemplars_appended),
    (
        "tessella_storage_exemplars_ignored_total",
        "Exemplars that were stored already, superseded in the same write, or disabled.",
        |s| s.exemplars_ignored,
    ),
    (
        "tessella_storage_exemplars_dropped_total",
        "Exemplars of unknown series or too far in the future.",
        |s| s.exemplars_dropped,
    ),
    (
        "tessella_storage_exemplars_out_of_order_total",
        "Exemplars rejected because they were older than the newest of their series.",
        |s| s.exemplars_out_of_order,
    ),
    ("tessella_storage_metadata_dropped_total", "Metadata entries that were too long.", |s| {
        s.metadata_dropped
    }),
    ("tessella_storage_metadata_evicted_total", "Metrics whose metadata were evicted.", |s| {
        s.metadata_evicted
    }),
    (
        "tessella_storage_columns_hits_total",
        "Runs of decoded samples that were in the cache.",
        |s| s.columns_hits,
    ),
    (
        "tessella_storage_columns_misses_total",
        "Runs of samples that were decoded and added to the cache.",
        |s| s.columns_misses,
    ),
    (
        "tessella_storage_columns_evicted_total",
        "Runs of decoded samples evicted from the cache.",
        |s| s.columns_evicted,
    ),
    (
        "tessella_storage_kept_selections_hits_total",
        "Selections whose loaded series an earlier query had kept.",
        |s| s.kept_selections_hits,
    ),
    (
        "tessella_storage_kept_selections_misses_total",
        "Loaded selections that are large enough to keep.",
        |s| s.kept_selections_misses,
    ),
    (
        "tessella_storage_kept_lists_hits_total",
        "Selectors of lookups (names, values, series) whose sealed days an earlier one had kept.",
        |s| s.kept_lists_hits,
    ),
    (
        "tessella_storage_kept_lists_misses_total",
        "Selectors of such lookups for which the indexes of at least two days were read.",
        |s| s.kept_lists_misses,
    ),
    (
        "tessella_storage_object_store_writes_total",
        "Writes (PUTs) to the object store, without those of the lease; of an object in parts, \
         each part, the start and the end.",
        |s| s.object_store_writes.writes,
    ),
    (
        "tessella_storage_object_store_written_bytes_total",
        "Bytes written to the object store, without failed writes.",
        |s| s.object_store_writes.bytes,
    ),
    (
        "tessella_storage_object_store_lists_total",
        "Lists of objects, without those of the lease; a service counts one for each 1,000.",
        |s| s.object_store_writes.lists,
    ),
    (
        "tessella_storage_object_store_deletes_total",
        "Objects deleted from the object store.",
        |s| s.object_store_writes.deletes,
    ),
];

/// Metrics of the store, refreshed on each gathering.
pub(super) struct StoreMetrics {
    head_bytes_max: IntGauge,
    active_series_max: IntGauge,
    /// Absent for a store that is not on a local disk.
    disk_free_bytes: OnceLock<IntGauge>,
    newest_seconds: Gauge,
    exemplar_oldest_seconds: Gauge,
    gauges: Vec<(IntGauge, Getter)>,
    counters: Vec<(IntCounter, Getter)>,
    reads: IntCounterVec,
    read_bytes: IntCounterVec,
    refused: IntCounterVec,
}

impl StoreMetrics {
    pub(super) fn new(registrar: &Registrar<'_>) -> StoreMetrics {
        let gauge = |(name, help, getter)| (registrar.int_gauge(name, help), getter);
        let counter = |(name, help, getter)| (registrar.int_counter(name, help), getter);
        StoreMetrics {
            head_bytes_max: registrar.int_gauge(
                "tessella_storage_head_bytes_max",
                "Maximum memory of the head, in bytes (--storage.head-size).",
            ),
            active_series_max: registrar.int_gauge(
                "tessella_storage_active_series_max",
                "Maximum number of series with samples in the head; 0 without a limit.",
            ),
            disk_free_bytes: OnceLock::new(),
            newest_seconds: registrar.gauge(
                "tessella_storage_newest_sample_timestamp_seconds",
                "Time of the newest sample in the head; 0 without one.",
            ),
            exemplar_oldest_seconds: registrar.gauge(
                "tessella_storage_exemplar_oldest_timestamp_seconds",
                "Time of the exemplar that is removed next; 0 without one.",
            ),
            gauges: GAUGES.map(gauge).to_vec(),
            counters: COUNTERS.map(counter).to_vec(),
            reads: registrar.int_counter_vec(
                "tessella_storage_object_store_reads_total",
                "Reads (GETs) of the object store, by reader.",
                &["reader"],
            ),
            read_bytes: registrar.int_counter_vec(
                "tessella_storage_object_store_read_bytes_total",
                "Bytes read from the object store, by reader.",
                &["reader"],
            ),
            refused: registrar.int_counter_vec(
                "tessella_storage_series_rejected_samples_total",
                "Rejected samples of new series, by limit and metric; beyond the maximum of \
                 metrics without a name.",
                &["limit", "metric"],
            ),
        }
    }

    pub(super) fn set_limits(&self, head_bytes_max: u64, active_series_max: u32) {
        self.head_bytes_max.set(i64::try_from(head_bytes_max).unwrap_or(i64::MAX));
        self.active_series_max.set(i64::from(active_series_max));
    }

    pub(super) fn set_disk_free(&self, registrar: &Registrar<'_>, bytes: u64) {
        let new = || {
            registrar.int_gauge(
                "tessella_storage_disk_free_bytes",
                "Free bytes of the local disk of the store.",
            )
        };
        self.disk_free_bytes.get_or_init(new).set(i64::try_from(bytes).unwrap_or(i64::MAX));
    }

    pub(super) fn refresh(&self, stats: &StoreStats, refused: &[RefusedSeries]) {
        self.newest_seconds.set(stats.newest_ms.unwrap_or(0) as f64 / 1000.0);
        self.exemplar_oldest_seconds.set(stats.exemplar_oldest_ms.unwrap_or(0) as f64 / 1000.0);
        for (gauge, getter) in &self.gauges {
            gauge.set(i64::try_from(getter(stats)).unwrap_or(i64::MAX));
        }
        for (counter, getter) in &self.counters {
            // The figures only grow.
            counter.inc_by(getter(stats).saturating_sub(counter.get()));
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
