//! Buffer of the samples of one series that current and later ranges need, and the loop that moves
//! the range.

use std::ops::Range;

use model::{
    Checkpoint, Reservation, SampleBatch, StepRanges, WantedFact, Windows, is_any_stale, is_stale,
};

use crate::error::QueryError;
use crate::exec::rollup::alike::{self, AlikeRanges};
use crate::exec::rollup::facts::{FoundWindows, KnownWindows};
use crate::steps::{LookTimes, Reach};
use crate::tile::set_all_present;

/// Maximum number of remaining samples for which dropping earlier ones is always worthwhile.
const KEPT_CHEAP: usize = 256;

/// Steps of one tile's row.
#[derive(Debug, Clone, Copy)]
pub(super) struct RowSteps {
    /// Number of the first step.
    pub(super) first: usize,
    /// Number of steps at the front that have their values.
    pub(super) done: usize,
    /// Index after the last step to compute.
    pub(super) end: usize,
}

/// Decoded samples of one series: in the current range, and read ahead.
///
/// Invariant: times strictly ascend, no staleness markers; `lo <= hi <= len`.
#[derive(Debug, Default)]
pub(super) struct Buffer {
    times: Vec<i64>,
    values: Vec<f64>,
    /// Index from which on timestamps are evenly spaced.
    even_from: usize,
    /// Distance between evenly spaced timestamps; above 0 if there are any.
    even_step_ms: i64,
    /// Number of samples dropped from the front.
    base: u64,
    /// First sample of the current range.
    lo: usize,
    /// Index after the last sample of the current range.
    hi: usize,
}

/// Samples of a series, and how many samples preceded the first of them.
#[derive(Clone, Copy)]
pub(super) struct Samples<'a> {
    pub(super) times: &'a [i64],
    pub(super) values: &'a [f64],
    base: u64,
}

impl Samples<'_> {
    #[cfg(test)]
    pub(super) fn new<'a>(times: &'a [i64], values: &'a [f64], base: u64) -> Samples<'a> {
        Samples { times, values, base }
    }

    /// Returns the number of a sample, counted from the start of the series. It stays the same when
    /// the buffer drops earlier samples.
    #[inline]
    pub(super) fn number(&self, at: usize) -> u64 {
        self.base + at as u64
    }

    /// Returns the index of a sample in memory by its number.
    #[inline]
    pub(super) fn place(&self, number: u64) -> usize {
        (number - self.base) as usize
    }
}

/// Range of one step for a kernel.
pub(super) struct Frame<'a> {
    /// All samples in memory.
    pub(super) samples: Samples<'a>,
    /// First sample of the range.
    pub(super) lo: usize,
    /// Index after the last sample of the range.
    pub(super) hi: usize,
    /// Start of the range, exclusive.
    pub(super) start_ms: i64,
    /// End of the range.
    pub(super) end_ms: i64,
    /// Index of the step in the whole query.
    pub(super) step: usize,
}

impl Frame<'_> {
    /// Returns the timestamps of the samples in the range; never empty.
    #[inline]
    pub(super) fn times(&self) -> &[i64] {
        &self.samples.times[self.lo..self.hi]
    }

    /// Returns the values of the samples in the range; never empty.
    #[inline]
    pub(super) fn values(&self) -> &[f64] {
        &self.samples.values[self.lo..self.hi]
    }
}

/// Consecutive ranges with the same number of samples. The distances of the first and last sample
/// from the range's boundaries are the same in each range.
pub(super) struct EvenRanges<'a> {
    /// All samples in memory.
    pub(super) samples: Samples<'a>,
    /// Index after the last sample that has already entered the kernel.
    pub(super) entered: usize,
    /// Samples of the first range; at least one.
    pub(super) first: std::ops::Range<usize>,
    /// Number of samples from one range to the next.
    pub(super) stride: usize,
    /// Number of ranges; at least one.
    pub(super) count: usize,
    /// Start and end of the first range.
    pub(super) start_ms: i64,
    pub(super) end_ms: i64,
}

impl EvenRanges<'_> {
    /// Returns the number of samples from the start of the first range to the start of the last
    /// range.
    #[inline]
    pub(super) fn moved(&self) -> usize {
        self.stride * (self.count - 1)
    }
}

/// State of a function over the samples in a range that moves forward.
///
/// Every sample enters once and leaves once, in order, except for those of ranges that are rolled at
/// once. A sample may enter and leave between two ranges whose values are requested.
pub(super) trait Kernel: Send {
    /// Whether the cost of a value may be proportional to the range.
    const LOOKS_AT_ALL: bool = false;
    /// Maximum bytes of state per sample in memory, if substantial.
    const SAMPLE_BYTES: u64 = 0;
    /// Whether [`Kernel::roll_evenly`] is implemented.
    const ROLLS_EVENLY: bool = false;

    /// Appends the sample at index `_at` to the range, which starts at index `_lo`.
    #[inline]
    fn enter(&mut self, _samples: Samples<'_>, _lo: usize, _at: usize) {}

    /// Removes the first sample of the range, at index `_at`; samples before index `_hi` have
    /// entered.
    #[inline]
    fn leave(&mut self, _samples: Samples<'_>, _at: usize, _hi: usize) {}

    /// Returns the value of a range that is not empty.
    fn value(&mut self, frame: &Frame<'_>) -> Option<f64>;

    /// Computes the values of evenly moving ranges, bit-identical to moving sample by sample.
    /// Returns false, without effect, if the kernel has no faster method for these ranges.
    #[inline]
    fn roll_evenly(&mut self, _ranges: &EvenRanges<'_>, _out: &mut [f64]) -> bool {
        false
    }

    /// Whether [`Kernel::roll_alike`] is implemented.
    const ROLLS_ALIKE: bool = false;

    /// Computes the values of alike ranges, bit-identical to moving sample by sample.
    #[inline]
    fn roll_alike(&mut self, _ranges: &AlikeRanges<'_>, _out: &mut [f64]) {}

    /// Returns the fact of windows from which [`Kernel::of_facts`] computes values; `None` if
    /// samples are needed.
    #[inline]
    fn wanted_fact(&self) -> Option<WantedFact> {
        None
    }

    /// Computes the values of windows with samples, bit-identical to moving sample by sample.
    /// Returns the windows with a value.
    ///
    /// Called only if [`Kernel::wanted_fact`] returns a fact.
    #[inline]
    fn of_facts(&self, _known: &KnownWindows<'_>, _out: &mut [f64]) -> FoundWindows {
        FoundWindows::None
    }

    /// Returns the bytes of the state on the heap.
    fn bytes(&self) -> u64 {
        0
    }

    /// Checks the parameters of a step for which no value is computed, because its range has no
    /// floats.
    fn check_parameters(&mut self, _step: usize) {}

    /// Returns the error of invalid parameters, if a value was computed with them.
    fn error(&mut self) -> Option<String> {
        None
    }
}

/// Ranges of all steps.
#[derive(Debug, Clone, Copy)]
pub(super) struct Ranges {
    /// Ends of the ranges.
    pub(super) times: LookTimes,
    /// Duration of the ranges.
    pub(super) range_ms: i64,
    /// Distances before and after each range within which samples are needed, too.
    pub(super) margin: Reach,
}

impl Ranges {
    /// Returns the ranges that steps read, or that steps in `seen` read together, if there are gaps
    /// between them.
    pub(super) fn step_ranges(&self, seen: Option<Windows>) -> Option<StepRanges> {
        let back_ms = self.range_ms.saturating_add(self.margin.back_ms);
        let together = || {
            let Windows { span_ms, step_ms, .. } = seen?;
            let after_ms = seen?.after_ms(0).saturating_sub(back_ms);
            StepRanges::new(after_ms, span_ms.saturating_add(back_ms), step_ms, false)
        };
        self.times.step_ranges(Reach { back_ms, ..self.margin }, false).or_else(together)
    }

    /// Returns the windows of `count` steps from a step on; `None` if steps may need samples
    /// outside of their ranges, or are all at one time.
    #[inline]
    pub(super) fn windows(&self, step: usize, count: usize) -> Option<Windows> {
        let is_plain = self.margin.back_ms == 0 && self.margin.ahead_ms == 0;
        let windows = self.times.windows(self.range_ms).filter(|_| is_plain)?;
        Some(Windows { first_end_ms: windows.end_ms(step), count, ..windows })
    }

    /// Returns the last time at which a step may read a sample.
    pub(super) fn until_ms(&self, step: usize) -> i64 {
        self.times.time(step).saturating_add(self.margin.ahead_ms)
    }
}

impl Buffer {
    /// Reserves capacity for `count` more samples; charges for it before allocating.
    ///
    /// Errors: the query's memory limit.
    #[inline]
    pub(super) fn make_room(
        &mut self,
        count: usize,
        reservation: &mut Reservation,
    ) -> Result<(), QueryError> {
        let len = self.times.len();
        if self.times.capacity().min(self.values.capacity()) - len >= count {
            return Ok(());
        }
        // At least a quarter more than the length: each sample is moved a few times in total, and
        // the charge does not exceed the use by much.
        let capacity = len + count.max(len / 4);
        let held = self.bytes();
        reservation.grow((16 * capacity as u64).saturating_sub(held))?;
        self.times.reserve_exact(capacity - len);
        self.values.reserve_exact(capacity - len);
        Ok(())
    }

    /// Appends samples without staleness markers.
    pub(super) fn extend(&mut self, times: &[i64], values: &[f64]) {
        if is_any_stale(values) {
            let mut start = 0;
            for plain in values.split(|value| is_stale(*value)) {
                self.times.extend_from_slice(&times[start..start + plain.len()]);
                self.values.extend_from_slice(plain);
                start += plain.len() + 1;
            }
        } else {
            self.times.extend_from_slice(times);
            self.values.extend_from_slice(values);
        }
        self.even_from = self.times.len();
    }

    /// Appends the floats of a batch without staleness markers.
    #[inline]
    pub(super) fn extend_with(&mut self, batch: &SampleBatch) {
        if batch.len == 0 {
            return;
        }
        let (start, even_from) = (self.times.len(), self.even_from);
        let (times, values) = batch.samples();
        self.extend(times, values);
        let is_complete = self.times.len() == start + times.len();
        // A single sample has no distance, but it may continue the even distances of earlier
        // samples.
        let step_ms = match batch.len {
            1 if batch.even_len == 0 => Some(self.even_step_ms).filter(|step_ms| *step_ms > 0),
            _ => batch.even_step_ms(),
        };
        let Some(step_ms) = step_ms.filter(|_| is_complete) else { return };
        let goes_on = even_from < start
            && self.even_step_ms == step_ms
            && self.times[start] - self.times[start - 1] == step_ms;
        self.even_from = if goes_on { even_from } else { start };
        self.even_step_ms = step_ms;
    }

    /// Appends one sample.
    pub(super) fn push(&mut self, time_ms: i64, value: f64) {
        self.times.push(time_ms);
        self.values.push(value);
        self.even_from = self.times.len();
    }

    /// Appends samples, `step_ms` apart from `start_ms` on, without staleness markers.
    pub(super) fn extend_evenly(&mut self, start_ms: i64, step_ms: i64, values: &[f64]) {
        let start = self.times.len();
        self.times.extend((0..values.len()).map(|at| start_ms + at as i64 * step_ms));
        self.values.extend_from_slice(values);
        let goes_on = self.even_from < start
            && self.even_step_ms == step_ms
            && start_ms - self.times[start - 1] == step_ms;
        if !goes_on {
            (self.even_from, self.even_step_ms) = (start, step_ms);
        }
    }

    /// Empties the buffer for another series.
    pub(super) fn emptied(mut self) -> Buffer {
        self.times.clear();
        self.values.clear();
        Buffer { times: self.times, values: self.values, ..Buffer::default() }
    }

    /// Returns whether the buffer has allocated memory.
    pub(super) fn has_room(&self) -> bool {
        self.times.capacity() > 0
    }

    /// Returns the number of samples in memory.
    pub(super) fn len(&self) -> usize {
        self.times.len()
    }

    /// Returns all samples in memory.
    pub(super) fn samples(&self) -> Samples<'_> {
        Samples { times: &self.times, values: &self.values, base: self.base }
    }

    /// Returns the indices of the samples in the current range.
    pub(super) fn place(&self) -> Range<usize> {
        self.lo..self.hi
    }

    /// Sets the current range.
    pub(super) fn move_to(&mut self, place: Range<usize>) {
        let Range { start: lo, end: hi } = place;
        assert!(lo <= hi && hi <= self.times.len());
        (self.lo, self.hi) = (lo, hi);
    }

    /// Returns the timestamps and values of all samples.
    pub(super) fn into_samples(self) -> (Vec<i64>, Vec<f64>) {
        (self.times, self.values)
    }

    /// Returns the bytes held.
    pub(super) fn bytes(&self) -> u64 {
        ((self.times.capacity() + self.values.capacity()) * 8) as u64
    }

    /// Drops the samples before the current range if few samples remain, or if the dropped ones are
    /// at least a quarter as many. Returns their number. So a buffer rarely grows after its first
    /// samples.
    pub(super) fn compact(&mut self) -> usize {
        let kept = self.times.len() - self.lo;
        if self.lo == 0 || (kept > KEPT_CHEAP && self.lo * 4 < kept) {
            return 0;
        }
        let dropped = self.lo;
        self.times.drain(..dropped);
        self.values.drain(..dropped);
        self.base += dropped as u64;
        self.even_from = self.even_from.saturating_sub(dropped);
        self.hi -= dropped;
        self.lo = 0;
        dropped
    }

    /// Moves the range over the steps of one tile's row that are not done, and writes the values.
    ///
    /// Errors: errors of the checkpoint.
    #[inline]
    pub(super) fn roll<K: Kernel>(
        &mut self,
        kernel: &mut K,
        ranges: &Ranges,
        steps: RowSteps,
        values: &mut [f64],
        presence: &mut [u64],
        checkpoint: &mut Checkpoint,
    ) -> Result<(), QueryError> {
        let mut at = steps.done;
        let values = &mut values[..steps.end];
        while at < values.len() {
            let (step, end) = (steps.first + at, (at / 64 * 64 + 64).min(values.len()));
            if K::ROLLS_ALIKE {
                // All other steps at once, or those up to the next word of presence. The first
                // words may be before the samples, and later ones after a gap; each attempt costs a
                // scan of the times.
                let tries_all = at == steps.done || (at / 64).is_power_of_two();
                let all = (tries_all && end < values.len()).then_some(values.len());
                let mut ends = all.into_iter().chain([end]);
                let is_alike = |end: &usize| {
                    let windows = ranges.windows(step, end - at);
                    windows.is_some_and(|w| self.roll_alike(kernel, w, &mut values[at..*end]))
                };
                if let Some(end) = ends.find(is_alike) {
                    set_all_present(presence, at..end);
                    at = end;
                    continue;
                }
            }
            let values = &mut values[at..end];
            if K::ROLLS_EVENLY && self.roll_evenly(kernel, ranges, step, values) {
                set_all_present(presence, at..end);
            } else {
                let word = self.walk(kernel, ranges, step, values, checkpoint)?;
                presence[at / 64] |= word << (at % 64);
            }
            at = end;
        }
        Ok(())
    }

    /// Computes up to 64 steps with [`Kernel::roll_evenly`]; returns false if the ranges do not
    /// move evenly or the kernel has no faster method.
    #[inline]
    fn roll_evenly<K: Kernel>(
        &mut self,
        kernel: &mut K,
        ranges: &Ranges,
        first_step: usize,
        values: &mut [f64],
    ) -> bool {
        let of_even = self.even_ranges(ranges, first_step, values.len());
        let Some(even) = of_even.or_else(|| self.apart_ranges(ranges, first_step, values.len()))
        else {
            return false;
        };
        if !kernel.roll_evenly(&even, values) {
            return false;
        }
        let moved = even.moved();
        (self.lo, self.hi) = (even.first.start + moved, even.first.end + moved);
        true
    }

    /// Computes windows with [`Kernel::roll_alike`]; returns false if they are not alike.
    #[inline]
    fn roll_alike<K: Kernel>(
        &mut self,
        kernel: &mut K,
        windows: Windows,
        values: &mut [f64],
    ) -> bool {
        let put = |ranges: &AlikeRanges<'_>, out: &mut [f64]| kernel.roll_alike(ranges, out);
        let last = alike::roll(self.samples(), self.lo, windows, values, put);
        let Some(Range { start, end }) = last else { return false };
        (self.lo, self.hi) = (start, end);
        true
    }

    /// Computes up to 64 steps one by one. Returns a bit for each step with a value.
    ///
    /// Errors: errors of the checkpoint.
    #[inline]
    fn walk<K: Kernel>(
        &mut self,
        kernel: &mut K,
        ranges: &Ranges,
        first_step: usize,
        values: &mut [f64],
        checkpoint: &mut Checkpoint,
    ) -> Result<u64, QueryError> {
        let samples = self.samples();
        let (mut lo, mut hi) = (self.lo, self.hi);
        let mut word = 0;
        for (bit, out) in values.iter_mut().enumerate() {
            let step = first_step + bit;
            let end_ms = ranges.times.time(step);
            let start_ms = end_ms.saturating_sub(ranges.range_ms);
            let until_ms = end_ms.saturating_add(ranges.margin.ahead_ms);
            let after_ms = start_ms.saturating_sub(ranges.margin.back_ms);
            while hi < samples.times.len() && samples.times[hi] <= until_ms {
                kernel.enter(samples, lo, hi);
                hi += 1;
            }
            while lo < hi && samples.times[lo] <= after_ms {
                kernel.leave(samples, lo, hi);
                lo += 1;
            }
            if lo < hi {
                if K::LOOKS_AT_ALL {
                    checkpoint.work(hi - lo)?;
                }
                let frame = Frame { samples, lo, hi, start_ms, end_ms, step };
                if let Some(value) = kernel.value(&frame) {
                    *out = value;
                    word |= 1 << bit;
                }
            }
        }
        (self.lo, self.hi) = (lo, hi);
        Ok(word)
    }

    /// Returns the ranges of `count` steps from `first_step` on, if they move evenly.
    #[inline]
    fn even_ranges(
        &self,
        ranges: &Ranges,
        first_step: usize,
        count: usize,
    ) -> Option<EvenRanges<'_>> {
        let (step_ms, margin) = (ranges.times.step_ms, ranges.margin);
        let first_ms = *self.times.get(self.even_from)?;
        let has_margin = margin.back_ms != 0 || margin.ahead_ms != 0;
        if has_margin || step_ms < 1 || self.even_step_ms < 1 || step_ms % self.even_step_ms != 0 {
            return None;
        }
        let end_ms = ranges.times.time(first_step);
        let start_ms = end_ms.checked_sub(ranges.range_ms)?;
        // The first range must not start more than one distance before the first even sample, nor
        // include an earlier sample: otherwise later ranges contain more samples.
        let is_before = start_ms < first_ms;
        let sees_uneven = || self.even_from > 0 && self.times[self.even_from - 1] > start_ms;
        if is_before && (first_ms - start_ms > self.even_step_ms || sees_uneven()) {
            return None;
        }
        let place = |time_ms: i64| {
            let passed = (time_ms - first_ms).div_euclid(self.even_step_ms) + 1;
            self.even_from + usize::try_from(passed).unwrap_or(0)
        };
        let even = EvenRanges {
            samples: self.samples(),
            entered: self.hi,
            first: place(start_ms)..place(end_ms),
            stride: (step_ms / self.even_step_ms) as usize,
            count,
            start_ms,
            end_ms,
        };
        let is_all_there = even.first.end + even.moved() <= self.times.len();
        (is_all_there && !even.first.is_empty()).then_some(even)
    }

    /// Returns the ranges of `count` steps from `first_step` on, which do not overlap, if the
    /// samples are at the same positions in each range.
    fn apart_ranges(
        &self,
        ranges: &Ranges,
        first_step: usize,
        count: usize,
    ) -> Option<EvenRanges<'_>> {
        let Ranges { times, range_ms, margin } = *ranges;
        if margin.back_ms != 0 || margin.ahead_ms != 0 || times.step_ms < range_ms.max(1) {
            return None;
        }
        let end_ms = times.time(first_step);
        let start_ms = end_ms.checked_sub(range_ms)?;
        // All samples that entered earlier are in or before the previous range.
        let rest = &self.times[self.hi..];
        let lo = self.hi + rest.partition_point(|time_ms| *time_ms <= start_ms);
        let until = |time_ms: i64| lo + self.times[lo..].partition_point(|t| *t <= time_ms);
        let (hi, next) = (until(end_ms), until(start_ms.checked_add(times.step_ms)?));
        let stride = next - lo;
        if lo == hi || hi + stride * (count - 1) > self.times.len() {
            return None;
        }
        let mut are_alike = true;
        for at in 1..count {
            let (first, end) = (lo + at * stride, hi + at * stride);
            let moved_ms = at as i64 * times.step_ms;
            are_alike &= (self.times[first] - self.times[lo] == moved_ms)
                & (self.times[end - 1] - self.times[hi - 1] == moved_ms)
                & (self.times[first - 1] - start_ms <= moved_ms)
                & self.times.get(end).is_none_or(|time_ms| time_ms - end_ms > moved_ms);
        }
        are_alike.then_some(EvenRanges {
            samples: self.samples(),
            entered: self.hi,
            first: lo..hi,
            stride,
            count,
            start_ms,
            end_ms,
        })
    }
}
