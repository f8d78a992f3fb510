//! Counts of what the tasks of a store have done since it was opened.

use std::sync::atomic::{AtomicU64, Ordering};

/// Counts of seals, deletions and reads ahead of queries.
#[derive(Debug, Default)]
pub(crate) struct CoreCounters {
    pub(crate) seals: AtomicU64,
    pub(crate) sealed_blocks: AtomicU64,
    pub(crate) sealed_bytes: AtomicU64,
    pub(crate) partitions_deleted: AtomicU64,
    pub(crate) partitions_summarized: AtomicU64,
    pub(crate) warmed_bytes: AtomicU64,
    pub(crate) summarized_blocks: AtomicU64,
}

impl CoreCounters {
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

    /// Counts a partition whose samples were replaced by summaries.
    pub(crate) fn note_day_summarized(&self) {
        self.partitions_summarized.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts bytes that were read ahead of queries.
    pub(crate) fn note_warmed(&self, bytes: u64) {
        self.warmed_bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Counts a block that a query did not read, as its summaries were enough.
    pub(crate) fn note_summarized(&self) {
        self.summarized_blocks.fetch_add(1, Ordering::Relaxed);
    }

    /// Returns the bytes that were read ahead of queries.
    pub(crate) fn warmed_bytes(&self) -> u64 {
        self.warmed_bytes.load(Ordering::Relaxed)
    }
}
