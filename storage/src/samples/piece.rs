//! Floats of one part of a series in memory, as columns or tails have them.

use std::ops::Range;

use model::{LookupSteps, TimeRange, is_stale};

use super::columns::{Column, FoundSamples, Stretch, WholeSum, extreme_of};
use super::part::Part;

/// Maximum number of floats that are few.
const FEW: usize = 128;

/// Consecutive floats of one part without staleness markers, times ascending; at least one.
#[derive(Clone, Copy)]
pub(super) enum Piece<'a> {
    Column(ColumnPiece<'a>),
    Tail(&'a [(i64, f64)]),
}

/// Stretch of a column.
#[derive(Clone, Copy)]
pub(super) struct ColumnPiece<'a> {
    column: &'a Column,
    stretch: Stretch,
    /// Time of the first sample.
    first_ms: i64,
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
            _ => part.raw().is_some_and(|samples| Piece::each_of_tail(samples, visit)),
        }
    }

    /// Calls `visit` with each piece of a column like [`Piece::each_of`].
    #[inline]
    pub(super) fn each_of_column(
        column: &'a Column,
        times: TimeRange,
        mut visit: impl FnMut(usize, Piece<'a>),
    ) -> bool {
        column.each_stretch(times, |stretch| {
            let first_ms = column.time(stretch.start);
            visit(stretch.start, Piece::Column(ColumnPiece { column, stretch, first_ms }));
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
            Piece::Column(piece) => piece.stretch.len(),
            Piece::Tail(samples) => samples.len(),
        }
    }

    #[inline]
    pub(super) fn time(&self, at: usize) -> i64 {
        match self {
            Piece::Column(piece) => piece.time(at),
            Piece::Tail(samples) => samples[at].0,
        }
    }

    #[inline]
    pub(super) fn value(&self, at: usize) -> f64 {
        match self {
            Piece::Column(piece) => piece.column.value(piece.stretch.start + at),
            Piece::Tail(samples) => samples[at].1,
        }
    }

    /// Returns the number of samples from index `from` on that are not later than `until_ms`.
    #[inline]
    pub(super) fn count_until(&self, from: usize, until_ms: i64) -> usize {
        match self {
            Piece::Column(piece) => piece.count_until(from, until_ms),
            Piece::Tail(samples) => {
                samples[from..].iter().take_while(|(time_ms, _)| *time_ms <= until_ms).count()
            }
        }
    }

    /// Finds the newest sample up to each step, or the one `ahead` samples later. No step is before
    /// the first sample, and no sample after the last one is found.
    #[inline]
    pub(super) fn find(&self, steps: LookupSteps, ahead: usize, found: &mut FoundSamples<'_>) {
        match self {
            Piece::Column(ColumnPiece { column, stretch, .. }) => {
                column.find(*stretch, steps, ahead, found);
                found.at.iter_mut().for_each(|at| *at -= stretch.start);
            }
            Piece::Tail(samples) => {
                let mut newest = 0;
                let FoundSamples { at, times_ms, values } = found;
                for (step, at) in at.iter_mut().enumerate() {
                    let later = samples[newest + 1..].iter();
                    newest += later.take_while(|sample| sample.0 <= steps.time(step)).count();
                    *at = newest + ahead;
                    (times_ms[step], values[step]) = samples[*at];
                }
            }
        }
    }

    /// Returns whether values are packed, or few.
    pub(super) fn is_packed(&self) -> bool {
        match self {
            Piece::Column(piece) => piece.column.is_packed(),
            Piece::Tail(samples) => samples.len() <= FEW,
        }
    }

    /// Returns the distance of the samples if they are evenly spaced; `before_ms` is the distance
    /// in the previous part, which a single sample continues.
    pub(super) fn even_step_ms(&self, before_ms: Option<i64>) -> Option<i64> {
        match self {
            _ if self.len() == 1 => before_ms,
            Piece::Column(piece) => piece.stretch.step_ms,
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
            Piece::Column(piece) => {
                piece.column.read_strided(piece.stretch.start + first, stride, out);
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
            Piece::Column(piece) => {
                let start = piece.stretch.start;
                let Some(falls) = piece.column.falls() else { return false };
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
            Piece::Column(piece) => piece.column.extreme(piece.in_column(range), is_max),
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
            Piece::Column(piece) => {
                let first = piece.in_column(first);
                piece.column.moving_extremes(first, stride, is_max, out)
            }
            Piece::Tail(_) => false,
        }
    }

    /// Writes the sum of a range to `out`, and then of each range `stride` samples later. Returns
    /// false, without effect, if there is no faster method than range by range.
    #[inline]
    pub(super) fn moving_sums(&self, first: Range<usize>, stride: usize, out: &mut [f64]) -> bool {
        match self {
            Piece::Column(piece) => piece.column.moving_sums(piece.in_column(first), stride, out),
            Piece::Tail(_) => false,
        }
    }

    /// Returns the sum of the values in a range if it is known to be exact.
    #[inline]
    pub(super) fn whole_sum(&self, range: Range<usize>) -> Option<WholeSum> {
        match self {
            Piece::Column(piece) => piece.column.whole_sum(piece.in_column(range)),
            Piece::Tail(samples) => samples[range]
                .iter()
                .try_fold(WholeSum::default(), |sum, (_, value)| sum.plus(WholeSum::of(*value)?)),
        }
    }
}

impl ColumnPiece<'_> {
    #[inline]
    fn in_column(&self, range: Range<usize>) -> Range<usize> {
        self.stretch.start + range.start..self.stretch.start + range.end
    }

    #[inline]
    fn time(&self, at: usize) -> i64 {
        match self.stretch.step_ms {
            Some(step_ms) => self.first_ms + at as i64 * step_ms,
            None => self.column.time(self.stretch.start + at),
        }
    }

    #[inline]
    fn count_until(&self, from: usize, until_ms: i64) -> usize {
        let len = self.stretch.len();
        let until = match self.stretch.step_ms {
            _ if until_ms < self.first_ms => 0,
            Some(step_ms) if step_ms > 0 => {
                let passed = (until_ms.saturating_sub(self.first_ms) / step_ms) as usize;
                passed.saturating_add(1).min(len)
            }
            _ => {
                let at = self.stretch.start + from;
                return self.column.count_until(at, until_ms).min(len - from);
            }
        };
        until.saturating_sub(from)
    }
}
