//! Samples of a series as they are handed to those who read: encoded or decoded, of the head or of
//! blocks.

use std::sync::Arc;

use bytes::Bytes;
use model::{Histogram, HistogramSample, TimeRange, prefetch};
use smallvec::SmallVec;

use super::columns::{ColumnPlace, KeptColumn};
use crate::chunk::{ChunkError, FrameHeader};

/// A run of samples that ascends: what a cursor reads. Small, for there are many.
#[derive(Debug, Clone)]
pub(crate) enum Part {
    /// One encoded frame.
    Frame(Box<Frame>),
    /// Frames of floats that have a place for what they decode to.
    Run(Box<Run>),
    /// What such frames were decoded to before.
    Column(Arc<KeptColumn>),
    /// Decoded floats without starts; at least one.
    Tail(Tail),
    /// Decoded floats; at least one.
    Floats(Box<Floats>),
    /// Late histograms, at least one; of none is known whether its counter was reset.
    Histograms(Vec<HistogramSample>),
}

/// The parts of one series: mostly few, of which none is made room for on the heap.
pub(crate) type Parts = SmallVec<[Part; 4]>;

/// One encoded frame, and where it comes from.
#[derive(Debug, Clone)]
pub(crate) struct Frame {
    /// The frame, and maybe more behind it.
    pub(crate) bytes: Bytes,
    /// The start of the block's key, or none for the head.
    pub(crate) key: Option<Bytes>,
    /// What its header says.
    pub(crate) header: Result<FrameHeader, ChunkError>,
}

/// Frames of floats without starts, times ascending.
#[derive(Debug, Clone)]
pub(crate) struct Run {
    /// The first samples, decoded before; frames may hold some of them again.
    pub(crate) before: Option<Arc<KeptColumn>>,
    /// The frames, each alone or some end to end.
    pub(crate) frames: Vec<Bytes>,
    /// The start of the block's key, or none for the head.
    pub(crate) key: Option<Bytes>,
    /// Where the column is kept once there is one.
    pub(crate) place: ColumnPlace,
    /// Samples of all of it, at most.
    pub(crate) sample_count: usize,
    /// Earliest and latest time, as the headers say.
    pub(crate) min_ms: i64,
    pub(crate) max_ms: i64,
}

impl Frame {
    /// A frame of the head, or of a block.
    pub(crate) fn new(bytes: Bytes, key: Option<Bytes>) -> Frame {
        let header = FrameHeader::read(&bytes);
        Frame { bytes, key, header }
    }
}

/// Some floats of many that were copied together.
#[derive(Debug, Clone)]
pub(crate) struct Tail {
    all: Arc<Vec<(i64, f64)>>,
    start: u32,
    end: u32,
}

/// Where the tails of some series are copied to, so that all of them take one allocation.
#[derive(Debug, Default)]
pub(crate) struct TailRoom {
    samples: Vec<(i64, f64)>,
    /// Stands for the samples in tails that are not settled.
    pending: Arc<Vec<(i64, f64)>>,
}

/// Decoded floats and the starts of the first of them: what is missing is 0.
#[derive(Debug, Clone, Default)]
pub(crate) struct Floats {
    pub(crate) samples: Vec<(i64, f64)>,
    pub(crate) starts: Vec<i64>,
}

impl Part {
    /// Bytes that it holds.
    pub(crate) fn bytes(&self) -> usize {
        match self {
            Part::Frame(frame) => frame.bytes.len(),
            Part::Run(run) => run.frames.iter().map(Bytes::len).sum(),
            Part::Column(column) => column.bytes(),
            Part::Tail(tail) => size_of_val(tail.samples()),
            Part::Floats(floats) => floats.samples.len() * 16 + floats.starts.len() * 8,
            Part::Histograms(samples) => samples.iter().map(histogram_bytes).sum(),
        }
    }

    /// Has a column brought nearer; all else is here, or is decoded.
    #[inline]
    pub(crate) fn fetch(&self) {
        if let Part::Column(column) = self {
            prefetch(&**column);
        }
    }

    /// Has the first samples of a column, which is at hand, brought nearer.
    #[inline]
    pub(crate) fn fetch_samples(&self) {
        if let Part::Column(column) = self {
            column.fetch();
        }
    }

    /// Samples in it, at most; 0 for a frame that cannot be read.
    pub(crate) fn sample_count(&self) -> usize {
        match self {
            Part::Frame(frame) => frame.header.as_ref().map_or(0, |h| h.count as usize),
            Part::Run(run) => run.sample_count,
            Part::Column(column) => column.len(),
            Part::Tail(tail) => tail.samples().len(),
            Part::Floats(floats) => floats.samples.len(),
            Part::Histograms(samples) => samples.len(),
        }
    }

    /// Earliest and latest time; 0 for what cannot be read.
    #[inline]
    pub(crate) fn times(&self) -> TimeRange {
        match self {
            Part::Column(column) => TimeRange::new(column.min_ms(), column.max_ms()),
            Part::Tail(tail) => times_of(tail.samples()),
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
        }
    }

    /// Whether it is of histograms, by the tag of a frame.
    #[inline]
    pub(crate) fn is_histograms(&self) -> bool {
        match self {
            Part::Column(_) | Part::Tail(_) | Part::Floats(_) | Part::Run(_) => false,
            Part::Frame(frame) => frame.header.is_ok_and(|h| h.encoding.is_histograms()),
            Part::Histograms(_) => true,
        }
    }
}

/// First and last time; 0 where there is nothing.
fn times_of(samples: &[(i64, f64)]) -> TimeRange {
    match (samples.first(), samples.last()) {
        (Some((min_ms, _)), Some((max_ms, _))) => TimeRange::new(*min_ms, *max_ms),
        _ => TimeRange::new(0, 0),
    }
}

impl Tail {
    /// The floats; none before they are settled.
    #[inline]
    pub(crate) fn samples(&self) -> &[(i64, f64)] {
        self.all.get(self.start as usize..self.end as usize).unwrap_or_default()
    }
}

impl TailRoom {
    /// A copy of floats, which is there once it is settled.
    pub(crate) fn copy(&mut self, samples: &[(i64, f64)]) -> Tail {
        let start = self.samples.len() as u32;
        self.samples.extend_from_slice(samples);
        Tail { all: Arc::clone(&self.pending), start, end: self.samples.len() as u32 }
    }

    /// Settles all tails that were copied since the last time.
    pub(crate) fn settle<'a>(&mut self, parts: impl Iterator<Item = &'a mut Part>) {
        let all = Arc::new(std::mem::take(&mut self.samples));
        for part in parts {
            if let Part::Tail(tail) = part {
                tail.all = Arc::clone(&all);
            }
        }
    }
}

/// Bytes that a histogram takes in memory, shared ones included.
pub(crate) fn histogram_bytes(sample: &HistogramSample) -> usize {
    let histogram = &sample.histogram;
    size_of::<HistogramSample>()
        + size_of::<Histogram>()
        + histogram.heap_bytes()
        + size_of_val(&*histogram.custom_bounds)
}

/// Adds the starts of samples behind so many others, if there are any.
pub(crate) fn push_starts(starts: &mut Vec<i64>, sample_count: usize, more: &[i64]) {
    if !more.is_empty() {
        starts.resize(sample_count, 0);
        starts.extend_from_slice(more);
    }
}

/// Sorts floats by time; of one time the last given stays.
pub(crate) fn sorted_later_wins(floats: &Floats) -> Floats {
    let samples = &floats.samples;
    let mut order: Vec<usize> = (0..samples.len()).collect();
    order.sort_by_key(|at| samples[*at].0);
    let mut sorted = Floats::default();
    for (place, at) in order.iter().enumerate() {
        let is_last = order.get(place + 1).is_none_or(|next| samples[*next].0 != samples[*at].0);
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
