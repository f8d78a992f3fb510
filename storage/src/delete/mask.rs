//! Deleted times of series, and filters for the remaining samples.
//!
//! Masks apply after every cache: a cached column holds all samples of its block.

use std::sync::Arc;

use model::{
    Advance, Cursor, HistogramSample, Labels, Matcher, ResetHint, SampleBatch, SourceError,
    TimeRange,
};
use roaring::RoaringBitmap;

use super::{Tombstone, TombstoneSnapshot};
use crate::epoch::Epoch;
use crate::index::bitmap_bytes;
use crate::index::partition::PartitionIndex;
use crate::lsm::Lsm;
use crate::parallel::yielder::Yielder;
use crate::samples::cursor::PartsCursor;
use crate::samples::part::{Floats, Part, Parts, push_starts};
use crate::samples::series_parts::SeriesParts;
use crate::window::PARTITION_MS;

/// Deleted times of series in one partition: a set of ids for each tombstone, which is small even
/// if it covers many series.
#[derive(Debug, Default)]
pub(crate) struct Masks {
    of_tombstones: Vec<(Deleted, RoaringBitmap)>,
    /// Union of the sets of all tombstones.
    ids: RoaringBitmap,
}

/// Times that are deleted from runs up to an epoch.
#[derive(Debug, Clone, Copy)]
struct Deleted {
    epoch: Epoch,
    start_ms: i64,
    end_ms: i64,
}

impl Masks {
    /// Resolves the tombstones of a partition for some series and a range of time.
    ///
    /// Errors: reading the index fails.
    pub(crate) async fn of(
        lsm: &Lsm,
        index: &PartitionIndex,
        tombstones: &TombstoneSnapshot,
        TimeRange { start_ms, end_ms }: TimeRange,
        ids: &RoaringBitmap,
        yielder: &mut Yielder,
    ) -> Result<Masks, SourceError> {
        let mut masks = Masks::default();
        let partition_end_ms = index.partition.end_ms();
        let first_ms = start_ms.max(partition_end_ms.saturating_sub(PARTITION_MS));
        let last_ms = end_ms.min(partition_end_ms - 1);
        let relevant = tombstones.values().filter(|t| t.masks(first_ms, last_ms, Epoch::FIRST));
        for tombstone in relevant {
            let Tombstone { epoch, start_ms, end_ms, .. } = **tombstone;
            let covered = covered(lsm, index, &tombstone.selectors, ids, yielder).await?;
            yielder.work(1).await?;
            if !covered.is_empty() {
                masks.ids |= &covered;
                masks.of_tombstones.push((Deleted { epoch, start_ms, end_ms }, covered));
            }
        }
        Ok(masks)
    }

    /// Returns whether nothing is deleted.
    pub(crate) fn is_empty(&self) -> bool {
        self.ids.is_empty()
    }

    /// Returns the ids with deleted samples.
    pub(crate) fn ids(&self) -> &RoaringBitmap {
        &self.ids
    }

    /// Returns the bytes in memory.
    pub(crate) fn bytes(&self) -> usize {
        let of_tombstones = self.of_tombstones.iter().map(|(_, ids)| ids);
        of_tombstones.chain([&self.ids]).map(|ids| size_of::<Deleted>() + bitmap_bytes(ids)).sum()
    }

    /// Returns the deleted times of a series in a run, sorted; no range touches the next.
    pub(crate) fn times(&self, id: u32, epoch: Epoch) -> Vec<TimeRange> {
        if !self.ids.contains(id) {
            return Vec::new();
        }
        let covers =
            |(deleted, ids): &&(Deleted, RoaringBitmap)| deleted.epoch >= epoch && ids.contains(id);
        let of_run = self.of_tombstones.iter().filter(covers);
        let mut times: Vec<TimeRange> =
            of_run.map(|(deleted, _)| TimeRange::new(deleted.start_ms, deleted.end_ms)).collect();
        times.sort_unstable();
        times.dedup_by(|next, before| {
            let touches = next.start_ms <= before.end_ms.saturating_add(1);
            if touches {
                before.end_ms = before.end_ms.max(next.end_ms);
            }
            touches
        });
        times
    }
}

/// Returns the ids of series that a tombstone covers.
async fn covered(
    lsm: &Lsm,
    index: &PartitionIndex,
    selectors: &[Vec<Matcher>],
    ids: &RoaringBitmap,
    yielder: &mut Yielder,
) -> Result<RoaringBitmap, SourceError> {
    let mut covered = RoaringBitmap::new();
    for matchers in selectors {
        covered |= index.resolve(lsm, matchers, yielder).await? & ids;
    }
    Ok(covered)
}

/// Returns parts of a series without deleted times. Parts are in the order of writing.
///
/// The reset hint of a histogram after a gap becomes unknown. Errors: damaged bytes.
pub(crate) fn kept_parts(
    parts: Parts,
    deleted: &[TimeRange],
    labels: &Labels,
) -> Result<Parts, SourceError> {
    let mut kept = Parts::new();
    for part in parts {
        let is_readable = !matches!(&part, Part::Frame(frame) if frame.header.is_err());
        let times = part.times();
        if !is_readable || !deleted.iter().any(|range| range.overlaps(times)) {
            // The reader of an unreadable part reports it.
            kept.push(part);
        } else if !deleted.iter().any(|range| range.covers(times)) {
            let parts = SeriesParts::new(Parts::from_iter([part]), i64::MIN, i64::MAX, labels)?;
            let KeptSamples { floats, histograms } = KeptSamples::of(&parts, deleted, labels)?;
            kept.extend((!floats.samples.is_empty()).then_some(Part::Floats(Box::new(floats))));
            kept.extend((!histograms.is_empty()).then_some(Part::Histograms(histograms)));
        }
    }
    Ok(kept)
}

/// Samples that are not deleted, in order.
#[derive(Debug, Default)]
pub(crate) struct KeptSamples {
    pub(crate) floats: Floats,
    pub(crate) histograms: Vec<HistogramSample>,
}

impl KeptSamples {
    /// Collects the kept samples of parts.
    pub(crate) fn of(
        parts: &SeriesParts,
        deleted: &[TimeRange],
        labels: &Labels,
    ) -> Result<KeptSamples, SourceError> {
        let is_deleted = |time_ms: i64| deleted.iter().any(|range| range.contains(time_ms));
        let mut cursor = PartsCursor::new(labels, parts, i64::MIN, i64::MAX, None);
        let mut batch = SampleBatch::new();
        let mut kept = KeptSamples::default();
        let mut is_behind_gap = true;
        loop {
            batch.clear();
            let advance = cursor.next_batch(i64::MAX, &mut batch)?;
            let (timestamps, values) = batch.samples();
            for (at, (timestamp_ms, value)) in timestamps.iter().zip(values).enumerate() {
                if is_deleted(*timestamp_ms) {
                    continue;
                }
                if batch.start(at) != 0 {
                    let Floats { samples, starts } = &mut kept.floats;
                    push_starts(starts, samples.len(), &[batch.start(at)]);
                }
                kept.floats.samples.push((*timestamp_ms, *value));
            }
            for mut sample in batch.histograms.drain(..) {
                if is_deleted(sample.timestamp_ms) {
                    is_behind_gap = true;
                    continue;
                }
                let hint = sample.histogram.reset_hint;
                if std::mem::take(&mut is_behind_gap) && hint != ResetHint::Gauge {
                    Arc::make_mut(&mut sample.histogram).reset_hint = ResetHint::Unknown;
                }
                kept.histograms.push(sample);
            }
            if advance != Advance::Full {
                return Ok(kept);
            }
        }
    }
}
