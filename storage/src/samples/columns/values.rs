//! Values of a column by index: every n-th, and sums of many, from the packed numbers.

use std::ops::Range;

use super::column::{Column, Times, Values, unpack_strided};

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

    /// Returns a value.
    #[inline]
    pub(crate) fn value(&self, at: usize) -> f64 {
        self.values().get(at)
    }

    /// Writes the value at an index to `out`, and then every `stride`th.
    #[inline]
    pub(crate) fn read_strided(&self, first: usize, stride: usize, out: &mut [f64]) {
        match self.values() {
            Values::Short { base, power, above } => {
                unpack_strided(*base, *power, &above[first..], stride, out);
            }
            Values::Long { base, power, above } => {
                unpack_strided(*base, *power, &above[first..], stride, out);
            }
            Values::Any(values) => {
                let seen = values[first..].iter().step_by(stride);
                out.iter_mut().zip(seen).for_each(|(out, value)| *out = *value);
            }
        }
    }

    /// Returns the sum of some values if it is exact in every order of additions; `None` if that is
    /// not known.
    #[inline]
    pub(crate) fn whole_sum(&self, range: Range<usize>) -> Option<WholeSum> {
        let count = range.len();
        let sum_of = |base: f64, power: f64, above_max: f64, sum_above: &dyn Fn() -> u64| {
            let magnitude = (base.abs() + above_max) * count as f64;
            let is_exact = power == 1.0 && magnitude < EXACT_MAX;
            is_exact.then(|| {
                let sum = base as i64 * count as i64 + sum_above() as i64;
                WholeSum { sum, magnitude }
            })
        };
        match self.values() {
            Values::Short { base, power, above } => {
                let sum = || above[range.clone()].iter().map(|above| u64::from(*above)).sum();
                sum_of(*base, *power, f64::from(u16::MAX), &sum)
            }
            Values::Long { base, power, above } => {
                let sum = || above[range.clone()].iter().map(|above| u64::from(*above)).sum();
                sum_of(*base, *power, f64::from(u32::MAX), &sum)
            }
            Values::Any(_) => None,
        }
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
