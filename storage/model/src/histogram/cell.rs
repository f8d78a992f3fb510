//! Content of one bucket during arithmetic: a count, or a count with its rounding error.

/// Count that other counts are added to.
pub(super) trait Cell: Copy {
    /// Returns a count without error.
    fn new(count: f64) -> Self;

    /// Converts a sum, with its error if this cell keeps one.
    fn from_summed(sum: Summed) -> Self;

    /// Adds a plain count.
    fn plus(self, count: f64) -> Self;

    /// Adds a cell of another histogram to the same bucket.
    fn merge(self, other: Self) -> Self;

    /// Adds the cell of a bucket that is removed.
    fn absorb(self, other: Self) -> Self;

    /// Adds a sum, or subtracts it where `sign` is −1.
    fn plus_summed(self, sum: Summed, sign: f64) -> Self;

    /// Multiplies the cell by 1 or −1.
    fn times(self, sign: f64) -> Self;

    /// Returns this count with the error of another sum.
    fn with_error_of(self, sum: Self) -> Self;

    /// Adds this cell to a sum.
    fn pour_into(self, sum: Summed) -> Summed;

    /// Returns the count.
    fn count(self) -> f64;

    /// Returns whether count and error are 0.
    fn is_empty(self) -> bool;
}

impl Cell for f64 {
    fn new(count: f64) -> f64 {
        count
    }

    fn from_summed(sum: Summed) -> f64 {
        sum.value
    }

    #[inline]
    fn plus(self, count: f64) -> f64 {
        self + count
    }

    #[inline]
    fn merge(self, other: f64) -> f64 {
        self + other
    }

    #[inline]
    fn absorb(self, other: f64) -> f64 {
        self + other
    }

    fn plus_summed(self, sum: Summed, sign: f64) -> f64 {
        self + sign * sum.value
    }

    #[inline]
    fn times(self, sign: f64) -> f64 {
        self * sign
    }

    fn with_error_of(self, _: f64) -> f64 {
        self
    }

    fn pour_into(self, sum: Summed) -> Summed {
        sum.plus(self)
    }

    #[inline]
    fn count(self) -> f64 {
        self
    }

    #[inline]
    fn is_empty(self) -> bool {
        self == 0.0
    }
}

/// Kahan sum in the version of Neumaier: the value and its rounding error.
///
/// Source: `Inc` in `util/kahansum/kahansum.go` of Prometheus.
#[derive(Debug, Clone, Copy)]
pub(super) struct Summed {
    pub(super) value: f64,
    pub(super) lost: f64,
}

impl Cell for Summed {
    fn new(count: f64) -> Summed {
        Summed { value: count, lost: 0.0 }
    }

    fn from_summed(sum: Summed) -> Summed {
        sum
    }

    /// Computes the rounding error without comparing the operands, so that loops over this have no
    /// branches; the result has the same bits. If the error is not finite, it counts as 0: then the
    /// sum is not finite either, or an intermediate step near the largest float overflows.
    ///
    /// Source: Knuth, "The Art of Computer Programming", volume 2, 4.2.2, theorem B.
    #[inline(always)]
    fn plus(self, count: f64) -> Summed {
        let value = self.value + count;
        let of_count = value - self.value;
        let of_value = value - of_count;
        let error = (self.value - of_value) + (count - of_count);
        Summed { value, lost: if error.abs() <= f64::MAX { self.lost + error } else { 0.0 } }
    }

    #[inline]
    fn merge(self, other: Summed) -> Summed {
        let sum = self.plus(other.value);
        if other.lost != 0.0 { sum.plus(other.lost) } else { sum }
    }

    #[inline]
    fn absorb(self, other: Summed) -> Summed {
        self.plus(other.value).plus(other.lost)
    }

    fn plus_summed(self, sum: Summed, sign: f64) -> Summed {
        self.absorb(sum.times(sign))
    }

    #[inline]
    fn times(self, sign: f64) -> Summed {
        Summed { value: self.value * sign, lost: self.lost * sign }
    }

    fn with_error_of(self, sum: Summed) -> Summed {
        Summed { lost: sum.lost, ..self }
    }

    fn pour_into(self, sum: Summed) -> Summed {
        sum.absorb(self)
    }

    #[inline]
    fn count(self) -> f64 {
        self.value
    }

    #[inline]
    fn is_empty(self) -> bool {
        self.value == 0.0 && self.lost == 0.0
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Neumaier's form, which compares the operands.
    fn plus_by_size(sum: Summed, count: f64) -> Summed {
        let value = sum.value + count;
        let lost = if value.is_infinite() {
            0.0
        } else if sum.value.abs() >= count.abs() {
            sum.lost + ((sum.value - value) + count)
        } else {
            sum.lost + ((count - value) + sum.value)
        };
        Summed { value, lost }
    }

    fn any_float() -> impl Strategy<Value = f64> {
        prop_oneof![
            any::<u64>().prop_map(f64::from_bits),
            -1e6..1e6f64,
            (0u64..4).prop_map(|by| f64::from_bits(f64::MAX.to_bits() - by)),
            (0u64..4).prop_map(|by| -f64::from_bits(f64::MAX.to_bits() - by)),
            prop::sample::select(vec![0.0, -0.0, f64::INFINITY, f64::NEG_INFINITY, 2f64.powi(970)]),
        ]
    }

    fn same(left: f64, right: f64) -> bool {
        left == right || (left.is_nan() && right.is_nan())
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(4_096))]

        #[test]
        fn size_need_not_be_known(value in any_float(), lost in -1.0..1.0f64, count in any_float()) {
            let sum = Summed { value, lost };
            let (found, expected) = (sum.plus(count), plus_by_size(sum, count));
            prop_assert!(same(found.value, expected.value), "{found:?} {expected:?}");
            let is_near_overflow = found.value.abs() >= f64::MAX / 2.0 && found.lost == 0.0;
            let is_same = same(found.lost, expected.lost);
            prop_assert!(is_same || found.value.is_nan() || is_near_overflow, "{found:?} {expected:?}");
            prop_assert!(found.lost.is_finite());
        }
    }

    #[test]
    fn counts_near_the_largest_float_are_numbers() {
        let sum = Summed::new(-5.1156045879452956e306).plus(f64::MAX);
        assert_eq!((sum.value, sum.lost), (1.7465370889828629e308, 0.0));
    }
}
