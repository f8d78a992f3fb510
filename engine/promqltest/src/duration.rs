//! Durations in scripts.

use model::duration::parse_duration_ns;

/// Parses a duration such as `1h30m` to milliseconds.
///
/// Errors: invalid syntax, and durations longer than 2^63 ns.
pub(crate) fn parse_duration_ms(text: &str) -> Result<i64, String> {
    Ok((parse_duration_ns(text)? / 1_000_000) as i64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn units_come_in_falling_order_each_once() {
        assert_eq!(parse_duration_ms("0"), Ok(0));
        assert_eq!(parse_duration_ms("1h30m"), Ok(5_400_000));
        assert_eq!(parse_duration_ms("1y2w3d4h5m6s7ms"), Ok(33_019_506_007));
        assert_eq!(parse_duration_ms("500ms"), Ok(500));
        for wrong in ["", "1", "m", "1m1h", "1m1m", "-1m", "1.5m", "5 m", "1x", "300y"] {
            assert!(parse_duration_ms(wrong).is_err(), "{wrong:?}");
        }
    }
}
