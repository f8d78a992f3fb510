//! Removal of empty series from the head.

use std::sync::atomic::Ordering;

use super::series::HeadSeries;
use super::slots::SlotPlace;
use super::{Head, SHARD_COUNT};

impl Head {
    /// Removes empty series for which `is_idle` returns true. Returns their number.
    ///
    /// The caller blocks commits, so that no slot is reused before this has returned. It also
    /// counts the bytes of the remaining series again.
    pub(crate) fn forget(&self, mut is_idle: impl FnMut(&HeadSeries) -> bool) -> usize {
        let mut turns = self.forget_in_turns();
        while turns.next(&mut is_idle) {}
        turns.count()
    }

    /// Returns the turns of [`Head::forget`], between which the caller may allow commits.
    pub(crate) fn forget_in_turns(&self) -> ForgetTurns<'_> {
        let bytes_before = self.series_bytes.load(Ordering::Relaxed);
        ForgetTurns { head: self, bytes_before, shard_index: 0, count: 0, bytes: 0 }
    }
}

/// Removal of series, one shard in a turn. The bytes of the head are counted again after the last
/// turn; those of samples that are written meanwhile may count twice.
pub(crate) struct ForgetTurns<'a> {
    head: &'a Head,
    bytes_before: usize,
    shard_index: usize,
    count: usize,
    bytes: usize,
}

impl ForgetTurns<'_> {
    /// Returns the number of removed series.
    pub(crate) fn count(&self) -> usize {
        self.count
    }

    /// Removes series of the next shard. Returns false once there is none. The caller blocks
    /// commits.
    pub(crate) fn next(&mut self, mut is_idle: impl FnMut(&HeadSeries) -> bool) -> bool {
        let (head, shard_index) = (self.head, self.shard_index);
        if shard_index == SHARD_COUNT {
            // Wraps if the head has shrunk.
            let change = self.bytes.wrapping_sub(self.bytes_before);
            head.series_bytes.fetch_add(change, Ordering::Relaxed);
            head.index_bytes.store(head.index_read().bytes(), Ordering::Relaxed);
            return false;
        }
        let mut removed = Vec::new();
        {
            let mut shard = head.lock_shard(shard_index);
            for (entry, slot) in shard.0.iter_mut().enumerate() {
                if slot.as_ref().is_some_and(|s| s.is_empty() && is_idle(s))
                    && let Some(series) = slot.take()
                {
                    if series.is_active {
                        head.active.leave(&series.labels);
                    }
                    let place = SlotPlace { shard: shard_index, entry };
                    removed.push((place.slot(), series.labels));
                }
                self.bytes += slot.as_ref().map_or(0, |series| series.bytes());
            }
        }
        let is_any = !removed.is_empty();
        self.count += removed.len();
        for (slot, labels) in removed {
            head.forget_one(slot, &labels);
        }
        if is_any {
            // Last, and before a slot is reused: a selection that has found a removed series has
            // read an earlier generation, and detects the change.
            head.generation.fetch_add(1, Ordering::AcqRel);
        }
        self.shard_index += 1;
        true
    }
}
