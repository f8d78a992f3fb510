//! State of seals and of what they leave to be deleted, which lives as long as the store is open.

use std::collections::{BTreeMap, VecDeque};

use crate::log::commit::Log;
use crate::meta::Meta;
use crate::window::partition_end_ms;

/// State of earlier seals.
pub(crate) struct SealState {
    /// The epoch up to which a window is sealed.
    pub(crate) watermarks: BTreeMap<i64, u32>,
    /// The first log epoch that counts, as the store has it.
    pub(crate) first_epoch: u32,
    /// The last window that had closed when closed ones were sealed.
    pub(crate) closed_window: i64,
    /// Samples of each window that were open at the last look.
    pub(crate) open: BTreeMap<i64, u64>,
    /// Intents of seals since the start: windows of one epoch have different ones.
    pub(crate) intent_count: u32,
    /// Leftovers of cleaning and of failed seals, deleted once no selection reads them.
    pub(crate) leaving: VecDeque<Leaving>,
    /// The first partition that is kept, and the first selection that sees none before it: those
    /// are deleted once all selections before have ended.
    pub(crate) leaving_before: Option<(i64, u64)>,
    /// The first partition that is kept, as long as the store names it.
    pub(crate) kept_from: Option<i64>,
}

impl SealState {
    /// The state after a start, which has found what lies before some partition to be gone or not.
    pub(crate) fn new(meta: &Meta, leaving_before: Option<i64>) -> SealState {
        SealState {
            watermarks: meta.watermarks.clone(),
            first_epoch: meta.first_epoch,
            closed_window: i64::MIN,
            open: BTreeMap::new(),
            intent_count: 0,
            leaving: VecDeque::new(),
            leaving_before: leaving_before.map(|first_kept| (first_kept, 0)),
            kept_from: meta.kept_from,
        }
    }

    /// Whether the store is to name the first partition that is kept no more, once the log begins
    /// with an epoch: what lies before has been deleted, and a start would bring none of it back. Its
    /// watermarks have gone with it, so that records of it count again although they were sealed.
    pub(crate) fn has_left(&self, log: &Log, first_epoch: u32) -> bool {
        let is_left = |first_kept: i64| !has_records_before(log, first_epoch, first_kept);
        self.leaving_before.is_none() && self.kept_from.is_some_and(is_left)
    }
}

/// The first partition that is kept, where a start finds something before it: its deletion has been
/// cut off, or the log has records of it.
pub(crate) fn leaving_before(meta: &Meta, log: &Log) -> Option<i64> {
    meta.kept_from.filter(|first_kept| {
        meta.partitions.range(..first_kept).next().is_some()
            || has_records_before(log, meta.first_epoch, *first_kept)
    })
}

/// Returns whether records of log epochs from `first_epoch` on have samples before a partition.
fn has_records_before(log: &Log, first_epoch: u32, partition: i64) -> bool {
    log.has_records_before(first_epoch, partition_end_ms(partition - 1))
}

/// Leftovers of a day, kept after a failure or for selections under way.
#[derive(Debug)]
pub(crate) struct Leaving {
    /// The first selection that does not read it.
    pub(crate) unread_from: u64,
    pub(crate) partition: i64,
    /// Intents that list blocks.
    pub(crate) intents: Vec<Vec<u8>>,
    /// Set if the index has ids of which no samples are left.
    pub(crate) ids: bool,
}

impl Leaving {
    /// Blocks of runs that were not published.
    pub(crate) fn unpublished(partition: i64, intents: Vec<Vec<u8>>) -> Leaving {
        Leaving::blocks(0, partition, intents)
    }

    /// Blocks that selections before `unread_from` may read.
    pub(crate) fn blocks(unread_from: u64, partition: i64, intents: Vec<Vec<u8>>) -> Leaving {
        Leaving { unread_from, partition, intents, ids: false }
    }

    /// Index entries of ids without samples, which selections before `unread_from` may read.
    pub(crate) fn ids(unread_from: u64, partition: i64) -> Leaving {
        Leaving { unread_from, partition, intents: Vec::new(), ids: true }
    }
}
