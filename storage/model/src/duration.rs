//! Durations as Prometheus reads and writes them: whole numbers with units, such as `1h30m`.
//!
//! Source: `ParseDuration` and `Duration.String` of Prometheus' common library.

use std::fmt;

use crate::labels::quoted;

/// Units in their required order, with their nanoseconds.
const UNITS: [(&str, u64); 7] = [
    ("y", 365 * 24 * 3_600_000_000_000),
    ("w", 7 * 24 * 3_600_000_000_000),
    ("d", 24 * 3_600_000_000_000),
    ("h", 3_600_000_000_000),
    ("m", 60_000_000_000),
    ("s", 1_000_000_000),
    ("ms", 1_000_000),
];

/// Parses a duration and returns nanoseconds: whole numbers with units, each unit at most once, in
/// descending order; also a bare `0`. The result fits an `i64`.
///
/// Errors: the message of Prometheus.
pub fn parse_duration_ns(text: &str) -> Result<u64, String> {
    match text {
        "" => return Err("empty duration string".to_owned()),
        "0" => return Ok(0),
        _ => {}
    }
    let invalid = || format!("not a valid duration string: {}", quoted(text));
    let (mut rest, mut total_ns, mut units_left) = (text, 0_u64, &UNITS[..]);
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
        let count: u64 = rest[..digits].parse().map_err(|_| invalid())?;
        rest = &rest[digits..];
        let (unit, after) =
            rest.split_at(rest.find(|c: char| c.is_ascii_digit()).unwrap_or(rest.len()));
        rest = after;
        if unit.is_empty() {
            return Err(invalid());
        }
        if !UNITS.iter().any(|(name, _)| *name == unit) {
            return Err(format!("unknown unit {} in duration {}", quoted(unit), quoted(text)));
        }
        let at = units_left.iter().position(|(name, _)| *name == unit).ok_or_else(invalid)?;
        total_ns = count
            .checked_mul(units_left[at].1)
            .and_then(|ns| total_ns.checked_add(ns))
            .filter(|ns| *ns <= i64::MAX as u64)
            .ok_or("duration out of range")?;
        units_left = &units_left[at + 1..];
    }
    Ok(total_ns)
}

/// Writes a duration in the units of [`parse_duration_ns`]; years and weeks only without a
/// remainder.
pub fn write_duration(out: &mut impl fmt::Write, ms: u64) -> fmt::Result {
    if ms == 0 {
        return out.write_str("0s");
    }
    let mut rest = ms;
    for (unit, unit_ns) in UNITS {
        let unit_ms = unit_ns / 1_000_000;
        let must_be_exact = matches!(unit, "y" | "w");
        if rest < unit_ms || must_be_exact && !rest.is_multiple_of(unit_ms) {
            continue;
        }
        write!(out, "{}{unit}", rest / unit_ms)?;
        rest %= unit_ms;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn units_come_in_falling_order_each_once() {
        let cases = [
            ("0", 0, "0s"),
            ("0s", 0, "0s"),
            ("500ms", 500, "500ms"),
            ("90s", 90_000, "1m30s"),
            ("7d", 604_800_000, "1w"),
            ("8d", 691_200_000, "8d"),
            ("365d", 31_536_000_000, "1y"),
            ("1y2w3d4h5m6s7ms", 33_019_506_007, "382d4h5m6s7ms"),
        ];
        for (text, ms, expected) in cases {
            assert_eq!(parse_duration_ns(text), Ok(ms * 1_000_000), "{text}");
            let mut written = String::new();
            write_duration(&mut written, ms).unwrap();
            assert_eq!(written, expected);
        }
    }

    #[test]
    fn malformed_durations_are_named() {
        for text in ["1", "-5m", "1m1h", "1m1m", "m", " 5m", "99999999999999999999s"] {
            let expected = format!("not a valid duration string: {text:?}");
            assert_eq!(parse_duration_ns(text), Err(expected));
        }
        for (text, unit) in
            [("5mm", "mm"), ("1.5h", "."), ("5M", "M"), ("1hs", "hs"), ("5 m", " m")]
        {
            let expected = format!("unknown unit {unit:?} in duration {text:?}");
            assert_eq!(parse_duration_ns(text), Err(expected));
        }
        assert_eq!(parse_duration_ns(""), Err("empty duration string".to_owned()));
        for text in ["300y", "292y200d"] {
            assert_eq!(parse_duration_ns(text), Err("duration out of range".to_owned()));
        }
    }
}
