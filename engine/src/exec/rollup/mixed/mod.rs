//! Ranges over series with native histograms, or with counters whose starts are known.
//!
//! Such a series keeps its floats where the others do, and its histograms next to them. Where the
//! answer for floats alone is what it always is, the float kernel gives it first, and only the
//! ranges with histograms are looked at here. What is known of a histogram and the one before
//! it (a reset, another schema) is found out once, when it comes in, so that most ranges need
//! no more than their first and last histogram.

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
use crate::exec::rollup::buffer::{Buffer, Kernel, Ranges, Samples};
use crate::exec::rollup::kernels::RollupKernel;
use crate::tile::{Tile, set_absent, set_present};

use history::{History, HistoryEntry};
use range_annotation::{RangeAnnotation, RangeAnnotations};
use starts::Started;

/// Work of a histogram, where a float is 1.
const HISTOGRAM_WORK: usize = 16;

/// Requirements of a function on mixed series.
#[derive(Debug, Clone)]
pub(super) struct Mixing {
    /// True if it looks at histograms, as against their times.
    needs_histograms: bool,
    /// True if resets matter.
    needs_resets: bool,
    /// True if starts of counters matter.
    needs_starts: bool,
    /// True if samples come from a subquery, which knows of no resets.
    is_subquery: bool,
    /// Stands for all histograms where they are not looked at.
    blank: Arc<Histogram>,
    /// Cause of annotations.
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

    /// Returns whether a batch has what float kernels do not know of.
    #[inline]
    pub(super) fn concerns(&self, batch: &SampleBatch) -> bool {
        !batch.histograms.is_empty() || self.needs_starts && !batch.starts.is_empty()
    }

    /// Returns whether there may be something to say, of histograms or of starts.
    pub(super) fn has_effects(&self, has_histograms: bool) -> bool {
        self.needs_starts || has_histograms
    }
}

/// State of a series in addition to its floats, and the kernel for both.
pub(super) struct Mixed {
    history: History,
    /// Since when the counters of the first floats in memory count; what is missing is 0.
    starts: Vec<i64>,
    /// Number of samples of either kind that have left the range, or entered it.
    left: u64,
    entered: u64,
    kernel: Box<dyn MixedKernel>,
    said: RangeAnnotations,
    /// Annotations of earlier tiles.
    reported: RangeAnnotations,
    /// In how many ranges starts overlap that have not been reported.
    overlap_count: u64,
}

/// Floats of a series, and the kernel that looks at them.
pub(super) struct FloatRoll<'a, K> {
    pub(super) buffer: &'a mut Buffer,
    pub(super) kernel: &'a mut K,
}

/// Answer of a range.
pub(super) enum Answer {
    /// Result of the float kernel, if any.
    AsFloats,
    Nothing,
    Float(f64),
    Histogram(Arc<Histogram>),
}

/// A sample that enters a range: its place among the floats, or among the histograms.
#[derive(Debug, Clone, Copy)]
pub(super) enum Entered {
    Float(usize),
    Histogram(usize),
}

/// One step as a mixed kernel sees it.
pub(super) struct MixedFrame<'a> {
    /// All floats in memory.
    samples: Samples<'a>,
    starts: &'a [i64],
    /// First float of the range, and one past the last.
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
    /// The number of the first sample of the range, of either kind.
    first: u64,
}

impl MixedFrame<'_> {
    /// The times of the floats in the range.
    fn times(&self) -> &[i64] {
        &self.samples.times[self.float_lo..self.float_hi]
    }

    /// The values of the floats in the range.
    fn values(&self) -> &[f64] {
        &self.samples.values[self.float_lo..self.float_hi]
    }

    /// The histograms in the range.
    fn entries(&self) -> &[HistoryEntry] {
        &self.all_entries[self.entry_lo..self.entry_hi]
    }

    /// The time of a float and its counter's start.
    fn started(&self, at: usize) -> Started {
        let start_ms = self.starts.get(at).copied().unwrap_or(0);
        Started { start_ms, time_ms: self.samples.times[at] }
    }

    /// Returns whether there are floats, and whether there are histograms.
    fn kinds(&self) -> (bool, bool) {
        (self.float_lo < self.float_hi, self.entry_lo < self.entry_hi)
    }
}

/// A function of the floats and histograms in a range that moves forward.
///
/// It is called for each histogram and each range that may hold one, which is worth a call
/// through a table; floats alone have kernels of their own.
pub(super) trait MixedKernel: Send {
    /// Returns whether the float kernel has to answer first.
    fn follows_floats(&self) -> bool {
        false
    }

    /// Returns whether an answer looks at every histogram of the range.
    fn looks_at_all(&self) -> bool {
        false
    }

    /// A sample has come into the range, as the last one of either kind.
    ///
    /// `number` counts samples of both kinds since the series began.
    fn enter(&mut self, _frame: &MixedFrame<'_>, _sample: Entered, _number: u64) {}

    /// The answer for a range that is not empty.
    fn answer(&mut self, frame: &MixedFrame<'_>, remarks: &mut RangeAnnotations) -> Answer;

    /// Returns the number of bytes that the state holds on the heap.
    fn bytes(&self) -> u64 {
        0
    }
}

impl Mixed {
    /// Takes over a series of which some floats are in memory.
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

    /// Takes the samples of a batch.
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

    /// Takes one histogram.
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

    /// A histogram of a subquery: what it says of resets is about another one before it.
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

    /// Moves the range over the steps of one tile's row and writes the answers, where the float
    /// kernel has to answer first after it has done so for the whole row.
    ///
    /// Errors: those of the checkpoint.
    pub(super) fn roll<K: Kernel>(
        &mut self,
        FloatRoll { buffer, kernel }: FloatRoll<'_, K>,
        ranges: &Ranges,
        first_step: usize,
        tile: &mut Tile,
        row: usize,
        checkpoint: &mut Checkpoint,
    ) -> Result<(), QueryError> {
        let place = buffer.place();
        if self.kernel.follows_floats() {
            let (values, presence) = tile.row_mut(row);
            buffer.roll(kernel, ranges, first_step, values, presence, checkpoint)?;
        }
        let samples = buffer.samples();
        let Range { start: mut lo, end: mut hi } = place;
        for index in 0..tile.steps() {
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

    /// Says what there is to say about the tile: each remark once, overlaps each time.
    pub(super) fn report(&mut self, ctx: &Context, mixing: &Mixing, name: &str) {
        let fresh = self.said.without(self.reported);
        fresh.say(ctx, name, mixing.cause);
        self.reported.merge(fresh);
        let overlap_count = std::mem::take(&mut self.overlap_count);
        if overlap_count > 0 {
            ctx.warn_counted(range_annotation::overlap(name), mixing.cause, overlap_count);
        }
    }

    /// Drops samples that have left; the buffer has dropped `float_count` floats.
    pub(super) fn compact(&mut self, dropped: usize) {
        self.starts.drain(..dropped.min(self.starts.len()));
        self.history.compact();
    }

    /// Returns the number of bytes held.
    pub(super) fn bytes(&self) -> u64 {
        self.history.bytes() + (self.starts.capacity() * 8) as u64 + self.kernel.bytes()
    }
}

impl History {
    /// The range of these floats, and that of the histograms; its boundaries are to be filled in.
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

    /// Returns the time of the first histogram after the range.
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
