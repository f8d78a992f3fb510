//! Powers of two, with the exact bits that interpolation within buckets requires.

/// Computes two to the power of a number with the same bits as Go; exact for whole exponents.
///
/// The functions of C libraries sometimes differ in the last bit, which is visible in quantiles.
///
/// With `k` as the nearest integer and `r = (x − k)·ln 2`, the result is `2^k · e^r`, where
/// `e^r = 1 + r + r·c/(2 − c)` and `c` is `r` minus a polynomial of its square.
///
/// Source: `math.Exp2` of Go (FreeBSD's `e_exp.c`).
#[allow(clippy::excessive_precision)]
pub(super) fn exp2(x: f64) -> f64 {
    const LN2_HIGH: f64 = 6.93147180369123816490e-01;
    const LN2_LOW: f64 = 1.90821492927058770002e-10;
    const POLYNOMIAL: [f64; 5] = [
        1.66666666666666657415e-01,
        -2.77777777770155933842e-03,
        6.61375632143793436117e-05,
        -1.65339022054652515390e-06,
        4.13813679705723846039e-08,
    ];
    if x.is_nan() {
        return x;
    }
    if x > 1.0239999999999999e+03 {
        return f64::INFINITY;
    }
    if x < -1.0740e+03 {
        return 0.0;
    }
    // Round to nearest, ties away from zero.
    let whole = (if x > 0.0 { x + 0.5 } else { x - 0.5 }).trunc();
    let rest = x - whole;
    let (high, low) = (rest * LN2_HIGH, -rest * LN2_LOW);
    let r = high - low;
    let t = r * r;
    let [p1, p2, p3, p4, p5] = POLYNOMIAL;
    let c = r - t * (p1 + t * (p2 + t * (p3 + t * (p4 + t * p5))));
    let fraction = 1.0 - ((low - (r * c) / (2.0 - c)) - high);
    scaled(fraction, whole as i32)
}

/// Multiplies a number near 1 by a power of two, rounded once.
fn scaled(fraction: f64, exponent: i32) -> f64 {
    let power = |exponent: i32| f64::from_bits(((exponent + 1023) as u64) << 52);
    match exponent {
        ..-1000 => fraction * power(exponent + 200) * power(-200),
        -1000..1000 => fraction * power(exponent),
        1000.. => fraction * power(exponent - 200) * power(200),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whole_exponents_are_exact_and_the_rest_is_close() {
        for exponent in -1074..1024 {
            let power = match exponent {
                ..-1022 => f64::from_bits(1 << (exponent + 1074)),
                _ => 2f64.powi(exponent),
            };
            assert_eq!(exp2(f64::from(exponent)), power, "{exponent}");
        }
        for value in [0.1, -0.1, 0.5, -0.5, 3.7, -1021.3, 1023.5] {
            assert!((exp2(value) - value.exp2()).abs() <= 4e-16 * value.exp2());
        }
    }

    #[test]
    fn boundaries_are_those_of_go() {
        assert_eq!(exp2(f64::INFINITY), f64::INFINITY);
        assert_eq!(exp2(1024.0), f64::INFINITY);
        assert_eq!(exp2(f64::NEG_INFINITY), 0.0);
        assert_eq!(exp2(-1074.5), 0.0);
        assert!(exp2(f64::NAN).is_nan());
        // Bits of Go; C libraries end the root of 2 in d.
        assert_eq!(exp2(0.5).to_bits(), 0x3ff6_a09e_667f_3bcc);
        assert_eq!(exp2(3.7).to_bits(), 0x4029_fdf8_bcce_533e);
        assert_eq!(exp2(-1021.3).to_bits(), 0x0019_fdf8_bcce_5424);
    }
}
