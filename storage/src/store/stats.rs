//! Statistics of the store, for metrics.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};

use super::Store;
use crate::follow::FollowStats;
use crate::lsm::{ReadCount, Reader, WriteCount};

/// Contents of a store, and counts since it was opened.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct StoreStats {
    /// Progress of the follower, if another process writes to the store.
    pub follow: Option<FollowStats>,
    /// Series in the head.
    pub head_series: usize,
    /// Series added to the head since the start, also by the replay of the log.
    pub series_created: u64,
    /// Series with unsealed samples.
    pub active_series: usize,
    /// Approximate bytes of the head in memory.
    pub head_bytes: usize,
    /// Time of the newest sample of the head, ms since the epoch; `None` without a sample.
    pub newest_ms: Option<i64>,
    /// Samples accepted since the start.
    pub samples_appended: u64,
    /// Native histograms accepted since the start.
    pub histograms_appended: u64,
    /// Duplicate samples, which were ignored.
    pub samples_duplicate: u64,
    /// Rejected samples.
    pub samples_rejected: u64,
    /// Accepted samples that were older than the newest sample of their series.
    pub samples_out_of_order: u64,
    /// Samples that wait for the log; a histogram counts as the number of floats that occupy as
    /// much memory.
    pub queue_samples: usize,
    /// Writes that were refused because the object store accepted no writes for too long.
    pub writes_stalled: u64,
    /// Writes that were refused because the head exceeded its memory limit.
    pub writes_head_full: u64,
    /// Records written to the log.
    pub log_records: u64,
    /// Bytes written to the log.
    pub log_bytes_written: u64,
    /// Bytes of the log that are not sealed yet.
    pub log_bytes: u64,
    /// Windows sealed.
    pub seals: u64,
    /// Blocks sealed.
    pub sealed_blocks: u64,
    /// Bytes of sealed blocks.
    pub sealed_bytes: u64,
    /// Bytes of the SSTs in use; without obsolete ones and without the WAL.
    pub file_bytes: u64,
    /// Deleted files, complete or partial, that crashes had left.
    pub orphans_deleted: u64,
    /// Known bytes of the files in `orphans_deleted`.
    pub orphan_bytes_deleted: u64,
    /// Partitions with sealed samples.
    pub partitions: usize,
    /// Partitions deleted by the retention.
    pub partitions_deleted: u64,
    /// Number of exemplars.
    pub exemplars: usize,
    /// Maximum number of exemplars.
    pub exemplars_max: usize,
    /// Series that have exemplars.
    pub exemplar_series: usize,
    /// Bytes of exemplars in memory.
    pub exemplar_bytes: usize,
    /// Time of the exemplar that is evicted next, ms since the epoch.
    pub exemplar_oldest_ms: Option<i64>,
    /// Exemplars accepted since the start.
    pub exemplars_appended: u64,
    /// Exemplars that were acknowledged and not kept: duplicates, overtaken, or turned off.
    pub exemplars_ignored: u64,
    /// Exemplars that were dropped: of unknown series, or too far ahead of the clock.
    pub exemplars_dropped: u64,
    /// Exemplars rejected because they were older than the newest exemplar of their series.
    pub exemplars_out_of_order: u64,
    /// Metrics with metadata.
    pub metadata_metrics: usize,
    /// Bytes of metadata in memory.
    pub metadata_bytes: usize,
    /// Metadata entries dropped because they were too long.
    pub metadata_dropped: u64,
    /// Metrics whose metadata was evicted because there were too many metrics.
    pub metadata_evicted: u64,
    /// Stored values of exemplars and metadata that cannot be read.
    pub damaged_values: usize,
    /// Bytes of the block cache, which has blocks and indexes of SSTs in memory.
    pub block_cache_bytes: usize,
    /// Look-ups in the block cache that hit.
    pub block_cache_hits: u64,
    /// Look-ups in the block cache that missed.
    pub block_cache_misses: u64,
    /// Bytes of the disk cache, which has parts of SSTs.
    pub disk_cache_bytes: u64,
    /// Look-ups in the disk cache that hit.
    pub disk_cache_hits: u64,
    /// Look-ups in the disk cache that missed.
    pub disk_cache_misses: u64,
    /// Parts evicted from the disk cache.
    pub disk_cache_evicted: u64,
    /// Parts that could not be written to the disk cache.
    pub disk_cache_failures: u64,
    /// Bytes of blocks that were read ahead of queries after the start.
    pub warmed_bytes: u64,
    /// Partitions whose samples were replaced by summaries.
    pub partitions_summarized: u64,
    /// Blocks that queries did not read, as the summaries were enough.
    pub summarized_blocks: u64,
    /// Segments (a partition, or the dictionary) that are not compacted into one sorted run: a
    /// query reads each run separately.
    pub uncompacted_segments: usize,
    /// Reads of the object store since the start, in the order of [`Reader::ALL`].
    pub object_store_reads: [ReadCount; Reader::ALL.len()],
    /// Other requests to the object store since the start.
    pub object_store_writes: WriteCount,
    /// Bytes of the index cache, which has indexes of sealed days in memory.
    pub index_cache_bytes: usize,
    /// Maximum bytes of the index cache.
    pub index_cache_bytes_max: usize,
    /// Look-ups in the index cache that hit.
    pub index_cache_hits: u64,
    /// Look-ups in the index cache that missed.
    pub index_cache_misses: u64,
    /// Bytes of the column cache, which has decoded floats.
    pub columns_bytes: usize,
    /// Maximum bytes of the column cache.
    pub columns_bytes_max: usize,
    /// Look-ups in the column cache that hit.
    pub columns_hits: u64,
    /// Columns decoded and added to the column cache.
    pub columns_misses: u64,
    /// Columns evicted from the column cache.
    pub columns_evicted: u64,
    /// Selections whose loaded series were kept by an earlier query.
    pub kept_selections_hits: u64,
    /// Loaded selections that are large enough to keep.
    pub kept_selections_misses: u64,
    /// Bytes of lists that lookups of names, values and series keep.
    pub kept_lists_bytes: usize,
    /// Maximum bytes of these lists.
    pub kept_lists_bytes_max: usize,
    /// Selectors of lookups whose sealed days an earlier lookup had kept.
    pub kept_lists_hits: u64,
    /// Selectors of lookups for which the indexes of at least two sealed days were read.
    pub kept_lists_misses: u64,
}

/// Contents of a sealed day.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DayStats {
    /// Start, ms since the epoch.
    pub start_ms: i64,
    /// First time after the day, ms since the epoch.
    pub end_ms: i64,
    /// Number of registered series.
    pub series: u64,
    /// Bytes of samples and index in SSTs.
    pub bytes: u64,
}

impl Store {
    /// Returns the statistics of the store.
    pub fn stats(&self) -> StoreStats {
        let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let core = &self.core;
        let (log, seals) = (&core.log_counters, &core.counters);
        let (ring, table, index) =
            (core.exemplar_ring.stats(), core.metadata.stats(), core.index.stats());
        let follow = self.following().map(|progress| progress.stats());
        let columns = core.columns.stats();
        let (kept_selections_hits, kept_selections_misses) = core.kept_sets.counts();
        let lists = [core.kept_texts.stats(), core.kept_series.stats()];
        let blocks = core.lsm.block_cache_stats();
        let disk = core.lsm.disk_cache_stats();
        let orphans = core.lsm.orphan_stats();
        StoreStats {
            follow,
            head_series: core.head.series_count(),
            series_created: core.head.created_count(),
            active_series: core.head.active_count(),
            head_bytes: core.head.bytes(),
            newest_ms: log.newest_ms(),
            samples_appended: count(&log.samples),
            histograms_appended: count(&log.histograms),
            samples_duplicate: count(&log.duplicates),
            samples_rejected: count(&log.rejected),
            samples_out_of_order: count(&log.out_of_order),
            queue_samples: core.queue.weight(),
            writes_stalled: count(&log.writes_stalled),
            writes_head_full: count(&log.writes_head_full),
            log_records: count(&log.records),
            log_bytes_written: count(&log.bytes_written),
            log_bytes: count(&log.bytes),
            seals: count(&seals.seals),
            sealed_blocks: count(&seals.sealed_blocks),
            sealed_bytes: count(&seals.sealed_bytes),
            file_bytes: core.lsm.file_bytes(),
            orphans_deleted: orphans.files,
            orphan_bytes_deleted: orphans.bytes,
            partitions: core.read_partitions(BTreeMap::len),
            partitions_deleted: count(&seals.partitions_deleted),
            exemplars: ring.exemplars,
            exemplars_max: ring.exemplars_max,
            exemplar_series: ring.series,
            exemplar_bytes: ring.bytes,
            exemplar_oldest_ms: ring.oldest_ms,
            exemplars_appended: count(&log.exemplars),
            exemplars_ignored: count(&log.exemplars_ignored),
            exemplars_dropped: count(&log.exemplars_dropped),
            exemplars_out_of_order: count(&log.exemplars_out_of_order),
            metadata_metrics: table.metrics,
            metadata_bytes: table.bytes,
            metadata_dropped: count(&log.metadata_dropped),
            metadata_evicted: table.evicted,
            damaged_values: ring.damaged + table.damaged,
            block_cache_bytes: blocks.bytes,
            block_cache_hits: blocks.hits,
            block_cache_misses: blocks.misses,
            disk_cache_bytes: disk.bytes,
            disk_cache_hits: disk.hits,
            disk_cache_misses: disk.misses,
            disk_cache_evicted: disk.evictions,
            disk_cache_failures: disk.failures,
            warmed_bytes: count(&seals.warmed_bytes),
            partitions_summarized: count(&seals.partitions_summarized),
            summarized_blocks: count(&seals.summarized_blocks),
            uncompacted_segments: core.lsm.uncompacted_segments(),
            object_store_reads: core.lsm.read_counts(),
            object_store_writes: core.lsm.write_count(),
            index_cache_bytes: index.bytes,
            index_cache_bytes_max: index.bytes_max,
            index_cache_hits: index.hits,
            index_cache_misses: index.misses,
            columns_bytes: columns.bytes,
            columns_bytes_max: columns.bytes_max,
            columns_hits: columns.hits,
            columns_misses: columns.misses,
            columns_evicted: columns.evictions,
            kept_selections_hits,
            kept_selections_misses,
            kept_lists_bytes: lists.iter().map(|list| list.bytes).sum(),
            kept_lists_bytes_max: lists.iter().map(|list| list.bytes_max).sum(),
            kept_lists_hits: lists.iter().map(|list| list.hits).sum(),
            kept_lists_misses: lists.iter().map(|list| list.misses).sum(),
        }
    }
}
