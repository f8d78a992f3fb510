//! Merges runs of one metric and window, series by series, without deleted samples.

use std::collections::VecDeque;

use bytes::Bytes;
use model::{Labels, SampleBatch, SourceError, TimeRange};

use super::frames::frames_of;
use crate::block::{BlockEntry, DecodedBlock};
use crate::core::Core;
use crate::delete::{Masks, kept_parts};
use crate::epoch::Epoch;
use crate::error::StoreError;
use crate::index::runs::MetricRun;
use crate::keys;
use crate::samples::part::{Frame, Part, Parts};
use crate::samples::scratch::Scratch;
use crate::samples::series_parts::SeriesParts;
use crate::value;
use crate::window::Window;

/// Merge of runs of one metric and window, by series id.
pub(super) struct RunMerge<'a> {
    core: &'a Core,
    masks: &'a Masks,
    /// Runs in ascending order.
    runs: Vec<UnreadRun>,
    batch: Box<SampleBatch>,
    scratch: Scratch,
}

/// Series of a merge.
pub(super) struct MergedSeries {
    pub(super) id: u32,
    /// Frames, end to end.
    pub(super) frames: Vec<u8>,
    pub(super) times: TimeRange,
}

/// Unread rest of a run.
struct UnreadRun {
    epoch: Epoch,
    blocks: VecDeque<Vec<u8>>,
    /// Remaining series of the open block and their frames; `key` is the key of the block.
    series: VecDeque<(u32, Bytes)>,
    key: Bytes,
}

impl<'a> RunMerge<'a> {
    /// Creates a merge of runs, which are in ascending order.
    pub(super) fn new(
        core: &'a Core,
        metric: u64,
        window: Window,
        runs: &[MetricRun],
        masks: &'a Masks,
    ) -> RunMerge<'a> {
        let unread = |run: &MetricRun| {
            let key = |e: &BlockEntry| keys::block(metric, window, run.epoch, e.first_id);
            let blocks = run.blocks.iter().map(key).collect();
            UnreadRun { epoch: run.epoch, blocks, series: VecDeque::new(), key: Bytes::new() }
        };
        let runs = runs.iter().map(unread).collect();
        RunMerge { core, masks, runs, batch: SampleBatch::new(), scratch: Scratch::new() }
    }

    /// Returns the next series with samples that are not deleted; `None` after the last.
    pub(super) async fn next(&mut self) -> Result<Option<MergedSeries>, StoreError> {
        loop {
            for run in &mut self.runs {
                run.open(self.core).await?;
            }
            let next = self.runs.iter().filter_map(|run| Some(run.series.front()?.0)).min();
            let Some(id) = next else { return Ok(None) };
            let merged = self.series(id)?;
            tokio::task::yield_now().await;
            if merged.is_some() {
                return Ok(merged);
            }
        }
    }

    /// Returns the remaining samples of a series, which is the next one of some runs.
    fn series(&mut self, id: u32) -> Result<Option<MergedSeries>, StoreError> {
        // Errors name damaged bytes by the key of the block, so no labels are needed.
        let labels = Labels::default();
        let mut parts = Parts::new();
        for run in &mut self.runs {
            if run.series.front().is_none_or(|(first, _)| *first != id) {
                continue;
            }
            let Some((_, frames)) = run.series.pop_front() else { continue };
            let of_run = run.parts(&frames)?;
            let kept = kept_parts(of_run, &self.masks.times(id, run.epoch), &labels);
            parts.extend(kept.map_err(unreadable)?);
        }
        let parts = SeriesParts::new(parts, i64::MIN, i64::MAX, &labels).map_err(unreadable)?;
        let Some(times) = parts.times() else { return Ok(None) };
        let frames = frames_of(&parts, &labels, &mut self.batch, &mut self.scratch);
        Ok(Some(MergedSeries { id, frames: frames.map_err(unreadable)?, times }))
    }
}

impl UnreadRun {
    /// Opens the next block of each run whose open block is at its end.
    async fn open(&mut self, core: &Core) -> Result<(), StoreError> {
        while self.series.is_empty()
            && let Some(key) = self.blocks.pop_front()
        {
            let bytes = core.lsm.get(&key).await?;
            let bytes = bytes.ok_or_else(|| value::corrupt(&key, "block is missing"))?;
            self.series = DecodedBlock::new(&key, &bytes)?.frames().collect();
            self.key = Bytes::from(key);
        }
        Ok(())
    }

    /// Returns the frames of a series, each verified.
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

/// Converts the error of a selection into one of the store.
pub(super) fn unreadable(error: SourceError) -> StoreError {
    match error {
        SourceError::Corrupt { location, detail, .. } => StoreError::Corrupt { location, detail },
        error => StoreError::Unavailable(error.to_string()),
    }
}
