//! Parts of a series for readers: encoded or decoded, from the head or from blocks.

use std::sync::Arc;

use bytes::Bytes;
use model::{HistogramSample, TimeRange, prefetch};
use smallvec::SmallVec;

use super::columns::{ColumnSlot, KeptColumn};
use super::shared::{Room, SharedSlice};
use crate::chunk::{ChunkError, FrameHeader};
use crate::summary::Summary;

/// Ascending samples of a series, as read by a cursor. Small, as there are many.
#[derive(Debug, Clone)]
pub(crate) enum Part {
    /// Encoded frame.
    Frame(Box<Frame>),
    /// Encoded frames of floats with a slot for their column.
    Run(Box<Run>),
    /// Column of such frames.
    Column(Arc<KeptColumn>),
    /// Decoded floats without start timestamps; at least one.
    Tail(SharedSlice<(i64, f64)>),
    /// Decoded floats; at least one.
    Floats(Box<Floats>),
    /// Late histograms with unknown reset hint; at least one.
    Histograms(Vec<HistogramSample>),
    /// Summaries of floats in place of them, times ascending; at least one.
    Summaries(SharedSlice<Summary>),
}

/// Maximum number of bytes of a list of samples that are prefetched.
const FETCHED_BYTES: usize = 512;

/// Parts of one series; mostly few, which need no heap.
pub(crate) type Parts = SmallVec<[Part; 4]>;
/// Buffer to which the last floats of many series are copied.
pub(crate) type TailRoom = Room<(i64, f64)>;

/// Encoded frame, and its origin.
#[derive(Debug, Clone)]
pub(crate) struct Frame {
    /// The frame, and possibly more bytes after it.
    pub(crate) bytes: Bytes,
    /// Prefix of the block's key; `None` for the head.
    pub(crate) key: Option<Bytes>,
    /// Decoded header.
    pub(crate) header: Result<FrameHeader, ChunkError>,
}

/// Frames of floats, times ascending.
#[derive(Debug, Clone)]
pub(crate) struct Run {
    /// First samples, decoded earlier; frames may repeat some of them.
    pub(crate) before: Option<Arc<KeptColumn>>,
    /// Single frames, or several frames end to end; mostly one.
    pub(crate) frames: SmallVec<[Bytes; 1]>,
    /// Samples that were written later than the frames, inside their range of time.
    pub(crate) late: Option<Box<LateFloats>>,
    /// Prefix of the block's key; `None` for the head.
    pub(crate) key: Option<Bytes>,
    /// Place of the column once it is decoded.
    pub(crate) column_slot: ColumnSlot,
    /// Maximum number of samples.
    pub(crate) sample_count: usize,
    /// Earliest and latest time by the headers.
    pub(crate) min_ms: i64,
    pub(crate) max_ms: i64,
}

/// Late floats, in the order of writing.
#[derive(Debug, Clone)]
pub(crate) struct LateFloats {
    pub(crate) frames: Vec<Bytes>,
    /// Times ascending.
    pub(crate) floats: Floats,
}

impl Frame {
    /// Creates a frame of the head or of a block.
    pub(crate) fn new(bytes: Bytes, key: Option<Bytes>) -> Frame {
        let header = FrameHeader::read(&bytes);
        Frame { bytes, key, header }
    }
}

/// Decoded floats, and start timestamps of the first of them; missing ones are 0.
#[derive(Debug, Clone, Default)]
pub(crate) struct Floats {
    pub(crate) samples: Vec<(i64, f64)>,
    pub(crate) starts: Vec<i64>,
}

impl Part {
    /// Returns the size in bytes.
    pub(crate) fn bytes(&self) -> usize {
        match self {
            Part::Frame(frame) => frame.bytes.len(),
            Part::Run(run) => {
                run.frames.iter().map(Bytes::len).sum::<usize>()
                    + run.late.as_ref().map_or(0, |late| late.bytes())
            }
            Part::Column(column) => column.bytes(),
            Part::Tail(tail) => size_of_val(tail.items()),
            Part::Floats(floats) => floats.bytes(),
            Part::Histograms(samples) => samples.iter().map(HistogramSample::memory_bytes).sum(),
            Part::Summaries(summaries) => size_of_val(summaries.items()),
        }
    }

    /// Returns the bytes that its column counts in the cache; the minimum if the samples are encoded.
    pub(crate) fn column_bytes(&self) -> usize {
        match self {
            Part::Run(run) => KeptColumn::kept_bytes_min(run.sample_count),
            Part::Column(column) => column.kept_bytes(),
            _ => 0,
        }
    }

    /// Returns the size on the heap without a column; `None` if samples are encoded.
    pub(super) fn decoded_bytes(&self) -> Option<usize> {
        match self {
            Part::Frame(_) | Part::Run(_) => None,
            Part::Column(_) => Some(0),
            Part::Floats(_) => Some(size_of::<Floats>() + self.bytes()),
            Part::Tail(_) | Part::Histograms(_) | Part::Summaries(_) => Some(self.bytes()),
        }
    }

    /// Prefetches a column, or the description of encoded samples.
    #[inline]
    pub(crate) fn fetch(&self) {
        match self {
            Part::Column(column) => prefetch(&**column),
            Part::Run(run) => prefetch(&**run),
            Part::Frame(frame) => prefetch(&**frame),
            Part::Tail(_) | Part::Floats(_) | Part::Histograms(_) | Part::Summaries(_) => {}
        }
    }

    /// Prefetches the first samples of a part that [`Part::fetch`] has fetched.
    #[inline]
    pub(crate) fn fetch_samples(&self) {
        fn start_of<T>(all: &[T]) {
            prefetch(&all[..all.len().min(FETCHED_BYTES / size_of::<T>())]);
        }
        match self {
            Part::Column(column) => column.fetch(0),
            Part::Run(run) => {
                run.column_slot.fetch();
                run.frames.first().into_iter().for_each(|frame| start_of(frame));
            }
            Part::Frame(frame) => start_of(&frame.bytes),
            // The tails before it are in the same list, which is in the CPU cache.
            Part::Tail(tail) => start_of(tail.items()),
            Part::Summaries(summaries) => start_of(summaries.items()),
            Part::Floats(_) | Part::Histograms(_) => {}
        }
    }

    /// Returns the maximum number of samples; 0 for an unreadable frame.
    pub(crate) fn sample_count(&self) -> usize {
        match self {
            Part::Frame(frame) => frame.header.as_ref().map_or(0, |h| h.count as usize),
            Part::Run(run) => run.sample_count,
            Part::Column(column) => column.len(),
            Part::Tail(tail) => tail.items().len(),
            Part::Floats(floats) => floats.samples.len(),
            Part::Histograms(samples) => samples.len(),
            Part::Summaries(summaries) => summaries.items().len(),
        }
    }

    /// Returns the earliest and latest time; 0 if unreadable.
    #[inline]
    pub(crate) fn times(&self) -> TimeRange {
        match self {
            Part::Column(column) => TimeRange::new(column.min_ms(), column.max_ms()),
            Part::Tail(tail) => times_of(tail.items()),
            Part::Floats(floats) => times_of(&floats.samples),
            Part::Frame(frame) => {
                let of_header = |h: &FrameHeader| TimeRange::new(h.min_ms, h.max_ms);
                frame.header.as_ref().map_or(TimeRange::new(0, 0), of_header)
            }
            Part::Run(run) => TimeRange::new(run.min_ms, run.max_ms),
            Part::Histograms(samples) => match (samples.first(), samples.last()) {
                (Some(first), Some(last)) => TimeRange::new(first.timestamp_ms, last.timestamp_ms),
                _ => TimeRange::new(0, 0),
            },
            Part::Summaries(summaries) => match summaries.items() {
                [first, .., last] => TimeRange::new(first.first_ms, last.last_ms),
                [only] => TimeRange::new(only.first_ms, only.last_ms),
                [] => TimeRange::new(0, 0),
            },
        }
    }

    /// Returns floats that were copied together with others.
    pub(crate) fn tail_mut(&mut self) -> Option<&mut SharedSlice<(i64, f64)>> {
        if let Part::Tail(tail) = self { Some(tail) } else { None }
    }

    /// Returns summaries.
    pub(crate) fn summaries_mut(&mut self) -> Option<&mut SharedSlice<Summary>> {
        if let Part::Summaries(summaries) = self { Some(summaries) } else { None }
    }

    /// Returns floats that were never encoded.
    #[inline]
    pub(super) fn raw(&self) -> Option<&[(i64, f64)]> {
        match self {
            Part::Tail(tail) => Some(tail.items()),
            Part::Floats(floats) => Some(&floats.samples),
            _ => None,
        }
    }

    /// Returns whether it is a summary of samples.
    pub(crate) fn is_summaries(&self) -> bool {
        matches!(self, Part::Summaries(_))
    }

    /// Returns whether it has histograms, by the tag of a frame.
    #[inline]
    pub(crate) fn is_histograms(&self) -> bool {
        match self {
            Part::Column(_)
            | Part::Tail(_)
            | Part::Floats(_)
            | Part::Run(_)
            | Part::Summaries(_) => false,
            Part::Frame(frame) => frame.header.is_ok_and(|h| h.encoding.is_histograms()),
            Part::Histograms(_) => true,
        }
    }
}

/// Returns the first and last time; 0 if there are none.
fn times_of(samples: &[(i64, f64)]) -> TimeRange {
    match (samples.first(), samples.last()) {
        (Some((min_ms, _)), Some((max_ms, _))) => TimeRange::new(*min_ms, *max_ms),
        _ => TimeRange::new(0, 0),
    }
}

impl LateFloats {
    /// Returns the maximum number of samples.
    pub(crate) fn sample_count(&self) -> usize {
        let count = |frame: &Bytes| FrameHeader::read(frame).map_or(0, |h| h.count as usize);
        self.frames.iter().map(count).sum::<usize>() + self.floats.samples.len()
    }

    fn bytes(&self) -> usize {
        self.frames.iter().map(Bytes::len).sum::<usize>() + self.floats.bytes()
    }
}

impl Floats {
    fn bytes(&self) -> usize {
        size_of_val(&*self.samples) + size_of_val(&*self.starts)
    }
}

/// Appends start timestamps after those of `sample_count` samples, if there are any.
pub(crate) fn push_starts(starts: &mut Vec<i64>, sample_count: usize, more: &[i64]) {
    if !more.is_empty() {
        starts.resize(sample_count, 0);
        starts.extend_from_slice(more);
    }
}

/// Sorts floats by time; of equal times the last one stays.
pub(crate) fn sorted_later_wins(floats: &Floats) -> Floats {
    let samples = &floats.samples;
    let mut order: Vec<usize> = (0..samples.len()).collect();
    order.sort_by_key(|at| samples[*at].0);
    let mut sorted = Floats::default();
    for (position, at) in order.iter().enumerate() {
        let is_last = order.get(position + 1).is_none_or(|next| samples[*next].0 != samples[*at].0);
        if is_last {
            let start_ms = floats.starts.get(*at).copied().unwrap_or(0);
            if start_ms != 0 {
                push_starts(&mut sorted.starts, sorted.samples.len(), &[start_ms]);
            }
            sorted.samples.push(samples[*at]);
        }
    }
    sorted
}
