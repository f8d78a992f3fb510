//! Phase *blocks* of a seal: packs the samples of a window into blocks.

use std::collections::BTreeMap;
use std::sync::Arc;

use model::{SampleBatch, SourceError, TimeRange};

use super::blocking;
use super::frames::frames_of;
use super::series::{SealScope, SealedSeries};
use crate::block::{BlockBuilder, BlockEntry};
use crate::core::Core;
use crate::core::seal_state::SealState;
use crate::error::StoreError;
use crate::keys;
use crate::lsm::WriteSet;
use crate::meta::put_intent;
use crate::samples::part::Parts;
use crate::samples::scratch::Scratch;
use crate::samples::series_parts::SeriesParts;
use crate::sizes::Sizes;

/// Blocks of a window, invisible until they are published.
#[derive(Default)]
pub(super) struct InvisibleBlocks {
    /// Entries of the run directories, by metric.
    pub(super) directories: BTreeMap<u64, Vec<BlockEntry>>,
    /// Blocks that are written together with the directories.
    pub(super) last: WriteSet,
    pub(super) count: u64,
    pub(super) bytes: u64,
}

/// Writes the blocks of some series, except the last ones. Adds their intents to `intents` before
/// it writes them.
///
/// The series are sorted by metric and id.
pub(super) async fn write_blocks(
    core: &Arc<Core>,
    state: &mut SealState,
    scope: SealScope,
    series: &Arc<Vec<SealedSeries>>,
    intents: &mut Vec<Vec<u8>>,
) -> Result<InvisibleBlocks, StoreError> {
    let mut blocks = InvisibleBlocks::default();
    let mut next = 0;
    while next < series.len() {
        let (shared, list) = (Arc::clone(core), Arc::clone(series));
        let built = blocking(move || build_blocks(&shared, &list, next, scope)).await??;
        next = built.next;
        let block_keys: Vec<Vec<u8>> = built.blocks.iter().map(|(key, _)| key.clone()).collect();
        blocks.count += built.entries.len() as u64;
        for (key, bytes) in built.blocks {
            blocks.bytes += bytes.len() as u64;
            blocks.last.put(key, bytes);
        }
        for (metric, entry) in built.entries {
            blocks.directories.entry(metric).or_default().push(entry);
        }
        if next < series.len() {
            let mut set = std::mem::take(&mut blocks.last);
            let intent = put_intent(&mut set, scope.epoch, &mut state.intent_count, &block_keys);
            // Before the write: if it fails, the intent may or may not be stored.
            intents.push(intent);
            core.lsm.commit(set).await?;
        }
    }
    Ok(blocks)
}

/// Blocks of one write.
struct BuiltBlocks {
    /// Blocks and their summaries, by key.
    blocks: Vec<(Vec<u8>, Vec<u8>)>,
    entries: Vec<(u64, BlockEntry)>,
    /// Index of the first series after these blocks.
    next: usize,
}

/// Buffers of the frames of one series after the other.
struct FrameBuffers {
    frames: Vec<u8>,
    batch: Box<SampleBatch>,
    scratch: Scratch,
}

/// Builds blocks of the series from `next` on, up to the size of one write.
fn build_blocks(
    core: &Core,
    series: &[SealedSeries],
    mut next: usize,
    scope: SealScope,
) -> Result<BuiltBlocks, StoreError> {
    let mut built = BuiltBlocks { blocks: Vec::new(), entries: Vec::new(), next };
    let Sizes { block_series_max, write_bytes, .. } = core.options.sizes;
    let mut bytes = 0;
    let mut buffers =
        FrameBuffers { frames: Vec::new(), batch: SampleBatch::new(), scratch: Scratch::new() };
    while next < series.len() && bytes < write_bytes {
        let metric = series[next].metric;
        let mut builder = BlockBuilder::new(block_series_max);
        while let Some(series) = series.get(next).filter(|series| series.metric == metric)
            && !builder.is_full()
        {
            let times = pack_series(core, series, scope, &mut buffers);
            if let Some(times) = times.map_err(|error| damaged(&error))? {
                builder.push(series.id, &buffers.frames, times);
            }
            next += 1;
        }
        if let Some(first_id) = builder.first_id() {
            let key = keys::block(metric, scope.window, scope.epoch, first_id);
            let block = builder.finish(key);
            bytes += block.bytes();
            built.blocks.extend(block.values);
            built.entries.push((metric, block.entry));
        }
    }
    built.next = next;
    Ok(built)
}

/// Replaces the frames in the buffers by those of a series. Returns their first and last time.
fn pack_series(
    core: &Core,
    sealed: &SealedSeries,
    SealScope { window, epoch }: SealScope,
    FrameBuffers { frames, batch, scratch }: &mut FrameBuffers,
) -> Result<Option<TimeRange>, SourceError> {
    frames.clear();
    let parts = match core.head.shard(sealed.slot).series(sealed.slot) {
        Some(series) => match series.copy_condensed(window, epoch, frames) {
            Some(times) => return Ok(Some(times)),
            None => series.parts_of_window(window, epoch),
        },
        None => Parts::new(),
    };
    let parts = SeriesParts::new(parts, i64::MIN, i64::MAX, &sealed.labels)?;
    let times = parts.times();
    if times.is_some() {
        *frames = frames_of(&parts, &sealed.labels, batch, scratch)?;
    }
    Ok(times)
}

fn damaged(error: &SourceError) -> StoreError {
    StoreError::Corrupt { location: "the head".to_owned(), detail: error.to_string() }
}
