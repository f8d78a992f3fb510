//! Numbers as Prometheus writes them.

/// The most decimal digits of a shortest representation.
const DIGITS_MAX: usize = 17;

/// Writes a time as seconds with up to three decimals: `1435781451.781`, `-0.005`.
///
/// Units: ms since the epoch.
/// Source: `MarshalTimestamp` of Prometheus.
pub(crate) fn push_timestamp(out: &mut Vec<u8>, time_ms: i64) {
    if time_ms < 0 {
        out.push(b'-');
    }
    let magnitude = time_ms.unsigned_abs();
    push_integer(out, magnitude / 1000);
    let fraction = magnitude % 1000;
    if fraction != 0 {
        let digit = |n: u64| b'0' + (n % 10) as u8;
        out.extend_from_slice(&[b'.', digit(fraction / 100), digit(fraction / 10)]);
        out.push(digit(fraction));
    }
}

/// Writes a time as the number of its seconds, without needless zeros: `5.1`.
///
/// Source: scalars and strings go through Go's own encoder of floats.
pub(crate) fn push_timestamp_short(out: &mut Vec<u8>, time_ms: i64) {
    let start = out.len();
    push_timestamp(out, time_ms);
    if out[start..].contains(&b'.') {
        while out.last() == Some(&b'0') {
            out.pop();
        }
    }
}

/// Writes the value of a sample, in quotes: plain decimals, with an exponent below 1e-6 and
/// from 1e21 on.
///
/// Source: `MarshalFloat` of Prometheus.
#[inline]
pub(crate) fn push_sample_value(out: &mut Vec<u8>, value: f64) {
    out.push(b'"');
    let magnitude = value.abs();
    let is_plain = magnitude == 0.0 || (1e-6..1e21).contains(&magnitude);
    push_float(out, value, if is_plain { Layout::Plain } else { Layout::Exponent });
    out.push(b'"');
}

/// Writes the value of a scalar, in quotes: plain decimals, however many.
///
/// Source: `Scalar.MarshalJSON` of Prometheus.
pub(crate) fn push_scalar_value(out: &mut Vec<u8>, value: f64) {
    out.push(b'"');
    push_float(out, value, Layout::Plain);
    out.push(b'"');
}

/// Writes a finite number as JSON has it, without quotes; what is not finite becomes 0.
///
/// Source: Go's `encoding/json`, "floats as ES6".
pub(crate) fn push_number(out: &mut Vec<u8>, value: f64) {
    let magnitude = value.abs();
    let is_plain = magnitude == 0.0 || (1e-6..1e21).contains(&magnitude);
    match (value.is_finite(), is_plain) {
        (false, _) => out.push(b'0'),
        (true, true) => push_float(out, value, Layout::Plain),
        (true, false) => push_float(out, value, Layout::ShortExponent),
    }
}

/// Writes a whole number.
#[inline]
pub(crate) fn push_integer(out: &mut Vec<u8>, mut number: u64) {
    let mut digits = [0_u8; 20];
    let mut at = digits.len();
    loop {
        at -= 1;
        digits[at] = b'0' + (number % 10) as u8;
        number /= 10;
        if number == 0 {
            break;
        }
    }
    out.extend_from_slice(&digits[at..]);
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Layout {
    /// Go's `f`.
    Plain,
    /// Go's `e`: at least two digits of exponent.
    Exponent,
    /// Go's `e` in JSON: a negative exponent without its leading zero.
    ShortExponent,
}

fn push_float(out: &mut Vec<u8>, value: f64, layout: Layout) {
    if value.is_nan() {
        return out.extend_from_slice(b"NaN");
    }
    if value.is_infinite() {
        return out.extend_from_slice(if value > 0.0 { b"+Inf" } else { b"-Inf" });
    }
    if value.is_sign_negative() {
        out.push(b'-');
    }
    let magnitude = value.abs();
    // Most samples are whole; up to 2^53 the digits of the integer are the shortest ones.
    if layout == Layout::Plain && magnitude <= 9_007_199_254_740_992.0 {
        let whole = magnitude as u64;
        if whole as f64 == magnitude {
            return push_integer(out, whole);
        }
    }
    let (digits, len, point) = shortest_digits(magnitude);
    let digits = &digits[..len];
    match layout {
        Layout::Plain => push_plain(out, digits, point),
        Layout::Exponent => push_exponent(out, digits, point - 1, 2),
        Layout::ShortExponent => {
            push_exponent(out, digits, point - 1, if point < 1 { 1 } else { 2 });
        }
    }
}

/// `0.d1d2…`, scaled by ten to the power of `point`.
fn push_plain(out: &mut Vec<u8>, digits: &[u8], point: i32) {
    if point <= 0 {
        out.extend_from_slice(b"0.");
        out.resize(out.len() + point.unsigned_abs() as usize, b'0');
        out.extend_from_slice(digits);
        return;
    }
    let whole = point as usize;
    if whole >= digits.len() {
        out.extend_from_slice(digits);
        out.resize(out.len() + whole - digits.len(), b'0');
    } else {
        out.extend_from_slice(&digits[..whole]);
        out.push(b'.');
        out.extend_from_slice(&digits[whole..]);
    }
}

fn push_exponent(out: &mut Vec<u8>, digits: &[u8], exponent: i32, exponent_digits_min: usize) {
    out.push(digits[0]);
    if digits.len() > 1 {
        out.push(b'.');
        out.extend_from_slice(&digits[1..]);
    }
    out.extend_from_slice(if exponent < 0 { b"e-" } else { b"e+" });
    if exponent_digits_min > 1 && exponent.abs() < 10 {
        out.push(b'0');
    }
    push_integer(out, u64::from(exponent.unsigned_abs()));
}

/// The fewest decimal digits that read back as the same number, without leading and trailing
/// zeros, how many they are, and where the point stands: the number is `0.d1d2… × 10^point`.
/// The number is positive and finite, or zero, which has one digit.
fn shortest_digits(magnitude: f64) -> ([u8; DIGITS_MAX], usize, i32) {
    let mut digits = [b'0'; DIGITS_MAX];
    let mut buffer = zmij::Buffer::new();
    let text = buffer.format_finite(magnitude);
    let (mantissa, exponent) = text.split_once('e').unwrap_or((text, "0"));
    let mut point: i32 = exponent.parse().expect("an exponent is a short number");
    let mut len = 0;
    let mut seen_point = false;
    for byte in mantissa.bytes() {
        if byte == b'.' {
            seen_point = true;
            continue;
        }
        let is_leading_zero = len == 0 && byte == b'0';
        if !seen_point && !is_leading_zero {
            point += 1;
        }
        if seen_point && is_leading_zero {
            point -= 1;
        }
        if !is_leading_zero {
            // Past the shortest digits come only zeros of a whole number.
            if let Some(digit) = digits.get_mut(len) {
                *digit = byte;
            }
            len += 1;
        }
    }
    len = len.min(DIGITS_MAX);
    while len > 1 && digits[len - 1] == b'0' {
        len -= 1;
    }
    (digits, len.max(1), point)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn written<T>(push: impl Fn(&mut Vec<u8>, T), value: T) -> String {
        let mut out = Vec::new();
        push(&mut out, value);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn sample_values_are_those_of_go() {
        let cases = [
            (0.0, "0"),
            (-0.0, "-0"),
            (1.0, "1"),
            (-1.5, "-1.5"),
            (0.1, "0.1"),
            (123_456_789.125, "123456789.125"),
            (1e-6, "0.000001"),
            (1.5e-6, "0.0000015"),
            (9.99e-7, "9.99e-07"),
            (1e-10, "1e-10"),
            (5e-324, "5e-324"),
            (1e20, "100000000000000000000"),
            (1e21, "1e+21"),
            (1.234e22, "1.234e+22"),
            (f64::MAX, "1.7976931348623157e+308"),
            (9_007_199_254_740_992.0, "9007199254740992"),
            (9_007_199_254_740_994.0, "9007199254740994"),
            (18_014_398_509_481_984.0, "18014398509481984"),
            (123_456_789_012_345_680.0, "123456789012345680"),
            (f64::INFINITY, "+Inf"),
            (f64::NEG_INFINITY, "-Inf"),
            (f64::NAN, "NaN"),
            (-f64::NAN, "NaN"),
        ];
        for (value, text) in cases {
            assert_eq!(written(push_sample_value, value), format!("\"{text}\""));
        }
    }

    #[test]
    fn scalars_never_have_an_exponent() {
        assert_eq!(written(push_scalar_value, 1e-10), "\"0.0000000001\"");
        assert_eq!(written(push_scalar_value, 1e22), "\"10000000000000000000000\"");
        assert_eq!(written(push_scalar_value, 1e300), format!("\"1{}\"", "0".repeat(300)));
    }

    #[test]
    fn numbers_of_the_statistics_are_those_of_json() {
        let cases =
            [(0.0, "0"), (0.000019173, "0.000019173"), (9e-7, "9e-7"), (1.5e-12, "1.5e-12")];
        for (value, text) in cases {
            assert_eq!(written(push_number, value), text);
        }
        assert_eq!(written(push_number, 1e21), "1e+21");
        assert_eq!(written(push_number, f64::NAN), "0");
    }

    #[test]
    fn timestamps_have_three_decimals_or_none() {
        let cases = [
            (0, "0", "0"),
            (1, "0.001", "0.001"),
            (-5, "-0.005", "-0.005"),
            (1_435_781_451_781, "1435781451.781", "1435781451.781"),
            (5_100, "5.100", "5.1"),
            (-120_000, "-120", "-120"),
            (i64::MIN, "-9223372036854775.808", "-9223372036854775.808"),
        ];
        for (time_ms, text, short) in cases {
            assert_eq!(written(push_timestamp, time_ms), text);
            assert_eq!(written(push_timestamp_short, time_ms), short);
        }
    }

    proptest! {
        #[test]
        fn any_value_reads_back(bits in any::<u64>()) {
            let value = f64::from_bits(bits);
            for push in [push_sample_value as fn(&mut Vec<u8>, f64), push_scalar_value] {
                let text = written(push, value);
                let read: f64 = text.trim_matches('"').parse().unwrap();
                prop_assert!(read == value || (read.is_nan() && value.is_nan()), "{}", text);
            }
        }

        #[test]
        fn plain_layout_is_that_of_the_standard_library(
            value in prop_oneof![-1e9..1e9_f64, -1.0..1.0_f64, (-1e18..1e18_f64).prop_map(f64::round)],
        ) {
            let text = written(push_scalar_value, value);
            prop_assert_eq!(text.trim_matches('"'), value.to_string());
        }
    }
}
