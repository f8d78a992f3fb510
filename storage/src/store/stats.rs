//! Figures of the store, for metrics, gathered from their owners.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};

use super::Store;
use crate::follow::FollowStats;
use crate::lsm::{ReadCount, Reader};

/// Contents of a store, and counts since it was opened.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct StoreStats {
    /// Progress of the follower, if another process writes to the store.
    pub follow: Option<FollowStats>,
    /// Series in the head.
    pub head_series: usize,
    /// Series of which something is not sealed.
    pub active_series: usize,
    /// About how many bytes the head takes in memory.
    pub head_bytes: usize,
    /// Time of the newest sample of the head, ms since the epoch; `None` without a sample.
    pub newest_ms: Option<i64>,
    /// Samples accepted since the start.
    pub samples_appended: u64,
    /// Native histograms among them.
    pub histograms_appended: u64,
    /// Samples that were held already.
    pub samples_duplicate: u64,
    /// Samples refused.
    pub samples_rejected: u64,
    /// Accepted samples that were older than the newest of their series.
    pub samples_out_of_order: u64,
    /// Samples that wait for the log; a histogram counts as many floats as take its memory.
    pub queue_samples: usize,
    /// Writes that were refused because the object store took none for too long.
    pub writes_stalled: u64,
    /// Writes that were refused because the head took more memory than it may.
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
    /// Bytes of these blocks.
    pub sealed_bytes: u64,
    /// Bytes of the files of the tree that are in use; not of those that are to be deleted, nor of
    /// its write-ahead log.
    pub file_bytes: u64,
    /// Files, and halves of such, that crashes had left and that have been deleted.
    pub orphans_deleted: u64,
    /// Their bytes, as far as they are known.
    pub orphan_bytes_deleted: u64,
    /// Partitions that hold something sealed.
    pub partitions: usize,
    /// Partitions deleted by the retention.
    pub partitions_deleted: u64,
    /// Exemplars that are held.
    pub exemplars: usize,
    /// Maximum of exemplars.
    pub exemplars_max: usize,
    /// Series that have exemplars.
    pub exemplar_series: usize,
    /// Bytes that exemplars take in memory.
    pub exemplar_bytes: usize,
    /// Time of the exemplar that goes next, ms since the epoch.
    pub exemplar_oldest_ms: Option<i64>,
    /// Exemplars accepted since the start.
    pub exemplars_appended: u64,
    /// Exemplars that were acknowledged and not kept: held already, overtaken, turned off.
    pub exemplars_ignored: u64,
    /// Exemplars that were dropped: of unknown series, or too far ahead of the clock.
    pub exemplars_dropped: u64,
    /// Exemplars refused because they were older than the newest of their series.
    pub exemplars_out_of_order: u64,
    /// Metrics of which something is known.
    pub metadata_metrics: usize,
    /// Bytes that this takes in memory.
    pub metadata_bytes: usize,
    /// Metadata entries that were too long to be kept.
    pub metadata_dropped: u64,
    /// Metrics of which nothing is known any more, because there were too many.
    pub metadata_evicted: u64,
    /// Stored values of exemplars and metadata that cannot be read.
    pub damaged_values: usize,
    /// Bytes of blocks and indexes of the tree's files that are kept in memory.
    pub block_cache_bytes: usize,
    /// Look-ups of such that were kept.
    pub block_cache_hits: u64,
    /// Look-ups of such that were not.
    pub block_cache_misses: u64,
    /// Bytes of files in the cache on disk.
    pub disk_cache_bytes: u64,
    /// Parts of the tree's files that were there when they were wanted.
    pub disk_cache_hits: u64,
    /// Parts that were not.
    pub disk_cache_misses: u64,
    /// Parts that were evicted.
    pub disk_cache_evicted: u64,
    /// Parts that could not be written to the disk.
    pub disk_cache_failures: u64,
    /// Bytes of blocks that were read ahead of queries after the start.
    pub warmed_bytes: u64,
    /// Partitions, and the dictionary of all, whose files are not merged into one run: a query
    /// reads each run by itself.
    pub unmerged_segments: usize,
    /// Reads of the object store since the start, in the order of [`Reader::ALL`].
    pub object_store_reads: [ReadCount; Reader::ALL.len()],
    /// Bytes of the index of sealed days that are kept in memory.
    pub index_cache_bytes: usize,
    /// Look-ups in it of what was known.
    pub index_cache_hits: u64,
    /// Look-ups in it of what had to be read.
    pub index_cache_misses: u64,
    /// Bytes of decoded floats that are kept.
    pub columns_bytes: usize,
    /// The most there may be.
    pub columns_bytes_max: usize,
    /// Runs of samples that were kept when they were wanted.
    pub columns_hits: u64,
    /// Runs that were decoded and kept.
    pub columns_misses: u64,
    /// Runs that were evicted.
    pub columns_evicted: u64,
}

/// Contents of a sealed day.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DayStats {
    /// Start, ms since the epoch.
    pub start_ms: i64,
    /// The first time after it.
    pub end_ms: i64,
    /// Series that are registered in it.
    pub series: u64,
    /// Bytes of its files, samples and index.
    pub bytes: u64,
}

impl Store {
    /// Returns what the store holds, and what it has done.
    pub fn stats(&self) -> StoreStats {
        let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let core = &self.core;
        let (log, seals) = (&core.log_counters, &core.counters);
        let (ring, table, index) =
            (core.exemplars.stats(), core.metadata.stats(), core.index.stats());
        let follow = self.progress.as_ref().map(|progress| progress.stats());
        let columns = core.columns.stats();
        let blocks = core.lsm.block_cache_stats();
        let disk = core.lsm.disk_cache_stats();
        let orphans = core.lsm.orphan_stats();
        StoreStats {
            follow,
            head_series: core.head.series_count(),
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
            unmerged_segments: core.lsm.unmerged_segments(),
            object_store_reads: core.lsm.read_counts(),
            index_cache_bytes: index.bytes,
            index_cache_hits: index.hits,
            index_cache_misses: index.misses,
            columns_bytes: columns.bytes,
            columns_bytes_max: columns.bytes_max,
            columns_hits: columns.hits,
            columns_misses: columns.misses,
            columns_evicted: columns.evictions,
        }
    }
}
