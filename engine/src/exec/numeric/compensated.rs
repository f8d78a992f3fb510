//! Compensated sums, which keep track of rounding errors.

/// A running sum and its accumulated rounding error.
///
/// Invariant: the compensation is 0 once the sum is infinite or NaN.
/// Source: `util/kahansum` of Prometheus (Kahan's summation, improved by Neumaier).
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Sum {
    /// Rounded sum.
    pub sum: f64,
    /// Accumulated rounding error; [`Sum::total`] adds it.
    pub compensation: f64,
}

impl Sum {
    /// Returns a sum that consists of one number.
    #[inline]
    pub fn new(value: f64) -> Sum {
        Sum { sum: value, compensation: 0.0 }
    }

    /// Adds a number.
    #[inline]
    #[must_use]
    pub fn plus(self, value: f64) -> Sum {
        let (sum, compensation) = add(self.sum, self.compensation, value);
        Sum { sum, compensation }
    }

    /// Adds another sum.
    #[inline]
    #[must_use]
    pub fn merged(self, other: Sum) -> Sum {
        let total = self.plus(other.sum);
        if total.sum.is_infinite() {
            return total;
        }
        Sum { compensation: total.compensation + other.compensation, ..total }
    }

    /// Returns the sum including its compensation.
    #[inline]
    pub fn total(self) -> f64 {
        if self.sum.is_infinite() { self.sum } else { self.sum + self.compensation }
    }
}

/// Adds a number to a compensated sum; returns the new sum and compensation. Without branches, so
/// that the compiler vectorizes loops.
///
/// The rounding error is computed without comparing the two numbers: it is exactly a float, and the
/// same in either order. If the computed error is not finite, the sum is not finite either, or it
/// is so near the largest float that an intermediate result overflows. Then the compensation is 0.
/// Source: Knuth, "The Art of Computer Programming", volume 2, 4.2.2, theorem B.
#[inline(always)]
pub fn add(sum: f64, compensation: f64, value: f64) -> (f64, f64) {
    let total = sum + value;
    let of_value = total - sum;
    let of_sum = total - of_value;
    let error = (sum - of_sum) + (value - of_value);
    (total, if error.abs() <= f64::MAX { compensation + error } else { 0.0 })
}

/// Returns the mean of `values`.
///
/// Source: `avg_over_time` of Prometheus: the sum divided by the count until the sum overflows,
/// then a running mean.
pub fn mean(values: &[f64]) -> f64 {
    let Some((first, rest)) = values.split_first() else { return f64::NAN };
    let mut sum = Sum::new(*first);
    for (index, value) in rest.iter().enumerate() {
        let next = sum.plus(*value);
        if next.sum.is_infinite() {
            return running_mean(sum, index + 1, &rest[index..]);
        }
        sum = next;
    }
    let count = values.len() as f64;
    sum.sum / count + sum.compensation / count
}

/// Returns the mean of `count` numbers with this sum and of `values`, as a running mean, which does
/// not overflow.
fn running_mean(sum: Sum, count: usize, values: &[f64]) -> f64 {
    let mut count = count as f64;
    let mut mean = Sum { sum: sum.sum / count, compensation: sum.compensation / count };
    for value in values {
        count += 1.0;
        let q = (count - 1.0) / count;
        mean = Sum { sum: q * mean.sum, compensation: q * mean.compensation }.plus(value / count);
    }
    mean.sum + mean.compensation
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Adds by Neumaier's method, which compares the two numbers.
    fn add_by_size(sum: f64, compensation: f64, value: f64) -> (f64, f64) {
        let total = sum + value;
        if total.is_infinite() {
            return (total, 0.0);
        }
        let (large, small) = if sum.abs() >= value.abs() { (sum, value) } else { (value, sum) };
        (total, compensation + ((large - total) + small))
    }

    fn any_float() -> impl Strategy<Value = f64> {
        prop_oneof![
            any::<u64>().prop_map(f64::from_bits),
            -1e6..1e6f64,
            (0u64..4).prop_map(|by| f64::from_bits(f64::MAX.to_bits() - by)),
            (0u64..4).prop_map(|by| -f64::from_bits(f64::MAX.to_bits() - by)),
            prop::sample::select(vec![
                0.0,
                -0.0,
                f64::NAN,
                f64::INFINITY,
                f64::NEG_INFINITY,
                f64::MAX,
                f64::MIN,
                f64::MIN_POSITIVE,
                f64::from_bits(1),
                2f64.powi(970),
                -2f64.powi(970),
                2f64.powi(969),
                -2f64.powi(969),
            ]),
        ]
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(4_096))]

        #[test]
        fn size_need_not_be_known(sum in any_float(), compensation in -1.0..1.0f64, value in any_float()) {
            let (total, kept) = add(sum, compensation, value);
            let (expected_total, expected_kept) = add_by_size(sum, compensation, value);
            prop_assert!(total.to_bits() == expected_total.to_bits() || total.is_nan());
            prop_assert_eq!(total.is_nan(), expected_total.is_nan());
            let is_at_the_boundary = total.abs() >= f64::MAX / 2.0 && kept == 0.0;
            prop_assert!(kept == expected_kept || total.is_nan() || is_at_the_boundary);
            prop_assert!(kept.is_finite());
        }
    }

    #[test]
    fn sums_near_the_largest_float_are_numbers() {
        let quarter = f64::MAX / 4.0;
        let shares = [-1.0, 2.0, -2.0, -1.0, 3.0, -4.0];
        let sum = shares.iter().fold(Sum::default(), |sum, share| sum.plus(share * quarter));
        assert!((sum.total() / quarter + 3.0).abs() < 1e-15, "{sum:?}");
    }

    #[test]
    fn small_numbers_survive_beside_large_ones() {
        let sum = [1.0, 1e100, 1.0, -1e100].into_iter().fold(Sum::default(), Sum::plus);
        assert_eq!(sum.total(), 2.0);
        let left = Sum::new(1.0).plus(1e100);
        let right = Sum::new(1.0).plus(-1e100);
        assert_eq!(left.merged(right).total(), 2.0);
    }

    #[test]
    fn infinities_stay_and_opposite_ones_cancel_to_nan() {
        assert_eq!(Sum::new(f64::INFINITY).plus(1.0).total(), f64::INFINITY);
        assert!(Sum::new(f64::INFINITY).plus(f64::NEG_INFINITY).total().is_nan());
        assert_eq!(Sum::new(f64::MAX).plus(f64::MAX).total(), f64::INFINITY);
    }

    #[test]
    fn means_do_not_overflow() {
        assert_eq!(mean(&[f64::MAX, f64::MAX]), f64::MAX);
        assert!(mean(&[f64::MAX, f64::MAX, -f64::MAX]).is_finite());
        assert_eq!(mean(&[1.0, f64::INFINITY, 3.0]), f64::INFINITY);
        assert!(mean(&[f64::INFINITY, f64::NEG_INFINITY]).is_nan());
        assert_eq!(mean(&[1.0, 2.0, 6.0]), 3.0);
    }
}
