//! Values of a column by index: every n-th, and sums of many, from the packed numbers.

use std::ops::Range;

use super::column::Column;
use super::packed::{Times, Values, read_strided, unpack_strided};

/// Sums of whole numbers below this are exact in every order of additions.
const EXACT_MAX: f64 = (1_u64 << 53) as f64;

impl Column {
    /// Returns the distance of the samples if they are evenly spaced.
    #[inline]
    pub(crate) fn even_step_ms(&self) -> Option<i64> {
        match self.times() {
            Times::Even { step_ms } => Some(*step_ms),
            _ => None,
        }
    }

    /// Returns whether the values are packed as whole numbers.
    #[inline]
    pub(crate) fn is_packed(&self) -> bool {
        !matches!(self.values(), Values::Any(_))
    }

    /// Returns a value of a stretch.
    #[inline]
    pub(crate) fn value(&self, at: usize) -> f64 {
        self.values().get(at)
    }

    /// Writes the value at an index to `out`, and then every `stride`th, of a stretch.
    #[inline]
    pub(crate) fn read_strided(&self, first: usize, stride: usize, out: &mut [f64]) {
        match self.values() {
            Values::Short { base, power, above } => {
                unpack_strided(*base, *power, &above[first..], stride, out);
            }
            Values::Long { base, power, above } => {
                unpack_strided(*base, *power, &above[first..], stride, out);
            }
            Values::Any(values) => read_strided(&values[first..], stride, out, |value| value),
        }
    }

    /// Returns the sum of some values if it is exact in every order of additions; `None` if that is
    /// not known.
    #[inline]
    pub(crate) fn whole_sum(&self, range: Range<usize>) -> Option<WholeSum> {
        let count = range.len();
        let magnitude = self.exact_magnitude(count)?;
        let (base, above) = match self.values() {
            Values::Short { base, above, .. } => (*base, sum_of(&above[range])),
            Values::Long { base, above, .. } => (*base, sum_of(&above[range])),
            Values::Any(_) => return None,
        };
        Some(WholeSum { sum: base as i64 * count as i64 + above as i64, magnitude })
    }

    /// Writes the sum of a range to `out`, and then of each range `stride` samples later: the sum of
    /// whole numbers before it, with the samples that enter and without those that leave. Returns
    /// false, without effect, if ranges do not overlap or sums may depend on the order of additions.
    pub(crate) fn moving_sums(&self, first: Range<usize>, stride: usize, out: &mut [f64]) -> bool {
        let len = first.len();
        if stride >= len || self.exact_magnitude(len).is_none() {
            return false;
        }
        match self.values() {
            Values::Short { base, above, .. } => {
                move_sum(*base as i64 * len as i64, &above[first.start..], len, stride, out);
            }
            Values::Long { base, above, .. } => {
                move_sum(*base as i64 * len as i64, &above[first.start..], len, stride, out);
            }
            Values::Any(_) => return false,
        }
        true
    }

    /// Returns an upper bound of the sum of `count` absolute values if their sum is exact in every
    /// order of additions; `None` if that is not known.
    #[inline]
    fn exact_magnitude(&self, count: usize) -> Option<f64> {
        let (base, power, above_max) = match self.values() {
            Values::Short { base, power, .. } => (*base, *power, f64::from(u16::MAX)),
            Values::Long { base, power, .. } => (*base, *power, f64::from(u32::MAX)),
            Values::Any(_) => return None,
        };
        let magnitude = (base.abs() + above_max) * count as f64;
        (power == 1.0 && magnitude < EXACT_MAX).then_some(magnitude)
    }
}

#[inline]
fn sum_of<T: Copy + Into<u64>>(numbers: &[T]) -> u64 {
    numbers.iter().map(|number| (*number).into()).sum()
}

/// Writes `base` and the sum of the first `len` numbers, and then of those `stride` further.
fn move_sum<T: Copy + Into<u64>>(
    base: i64,
    numbers: &[T],
    len: usize,
    stride: usize,
    out: &mut [f64],
) {
    let Some((first, later)) = out.split_first_mut() else { return };
    let mut sum = base + sum_of(&numbers[..len]) as i64;
    *first = sum as f64;
    let entering = numbers[len..].chunks_exact(stride);
    for ((out, entering), leaving) in
        later.iter_mut().zip(entering).zip(numbers.chunks_exact(stride))
    {
        sum += sum_of(entering) as i64 - sum_of(leaving) as i64;
        *out = sum as f64;
    }
}

/// Sum of whole numbers that is exact in every order of additions.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct WholeSum {
    sum: i64,
    /// Upper bound of the sum of absolute values.
    magnitude: f64,
}

impl WholeSum {
    /// Returns a sum of one value; `None` if it is no whole number, or is too large.
    #[inline]
    pub(crate) fn of(value: f64) -> Option<WholeSum> {
        let sum = value as i64;
        let is_whole = value.abs() < EXACT_MAX && (sum as f64).to_bits() == value.to_bits();
        is_whole.then_some(WholeSum { sum, magnitude: value.abs() })
    }

    /// Adds another sum; `None` if the order of additions might matter.
    #[inline]
    pub(crate) fn plus(self, other: WholeSum) -> Option<WholeSum> {
        let magnitude = self.magnitude + other.magnitude;
        let sum = WholeSum { sum: self.sum + other.sum, magnitude };
        (magnitude < EXACT_MAX).then_some(sum)
    }

    /// Returns the sum.
    #[inline]
    pub(crate) fn total(self) -> f64 {
        self.sum as f64
    }
}
