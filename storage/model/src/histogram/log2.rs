//! Binary logarithm for interpolation inside of buckets.

/// Returns the binary logarithm with the same bits as in Go; exact for powers of two.
///
/// Logarithms of C libraries sometimes differ in the last bit, which is visible in interpolated
/// counts and quantiles.
///
/// Source: `math.Log2` of Go for the exponent, and `math.Log` (FreeBSD's `e_log.c`) for the
/// fraction.
pub fn log2(value: f64) -> f64 {
    if value < 0.0 {
        return f64::NAN;
    }
    if value == 0.0 {
        return f64::NEG_INFINITY;
    }
    if !value.is_finite() {
        return value;
    }
    let (fraction, exponent) = split_exponent(value);
    if fraction == 0.5 {
        return f64::from(exponent - 1);
    }
    logarithm_of_fraction(fraction) * std::f64::consts::LOG2_E + f64::from(exponent)
}

/// Splits a positive finite number into a fraction in `[0.5, 1)` and an exponent of two.
fn split_exponent(value: f64) -> (f64, i32) {
    let (value, shift) =
        if value < f64::MIN_POSITIVE { (value * 2f64.powi(52), 52) } else { (value, 0) };
    let bits = value.to_bits();
    let exponent = (bits >> 52 & 0x7ff) as i32 - 1022 - shift;
    (f64::from_bits(bits & !(0x7ff << 52) | 1022 << 52), exponent)
}

/// Returns the natural logarithm of a number in `[0.5, 1)`.
///
/// With `f` as distance from 1 and `s = f / (2 + f)`, it is `f − f²/2 + s·(f²/2 + R(s²))`, where
/// `R` is a polynomial; below √½ the number is doubled first.
#[allow(clippy::excessive_precision)]
fn logarithm_of_fraction(fraction: f64) -> f64 {
    const LN2_HIGH: f64 = 6.93147180369123816490e-01;
    const LN2_LOW: f64 = 1.90821492927058770002e-10;
    const ODD: [f64; 4] = [
        6.666666666666735130e-01,
        2.857142874366239149e-01,
        1.818357216161805012e-01,
        1.479819860511658591e-01,
    ];
    const EVEN: [f64; 3] =
        [3.999999999940941908e-01, 2.222219843214978396e-01, 1.531383769920937332e-01];

    let (doubled, k) = match fraction <= std::f64::consts::FRAC_1_SQRT_2 {
        true => (fraction * 2.0, -1.0),
        false => (fraction, 0.0),
    };
    let f = doubled - 1.0;
    let s = f / (2.0 + f);
    let s2 = s * s;
    let s4 = s2 * s2;
    let odd = s2 * (ODD[0] + s4 * (ODD[1] + s4 * (ODD[2] + s4 * ODD[3])));
    let even = s4 * (EVEN[0] + s4 * (EVEN[1] + s4 * EVEN[2]));
    let remainder = odd + even;
    let half_square = 0.5 * f * f;
    k * LN2_HIGH - ((half_square - (s * (half_square + remainder) + k * LN2_LOW)) - f)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn powers_of_two_are_exact_and_the_rest_is_close() {
        for exponent in -1074..1024 {
            let value = if exponent < -1022 {
                f64::from_bits(1 << (exponent + 1074))
            } else {
                2f64.powi(exponent)
            };
            assert_eq!(log2(value), f64::from(exponent));
        }
        for value in [0.1, 0.7, 1.1, 3.0, 1e300, 1e-310] {
            assert!((log2(value) - value.log2()).abs() <= 4e-16 * value.log2().abs());
        }
    }

    #[test]
    fn numbers_without_a_logarithm_are_as_in_go() {
        assert_eq!(log2(0.0), f64::NEG_INFINITY);
        assert_eq!(log2(f64::INFINITY), f64::INFINITY);
        assert!(log2(-1.0).is_nan() && log2(f64::NAN).is_nan());
    }
}
