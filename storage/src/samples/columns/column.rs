//! Decoded floats of one run of a series.
//!
//! Times and values are [packed](super::packed). Staleness markers are listed, and packed as the value
//! before them. This format is used in memory only; chunks are stored.

use std::borrow::Cow;

use model::{
    Advance, SampleBatch, StepRanges, TimeRange, is_any_stale, is_stale, prefetch, stale_nan,
};

use super::packed::{Times, Values};
use super::starts::Starts;
use super::stretches::{Stretch, Stretches};

/// Skipping fewer samples between two windows costs more than handing them over.
const GAP_MIN: i64 = 16;
/// The decreases of values are listed up to this share of the samples, and a few more.
const FALLS_SHARE: usize = 16;
const FALLS_MIN: usize = 4;
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
