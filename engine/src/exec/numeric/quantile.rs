//! Quantiles of numbers.

use std::cmp::Ordering;

/// Returns the φ-quantile, interpolated between adjacent numbers; reorders `values`.
///
/// NaN counts as smaller than every number. The result is −Inf for φ below 0, and +Inf for φ above
/// 1.
/// Source: `quantile` in `promql/quantile.go` of Prometheus.
pub fn quantile(phi: f64, values: &mut [f64]) -> f64 {
    let place = match place(phi, values.len()) {
        Ok(place) => place,
        Err(answer) => return answer,
    };
    let (low, high) = neighbours(values, place.lower);
    place.between(low, high)
}

/// Position of a quantile among numbers in ascending order.
#[derive(Debug, Clone, Copy)]
pub struct QuantileRank {
    /// Index of the lower of the two adjacent numbers.
    pub lower: usize,
    weight: f64,
}

/// Returns the position of the φ-quantile among `count` numbers. Returns the quantile as `Err` if
/// it does not depend on the numbers.
pub fn place(phi: f64, count: usize) -> Result<QuantileRank, f64> {
    if count == 0 || phi.is_nan() {
        return Err(f64::NAN);
    }
    if phi < 0.0 {
        return Err(f64::NEG_INFINITY);
    }
    if phi > 1.0 {
        return Err(f64::INFINITY);
    }
    let rank = phi * (count - 1) as f64;
    Ok(QuantileRank { lower: rank.floor() as usize, weight: rank - rank.floor() })
}

impl QuantileRank {
    /// Interpolates between the two adjacent numbers.
    pub fn between(&self, low: f64, high: f64) -> f64 {
        low * (1.0 - self.weight) + high * self.weight
    }
}

/// Returns the numbers at `lower` and `lower + 1` in ascending order; if `lower` is the last index,
/// returns its number twice. Reorders `values`: none before `lower` is greater than the number
/// there, none after it is less.
pub fn neighbours(values: &mut [f64], lower: usize) -> (f64, f64) {
    let (_, low, above) = values.select_nth_unstable_by(lower, ascending);
    let low = *low;
    (low, above.iter().copied().min_by(ascending).unwrap_or(low))
}

/// Orders numbers with NaN below all others, and −0 below 0. So each index has one number,
/// whichever algorithm sorts or selects.
pub fn ascending(a: &f64, b: &f64) -> Ordering {
    match (a.is_nan(), b.is_nan()) {
        (false, false) => a.total_cmp(b),
        (a_nan, b_nan) => b_nan.cmp(&a_nan),
    }
}

/// Orders numbers with NaN below all numbers.
pub fn nan_first(a: &f64, b: &f64) -> Ordering {
    match (a.is_nan(), b.is_nan()) {
        (true, true) => Ordering::Equal,
        (true, false) => Ordering::Less,
        (false, true) => Ordering::Greater,
        (false, false) => a.partial_cmp(b).unwrap_or(Ordering::Equal),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_interpolate_and_take_nan_as_smallest() {
        assert_eq!(quantile(0.5, &mut [3.0, 1.0, 2.0]), 2.0);
        assert_eq!(quantile(0.25, &mut [4.0, 1.0]), 1.75);
        assert_eq!(quantile(1.0, &mut [4.0, f64::NAN]), 4.0);
        assert!(quantile(0.0, &mut [4.0, f64::NAN]).is_nan());
        assert_eq!(quantile(-1.0, &mut [1.0]), f64::NEG_INFINITY);
        assert_eq!(quantile(1.1, &mut [1.0]), f64::INFINITY);
        assert!(quantile(0.5, &mut []).is_nan());
        assert!(quantile(f64::NAN, &mut [1.0]).is_nan());
        // The upper weight of 0 times infinity is NaN, as in Prometheus.
        assert!(quantile(1.0, &mut [1.0, f64::INFINITY]).is_nan());
    }
}
