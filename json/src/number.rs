//! Numbers as Prometheus writes them.

/// Maximum number of decimal digits of a shortest representation.
const DIGITS_MAX: usize = 17;
/// Maximum length of a sample value without quotes: `-0.0000012345678901234567` has 25 bytes. The
/// rest is room for digits that are written eight at a time.
pub const SAMPLE_BYTES_MAX: usize = 32;
/// Maximum length of a time, `-9223372036854775.808`. Digits are written eight at a time within it.
pub const TIMESTAMP_BYTES_MAX: usize = 21;
/// Maximum whole number whose digits are the shortest ones.
const WHOLE_MAX: f64 = 9_007_199_254_740_992.0;
/// Minimum number, up to 1e16, that `zmij` writes as plain decimals.
const SHORTEST_IS_PLAIN_MIN: f64 = 1e-5;

/// Writes a time as seconds with up to three decimals: `1435781451.781`, `-0.005`.
///
/// Units: ms since the epoch.
/// Source: `MarshalTimestamp` of Prometheus.
pub fn push_timestamp(out: &mut Vec<u8>, time_ms: i64) {
    let mut text = [0; TIMESTAMP_BYTES_MAX];
    let len = write_timestamp(&mut text, time_ms);
    out.extend_from_slice(&text[..len]);
}

/// Writes a time to the start of `to`, and returns its length; see [`push_timestamp`]. Later bytes
/// may change.
pub fn write_timestamp(to: &mut [u8; TIMESTAMP_BYTES_MAX], time_ms: i64) -> usize {
    to[0] = b'-';
    let mut len = usize::from(time_ms < 0);
    let (seconds, fraction) = (time_ms.unsigned_abs() / 1000, time_ms.unsigned_abs() % 1000);
    len += write_whole(&mut to[len..], seconds);
    if fraction != 0 {
        let digit = |n: u64| b'0' + (n % 10) as u8;
        to[len..len + 4].copy_from_slice(&[
            b'.',
            digit(fraction / 100),
            digit(fraction / 10),
            digit(fraction),
        ]);
        len += 4;
    }
    len
}

/// Writes a time in seconds, without trailing zeros: `5.1`.
///
/// Source: Go's encoder of floats, which Prometheus uses for scalars and strings.
pub fn push_timestamp_short(out: &mut Vec<u8>, time_ms: i64) {
    let start = out.len();
    push_timestamp(out, time_ms);
    if out[start..].contains(&b'.') {
        while out.last() == Some(&b'0') {
            out.pop();
        }
    }
}

/// Writes the value of a sample, in quotes; see [`write_sample_value`].
#[inline]
pub fn push_sample_value(out: &mut Vec<u8>, value: f64) {
    let mut text = [0; SAMPLE_BYTES_MAX];
    let len = write_sample_value(&mut text, value);
    out.push(b'"');
    out.extend_from_slice(&text[..len]);
    out.push(b'"');
}

/// Writes the value of a sample to the start of `to`, without quotes, and returns its length: plain
/// decimals, with an exponent below 1e-6 and from 1e21 on. Later bytes may change.
///
/// Source: `MarshalFloat` of Prometheus.
#[inline]
pub fn write_sample_value(to: &mut [u8; SAMPLE_BYTES_MAX], value: f64) -> usize {
    let magnitude = value.abs();
    // False for NaN.
    if magnitude <= WHOLE_MAX {
        to[0] = b'-';
        let digits_at = usize::from(value.is_sign_negative());
        // Most samples are whole.
        let whole = magnitude as i64;
        if whole as f64 == magnitude {
            return digits_at + write_whole(&mut to[digits_at..], whole as u64);
        }
        if magnitude >= SHORTEST_IS_PLAIN_MIN {
            let mut buffer = zmij::Buffer::new();
            let text = buffer.format_finite(magnitude).as_bytes();
            to[digits_at..digits_at + text.len()].copy_from_slice(text);
            return digits_at + text.len();
        }
    }
    write_rare_value(to, value)
}

#[cold]
fn write_rare_value(to: &mut [u8; SAMPLE_BYTES_MAX], value: f64) -> usize {
    let is_plain = (1e-6..1e21).contains(&value.abs());
    let mut text = Vec::with_capacity(SAMPLE_BYTES_MAX);
    push_float(&mut text, value, if is_plain { Layout::Plain } else { Layout::Exponent });
    to[..text.len()].copy_from_slice(&text);
    text.len()
}

/// Writes a whole number below 1e16 to the start of `to`, which has room for 16 bytes, and returns
/// its length.
#[inline]
fn write_whole(to: &mut [u8], number: u64) -> usize {
    let (high, low) = (number / 100_000_000, number % 100_000_000);
    if high == 0 {
        return write_short(to, low);
    }
    let len = write_short(to, high);
    to[len..len + 8].copy_from_slice(&eight_digits(low).to_le_bytes());
    len + 8
}

/// Writes a whole number below 1e8 without leading zeros to the start of `to`, which has room
/// for 8 bytes, and returns its length.
#[inline]
fn write_short(to: &mut [u8], number: u64) -> usize {
    let digits = eight_digits(number);
    // The last digit stays if all are zero.
    let zeros = (digits ^ ZEROS | 1 << 56).trailing_zeros() / 8;
    to[..8].copy_from_slice(&(digits >> (8 * zeros)).to_le_bytes());
    8 - zeros as usize
}

/// Eight times the digit 0.
const ZEROS: u64 = 0x3030_3030_3030_3030;

/// Returns the eight digits of a number below 1e8 as text, the first in the lowest byte.
///
/// Halves, quarters and digits are split off in all lanes of a word at once; each quotient is a
/// product with the reciprocal, exact for what the lane can hold.
#[inline]
fn eight_digits(number: u64) -> u64 {
    let high = (number * 109_951_163) >> 40;
    let halves = high | (number - 10_000 * high) << 32;
    let high = ((halves * 10_486) >> 20) & 0x0000_007f_0000_007f;
    let quarters = high | (halves - 100 * high) << 16;
    let high = ((quarters * 103) >> 10) & 0x000f_000f_000f_000f;
    ZEROS | high | (quarters - 10 * high) << 8
}

/// Writes the value of a scalar, in quotes: plain decimals of any length.
///
/// Source: `Scalar.MarshalJSON` of Prometheus.
pub fn push_scalar_value(out: &mut Vec<u8>, value: f64) {
    out.push(b'"');
    push_float(out, value, Layout::Plain);
    out.push(b'"');
}

/// Writes a finite number as JSON, without quotes; others become 0.
///
/// Source: Go's `encoding/json`, "floats as ES6".
pub fn push_number(out: &mut Vec<u8>, value: f64) {
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
pub fn push_integer(out: &mut Vec<u8>, mut number: u64) {
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
    if layout == Layout::Plain && magnitude <= WHOLE_MAX {
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

/// Writes `0.d1d2…`, scaled by ten to the power of `point`.
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

/// Returns the fewest decimal digits that parse as the same number, without leading and trailing
/// zeros, their count, and the point: the number is `0.d1d2… × 10^point`. It is positive and
/// finite, or zero, which has one digit.
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
            // The shortest digits are followed by zeros of a whole number.
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

    #[test]
    fn eight_digits_are_those_of_the_number() {
        let check = |number: u64| {
            let digits = eight_digits(number).to_le_bytes();
            assert_eq!(digits.as_slice(), format!("{number:08}").as_bytes());
        };
        (0..100_000).for_each(check);
        (0..1_000).map(|n| 99_999_999 - n * 99_991).for_each(check);
    }

    proptest! {
        #[test]
        fn whole_numbers_are_those_of_the_standard_library(number in any::<u64>(), bits in 0u32..53) {
            let number = number >> (63 - bits);
            prop_assert_eq!(written(push_sample_value, number as f64), format!("\"{number}\""));
            let negative = -(number as f64) - 0.0;
            prop_assert_eq!(written(push_sample_value, negative), format!("\"{negative}\""));
        }

        #[test]
        fn sample_values_are_laid_out_by_their_magnitude(
            mantissa in 1.0..10.0_f64, exponent in -9i32..24, is_negative in any::<bool>(),
        ) {
            let value = mantissa * 10f64.powi(exponent) * if is_negative { -1.0 } else { 1.0 };
            let mut expected = Vec::new();
            let is_plain = (1e-6..1e21).contains(&value.abs());
            push_float(&mut expected, value, if is_plain { Layout::Plain } else { Layout::Exponent });
            let text = written(push_sample_value, value);
            prop_assert_eq!(text.trim_matches('"').as_bytes(), expected);
        }

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
            let (text, expected) = (text.trim_matches('"'), value.to_string());
            // Of two shortest texts that are equally near, Go takes the one that ends in an even
            // digit, and the standard library the greater one.
            let is_tie = text.len() == expected.len()
                && text.parse::<f64>() == Ok(value)
                && text.bytes().last().is_some_and(|digit| digit % 2 == 0);
            prop_assert!(text == expected || is_tie, "{} {}", text, expected);
        }
    }
}
