//! Decoded floats of one run of a series, packed so that they unpack at memory speed.
//!
//! ```text
//! times    even    first + i × step                                  nothing a sample
//!          near    first + i × step + i16                            2 bytes
//!          any     first + u32, or as they are                       4 or 8 bytes
//! values   whole   (base + u16 or u32) ÷ 10^digits                   2 or 4 bytes
//!          any     as they are                                       8 bytes
//! ```
//!
//! Counters and most gauges are whole numbers, or have a few decimal places; a value counts as such
//! if unpacking returns all its 64 bits. Staleness markers are listed, and packed as the value before
//! them. This format is used in memory only; chunks are stored.

use std::borrow::Cow;

use model::{
    Advance, SampleBatch, StepRanges, TimeRange, is_any_stale, is_stale, prefetch, stale_nan,
    widest,
};

use super::starts::Starts;
use super::stretches::{Stretch, Stretches};

/// Maximum number of decimal places. Up to here both operands of the division are exact, so it
/// rounds as parsing the decimal does.
const DIGITS_MAX: usize = 6;
const POWERS_OF_TEN: [f64; DIGITS_MAX + 1] = [1.0, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6];
/// Skipping fewer samples between two windows costs more than handing them over.
const GAP_MIN: i64 = 16;
/// The decreases of values are listed up to this share of the samples, and a few more.
const FALLS_SHARE: usize = 16;
const FALLS_MIN: usize = 4;
/// Whole numbers up to this are exact, and so is the sum of a base and an offset.
const WHOLE_MAX: f64 = (1_u64 << 51) as f64;
/// Adding this to a number up to [`WHOLE_MAX`] rounds it to a whole number.
const ROUNDER: f64 = 3.0 * (1_u64 << 51) as f64;

/// Floats of one series, times ascending.
///
/// Units: ms since the epoch.
/// Invariant: at least one sample.
#[derive(Debug, PartialEq)]
pub(crate) struct Column {
    len: u32,
    min_ms: i64,
    max_ms: i64,
    times: Times,
    values: Values,
    has_stale: bool,
    /// `None` if all samples are one stretch, or are divided into too many.
    stretches: Option<Box<Stretches>>,
    /// Indices of the values below the previous one; `None` if they are many.
    falls: Option<Box<[u32]>>,
    /// `None` if none are known.
    starts: Option<Box<Starts>>,
}

#[derive(Debug, PartialEq)]
pub(super) enum Times {
    Even {
        step_ms: i64,
    },
    /// Distances from evenly spaced times, with the smallest and the largest one.
    Near {
        step_ms: i64,
        off_ms: Box<[i16]>,
        off_min_ms: i16,
        off_max_ms: i16,
    },
    Offsets(Box<[u32]>),
    Any(Box<[i64]>),
}

#[derive(Debug, PartialEq)]
pub(super) enum Values {
    Short { base: f64, power: f64, above: Box<[u16]> },
    Long { base: f64, power: f64, above: Box<[u32]> },
    Any(Box<[f64]>),
}

impl Column {
    /// Creates a column from two slices of equal length, and the start timestamps of the first
    /// samples; missing ones are 0.
    ///
    /// Panics: no samples, or times that visibly do not ascend.
    pub(crate) fn new(timestamps: &[i64], values: &[f64], starts: &[i64]) -> Column {
        assert_eq!(timestamps.len(), values.len());
        let (Some(min_ms), Some(max_ms)) = (timestamps.first(), timestamps.last()) else {
            panic!("a column of no samples");
        };
        let (times, has_stale) = (Times::of(timestamps), is_any_stale(values));
        let is_divided = has_stale || matches!(times, Times::Offsets(_) | Times::Any(_));
        let stretches = is_divided.then(|| Stretches::of(timestamps, values)).flatten();
        let stretches = stretches.filter(|stretches| has_stale || stretches.count() > 1);
        let packed = match &stretches {
            Some(_) if has_stale => Cow::Owned(without_markers(values)),
            _ => Cow::Borrowed(values),
        };
        Column {
            len: u32::try_from(timestamps.len()).expect("runs are short"),
            min_ms: *min_ms,
            max_ms: *max_ms,
            times,
            values: Values::of(&packed),
            has_stale,
            stretches: stretches.map(Box::new),
            falls: falls(values),
            starts: Starts::of(starts).map(Box::new),
        }
    }

    /// Returns the number of samples.
    pub(crate) fn len(&self) -> usize {
        self.len as usize
    }

    /// Returns the time of the first sample.
    pub(crate) fn min_ms(&self) -> i64 {
        self.min_ms
    }

    /// Returns the time of the last sample.
    pub(crate) fn max_ms(&self) -> i64 {
        self.max_ms
    }

    /// Returns the size in memory.
    pub(crate) fn bytes(&self) -> usize {
        let times = match &self.times {
            Times::Even { .. } => 0,
            Times::Near { off_ms, .. } => size_of_val(&**off_ms),
            Times::Offsets(offsets) => size_of_val(&**offsets),
            Times::Any(times) => size_of_val(&**times),
        };
        let values = match &self.values {
            Values::Short { above, .. } => size_of_val(&**above),
            Values::Long { above, .. } => size_of_val(&**above),
            Values::Any(values) => size_of_val(&**values),
        };
        let falls = self.falls.as_ref().map_or(0, |falls| size_of_val(&**falls));
        let stretches = self.stretches.as_ref().map_or(0, |stretches| stretches.bytes());
        let starts = self.starts.as_ref().map_or(0, |starts| starts.bytes());
        size_of::<Column>() + times + values + falls + stretches + starts
    }

    pub(super) fn times(&self) -> &Times {
        &self.times
    }

    pub(super) fn values(&self) -> &Values {
        &self.values
    }

    /// Calls `visit` with each stretch of samples without staleness markers that may have samples in
    /// a range of time. Returns false if they are too many.
    #[inline]
    pub(crate) fn each_stretch(&self, times: TimeRange, mut visit: impl FnMut(Stretch)) -> bool {
        match &self.stretches {
            Some(stretches) => {
                let first = self.count_until(0, times.start_ms.saturating_sub(1));
                let stretches = stretches.ending_after(first);
                let is_seen = |stretch: &Stretch| self.time(stretch.start) <= times.end_ms;
                stretches.take_while(is_seen).for_each(visit);
            }
            None if self.has_stale => return false,
            None => visit(self.as_stretch()),
        }
        true
    }

    /// Returns all samples as one stretch. Staleness markers may be among them if there are too many
    /// to divide the samples.
    #[inline]
    pub(super) fn as_stretch(&self) -> Stretch {
        Stretch { start: 0, end: self.len(), step_ms: self.even_step_ms() }
    }

    pub(super) fn stretches(&self) -> Option<&Stretches> {
        self.stretches.as_deref()
    }

    /// Returns whether any value is a staleness marker.
    pub(super) fn has_stale(&self) -> bool {
        self.has_stale
    }

    /// Returns a value, which may be a staleness marker.
    #[inline]
    pub(super) fn value_or_marker(&self, at: usize) -> f64 {
        match &self.stretches {
            Some(stretches) if self.has_stale && stretches.is_marker(at) => stale_nan(),
            _ => self.values.get(at),
        }
    }

    /// Writes the values from an index on.
    #[inline]
    fn read_values(&self, from: usize, out: &mut [f64]) {
        self.values.read(from, out);
        if let Some(stretches) = self.stretches.as_ref().filter(|_| self.has_stale) {
            stretches.mark(from, out);
        }
    }

    /// Returns the indices of the values below the previous one; `None` if they are many.
    pub(crate) fn falls(&self) -> Option<&[u32]> {
        self.falls.as_deref()
    }

    /// Returns the time of a sample.
    #[inline]
    pub(crate) fn time(&self, at: usize) -> i64 {
        self.times.get(self.min_ms, at)
    }

    /// Prefetches the samples from an index on, up to a page; the hardware prefetches the rest.
    #[inline]
    pub(crate) fn fetch(&self, from: usize) {
        const BYTES: usize = 1 << 10;
        fn some<T>(all: &[T], from: usize) -> &[T] {
            let end = (from + BYTES / size_of::<T>()).min(all.len());
            &all[from.min(end)..end]
        }
        match &self.times {
            Times::Even { .. } => {}
            Times::Near { off_ms, .. } => prefetch(some(off_ms, from)),
            Times::Offsets(offsets) => prefetch(some(offsets, from)),
            Times::Any(times) => prefetch(some(times, from)),
        }
        match &self.values {
            Values::Short { above, .. } => prefetch(some(above, from)),
            Values::Long { above, .. } => prefetch(some(above, from)),
            Values::Any(values) => prefetch(some(values, from)),
        }
    }

    /// Returns the number of samples from index `from` on that are not later than `until_ms`.
    #[inline]
    pub(crate) fn count_until(&self, from: usize, until_ms: i64) -> usize {
        let len = self.len();
        if until_ms >= self.max_ms {
            return len - from;
        }
        if until_ms < self.min_ms {
            return 0;
        }
        let end = match &self.times {
            // Less than `len`, since the bound is before the last sample.
            Times::Even { step_ms } => ((until_ms - self.min_ms) / step_ms) as usize + 1,
            Times::Near { step_ms, off_ms, .. } => {
                let time = |at: usize| self.min_ms + at as i64 * step_ms + i64::from(off_ms[at]);
                let mut end = (((until_ms - self.min_ms) / step_ms) as usize + 1).min(len);
                while end > 0 && time(end - 1) > until_ms {
                    end -= 1;
                }
                while end < len && time(end) <= until_ms {
                    end += 1;
                }
                end
            }
            Times::Offsets(offsets) => {
                let until = until_ms - self.min_ms;
                from + offsets[from..].partition_point(|offset| i64::from(*offset) <= until)
            }
            Times::Any(times) => from + times[from..].partition_point(|time| *time <= until_ms),
        };
        end.saturating_sub(from)
    }

    /// Appends samples from index `from` on that are not later than `until_ms` to a batch, until it
    /// is full. Returns their number.
    #[inline]
    pub(crate) fn read(&self, from: usize, until_ms: i64, batch: &mut SampleBatch) -> usize {
        let room = model::SAMPLE_BATCH_LEN - batch.len;
        let count = self.count_until(from, until_ms).min(room);
        let out = batch.len..batch.len + count;
        self.times.read(self.min_ms, from, &mut batch.timestamps[out.clone()]);
        self.read_values(from, &mut batch.values[out]);
        let start = batch.len;
        batch.len += count;
        if let Some(starts) = &self.starts {
            starts.push_to(from..from + count, start, &mut batch.starts);
        }
        if let Times::Even { step_ms } = self.times {
            batch.note_even(start, step_ms);
        }
        count
    }

    /// Like [`Column::read`], but skips samples outside of all windows where that pays off.
    ///
    /// Returns the number of samples that were appended or skipped; all remaining ones if no window
    /// has any.
    #[inline]
    pub(crate) fn read_windows(
        &self,
        from: usize,
        until_ms: i64,
        windows: &StepRanges,
        batch: &mut SampleBatch,
    ) -> usize {
        let distances = i64::from(self.len).saturating_sub(1);
        let span_ms = self.max_ms.saturating_sub(self.min_ms);
        if windows.gap_ms().saturating_mul(distances) < span_ms.saturating_mul(GAP_MIN) {
            return self.read(from, until_ms, batch);
        }
        let mut at = from;
        while at < self.len() && !batch.is_full() {
            let time_ms = self.times.get(self.min_ms, at);
            if time_ms > until_ms {
                break;
            }
            let (after_ms, end_ms) = windows.from(time_ms);
            if time_ms <= after_ms {
                at += self.count_until(at, after_ms);
                continue;
            }
            let end_ms = end_ms.min(until_ms);
            if windows.only_newest() {
                at += self.count_until(at, end_ms);
                let start = batch.len;
                if let Some(starts) = &self.starts {
                    starts.push_to(at - 1..at, start, &mut batch.starts);
                }
                batch.push(self.times.get(self.min_ms, at - 1), self.value_or_marker(at - 1));
                batch.note_even(start, windows.step_ms());
            } else {
                at += self.read(at, end_ms, batch);
            }
        }
        at - from
    }

    /// Returns the progress of a cursor after `at` samples.
    #[inline]
    pub(crate) fn advance(&self, at: usize, batch: &SampleBatch) -> Advance {
        if at == self.len() {
            Advance::End
        } else if batch.is_full() {
            Advance::Full
        } else {
            Advance::Reached
        }
    }

    /// Appends all times and values. If start timestamps are known, appends them after those of all
    /// earlier samples, of which missing ones become 0.
    pub(crate) fn unpack(
        &self,
        timestamps: &mut Vec<i64>,
        values: &mut Vec<f64>,
        known_starts: &mut Vec<i64>,
    ) {
        let start = timestamps.len();
        if let Some(starts) = &self.starts {
            starts.push_to(0..self.len(), start, known_starts);
        }
        timestamps.resize(start + self.len(), 0);
        values.resize(start + self.len(), 0.0);
        self.times.read(self.min_ms, 0, &mut timestamps[start..]);
        self.read_values(0, &mut values[start..]);
    }
}

/// Replaces staleness markers by the value before them, those at the start by the first value.
fn without_markers(values: &[f64]) -> Vec<f64> {
    let mut before = values.iter().copied().find(|value| !is_stale(*value)).unwrap_or(0.0);
    let replaced = values.iter().map(|value| {
        before = if is_stale(*value) { before } else { *value };
        before
    });
    replaced.collect()
}

fn falls(values: &[f64]) -> Option<Box<[u32]>> {
    let pairs = || values.windows(2);
    let count = pairs().map(|pair| usize::from(pair[1] < pair[0])).sum::<usize>();
    let listed = || (1..).zip(pairs()).filter(|(_, pair)| pair[1] < pair[0]).map(|(at, _)| at);
    (count <= values.len() / FALLS_SHARE + FALLS_MIN).then(|| match count {
        0 => Box::default(),
        _ => listed().collect(),
    })
}

impl Times {
    fn of(times: &[i64]) -> Times {
        let (min_ms, max_ms) = (times[0], times[times.len() - 1]);
        // Differences of such times do not overflow.
        let Some(span_ms) = max_ms.checked_sub(min_ms).filter(|span| *span < 1 << 40) else {
            return Times::Any(times.into());
        };
        let intervals = (times.len() - 1).max(1) as i64;
        // The mean is off by a fraction of a ms if only the last scrape was late.
        let middle = times.len() / 2;
        let candidates = [
            times.get(1).map_or(1, |second| second - min_ms),
            times.get(middle + 1).map_or(1, |next| next - times[middle]),
            (span_ms + intervals / 2) / intervals,
        ];
        for step_ms in candidates.into_iter().filter(|step| *step > 0) {
            if times.iter().zip(0..).all(|(time, at): (_, i64)| *time == min_ms + at * step_ms) {
                return Times::Even { step_ms };
            }
        }
        // Whole seconds first, as scrape intervals are.
        let mean_ms = candidates[2].max(1);
        let rounded_ms = (mean_ms + 500) / 1000 * 1000;
        for step_ms in [rounded_ms, mean_ms].into_iter().filter(|step| *step > 0) {
            let off = |(time, at): (&i64, i64)| i16::try_from(time - min_ms - at * step_ms).ok();
            if let Some(off_ms) = times.iter().zip(0..).map(off).collect::<Option<Box<[i16]>>>() {
                let off_min_ms = off_ms.iter().copied().min().unwrap_or(0);
                let off_max_ms = off_ms.iter().copied().max().unwrap_or(0);
                return Times::Near { step_ms, off_ms, off_min_ms, off_max_ms };
            }
        }
        if span_ms <= i64::from(u32::MAX) {
            Times::Offsets(times.iter().map(|time| (time - min_ms) as u32).collect())
        } else {
            Times::Any(times.into())
        }
    }

    #[inline]
    fn get(&self, min_ms: i64, at: usize) -> i64 {
        match self {
            Times::Even { step_ms } => min_ms + at as i64 * step_ms,
            Times::Near { step_ms, off_ms, .. } => {
                min_ms + at as i64 * step_ms + i64::from(off_ms[at])
            }
            Times::Offsets(offsets) => min_ms + i64::from(offsets[at]),
            Times::Any(times) => times[at],
        }
    }

    #[inline]
    fn read(&self, min_ms: i64, from: usize, out: &mut [i64]) {
        let range = from..from + out.len();
        match self {
            Times::Even { step_ms } => {
                let mut time_ms = min_ms + from as i64 * step_ms;
                for out in out {
                    *out = time_ms;
                    time_ms = time_ms.wrapping_add(*step_ms);
                }
            }
            Times::Near { step_ms, off_ms, .. } => {
                let mut time_ms = min_ms + from as i64 * step_ms;
                for (out, off_ms) in out.iter_mut().zip(&off_ms[range]) {
                    *out = time_ms + i64::from(*off_ms);
                    time_ms = time_ms.wrapping_add(*step_ms);
                }
            }
            Times::Offsets(offsets) => {
                for (out, offset) in out.iter_mut().zip(&offsets[range]) {
                    *out = min_ms + i64::from(*offset);
                }
            }
            Times::Any(times) => out.copy_from_slice(&times[range]),
        }
    }
}

impl Values {
    fn of(values: &[f64]) -> Values {
        Values::whole(values).unwrap_or_else(|| Values::Any(values.into()))
    }

    /// Packs the values as whole numbers divided by a power of ten, if all of them are.
    fn whole(values: &[f64]) -> Option<Values> {
        let mut digits = 0;
        let mut range: Option<(f64, f64)> = None;
        let mut at = 0;
        while at < values.len() {
            let Some(number) = whole_number(values[at], POWERS_OF_TEN[digits]) else {
                // With more decimal places, earlier values need not fit any more.
                digits += 1;
                (at, range) = (0, None);
                if digits > DIGITS_MAX {
                    return None;
                }
                continue;
            };
            let (min, max) = range.get_or_insert((number, number));
            (*min, *max) = (min.min(number), max.max(number));
            if *max - *min > f64::from(u32::MAX) {
                return None;
            }
            at += 1;
        }
        let (base, max) = range?;
        let power = POWERS_OF_TEN[digits];
        let above = |value: &f64| rounded(*value * power) - base;
        Some(if max - base <= f64::from(u16::MAX) {
            let above = values.iter().map(|value| above(value) as u16).collect();
            Values::Short { base, power, above }
        } else {
            let above = values.iter().map(|value| above(value) as u32).collect();
            Values::Long { base, power, above }
        })
    }

    #[inline]
    pub(super) fn get(&self, at: usize) -> f64 {
        match self {
            Values::Short { base, power, above } => (base + f64::from(above[at])) / power,
            Values::Long { base, power, above } => (base + f64::from(above[at])) / power,
            Values::Any(values) => values[at],
        }
    }

    /// Writes the values at some indices.
    #[inline]
    pub(super) fn gather(&self, found: &[usize], out: &mut [f64]) {
        let found = out.iter_mut().zip(found);
        match self {
            Values::Short { base, power, above } => {
                found.for_each(|(out, at)| *out = (base + f64::from(above[*at])) / power);
            }
            Values::Long { base, power, above } => {
                found.for_each(|(out, at)| *out = (base + f64::from(above[*at])) / power);
            }
            Values::Any(values) => found.for_each(|(out, at)| *out = values[*at]),
        }
    }

    #[inline]
    fn read(&self, from: usize, out: &mut [f64]) {
        let range = from..from + out.len();
        match self {
            Values::Short { base, power, above } => unpack(*base, *power, &above[range], out),
            Values::Long { base, power, above } => unpack(*base, *power, &above[range], out),
            Values::Any(values) => out.copy_from_slice(&values[range]),
        }
    }
}

fn unpack<T: Copy + Into<f64>>(base: f64, power: f64, above: &[T], out: &mut [f64]) {
    unpack_strided(base, power, above, 1, out);
}

/// Unpacks the first number, and then every `stride`th.
#[inline]
pub(super) fn unpack_strided<T: Copy + Into<f64>>(
    base: f64,
    power: f64,
    above: &[T],
    stride: usize,
    out: &mut [f64],
) {
    if power == 1.0 {
        read_strided(above, stride, out, |above| base + above.into());
    } else {
        read_strided(above, stride, out, |above| (base + above.into()) / power);
    }
}

/// Reads the first element, and then every `stride`th.
#[inline]
pub(super) fn read_strided<T: Copy>(
    all: &[T],
    stride: usize,
    out: &mut [f64],
    read: impl Fn(T) -> f64 + Copy,
) {
    match stride {
        1 => widest(|| out.iter_mut().zip(all).for_each(|(out, from)| *out = read(*from))),
        2 => read_chunked::<2, T>(all, out, read),
        4 => read_chunked::<4, T>(all, out, read),
        _ => {
            let seen = all.iter().step_by(stride);
            out.iter_mut().zip(seen).for_each(|(out, from)| *out = read(*from));
        }
    }
}

/// Reads every `STRIDE`th element. A constant stride is vectorized.
#[inline]
fn read_chunked<const STRIDE: usize, T: Copy>(
    all: &[T],
    out: &mut [f64],
    read: impl Fn(T) -> f64 + Copy,
) {
    let (chunks, rest) = all.as_chunks::<STRIDE>();
    let (whole, last) = out.split_at_mut(out.len().min(chunks.len()));
    widest(|| whole.iter_mut().zip(chunks).for_each(|(out, chunk)| *out = read(chunk[0])));
    last.iter_mut().zip(rest).for_each(|(out, from)| *out = read(*from));
}

/// Returns the whole number that yields exactly this value when divided by a power of ten.
#[inline]
fn whole_number(value: f64, power: f64) -> Option<f64> {
    let number = rounded(value * power);
    // Adding 0 turns −0 into 0, as unpacking does.
    let is_exact =
        number.abs() <= WHOLE_MAX && ((number + 0.0) / power).to_bits() == value.to_bits();
    is_exact.then_some(number + 0.0)
}

/// Rounds a number up to [`WHOLE_MAX`].
#[inline]
fn rounded(number: f64) -> f64 {
    (number + ROUNDER) - ROUNDER
}
