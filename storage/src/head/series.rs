//! One open series: what it holds of each window, until that is sealed.
//!
//! ```text
//! window W, log epoch E:   in order   [frame ≤120][frame ≤120]…[tail ≤32 samples, raw]
//!                          late       [frame][frame]…[≤64 samples, raw, as they came]
//! ```
//!
//! A full tail is merged into the frame before it while that is short, so that memory holds
//! few raw samples and frames are still long. Of two samples of one time the later write wins:
//! a late one over one in order, a later frame over an earlier one, a later epoch over an
//! earlier one.

use bytes::Bytes;
use model::{Labels, SampleBatch};

use crate::chunk::{self, ChunkError, Decoder, FrameHeader};
use crate::window::window_of;

/// Raw samples that an open window keeps at its end.
pub(crate) const TAIL_LEN: usize = 32;
/// Samples up to which a frame in the head grows.
const FRAME_LEN: usize = 120;
/// Raw late samples that an open window keeps.
const LATE_LEN: usize = 64;

/// Marks an id or a reference that has not been given.
pub(crate) const NONE: u32 = u32::MAX;

/// An open series.
#[derive(Debug)]
pub(crate) struct HeadSeries {
    /// Its labels.
    pub(crate) labels: Labels,
    /// Time of the newest sample; `i64::MIN` before the first.
    pub(crate) newest_ms: i64,
    /// Bits of its value.
    pub(crate) newest_bits: u64,
    /// The log epoch that has defined the series last.
    pub(crate) log_epoch: u32,
    /// Its reference in that epoch.
    pub(crate) log_ref: u32,
    /// The partition that `partition_id` belongs to.
    pub(crate) partition: i64,
    /// The id in the index of `partition`, or [`NONE`].
    pub(crate) partition_id: u32,
    /// Where the last append went.
    recent: u32,
    /// Sorted by window, then epoch.
    windows: Vec<OpenWindow>,
}

/// What a series holds of one window from one log epoch.
#[derive(Debug)]
pub(crate) struct OpenWindow {
    window: i64,
    epoch: u32,
    /// Samples in the last of `frames`.
    last_frame_len: u16,
    frames: Vec<Bytes>,
    tail: Vec<(i64, f64)>,
    late: Option<Box<Late>>,
    /// Earliest and latest time.
    min_ms: i64,
    max_ms: i64,
    /// Latest time in order.
    in_order_ms: i64,
}

#[derive(Debug, Default)]
struct Late {
    frames: Vec<Bytes>,
    raw: Vec<(i64, f64)>,
}

/// A run of samples that ascends: what a cursor reads.
#[derive(Debug, Clone)]
pub(crate) enum Part {
    /// One encoded frame, and where it comes from.
    Frame {
        /// The frame, and maybe more behind it.
        bytes: Bytes,
        /// The start of the block's key, or none for the head.
        key: Option<Bytes>,
    },
    /// Decoded samples.
    Raw(Vec<(i64, f64)>),
}

/// Room for decoding that is used again and again.
pub(crate) struct Scratch {
    batch: Box<SampleBatch>,
    /// Decoded times.
    pub(crate) timestamps: Vec<i64>,
    /// Decoded values.
    pub(crate) values: Vec<f64>,
    bytes: Vec<u8>,
}

impl Scratch {
    /// Empty room.
    pub(crate) fn new() -> Scratch {
        Scratch {
            batch: SampleBatch::new(),
            timestamps: Vec::new(),
            values: Vec::new(),
            bytes: Vec::new(),
        }
    }

    /// Forgets the samples.
    pub(crate) fn clear(&mut self) {
        self.timestamps.clear();
        self.values.clear();
    }

    /// Decodes one frame behind what is there already.
    pub(crate) fn decode(&mut self, bytes: &[u8]) -> Result<(), ChunkError> {
        let mut decoder = Decoder::open(bytes)?;
        loop {
            self.batch.clear();
            let advance = decoder.next_batch(i64::MAX, &mut self.batch)?;
            let (timestamps, values) = self.batch.samples();
            self.timestamps.extend_from_slice(timestamps);
            self.values.extend_from_slice(values);
            if advance != model::Advance::Full {
                return Ok(());
            }
        }
    }

    /// The samples as one frame: they lie in one window, so one frame holds them.
    fn encode(&mut self) -> Bytes {
        self.bytes.clear();
        chunk::encode(&self.timestamps, &self.values, &mut self.bytes);
        Bytes::copy_from_slice(&self.bytes)
    }

    fn push_all(&mut self, samples: &[(i64, f64)]) {
        self.timestamps.extend(samples.iter().map(|(timestamp, _)| timestamp));
        self.values.extend(samples.iter().map(|(_, value)| value));
    }
}

impl HeadSeries {
    /// A series without samples.
    pub(crate) fn new(labels: Labels) -> HeadSeries {
        HeadSeries {
            labels,
            newest_ms: i64::MIN,
            newest_bits: 0,
            log_epoch: NONE,
            log_ref: NONE,
            partition: i64::MIN,
            partition_id: NONE,
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

    /// Adds a sample that is in the log of an epoch.
    #[inline]
    pub(crate) fn append(&mut self, epoch: u32, timestamp_ms: i64, value: f64, s: &mut Scratch) {
        self.note_newest(timestamp_ms, value);
        let window = window_of(timestamp_ms);
        let recent = self.recent as usize;
        let at = match self.windows.get(recent) {
            Some(open) if open.window == window && open.epoch == epoch => recent,
            _ => self.window_at(window, epoch),
        };
        self.windows[at].append(timestamp_ms, value, s);
    }

    fn window_at(&mut self, window: i64, epoch: u32) -> usize {
        let found = self.windows.binary_search_by_key(&(window, epoch), |w| (w.window, w.epoch));
        let at = found.unwrap_or_else(|at| {
            // A vector's first allocation has room for four: too much for a million of them.
            if self.windows.len() == self.windows.capacity() {
                self.windows.reserve_exact(1);
            }
            self.windows.insert(at, OpenWindow::new(window, epoch));
            at
        });
        self.recent = at as u32;
        at
    }

    /// Whether a sample of that time and value, to the bit, lies raw in the head, as
    /// `Some(true)`; `Some(false)` if another value does, `None` if that is not known.
    pub(crate) fn holds(&self, timestamp_ms: i64, bits: u64) -> Option<bool> {
        if timestamp_ms == self.newest_ms {
            return Some(bits == self.newest_bits);
        }
        let window = window_of(timestamp_ms);
        // With late samples beside it, the tail does not tell which value is read.
        let open = self.windows.iter().rev().find(|w| w.window == window)?;
        if open.late.is_some() {
            return None;
        }
        let at = open.tail.binary_search_by_key(&timestamp_ms, |(t, _)| *t).ok()?;
        Some(open.tail[at].1.to_bits() == bits)
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

    /// Copies of what may lie in a range of time, the earlier write first.
    pub(crate) fn parts(&self, start_ms: i64, end_ms: i64, parts: &mut Vec<Part>) {
        for open in &self.windows {
            if open.min_ms <= end_ms && open.max_ms >= start_ms {
                open.parts(start_ms, end_ms, parts);
            }
        }
    }

    /// Copies of all of one window up to an epoch, the earlier write first.
    pub(crate) fn parts_of_window(&self, window: i64, epoch_max: u32) -> Vec<Part> {
        let mut parts = Vec::new();
        for open in &self.windows {
            if open.window == window && open.epoch <= epoch_max {
                open.parts(i64::MIN, i64::MAX, &mut parts);
            }
        }
        parts
    }

    /// Forgets one window up to an epoch: it has been sealed.
    pub(crate) fn drop_window(&mut self, window: i64, epoch_max: u32) {
        self.windows.retain(|w| w.window != window || w.epoch > epoch_max);
        self.windows.shrink_to_fit();
        self.recent = 0;
    }

    /// Forgets what lies before a window: its partition is deleted.
    pub(crate) fn drop_before(&mut self, window: i64) {
        self.windows.retain(|w| w.window >= window);
        self.recent = 0;
    }
}

impl OpenWindow {
    fn new(window: i64, epoch: u32) -> OpenWindow {
        OpenWindow {
            window,
            epoch,
            last_frame_len: 0,
            frames: Vec::new(),
            tail: Vec::new(),
            late: None,
            min_ms: i64::MAX,
            max_ms: i64::MIN,
            in_order_ms: i64::MIN,
        }
    }

    #[inline]
    fn append(&mut self, timestamp_ms: i64, value: f64, s: &mut Scratch) {
        self.min_ms = self.min_ms.min(timestamp_ms);
        self.max_ms = self.max_ms.max(timestamp_ms);
        if timestamp_ms > self.in_order_ms {
            if self.tail.len() == TAIL_LEN {
                self.encode_tail(s);
            }
            self.in_order_ms = timestamp_ms;
            self.tail.push((timestamp_ms, value));
        } else {
            self.append_late(timestamp_ms, value, s);
        }
    }

    #[cold]
    fn append_late(&mut self, timestamp_ms: i64, value: f64, s: &mut Scratch) {
        // A late frame that holds the time too would win over the tail: then it goes there.
        if self.late.is_none()
            && let Ok(at) = self.tail.binary_search_by_key(&timestamp_ms, |(t, _)| *t)
        {
            self.tail[at].1 = value;
            return;
        }
        let late = self.late.get_or_insert_default();
        if late.raw.len() == LATE_LEN {
            s.clear();
            let sorted = sorted_later_wins(&late.raw);
            s.push_all(&sorted);
            late.frames.push(s.encode());
            late.raw.clear();
        }
        late.raw.push((timestamp_ms, value));
    }

    #[cold]
    fn encode_tail(&mut self, s: &mut Scratch) {
        s.clear();
        let grows = usize::from(self.last_frame_len) + self.tail.len() <= FRAME_LEN;
        let last = self.frames.last().filter(|_| grows && self.last_frame_len > 0);
        // A frame that cannot be read is left as it is, for the reader to report.
        let is_merged = last.is_some_and(|frame| s.decode(frame).is_ok());
        if is_merged {
            self.frames.pop();
        } else {
            s.clear();
        }
        s.push_all(&self.tail);
        self.tail.clear();
        self.last_frame_len = s.timestamps.len() as u16;
        if self.frames.len() == self.frames.capacity() {
            self.frames.reserve_exact(1);
        }
        let frame = s.encode();
        self.frames.push(frame);
    }

    fn parts(&self, start_ms: i64, end_ms: i64, parts: &mut Vec<Part>) {
        push_frames(&self.frames, start_ms, end_ms, parts);
        push_raw(&self.tail, start_ms, end_ms, parts);
        if let Some(late) = self.late.as_deref() {
            push_frames(&late.frames, start_ms, end_ms, parts);
            push_raw(&sorted_later_wins(&late.raw), start_ms, end_ms, parts);
        }
    }
}

fn push_frames(frames: &[Bytes], start_ms: i64, end_ms: i64, parts: &mut Vec<Part>) {
    for bytes in frames {
        if frame_overlaps(bytes, start_ms, end_ms) {
            parts.push(Part::Frame { bytes: bytes.clone(), key: None });
        }
    }
}

fn push_raw(samples: &[(i64, f64)], start_ms: i64, end_ms: i64, parts: &mut Vec<Part>) {
    let start = samples.partition_point(|(t, _)| *t < start_ms);
    let end = samples.partition_point(|(t, _)| *t <= end_ms);
    if start < end {
        parts.push(Part::Raw(samples[start..end].to_vec()));
    }
}

/// Whether a frame may hold a sample in a range; one that cannot be read may.
pub(crate) fn frame_overlaps(bytes: &[u8], start_ms: i64, end_ms: i64) -> bool {
    FrameHeader::read(bytes).map_or(true, |h| h.min_ms <= end_ms && h.max_ms >= start_ms)
}

/// Sorts samples by time; of one time the last given stays.
pub(crate) fn sorted_later_wins(samples: &[(i64, f64)]) -> Vec<(i64, f64)> {
    let mut sorted = samples.to_vec();
    sorted.sort_by_key(|(timestamp, _)| *timestamp);
    let mut kept = 0;
    for at in 0..sorted.len() {
        if kept > 0 && sorted[kept - 1].0 == sorted[at].0 {
            kept -= 1;
        }
        sorted[kept] = sorted[at];
        kept += 1;
    }
    sorted.truncate(kept);
    sorted
}
