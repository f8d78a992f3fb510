//! Newest samples of series that the head has in memory.

use std::fmt;
use std::sync::Arc;

use model::{
    Advance, Cursor, DerivedValues, Labels, Reservation, SampleBatch, SeriesSet, SourceError,
};
use roaring::RoaringBitmap;
use smallvec::smallvec;

use super::kept::HeldOnce;
use super::order::FoundSeries;
use crate::head::series::{HeadSeries, NONE};
use crate::samples::part::{Part, TailRoom};
use crate::window::PartitionId;

/// Series with its newest sample.
pub(crate) type Newest = (Labels, NewestSample);

/// Newest sample of a series of the head, and the id of the series in its partition.
#[derive(Debug, Clone, Copy)]
pub(crate) struct NewestSample {
    timestamp_ms: i64,
    value: f64,
    /// Partition of the id, which fits 32 bits.
    partition: i32,
    id: u32,
}

impl NewestSample {
    /// Creates the newest float of a series.
    #[inline]
    pub(crate) fn new(series: &HeadSeries, timestamp_ms: i64, value: f64) -> NewestSample {
        let partition = i32::try_from(series.partition.number());
        let id = if partition.is_ok() { series.id_in_partition } else { NONE };
        NewestSample { timestamp_ms, value, partition: partition.unwrap_or_default(), id }
    }
}

/// Returns the ids in a partition of series whose newest sample is later than a time.
pub(crate) fn ids_after(newest: &[Newest], partition: PartitionId, time_ms: i64) -> RoaringBitmap {
    let is_known = |sample: &&NewestSample| {
        sample.id != NONE
            && i64::from(sample.partition) == partition.number()
            && sample.timestamp_ms > time_ms
    };
    let samples = newest.iter().map(|(_, sample)| sample);
    let mut ids: Vec<u32> = samples.filter(is_known).map(|sample| sample.id).collect();
    ids.sort_unstable();
    ids.dedup();
    let mut bitmap = RoaringBitmap::new();
    // The ids ascend.
    let _ = bitmap.append(ids);
    bitmap
}

/// Converts to the form of series with more samples.
pub(crate) fn found(newest: Vec<Newest>) -> Vec<FoundSeries> {
    let mut room = TailRoom::default();
    let mut found: Vec<FoundSeries> = newest
        .into_iter()
        .map(|(labels, sample)| {
            let tail = room.copy(&[(sample.timestamp_ms, sample.value)]);
            (labels, smallvec![Part::Tail(tail)])
        })
        .collect();
    room.settle(found.iter_mut().flat_map(|(_, parts)| parts).filter_map(Part::tail_mut));
    found
}

/// Series with one float each, of one query.
pub(crate) struct NewestSet {
    pub(crate) newest: Arc<NewestSeries>,
    /// Memory charge, released on drop.
    pub(crate) _charge: Reservation,
}

/// Series with one float each, sorted by labels.
pub(crate) struct NewestSeries {
    pub(crate) series: Vec<Newest>,
    /// Bytes that each query charges for them.
    pub(crate) charged_bytes: u64,
    pub(crate) held: HeldOnce,
}

impl fmt::Debug for NewestSeries {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NewestSeries").field("len", &self.series.len()).finish_non_exhaustive()
    }
}

impl SeriesSet for NewestSet {
    fn len(&self) -> usize {
        self.newest.series.len()
    }

    fn labels(&self, series_index: usize) -> &Labels {
        &self.newest.series[series_index].0
    }

    fn cursor(&self, series_index: usize) -> Box<dyn Cursor + '_> {
        let NewestSample { timestamp_ms, value, .. } = self.newest.series[series_index].1;
        Box::new(NewestCursor(Some((timestamp_ms, value))))
    }

    fn sample_count_estimate(&self, _series_index: usize) -> usize {
        1
    }

    fn has_histograms(&self, _series_index: usize) -> bool {
        false
    }

    fn has_any_histograms(&self) -> bool {
        false
    }

    fn derived(&self) -> Option<&DerivedValues> {
        self.newest.held.get().map(|held| &held.derived)
    }

    fn encoded_bytes(&self) -> usize {
        self.newest.series.len() * size_of::<(i64, f64)>()
    }
}

/// Cursor over one float.
struct NewestCursor(Option<(i64, f64)>);

impl Cursor for NewestCursor {
    fn next_batch(
        &mut self,
        until_ms: i64,
        batch: &mut SampleBatch,
    ) -> Result<Advance, SourceError> {
        match self.0 {
            Some((timestamp_ms, _)) if timestamp_ms > until_ms => Ok(Advance::Reached),
            Some(_) if batch.is_full() => Ok(Advance::Full),
            newest => {
                if let Some((timestamp_ms, value)) = newest {
                    batch.push(timestamp_ms, value);
                    self.0 = None;
                }
                Ok(Advance::End)
            }
        }
    }
}
