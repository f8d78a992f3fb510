//! Formatting and parsing of numbers as in Go's `fmt` and `strconv`.

use std::fmt::Write as _;

/// Formats a number like `%g`: the shortest text that parses to the same number, with an exponent
/// below 1e-4 and from 1e6 on.
///
/// Source: `strconv.FormatFloat(value, 'g', -1, 64)` of Go.
pub fn general(value: f64) -> String {
    special(value).unwrap_or_else(|| from_scientific(&scientific(value), 6))
}

/// Formats a number like `%.2g`: rounded to significant digits, without trailing zeros.
///
/// Panics: `digits` is 0.
pub fn general_rounded(value: f64, digits: usize) -> String {
    assert!(digits > 0, "at least one significant digit");
    let text = || {
        let rounded = format!("{value:.*e}", digits - 1);
        let (mantissa, exponent) = rounded.split_once('e').unwrap_or((&rounded, "0"));
        let mantissa = match mantissa.contains('.') {
            true => mantissa.trim_end_matches('0').trim_end_matches('.'),
            false => mantissa,
        };
        let shown = mantissa.bytes().filter(u8::is_ascii_digit).count() as i32;
        let point = exponent.parse::<i32>().map_or(0, |exponent| exponent + 1);
        // Go uses an exponent from the number of remaining digits on, if they cover the number.
        let limit = if shown >= point { shown.min(digits as i32) } else { digits as i32 };
        from_scientific(&format!("{mantissa}e{exponent}"), limit)
    };
    special(value).unwrap_or_else(text)
}

/// Formats a number as OpenMetrics does in a label: always with a point or an exponent.
///
/// Source: `labels.FormatOpenMetricsFloat` of Prometheus.
pub fn open_metrics(value: f64) -> String {
    let mut text = general(value);
    if value.is_finite() && !text.contains(['e', '.']) {
        text.push_str(".0");
    }
    text
}

/// Formats a number without an exponent: the shortest text that parses to the same number.
///
/// Source: `strconv.FormatFloat(value, 'f', -1, 64)` of Go.
pub fn plain(value: f64) -> String {
    special(value).unwrap_or_else(|| without_exponent(&scientific(value)))
}

/// Formats a finite number for JSON: with an exponent below 1e-6 and from 1e21 on.
///
/// Source: `encoding/json` of Go, which follows ECMAScript.
pub fn json(value: f64) -> String {
    let text = scientific(value);
    if value == 0.0 || (1e-6..1e21).contains(&value.abs()) {
        return without_exponent(&text);
    }
    match text.split_once('e') {
        Some((mantissa, exponent)) if !exponent.starts_with('-') => {
            format!("{mantissa}e+{exponent}")
        }
        _ => text,
    }
}

/// Converts `-d.ddde-x` to digits with a point.
fn without_exponent(text: &str) -> String {
    let (mantissa, exponent) = text.split_once('e').unwrap_or((text, "0"));
    let sign = if mantissa.starts_with('-') { "-" } else { "" };
    positional(sign.to_owned(), mantissa, exponent.parse().unwrap_or(0))
}

fn special(value: f64) -> Option<String> {
    let text = match value {
        v if v.is_nan() => "NaN",
        f64::INFINITY => "+Inf",
        f64::NEG_INFINITY => "-Inf",
        _ => return None,
    };
    Some(text.to_owned())
}

/// Returns the shortest text that parses to the same number, as `-d.ddde-x`.
///
/// Of two equally near texts Go takes the even one; the formatter of `std` does not.
fn scientific(value: f64) -> String {
    let mut buffer = zmij::Buffer::new();
    let text = buffer.format_finite(value.abs());
    let (mantissa, exponent) = text.split_once('e').unwrap_or((text, "0"));
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let all = format!("{whole}{fraction}");
    let digits = all.trim_start_matches('0');
    let skipped = all.len() - digits.len();
    let digits = digits.trim_end_matches('0');
    let sign = if value.is_sign_negative() { "-" } else { "" };
    let Some(first) = digits.get(..1) else { return format!("{sign}0e0") };
    let exponent: i32 = exponent.parse().unwrap_or(0);
    let exponent = exponent + whole.len() as i32 - 1 - skipped as i32;
    let point = if digits.len() > 1 { "." } else { "" };
    format!("{sign}{first}{point}{}e{exponent}", &digits[1..])
}

/// Converts `-d.ddde-x` to the format of `%g`; from the exponent `limit` on it keeps the exponent.
fn from_scientific(text: &str, limit: i32) -> String {
    let (mantissa, exponent) = text.split_once('e').unwrap_or((text, "0"));
    let exponent: i32 = exponent.parse().unwrap_or(0);
    let (sign, mantissa) = match mantissa.strip_prefix('-') {
        Some(rest) => ("-", rest),
        None => ("", mantissa),
    };
    let mut out = sign.to_owned();
    if exponent < -4 || exponent >= limit {
        let direction = if exponent < 0 { '-' } else { '+' };
        let _ = write!(out, "{mantissa}e{direction}{:02}", exponent.abs());
        return out;
    }
    positional(out, mantissa, exponent)
}

/// Appends the digits of `d.ddde-x` to a sign, without an exponent.
fn positional(mut out: String, mantissa: &str, exponent: i32) -> String {
    let digits: String = mantissa.chars().filter(char::is_ascii_digit).collect();
    if exponent < 0 {
        let _ = write!(out, "0.{}{digits}", "0".repeat((-exponent - 1) as usize));
        return out;
    }
    let whole = exponent as usize + 1;
    if digits.len() <= whole {
        let _ = write!(out, "{digits}{}", "0".repeat(whole - digits.len()));
    } else {
        let _ = write!(out, "{}.{}", &digits[..whole], &digits[whole..]);
    }
    out
}

/// Parses a number as Go does: decimal or hexadecimal, underscores between digits, `inf`, `infinity`,
/// `nan`; `None` for other text, and for numbers too large for a float.
///
/// Source: `strconv.ParseFloat` of Go.
pub fn parse_float(text: &str) -> Option<f64> {
    let unsigned = text.strip_prefix(['+', '-']).unwrap_or(text);
    if let Some(digits) = unsigned.strip_prefix("0x").or_else(|| unsigned.strip_prefix("0X")) {
        let value = parse_hex(digits)?;
        return Some(if text.starts_with('-') { -value } else { value });
    }
    let joined;
    let digits = if text.contains('_') {
        joined = without_underscores(text)?;
        &joined
    } else {
        text
    };
    let value: f64 = digits.parse().ok()?;
    // Rust accepts a sign before "nan", and converts numbers that are too large to infinity.
    let names_infinity = unsigned.starts_with(['i', 'I']);
    if value.is_infinite() != names_infinity || (value.is_nan() && unsigned.len() < text.len()) {
        return None;
    }
    Some(value)
}

/// Removes underscores; `None` if one is not between two digits.
fn without_underscores(text: &str) -> Option<String> {
    let bytes = text.as_bytes();
    let is_digit = |at: usize| bytes.get(at).is_some_and(u8::is_ascii_digit);
    let stands_alone = |(at, _): &(usize, _)| !(*at > 0 && is_digit(at - 1) && is_digit(at + 1));
    if text.match_indices('_').any(|place| stands_alone(&place)) {
        return None;
    }
    Some(text.replace('_', ""))
}

/// Parses `h.hhp±d` without its prefix; underscores are allowed between digits.
fn parse_hex(text: &str) -> Option<f64> {
    let (mantissa, exponent) = text.split_once(['p', 'P'])?;
    let exponent: i32 = exponent.parse().ok()?;
    let (mut bits, mut scale, mut digits, mut after_point) = (0_u64, 0_i32, 0, false);
    let mut previous_is_digit = true;
    for c in mantissa.chars() {
        match c {
            '.' if !after_point => after_point = true,
            '_' if previous_is_digit => {
                previous_is_digit = false;
                continue;
            }
            c => {
                let digit = u64::from(c.to_digit(16)?);
                digits += 1;
                // Beyond 60 bits, rounding depends only on whether a digit is not 0.
                if bits >> 60 == 0 {
                    bits = bits << 4 | digit;
                    scale -= if after_point { 4 } else { 0 };
                } else {
                    bits |= u64::from(digit != 0);
                    scale += if after_point { 0 } else { 4 };
                }
            }
        }
        previous_is_digit = c != '.';
    }
    if digits == 0 || !previous_is_digit {
        return None;
    }
    let power = exponent.clamp(-1_000_000, 1_000_000).saturating_add(scale);
    let value = scale_by_power_of_two(bits as f64, power);
    value.is_finite().then_some(value)
}

fn scale_by_power_of_two(mut value: f64, mut power: i32) -> f64 {
    while power > 0 && value != 0.0 && value.is_finite() {
        let part = power.min(1000);
        value *= 2f64.powi(part);
        power -= part;
    }
    while power < 0 && value != 0.0 {
        let part = power.max(-1000);
        value *= 2f64.powi(part);
        power -= part;
    }
    value
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_print_as_in_go() {
        let cases = [
            (0.0, "0"),
            (-0.0, "-0"),
            (1.5, "1.5"),
            (-1.0, "-1"),
            (100000.0, "100000"),
            (1000000.0, "1e+06"),
            (123456789.0, "1.23456789e+08"),
            (0.0001, "0.0001"),
            (0.00001234, "1.234e-05"),
            (f64::from_bits(0x4306_8844_00e6_60e2), "7.927843927357722e+14"),
            (-5e-324, "-5e-324"),
            (f64::MAX, "1.7976931348623157e+308"),
            (120.0, "120"),
            (0.05, "0.05"),
            (f64::NAN, "NaN"),
            (f64::INFINITY, "+Inf"),
            (f64::NEG_INFINITY, "-Inf"),
        ];
        for (value, text) in cases {
            assert_eq!(general(value), text);
        }
    }

    #[test]
    fn numbers_print_without_exponents_and_as_in_json() {
        for (value, without, in_json) in [
            (0.0, "0", "0"),
            (-0.0, "-0", "-0"),
            (-1.5, "-1.5", "-1.5"),
            (100.0, "100", "100"),
            (0.005, "0.005", "0.005"),
            (1e-6, "0.000001", "0.000001"),
            (-1.25e-7, "-0.000000125", "-1.25e-7"),
            (1e-10, "0.0000000001", "1e-10"),
            (123456789012345680000.0, "123456789012345680000", "123456789012345680000"),
            (1e21, "1000000000000000000000", "1e+21"),
            (-2.5e22, "-25000000000000000000000", "-2.5e+22"),
        ] {
            assert_eq!((plain(value).as_str(), json(value).as_str()), (without, in_json));
        }
        assert_eq!(plain(f64::NEG_INFINITY), "-Inf");
    }

    #[test]
    fn rounded_numbers_print_as_in_go() {
        let cases = [
            (1.0, "1"),
            (0.5, "0.5"),
            (12.0, "12"),
            (12.6, "13"),
            (10.0, "10"),
            (100.0, "1e+02"),
            (123.0, "1.2e+02"),
            (99.9, "1e+02"),
            (0.000123, "0.00012"),
            (0.0000123, "1.2e-05"),
        ];
        for (value, text) in cases {
            assert_eq!(general_rounded(value, 2), text, "{value}");
        }
    }

    #[test]
    fn label_numbers_always_look_like_floats() {
        for (value, text) in [(1.0, "1.0"), (0.99, "0.99"), (1e9, "1e+09"), (f64::NAN, "NaN")] {
            assert_eq!(open_metrics(value), text);
        }
    }

    #[test]
    fn numbers_are_read_as_in_go() {
        let cases = [
            ("1", Some(1.0)),
            ("+Inf", Some(f64::INFINITY)),
            ("-infinity", Some(f64::NEG_INFINITY)),
            ("1e400", None),
            ("0x1p-2", Some(0.25)),
            ("0x1.8p1", Some(3.0)),
            ("-0X_fp0", Some(-15.0)),
            ("-0Xf_fp0", Some(-255.0)),
            ("0x1", None),
            ("", None),
            ("abc", None),
            ("1_000", Some(1000.0)),
            ("1_0.2_5e1_0", Some(10.25e10)),
            ("_1", None),
            ("1_", None),
            ("1__0", None),
            ("1_.5", None),
            ("1e_5", None),
            ("+nan", None),
            (".5", Some(0.5)),
            ("0x1p99999999", None),
        ];
        for (text, value) in cases {
            assert_eq!(parse_float(text), value, "{text}");
        }
        assert!(parse_float("NaN").is_some_and(f64::is_nan));
    }
}
