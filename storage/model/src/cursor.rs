//! Forward-only cursor over the samples of one series, a batch at a time.

use crate::error::SourceError;
use crate::histogram::HistogramSample;
use crate::windows::{FilledWindows, WantedFact, WindowFacts, Windows};

/// Maximum number of floats in a batch.
pub const SAMPLE_BATCH_LEN: usize = 512;
/// Maximum number of histograms in a batch.
pub const HISTOGRAM_BATCH_LEN: usize = 64;

/// Samples of one series: floats in two arrays, of which the first `len` are valid, and histograms.
///
/// Units: timestamps in ms since the epoch.
/// Invariant: timestamps strictly ascend, among floats, among histograms and of both together.
pub struct SampleBatch {
    /// Number of valid floats.
    pub len: usize,
    /// Number of floats at the front that are known to be evenly spaced. Adding a float does not
    /// change it: all are even where it equals `len`.
    pub even_len: usize,
    /// Distance of these floats; above 0 if there are any.
    pub even_step_ms: i64,
    /// Times of the floats.
    pub timestamps: [i64; SAMPLE_BATCH_LEN],
    /// Values of the floats, including staleness markers.
    pub values: [f64; SAMPLE_BATCH_LEN],
    /// Start timestamps of the first floats, 0 if unknown. May be shorter than `len`, and is mostly
    /// empty: missing ones are 0.
    pub starts: Vec<i64>,
    /// Native histograms, at most [`HISTOGRAM_BATCH_LEN`].
    pub histograms: Vec<HistogramSample>,
}

impl SampleBatch {
    /// Returns an empty batch, on the heap because it has 8 KiB.
    pub fn new() -> Box<SampleBatch> {
        Box::new(SampleBatch {
            len: 0,
            even_len: 0,
            even_step_ms: 0,
            timestamps: [0; SAMPLE_BATCH_LEN],
            values: [0.0; SAMPLE_BATCH_LEN],
            starts: Vec::new(),
            histograms: Vec::new(),
        })
    }

    /// Removes all samples.
    #[inline]
    pub fn clear(&mut self) {
        self.len = 0;
        self.even_len = 0;
        self.starts.clear();
        self.histograms.clear();
    }

    /// Returns whether no further sample fits.
    #[inline]
    pub fn is_full(&self) -> bool {
        self.len == SAMPLE_BATCH_LEN || self.histograms.len() >= HISTOGRAM_BATCH_LEN
    }

    /// Returns the number of samples, floats and histograms.
    #[inline]
    pub fn sample_count(&self) -> usize {
        self.len + self.histograms.len()
    }

    /// Adds one float.
    ///
    /// Panics: the batch is full.
    #[inline]
    pub fn push(&mut self, timestamp_ms: i64, value: f64) {
        self.timestamps[self.len] = timestamp_ms;
        self.values[self.len] = value;
        self.len += 1;
    }

    /// Adds one float with a start timestamp, 0 if unknown.
    ///
    /// Panics: the batch is full.
    #[inline]
    pub fn push_with_start(&mut self, timestamp_ms: i64, value: f64, start_ms: i64) {
        if start_ms != 0 {
            self.starts.resize(self.len, 0);
            self.starts.push(start_ms);
        }
        self.push(timestamp_ms, value);
    }

    /// Notes that the floats from index `from` on are evenly spaced.
    #[inline]
    pub fn note_even(&mut self, from: usize, step_ms: i64) {
        let goes_on = self.even_len == from
            && from > 0
            && step_ms == self.even_step_ms
            && from < self.len
            && self.timestamps[from] - self.timestamps[from - 1] == step_ms;
        if from == 0 || goes_on {
            (self.even_len, self.even_step_ms) = (self.len, step_ms);
        }
    }

    /// Returns the distance of the floats if all are known to be evenly spaced.
    #[inline]
    pub fn even_step_ms(&self) -> Option<i64> {
        (self.even_len == self.len && self.len > 0).then_some(self.even_step_ms)
    }

    /// Returns the start timestamp of a float, 0 if unknown.
    #[inline]
    pub fn start(&self, index: usize) -> i64 {
        self.starts.get(index).copied().unwrap_or(0)
    }

    /// Returns times and values of the floats.
    #[inline]
    pub fn samples(&self) -> (&[i64], &[f64]) {
        (&self.timestamps[..self.len], &self.values[..self.len])
    }
}

/// Reason why a call to [`Cursor::next_batch`] returned.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Advance {
    /// The batch is full; there may be more samples up to the bound.
    Full,
    /// All samples up to the bound were returned; later ones may follow.
    Reached,
    /// The series has no more samples in the selected range.
    End,
}

/// Evenly spaced time ranges that a query reads: `(after_ms, after_ms + span_ms]`, the same a step
/// later, and so on without an end.
///
/// Units: ms since the epoch.
/// Invariant: consecutive ranges do not touch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StepRanges {
    after_ms: i64,
    span_ms: i64,
    step_ms: i64,
    only_newest: bool,
}

impl StepRanges {
    /// Returns ranges `span_ms` long; `None` without a gap between them. With `only_newest`, only
    /// the newest sample of each range matters.
    pub fn new(after_ms: i64, span_ms: i64, step_ms: i64, only_newest: bool) -> Option<StepRanges> {
        (span_ms >= 1 && step_ms > span_ms).then_some(StepRanges {
            after_ms,
            span_ms,
            step_ms,
            only_newest,
        })
    }

    /// Returns the first range that ends at a time or later: its start, which is exclusive, and its
    /// end.
    #[inline]
    pub fn from(&self, time_ms: i64) -> (i64, i64) {
        let first_end_ms = self.after_ms.saturating_add(self.span_ms);
        if time_ms <= first_end_ms {
            return (self.after_ms, first_end_ms);
        }
        let passed_ms = time_ms.saturating_sub(first_end_ms) - 1;
        let moved_ms = (passed_ms / self.step_ms + 1).saturating_mul(self.step_ms);
        let after_ms = self.after_ms.saturating_add(moved_ms);
        (after_ms, after_ms.saturating_add(self.span_ms))
    }

    /// Returns the distance of the ranges.
    #[inline]
    pub fn step_ms(&self) -> i64 {
        self.step_ms
    }

    /// Returns the duration of the gap between two ranges.
    #[inline]
    pub fn gap_ms(&self) -> i64 {
        self.step_ms - self.span_ms
    }

    /// Returns whether only the newest sample of each range matters.
    #[inline]
    pub fn only_newest(&self) -> bool {
        self.only_newest
    }
}

/// Forward-only cursor over the samples of one series in the selected range.
///
/// The caller reads up to a bound, then up to a later one. Between the calls the cursor keeps only
/// the state of the decoder, so that hundreds of cursors fit in L2.
pub trait Cursor: Send {
    /// Appends the next samples with `timestamp <= until_ms` to `batch`, in ascending order, until
    /// the batch is full or the bound is reached. Bounds never decrease. All samples of one call,
    /// floats and histograms, are earlier than those of the next.
    ///
    /// Errors: damaged bytes, with the series.
    fn next_batch(
        &mut self,
        until_ms: i64,
        batch: &mut SampleBatch,
    ) -> Result<Advance, SourceError>;

    /// Restricts the cursor, before the first batch, to floats in ranges. Floats outside may be omitted,
    /// and with `only_newest` also those that are not the newest of a range in a batch. Histograms are
    /// never omitted.
    ///
    /// Does nothing by default.
    fn restrict_to(&mut self, _ranges: StepRanges) {}

    /// Prefetches the next samples into the CPU cache, for a read of the n-th cursor after the
    /// current one.
    ///
    /// Does nothing by default.
    fn prefetch(&self, _ahead: usize) {}

    /// Writes the newest value up to each step to `out`, for as many of the first steps as the cursor
    /// can answer without decoding a batch. For steps that have none within the lookback, and for those that
    /// see a staleness marker, it writes a staleness marker. The cursor then goes on after the
    /// samples up to the last of these steps. The steps are later than all samples that were read.
    ///
    /// Does nothing by default.
    ///
    /// Errors: as for [`Cursor::next_batch`].
    fn fill_steps(
        &mut self,
        _steps: LookupSteps,
        _out: &mut [f64],
    ) -> Result<FilledSteps, SourceError> {
        Ok(FilledSteps::default())
    }

    /// Writes facts of the first windows, at least one of which exists, for as many as the cursor
    /// knows at once without a batch. The cursor then goes on after the start of the next window; a
    /// restriction to ranges still holds. No sample inside of the windows was read before.
    ///
    /// Does nothing by default.
    ///
    /// Errors: as for [`Cursor::next_batch`].
    fn fill_windows(
        &mut self,
        _windows: Windows,
        _wanted: WantedFact,
        _facts: &mut WindowFacts,
    ) -> Result<FilledWindows, SourceError> {
        Ok(FilledWindows::default())
    }
}

/// Evenly spaced times, at each of which the newest sample of a series is looked up.
///
/// Units: ms since the epoch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LookupSteps {
    /// Time of the first step.
    pub first_ms: i64,
    /// Distance of steps; 0 if all are at one time.
    pub step_ms: i64,
    /// Age from which a sample is too old.
    pub lookback_ms: i64,
}

impl LookupSteps {
    /// Returns the time of a step.
    #[inline]
    pub fn time(&self, step: usize) -> i64 {
        self.first_ms + step as i64 * self.step_ms
    }

    /// Returns the steps from a step on.
    #[inline]
    #[must_use]
    pub fn from(&self, step: usize) -> LookupSteps {
        LookupSteps { first_ms: self.time(step), ..*self }
    }

    /// Returns the number of steps up to a time; the maximum if it is not limited.
    #[inline]
    pub fn count_until(&self, until_ms: i64) -> usize {
        if until_ms < self.first_ms {
            return 0;
        }
        if self.step_ms == 0 {
            return usize::MAX;
        }
        let passed_ms = until_ms.saturating_sub(self.first_ms);
        usize::try_from(passed_ms / self.step_ms)
            .map_or(usize::MAX, |count| count.saturating_add(1))
    }
}

/// Steps written by [`Cursor::fill_steps`].
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct FilledSteps {
    /// Number of steps.
    pub steps: usize,
    /// Number of samples that the cursor went past.
    pub samples: usize,
    /// Time of the newest sample up to the last step, if there is any step.
    pub newest_ms: i64,
    /// Value of that sample, which may be a staleness marker.
    pub newest: f64,
    /// True if no step has a staleness marker.
    pub are_all_seen: bool,
}

/// Cursor over decoded samples.
pub struct SliceCursor<'a> {
    timestamps: &'a [i64],
    values: &'a [f64],
    ranges: Option<StepRanges>,
}

impl<'a> SliceCursor<'a> {
    /// Returns a cursor over two slices of equal length, times ascending.
    pub fn new(timestamps: &'a [i64], values: &'a [f64]) -> SliceCursor<'a> {
        assert_eq!(timestamps.len(), values.len());
        SliceCursor { timestamps, values, ranges: None }
    }

    /// Appends only the samples in ranges.
    fn next_in_ranges(
        &mut self,
        ranges: StepRanges,
        until_ms: i64,
        batch: &mut SampleBatch,
    ) -> Advance {
        while let [time_ms, ..] = *self.timestamps
            && time_ms <= until_ms
        {
            let (after_ms, end_ms) = ranges.from(time_ms);
            let seen = |time_ms: i64| time_ms > after_ms && time_ms <= end_ms.min(until_ms);
            if batch.is_full() {
                return Advance::Full;
            }
            let is_newer = self.timestamps.get(1).is_some_and(|next_ms| seen(*next_ms));
            if seen(time_ms) && !(ranges.only_newest && is_newer) {
                batch.push(time_ms, self.values[0]);
            }
            (self.timestamps, self.values) = (&self.timestamps[1..], &self.values[1..]);
        }
        if self.timestamps.is_empty() { Advance::End } else { Advance::Reached }
    }
}

impl Cursor for SliceCursor<'_> {
    fn next_batch(
        &mut self,
        until_ms: i64,
        batch: &mut SampleBatch,
    ) -> Result<Advance, SourceError> {
        if let Some(ranges) = self.ranges {
            return Ok(self.next_in_ranges(ranges, until_ms, batch));
        }
        let room = SAMPLE_BATCH_LEN - batch.len;
        let window = &self.timestamps[..room.min(self.timestamps.len())];
        let take = window.partition_point(|t| *t <= until_ms);
        batch.timestamps[batch.len..batch.len + take].copy_from_slice(&self.timestamps[..take]);
        batch.values[batch.len..batch.len + take].copy_from_slice(&self.values[..take]);
        batch.len += take;
        let taken = &self.timestamps[..take];
        if let [first, second, ..] = taken
            && taken.windows(2).all(|pair| pair[1] - pair[0] == second - first)
        {
            batch.note_even(batch.len - take, second - first);
        }
        self.timestamps = &self.timestamps[take..];
        self.values = &self.values[take..];
        Ok(if self.timestamps.is_empty() {
            Advance::End
        } else if batch.is_full() {
            Advance::Full
        } else {
            Advance::Reached
        })
    }

    fn restrict_to(&mut self, ranges: StepRanges) {
        self.ranges = Some(ranges);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_found_from_any_time() {
        let ranges = StepRanges::new(100, 5, 20, false).unwrap();
        let cases = [
            (i64::MIN, (100, 105)),
            (100, (100, 105)),
            (105, (100, 105)),
            (106, (120, 125)),
            (120, (120, 125)),
            (125, (120, 125)),
            (126, (140, 145)),
        ];
        for (time_ms, expected) in cases {
            assert_eq!(ranges.from(time_ms), expected, "{time_ms}");
        }
        assert_eq!(ranges.from(i64::MAX).1, i64::MAX);
        assert_eq!(StepRanges::new(0, 20, 20, false), None);
        assert_eq!(StepRanges::new(0, 0, 20, false), None);
    }

    #[test]
    fn slice_cursor_leaves_out_what_no_window_sees() {
        let timestamps: Vec<i64> = (0..100).collect();
        let values: Vec<f64> = timestamps.iter().map(|t| *t as f64).collect();
        let check = |only_newest: bool, bounds: &[i64], expected: &[i64]| {
            let mut cursor = SliceCursor::new(&timestamps, &values);
            cursor.restrict_to(StepRanges::new(7, 3, 40, only_newest).unwrap());
            let mut batch = SampleBatch::new();
            for bound in bounds {
                cursor.next_batch(*bound, &mut batch).unwrap();
            }
            assert_eq!(batch.samples().0, expected, "{only_newest} {bounds:?}");
        };
        check(false, &[i64::MAX], &[8, 9, 10, 48, 49, 50, 88, 89, 90]);
        check(false, &[9, 48, 200], &[8, 9, 10, 48, 49, 50, 88, 89, 90]);
        check(true, &[i64::MAX], &[10, 50, 90]);
        check(true, &[49, 200], &[10, 49, 50, 90]);
    }

    #[test]
    fn slice_cursor_stops_at_the_bound_and_at_a_full_batch() {
        let timestamps: Vec<i64> = (0..1000).collect();
        let values: Vec<f64> = timestamps.iter().map(|t| *t as f64).collect();
        let mut cursor = SliceCursor::new(&timestamps, &values);
        let mut batch = SampleBatch::new();
        assert_eq!(cursor.next_batch(9, &mut batch).unwrap(), Advance::Reached);
        assert_eq!(batch.len, 10);
        assert_eq!(cursor.next_batch(9, &mut batch).unwrap(), Advance::Reached);
        assert_eq!(batch.len, 10);
        assert_eq!(cursor.next_batch(5000, &mut batch).unwrap(), Advance::Full);
        assert_eq!(batch.len, 512);
        batch.clear();
        assert_eq!(cursor.next_batch(5000, &mut batch).unwrap(), Advance::End);
        assert_eq!(batch.samples().0.last(), Some(&999));
        assert_eq!(cursor.next_batch(5000, &mut batch).unwrap(), Advance::End);
    }
}
