//! Counts of writes since the store was opened, and the size and newest time of the log.

use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};

use super::commit::CommitCounts;

/// Counts of commits and refused writes, and the size and newest time of the log.
#[derive(Debug)]
pub(crate) struct LogCounters {
    pub(crate) samples: AtomicU64,
    pub(crate) histograms: AtomicU64,
    pub(crate) duplicates: AtomicU64,
    pub(crate) rejected: AtomicU64,
    pub(crate) out_of_order: AtomicU64,
    pub(crate) writes_stalled: AtomicU64,
    pub(crate) writes_head_full: AtomicU64,
    pub(crate) records: AtomicU64,
    pub(crate) bytes_written: AtomicU64,
    pub(crate) bytes: AtomicU64,
    pub(crate) exemplars: AtomicU64,
    pub(crate) exemplars_ignored: AtomicU64,
    pub(crate) exemplars_dropped: AtomicU64,
    pub(crate) exemplars_out_of_order: AtomicU64,
    pub(crate) metadata_dropped: AtomicU64,
    newest_ms: AtomicI64,
}

impl Default for LogCounters {
    fn default() -> Self {
        LogCounters {
            samples: AtomicU64::new(0),
            histograms: AtomicU64::new(0),
            duplicates: AtomicU64::new(0),
            rejected: AtomicU64::new(0),
            out_of_order: AtomicU64::new(0),
            writes_stalled: AtomicU64::new(0),
            writes_head_full: AtomicU64::new(0),
            records: AtomicU64::new(0),
            bytes_written: AtomicU64::new(0),
            bytes: AtomicU64::new(0),
            exemplars: AtomicU64::new(0),
            exemplars_ignored: AtomicU64::new(0),
            exemplars_dropped: AtomicU64::new(0),
            exemplars_out_of_order: AtomicU64::new(0),
            metadata_dropped: AtomicU64::new(0),
            newest_ms: AtomicI64::new(i64::MIN),
        }
    }
}

impl LogCounters {
    /// Counts one commit.
    pub(crate) fn note_commit(&self, committed: CommitCounts) {
        for (counter, count) in [
            (&self.samples, committed.samples),
            (&self.histograms, committed.histograms),
            (&self.duplicates, committed.duplicates),
            (&self.rejected, committed.rejected),
            (&self.out_of_order, committed.out_of_order),
            (&self.exemplars, committed.exemplar_counts.accepted),
            (&self.exemplars_ignored, committed.exemplar_counts.ignored),
            (&self.exemplars_dropped, committed.exemplar_counts.dropped),
            (&self.exemplars_out_of_order, committed.exemplar_counts.out_of_order),
            (&self.metadata_dropped, committed.metadata_dropped),
            (&self.records, usize::from(committed.log_bytes > 0)),
            (&self.bytes_written, committed.log_bytes),
        ] {
            counter.fetch_add(count as u64, Ordering::Relaxed);
        }
        self.note_log(committed.log_bytes_open, committed.newest_ms);
    }

    /// Counts a write that was refused because the object store accepted no writes.
    pub(crate) fn note_stalled(&self) {
        self.writes_stalled.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts a write that was refused because the head exceeded its memory limit.
    pub(crate) fn note_head_full(&self) {
        self.writes_head_full.fetch_add(1, Ordering::Relaxed);
    }

    /// Returns the time of the newest sample of the log, if there is one.
    pub(crate) fn newest_ms(&self) -> Option<i64> {
        let newest_ms = self.newest_ms.load(Ordering::Relaxed);
        (newest_ms != i64::MIN).then_some(newest_ms)
    }

    /// Sets the size and the newest time of the log.
    pub(crate) fn note_log(&self, log_bytes: u64, newest_ms: i64) {
        self.bytes.store(log_bytes, Ordering::Relaxed);
        self.newest_ms.store(newest_ms, Ordering::Relaxed);
    }
}
