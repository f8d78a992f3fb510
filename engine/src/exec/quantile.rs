//! The quantile of some numbers.

use std::cmp::Ordering;

/// The φ-quantile, interpolated between neighbours. Numbers are reordered.
///
/// NaN counts as smaller than every number; φ below 0 gives −Inf, above 1 +Inf.
/// Source: `quantile` in `promql/quantile.go` of Prometheus.
pub fn quantile(phi: f64, values: &mut [f64]) -> f64 {
    if values.is_empty() || phi.is_nan() {
        return f64::NAN;
    }
    if phi < 0.0 {
        return f64::NEG_INFINITY;
    }
    if phi > 1.0 {
        return f64::INFINITY;
    }
    let rank = phi * (values.len() - 1) as f64;
    let lower = rank.floor() as usize;
    let weight = rank - rank.floor();
    let (_, low, above) = values.select_nth_unstable_by(lower, nan_first);
    let low = *low;
    let high = above.iter().copied().min_by(nan_first).unwrap_or(low);
    low * (1.0 - weight) + high * weight
}

/// Orders numbers with NaN below all others.
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
        // The neighbour's weight of 0 times an infinity, as Prometheus has it.
        assert!(quantile(1.0, &mut [1.0, f64::INFINITY]).is_nan());
    }
}
