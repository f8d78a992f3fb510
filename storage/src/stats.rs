//! Figures of the store, for metrics.

use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};

use crate::exemplar::RingStats;
use crate::follow::FollowStats;
use crate::index::cache::IndexCacheStats;
use crate::log::commit::Done;
use crate::lsm::{ReadCount, Reader};
use crate::metadata::TableStats;

/// What a store holds, and what it has done since it was opened.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct StoreStats {
    /// How the store is followed, where another process writes to it.
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
    /// How many there may be.
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
    /// Exemplars refused because they were behind the newest of their series.
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
    /// Parts that were let go of to make room.
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
    /// Runs that were let go of to make room.
    pub columns_evicted: u64,
}

/// What a sealed day holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DayStats {
    /// Where it begins, ms since the epoch.
    pub start_ms: i64,
    /// The first time after it.
    pub end_ms: i64,
    /// Series that are registered in it.
    pub series: u64,
    /// Bytes of its files, samples and index.
    pub bytes: u64,
}

/// The running figures.
#[derive(Debug)]
pub(crate) struct Counters {
    samples: AtomicU64,
    histograms: AtomicU64,
    duplicates: AtomicU64,
    rejected: AtomicU64,
    out_of_order: AtomicU64,
    writes_stalled: AtomicU64,
    writes_head_full: AtomicU64,
    warmed_bytes: AtomicU64,
    log_records: AtomicU64,
    log_bytes_written: AtomicU64,
    log_bytes: AtomicU64,
    newest_ms: AtomicI64,
    seals: AtomicU64,
    sealed_blocks: AtomicU64,
    sealed_bytes: AtomicU64,
    partitions_deleted: AtomicU64,
    exemplars: AtomicU64,
    exemplars_ignored: AtomicU64,
    exemplars_dropped: AtomicU64,
    exemplars_out_of_order: AtomicU64,
    metadata_dropped: AtomicU64,
}

impl Default for Counters {
    fn default() -> Self {
        Counters {
            samples: AtomicU64::new(0),
            histograms: AtomicU64::new(0),
            duplicates: AtomicU64::new(0),
            rejected: AtomicU64::new(0),
            out_of_order: AtomicU64::new(0),
            writes_stalled: AtomicU64::new(0),
            writes_head_full: AtomicU64::new(0),
            warmed_bytes: AtomicU64::new(0),
            log_records: AtomicU64::new(0),
            log_bytes_written: AtomicU64::new(0),
            log_bytes: AtomicU64::new(0),
            newest_ms: AtomicI64::new(i64::MIN),
            seals: AtomicU64::new(0),
            sealed_blocks: AtomicU64::new(0),
            sealed_bytes: AtomicU64::new(0),
            partitions_deleted: AtomicU64::new(0),
            exemplars: AtomicU64::new(0),
            exemplars_ignored: AtomicU64::new(0),
            exemplars_dropped: AtomicU64::new(0),
            exemplars_out_of_order: AtomicU64::new(0),
            metadata_dropped: AtomicU64::new(0),
        }
    }
}

impl Counters {
    /// Counts one commit.
    pub(crate) fn note_commit(&self, committed: Done) {
        self.samples.fetch_add(committed.samples as u64, Ordering::Relaxed);
        self.histograms.fetch_add(committed.histograms as u64, Ordering::Relaxed);
        self.duplicates.fetch_add(committed.duplicates as u64, Ordering::Relaxed);
        self.rejected.fetch_add(committed.rejected as u64, Ordering::Relaxed);
        self.out_of_order.fetch_add(committed.out_of_order as u64, Ordering::Relaxed);
        for (counter, count) in [
            (&self.exemplars, committed.exemplars.accepted),
            (&self.exemplars_ignored, committed.exemplars.ignored),
            (&self.exemplars_dropped, committed.exemplars.dropped),
            (&self.exemplars_out_of_order, committed.exemplars.out_of_order),
            (&self.metadata_dropped, committed.metadata_dropped),
        ] {
            counter.fetch_add(count as u64, Ordering::Relaxed);
        }
        self.log_records.fetch_add(u64::from(committed.log_bytes > 0), Ordering::Relaxed);
        self.log_bytes_written.fetch_add(committed.log_bytes as u64, Ordering::Relaxed);
        self.note_log(committed.log_bytes_open, committed.newest_ms);
    }

    /// Counts a write that was refused because the object store took none.
    pub(crate) fn note_stalled(&self) {
        self.writes_stalled.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts a write that was refused because the head took too much memory.
    pub(crate) fn note_head_full(&self) {
        self.writes_head_full.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts bytes that were read ahead of queries.
    pub(crate) fn note_warmed(&self, bytes: u64) {
        self.warmed_bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Bytes that were read ahead of queries.
    pub(crate) fn warmed_bytes(&self) -> u64 {
        self.warmed_bytes.load(Ordering::Relaxed)
    }

    /// Time of the newest sample of the log, if there is one.
    pub(crate) fn newest_ms(&self) -> Option<i64> {
        let newest_ms = self.newest_ms.load(Ordering::Relaxed);
        (newest_ms != i64::MIN).then_some(newest_ms)
    }

    /// Sets what the log holds.
    pub(crate) fn note_log(&self, log_bytes: u64, newest_ms: i64) {
        self.log_bytes.store(log_bytes, Ordering::Relaxed);
        self.newest_ms.store(newest_ms, Ordering::Relaxed);
    }

    /// Counts one sealed window.
    pub(crate) fn note_seal(&self, blocks: u64, bytes: u64) {
        self.seals.fetch_add(1, Ordering::Relaxed);
        self.sealed_blocks.fetch_add(blocks, Ordering::Relaxed);
        self.sealed_bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Counts one deleted partition.
    pub(crate) fn note_deleted(&self) {
        self.partitions_deleted.fetch_add(1, Ordering::Relaxed);
    }

    /// The figures, with those that others know.
    pub(crate) fn stats(
        &self,
        head_series: usize,
        queue_samples: usize,
        partitions: usize,
        ring: RingStats,
        table: TableStats,
        index: IndexCacheStats,
    ) -> StoreStats {
        StoreStats {
            head_series,
            newest_ms: self.newest_ms(),
            samples_appended: self.samples.load(Ordering::Relaxed),
            histograms_appended: self.histograms.load(Ordering::Relaxed),
            samples_duplicate: self.duplicates.load(Ordering::Relaxed),
            samples_rejected: self.rejected.load(Ordering::Relaxed),
            samples_out_of_order: self.out_of_order.load(Ordering::Relaxed),
            queue_samples,
            writes_stalled: self.writes_stalled.load(Ordering::Relaxed),
            writes_head_full: self.writes_head_full.load(Ordering::Relaxed),
            warmed_bytes: self.warmed_bytes(),
            log_records: self.log_records.load(Ordering::Relaxed),
            log_bytes_written: self.log_bytes_written.load(Ordering::Relaxed),
            log_bytes: self.log_bytes.load(Ordering::Relaxed),
            seals: self.seals.load(Ordering::Relaxed),
            sealed_blocks: self.sealed_blocks.load(Ordering::Relaxed),
            sealed_bytes: self.sealed_bytes.load(Ordering::Relaxed),
            partitions,
            partitions_deleted: self.partitions_deleted.load(Ordering::Relaxed),
            exemplars: ring.exemplars,
            exemplars_max: ring.exemplars_max,
            exemplar_series: ring.series,
            exemplar_bytes: ring.bytes,
            exemplar_oldest_ms: ring.oldest_ms,
            exemplars_appended: self.exemplars.load(Ordering::Relaxed),
            exemplars_ignored: self.exemplars_ignored.load(Ordering::Relaxed),
            exemplars_dropped: self.exemplars_dropped.load(Ordering::Relaxed),
            exemplars_out_of_order: self.exemplars_out_of_order.load(Ordering::Relaxed),
            metadata_metrics: table.metrics,
            metadata_bytes: table.bytes,
            metadata_dropped: self.metadata_dropped.load(Ordering::Relaxed),
            metadata_evicted: table.evicted,
            damaged_values: ring.damaged + table.damaged,
            index_cache_bytes: index.bytes,
            index_cache_hits: index.hits,
            index_cache_misses: index.misses,
            // Told by the cache itself.
            ..StoreStats::default()
        }
    }
}
