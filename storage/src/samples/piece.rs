//! Floats of one part of a series in memory, as columns or tails have them.

use std::ops::Range;

use model::is_stale;

use super::columns::{Column, WholeSum, extreme_of};
use super::part::Part;

/// Floats of one part, times ascending; at least one.
#[derive(Clone, Copy)]
pub(super) enum Piece<'a> {
    Column(&'a Column),
    Tail(&'a [(i64, f64)]),
}

impl<'a> Piece<'a> {
    /// Returns the floats of a part if they are in memory.
    pub(super) fn of(part: &'a Part) -> Option<Piece<'a>> {
        match part {
            Part::Column(column) => Some(Piece::Column(column)),
            Part::Tail(tail) => Some(Piece::Tail(tail.samples())),
            _ => None,
        }
    }

    /// Returns whether there are no staleness markers.
    pub(super) fn is_plain(&self) -> bool {
        match self {
            Piece::Column(column) => !column.has_stale(),
            Piece::Tail(samples) => !samples.iter().any(|(_, value)| is_stale(*value)),
        }
    }

    #[inline]
    pub(super) fn len(&self) -> usize {
        match self {
            Piece::Column(column) => column.len(),
            Piece::Tail(samples) => samples.len(),
        }
    }

    #[inline]
    pub(super) fn time(&self, at: usize) -> i64 {
        match self {
            Piece::Column(column) => column.time(at),
            Piece::Tail(samples) => samples[at].0,
        }
    }

    #[inline]
    pub(super) fn value(&self, at: usize) -> f64 {
        match self {
            Piece::Column(column) => column.value(at),
            Piece::Tail(samples) => samples[at].1,
        }
    }

    /// Returns the number of samples from index `from` on that are not later than `until_ms`.
    #[inline]
    pub(super) fn count_until(&self, from: usize, until_ms: i64) -> usize {
        match self {
            Piece::Column(column) => column.count_until(from, until_ms),
            Piece::Tail(samples) => {
                samples[from..].iter().take_while(|(time_ms, _)| *time_ms <= until_ms).count()
            }
        }
    }

    /// Returns the distance of the samples if they are evenly spaced; `before_ms` is the distance
    /// in the previous part, which a single sample continues.
    pub(super) fn even_step_ms(&self, before_ms: Option<i64>) -> Option<i64> {
        match self {
            _ if self.len() == 1 => before_ms,
            Piece::Column(column) => column.even_step_ms(),
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
            Piece::Column(column) => column.read_strided(first, stride, out),
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
            Piece::Column(column) => {
                let Some(falls) = column.falls() else { return false };
                let first = falls.partition_point(|at| (*at as usize) < range.start);
                let seen = falls[first..].iter().map(|at| *at as usize);
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
            Piece::Column(column) => column.extreme(range, is_max),
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
            Piece::Column(column) => column.moving_extremes(first, stride, is_max, out),
            Piece::Tail(_) => false,
        }
    }

    /// Writes the sum of a range to `out`, and then of each range `stride` samples later. Returns
    /// false, without effect, if there is no faster method than range by range.
    #[inline]
    pub(super) fn moving_sums(&self, first: Range<usize>, stride: usize, out: &mut [f64]) -> bool {
        match self {
            Piece::Column(column) => column.moving_sums(first, stride, out),
            Piece::Tail(_) => false,
        }
    }

    /// Returns the sum of the values in a range if it is known to be exact.
    #[inline]
    pub(super) fn whole_sum(&self, range: Range<usize>) -> Option<WholeSum> {
        match self {
            Piece::Column(column) => column.whole_sum(range),
            Piece::Tail(samples) => samples[range]
                .iter()
                .try_fold(WholeSum::default(), |sum, (_, value)| sum.plus(WholeSum::of(*value)?)),
        }
    }
}
