//! Durations as scripts write them.

/// Units from the largest to the smallest, with their length in ns.
const UNITS: [(&str, u64); 7] = [
    ("y", 365 * 24 * 3_600_000_000_000),
    ("w", 7 * 24 * 3_600_000_000_000),
    ("d", 24 * 3_600_000_000_000),
    ("h", 3_600_000_000_000),
    ("m", 60_000_000_000),
    ("s", 1_000_000_000),
    ("ms", 1_000_000),
];

/// The milliseconds of `1h30m`: whole numbers with units, each unit once and in falling
/// order; `0` needs none.
///
/// Errors: anything else, and what is longer than 2^63 ns.
/// Source: `model.ParseDuration` of Prometheus' common library.
pub(crate) fn parse_duration_ms(text: &str) -> Result<i64, String> {
    if text == "0" {
        return Ok(0);
    }
    if text.is_empty() {
        return Err("empty duration string".to_owned());
    }
    let invalid = || format!("not a valid duration string: {text:?}");
    let mut nanoseconds = 0u64;
    let mut units_left = &UNITS[..];
    let mut rest = text;
    while !rest.is_empty() {
        let digits_end = rest.find(|c: char| !c.is_ascii_digit()).ok_or_else(invalid)?;
        let number: u64 = rest[..digits_end].parse().map_err(|_| invalid())?;
        rest = &rest[digits_end..];
        let unit_end = rest.find(|c: char| c.is_ascii_digit()).unwrap_or(rest.len());
        let unit = &rest[..unit_end];
        if !UNITS.iter().any(|(name, _)| *name == unit) {
            return Err(format!("unknown unit {unit:?} in duration {text:?}"));
        }
        let at = units_left.iter().position(|(name, _)| *name == unit).ok_or_else(invalid)?;
        nanoseconds = number
            .checked_mul(units_left[at].1)
            .and_then(|length| nanoseconds.checked_add(length))
            .filter(|total| *total < 1 << 63)
            .ok_or("duration out of range")?;
        units_left = &units_left[at + 1..];
        rest = &rest[unit_end..];
    }
    Ok((nanoseconds / 1_000_000) as i64)
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
