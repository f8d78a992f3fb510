//! Rewrites the runs of one day: without deleted samples, for [`clean`](super::clean), or with
//! summaries in place of samples, for [`summarize`](super::summarize).

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use model::{Budget, TimeRange};
use roaring::RoaringBitmap;

use super::merge::{MergedSeries, RunMerge, unreadable};
use crate::block::{self, BlockBuilder, BlockEntry, BuiltBlock, DecodedBlock};
use crate::core::Core;
use crate::core::seal_state::Leftovers;
use crate::core::seal_state::SealState;
use crate::delete::{Masks, TombstoneSnapshot};
use crate::epoch::Epoch;
use crate::error::StoreError;
use crate::head::series::NONE;
use crate::index::partition::PartitionIndex;
use crate::index::runs::MetricRun;
use crate::keys;
use crate::lsm::{Lsm, WriteSet};
use crate::meta::{self, put_intent};
use crate::parallel::yielder::Yielder;
use crate::summary::codec::{StoredSummaries, SummaryBuilder};
use crate::value;
use crate::window::{PartitionId, Window};

/// Bytes of a run's entries in a write, in addition to its blocks.
const KEY_BYTES: usize = 64;
/// Minimum number of adjacent series whose summaries are kept if a neighbor keeps its samples. Fewer
/// keep their samples, too: blocks of few series cost more than they save.
const SUMMARIZED_MIN: usize = 4;

/// Cleans one day, if tombstones cover samples of it. Returns whether any run was rewritten.
pub(super) async fn clean_partition(
    core: &Arc<Core>,
    state: &mut SealState,
    tombstones: &TombstoneSnapshot,
    partition: PartitionId,
) -> Result<bool, StoreError> {
    let Some(index) = core.partition(partition) else { return Ok(false) };
    if masks_of(core, &index, tombstones).await?.is_empty() {
        return Ok(false);
    }
    let (epoch, tombstones) = reserve(core).await?;
    let masks = masks_of(core, &index, &tombstones).await?;
    let mut rewrite = PartitionRewrite::new(core, partition, epoch);
    let result = rewrite.clean(state, &index, &tombstones, &masks).await;
    rewrite.leave(state);
    result
}

/// Reserves the epoch of rewritten runs. Returns it with the tombstones to apply: all of earlier
/// epochs, since they no longer mask these runs.
pub(super) async fn reserve(core: &Core) -> Result<(Epoch, TombstoneSnapshot), StoreError> {
    let mut log = core.log.lock().await;
    log.check()?;
    // A seal uses the epoch before the current one of the log, so it never uses this one.
    let epoch = log.epoch.next();
    log.epoch = epoch.next().next();
    // Under the lock: includes every delete that has ended an epoch before this one.
    Ok((epoch, core.tombstones.all()))
}

/// Returns the masks of the tombstones that cover a partition.
pub(super) async fn masks_of(
    core: &Core,
    index: &PartitionIndex,
    tombstones: &TombstoneSnapshot,
) -> Result<Masks, StoreError> {
    let budget = Budget::unlimited();
    let mut yielder = Yielder::new(&budget);
    let all = index.resolve(&core.lsm, &[], &mut yielder).await.map_err(unreadable)?;
    let masks = Masks::of(&core.lsm, index, tombstones, TimeRange::ALL, &all, &mut yielder).await;
    masks.map_err(unreadable)
}

/// Rewriting of one day.
pub(super) struct PartitionRewrite<'a> {
    core: &'a Arc<Core>,
    partition: PartitionId,
    /// Epoch of the new runs.
    epoch: Epoch,
    /// Number of written intents.
    intents: u32,
    pending: PendingRuns,
}

/// Runs that are published together.
#[derive(Default)]
struct PendingRuns {
    set: WriteSet,
    bytes: usize,
    /// Set if a rewritten run is pending.
    is_some: bool,
    /// Intents of new blocks that are already written. Publishing deletes these intents.
    written: Vec<Vec<u8>>,
    /// Intents of blocks that are obsolete after publishing.
    old: Vec<Vec<u8>>,
}

/// Data of series that a new run keeps.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum KeptData {
    Samples,
    /// Summaries, and the samples of series without them.
    Summaries,
}

/// Series of a merge, each with the data that is kept of it.
struct DividedSeries<'a> {
    merging: RunMerge<'a>,
    kept: KeptData,
    check: SummaryBuilder,
    /// Data of the last series that was divided.
    last: Option<KeptData>,
    /// Series that can be summarized.
    undecided: Vec<MergedSeries>,
    divided: VecDeque<(MergedSeries, KeptData)>,
}

impl<'a> DividedSeries<'a> {
    fn new(merging: RunMerge<'a>, kept: KeptData) -> DividedSeries<'a> {
        let (check, last, undecided) = (SummaryBuilder::default(), None, Vec::new());
        DividedSeries { merging, kept, check, last, undecided, divided: VecDeque::new() }
    }

    /// Returns the next series; `None` after the last.
    async fn next(&mut self) -> Result<Option<(MergedSeries, KeptData)>, StoreError> {
        while self.divided.is_empty() {
            let Some(series) = self.merging.next().await? else {
                self.divide(self.last.unwrap_or(KeptData::Summaries));
                break;
            };
            let can_summarize =
                self.kept == KeptData::Summaries && self.check.can_summarize(&series.frames);
            self.undecided.push(series);
            if !can_summarize {
                self.divide(KeptData::Samples);
            } else if self.last == Some(KeptData::Summaries)
                || self.undecided.len() == SUMMARIZED_MIN
            {
                self.divide(KeptData::Summaries);
            }
        }
        Ok(self.divided.pop_front())
    }

    /// Decides which data of the undecided series is kept.
    fn divide(&mut self, data: KeptData) {
        self.last = Some(data);
        self.divided.extend(self.undecided.drain(..).map(|series| (series, data)));
    }
}

/// A run that is being written.
pub(super) struct NewRun {
    metric: u64,
    window: Window,
    pub(super) entries: Vec<BlockEntry>,
    /// Keys and values of blocks that are not yet written.
    values: Vec<(Vec<u8>, Vec<u8>)>,
    bytes: usize,
    /// Intents of the blocks that are written.
    written: Vec<Vec<u8>>,
}

impl NewRun {
    pub(super) fn new(metric: u64, window: Window) -> NewRun {
        let (entries, values, written) = (Vec::new(), Vec::new(), Vec::new());
        NewRun { metric, window, entries, values, bytes: 0, written }
    }
}

impl<'a> PartitionRewrite<'a> {
    pub(super) fn new(
        core: &'a Arc<Core>,
        partition: PartitionId,
        epoch: Epoch,
    ) -> PartitionRewrite<'a> {
        PartitionRewrite { core, partition, epoch, intents: 0, pending: PendingRuns::default() }
    }

    /// Leaves blocks that were not published to be deleted.
    pub(super) fn leave(self, state: &mut SealState) {
        let left = self.pending.written;
        if !left.is_empty() {
            state.leftovers.push_back(Leftovers::unpublished(self.partition, left));
        }
    }

    /// Cleans the day. Returns whether any run was rewritten. Damaged runs are kept; the first
    /// error is returned at the end.
    async fn clean(
        &mut self,
        state: &mut SealState,
        index: &PartitionIndex,
        tombstones: &TombstoneSnapshot,
        masks: &Masks,
    ) -> Result<bool, StoreError> {
        let budget = Budget::unlimited();
        let mut yielder = Yielder::new(&budget);
        let lsm = &self.core.lsm;
        let labels = index.labels_of(lsm, &self.core.head, masks.ids(), &mut yielder).await;
        let mut metrics: BTreeMap<u64, RoaringBitmap> = BTreeMap::new();
        for (id, labels) in labels.map_err(unreadable)? {
            let metric = keys::metric_hash(labels.metric_name());
            metrics.entry(metric).or_default().insert(id);
        }
        let (mut has_changed, mut first_error) = (false, None);
        for (metric, ids) in &metrics {
            for (window, runs) in index.windows_of(lsm, *metric).await? {
                if !runs.iter().any(|run| is_covered(run, ids, tombstones)) {
                    continue;
                }
                if self.core.is_closing.load(Ordering::Relaxed) {
                    return Err(StoreError::Closed);
                }
                match self.merge((*metric, window), &runs, masks).await {
                    Ok(()) => has_changed = true,
                    Err(error @ StoreError::Corrupt { .. }) => {
                        first_error.get_or_insert(error);
                    }
                    Err(error) => return Err(error),
                }
                self.publish_if_large(state).await?;
            }
        }
        self.publish(state).await?;
        if let Some(error) = first_error {
            return Err(error);
        }
        // In any case: the last time, a crash may have prevented it.
        self.forget_series(state, &metrics).await?;
        Ok(has_changed)
    }

    /// Merges the runs of a metric and window into one, without deleted samples.
    async fn merge(
        &mut self,
        (metric, window): (u64, Window),
        runs: &[MetricRun],
        masks: &Masks,
    ) -> Result<(), StoreError> {
        let mut new = NewRun::new(metric, window);
        match runs {
            // After summaries have replaced samples, nothing is written to a window.
            [run] if run.blocks.iter().any(BlockEntry::is_summarized) => {
                for entry in run.blocks.iter() {
                    if entry.is_summarized() {
                        self.copy_summaries(&mut new, run.epoch, entry, masks).await?;
                    } else {
                        let run = MetricRun { blocks: Arc::new([*entry]), ..run.clone() };
                        self.merge_runs(&mut new, &[run], masks, KeptData::Samples).await?;
                    }
                }
            }
            _ => self.merge_runs(&mut new, runs, masks, KeptData::Samples).await?,
        }
        self.replace(new, runs);
        Ok(())
    }

    /// Merges runs into a new one, without deleted samples.
    pub(super) async fn merge_runs(
        &mut self,
        new: &mut NewRun,
        runs: &[MetricRun],
        masks: &Masks,
        kept: KeptData,
    ) -> Result<(), StoreError> {
        let series_max = self.core.options.sizes.block_series_max;
        let merging = RunMerge::new(self.core, new.metric, new.window, runs, masks);
        let mut all = DividedSeries::new(merging, kept);
        let mut next = all.next().await?;
        while let Some((_, data)) = next {
            let mut builder = BlockBuilder::new(series_max);
            while !builder.is_full()
                && let Some((series, _)) = next.take_if(|(_, of_next)| *of_next == data)
            {
                builder.push(series.id, &series.frames, series.times);
                next = all.next().await?;
            }
            let Some(first_id) = builder.first_id() else { break };
            let key = keys::block(new.metric, new.window, self.epoch, first_id);
            let block = match data {
                KeptData::Samples => builder.finish(key),
                KeptData::Summaries => builder.finish_summarized(&key),
            };
            self.add(new, block).await?;
        }
        Ok(())
    }

    /// Returns whether any series of some runs can be summarized.
    pub(super) async fn can_summarize_any(
        &self,
        (metric, window): (u64, Window),
        runs: &[MetricRun],
        masks: &Masks,
    ) -> Result<bool, StoreError> {
        let mut merging = RunMerge::new(self.core, metric, window, runs, masks);
        let mut check = SummaryBuilder::default();
        while let Some(series) = merging.next().await? {
            if check.can_summarize(&series.frames) {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Adds the summaries of a block to a new run, without deleted series.
    async fn copy_summaries(
        &mut self,
        new: &mut NewRun,
        epoch: Epoch,
        entry: &BlockEntry,
        masks: &Masks,
    ) -> Result<(), StoreError> {
        let key = keys::summaries(new.metric, new.window, epoch, entry.first_id);
        let bytes = self.core.lsm.get(&key).await?;
        let bytes = bytes.ok_or_else(|| value::corrupt(&key, "summaries are missing"))?;
        let stored = StoredSummaries::open(&key, &bytes, new.window)?;
        // Deletes cover whole windows here.
        let is_kept = |id: u32| {
            masks.times(id, epoch).iter().all(|times| !times.overlaps(new.window.times()))
        };
        let mut kept = stored.ids().filter(|id| is_kept(*id));
        let Some(first_id) = kept.next() else { return Ok(()) };
        let last_id = kept.last().unwrap_or(first_id);
        let key = keys::summaries(new.metric, new.window, self.epoch, first_id);
        let bytes = stored.encode_only(&key, is_kept);
        let entry = BlockEntry { first_id, last_id, ..*entry };
        self.add(new, BuiltBlock { entry, values: vec![(key, bytes)] }).await
    }

    /// Adds a block to a new run, and writes the last ones if they are large.
    async fn add(&mut self, new: &mut NewRun, block: BuiltBlock) -> Result<(), StoreError> {
        new.bytes += block.bytes();
        new.values.extend(block.values);
        new.entries.push(block.entry);
        if new.bytes < self.core.options.sizes.write_bytes {
            return Ok(());
        }
        let mut set = WriteSet::default();
        let keys: Vec<Vec<u8>> = new.values.iter().map(|(key, _)| key.clone()).collect();
        let intent = put_intent(&mut set, self.epoch, &mut self.intents, &keys);
        new.values.drain(..).for_each(|(key, value)| set.put(key, value));
        // Before the write: if it fails, the intent may or may not be stored.
        self.pending.written.push(intent.clone());
        self.core.lsm.commit(set).await?;
        new.written.push(intent);
        new.bytes = 0;
        Ok(())
    }

    /// Adds a new run and the removal of the runs that it replaces to the pending ones.
    pub(super) fn replace(&mut self, new: NewRun, runs: &[MetricRun]) {
        let NewRun { metric, window, entries, values, bytes, written } = new;
        let PendingRuns { set, bytes: pending_bytes, is_some, old, .. } = &mut self.pending;
        (*is_some, *pending_bytes) = (true, *pending_bytes + bytes + KEY_BYTES * runs.len());
        values.into_iter().for_each(|(key, value)| set.put(key, value));
        if !entries.is_empty() {
            let key = keys::directory(metric, window, self.epoch);
            let bytes = block::encode_directory(&key, &entries);
            set.put(key, bytes);
        }
        written.iter().for_each(|intent| set.delete(intent));
        for run in runs {
            set.delete(&keys::directory(metric, window, run.epoch));
            let block = |e: &BlockEntry| keys::block(metric, window, run.epoch, e.first_id);
            let blocks = run.blocks.iter().map(block);
            // Older blocks have no summaries.
            let with_summaries = |key: Vec<u8>| [keys::summaries_of_block(&key), key];
            let blocks: Vec<Vec<u8>> = blocks.flat_map(with_summaries).collect();
            old.push(put_intent(set, self.epoch, &mut self.intents, &blocks));
        }
    }

    /// Publishes the pending runs if they are large. Returns whether they were.
    pub(super) async fn publish_if_large(
        &mut self,
        state: &mut SealState,
    ) -> Result<bool, StoreError> {
        let is_large = self.pending.bytes >= self.core.options.sizes.write_bytes;
        if is_large {
            self.publish(state).await?;
        }
        Ok(is_large)
    }

    /// Replaces the old runs by the pending ones.
    pub(super) async fn publish(&mut self, state: &mut SealState) -> Result<(), StoreError> {
        let core = self.core;
        if !self.pending.is_some {
            return Ok(());
        }
        let PendingRuns { mut set, old: intents, written, .. } = std::mem::take(&mut self.pending);
        self.pending.written = written;
        let epochs = meta::encode_epochs(self.epoch.next().next(), state.first_epoch);
        set.put(keys::EPOCH.to_vec(), epochs);
        let committed = core.lsm.commit(set).await;
        // As in a seal: even after a failure, since the write may or may not be stored.
        core.index.invalidate_runs(self.partition);
        committed?;
        let unread_from = core.selections.next();
        state.leftovers.push_back(Leftovers::blocks(unread_from, self.partition, intents));
        Ok(())
    }

    /// Removes series without samples from the index of the partition.
    async fn forget_series(
        &mut self,
        state: &mut SealState,
        metrics: &BTreeMap<u64, RoaringBitmap>,
    ) -> Result<(), StoreError> {
        let (core, partition) = (self.core, self.partition);
        let Some(index) = core.partition(partition) else { return Ok(()) };
        let mut emptied = RoaringBitmap::new();
        for (metric, ids) in metrics {
            emptied |= self.without_blocks(&index, *metric, ids).await?;
        }
        if emptied.is_empty() {
            return Ok(());
        }
        let all = &emptied | &*index.deleted;
        let key = keys::deleted_ids(partition);
        let bytes = crate::index::encode_postings(&key, &all);
        let mut set = WriteSet::default();
        set.put(key, bytes);
        core.lsm.commit(set).await?;
        core.set_deleted(partition, all);
        core.head.for_each(|_, series| {
            if series.partition == partition && emptied.contains(series.id_in_partition) {
                series.id_in_partition = NONE;
            }
        });
        state.leftovers.push_back(Leftovers::ids(core.selections.next(), partition));
        Ok(())
    }

    /// Returns the ids of a metric that occur in no block.
    async fn without_blocks(
        &self,
        index: &PartitionIndex,
        metric: u64,
        ids: &RoaringBitmap,
    ) -> Result<RoaringBitmap, StoreError> {
        let lsm = &self.core.lsm;
        let mut missing = ids.clone();
        let runs = index.runs_of(lsm, &[metric]).await?.pop().unwrap_or_default();
        for run in runs.iter() {
            for entry in run.blocks.iter() {
                if missing.range_cardinality(entry.first_id..=entry.last_id) == 0 {
                    continue;
                }
                for id in ids_of_block(lsm, metric, run, entry).await? {
                    missing.remove(id);
                }
            }
        }
        Ok(missing)
    }
}

/// Returns the ids of the series of a block.
async fn ids_of_block(
    lsm: &Lsm,
    metric: u64,
    run: &MetricRun,
    entry: &BlockEntry,
) -> Result<Vec<u32>, StoreError> {
    let is_summarized = entry.is_summarized();
    let key_of = if is_summarized { keys::summaries } else { keys::block };
    let key = key_of(metric, run.window, run.epoch, entry.first_id);
    let bytes = lsm.get(&key).await?;
    let bytes = bytes.ok_or_else(|| value::corrupt(&key, "block is missing"))?;
    Ok(if is_summarized {
        StoredSummaries::open(&key, &bytes, run.window)?.ids().collect()
    } else {
        DecodedBlock::new(&key, &bytes)?.ids().collect()
    })
}

/// Returns whether a run has a block that tombstones may cover in part.
fn is_covered(run: &MetricRun, ids: &RoaringBitmap, tombstones: &TombstoneSnapshot) -> bool {
    run.blocks.iter().any(|entry| {
        ids.range_cardinality(entry.first_id..=entry.last_id) > 0
            && tombstones.values().any(|t| t.masks(entry.min_ms, entry.max_ms, run.epoch))
    })
}
