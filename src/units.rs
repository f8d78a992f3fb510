//! Durations and sizes in flags, the configuration and the API.

use std::time::Duration;

use model::duration::{parse_duration_ns, write_duration};
pub use model::labels::quoted;

/// Parses a duration such as `5m` or `1h30m`.
///
/// Errors: the message of Prometheus.
pub fn parse_duration(text: &str) -> Result<Duration, String> {
    parse_duration_ns(text).map(Duration::from_nanos)
}

/// Units of Go's durations, in ns.
const GO_DURATION_UNITS: [(&str, f64); 8] = [
    ("ns", 1.0),
    ("us", 1e3),
    ("µs", 1e3),
    ("μs", 1e3),
    ("ms", 1e6),
    ("s", 1e9),
    ("m", 60e9),
    ("h", 3600e9),
];

/// Parses a duration of Go: decimal numbers with units from hours to nanoseconds, such as `1.5s`,
/// `300ms` or `1h30m`, or a bare `0`. Negative durations are errors.
///
/// Errors: the message.
/// Source: `time.ParseDuration` of Go.
pub fn parse_go_duration(text: &str) -> Result<Duration, String> {
    let invalid = || format!("not a duration such as 500ms, 1.5s or 1m: {}", quoted(text));
    if text == "0" {
        return Ok(Duration::ZERO);
    }
    let (mut rest, mut total_ns) = (text, 0.0);
    loop {
        let (number, after) = split_while(rest, |c| c.is_ascii_digit() || c == '.');
        let (unit, after) = split_while(after, |c| !c.is_ascii_digit() && c != '.');
        let (_, unit_ns) =
            GO_DURATION_UNITS.iter().find(|(name, _)| *name == unit).ok_or_else(invalid)?;
        total_ns += number.parse::<f64>().map_err(|_| invalid())? * unit_ns;
        if after.is_empty() {
            break;
        }
        rest = after;
    }
    // Go counts nanoseconds in a signed word.
    if total_ns > i64::MAX as f64 {
        return Err(format!("duration out of range: {}", quoted(text)));
    }
    Ok(Duration::from_nanos(total_ns as u64))
}

/// Formats a duration in the units of [`parse_duration`].
pub fn format_duration(duration: Duration) -> String {
    let mut text = String::new();
    let ms = u64::try_from(duration.as_millis()).unwrap_or(u64::MAX);
    // Writing to a string cannot fail.
    let _ = write_duration(&mut text, ms);
    text
}

/// Converts a duration to whole ms.
pub(crate) fn millis(duration: Duration) -> i64 {
    i64::try_from(duration.as_millis()).unwrap_or(i64::MAX)
}

/// Parses a count such as `1000` or `5e7`, of at least `MIN`.
///
/// Errors: the message.
/// Source: integer flags of Prometheus, which the library kingpin parses as floats and truncates.
pub fn parse_count<T: TryFrom<u64>, const MIN: u64>(text: &str) -> Result<T, String> {
    let whole = text.parse::<u64>().ok().or_else(|| {
        let number = text.parse::<f64>().ok().filter(|n| (0.0..2e19).contains(n));
        number.map(|number| number as u64)
    });
    let count = whole.ok_or_else(|| format!("not a valid count: {}", quoted(text)))?;
    if count < MIN {
        return Err(format!("must be at least {MIN}"));
    }
    T::try_from(count).map_err(|_| format!("count out of range: {}", quoted(text)))
}

/// Parses a size such as `512MiB`, `2GB` or `65536`; units are powers of 1,024, with or without the
/// `i`, as in size flags of Prometheus.
///
/// Errors: the message.
pub fn parse_bytes(text: &str) -> Result<u64, String> {
    let (digits, unit) = split_while(text, |c| c.is_ascii_digit());
    let shift = match unit {
        "" | "B" => 0,
        "KB" | "KiB" => 10,
        "MB" | "MiB" => 20,
        "GB" | "GiB" => 30,
        "TB" | "TiB" => 40,
        "PB" | "PiB" => 50,
        "EB" | "EiB" => 60,
        _ => return Err(format!("not a valid size: {text:?} (examples: 65536, 64KiB, 2GB)")),
    };
    let count: u64 = digits
        .parse()
        .map_err(|_| format!("not a valid size: {text:?} (examples: 65536, 64KiB, 2GB)"))?;
    count.checked_mul(1_u64 << shift).ok_or_else(|| format!("size out of range: {text:?}"))
}

/// Formats a size in the largest unit that divides it.
pub fn format_bytes(bytes: u64) -> String {
    for (unit, shift) in
        [("EiB", 60), ("PiB", 50), ("TiB", 40), ("GiB", 30), ("MiB", 20), ("KiB", 10)]
    {
        if bytes > 0 && bytes.is_multiple_of(1 << shift) {
            return format!("{}{unit}", bytes >> shift);
        }
    }
    format!("{bytes}B")
}

fn split_while(text: &str, keep: impl Fn(char) -> bool) -> (&str, &str) {
    text.split_at(text.find(|c| !keep(c)).unwrap_or(text.len()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_read_and_write_as_in_prometheus() {
        let cases = [
            ("5m", 300_000, "5m"),
            ("1h30m", 5_400_000, "1h30m"),
            ("0", 0, "0s"),
            ("0s", 0, "0s"),
            ("90s", 90_000, "1m30s"),
            ("1500ms", 1500, "1s500ms"),
            ("7d", 604_800_000, "1w"),
            ("8d", 691_200_000, "8d"),
            ("365d", 31_536_000_000, "1y"),
            ("1y2w3d4h5m6s7ms", 33_019_506_007, "382d4h5m6s7ms"),
        ];
        for (text, ms, written) in cases {
            let duration = parse_duration(text).unwrap();
            assert_eq!(duration, Duration::from_millis(ms), "{text}");
            assert_eq!(format_duration(duration), written);
        }
    }

    #[test]
    fn malformed_durations_are_named() {
        for text in ["1", "-5m", "1m1h", "1m1m", "m", " 5m"] {
            let error = parse_duration(text).unwrap_err();
            assert_eq!(error, format!("not a valid duration string: {text:?}"));
        }
        assert_eq!(parse_duration("").unwrap_err(), "empty duration string");
        for (text, unit) in [("5mm", "mm"), ("1.5h", "."), ("5M", "M")] {
            let error = parse_duration(text).unwrap_err();
            assert_eq!(error, format!("unknown unit {unit:?} in duration {text:?}"));
        }
        assert_eq!(parse_duration("300y").unwrap_err(), "duration out of range");
    }

    #[test]
    fn sizes_read_and_write() {
        let cases = [("0", 0, "0B"), ("1000", 1000, "1000B"), ("64KiB", 65_536, "64KiB")];
        for (text, bytes, written) in cases {
            assert_eq!(parse_bytes(text), Ok(bytes));
            assert_eq!(format_bytes(bytes), written);
        }
        assert_eq!(parse_bytes("2GB"), Ok(2 << 30));
        for text in ["", "1 KB", "KB", "1.5GB", "99999999999TB", "-1"] {
            assert!(parse_bytes(text).is_err(), "{text}");
        }
    }

    #[test]
    fn durations_of_go_are_read() {
        for (text, ns) in [
            ("0", 0),
            ("0s", 0),
            ("1ns", 1),
            ("1.5s", 1_500_000_000),
            (".5ms", 500_000),
            ("5.us", 5_000),
            ("20µs", 20_000),
            ("1h2m3s", 3_723_000_000_000),
            ("1s1h", 3_601_000_000_000),
        ] {
            assert_eq!(parse_go_duration(text), Ok(Duration::from_nanos(ns)), "{text}");
        }
        for text in [
            "",
            "5",
            "s",
            "1d",
            "-1s",
            "+1s",
            "1 s",
            "1..5s",
            ".s",
            "1s5",
            "1e3s",
            "300000h30000000h",
        ] {
            assert!(parse_go_duration(text).is_err(), "{text}");
        }
    }
}
