//! The newest samples of series, where the head has each of them at hand.

use model::{Advance, Cursor, Labels, SampleBatch, SeriesSet, SourceError};
use roaring::RoaringBitmap;
use smallvec::smallvec;

use super::order::FoundSeries;
use super::set::Charge;
use crate::head::series::{HeadSeries, NONE};
use crate::samples::part::{Part, TailRoom};

/// A series and its newest sample.
pub(super) type Newest = (Labels, NewestSample);

/// The newest sample of a series of the head, and what the series is known as where it is sealed.
#[derive(Debug, Clone, Copy)]
pub(super) struct NewestSample {
    timestamp_ms: i64,
    value: f64,
    /// The partition of the id; no other fits 32 bits.
    partition: i32,
    id: u32,
}

impl NewestSample {
    /// The newest float of a series.
    #[inline]
    pub(super) fn new(series: &HeadSeries, timestamp_ms: i64, value: f64) -> NewestSample {
        let partition = i32::try_from(series.partition);
        let id = if partition.is_ok() { series.partition_id } else { NONE };
        NewestSample { timestamp_ms, value, partition: partition.unwrap_or_default(), id }
    }
}

/// The ids in a partition of those series whose newest sample is later than a time.
pub(super) fn ids_after(newest: &[Newest], partition: i64, time_ms: i64) -> RoaringBitmap {
    let is_known = |sample: &&NewestSample| {
        sample.id != NONE
            && i64::from(sample.partition) == partition
            && sample.timestamp_ms > time_ms
    };
    let samples = newest.iter().map(|(_, sample)| sample);
    let mut ids: Vec<u32> = samples.filter(is_known).map(|sample| sample.id).collect();
    ids.sort_unstable();
    ids.dedup();
    let mut bitmap = RoaringBitmap::new();
    // They ascend.
    let _ = bitmap.append(ids);
    bitmap
}

/// The same as what is found of series that have more.
pub(super) fn found(newest: Vec<Newest>) -> Vec<FoundSeries> {
    let mut room = TailRoom::default();
    let mut found: Vec<FoundSeries> = newest
        .into_iter()
        .map(|(labels, sample)| {
            let tail = room.copy(&[(sample.timestamp_ms, sample.value)]);
            (labels, smallvec![Part::Tail(tail)])
        })
        .collect();
    room.settle(found.iter_mut().flat_map(|(_, parts)| parts));
    found
}

/// Series with one float each, sorted by labels.
pub(super) struct NewestSet {
    pub(super) series: Vec<Newest>,
    /// What has been charged for them, given back in the end.
    pub(super) _charge: Charge,
}

impl SeriesSet for NewestSet {
    fn len(&self) -> usize {
        self.series.len()
    }

    fn labels(&self, series_index: usize) -> &Labels {
        &self.series[series_index].0
    }

    fn cursor(&self, series_index: usize) -> Box<dyn Cursor + '_> {
        let NewestSample { timestamp_ms, value, .. } = self.series[series_index].1;
        Box::new(NewestCursor(Some((timestamp_ms, value))))
    }

    fn sample_count_estimate(&self, _series_index: usize) -> usize {
        1
    }

    fn has_histograms(&self, _series_index: usize) -> bool {
        false
    }

    fn encoded_bytes(&self) -> usize {
        self.series.len() * size_of::<(i64, f64)>()
    }
}

/// One float, until it has been handed over.
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
