//! One open series: its windows and its newest sample.

use std::collections::BTreeSet;
use std::sync::Arc;

use model::{Histogram, HistogramSample, Labels, TimeRange, prefetch};

use super::pack::{LooseFrames, Packed};
use super::window::OpenWindow;
use crate::epoch::Epoch;
use crate::samples::decided::{DecidedHistogram, has_same_value};
use crate::samples::part::{Part, Parts, TailRoom};
use crate::samples::scratch::Scratch;
use crate::window::{PartitionId, Window};

/// Marks an id or a reference that is not assigned.
pub(crate) const NONE: u32 = u32::MAX;
/// Number of windows up to which the memory of removed ones is freed at once.
const SHRUNK_LEN_MAX: usize = 8;

/// Bytes of a series in addition to its label set and its windows: itself, its entries in the
/// table of slots, in the order and among the slots, and the overhead of the allocator for each.
pub(crate) const SERIES_BYTES: usize = size_of::<HeadSeries>() + 152;

/// An open series.
#[derive(Debug)]
pub(crate) struct HeadSeries {
    /// Labels of the series.
    pub(crate) labels: Labels,
    /// Time of the newest sample; `i64::MIN` before the first.
    pub(crate) newest_ms: i64,
    /// Bits of the newest sample's value, or of its sum if it is a histogram.
    pub(crate) newest_bits: u64,
    /// Equal to `newest_ms` if that sample is an applied float without a start in an open window;
    /// else earlier, or `i64::MIN`. A decision changes `newest_ms` and `newest_bits` before the
    /// record is durable: this field keeps values that are not durable from being read.
    newest_plain_ms: i64,
    /// The newest histogram, if any; newer floats may exist.
    pub(crate) newest_histogram: Option<Box<HistogramSample>>,
    /// The last log epoch that defines the series.
    pub(crate) log_epoch: Epoch,
    /// Reference of the series in `log_epoch`.
    pub(crate) log_ref: u32,
    /// Bits of the last float in the log of `log_epoch`, 0 before the first.
    pub(crate) log_bits: u64,
    /// The partition that `id_in_partition` belongs to.
    pub(crate) partition: PartitionId,
    /// The id in the index of `partition`, or [`NONE`].
    pub(crate) id_in_partition: u32,
    /// Set while the series counts as active.
    pub(crate) is_active: bool,
    /// Index of the window of the last append.
    pub(super) recent: u32,
    /// Sorted by window, then epoch.
    pub(super) windows: Vec<OpenWindow>,
}

impl HeadSeries {
    /// Creates a series without samples.
    pub(crate) fn new(labels: Labels) -> HeadSeries {
        HeadSeries {
            labels,
            newest_ms: i64::MIN,
            newest_bits: 0,
            newest_plain_ms: i64::MIN,
            newest_histogram: None,
            log_epoch: Epoch::NEVER,
            log_ref: NONE,
            log_bits: 0,
            partition: PartitionId::MIN,
            id_in_partition: NONE,
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

    /// Returns the newest sample, if it is a histogram.
    pub(crate) fn newest_if_histogram(&self) -> Option<&HistogramSample> {
        self.newest_histogram.as_deref().filter(|newest| newest.timestamp_ms == self.newest_ms)
    }

    /// Adds a float from the log of an epoch. Its start timestamp is `start_ms`, 0 if unknown.
    #[inline]
    pub(crate) fn append(
        &mut self,
        epoch: Epoch,
        timestamp_ms: i64,
        value: f64,
        start_ms: i64,
        s: &mut Scratch,
    ) {
        self.note_newest(timestamp_ms, value);
        if start_ms == 0 && timestamp_ms == self.newest_ms {
            self.newest_plain_ms = timestamp_ms;
        }
        let open = self.open_window(epoch, timestamp_ms, s);
        open.append(timestamp_ms, value, start_ms, s);
    }

    /// Adds a histogram from the log of an epoch.
    pub(crate) fn append_histogram(
        &mut self,
        epoch: Epoch,
        decided: &DecidedHistogram,
        s: &mut Scratch,
    ) {
        self.note_newest_histogram(&decided.sample);
        let open = self.open_window(epoch, decided.sample.timestamp_ms, s);
        let before = open.bytes();
        open.append_histogram(decided);
        s.grown_bytes += open.bytes().saturating_sub(before);
    }

    #[inline]
    fn open_window(&mut self, epoch: Epoch, timestamp_ms: i64, s: &mut Scratch) -> &mut OpenWindow {
        let window = Window::of(timestamp_ms);
        let recent = self.recent as usize;
        let at = match self.windows.get(recent) {
            Some(open) if open.window == window && open.epoch == epoch => recent,
            _ => self.window_at(window, epoch, s),
        };
        &mut self.windows[at]
    }

    fn window_at(&mut self, window: Window, epoch: Epoch, s: &mut Scratch) -> usize {
        let found = self.windows.binary_search_by_key(&(window, epoch), |w| (w.window, w.epoch));
        let at = found.unwrap_or_else(|at| {
            // A vector's first allocation has room for four: too much for a million vectors.
            if self.windows.len() == self.windows.capacity() {
                self.windows.reserve_exact(1);
            }
            if at == self.windows.len()
                && let Some(before) = self.windows.last_mut()
            {
                // Hours pass until it is sealed. Few samples are late, so it needs no room for more.
                end_early(before, s);
            }
            self.windows.insert(at, OpenWindow::new(window, epoch));
            s.grown_bytes += size_of::<OpenWindow>();
            at
        });
        self.recent = at as u32;
        at
    }

    /// Returns `Some(true)` if the head has a raw float with this time and these bits,
    /// `Some(false)` if it has another value for the time, and `None` if that is not known.
    pub(crate) fn holds(&self, timestamp_ms: i64, bits: u64) -> Option<bool> {
        if timestamp_ms == self.newest_ms {
            return Some(bits == self.newest_bits && self.newest_if_histogram().is_none());
        }
        let window = Window::of(timestamp_ms);
        self.windows.iter().rev().find(|w| w.window == window)?.holds(timestamp_ms, bits)
    }

    /// Compares a histogram, except for its hint and start, with the newest sample. Returns as
    /// [`HeadSeries::holds`]; `None` for any other time.
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

    /// Prefetches the labels and windows of the series.
    pub(super) fn fetch_windows(&self) {
        prefetch(self.labels.as_bytes());
        prefetch(self.windows.as_slice());
    }

    /// Prefetches the window of the last append.
    #[inline]
    pub(super) fn fetch_recent(&self) {
        if let Some(open) = self.windows.get(self.recent as usize) {
            prefetch(open);
        }
    }

    /// Prefetches the end of the tail of that window.
    #[inline]
    pub(super) fn fetch_end(&self) {
        if let Some(open) = self.windows.get(self.recent as usize) {
            open.fetch_end();
        }
    }

    /// Prefetches the column slots and tails of the windows.
    pub(super) fn fetch_tails(&self) {
        self.windows.iter().for_each(OpenWindow::fetch_tail);
    }

    /// Prefetches the columns.
    pub(super) fn fetch_columns(&self) {
        self.windows.iter().for_each(OpenWindow::fetch_column);
    }

    /// Returns whether the series holds no samples.
    pub(crate) fn is_empty(&self) -> bool {
        self.windows.is_empty()
    }

    /// Returns whether a time range may have samples.
    pub(crate) fn overlaps(&self, start_ms: i64, end_ms: i64) -> bool {
        self.windows.iter().any(|w| w.min_ms <= end_ms && w.max_ms >= start_ms)
    }

    /// Returns whether a window has samples of epochs up to `epoch_max`.
    pub(crate) fn holds_window(&self, window: Window, epoch_max: Epoch) -> bool {
        let at = self.windows.partition_point(|w| w.window < window);
        self.windows.get(at).is_some_and(|w| w.window == window && w.epoch <= epoch_max)
    }

    /// Returns the windows with samples of epochs up to `epoch_max`. A window of several epochs is
    /// returned once for each.
    pub(crate) fn windows_until(&self, epoch_max: Epoch) -> impl Iterator<Item = Window> {
        self.windows.iter().filter(move |w| w.epoch <= epoch_max).map(|w| w.window)
    }

    /// Returns the newest float of a time range, if it is raw and no other sample can be newer.
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

    /// Copies the parts that may overlap a time range, earlier writes first, as columns if
    /// `are_columns_kept`. The caller settles the tails.
    pub(crate) fn parts(
        &self,
        start_ms: i64,
        end_ms: i64,
        are_columns_kept: bool,
        parts: &mut Parts,
        room: &mut TailRoom,
    ) {
        for open in &self.windows {
            if open.min_ms <= end_ms && open.max_ms >= start_ms {
                open.parts(start_ms, end_ms, are_columns_kept, parts, room);
            }
        }
    }

    /// Copies all parts of one window of epochs up to `epoch_max`, earlier writes first.
    pub(crate) fn parts_of_window(&self, window: Window, epoch_max: Epoch) -> Parts {
        let (mut parts, mut room) = (Parts::new(), TailRoom::default());
        for open in &self.windows {
            if open.window == window && open.epoch <= epoch_max {
                open.parts(i64::MIN, i64::MAX, false, &mut parts, &mut room);
            }
        }
        room.settle(parts.iter_mut().filter_map(Part::tail_mut));
        parts
    }

    /// Damages the frames of a window.
    #[cfg(test)]
    pub(crate) fn damage(&mut self, window: Window) {
        self.windows.iter_mut().filter(|w| w.window == window).for_each(OpenWindow::damage);
    }

    /// Encodes the raw samples of epochs up to `epoch_max`, and adds the frames of windows that are due
    /// to `loose`. Returns the number of freed bytes.
    ///
    /// A window of several epochs is not added: the seal packs its epochs together.
    pub(super) fn end(
        &mut self,
        due: &BTreeSet<Window>,
        epoch_max: Epoch,
        loose: &mut Vec<LooseFrames>,
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
            shrunk += open.end(s);
            if is_alone
                && due.contains(&window)
                && let Some(frames) = open.loose_frames()
            {
                loose.push(LooseFrames { window, epoch, frames: frames.to_vec() });
            }
        }
        shrunk
    }

    /// Replaces frames that [`HeadSeries::end`] added. Returns the number of freed bytes.
    pub(super) fn condense(&mut self, loose: &LooseFrames, packed: Packed) -> usize {
        let is_of_frames = |w: &OpenWindow| (w.window, w.epoch) == (loose.window, loose.epoch);
        let open = self.windows.iter_mut().find(|w| is_of_frames(w));
        open.map_or(0, |open| open.condense(&loose.frames, packed))
    }

    /// Appends the frames of one window of epochs up to `epoch_max` to `out`, if these epochs have
    /// one condensed part. Returns its earliest and latest time.
    pub(crate) fn copy_condensed(
        &self,
        window: Window,
        epoch_max: Epoch,
        out: &mut Vec<u8>,
    ) -> Option<TimeRange> {
        let mut all = self.windows.iter().filter(|w| w.window == window && w.epoch <= epoch_max);
        let open = all.next().filter(|open| all.next().is_none() && open.copy_condensed(out))?;
        Some(TimeRange::new(open.min_ms, open.max_ms))
    }

    /// Removes the sealed samples of one window, of epochs up to `epoch_max`. Returns their bytes.
    pub(crate) fn drop_window(&mut self, window: Window, epoch_max: Epoch) -> usize {
        self.retain_windows(|w| w.window != window || w.epoch > epoch_max)
    }

    /// Removes windows. Returns their bytes.
    fn retain_windows(&mut self, is_kept: impl Fn(&OpenWindow) -> bool) -> usize {
        let mut bytes = 0;
        self.windows.retain(|open| {
            let is_kept = is_kept(open);
            if !is_kept {
                bytes += open.bytes();
            }
            is_kept
        });
        self.note_dropped();
        bytes
    }

    /// Returns the approximate bytes in memory, without the index.
    pub(crate) fn bytes(&self) -> usize {
        let newest_histogram =
            self.newest_histogram.as_deref().map_or(0, HistogramSample::memory_bytes);
        let windows: usize = self.windows.iter().map(OpenWindow::bytes).sum();
        SERIES_BYTES + self.labels.as_bytes().len() + newest_histogram + windows
    }

    /// Removes windows that are no longer open, by window and epoch. Returns their bytes.
    pub(crate) fn retain_open(&mut self, is_open: impl Fn(Window, Epoch) -> bool) -> usize {
        self.retain_windows(|w| is_open(w.window, w.epoch))
    }

    /// Removes the windows before a window, since their partition is deleted.
    pub(crate) fn drop_before(&mut self, window: Window) {
        self.windows.retain(|w| w.window >= window);
        self.note_dropped();
    }

    /// Updates the series after windows or samples were removed.
    pub(super) fn note_dropped(&mut self) {
        // Of many windows, not after each one: a seal removes them one by one.
        if self.windows.len() <= SHRUNK_LEN_MAX || self.windows.capacity() > 2 * self.windows.len()
        {
            self.windows.shrink_to_fit();
        }
        self.recent = 0;
        if !self.windows.iter().any(|open| open.max_ms == self.newest_plain_ms) {
            self.newest_plain_ms = i64::MIN;
        }
    }
}

/// Encodes the raw samples of a window whose log epoch may go on.
fn end_early(open: &mut OpenWindow, s: &mut Scratch) {
    let (before, grown_bytes) = (open.bytes(), s.grown_bytes);
    open.end(s);
    s.grown_bytes = grown_bytes + open.bytes().saturating_sub(before);
    s.shrunk_bytes += before.saturating_sub(open.bytes());
}
