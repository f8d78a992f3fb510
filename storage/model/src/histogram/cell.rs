//! What one bucket holds during arithmetic: a count, or a count with its rounding error.

/// A count that others are added to.
pub(super) trait Cell: Copy {
    /// A count without error.
    fn new(count: f64) -> Self;

    /// A sum with what it lost, as far as this cell keeps it.
    fn from_summed(sum: Summed) -> Self;

    /// Adds a plain count.
    fn plus(self, count: f64) -> Self;

    /// Adds a cell of another histogram to the same bucket.
    fn merge(self, other: Self) -> Self;

    /// Takes in the cell of a bucket that ceases to exist.
    fn absorb(self, other: Self) -> Self;

    /// Adds a sum, or subtracts it where `sign` is −1.
    fn plus_summed(self, sum: Summed, sign: f64) -> Self;

    /// The cell with its sign kept or turned.
    fn times(self, sign: f64) -> Self;

    /// This count with the error of another sum.
    fn with_error_of(self, sum: Self) -> Self;

    /// The sum with this cell added to it.
    fn pour_into(self, sum: Summed) -> Summed;

    /// The count as it stands.
    fn count(self) -> f64;

    /// Whether there is nothing to keep.
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

/// A sum after Kahan, in the version of Neumaier: the value and what its roundings lost.
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

    #[inline]
    fn plus(self, count: f64) -> Summed {
        let value = self.value + count;
        let lost = if value.is_infinite() {
            0.0
        } else if self.value.abs() >= count.abs() {
            self.lost + ((self.value - value) + count)
        } else {
            self.lost + ((count - value) + self.value)
        };
        Summed { value, lost }
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
