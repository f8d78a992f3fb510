//! Values of numbers, durations and strings, whose form the lexer has checked.

use model::duration::parse_duration_ns;

use super::duration::is_out_of_range;
use super::quote::quoted;

/// Returns the value of a number.
///
/// Errors: the part of the message after `error parsing number: `.
/// Source: Go's `ParseInt` with base 0, then `ParseFloat`.
pub(super) fn number(text: &str) -> Result<f64, String> {
    if let Some(value) = integer(text) {
        return Ok(value as f64);
    }
    let error = |what: &str| format!("strconv.ParseFloat: parsing {}: {what}", quoted(text));
    let is_hex = text.len() > 2 && text[..2].eq_ignore_ascii_case("0x");
    if is_hex || text.contains('_') && !are_underscores_between_digits(text) {
        return Err(error("invalid syntax"));
    }
    let value: f64 = text.replace('_', "").parse().map_err(|_| error("invalid syntax"))?;
    let is_named = text.as_bytes()[0].is_ascii_alphabetic();
    if value.is_infinite() && !is_named {
        return Err(error("value out of range"));
    }
    Ok(value)
}

/// Parses an integer: decimal, octal after 0, hexadecimal after 0x, with underscores.
fn integer(text: &str) -> Option<i64> {
    if text.contains('_') && !are_underscores_between_digits(text) {
        return None;
    }
    let digits = text.replace('_', "");
    let lower = digits.to_ascii_lowercase();
    if let Some(hex) = lower.strip_prefix("0x") {
        // The standard library would accept a sign.
        let is_plain = hex.bytes().all(|b| b.is_ascii_hexdigit());
        return is_plain.then(|| i64::from_str_radix(hex, 16).ok()).flatten();
    }
    if !digits.bytes().all(|b| b.is_ascii_digit()) {
        return None;
    }
    match digits.strip_prefix('0') {
        Some("") => Some(0),
        Some(octal) => i64::from_str_radix(octal, 8).ok(),
        None => digits.parse().ok(),
    }
}

/// Returns whether each underscore is after a digit or a base prefix and before a digit.
fn are_underscores_between_digits(text: &str) -> bool {
    let bytes = text.as_bytes();
    let is_hex = bytes.len() >= 2 && bytes[0] == b'0' && bytes[1].eq_ignore_ascii_case(&b'x');
    let is_digit = |b: u8| b.is_ascii_digit() || is_hex && b.is_ascii_hexdigit();
    let start = if is_hex { 2 } else { 0 };
    (start..bytes.len()).filter(|at| bytes[*at] == b'_').all(|at| {
        let follows = at > start && is_digit(bytes[at - 1]) || at == start && is_hex;
        follows && bytes.get(at + 1).is_some_and(|b| is_digit(*b))
    })
}

/// Returns the seconds of a duration.
///
/// Errors: an unknown unit, units out of order, more than 292 years.
pub(super) fn duration(text: &str) -> Result<f64, String> {
    let total_ns = parse_duration_ns(text)?;
    // Split like Go's `Duration.Seconds`, so that the last bit is the same.
    let seconds = (total_ns / 1_000_000_000) as f64 + (total_ns % 1_000_000_000) as f64 / 1e9;
    debug_assert!(!is_out_of_range(seconds));
    Ok(seconds)
}

/// First code point for bytes that are not UTF-8: byte `b` becomes this plus `b`.
///
/// PromQL strings consist of bytes, here strings are UTF-8. Only escapes can produce bytes that are
/// not UTF-8; these become private-use characters, which labels are not expected to contain.
const INVALID_BYTE_BASE: u32 = model::labels::INVALID_BYTE_BASE;

/// Returns the value of a string literal, without quotes and escapes.
pub(super) fn unquote(literal: &str) -> String {
    let inner = &literal[1..literal.len() - 1];
    if literal.starts_with('`') || !inner.contains('\\') {
        return inner.to_owned();
    }
    let mut bytes = Vec::with_capacity(inner.len());
    let mut rest = inner;
    while let Some(at) = rest.find('\\') {
        bytes.extend_from_slice(&rest.as_bytes()[..at]);
        rest = push_escape(&mut bytes, &rest[at + 1..]);
    }
    bytes.extend_from_slice(rest.as_bytes());
    let mut text = String::with_capacity(bytes.len());
    for chunk in bytes.utf8_chunks() {
        text.push_str(chunk.valid());
        text.extend(
            chunk
                .invalid()
                .iter()
                .filter_map(|b| char::from_u32(INVALID_BYTE_BASE + u32::from(*b))),
        );
    }
    text
}

/// Appends the value of an escape sequence; returns the text after it.
fn push_escape<'a>(bytes: &mut Vec<u8>, escape: &'a str) -> &'a str {
    let number = |digits: &str, base: u32| u32::from_str_radix(digits, base).unwrap_or_default();
    let (plain, rest) = match escape.as_bytes()[0] {
        b'a' => (0x07, &escape[1..]),
        b'b' => (0x08, &escape[1..]),
        b'f' => (0x0c, &escape[1..]),
        b'n' => (b'\n', &escape[1..]),
        b'r' => (b'\r', &escape[1..]),
        b't' => (b'\t', &escape[1..]),
        b'v' => (0x0b, &escape[1..]),
        b'0'..=b'7' => (number(&escape[..3], 8) as u8, &escape[3..]),
        b'x' => (number(&escape[1..3], 16) as u8, &escape[3..]),
        kind @ (b'u' | b'U') => {
            let end = if kind == b'u' { 5 } else { 9 };
            if let Some(c) = char::from_u32(number(&escape[1..end], 16)) {
                bytes.extend_from_slice(c.encode_utf8(&mut [0; 4]).as_bytes());
            }
            return &escape[end..];
        }
        other => (other, &escape[1..]),
    };
    bytes.push(plain);
    rest
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_read_as_go_reads_them() {
        let cases = [
            ("0", 0.0),
            ("00", 0.0),
            ("0755", 493.0),
            ("089", 89.0),
            ("0x2F", 47.0),
            ("0X_2f", 47.0),
            ("1_000", 1000.0),
            ("1_000.5", 1000.5),
            (".5", 0.5),
            ("5.", 5.0),
            ("1e-3", 0.001),
            ("99999999999999999999", 1e20),
        ];
        for (text, expected) in cases {
            assert_eq!(number(text), Ok(expected), "{text}");
        }
        assert!(number("NaN").unwrap().is_nan());
        assert_eq!(number("iNf"), Ok(f64::INFINITY));
        let cases = [
            ("1e999", "value out of range"),
            ("0x1e+5", "invalid syntax"),
            ("0x", "invalid syntax"),
            ("0xFFFFFFFFFFFFFFFFF", "invalid syntax"),
            ("1e", "invalid syntax"),
        ];
        for (text, expected) in cases {
            let expected = format!("strconv.ParseFloat: parsing \"{text}\": {expected}");
            assert_eq!(number(text), Err(expected));
        }
    }

    #[test]
    fn durations_are_read_from_large_to_small() {
        assert_eq!(duration("1h30m"), Ok(5400.0));
        assert_eq!(duration("1y2w3d4h5m6s7ms"), Ok(33_019_506.007));
        assert_eq!(duration("0s"), Ok(0.0));
        let cases = [
            ("1m1h", "not a valid duration string: \"1m1h\""),
            ("1m1m", "not a valid duration string: \"1m1m\""),
            ("1hs", "unknown unit \"hs\" in duration \"1hs\""),
            ("300y", "duration out of range"),
            ("292y200d", "duration out of range"),
            ("99999999999999999999s", "not a valid duration string: \"99999999999999999999s\""),
        ];
        for (text, expected) in cases {
            assert_eq!(duration(text), Err(expected.to_owned()), "{text}");
        }
    }

    #[test]
    fn escapes_are_bytes_or_characters() {
        let cases = [
            (r#""a\tb""#, "a\tb"),
            (r"'\''", "'"),
            (r#""\x41\101\u00e9\U0001F600""#, "AAé😀"),
            (r#""\xc3\xa9""#, "é"),
            (r"`a\tb`", r"a\tb"),
            ("\"a\\xc5z\"", "a\u{10ffc5}z"),
        ];
        for (literal, expected) in cases {
            assert_eq!(unquote(literal), expected, "{literal}");
        }
    }
}
