//! Extremes of values, from the packed numbers: of one range, and of ranges the same distance apart.
//!
//! Ranges that overlap share their samples. They are computed together, one sample of each at a
//! time, so that neighbouring ranges are neighbouring lanes of a vector:
//!
//! ```text
//! numbers    a b c d e f g h
//! ranges    [a b c]              max(a, b, c)
//!             [b c d]            max(b, c, d)
//!               [c d e]          max(c, d, e)
//! pass       1 2 3
//! ```

use std::ops::Range;

use model::widest;

use super::column::Column;
use super::packed::Values;

/// Number of ranges that are computed together.
const RANGES_AT_ONCE: usize = 64;

impl Column {
    /// Returns the extreme of some values, at least one, without NaN: the first of those that are
    /// equal. `None` if all are NaN.
    #[inline]
    pub(crate) fn extreme(&self, range: Range<usize>, is_max: bool) -> Option<f64> {
        match self.values() {
            Values::Short { base, power, above } => {
                Some((base + f64::from(extreme(&above[range], is_max))) / power)
            }
            Values::Long { base, power, above } => {
                Some((base + f64::from(extreme(&above[range], is_max))) / power)
            }
            Values::Any(values) => extreme_of(values[range].iter().copied(), is_max),
        }
    }

    /// Writes the extreme of a range to `out`, and then of each range `stride` samples later. Returns
    /// false, without effect, if there is no faster method than range by range.
    pub(crate) fn moving_extremes(
        &self,
        first: Range<usize>,
        stride: usize,
        is_max: bool,
        out: &mut [f64],
    ) -> bool {
        match self.values() {
            Values::Short { base, power, above } => {
                let unpack = |above| (base + f64::from(above)) / power;
                moving(&above[first.start..], first.len(), stride, is_max, out, unpack)
            }
            Values::Long { base, power, above } => {
                let unpack = |above| (base + f64::from(above)) / power;
                moving(&above[first.start..], first.len(), stride, is_max, out, unpack)
            }
            Values::Any(_) => false,
        }
    }
}

fn moving<T: Copy + Ord + Default>(
    above: &[T],
    len: usize,
    stride: usize,
    is_max: bool,
    out: &mut [f64],
    unpack: impl Fn(T) -> f64,
) -> bool {
    match (stride, is_max) {
        (1, false) => move_by::<1, T>(above, len, T::min, out, unpack),
        (2, false) => move_by::<2, T>(above, len, T::min, out, unpack),
        (4, false) => move_by::<4, T>(above, len, T::min, out, unpack),
        (1, true) => move_by::<1, T>(above, len, T::max, out, unpack),
        (2, true) => move_by::<2, T>(above, len, T::max, out, unpack),
        (4, true) => move_by::<4, T>(above, len, T::max, out, unpack),
        _ => return false,
    }
    true
}

fn move_by<const STRIDE: usize, T: Copy + Default>(
    above: &[T],
    len: usize,
    best_of: impl Fn(T, T) -> T,
    out: &mut [f64],
    unpack: impl Fn(T) -> f64,
) {
    for (index, out) in out.chunks_mut(RANGES_AT_ONCE).enumerate() {
        let above = &above[index * RANGES_AT_ONCE * STRIDE..];
        widest(
            #[inline(always)]
            || {
                let mut best = [T::default(); RANGES_AT_ONCE];
                let best = &mut best[..out.len()];
                fold_strided::<STRIDE, T>(best, above, |_, value| value);
                for at in 1..len {
                    fold_strided::<STRIDE, T>(best, &above[at..], &best_of);
                }
                for (out, best) in out.iter_mut().zip(best) {
                    *out = unpack(*best);
                }
            },
        );
    }
}

/// Folds every `STRIDE`th number into one element each.
#[inline(always)]
fn fold_strided<const STRIDE: usize, T: Copy>(
    folded: &mut [T],
    numbers: &[T],
    fold: impl Fn(T, T) -> T,
) {
    let (chunks, rest) = numbers.as_chunks::<STRIDE>();
    for (folded, chunk) in folded.iter_mut().zip(chunks) {
        *folded = fold(*folded, chunk[0]);
    }
    if let (Some(folded), Some(number)) = (folded.get_mut(chunks.len()), rest.first()) {
        *folded = fold(*folded, *number);
    }
}

#[inline]
fn extreme<T: Copy + Ord>(above: &[T], is_max: bool) -> T {
    let first = above[0];
    let rest = above.iter().copied();
    widest(
        #[inline(always)]
        || if is_max { rest.fold(first, T::max) } else { rest.fold(first, T::min) },
    )
}

/// Returns the first of the extreme values; `None` if all are NaN.
#[inline]
pub(crate) fn extreme_of(values: impl Iterator<Item = f64>, is_max: bool) -> Option<f64> {
    let beats = |value: f64, best: f64| if is_max { value > best } else { value < best };
    values.filter(|value| !value.is_nan()).reduce(
        |best, value| {
            if beats(value, best) { value } else { best }
        },
    )
}
