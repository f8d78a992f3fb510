//! Staleness markers among the values of float samples.

/// Bits of the NaN that marks a series as stale.
///
/// Source: `model/value/value.go` of Prometheus, "StaleNaN".
pub const STALE_NAN_BITS: u64 = 0x7ff0_0000_0000_0002;

/// Returns the value that ends a series: selectors find no value after it.
#[inline]
pub fn stale_nan() -> f64 {
    f64::from_bits(STALE_NAN_BITS)
}

/// Returns whether a value is the staleness marker, not any other NaN.
#[inline]
pub fn is_stale(value: f64) -> bool {
    value.to_bits() == STALE_NAN_BITS
}

/// Returns whether any value is the staleness marker.
#[inline]
pub fn is_any_stale(values: &[f64]) -> bool {
    // No short circuit, so that the loop is vectorized.
    values.iter().fold(false, |any, value| any | is_stale(*value))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stale_marker_is_a_nan_but_not_every_nan() {
        assert!(stale_nan().is_nan());
        assert!(is_stale(stale_nan()));
        assert!(!is_stale(f64::NAN));
        assert!(!is_stale(f64::from_bits(0x7ff8_0000_0000_0001)));
    }

    #[test]
    fn a_stale_marker_is_found_anywhere() {
        let mut values = vec![f64::NAN; 33];
        assert!(!is_any_stale(&values) && !is_any_stale(&[]));
        for at in 0..values.len() {
            values[at] = stale_nan();
            assert!(is_any_stale(&values), "{at}");
            values[at] = f64::INFINITY;
        }
    }
}
