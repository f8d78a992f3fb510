//! Ranges over series with native histograms, or with start timestamps.
//!
//! Floats of such a series are in the usual buffer, its histograms in a separate buffer. If
//! histograms do not affect the results of floats, the float kernel runs first, and this module
//! processes only ranges with histograms. When a histogram enters, it is compared once with the
//! previous one (reset, other schema), so that most ranges need only their first and last
//! histogram.

pub(super) mod counter;
pub(super) mod extended;
pub(super) mod fold;
mod history;
pub(super) mod neighbours;
mod range_annotation;
mod starts;

use std::ops::Range;
use std::sync::Arc;

use model::{Checkpoint, Histogram, HistogramSample, ResetHint, SampleBatch, is_stale};

use crate::annotations::Cause;
use crate::catalog::Histograms;
use crate::error::QueryError;
use crate::exec::operator::Context;
use crate::exec::rollup::buffer::{Buffer, Kernel, Ranges, RowSteps, Samples};
use crate::exec::rollup::kernels::RollupKernel;
use crate::tile::{Tile, set_absent, set_present};

use history::{History, HistoryEntry};
use range_annotation::{RangeAnnotation, RangeAnnotations};
use starts::Started;

/// Work of a histogram, in units of a float.
const HISTOGRAM_WORK: usize = 16;

/// Data of mixed series that a function needs.
#[derive(Debug, Clone)]
pub(super) struct Mixing {
    /// Whether the function reads histograms and not only their timestamps.
    needs_histograms: bool,
    /// True if resets matter.
    needs_resets: bool,
    /// Whether start timestamps matter.
    needs_starts: bool,
    /// Whether samples come from a subquery, which has no reset hints.
    is_subquery: bool,
    /// Placeholder for histograms that are not read.
    blank: Arc<Histogram>,
    /// Position for annotations.
    cause: Cause,
}

impl Mixing {
    pub(super) fn new(
        kernel: &RollupKernel,
        histograms: Histograms,
        uses_starts: bool,
        is_subquery: bool,
        cause: Cause,
    ) -> Mixing {
        let needs_resets = kernel.is_of_counters();
        let is_plain = !matches!(kernel, RollupKernel::ExtendedRate { .. });
        Mixing {
            needs_histograms: matches!(histograms, Histograms::Kept | Histograms::Compared),
            needs_resets,
            needs_starts: uses_starts && needs_resets && is_plain,
            is_subquery,
            blank: Arc::default(),
            cause,
        }
    }

    /// Returns whether a batch contains data that float kernels do not support.
    #[inline]
    pub(super) fn concerns(&self, batch: &SampleBatch) -> bool {
        !batch.histograms.is_empty() || self.needs_starts && !batch.starts.is_empty()
    }

    /// Returns whether annotations are possible, about histograms or start timestamps.
    pub(super) fn has_effects(&self, has_histograms: bool) -> bool {
        self.needs_starts || has_histograms
    }
}

/// Data of a series in addition to its floats, and the kernel for both.
pub(super) struct Mixed {
    history: History,
    /// Start timestamps of the floats in memory, by index; 0 for floats after the end of the list.
    starts: Vec<i64>,
    /// Numbers of samples (floats and histograms) that have left and entered the range.
    left: u64,
    entered: u64,
    kernel: Box<dyn MixedKernel>,
    said: RangeAnnotations,
    /// Annotations reported in earlier tiles.
    reported: RangeAnnotations,
    /// Number of ranges with overlapping start timestamps that are not reported yet.
    overlap_count: u64,
}

/// Floats of a series, and their kernel.
pub(super) struct FloatRoll<'a, K> {
    pub(super) buffer: &'a mut Buffer,
    pub(super) kernel: &'a mut K,
}

/// Result of a range.
pub(super) enum Answer {
    /// The result of the float kernel, if any.
    AsFloats,
    Nothing,
    Float(f64),
    Histogram(Arc<Histogram>),
}

/// A sample that enters a range, with its index among the floats or the histograms.
#[derive(Debug, Clone, Copy)]
pub(super) enum Entered {
    Float(usize),
    Histogram(usize),
}

/// Range of one step for a mixed kernel.
pub(super) struct MixedFrame<'a> {
    /// All floats in memory.
    samples: Samples<'a>,
    starts: &'a [i64],
    /// Indices of the first float of the range and after the last float.
    float_lo: usize,
    float_hi: usize,
    /// All histograms in memory.
    all_entries: &'a [HistoryEntry],
    entries_base: u64,
    entry_lo: usize,
    entry_hi: usize,
    /// Start of the range, exclusive.
    start_ms: i64,
    end_ms: i64,
    /// Number of the first sample (float or histogram) of the range.
    first: u64,
}

impl MixedFrame<'_> {
    /// Returns the timestamps of the floats in the range.
    fn times(&self) -> &[i64] {
        &self.samples.times[self.float_lo..self.float_hi]
    }

    /// Returns the values of the floats in the range.
    fn values(&self) -> &[f64] {
        &self.samples.values[self.float_lo..self.float_hi]
    }

    /// Returns the histograms in the range.
    fn entries(&self) -> &[HistoryEntry] {
        &self.all_entries[self.entry_lo..self.entry_hi]
    }

    /// Returns timestamp and start timestamp of a float.
    fn started(&self, at: usize) -> Started {
        let start_ms = self.starts.get(at).copied().unwrap_or(0);
        Started { start_ms, time_ms: self.samples.times[at] }
    }

    /// Returns whether there are floats, and whether there are histograms.
    fn kinds(&self) -> (bool, bool) {
        (self.float_lo < self.float_hi, self.entry_lo < self.entry_hi)
    }
}

/// State of a function over the floats and histograms in a range that moves forward.
///
/// Calls are dynamic, which costs little next to histograms; series without histograms use
/// [`Kernel`].
pub(super) trait MixedKernel: Send {
    /// Returns whether the float kernel must be evaluated first.
    fn follows_floats(&self) -> bool {
        false
    }

    /// Returns whether the result depends on every histogram of the range.
    fn looks_at_all(&self) -> bool {
        false
    }

    /// Appends a float or a histogram to the range.
    ///
    /// `_number` counts the floats and histograms since the start of the series.
    fn enter(&mut self, _frame: &MixedFrame<'_>, _sample: Entered, _number: u64) {}

    /// Returns the result of a range that is not empty.
    fn answer(&mut self, frame: &MixedFrame<'_>, remarks: &mut RangeAnnotations) -> Answer;

    /// Returns the bytes of the state on the heap.
    fn bytes(&self) -> u64 {
        0
    }
}

impl Mixed {
    /// Converts a series with floats in memory.
    pub(super) fn new(
        mixing: &Mixing,
        kernel: &RollupKernel,
        ranges: &Ranges,
        buffer: &Buffer,
    ) -> Mixed {
        let mut mixed = Mixed {
            history: History::new(mixing.needs_resets && mixing.needs_histograms),
            starts: Vec::new(),
            left: 0,
            entered: 0,
            kernel: kernel.mixed_kernel(ranges),
            said: RangeAnnotations::default(),
            reported: RangeAnnotations::default(),
            overlap_count: 0,
        };
        let Range { start: lo, end: hi } = buffer.place();
        for at in lo..hi {
            let frame = mixed.history.frame(buffer.samples(), &[], lo..at + 1);
            mixed.kernel.enter(&frame, Entered::Float(at), mixed.entered);
            mixed.entered += 1;
        }
        mixed
    }

    /// Adds the samples of a batch.
    pub(super) fn take(&mut self, mixing: &Mixing, batch: &SampleBatch, buffer: &mut Buffer) {
        let (times, values) = batch.samples();
        if mixing.needs_starts && !batch.starts.is_empty() {
            for (index, (time_ms, value)) in times.iter().zip(values).enumerate() {
                let start_ms = batch.start(index);
                if is_stale(*value) {
                    continue;
                }
                if start_ms != 0 {
                    self.starts.resize(buffer.len(), 0);
                    self.starts.push(start_ms);
                }
                buffer.push(*time_ms, *value);
            }
        } else {
            buffer.extend(times, values);
        }
        for sample in &batch.histograms {
            let start_ms = if mixing.needs_starts { sample.start_ms } else { 0 };
            self.push(mixing, HistogramSample { start_ms, ..sample.clone() });
        }
    }

    /// Adds a histogram.
    pub(super) fn push(&mut self, mixing: &Mixing, mut sample: HistogramSample) {
        if sample.histogram.is_stale() {
            return;
        }
        if !mixing.needs_histograms {
            sample.histogram = Arc::clone(&mixing.blank);
        } else if mixing.is_subquery {
            sample.histogram = self.without_reset_hint(sample.histogram);
        }
        self.history.push(sample);
    }

    /// Removes the reset hint of a subquery's histogram, which does not refer to the previous step.
    ///
    /// Source: `evalSubquery` of Prometheus.
    fn without_reset_hint(&self, histogram: Arc<Histogram>) -> Arc<Histogram> {
        match histogram.reset_hint {
            ResetHint::Unknown | ResetHint::Gauge => histogram,
            ResetHint::Reset | ResetHint::NotReset => {
                Arc::new(Histogram { reset_hint: ResetHint::Unknown, ..(*histogram).clone() })
            }
        }
    }

    /// Moves the range over the steps of one tile's row that are not done, and writes the results,
    /// after those of the float kernel if it comes first.
    ///
    /// Errors: errors of the checkpoint.
    pub(super) fn roll<K: Kernel>(
        &mut self,
        FloatRoll { buffer, kernel }: FloatRoll<'_, K>,
        ranges: &Ranges,
        steps: RowSteps,
        tile: &mut Tile,
        row: usize,
        checkpoint: &mut Checkpoint,
    ) -> Result<(), QueryError> {
        let place = buffer.place();
        let first_step = steps.first;
        if self.kernel.follows_floats() {
            let (values, presence) = tile.row_mut(row);
            buffer.roll(kernel, ranges, steps, values, presence, checkpoint)?;
        }
        let samples = buffer.samples();
        let Range { start: mut lo, end: mut hi } = place;
        for index in steps.done..steps.end {
            let end_ms = ranges.times.time(first_step + index);
            let start_ms = end_ms.saturating_sub(ranges.range_ms);
            let until_ms = ranges.until_ms(first_step + index);
            let after_ms = start_ms.saturating_sub(ranges.margin.back_ms);
            self.enter_up_to(until_ms, samples, lo, &mut hi);
            self.leave_up_to(after_ms, samples, &mut lo, hi);
            let mut frame = self.history.frame(samples, &self.starts, lo..hi);
            (frame.start_ms, frame.end_ms, frame.first) = (start_ms, end_ms, self.left);
            let answer = match frame.kinds() {
                (false, false) => continue,
                kinds => {
                    let looked_at =
                        if self.kernel.looks_at_all() { frame.entries().len() } else { 1 };
                    checkpoint.work(HISTOGRAM_WORK * looked_at)?;
                    if kinds == (false, true) {
                        kernel.check_parameters(first_step + index);
                    }
                    let mut remarks = RangeAnnotations::default();
                    let answer = self.kernel.answer(&frame, &mut remarks);
                    self.overlap_count += u64::from(remarks.has(RangeAnnotation::Overlap));
                    self.said.merge(remarks);
                    answer
                }
            };
            write(answer, tile, row, index);
        }
        buffer.move_to(lo..hi);
        Ok(())
    }

    fn enter_up_to(&mut self, until_ms: i64, samples: Samples<'_>, lo: usize, hi: &mut usize) {
        loop {
            let float_ms = samples.times.get(*hi).copied().filter(|t| *t <= until_ms);
            let entry_ms = self.history.next_ms().filter(|t| *t <= until_ms);
            let sample = match (float_ms, entry_ms) {
                (None, None) => return,
                (Some(float), Some(entry)) if float < entry => Entered::Float(*hi),
                (Some(_), None) => Entered::Float(*hi),
                (_, Some(_)) => Entered::Histogram(self.history.hi),
            };
            match sample {
                Entered::Float(_) => *hi += 1,
                Entered::Histogram(_) => self.history.hi += 1,
            }
            let frame = self.history.frame(samples, &self.starts, lo..*hi);
            self.kernel.enter(&frame, sample, self.entered);
            self.entered += 1;
        }
    }

    fn leave_up_to(&mut self, after_ms: i64, samples: Samples<'_>, lo: &mut usize, hi: usize) {
        while *lo < hi && samples.times[*lo] <= after_ms {
            *lo += 1;
            self.left += 1;
        }
        let History { entries, lo, hi, .. } = &mut self.history;
        while *lo < *hi && entries[*lo].at.time_ms <= after_ms {
            *lo += 1;
            self.left += 1;
        }
    }

    /// Reports the annotations of the tile: overlaps in each tile, all others once per series.
    pub(super) fn report(&mut self, ctx: &Context, mixing: &Mixing, name: &str) {
        let fresh = self.said.without(self.reported);
        fresh.say(ctx, name, mixing.cause);
        self.reported.merge(fresh);
        let overlap_count = std::mem::take(&mut self.overlap_count);
        if overlap_count > 0 {
            ctx.warn_counted(range_annotation::overlap(name), mixing.cause, overlap_count);
        }
    }

    /// Drops samples that no later range needs; the buffer has dropped `dropped` floats.
    pub(super) fn compact(&mut self, dropped: usize) {
        self.starts.drain(..dropped.min(self.starts.len()));
        self.history.compact();
    }

    /// Returns the bytes held.
    pub(super) fn bytes(&self) -> u64 {
        self.history.bytes() + (self.starts.capacity() * 8) as u64 + self.kernel.bytes()
    }
}

impl History {
    /// Returns a frame of `floats` and of the current histograms, without the time boundaries.
    fn frame<'a>(
        &'a self,
        samples: Samples<'a>,
        starts: &'a [i64],
        floats: Range<usize>,
    ) -> MixedFrame<'a> {
        MixedFrame {
            samples,
            starts,
            float_lo: floats.start,
            float_hi: floats.end,
            all_entries: &self.entries,
            entries_base: self.base,
            entry_lo: self.lo,
            entry_hi: self.hi,
            start_ms: 0,
            end_ms: 0,
            first: 0,
        }
    }

    /// Returns the timestamp of the first histogram after the range.
    fn next_ms(&self) -> Option<i64> {
        self.entries.get(self.hi).map(|entry| entry.at.time_ms)
    }
}

fn write(answer: Answer, tile: &mut Tile, row: usize, index: usize) {
    match answer {
        Answer::AsFloats => {}
        Answer::Nothing => set_absent(tile.row_mut(row).1, index),
        Answer::Float(value) => {
            let (values, presence) = tile.row_mut(row);
            values[index] = value;
            set_present(presence, index);
        }
        Answer::Histogram(histogram) => tile.set_histogram(row, index, histogram),
    }
}
