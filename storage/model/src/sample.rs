//! What a float sample's value can mean beyond its number.

/// The bits of the NaN that marks a series as stale.
///
/// Source: `model/value/value.go` of Prometheus, "StaleNaN".
pub const STALE_NAN_BITS: u64 = 0x7ff0_0000_0000_0002;

/// The value that ends a series: the selectors see nothing from here on.
#[inline]
pub fn stale_nan() -> f64 {
    f64::from_bits(STALE_NAN_BITS)
}

/// Whether a value is the staleness marker, and not just any NaN.
#[inline]
pub fn is_stale(value: f64) -> bool {
    value.to_bits() == STALE_NAN_BITS
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
}
