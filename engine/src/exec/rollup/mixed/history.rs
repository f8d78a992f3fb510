//! Histograms of one series that current and later ranges need.

use std::sync::Arc;

use model::{Histogram, HistogramSample, ResetHint};

use crate::exec::rollup::feed::histogram_bytes;
use crate::exec::rollup::mixed::starts::{self, Started};

/// A histogram of a series, with its relation to the previous one.
#[derive(Debug)]
pub(super) struct HistoryEntry {
    pub(super) at: Started,
    pub(super) histogram: Arc<Histogram>,
    /// Whether the counter was reset since the previous histogram; only computed if needed.
    pub(super) is_reset: bool,
    /// Whether the start timestamp is before the previous histogram.
    pub(super) overlaps: bool,
    /// Number of the first histogram of a sequence that ends here and has one schema and one kind
    /// (gauge or not), without reset or overlap.
    pub(super) steady_from: u64,
}

impl HistoryEntry {
    pub(super) fn is_gauge(&self) -> bool {
        self.histogram.reset_hint == ResetHint::Gauge
    }
}

/// Histograms of a series: in the current range, and read ahead.
///
/// Invariant: times strictly ascend, no staleness markers; `lo <= hi <= entries.len()`.
#[derive(Debug)]
pub(super) struct History {
    pub(super) entries: Vec<HistoryEntry>,
    /// Number of histograms dropped from the front.
    pub(super) base: u64,
    /// First histogram of the current range.
    pub(super) lo: usize,
    /// Index after the last histogram of the current range.
    pub(super) hi: usize,
    finds_resets: bool,
    bytes: u64,
}

impl History {
    /// Returns an empty history.
    pub(super) fn new(finds_resets: bool) -> History {
        History { entries: Vec::new(), base: 0, lo: 0, hi: 0, finds_resets, bytes: 0 }
    }

    /// Appends a histogram, unless it is a staleness marker.
    pub(super) fn push(&mut self, sample: HistogramSample) {
        let HistogramSample { timestamp_ms: time_ms, start_ms, histogram } = sample;
        if histogram.is_stale() {
            return;
        }
        let at = Started { start_ms, time_ms };
        let number = self.base + self.entries.len() as u64;
        let mut entry =
            HistoryEntry { at, histogram, is_reset: false, overlaps: false, steady_from: number };
        if let Some(before) = self.entries.last() {
            if self.finds_resets {
                entry.is_reset = starts::is_reset(before.at, at)
                    || entry.histogram.detect_reset(&before.histogram);
                entry.overlaps = starts::overlaps(before.at, at);
            }
            let is_steady = !entry.is_reset
                && !entry.overlaps
                && entry.histogram.schema == before.histogram.schema
                && entry.is_gauge() == before.is_gauge();
            if is_steady {
                entry.steady_from = before.steady_from;
            }
        }
        let is_held = |before: &HistoryEntry| Arc::ptr_eq(&before.histogram, &entry.histogram);
        if !self.entries.last().is_some_and(is_held) {
            self.bytes += histogram_bytes(&entry.histogram);
        }
        self.entries.push(entry);
    }

    /// Drops histograms that no later range needs, once they are at least half of the entries.
    pub(super) fn compact(&mut self) {
        // Keeps the last histogram for comparison with the next one.
        let count = self.lo.min(self.entries.len().saturating_sub(1));
        if count == 0 || self.lo * 2 < self.entries.len() {
            return;
        }
        // Adjacent entries may share a histogram; dropping the last of them frees its bytes.
        let ends = self.entries[..=count].windows(2);
        let freed = ends.filter(|pair| !Arc::ptr_eq(&pair[0].histogram, &pair[1].histogram));
        self.bytes -= freed.map(|pair| histogram_bytes(&pair[0].histogram)).sum::<u64>();
        self.entries.drain(..count);
        self.base += count as u64;
        self.lo -= count;
        self.hi -= count;
    }

    /// Returns the bytes held.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes + (self.entries.capacity() * size_of::<HistoryEntry>()) as u64
    }
}
