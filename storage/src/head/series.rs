//! One open series: its windows, and what is known of its newest sample.

use std::collections::BTreeSet;
use std::sync::Arc;

use bytes::Bytes;
use model::{Histogram, HistogramSample, Labels, SampleBatch, prefetch};
use smallvec::SmallVec;

use super::window::OpenWindow;
use crate::chunk::{self, ChunkError, Decoder, Encoding, FrameHeader, HistogramBefore};
use crate::columns::{KeptColumn, Place};
use crate::window::window_of;

/// Marks an id or a reference that has not been given.
pub(crate) const NONE: u32 = u32::MAX;

/// Bytes of a series beside its label set and its windows: itself, its places in the table of
/// slots, in the order and among the slots, and what the allocator adds to each.
pub(crate) const SERIES_BYTES: usize = size_of::<HeadSeries>() + 152;

/// An open series.
#[derive(Debug)]
pub(crate) struct HeadSeries {
    /// Its labels.
    pub(crate) labels: Labels,
    /// Time of the newest sample; `i64::MIN` before the first.
    pub(crate) newest_ms: i64,
    /// Bits of its value, or of the sum of a histogram.
    pub(crate) newest_bits: u64,
    /// Time of the newest sample where that is a float without a start in an open window, which
    /// has been applied; earlier, or `i64::MIN`, where it is not.
    newest_plain_ms: i64,
    /// The newest histogram, if there has been one; floats may have followed.
    pub(crate) newest_histogram: Option<Box<HistogramSample>>,
    /// The log epoch that has defined the series last.
    pub(crate) log_epoch: u32,
    /// Its reference in that epoch.
    pub(crate) log_ref: u32,
    /// The partition that `partition_id` belongs to.
    pub(crate) partition: i64,
    /// The id in the index of `partition`, or [`NONE`].
    pub(crate) partition_id: u32,
    /// Whether it counts as active.
    pub(crate) is_active: bool,
    /// Where the last append went.
    pub(super) recent: u32,
    /// Sorted by window, then epoch.
    pub(super) windows: Vec<OpenWindow>,
}

/// A histogram that has been accepted.
#[derive(Debug, Clone)]
pub(crate) struct Decided {
    /// Canonical, with the hint that holds.
    pub(crate) sample: HistogramSample,
    /// The histogram that the hint was decided against, where it says that the counter went on.
    pub(crate) before: Option<HistogramBefore>,
}

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
    pub(crate) place: Place,
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
    pub(crate) fn times(&self) -> (i64, i64) {
        match self {
            Part::Column(column) => (column.min_ms(), column.max_ms()),
            Part::Tail(tail) => times_of(tail.samples()),
            Part::Floats(floats) => times_of(&floats.samples),
            Part::Frame(frame) => frame.header.as_ref().map_or((0, 0), |h| (h.min_ms, h.max_ms)),
            Part::Run(run) => (run.min_ms, run.max_ms),
            Part::Histograms(samples) => match (samples.first(), samples.last()) {
                (Some(first), Some(last)) => (first.timestamp_ms, last.timestamp_ms),
                _ => (0, 0),
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
fn times_of(samples: &[(i64, f64)]) -> (i64, i64) {
    match (samples.first(), samples.last()) {
        (Some((min_ms, _)), Some((max_ms, _))) => (*min_ms, *max_ms),
        _ => (0, 0),
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

/// Room for decoding floats that is used again and again.
pub(crate) struct Scratch {
    batch: Box<SampleBatch>,
    /// Decoded times.
    pub(crate) timestamps: Vec<i64>,
    /// Decoded values.
    pub(crate) values: Vec<f64>,
    /// Starts of the first of them; what is missing is 0.
    pub(crate) starts: Vec<i64>,
    bytes: Vec<u8>,
    /// Bytes that series have grown by since this was taken.
    pub(super) grown_bytes: usize,
}

impl Scratch {
    /// Empty room.
    pub(crate) fn new() -> Scratch {
        Scratch {
            batch: SampleBatch::new(),
            timestamps: Vec::new(),
            values: Vec::new(),
            starts: Vec::new(),
            bytes: Vec::new(),
            grown_bytes: 0,
        }
    }

    /// Forgets the samples.
    pub(crate) fn clear(&mut self) {
        self.timestamps.clear();
        self.values.clear();
        self.starts.clear();
    }

    /// Decodes one frame of floats behind what is there already.
    pub(crate) fn decode(&mut self, bytes: &[u8]) -> Result<(), ChunkError> {
        let mut decoder = Decoder::open(bytes)?;
        loop {
            self.batch.clear();
            let advance = decoder.next_batch(i64::MAX, &mut self.batch)?;
            let (timestamps, values) = self.batch.samples();
            push_starts(&mut self.starts, self.timestamps.len(), &self.batch.starts);
            self.timestamps.extend_from_slice(timestamps);
            self.values.extend_from_slice(values);
            if advance != model::Advance::Full {
                return Ok(());
            }
        }
    }

    /// The samples as one frame: they lie in one window, so one frame holds them.
    pub(super) fn encode(&mut self) -> Bytes {
        self.bytes.clear();
        chunk::encode_with_starts(&self.timestamps, &self.values, &self.starts, &mut self.bytes);
        Bytes::copy_from_slice(&self.bytes)
    }

    /// The samples of frames that stand end to end, packed; none if there is anything else than
    /// floats without starts among them, or something that cannot be read.
    pub(crate) fn pack(&mut self, frames: &[u8]) -> Option<&[u8]> {
        self.clear();
        for frame in chunk::frames(frames) {
            let (offset, header) = frame.ok()?;
            if !matches!(header.encoding, Encoding::Gorilla | Encoding::Packed) {
                return None;
            }
            self.decode(&frames[offset..]).ok()?;
        }
        self.bytes.clear();
        chunk::encode_packed(&self.timestamps, &self.values, &mut self.bytes);
        Some(&self.bytes)
    }

    pub(super) fn push_all(&mut self, samples: &[(i64, f64)], starts: &[i64]) {
        push_starts(&mut self.starts, self.timestamps.len(), starts);
        self.timestamps.extend(samples.iter().map(|(timestamp, _)| timestamp));
        self.values.extend(samples.iter().map(|(_, value)| value));
    }
}

/// Adds the starts of samples behind so many others, if there are any.
pub(crate) fn push_starts(starts: &mut Vec<i64>, sample_count: usize, more: &[i64]) {
    if !more.is_empty() {
        starts.resize(sample_count, 0);
        starts.extend_from_slice(more);
    }
}

impl HeadSeries {
    /// A series without samples.
    pub(crate) fn new(labels: Labels) -> HeadSeries {
        HeadSeries {
            labels,
            newest_ms: i64::MIN,
            newest_bits: 0,
            newest_plain_ms: i64::MIN,
            newest_histogram: None,
            log_epoch: NONE,
            log_ref: NONE,
            partition: i64::MIN,
            partition_id: NONE,
            is_active: false,
            recent: 0,
            windows: Vec::new(),
        }
    }

    /// Notes the time and the value of the newest sample.
    #[inline]
    pub(crate) fn note_newest(&mut self, timestamp_ms: i64, value: f64) {
        if timestamp_ms >= self.newest_ms {
            self.newest_ms = timestamp_ms;
            self.newest_bits = value.to_bits();
        }
    }

    /// Notes the newest histogram.
    pub(crate) fn note_newest_histogram(&mut self, sample: &HistogramSample) {
        if sample.timestamp_ms >= self.newest_ms {
            self.newest_ms = sample.timestamp_ms;
            self.newest_bits = sample.histogram.sum.to_bits();
            self.newest_histogram = Some(Box::new(sample.clone()));
        }
    }

    /// The newest sample, if it is a histogram.
    pub(crate) fn newest_if_histogram(&self) -> Option<&HistogramSample> {
        self.newest_histogram.as_deref().filter(|newest| newest.timestamp_ms == self.newest_ms)
    }

    /// Adds a float that is in the log of an epoch. Its counter counts since `start_ms`, 0
    /// where that is not known.
    #[inline]
    pub(crate) fn append(
        &mut self,
        epoch: u32,
        timestamp_ms: i64,
        value: f64,
        start_ms: i64,
        s: &mut Scratch,
    ) {
        self.note_newest(timestamp_ms, value);
        if start_ms == 0 && timestamp_ms == self.newest_ms {
            self.newest_plain_ms = timestamp_ms;
        }
        let open = self.open_window(epoch, timestamp_ms, &mut s.grown_bytes);
        open.append(timestamp_ms, value, start_ms, s);
    }

    /// Adds a histogram that is in the log of an epoch.
    pub(crate) fn append_histogram(&mut self, epoch: u32, decided: &Decided, s: &mut Scratch) {
        self.note_newest_histogram(&decided.sample);
        let grown_bytes = &mut s.grown_bytes;
        let open = self.open_window(epoch, decided.sample.timestamp_ms, grown_bytes);
        let before = open.bytes();
        open.append_histogram(decided);
        *grown_bytes += open.bytes().saturating_sub(before);
    }

    #[inline]
    fn open_window(
        &mut self,
        epoch: u32,
        timestamp_ms: i64,
        grown_bytes: &mut usize,
    ) -> &mut OpenWindow {
        let window = window_of(timestamp_ms);
        let recent = self.recent as usize;
        let at = match self.windows.get(recent) {
            Some(open) if open.window == window && open.epoch == epoch => recent,
            _ => self.window_at(window, epoch, grown_bytes),
        };
        &mut self.windows[at]
    }

    fn window_at(&mut self, window: i64, epoch: u32, grown_bytes: &mut usize) -> usize {
        let found = self.windows.binary_search_by_key(&(window, epoch), |w| (w.window, w.epoch));
        let at = found.unwrap_or_else(|at| {
            // A vector's first allocation has room for four: too much for a million of them.
            if self.windows.len() == self.windows.capacity() {
                self.windows.reserve_exact(1);
            }
            self.windows.insert(at, OpenWindow::new(window, epoch));
            *grown_bytes += size_of::<OpenWindow>();
            at
        });
        self.recent = at as u32;
        at
    }

    /// Whether a float of that time and value, to the bit, lies raw in the head, as
    /// `Some(true)`; `Some(false)` if another value does, `None` if that is not known.
    pub(crate) fn holds(&self, timestamp_ms: i64, bits: u64) -> Option<bool> {
        if timestamp_ms == self.newest_ms {
            return Some(bits == self.newest_bits && self.newest_if_histogram().is_none());
        }
        let window = window_of(timestamp_ms);
        self.windows.iter().rev().find(|w| w.window == window)?.holds(timestamp_ms, bits)
    }

    /// The same of a histogram, its hint and start aside: known of the newest sample alone.
    pub(crate) fn holds_histogram(
        &self,
        timestamp_ms: i64,
        histogram: &Arc<Histogram>,
    ) -> Option<bool> {
        if timestamp_ms != self.newest_ms {
            return None;
        }
        let newest = self.newest_if_histogram();
        Some(newest.is_some_and(|newest| has_same_value(&newest.histogram, histogram)))
    }

    /// Has brought nearer what lies behind the series itself: its labels and windows.
    pub(super) fn fetch_windows(&self) {
        prefetch(self.labels.as_bytes());
        prefetch(self.windows.as_slice());
    }

    /// Has brought nearer what lies behind the windows: the places of columns, and the tails.
    pub(super) fn fetch_tails(&self) {
        self.windows.iter().for_each(OpenWindow::fetch_tail);
    }

    /// Has brought nearer what lies behind the places: columns.
    pub(super) fn fetch_columns(&self) {
        self.windows.iter().for_each(OpenWindow::fetch_column);
    }

    /// Whether nothing is held.
    pub(crate) fn is_empty(&self) -> bool {
        self.windows.is_empty()
    }

    /// Whether there may be a sample in a range of time.
    pub(crate) fn overlaps(&self, start_ms: i64, end_ms: i64) -> bool {
        self.windows.iter().any(|w| w.min_ms <= end_ms && w.max_ms >= start_ms)
    }

    /// Whether there is something of a window up to an epoch.
    pub(crate) fn holds_window(&self, window: i64, epoch_max: u32) -> bool {
        self.windows.iter().any(|w| w.window == window && w.epoch <= epoch_max)
    }

    /// The newest float in a range of time, where it is at hand and nothing else can be newer.
    pub(crate) fn newest_raw(&self, start_ms: i64, end_ms: i64) -> Option<(i64, f64)> {
        let is_at_hand = self.newest_plain_ms == self.newest_ms && !self.is_empty();
        if is_at_hand && (start_ms..=end_ms).contains(&self.newest_ms) {
            return Some((self.newest_ms, f64::from_bits(self.newest_bits)));
        }
        let mut windows = self.windows.iter().rev().skip_while(|w| w.min_ms > end_ms);
        let last = windows.next()?;
        // The same window in an earlier epoch may hold later samples.
        if windows.next().is_some_and(|before| before.window == last.window) {
            return None;
        }
        last.newest_raw(end_ms).filter(|(timestamp_ms, _)| *timestamp_ms >= start_ms)
    }

    /// Copies of what may lie in a range of time, the earlier write first: as columns where
    /// these are kept. Tails are to be settled.
    pub(crate) fn parts(
        &self,
        start_ms: i64,
        end_ms: i64,
        are_columns_kept: bool,
        (parts, room): (&mut Parts, &mut TailRoom),
    ) {
        for open in &self.windows {
            if open.min_ms <= end_ms && open.max_ms >= start_ms {
                open.parts(start_ms, end_ms, are_columns_kept, (parts, room));
            }
        }
    }

    /// Copies of all of one window up to an epoch, the earlier write first.
    pub(crate) fn parts_of_window(&self, window: i64, epoch_max: u32) -> Parts {
        let (mut parts, mut room) = (Parts::new(), TailRoom::default());
        for open in &self.windows {
            if open.window == window && open.epoch <= epoch_max {
                open.parts(i64::MIN, i64::MAX, false, (&mut parts, &mut room));
            }
        }
        room.settle(parts.iter_mut());
        parts
    }

    /// Damages the frames of a window.
    #[cfg(test)]
    pub(crate) fn damage(&mut self, window: i64) {
        self.windows.iter_mut().filter(|w| w.window == window).for_each(OpenWindow::damage);
    }

    /// Lets no sample of epochs up to one stay raw, and condenses the windows that are due.
    /// Returns by how many bytes it has shrunk.
    ///
    /// A window of several epochs is left to the seal, which packs all of it together.
    pub(super) fn condense(
        &mut self,
        due: &BTreeSet<i64>,
        epoch_max: u32,
        s: &mut Scratch,
    ) -> usize {
        let mut shrunk = 0;
        for at in 0..self.windows.len() {
            let OpenWindow { window, epoch, .. } = self.windows[at];
            if epoch > epoch_max {
                continue;
            }
            let is_of_window = |w: &&OpenWindow| w.window == window && w.epoch <= epoch_max;
            let is_alone = self.windows.iter().filter(is_of_window).count() == 1;
            let open = &mut self.windows[at];
            let is_due = is_alone && due.contains(&window);
            shrunk += if is_due { open.condense(s) } else { open.end(s) };
        }
        shrunk
    }

    /// Appends the frames of one window up to an epoch to `out`, if it is condensed and there is
    /// nothing else of it; its earliest and latest time.
    pub(crate) fn copy_condensed(
        &self,
        window: i64,
        epoch_max: u32,
        out: &mut Vec<u8>,
    ) -> Option<(i64, i64)> {
        let mut all = self.windows.iter().filter(|w| w.window == window && w.epoch <= epoch_max);
        let open = all.next().filter(|open| all.next().is_none() && open.copy_condensed(out))?;
        Some((open.min_ms, open.max_ms))
    }

    /// Forgets one window up to an epoch: it has been sealed. Returns its bytes.
    pub(crate) fn drop_window(&mut self, window: i64, epoch_max: u32) -> usize {
        let before = self.bytes();
        self.windows.retain(|w| w.window != window || w.epoch > epoch_max);
        self.note_dropped();
        before.saturating_sub(self.bytes())
    }

    /// About how many bytes it takes in memory, its entries in tables and the index aside.
    pub(crate) fn bytes(&self) -> usize {
        let newest_histogram = self.newest_histogram.as_deref().map_or(0, histogram_bytes);
        let windows: usize = self.windows.iter().map(OpenWindow::bytes).sum();
        SERIES_BYTES + self.labels.as_bytes().len() + newest_histogram + windows
    }

    /// Forgets what is not open any more, by window and epoch. Returns its bytes.
    pub(crate) fn retain_open(&mut self, is_open: impl Fn(i64, u32) -> bool) -> usize {
        let before = self.bytes();
        self.windows.retain(|w| is_open(w.window, w.epoch));
        self.note_dropped();
        before.saturating_sub(self.bytes())
    }

    /// Forgets what lies before a window: its partition is deleted.
    pub(crate) fn drop_before(&mut self, window: i64) {
        self.windows.retain(|w| w.window >= window);
        self.note_dropped();
    }

    /// Notes that windows have gone, or samples of them.
    pub(super) fn note_dropped(&mut self) {
        self.windows.shrink_to_fit();
        self.recent = 0;
        if !self.windows.iter().any(|open| open.max_ms == self.newest_plain_ms) {
            self.newest_plain_ms = i64::MIN;
        }
    }
}

/// Whether two histograms differ in their hints at most.
///
/// Source: `Histogram.Equals` in `model/histogram/histogram.go` of Prometheus, by which its head
/// tells duplicates.
pub(crate) fn has_same_value(a: &Histogram, b: &Histogram) -> bool {
    if a.reset_hint == b.reset_hint {
        return a == b;
    }
    *a == Histogram { reset_hint: a.reset_hint, ..b.clone() }
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
