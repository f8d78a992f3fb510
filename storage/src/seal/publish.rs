//! Writing and publishing the blocks of one window.

use std::collections::BTreeMap;
use std::sync::Arc;

use model::{Cursor, HistogramSample, SampleBatch, SourceError, TimeRange};

use super::{Item, blocking, gather, register};
use crate::block::{self, BlockBuilder, BlockEntry};
use crate::chunk::{self, HistogramBefore, encode_histograms};
use crate::core::Core;
use crate::core::seal_state::Leaving;
use crate::core::seal_state::SealState;
use crate::epoch::Epoch;
use crate::error::StoreError;
use crate::keys;
use crate::lsm::WriteSet;
use crate::meta::{self, put_intent};
use crate::samples::cursor::{PartsCursor, SeriesParts};
use crate::samples::part::{Floats, Part, Parts};
use crate::samples::scratch::Scratch;
use crate::sizes::Sizes;
use crate::value;
use crate::window::Window;

/// Samples in a frame that is encoded again.
const FRAME_LEN: usize = 240;

/// Blocks of one write.
struct Blocks {
    blocks: Vec<(Vec<u8>, Vec<u8>)>,
    entries: Vec<(u64, BlockEntry)>,
    /// Index of the first item after these blocks.
    next: usize,
}

/// Seals the samples of a window in the head up to an epoch.
///
/// Errors: blocks that are already written stay invisible, and the next tidying deletes them.
pub(super) async fn seal_window(
    core: &Arc<Core>,
    state: &mut SealState,
    window: Window,
    epoch: Epoch,
) -> Result<(), StoreError> {
    let mut intents = Vec::new();
    let sealed = write_window(core, state, (window, epoch), &mut intents).await;
    if sealed.is_err() && !intents.is_empty() {
        state.leaving.push_back(Leaving::unpublished(window.partition(), intents));
    }
    sealed
}

/// Writes the blocks of a window and publishes them. Adds the intents of the blocks to `intents`
/// before it writes them.
async fn write_window(
    core: &Arc<Core>,
    state: &mut SealState,
    (window, epoch): (Window, Epoch),
    intents: &mut Vec<Vec<u8>>,
) -> Result<(), StoreError> {
    let partition = window.partition();
    let shared = Arc::clone(core);
    let mut items = blocking(move || gather(&shared, window, epoch, partition)).await?;
    register::register(core, partition, &mut items).await?;
    items.sort_unstable_by_key(|item| (item.metric, item.id));
    let items = Arc::new(items);

    let mut directories: BTreeMap<u64, Vec<BlockEntry>> = BTreeMap::new();
    let mut set = WriteSet::default();
    let (mut next, mut block_count, mut block_bytes) = (0, 0, 0);
    while next < items.len() {
        let (shared, list) = (Arc::clone(core), Arc::clone(&items));
        let built = blocking(move || build_blocks(&shared, &list, next, window, epoch)).await??;
        next = built.next;
        let block_keys: Vec<Vec<u8>> = built.blocks.iter().map(|(key, _)| key.clone()).collect();
        for (key, bytes) in built.blocks {
            block_count += 1;
            block_bytes += bytes.len() as u64;
            set.put(key, bytes);
        }
        for (metric, entry) in built.entries {
            directories.entry(metric).or_default().push(entry);
        }
        if next < items.len() {
            let intent = put_intent(&mut set, epoch, &mut state.intent_count, &block_keys);
            // Before the write: if it fails, the intent may or may not be stored.
            intents.push(intent);
            core.lsm.commit(std::mem::take(&mut set)).await?;
        }
    }
    for (metric, entries) in directories {
        let key = keys::directory(metric, window, epoch);
        let bytes = block::encode_directory(&key, &entries);
        set.put(key, bytes);
    }
    intents.iter().for_each(|intent| set.delete(intent));
    publish(core, state, set, window, epoch).await?;
    forget(core, window, epoch, &items);
    core.counters.note_seal(block_count, block_bytes);
    tracing::debug!(
        window = window.number(),
        epoch = epoch.number(),
        series = items.len(),
        block_count,
        block_bytes,
        "sealed"
    );
    crate::expiry::drop_dead_log(core, state).await
}

/// Makes the blocks of a window visible, and replay skip its log records.
async fn publish(
    core: &Core,
    state: &mut SealState,
    mut set: WriteSet,
    window: Window,
    epoch: Epoch,
) -> Result<(), StoreError> {
    let (first_epoch, has_left) = {
        let log = core.log.lock().await;
        let is_needed = |(number, info): (&Epoch, &crate::log::commit::EpochInfo)| {
            (*number > epoch || info.windows.keys().any(|w| *w != window)).then_some(*number)
        };
        let first_epoch = log.epochs.iter().find_map(is_needed).unwrap_or(epoch.next());
        (first_epoch, state.has_left(&log, first_epoch))
    };
    let key = keys::watermark(window);
    let bytes = value::encode_u32(&key, epoch.number());
    set.put(key, bytes);
    let outdated: Vec<Window> = state
        .watermarks
        .iter()
        .filter(|(other, sealed)| **other != window && **sealed < first_epoch)
        .map(|(other, _)| *other)
        .collect();
    for other in &outdated {
        set.delete(&keys::watermark(*other));
    }
    set.put(keys::EPOCH.to_vec(), meta::encode_epochs(epoch.next(), first_epoch));
    if has_left {
        set.delete(keys::KEPT_FROM);
    }
    let committed = core.lsm.commit(set).await;
    // Before the head drops the samples: a selection that misses them there must find the new
    // runs. Even after a failure, since the write may or may not be stored.
    core.index.invalidate_runs(window.partition());
    committed?;
    state.first_epoch = first_epoch;
    if has_left {
        state.kept_from = None;
    }
    state.watermarks.insert(window, epoch);
    for other in &outdated {
        state.watermarks.remove(other);
    }
    let mut log = core.log.lock().await;
    for (_, info) in log.epochs.range_mut(..=epoch) {
        info.windows.remove(&window);
    }
    core.head.set_open(log.open_windows());
    Ok(())
}

fn forget(core: &Core, window: Window, epoch: Epoch, items: &[Item]) {
    for item in items {
        if let Some(series) = core.head.shard(item.slot).series(item.slot) {
            core.head.note_shrunk(series.drop_window(window, epoch));
            core.head.deactivate_if_empty(series);
        }
    }
}

/// Builds blocks of the items from `next` on, up to the size of one write.
fn build_blocks(
    core: &Core,
    items: &[Item],
    mut next: usize,
    window: Window,
    epoch: Epoch,
) -> Result<Blocks, StoreError> {
    let mut built = Blocks { blocks: Vec::new(), entries: Vec::new(), next };
    let Sizes { block_series_max, write_bytes, .. } = core.options.sizes;
    let mut bytes = 0;
    let (mut frames, mut batch, mut scratch) = (Vec::new(), SampleBatch::new(), Scratch::new());
    while next < items.len() && bytes < write_bytes {
        let metric = items[next].metric;
        let mut builder = BlockBuilder::new(block_series_max);
        while let Some(item) = items.get(next).filter(|item| item.metric == metric)
            && !builder.is_full()
        {
            frames.clear();
            let room = (&mut frames, &mut *batch, &mut scratch);
            let times = frames_of_item(core, item, (window, epoch), room);
            if let Some(times) = times.map_err(|error| damaged(&error))? {
                builder.push(item.id, &frames, times);
            }
            next += 1;
        }
        if let Some(first_id) = builder.first_id() {
            let key = keys::block(metric, window, epoch, first_id);
            let (value, entry) = builder.finish(&key);
            bytes += value.len();
            built.blocks.push((key, value));
            built.entries.push((metric, entry));
        }
    }
    built.next = next;
    Ok(built)
}

/// Appends the frames of a series and a window to `frames`. Returns their first and last time.
fn frames_of_item(
    core: &Core,
    item: &Item,
    (window, epoch): (Window, Epoch),
    (frames, batch, scratch): (&mut Vec<u8>, &mut SampleBatch, &mut Scratch),
) -> Result<Option<TimeRange>, SourceError> {
    let parts = match core.head.shard(item.slot).series(item.slot) {
        Some(series) => match series.copy_condensed(window, epoch, frames) {
            Some(times) => return Ok(Some(times)),
            None => series.parts_of_window(window, epoch),
        },
        None => Parts::new(),
    };
    let parts = SeriesParts::new(parts, i64::MIN, i64::MAX, &item.labels)?;
    let times = parts.times();
    if times.is_some() {
        *frames = frames_of(&parts, &item.labels, batch, scratch)?;
    }
    Ok(times)
}

fn damaged(error: &SourceError) -> StoreError {
    StoreError::Corrupt { location: "the head".to_owned(), detail: error.to_string() }
}

/// Returns the frames of a series, concatenated in order, and packed if that is shorter.
pub(super) fn frames_of(
    parts: &SeriesParts,
    labels: &model::Labels,
    batch: &mut SampleBatch,
    scratch: &mut Scratch,
) -> Result<Vec<u8>, SourceError> {
    let frames = frames_as_written(parts, labels, batch)?;
    let packed = scratch.pack(&frames).filter(|packed| packed.len() < frames.len());
    Ok(packed.map_or(frames, <[u8]>::to_vec))
}

/// Returns the frames, copied if they do not overlap, otherwise encoded again.
fn frames_as_written(
    parts: &SeriesParts,
    labels: &model::Labels,
    batch: &mut SampleBatch,
) -> Result<Vec<u8>, SourceError> {
    let mut out = Vec::new();
    if parts.is_chain() {
        for part in parts.iter() {
            match part {
                Part::Frame(frame) => out.extend_from_slice(&frame.bytes),
                Part::Run(_) | Part::Column(_) => unreachable!("a seal asks for frames"),
                Part::Tail(tail) => {
                    let (timestamps, values): (Vec<i64>, Vec<f64>) =
                        tail.samples().iter().copied().unzip();
                    chunk::encode_with_starts(&timestamps, &values, &[], &mut out);
                }
                Part::Floats(floats) => {
                    let Floats { samples, starts } = &**floats;
                    let (timestamps, values): (Vec<i64>, Vec<f64>) =
                        samples.iter().copied().unzip();
                    chunk::encode_with_starts(&timestamps, &values, starts, &mut out);
                }
                Part::Histograms(samples) => {
                    encode_histograms(samples, None, &mut out);
                }
            }
        }
        return Ok(out);
    }
    let mut cursor = PartsCursor::new(labels, parts, i64::MIN, i64::MAX, None);
    let mut histograms = PendingHistograms { samples: Vec::new(), before: parts.first_before() };
    loop {
        batch.clear();
        let advance = cursor.next_batch(i64::MAX, batch)?;
        let (timestamps, values) = batch.samples();
        for at in (0..batch.len).step_by(FRAME_LEN) {
            let range = at..(at + FRAME_LEN).min(batch.len);
            let starts = &batch.starts[at.min(batch.starts.len())..];
            let (timestamps, values) = (&timestamps[range.clone()], &values[range]);
            let starts = &starts[..starts.len().min(timestamps.len())];
            chunk::encode_with_starts(timestamps, values, starts, &mut out);
        }
        histograms.samples.append(&mut batch.histograms);
        if histograms.samples.len() >= FRAME_LEN || advance != model::Advance::Full {
            histograms.encode(&mut out);
        }
        if advance != model::Advance::Full {
            return Ok(out);
        }
    }
}

/// Histograms of the next frame.
struct PendingHistograms {
    samples: Vec<HistogramSample>,
    /// Predecessor of the first histogram.
    before: Option<HistogramBefore>,
}

impl PendingHistograms {
    fn encode(&mut self, out: &mut Vec<u8>) {
        encode_histograms(&self.samples, self.before, out);
        if let Some(last) = self.samples.last() {
            self.before = Some(HistogramBefore::of(last));
        }
        self.samples.clear();
    }
}
