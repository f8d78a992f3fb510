//! Floats of one part of a series in memory, as columns or tails have them.

use std::ops::Range;

use model::{TimeRange, is_stale};

use super::columns::{Column, WholeSum, extreme_of};
use super::part::Part;

/// Consecutive floats of one part without staleness markers, times ascending; at least one.
#[derive(Clone, Copy)]
pub(super) enum Piece<'a> {
    Column(Stretch<'a>),
    Tail(&'a [(i64, f64)]),
}

/// Samples of a column.
#[derive(Clone, Copy)]
pub(super) struct Stretch<'a> {
    column: &'a Column,
    start: usize,
    len: usize,
    first_ms: i64,
    /// Distance of the samples if they are evenly spaced.
    step_ms: Option<i64>,
}

impl<'a> Piece<'a> {
    /// Calls `visit` with each piece of a part that may have samples in a range of time, and the index
    /// of its first sample. Returns false, without effect, if the floats are not in memory or have
    /// too many staleness markers.
    pub(super) fn each_of(
        part: &'a Part,
        times: TimeRange,
        visit: impl FnMut(usize, Piece<'a>),
    ) -> bool {
        match part {
            Part::Column(column) => Piece::each_of_column(column, times, visit),
            Part::Tail(tail) => Piece::each_of_tail(tail.samples(), visit),
            _ => false,
        }
    }

    /// Calls `visit` with each piece of a column like [`Piece::each_of`].
    #[inline]
    pub(super) fn each_of_column(
        column: &'a Column,
        times: TimeRange,
        mut visit: impl FnMut(usize, Piece<'a>),
    ) -> bool {
        column.each_stretch(times, |Range { start, end }, step_ms| {
            let (len, first_ms) = (end - start, column.time(start));
            visit(start, Piece::Column(Stretch { column, start, len, first_ms, step_ms }));
        })
    }

    fn each_of_tail(samples: &'a [(i64, f64)], mut visit: impl FnMut(usize, Piece<'a>)) -> bool {
        let mut start = 0;
        for piece in samples.split(|(_, value)| is_stale(*value)) {
            if !piece.is_empty() {
                visit(start, Piece::Tail(piece));
            }
            start += piece.len() + 1;
        }
        true
    }

    #[inline]
    pub(super) fn len(&self) -> usize {
        match self {
            Piece::Column(stretch) => stretch.len,
            Piece::Tail(samples) => samples.len(),
        }
    }

    #[inline]
    pub(super) fn time(&self, at: usize) -> i64 {
        match self {
            Piece::Column(stretch) => stretch.time(at),
            Piece::Tail(samples) => samples[at].0,
        }
    }

    #[inline]
    pub(super) fn value(&self, at: usize) -> f64 {
        match self {
            Piece::Column(Stretch { column, start, .. }) => column.value(start + at),
            Piece::Tail(samples) => samples[at].1,
        }
    }

    /// Returns the number of samples from index `from` on that are not later than `until_ms`.
    #[inline]
    pub(super) fn count_until(&self, from: usize, until_ms: i64) -> usize {
        match self {
            Piece::Column(stretch) => stretch.count_until(from, until_ms),
            Piece::Tail(samples) => {
                samples[from..].iter().take_while(|(time_ms, _)| *time_ms <= until_ms).count()
            }
        }
    }

    /// Returns whether values are packed, or few.
    pub(super) fn is_packed(&self) -> bool {
        match self {
            Piece::Column(stretch) => stretch.column.is_packed(),
            // Tails are short.
            Piece::Tail(_) => true,
        }
    }

    /// Returns the distance of the samples if they are evenly spaced; `before_ms` is the distance
    /// in the previous part, which a single sample continues.
    pub(super) fn even_step_ms(&self, before_ms: Option<i64>) -> Option<i64> {
        match self {
            _ if self.len() == 1 => before_ms,
            Piece::Column(stretch) => stretch.step_ms,
            Piece::Tail(samples) => {
                let step_ms = samples[1].0 - samples[0].0;
                samples.windows(2).all(|pair| pair[1].0 - pair[0].0 == step_ms).then_some(step_ms)
            }
        }
    }

    /// Writes the value at an index to `out`, and then every `stride`th.
    #[inline]
    pub(super) fn read_strided(&self, first: usize, stride: usize, out: &mut [f64]) {
        match self {
            Piece::Column(Stretch { column, start, .. }) => {
                column.read_strided(start + first, stride, out);
            }
            Piece::Tail(samples) => {
                let seen = samples[first..].iter().step_by(stride);
                out.iter_mut().zip(seen).for_each(|(out, (_, value))| *out = *value);
            }
        }
    }

    /// Calls `push` with the indices in a range, ascending, of the values below the previous one in
    /// this part. Returns false if they are not known.
    #[inline]
    pub(super) fn each_fall(&self, range: Range<usize>, mut push: impl FnMut(usize)) -> bool {
        match self {
            Piece::Column(Stretch { column, start, .. }) => {
                let Some(falls) = column.falls() else { return false };
                let first = falls.partition_point(|at| (*at as usize) < start + range.start);
                let seen = falls[first..].iter().map(|at| *at as usize - start);
                seen.take_while(|at| *at < range.end).for_each(push);
            }
            Piece::Tail(samples) => {
                let range = range.start.max(1)..range.end;
                range.filter(|at| samples[*at].1 < samples[at - 1].1).for_each(&mut push);
            }
        }
        true
    }

    /// Returns the first of the extreme values in a range; `None` if all are NaN.
    #[inline]
    pub(super) fn extreme(&self, range: Range<usize>, is_max: bool) -> Option<f64> {
        match self {
            Piece::Column(stretch) => stretch.column.extreme(stretch.in_column(range), is_max),
            Piece::Tail(samples) => {
                extreme_of(samples[range].iter().map(|(_, value)| *value), is_max)
            }
        }
    }

    /// Writes the extreme of a range to `out`, and then of each range `stride` samples later. Returns
    /// false, without effect, if there is no faster method than range by range.
    #[inline]
    pub(super) fn moving_extremes(
        &self,
        first: Range<usize>,
        stride: usize,
        is_max: bool,
        out: &mut [f64],
    ) -> bool {
        match self {
            Piece::Column(stretch) => {
                let first = stretch.in_column(first);
                stretch.column.moving_extremes(first, stride, is_max, out)
            }
            Piece::Tail(_) => false,
        }
    }

    /// Writes the sum of a range to `out`, and then of each range `stride` samples later. Returns
    /// false, without effect, if there is no faster method than range by range.
    #[inline]
    pub(super) fn moving_sums(&self, first: Range<usize>, stride: usize, out: &mut [f64]) -> bool {
        match self {
            Piece::Column(stretch) => {
                stretch.column.moving_sums(stretch.in_column(first), stride, out)
            }
            Piece::Tail(_) => false,
        }
    }

    /// Returns the sum of the values in a range if it is known to be exact.
    #[inline]
    pub(super) fn whole_sum(&self, range: Range<usize>) -> Option<WholeSum> {
        match self {
            Piece::Column(stretch) => stretch.column.whole_sum(stretch.in_column(range)),
            Piece::Tail(samples) => samples[range]
                .iter()
                .try_fold(WholeSum::default(), |sum, (_, value)| sum.plus(WholeSum::of(*value)?)),
        }
    }
}

impl Stretch<'_> {
    #[inline]
    fn in_column(&self, range: Range<usize>) -> Range<usize> {
        self.start + range.start..self.start + range.end
    }

    #[inline]
    fn time(&self, at: usize) -> i64 {
        match self.step_ms {
            Some(step_ms) => self.first_ms + at as i64 * step_ms,
            None => self.column.time(self.start + at),
        }
    }

    #[inline]
    fn count_until(&self, from: usize, until_ms: i64) -> usize {
        let until = match self.step_ms {
            _ if until_ms < self.first_ms => 0,
            Some(step_ms) if step_ms > 0 => {
                let passed = (until_ms.saturating_sub(self.first_ms) / step_ms) as usize;
                passed.saturating_add(1).min(self.len)
            }
            _ => {
                let at = self.start + from;
                return self.column.count_until(at, until_ms).min(self.len - from);
            }
        };
        until.saturating_sub(from)
    }
}
