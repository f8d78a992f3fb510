//! Samples of an open series in one window: frames and a short raw tail.
//!
//! ```text
//! window W, log epoch E:   in order   [frame ≤256][frame ≤256]…[tail ≤8 samples, raw]
//!                                     [histograms ≤240]…[histograms, still encoding]
//!                          late       [frame][frame]…[≤64 samples, raw, in order of arrival]
//!                                                    [≤16 histograms, in order of arrival]
//! ```
//!
//! A full tail is appended to the previous frame while that is short, so that memory holds few raw
//! samples and frames are still long. Frames with start timestamps are shorter, and their tails
//! longer, because they are decoded for that. A tail is also encoded when the next window begins.
//! Once the log epoch has ended, the window is immutable: raw samples are encoded, and the frames of
//! windows to be sealed are packed. In-order histograms are large, so they are encoded at once, and a
//! reader copies the unfinished frame. Of two samples of one time, the later write wins: late over in
//! order, a later frame over an earlier one, a later epoch over an earlier one.

use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use model::{HistogramSample, ResetHint, TimeRange, prefetch};
use smallvec::SmallVec;

use super::late::Late;
use super::pack::{Packed, push_each_frame};
use crate::chunk::{FrameEnd, FrameHeader, HistogramEncoder, encode_histograms};
use crate::epoch::Epoch;
use crate::samples::columns::{ColumnSlot, Slot};
use crate::samples::decided::DecidedHistogram;
use crate::samples::part::{
    Floats, Frame, Part, Parts, Run, TailRoom, push_starts, sorted_later_wins,
};
use crate::samples::scratch::Scratch;
use crate::window::Window;

/// Maximum raw samples in the tail of an open window.
const TAIL_LEN: usize = 8;
/// Maximum raw samples in a tail with start timestamps, whose frames are decoded when they grow.
const STARTS_TAIL_LEN: usize = 32;
/// Maximum samples of a frame in the head, and of one with start timestamps.
const FRAME_LEN: usize = 256;
const STARTS_FRAME_LEN: usize = 120;
/// Maximum histograms of a frame in the head, and bytes from which it is closed.
const HISTOGRAM_FRAME_LEN: usize = 240;
const HISTOGRAM_FRAME_BYTES: usize = 32 << 10;
/// Overhead of a frame: its entry and the overhead of the allocator.
const FRAME_BYTES: usize = size_of::<Bytes>() + 16;
/// Maximum raw late samples of an open window.
const LATE_LEN: usize = 64;
/// Maximum raw late histograms of an open window.
const LATE_HISTOGRAMS: usize = 16;

/// Samples of a series in one window, from one log epoch.
#[derive(Debug)]
pub(crate) struct OpenWindow {
    pub(super) window: Window,
    pub(super) epoch: Epoch,
    /// Samples in the last of `frames`; 0 if no tail is to be merged into that frame.
    last_frame_len: u16,
    /// End of that frame; `None` if it is to be decoded.
    last_frame_end: Option<FrameEnd>,
    frames: Vec<Bytes>,
    /// Set if all frames are of floats.
    are_floats: bool,
    /// Set if no sample is raw and the frames are packed.
    is_condensed: bool,
    /// Time of the last sample in the frames, while they are floats.
    framed_ms: i64,
    /// Slot for the column of the frames, set by the first reader. Samples are only appended to
    /// frames, so a column that is too short is a prefix.
    slot: OnceLock<Arc<Slot>>,
    tail: Vec<(i64, f64)>,
    late: Option<Box<Late>>,
    extra: Option<Box<Extra>>,
    /// Earliest and latest time.
    pub(super) min_ms: i64,
    pub(super) max_ms: i64,
    /// Latest time in order.
    in_order_ms: i64,
}

/// Rarely used parts of a window.
#[derive(Debug, Default)]
struct Extra {
    /// Starts of the first samples of the tail; later samples have the start 0.
    starts: Vec<i64>,
    /// Unfinished frame of histograms.
    histograms: Option<HistogramEncoder>,
}

pub(super) fn frames_bytes(frames: &[Bytes]) -> usize {
    frames.iter().map(|frame| FRAME_BYTES + frame.len()).sum()
}

impl OpenWindow {
    /// Creates a window without samples.
    pub(super) fn new(window: Window, epoch: Epoch) -> OpenWindow {
        OpenWindow {
            window,
            epoch,
            last_frame_len: 0,
            last_frame_end: None,
            frames: Vec::new(),
            are_floats: true,
            is_condensed: false,
            framed_ms: i64::MIN,
            slot: OnceLock::new(),
            tail: Vec::new(),
            late: None,
            extra: None,
            min_ms: i64::MAX,
            max_ms: i64::MIN,
            in_order_ms: i64::MIN,
        }
    }

    /// Damages the frames.
    #[cfg(test)]
    pub(super) fn damage(&mut self) {
        self.frames.iter_mut().for_each(|frame| *frame = Bytes::from_static(&[0]));
    }

    /// Adds a float.
    #[inline]
    pub(super) fn append(&mut self, timestamp_ms: i64, value: f64, start_ms: i64, s: &mut Scratch) {
        self.min_ms = self.min_ms.min(timestamp_ms);
        self.max_ms = self.max_ms.max(timestamp_ms);
        if timestamp_ms > self.in_order_ms {
            if self.tail.len() >= self.tail_len_max() {
                self.encode_tail(s);
            }
            if self.tail.len() == self.tail.capacity() {
                self.grow_tail(s);
            }
            self.in_order_ms = timestamp_ms;
            if start_ms != 0 {
                let starts = &mut self.extra.get_or_insert_default().starts;
                push_starts(starts, self.tail.len(), &[start_ms]);
            }
            self.tail.push((timestamp_ms, value));
        } else {
            self.append_late(timestamp_ms, value, start_ms, s);
        }
    }

    #[inline]
    fn tail_len_max(&self) -> usize {
        if self.extra.is_some() { STARTS_TAIL_LEN } else { TAIL_LEN }
    }

    #[cold]
    fn grow_tail(&mut self, s: &mut Scratch) {
        self.is_condensed = false;
        let before = self.tail.capacity();
        self.tail.reserve(1);
        s.grown_bytes += (self.tail.capacity() - before) * size_of::<(i64, f64)>();
    }

    #[cold]
    fn append_late(&mut self, timestamp_ms: i64, value: f64, start_ms: i64, s: &mut Scratch) {
        if self.is_late_before_tail() {
            match self.tail.binary_search_by_key(&timestamp_ms, |(t, _)| *t) {
                Ok(at) => {
                    self.tail[at].1 = value;
                    self.set_tail_start(at, start_ms);
                    return;
                }
                Err(at)
                    if timestamp_ms > self.framed_ms && start_ms == 0 && self.extra.is_none() =>
                {
                    if self.tail.len() < self.tail_len_max() {
                        if self.tail.len() == self.tail.capacity() {
                            self.grow_tail(s);
                        }
                        self.tail.insert(at, (timestamp_ms, value));
                        return;
                    }
                    self.encode_tail(s);
                }
                Err(_) => {}
            }
        }
        self.is_condensed = false;
        // The column has the late samples of its time.
        self.slot = OnceLock::new();
        let late = self.late.get_or_insert_with(|| Box::new(Late::new()));
        late.max_ms = late.max_ms.max(timestamp_ms);
        let before = late.bytes();
        late.histograms.retain(|sample| sample.timestamp_ms != timestamp_ms);
        let floats = &mut late.floats;
        if floats.samples.len() == LATE_LEN {
            s.clear();
            let sorted = sorted_later_wins(floats);
            s.push_all(&sorted.samples, &sorted.starts);
            late.frames.push(s.encode());
            floats.samples.clear();
            floats.starts.clear();
        }
        if start_ms != 0 {
            push_starts(&mut floats.starts, floats.samples.len(), &[start_ms]);
        }
        floats.samples.push((timestamp_ms, value));
        s.grown_bytes += late.bytes().saturating_sub(before);
    }

    /// Returns whether there is an unfinished frame of histograms.
    fn has_open_histograms(&self) -> bool {
        self.extra.as_deref().is_some_and(|extra| extra.histograms.is_some())
    }

    /// Returns whether all late samples are earlier than the tail. Otherwise one with the time of a
    /// sample in the tail would win over a later write to the tail.
    fn is_late_before_tail(&self) -> bool {
        self.late.as_deref().is_none_or(|late| late.max_ms <= self.framed_ms)
    }

    fn set_tail_start(&mut self, at: usize, start_ms: i64) {
        if start_ms == 0 && self.extra.is_none() {
            return;
        }
        let starts = &mut self.extra.get_or_insert_default().starts;
        if starts.len() <= at {
            starts.resize(at + 1, 0);
        }
        starts[at] = start_ms;
    }

    #[cold]
    fn encode_tail(&mut self, s: &mut Scratch) {
        let len = usize::from(self.last_frame_len);
        let starts = self.extra.as_deref().map_or(&[][..], |extra| &extra.starts);
        let len_max = if starts.is_empty() { FRAME_LEN } else { STARTS_FRAME_LEN };
        let is_short = len > 0 && len + self.tail.len() <= len_max;
        let last = self.frames.last().filter(|_| is_short);
        let before = last.map_or(0, Bytes::len);
        let grown = match (last, self.last_frame_end) {
            _ if !starts.is_empty() => None,
            (Some(frame), end) => end.and_then(|end| s.grow(Some((frame, end)), &self.tail)),
            (None, _) => s.grow(None, &self.tail),
        };
        let (frame, is_merged) = if let Some((frame, end)) = grown {
            self.last_frame_end = Some(end);
            (frame, last.is_some())
        } else {
            s.clear();
            // A damaged frame is not changed; its reader reports it.
            let is_merged = last.is_some_and(|frame| s.decode(frame).is_ok());
            if !is_merged {
                s.clear();
            }
            s.push_all(&self.tail, starts);
            self.last_frame_end = None;
            (s.encode(), is_merged)
        };
        self.framed_ms = self.tail.last().map_or(self.framed_ms, |(timestamp_ms, _)| *timestamp_ms);
        self.last_frame_len = (if is_merged { len } else { 0 } + self.tail.len()) as u16;
        self.tail.clear();
        if let Some(extra) = &mut self.extra {
            extra.starts.clear();
        }
        s.grown_bytes += frame.len();
        if is_merged {
            s.grown_bytes = s.grown_bytes.saturating_sub(before);
            self.frames.pop();
        } else {
            s.grown_bytes += FRAME_BYTES;
        }
        if self.frames.len() == self.frames.capacity() {
            self.frames.reserve_exact(1);
        }
        self.frames.push(frame);
    }

    /// Encodes the raw samples, as no more are expected. Returns the number of freed bytes.
    ///
    /// Windows with late samples or histograms are not changed.
    pub(super) fn end(&mut self, s: &mut Scratch) -> usize {
        if self.tail.is_empty() || self.late.is_some() || self.has_open_histograms() {
            return 0;
        }
        let before = self.bytes();
        self.encode_tail(s);
        self.last_frame_len = 0;
        (self.tail, self.extra) = (Vec::new(), None);
        before.saturating_sub(self.bytes())
    }

    /// Returns the frames, if they may be packed.
    pub(super) fn loose_frames(&self) -> Option<&[Bytes]> {
        let is_ended = self.tail.is_empty() && self.late.is_none() && !self.has_open_histograms();
        let is_loose = is_ended && self.are_floats && !self.is_condensed;
        is_loose.then_some(&self.frames)
    }

    /// Replaces `loose` frames, unless they have changed. Returns the number of freed bytes.
    pub(super) fn condense(&mut self, loose: &[Bytes], packed: Packed) -> usize {
        let is_same = |frames: &[Bytes]| {
            frames.iter().map(|f| f.as_ptr()).eq(loose.iter().map(|f| f.as_ptr()))
        };
        if !self.loose_frames().is_some_and(is_same) {
            return 0;
        }
        let before = self.bytes();
        if let Packed::Shorter(frames) = packed {
            self.frames = frames;
        }
        self.is_condensed = true;
        before.saturating_sub(self.bytes())
    }

    /// Appends the frames to `out` if they are condensed. Returns whether they are.
    pub(super) fn copy_condensed(&self, out: &mut Vec<u8>) -> bool {
        if self.is_condensed {
            self.frames.iter().for_each(|frame| out.extend_from_slice(frame));
        }
        self.is_condensed
    }

    /// Returns the approximate bytes in memory.
    pub(super) fn bytes(&self) -> usize {
        let extra = self.extra.as_deref().map_or(0, |extra| {
            let histograms = extra.histograms.as_ref().map_or(0, HistogramEncoder::payload_bytes);
            size_of::<Extra>() + extra.starts.capacity() * size_of::<i64>() + histograms
        });
        size_of::<OpenWindow>()
            + frames_bytes(&self.frames)
            + self.tail.capacity() * size_of::<(i64, f64)>()
            + self.late.as_deref().map_or(0, Late::bytes)
            + extra
    }

    /// Adds a histogram.
    pub(super) fn append_histogram(&mut self, decided: &DecidedHistogram) {
        let DecidedHistogram { sample, before } = decided;
        self.is_condensed = false;
        self.min_ms = self.min_ms.min(sample.timestamp_ms);
        self.max_ms = self.max_ms.max(sample.timestamp_ms);
        if sample.timestamp_ms <= self.in_order_ms {
            self.append_late_histogram(sample);
            return;
        }
        self.in_order_ms = sample.timestamp_ms;
        let growing = &mut self.extra.get_or_insert_default().histograms;
        if let Some(encoder) = growing {
            // Inside a frame, a hint is relative to the previous sample.
            let goes_on = has_no_claim(sample)
                || before.is_some_and(|before| before.timestamp_ms == encoder.max_ms());
            if goes_on
                && encoder.len() < HISTOGRAM_FRAME_LEN
                && encoder.payload_bytes() < HISTOGRAM_FRAME_BYTES
                && encoder.push(sample)
            {
                return;
            }
            self.frames.push(frame_of(encoder));
            self.are_floats = false;
            // Floats are not merged into a frame of histograms.
            self.last_frame_len = 0;
        }
        *growing = Some(HistogramEncoder::new(sample, *before));
    }

    #[cold]
    fn append_late_histogram(&mut self, sample: &HistogramSample) {
        self.slot = OnceLock::new();
        let late = self.late.get_or_insert_with(|| Box::new(Late::new()));
        late.max_ms = late.max_ms.max(sample.timestamp_ms);
        let floats = &mut late.floats;
        while let Some(at) = floats.samples.iter().position(|(t, _)| *t == sample.timestamp_ms) {
            floats.samples.remove(at);
            if at < floats.starts.len() {
                floats.starts.remove(at);
            }
        }
        late.histograms.retain(|other| other.timestamp_ms != sample.timestamp_ms);
        if late.histograms.len() == LATE_HISTOGRAMS {
            let mut bytes = Vec::new();
            encode_histograms(&sorted(&late.histograms), None, &mut bytes);
            push_each_frame(&bytes, &mut late.frames);
            late.histograms.clear();
        }
        late.histograms.push(sample.clone());
    }

    /// See [`super::series::HeadSeries::holds`].
    pub(super) fn holds(&self, timestamp_ms: i64, bits: u64) -> Option<bool> {
        if !self.is_late_before_tail() {
            return None;
        }
        let at = self.tail.binary_search_by_key(&timestamp_ms, |(t, _)| *t).ok()?;
        Some(self.tail[at].1.to_bits() == bits)
    }

    /// Returns the newest float up to a time, if it is in the tail and no other can be newer.
    pub(super) fn newest_raw(&self, end_ms: i64) -> Option<(i64, f64)> {
        if !self.is_late_before_tail() || self.has_open_histograms() {
            return None;
        }
        let count = self.tail.partition_point(|(t, _)| *t <= end_ms);
        self.tail[..count].last().copied()
    }

    /// See [`super::series::HeadSeries::fetch_tails`].
    pub(super) fn fetch_tail(&self) {
        if let Some(slot) = self.slot.get() {
            prefetch(&**slot);
        }
        prefetch(self.tail.as_slice());
    }

    /// See [`super::series::HeadSeries::fetch_end`].
    #[inline]
    pub(super) fn fetch_end(&self) {
        if let Some(last) = self.tail.last() {
            prefetch(last);
        }
    }

    /// See [`super::series::HeadSeries::fetch_columns`].
    pub(super) fn fetch_column(&self) {
        if let Some(slot) = self.slot.get() {
            slot.fetch();
        }
    }

    /// Copies the parts that may overlap a time range, earlier writes first.
    pub(super) fn parts(
        &self,
        start_ms: i64,
        end_ms: i64,
        are_columns_kept: bool,
        parts: &mut Parts,
        room: &mut TailRoom,
    ) {
        let has_column = are_columns_kept && self.push_column(start_ms, end_ms, parts);
        if !has_column {
            push_frames(&self.frames, start_ms, end_ms, parts);
        }
        let extra = self.extra.as_deref();
        let starts = extra.map_or(&[][..], |extra| &extra.starts);
        push_floats(&self.tail, starts, TimeRange { start_ms, end_ms }, parts, room);
        if let Some(encoder) = extra.and_then(|extra| extra.histograms.as_ref())
            && encoder.min_ms() <= end_ms
            && encoder.max_ms() >= start_ms
        {
            parts.push(Part::Frame(Box::new(Frame::new(frame_of(encoder), None))));
        }
        if let Some(late) = self.late.as_deref().filter(|_| !has_column) {
            push_frames(&late.frames, start_ms, end_ms, parts);
            let Floats { samples, starts } = sorted_later_wins(&late.floats);
            push_floats(&samples, &starts, TimeRange { start_ms, end_ms }, parts, room);
            let mut histograms = sorted(&late.histograms);
            histograms.retain(|s| (start_ms..=end_ms).contains(&s.timestamp_ms));
            if !histograms.is_empty() {
                parts.push(Part::Histograms(histograms));
            }
        }
    }
}

impl OpenWindow {
    /// Adds the frames and late samples as a column, or as a run to be decoded into one. Returns
    /// whether a column can have them.
    fn push_column(&self, start_ms: i64, end_ms: i64, parts: &mut Parts) -> bool {
        if !self.are_floats
            || self.frames.is_empty()
            || self.late.is_some() && (!self.is_late_before_tail() || self.has_open_histograms())
        {
            return false;
        }
        if self.framed_ms < start_ms || self.min_ms > end_ms {
            return true;
        }
        let slot = self.slot.get_or_init(Arc::default);
        let before = slot.column();
        if let Some(column) = &before
            && column.max_ms() == self.framed_ms
        {
            parts.push(Part::Column(Arc::clone(column)));
            return true;
        }
        let headers = self.frames.iter().map(|frame| FrameHeader::read(frame));
        let headers: Result<SmallVec<[_; 4]>, _> = headers.collect();
        let Ok(headers) = headers else { return false };
        // A column that was decoded earlier has the late samples.
        let late = match self.late.as_deref().filter(|_| before.is_none()) {
            Some(late) => match late.floats() {
                Some(late) => Some(Box::new(late)),
                None => return false,
            },
            None => None,
        };
        let decoded_ms = before.as_ref().map_or(i64::MIN, |column| column.max_ms());
        let is_new = |header: &FrameHeader| header.max_ms > decoded_ms;
        let new_frames = self.frames.iter().zip(&headers).filter(|(_, header)| is_new(header));
        let sample_count = headers.iter().filter(|header| is_new(header)).map(|h| h.count as usize);
        let run = Run {
            sample_count: late.as_ref().map_or(0, |late| late.sample_count())
                + sample_count.sum::<usize>()
                + before.as_ref().map_or(0, |column| column.len()),
            min_ms: self.min_ms,
            max_ms: self.framed_ms,
            frames: new_frames.map(|(frame, _)| frame.clone()).collect(),
            before,
            late,
            key: None,
            column_slot: ColumnSlot::Frames(Arc::clone(slot)),
        };
        parts.push(Part::Run(Box::new(run)));
        true
    }
}

/// Returns whether the reset hint claims nothing about the previous histogram.
fn has_no_claim(sample: &HistogramSample) -> bool {
    matches!(sample.histogram.reset_hint, ResetHint::Unknown | ResetHint::Gauge)
}

fn frame_of(encoder: &HistogramEncoder) -> Bytes {
    let mut bytes = Vec::with_capacity(encoder.payload_bytes() + 32);
    encoder.finish(&mut bytes);
    Bytes::from(bytes)
}

fn sorted(histograms: &[HistogramSample]) -> Vec<HistogramSample> {
    let mut sorted = histograms.to_vec();
    sorted.sort_by_key(|sample| sample.timestamp_ms);
    sorted
}

fn push_frames(frames: &[Bytes], start_ms: i64, end_ms: i64, parts: &mut Parts) {
    for bytes in frames {
        let frame = Frame::new(bytes.clone(), None);
        // The reader of a damaged frame reports it.
        if frame.header.is_ok_and(|h| h.min_ms > end_ms || h.max_ms < start_ms) {
            continue;
        }
        parts.push(Part::Frame(Box::new(frame)));
    }
}

fn push_floats(
    samples: &[(i64, f64)],
    starts: &[i64],
    TimeRange { start_ms, end_ms }: TimeRange,
    parts: &mut Parts,
    room: &mut TailRoom,
) {
    let start = samples.partition_point(|(t, _)| *t < start_ms);
    let end = samples.partition_point(|(t, _)| *t <= end_ms);
    if start < end {
        let starts = starts.get(start..end.min(starts.len())).unwrap_or_default();
        let samples = &samples[start..end];
        parts.push(if starts.is_empty() {
            Part::Tail(room.copy(samples))
        } else {
            Part::Floats(Box::new(Floats { samples: samples.to_vec(), starts: starts.to_vec() }))
        });
    }
}
