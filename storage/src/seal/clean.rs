//! Taking deleted samples out of the files: runs that a tombstone covers are written anew.
//!
//! ```text
//! per day with something that is covered; seals may come between two days:
//!   reserve   a log epoch without records, whose number the new runs bear
//!   per metric and window with covered blocks:
//!     blocks    all runs merged into one, without what is deleted; not visible, as in a seal
//!   publish   one write, or a few where it is much: the new run directories, the old ones go,
//!             intents list the old blocks
//! done      tombstones mask nothing any more; they go once no log record is left that they cover
//! later     the old blocks go, once all selections have ended that may read them
//! ```
//!
//! Each day is cleaned of all deletes that came before its number was reserved, those included that
//! have come since the first day: a run that bears a later number than a delete must hold nothing
//! of what it covers. What is sealed afterwards has a later number still, and the head has dropped
//! what is covered before that. So once all days are done, the deletes that had come before the
//! first are.
//!
//! A crash before *publish* leaves blocks and one after it old blocks that nobody reads, and
//! intents by which the next start deletes them. Until *done* the tombstones stay, so that all
//! of it is begun again; a run that has been written anew has a number that none of them covers.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use bytes::Bytes;
use model::{Budget, Labels, SampleBatch, SourceError};
use roaring::RoaringBitmap;

use super::block::{self, BlockBuilder, BlockEntry};
use super::publish::{WRITE_BYTES, frames_of};
use super::{State, Which, recover, sweep};
use crate::delete::{Masks, Snapshot, TOMBSTONES_MAX, Tombstone, kept_parts};
use crate::error::StoreError;
use crate::head::part::{Frame, Part, Parts};
use crate::head::scratch::Scratch;
use crate::head::series::NONE;
use crate::index::facts::Facts;
use crate::index::runs::Run;
use crate::keys;
use crate::lsm::WriteSet;
use crate::read::breather::Breather;
use crate::read::cursor::SeriesParts;
use crate::store::Inner;
use crate::value;

/// So many tombstones are let go of by sealing what is in the log with them.
const TOMBSTONES_SEAL: usize = TOMBSTONES_MAX / 4;
/// What the entries of a run take in a write beside its blocks.
const KEY_BYTES: usize = 64;

/// What a failure, or a selection under way, has left behind of a day.
#[derive(Debug)]
pub(super) struct Leaving {
    /// The first selection that does not read it.
    unread_from: u64,
    partition: i64,
    /// Intents that list blocks.
    intents: Vec<Vec<u8>>,
    /// Whether there are ids of which nothing is left, and so something of them in the index.
    ids: bool,
}

impl Leaving {
    /// Blocks of runs that were not published.
    pub(super) fn unpublished(partition: i64, intents: Vec<Vec<u8>>) -> Leaving {
        Leaving { unread_from: 0, partition, intents, ids: false }
    }
}

/// Rewrites what tombstones cover, and forgets them. Says whether anything was written anew.
///
/// What cannot be cleaned keeps its tombstones, and keeps none of the rest from it; the first
/// error is returned at the end.
pub(crate) async fn clean_tombstones(inner: &Arc<Inner>) -> Result<bool, StoreError> {
    if inner.tombstones.counts().0 >= TOMBSTONES_SEAL {
        // Else the log would keep them all.
        super::seal(inner, Which::All).await?;
    }
    // One at a time: two would only write the same anew twice.
    let _cleaning = inner.cleaning.lock().await;
    {
        let mut state = inner.sealing.lock().await;
        recover::drop_dead_log(inner, &mut state).await?;
    }
    tidy(inner).await?;
    let tombstones = inner.tombstones.all();
    if tombstones.values().all(|tombstone| tombstone.is_cleaned) {
        return Ok(false);
    }
    let partitions: Vec<i64> = inner.read_partitions(|all| all.keys().copied().collect());
    let (mut has_changed, mut first_error) = (false, None);
    for partition in partitions {
        // Whoever waits to seal comes before the next day.
        let mut state = inner.sealing.lock().await;
        match clean_partition(inner, &mut state, &tombstones, partition).await {
            Ok(changed) => has_changed |= changed,
            Err(error @ (StoreError::Fenced | StoreError::Closed)) => return Err(error),
            Err(error) => {
                tracing::error!(partition, %error, "deleted samples cannot be taken out of a day");
                first_error.get_or_insert(error);
            }
        }
    }
    tidy(inner).await?;
    if let Some(error) = first_error {
        return Err(error);
    }
    note_cleaned(inner, &tombstones).await?;
    tidy(inner).await?;
    if has_changed {
        tracing::info!(tombstones = tombstones.len(), "deleted samples have been cleaned up");
    }
    Ok(has_changed)
}

/// Reserves the number of runs that are written anew, and gives the deletes that they are to be
/// without: all that it would not tell apart from what was written later.
async fn reserve(inner: &Inner) -> Result<(u32, Snapshot), StoreError> {
    let mut log = inner.log.lock().await;
    if let Some(error) = log.failed() {
        return Err(error);
    }
    // A seal takes the number before that of the log's epoch: not this one.
    let run = log.epoch + 1;
    log.epoch = run + 2;
    // Under the lock: a delete that has ended an epoch before this number is among them.
    Ok((run, inner.tombstones.all()))
}

/// Cleans one day, if tombstones cover something of it. Says whether anything was written anew.
async fn clean_partition(
    inner: &Arc<Inner>,
    state: &mut State,
    tombstones: &Snapshot,
    partition: i64,
) -> Result<bool, StoreError> {
    let Some(facts) = inner.partition(partition) else { return Ok(false) };
    if masks_of(inner, &facts, tombstones).await?.is_empty() {
        return Ok(false);
    }
    let (run, tombstones) = reserve(inner).await?;
    let masks = masks_of(inner, &facts, &tombstones).await?;
    let mut cleaning = Cleaning { inner, partition, run, intents: 0, pending: Pending::default() };
    let result = cleaning.clean(state, &facts, &tombstones, &masks).await;
    let left = std::mem::take(&mut cleaning.pending.written);
    if !left.is_empty() {
        state.leaving.push_back(Leaving::unpublished(partition, left));
    }
    result
}

/// What tombstones cover of a partition.
async fn masks_of(
    inner: &Inner,
    facts: &Facts,
    tombstones: &Snapshot,
) -> Result<Masks, StoreError> {
    let budget = Budget::unlimited();
    let mut breather = Breather::new(&budget);
    let all = facts.resolve(&inner.lsm, &[], &mut breather).await.map_err(unreadable)?;
    let range = (i64::MIN, i64::MAX);
    let masks = Masks::of(&inner.lsm, facts, tombstones, range, &all, &mut breather).await;
    masks.map_err(unreadable)
}

/// Has the files of partitions merged. That waits for as long as the object store takes no files,
/// and nobody waits for it.
async fn give_back(inner: Arc<Inner>, partitions: BTreeSet<i64>) {
    match super::write_out(&inner).await {
        Ok(()) => partitions.into_iter().for_each(|partition| inner.lsm.shrink(partition)),
        Err(error) => tracing::warn!(%error, "deleted samples still take room in files"),
    }
}

/// Deletes what cleaning has left for selections under way, and forgets tombstones that are spent.
pub(crate) async fn tidy(inner: &Arc<Inner>) -> Result<(), StoreError> {
    let mut shrunk = BTreeSet::new();
    let result = {
        let mut state = inner.sealing.lock().await;
        let deleted = delete_left(inner, &mut state, &mut shrunk).await;
        deleted.and(forget_spent(inner, &state).await)
    };
    if !shrunk.is_empty() {
        tokio::spawn(give_back(Arc::clone(inner), shrunk));
    }
    result
}

/// Notes days of which nothing is left, and which a crash has left all the same.
pub(crate) async fn note_emptied(inner: &Inner) {
    let mut state = inner.sealing.lock().await;
    let partitions: Vec<i64> = inner.read_partitions(|all| all.keys().copied().collect());
    for partition in partitions.into_iter().filter(|number| inner.index.has_gone(*number)) {
        let Some(facts) = inner.partition(partition) else { continue };
        if facts.gone.len() == u64::from(facts.series_count) {
            let intents = Vec::new();
            state.leaving.push_back(Leaving { unread_from: 0, partition, intents, ids: true });
        }
    }
}

/// Notes that no run holds what tombstones cover.
async fn note_cleaned(inner: &Inner, tombstones: &Snapshot) -> Result<(), StoreError> {
    let mut set = WriteSet::default();
    let cleaned = |tombstone: &Tombstone| Tombstone {
        selectors: tombstone.selectors.clone(),
        is_cleaned: true,
        ..*tombstone
    };
    for tombstone in tombstones.values() {
        let key = keys::tombstone(tombstone.epoch);
        let bytes = crate::delete::encode(&key, &cleaned(tombstone));
        set.put(key, bytes);
    }
    inner.lsm.commit(set).await?;
    for tombstone in tombstones.values() {
        inner.tombstones.put(cleaned(tombstone));
    }
    Ok(())
}

/// Forgets tombstones that cover nothing any more, neither in runs nor in the log.
async fn forget_spent(inner: &Inner, state: &State) -> Result<(), StoreError> {
    let all = inner.tombstones.all();
    let is_spent = |t: &&Arc<Tombstone>| t.is_cleaned && t.epoch < state.first_epoch;
    let spent: Vec<u32> = all.values().filter(is_spent).map(|t| t.epoch).collect();
    if spent.is_empty() {
        return Ok(());
    }
    let mut set = WriteSet::default();
    for epoch in &spent {
        set.delete(&keys::tombstone(*epoch));
    }
    // No later epoch may have the number of one of them.
    let epoch = inner.log.lock().await.epoch;
    set.put(keys::EPOCH.to_vec(), recover::encode_epochs(epoch, state.first_epoch));
    inner.lsm.commit(set).await?;
    spent.into_iter().for_each(|epoch| inner.tombstones.remove(epoch));
    Ok(())
}

/// Deletes what no selection reads any more, and notes of which days.
async fn delete_left(
    inner: &Inner,
    state: &mut State,
    shrunk: &mut BTreeSet<i64>,
) -> Result<(), StoreError> {
    while let Some(leaving) = state.leaving.front()
        && inner.selections.have_ended_before(leaving.unread_from)
    {
        for intent in &leaving.intents {
            if let Some(bytes) = inner.lsm.get(intent).await? {
                recover::undo_intent(&inner.lsm, intent, &bytes).await?;
            }
        }
        if leaving.ids {
            match sweep::sweep_index(inner, leaving.partition).await {
                // It takes room and is not read; it keeps nothing else from being done.
                Err(error @ StoreError::Corrupt { .. }) => {
                    tracing::error!(%error, "what is left of deleted series in an index stays");
                }
                result => result?,
            }
        }
        shrunk.insert(leaving.partition);
        state.leaving.pop_front();
    }
    Ok(())
}

/// The cleaning of one day.
struct Cleaning<'a> {
    inner: &'a Arc<Inner>,
    partition: i64,
    /// The number of the new runs.
    run: u32,
    /// Intents that have been written.
    intents: u32,
    pending: Pending,
}

/// Runs that are published together.
#[derive(Default)]
struct Pending {
    set: WriteSet,
    bytes: usize,
    /// Whether there is anything.
    is_some: bool,
    /// Intents of blocks that have been written by themselves: they go with what makes the blocks
    /// count, if that comes.
    written: Vec<Vec<u8>>,
    /// Intents of blocks that do not count any more once it is published.
    old: Vec<Vec<u8>>,
}

impl Cleaning<'_> {
    /// Says whether anything has been written anew. What cannot be read stays; the first error is
    /// returned at the end.
    async fn clean(
        &mut self,
        state: &mut State,
        facts: &Facts,
        tombstones: &Snapshot,
        masks: &Masks,
    ) -> Result<bool, StoreError> {
        let budget = Budget::unlimited();
        let mut breather = Breather::new(&budget);
        let lsm = &self.inner.lsm;
        let labels = facts.labels_of(lsm, &self.inner.head, masks.ids(), &mut breather).await;
        let mut metrics: BTreeMap<u64, RoaringBitmap> = BTreeMap::new();
        for (id, labels) in labels.map_err(unreadable)? {
            let metric = keys::metric_hash(labels.metric_name());
            metrics.entry(metric).or_default().insert(id);
        }
        let (mut has_changed, mut first_error) = (false, None);
        for (metric, ids) in &metrics {
            let runs = facts.runs_of(lsm, &[*metric]).await?.pop().unwrap_or_default();
            let mut windows: BTreeMap<i64, Vec<Run>> = BTreeMap::new();
            for run in runs.iter() {
                windows.entry(run.window).or_default().push(run.clone());
            }
            for (window, runs) in windows {
                if !runs.iter().any(|run| is_covered(run, ids, tombstones)) {
                    continue;
                }
                if self.inner.is_closing.load(Ordering::Relaxed) {
                    return Err(StoreError::Closed);
                }
                match self.merge((*metric, window), &runs, masks).await {
                    Ok(()) => has_changed = true,
                    Err(error @ StoreError::Corrupt { .. }) => {
                        first_error.get_or_insert(error);
                    }
                    Err(error) => return Err(error),
                }
                if self.pending.bytes >= WRITE_BYTES {
                    self.publish(state).await?;
                }
            }
        }
        self.publish(state).await?;
        if let Some(error) = first_error {
            return Err(error);
        }
        // In any case: a crash may have come before it the last time.
        self.forget_series(state, &metrics).await?;
        Ok(has_changed)
    }

    /// Merges the runs of a metric's window into one, without what is deleted.
    async fn merge(
        &mut self,
        (metric, window): (u64, i64),
        runs: &[Run],
        masks: &Masks,
    ) -> Result<(), StoreError> {
        let inner = self.inner;
        let mut merging = Merging::new(inner, metric, window, runs, masks);
        let mut entries: Vec<BlockEntry> = Vec::new();
        let (mut blocks, mut bytes) = (Vec::new(), 0);
        let mut written = Vec::new();
        loop {
            let mut builder = BlockBuilder::default();
            while !builder.is_full() && merging.push_next(&mut builder).await? {}
            let Some(first_id) = builder.first_id() else { break };
            let key = keys::block(metric, window, self.run, first_id);
            let (block, entry) = builder.finish(&key);
            bytes += block.len();
            blocks.push((key, block));
            entries.push(entry);
            if bytes >= WRITE_BYTES {
                let mut set = WriteSet::default();
                let keys: Vec<Vec<u8>> = blocks.iter().map(|(key, _)| key.clone()).collect();
                let intent = put_intent(&mut set, self.run, &mut self.intents, &keys);
                blocks.drain(..).for_each(|(key, block)| set.put(key, block));
                // Before it is written: whether it is is not known if that fails.
                self.pending.written.push(intent.clone());
                inner.lsm.commit(set).await?;
                written.push(intent);
                bytes = 0;
            }
        }
        let Pending { set, bytes: pending_bytes, is_some, old, .. } = &mut self.pending;
        (*is_some, *pending_bytes) = (true, *pending_bytes + bytes + KEY_BYTES * runs.len());
        blocks.into_iter().for_each(|(key, block)| set.put(key, block));
        if !entries.is_empty() {
            let key = keys::directory(metric, window, self.run);
            let bytes = block::encode_directory(&key, &entries);
            set.put(key, bytes);
        }
        written.iter().for_each(|intent| set.delete(intent));
        for run in runs {
            set.delete(&keys::directory(metric, window, run.run));
            let block = |e: &BlockEntry| keys::block(metric, window, run.run, e.first_id);
            let blocks: Vec<Vec<u8>> = run.blocks.iter().map(block).collect();
            old.push(put_intent(set, self.run, &mut self.intents, &blocks));
        }
        Ok(())
    }

    /// Makes what is pending count in place of what it stands for.
    async fn publish(&mut self, state: &mut State) -> Result<(), StoreError> {
        let inner = self.inner;
        if !self.pending.is_some {
            return Ok(());
        }
        let Pending { mut set, old: intents, written, .. } = std::mem::take(&mut self.pending);
        self.pending.written = written;
        let epochs = recover::encode_epochs(self.run + 2, state.first_epoch);
        set.put(keys::EPOCH.to_vec(), epochs);
        let committed = inner.lsm.commit(set).await;
        // As in a seal: after a failure it is not known what is there.
        inner.index.published(self.partition);
        committed?;
        let (unread_from, partition) = (inner.selections.next(), self.partition);
        state.leaving.push_back(Leaving { unread_from, partition, intents, ids: false });
        Ok(())
    }

    /// Takes series of which nothing is left out of the index of the partition.
    async fn forget_series(
        &mut self,
        state: &mut State,
        metrics: &BTreeMap<u64, RoaringBitmap>,
    ) -> Result<(), StoreError> {
        let (inner, partition) = (self.inner, self.partition);
        let Some(facts) = inner.partition(partition) else { return Ok(()) };
        let mut gone = RoaringBitmap::new();
        for (metric, ids) in metrics {
            gone |= self.without_blocks(&facts, *metric, ids).await?;
        }
        if gone.is_empty() {
            return Ok(());
        }
        let all = &gone | &*facts.gone;
        let key = keys::gone(partition);
        let bytes = crate::index::encode_postings(&key, &all);
        let mut set = WriteSet::default();
        set.put(key, bytes);
        inner.lsm.commit(set).await?;
        inner.set_gone(partition, all);
        inner.head.for_each(|_, series| {
            if series.partition == partition && gone.contains(series.partition_id) {
                series.partition_id = NONE;
            }
        });
        let unread_from = inner.selections.next();
        state.leaving.push_back(Leaving { unread_from, partition, intents: vec![], ids: true });
        Ok(())
    }

    /// Of some ids of a metric those that no block has.
    async fn without_blocks(
        &self,
        facts: &Facts,
        metric: u64,
        ids: &RoaringBitmap,
    ) -> Result<RoaringBitmap, StoreError> {
        let lsm = &self.inner.lsm;
        let mut missing = ids.clone();
        let runs = facts.runs_of(lsm, &[metric]).await?.pop().unwrap_or_default();
        for run in runs.iter() {
            for entry in run.blocks.iter() {
                if missing.range_cardinality(entry.first_id..=entry.last_id) == 0 {
                    continue;
                }
                let key = keys::block(metric, run.window, run.run, entry.first_id);
                let bytes = lsm.get(&key).await?;
                let bytes = bytes.ok_or_else(|| value::corrupt(&key, "block is missing"))?;
                for (id, _) in block::decode_block(&key, &bytes)? {
                    missing.remove(id);
                }
            }
        }
        Ok(missing)
    }
}

/// Lists blocks that do not count yet, or any more. Returns the key.
pub(super) fn put_intent(
    set: &mut WriteSet,
    run: u32,
    count: &mut u32,
    blocks: &[Vec<u8>],
) -> Vec<u8> {
    let key = keys::intent(run, *count);
    *count += 1;
    let bytes = recover::encode_intent(&key, blocks);
    set.put(key.clone(), bytes);
    key
}

/// Whether a run has a block that tombstones may cover in part.
fn is_covered(run: &Run, ids: &RoaringBitmap, tombstones: &Snapshot) -> bool {
    run.blocks.iter().any(|entry| {
        ids.range_cardinality(entry.first_id..=entry.last_id) > 0
            && tombstones.values().any(|t| t.masks(entry.min_ms, entry.max_ms, run.run))
    })
}

fn unreadable(error: SourceError) -> StoreError {
    match error {
        SourceError::Corrupt { location, detail, .. } => StoreError::Corrupt { location, detail },
        error => StoreError::Unavailable(error.to_string()),
    }
}

/// The series of some runs of a metric's window, by id.
struct Merging<'a> {
    inner: &'a Inner,
    masks: &'a Masks,
    /// The earlier run first.
    runs: Vec<Unread>,
    batch: Box<SampleBatch>,
    scratch: Scratch,
}

/// What is still to be read of a run.
struct Unread {
    run: u32,
    blocks: VecDeque<Vec<u8>>,
    /// The series of the block that is open, its key, and the frames of each.
    series: VecDeque<(u32, Bytes)>,
    key: Bytes,
}

impl<'a> Merging<'a> {
    fn new(
        inner: &'a Inner,
        metric: u64,
        window: i64,
        runs: &[Run],
        masks: &'a Masks,
    ) -> Merging<'a> {
        let unread = |run: &Run| {
            let key = |e: &BlockEntry| keys::block(metric, window, run.run, e.first_id);
            let blocks = run.blocks.iter().map(key).collect();
            Unread { run: run.run, blocks, series: VecDeque::new(), key: Bytes::new() }
        };
        let runs = runs.iter().map(unread).collect();
        Merging { inner, masks, runs, batch: SampleBatch::new(), scratch: Scratch::new() }
    }

    /// Adds what is left of the next series to a block; false where there is no series.
    async fn push_next(&mut self, builder: &mut BlockBuilder) -> Result<bool, StoreError> {
        for run in &mut self.runs {
            run.open(self.inner).await?;
        }
        let next = self.runs.iter().filter_map(|run| Some(run.series.front()?.0)).min();
        let Some(id) = next else { return Ok(false) };
        // The key of the block tells where damaged bytes are.
        let labels = Labels::default();
        let mut parts = Parts::new();
        for run in &mut self.runs {
            if run.series.front().is_none_or(|(first, _)| *first != id) {
                continue;
            }
            let Some((_, frames)) = run.series.pop_front() else { continue };
            let of_run = run.parts(&frames)?;
            let kept = kept_parts(of_run, &self.masks.times(id, run.run), &labels);
            parts.extend(kept.map_err(unreadable)?);
        }
        let parts = SeriesParts::new(parts, i64::MIN, i64::MAX, &labels).map_err(unreadable)?;
        if let Some((min_ms, max_ms)) = parts.times() {
            let frames = frames_of(&parts, &labels, &mut self.batch, &mut self.scratch);
            builder.push(id, &frames.map_err(unreadable)?, min_ms, max_ms);
        }
        tokio::task::yield_now().await;
        Ok(true)
    }
}

impl Unread {
    /// Reads the next block, if the one before is at its end.
    async fn open(&mut self, inner: &Inner) -> Result<(), StoreError> {
        while self.series.is_empty()
            && let Some(key) = self.blocks.pop_front()
        {
            let bytes = inner.lsm.get(&key).await?;
            let bytes = bytes.ok_or_else(|| value::corrupt(&key, "block is missing"))?;
            let series = block::decode_block(&key, &bytes)?.into_iter();
            self.series = series.map(|(id, frames)| (id, bytes.slice(frames))).collect();
            self.key = Bytes::from(key);
        }
        Ok(())
    }

    /// The frames of a series, each verified.
    fn parts(&self, frames: &Bytes) -> Result<Parts, StoreError> {
        let damaged =
            |error: crate::chunk::ChunkError| value::corrupt(&self.key, error.to_string());
        let mut parts = Parts::new();
        for frame in crate::chunk::frames(frames) {
            let (offset, header) = frame.map_err(damaged)?;
            let bytes = frames.slice(offset..offset + header.frame_len());
            header.verify(&bytes).map_err(damaged)?;
            parts.push(Part::Frame(Box::new(Frame {
                bytes,
                key: Some(self.key.clone()),
                header: Ok(header),
            })));
        }
        Ok(parts)
    }
}
