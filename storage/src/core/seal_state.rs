//! State of seals and their leftovers while the store is open.

use std::collections::{BTreeMap, VecDeque};

use crate::epoch::Epoch;
use crate::log::commit::Log;
use crate::meta::{Meta, Summarized};
use crate::window::{PartitionId, Window};

/// State of earlier seals.
pub(crate) struct SealState {
    /// Last sealed epoch of each window.
    pub(crate) watermarks: BTreeMap<Window, Epoch>,
    /// Stored first log epoch to replay.
    pub(crate) first_epoch: Epoch,
    /// Last closed window at the last seal of closed windows.
    pub(crate) closed_window: Window,
    /// Number of open samples of each window at the last check.
    pub(crate) open: BTreeMap<Window, u64>,
    /// Number of intents since the start; makes their keys unique in an epoch.
    pub(crate) intent_count: u32,
    /// Leftovers of cleaning and of failed seals, deleted once no selection reads them.
    pub(crate) leftovers: VecDeque<Leftovers>,
    /// First kept partition, and the first selection that sees no earlier one. Earlier partitions
    /// are deleted once all earlier selections have ended.
    pub(crate) deleting_before: Option<(PartitionId, u64)>,
    /// First kept partition, while it is stored.
    pub(crate) kept_from: Option<PartitionId>,
    /// Partitions whose samples are replaced by summaries, as stored.
    pub(crate) summarized: Option<Summarized>,
    /// Progress of the day that is being summarized.
    pub(crate) summarizing: Option<Summarizing>,
}

/// Progress of replacing the samples of a day by summaries. After a start, the day begins again.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Summarizing {
    pub(crate) day: PartitionId,
    /// First metric and window that are not done.
    pub(crate) next: (u64, Window),
    /// Number of blocks with only summaries, and of the other ones.
    pub(crate) summarized: u64,
    pub(crate) kept: u64,
    /// Number of windows with damaged blocks.
    pub(crate) damaged: u64,
}

impl SealState {
    /// Returns the state after a start; the deletion of partitions before `deleting_before` resumes.
    pub(crate) fn new(meta: &Meta, deleting_before: Option<PartitionId>) -> SealState {
        SealState {
            watermarks: meta.watermarks.clone(),
            first_epoch: meta.first_epoch,
            closed_window: Window::MIN,
            open: BTreeMap::new(),
            intent_count: 0,
            leftovers: VecDeque::new(),
            deleting_before: deleting_before.map(|first_kept| (first_kept, 0)),
            kept_from: meta.kept_from,
            summarized: meta.summarized,
            summarizing: None,
        }
    }

    /// Returns whether the stored first kept partition can be removed once `first_epoch` is the
    /// first log epoch: earlier partitions are deleted, and the log has no records of them. Their
    /// watermarks are deleted, too, so a replay would restore even their sealed records.
    pub(crate) fn can_clear_kept_from(&self, log: &Log, first_epoch: Epoch) -> bool {
        let is_left = |first_kept: PartitionId| !has_records_before(log, first_epoch, first_kept);
        self.deleting_before.is_none() && self.kept_from.is_some_and(is_left)
    }
}

/// Returns the first kept partition if a start finds earlier ones: their deletion was interrupted,
/// or the log has records of them.
pub(crate) fn deleting_before(meta: &Meta, log: &Log) -> Option<PartitionId> {
    meta.kept_from.filter(|first_kept| {
        meta.partitions.range(..first_kept).next().is_some()
            || has_records_before(log, meta.first_epoch, *first_kept)
    })
}

/// Returns whether records of log epochs from `first_epoch` on have samples before a partition.
fn has_records_before(log: &Log, first_epoch: Epoch, partition: PartitionId) -> bool {
    log.has_records_before(first_epoch, partition.start_ms())
}

/// Leftovers of a day, kept after a failure or for running selections.
#[derive(Debug)]
pub(crate) struct Leftovers {
    /// First selection that does not read these leftovers.
    pub(crate) unread_from: u64,
    pub(crate) partition: PartitionId,
    /// Intents that list blocks.
    pub(crate) intents: Vec<Vec<u8>>,
    /// Set if the index has ids without samples.
    pub(crate) ids: bool,
}

impl Leftovers {
    /// Creates leftovers of runs that were not published.
    pub(crate) fn unpublished(partition: PartitionId, intents: Vec<Vec<u8>>) -> Leftovers {
        Leftovers::blocks(0, partition, intents)
    }

    /// Creates leftover blocks, which selections before `unread_from` may read.
    pub(crate) fn blocks(
        unread_from: u64,
        partition: PartitionId,
        intents: Vec<Vec<u8>>,
    ) -> Leftovers {
        Leftovers { unread_from, partition, intents, ids: false }
    }

    /// Creates leftover ids without samples, which selections before `unread_from` may read.
    pub(crate) fn ids(unread_from: u64, partition: PartitionId) -> Leftovers {
        Leftovers { unread_from, partition, intents: Vec::new(), ids: true }
    }
}
