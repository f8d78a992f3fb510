//! Functions that map each number independently.

use crate::catalog::MathFunction;
use crate::exec::adapter::elementwise::RowKernel;
use crate::tile::set_absent;

/// Returns the kernel of a function of one number.
pub(super) fn unary(function: MathFunction) -> RowKernel {
    use std::f64::consts::PI;
    match function {
        MathFunction::Abs => each(f64::abs),
        MathFunction::Acos => each(f64::acos),
        MathFunction::Acosh => each(acosh),
        MathFunction::Asin => each(f64::asin),
        MathFunction::Asinh => each(asinh),
        MathFunction::Atan => each(f64::atan),
        MathFunction::Atanh => each(atanh),
        MathFunction::Ceil => each(f64::ceil),
        MathFunction::Cos => each(f64::cos),
        MathFunction::Cosh => each(cosh),
        MathFunction::Deg => each(|value| value * 180.0 / PI),
        MathFunction::Exp => each(f64::exp),
        MathFunction::Floor => each(f64::floor),
        MathFunction::Ln => each(f64::ln),
        MathFunction::Log10 => each(log10),
        MathFunction::Log2 => each(log2),
        MathFunction::Rad => each(|value| value * PI / 180.0),
        MathFunction::Sgn => each(sgn),
        MathFunction::Sin => each(f64::sin),
        MathFunction::Sinh => each(sinh),
        MathFunction::Sqrt => each(f64::sqrt),
        MathFunction::Tan => each(f64::tan),
        MathFunction::Tanh => each(f64::tanh),
    }
}

/// `round`: rounds to the nearest multiple, ties up.
pub(super) fn round(to_nearest: Vec<f64>) -> RowKernel {
    Box::new(move |first_step, values, _| {
        let nearest = &to_nearest[first_step..first_step + values.len()];
        for (value, nearest) in values.iter_mut().zip(nearest) {
            let inverse = 1.0 / nearest;
            *value = (*value * inverse + 0.5).floor() / inverse;
        }
    })
}

/// `clamp`, `clamp_min`, `clamp_max`; removes values at steps with `min > max`.
pub(super) fn clamp(min: Vec<f64>, max: Vec<f64>) -> RowKernel {
    Box::new(move |first_step, values, presence| {
        for (index, value) in values.iter_mut().enumerate() {
            let (min, max) = (min[first_step + index], max[first_step + index]);
            if max < min {
                set_absent(presence, index);
            }
            *value = go_max(min, go_min(max, *value));
        }
    })
}

fn each(apply: impl Fn(f64) -> f64 + Send + Sync + 'static) -> RowKernel {
    Box::new(move |_, values, _| values.iter_mut().for_each(|value| *value = apply(*value)))
}

/// Returns the maximum. Infinity wins over NaN, NaN over other numbers, and 0 over -0.
///
/// Source: `math.Max` of Go.
pub(crate) fn go_max(a: f64, b: f64) -> f64 {
    match (a, b) {
        (f64::INFINITY, _) | (_, f64::INFINITY) => f64::INFINITY,
        (a, b) if a.is_nan() || b.is_nan() => f64::NAN,
        (a, b) if a == 0.0 && b == 0.0 && a.is_sign_negative() => b,
        (a, b) if a >= b => a,
        (_, b) => b,
    }
}

/// Returns the minimum; see [`go_max`].
pub(crate) fn go_min(a: f64, b: f64) -> f64 {
    -go_max(-a, -b)
}

fn sgn(value: f64) -> f64 {
    if value < 0.0 {
        -1.0
    } else if value > 0.0 {
        1.0
    } else {
        value
    }
}

/// Returns the binary logarithm, exact for powers of two.
///
/// Source: `math.Log2` of Go, which separates the exponent first.
fn log2(value: f64) -> f64 {
    let (fraction, exponent) = split_exponent(value);
    if fraction == 0.5 {
        return f64::from(exponent - 1);
    }
    fraction.ln() * std::f64::consts::LOG2_E + f64::from(exponent)
}

/// Source: `math.Log10` of Go, which uses the natural logarithm.
fn log10(value: f64) -> f64 {
    value.ln() * std::f64::consts::LOG10_E
}

/// Splits a number into a fraction in `[0.5, 1)` and an exponent; 0, infinities and NaN unchanged.
fn split_exponent(value: f64) -> (f64, i32) {
    if value == 0.0 || !value.is_finite() {
        return (value, 0);
    }
    let (value, shift) =
        if value.abs() < f64::MIN_POSITIVE { (value * 2f64.powi(52), 52) } else { (value, 0) };
    let bits = value.to_bits();
    let exponent = (bits >> 52 & 0x7ff) as i32 - 1022 - shift;
    (f64::from_bits(bits & !(0x7ff << 52) | 1022 << 52), exponent)
}

/// From here on, the smaller of `eˣ` and `e⁻ˣ` does not change their sum.
const LARGE_EXPONENT: f64 = 21.0;

/// Source: `math.Cosh` of Go, which halves `eˣ` and therefore overflows where `eˣ` does.
fn cosh(value: f64) -> f64 {
    let x = value.abs();
    let power = x.exp();
    if x > LARGE_EXPONENT { power * 0.5 } else { (power + 1.0 / power) * 0.5 }
}

/// Source: `math.Sinh` of Go, which halves `eˣ` and therefore overflows where `eˣ` does.
fn sinh(value: f64) -> f64 {
    let x = value.abs();
    let result = if x > LARGE_EXPONENT {
        x.exp() * 0.5
    } else if x > 0.5 {
        let power = x.exp();
        (power - 1.0 / power) * 0.5
    } else {
        return value.sinh();
    };
    result.copysign(value)
}

/// Returns the angle of the point (`x`, `y`).
///
/// Source: `math.Atan2` of Go, which divides first: a quotient that underflows loses its sign.
pub(crate) fn atan2(y: f64, x: f64) -> f64 {
    let quotient = y / x;
    if quotient == 0.0 && y != 0.0 && x < 0.0 && x.is_finite() {
        return std::f64::consts::PI;
    }
    y.atan2(x)
}

/// From here on, `x + sqrt(x² ± 1)` is `2x`.
const LARGE: f64 = (1_u64 << 28) as f64;

fn asinh(value: f64) -> f64 {
    let x = value.abs();
    let result = if !value.is_finite() || x < 1.0 / LARGE {
        x
    } else if x > LARGE {
        x.ln() + std::f64::consts::LN_2
    } else if x > 2.0 {
        (2.0 * x + 1.0 / ((x * x + 1.0).sqrt() + x)).ln()
    } else {
        (x + x * x / (1.0 + (1.0 + x * x).sqrt())).ln_1p()
    };
    result.copysign(value)
}

fn acosh(x: f64) -> f64 {
    if x.is_nan() || x < 1.0 {
        f64::NAN
    } else if x >= LARGE {
        x.ln() + std::f64::consts::LN_2
    } else if x > 2.0 {
        (2.0 * x - 1.0 / (x + (x * x - 1.0).sqrt())).ln()
    } else {
        let above = x - 1.0;
        (above + (2.0 * above + above * above).sqrt()).ln_1p()
    }
}

fn atanh(value: f64) -> f64 {
    let x = value.abs();
    let result = if x.is_nan() || x > 1.0 {
        return f64::NAN;
    } else if x == 1.0 {
        f64::INFINITY
    } else if x < 1.0 / LARGE {
        x
    } else if x < 0.5 {
        let twice = x + x;
        0.5 * (twice + twice * x / (1.0 - x)).ln_1p()
    } else {
        0.5 * ((x + x) / (1.0 - x)).ln_1p()
    };
    result.copysign(value)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::catalog::{Function, FunctionId, all, lookup};

    fn same(a: f64, b: f64) -> bool {
        a.to_bits() == b.to_bits() || (a.is_nan() && b.is_nan())
    }

    #[test]
    fn larger_and_smaller_follow_go() {
        let (inf, nan) = (f64::INFINITY, f64::NAN);
        let cases = [
            (inf, nan, inf, nan),
            (nan, -inf, nan, -inf),
            (0.0, -0.0, 0.0, -0.0),
            (-0.0, 0.0, 0.0, -0.0),
            (1.0, 2.0, 2.0, 1.0),
            (nan, 1.0, nan, nan),
        ];
        for (a, b, max, min) in cases {
            assert!(same(go_max(a, b), max), "max {a} {b}");
            assert!(same(go_min(a, b), min), "min {a} {b}");
        }
    }

    /// Results of Go's functions at `POINTS`; `*` if the digits for a huge argument are undefined,
    /// or if Go's logarithms of denormal numbers are wrong on x86.
    const AT_POINTS: &str = "
        abs NaN +Inf +Inf 0 0 1 1 0.5 2.5 1e-310 1.7976931348623157e+308
        acos NaN NaN NaN 1.5707963267948966 1.5707963267948966 0 3.141592653589793 1.0471975511965976 NaN 1.5707963267948966 NaN
        acosh NaN +Inf NaN NaN NaN 0 NaN NaN NaN NaN 710.4758600739439
        asin NaN NaN NaN -0 0 1.5707963267948966 -1.5707963267948966 0.5235987755982989 NaN 1e-310 NaN
        asinh NaN +Inf -Inf -0 0 0.881373587019543 -0.881373587019543 0.48121182505960347 -1.6472311463710958 1e-310 710.4758600739439
        atan NaN 1.5707963267948966 -1.5707963267948966 -0 0 0.7853981633974483 -0.7853981633974483 0.4636476090008061 -1.1902899496825317 1e-310 1.5707963267948966
        atanh NaN NaN NaN -0 0 +Inf -Inf 0.5493061443340548 NaN 1e-310 NaN
        ceil NaN +Inf -Inf -0 0 1 -1 1 -2 1 1.7976931348623157e+308
        cos NaN NaN NaN 1 1 0.5403023058681398 0.5403023058681398 0.8775825618903728 -0.8011436155469337 1 *
        cosh NaN +Inf +Inf 1 1 1.5430806348152437 1.5430806348152437 1.1276259652063807 6.132289479663686 1 +Inf
        deg NaN +Inf -Inf -0 0 57.29577951308232 -57.29577951308232 28.64788975654116 -143.2394487827058 5.729577951308214e-309 +Inf
        exp NaN +Inf 0 1 1 2.718281828459045 0.36787944117144233 1.6487212707001282 0.0820849986238988 1 +Inf
        floor NaN +Inf -Inf -0 0 1 -1 0 -3 0 1.7976931348623157e+308
        ln NaN +Inf NaN -Inf -Inf 0 NaN -0.6931471805599453 NaN * 709.782712893384
        log10 NaN +Inf NaN -Inf -Inf 0 NaN -0.3010299956639812 NaN * 308.25471555991675
        log2 NaN +Inf NaN -Inf -Inf 0 NaN -1 NaN -1029.7977094150824 1024
        rad NaN +Inf -Inf -0 0 0.017453292519943295 -0.017453292519943295 0.008726646259971648 -0.04363323129985824 1.745329251995e-312 +Inf
        sgn NaN 1 -1 -0 0 1 -1 1 -1 1 1
        sin NaN NaN NaN -0 0 0.8414709848078965 -0.8414709848078965 0.479425538604203 -0.5984721441039564 1e-310 *
        sinh NaN +Inf -Inf -0 0 1.1752011936438014 -1.1752011936438014 0.5210953054937474 -6.0502044810397875 1e-310 +Inf
        sqrt NaN +Inf NaN -0 0 1 NaN 0.7071067811865476 NaN 9.999999999999986e-156 1.3407807929942596e+154
        tan NaN NaN NaN -0 0 1.557407724654902 -1.557407724654902 0.5463024898437905 0.7470222972386603 1e-310 *
        tanh NaN 1 -1 -0 0 0.7615941559557649 -0.7615941559557649 0.46211715726000974 -0.9866142981514303 1e-310 1
    ";
    const POINTS: [f64; 11] = [
        f64::NAN,
        f64::INFINITY,
        f64::NEG_INFINITY,
        -0.0,
        0.0,
        1.0,
        -1.0,
        0.5,
        -2.5,
        1e-310,
        f64::MAX,
    ];

    #[test]
    fn functions_are_those_of_go_where_it_matters() {
        let mut count = 0;
        for line in AT_POINTS.lines().map(str::trim).filter(|line| !line.is_empty()) {
            let (name, expected) = line.split_once(' ').unwrap();
            let FunctionId::Math(function) = lookup(name).unwrap().id else {
                panic!("{name} is no function of one number");
            };
            let kernel = unary(function);
            let mut values = POINTS;
            let mut presence = [0b101];
            kernel(0, &mut values, &mut presence);
            kernel(0, &mut [], &mut []);
            assert_eq!(presence, [0b101], "{name}");
            for ((point, found), expected) in POINTS.iter().zip(values).zip(expected.split(' ')) {
                let Ok(expected) = expected.parse::<f64>() else { continue };
                // Denormal numbers have few digits.
                let is_close = (found - expected).abs() <= 1e-14 * expected.abs() + 1e-322;
                let is_exact = expected == 0.0 || !expected.is_finite();
                let is_right = same(found, expected) || (is_close && !is_exact);
                assert!(is_right, "{name} {point}: {found} is not {expected}");
                count += 1;
            }
        }
        let is_unary = |f: &&Function| matches!(f.id, FunctionId::Math(_));
        let unary_count = all().iter().filter(is_unary).count();
        assert_eq!(count, unary_count * POINTS.len() - 5);
    }

    /// Bits of `math.Cosh` and `math.Sinh` of Go at chosen points.
    const HYPERBOLIC: [(f64, u64, u64); 18] = [
        (0.6, 0x3ff2f7aa606e5630, 0x3fe45f775546a77d),
        (0.75, 0x3ff4b705d1e5d6a8, 0x3fea506b2dd3c690),
        (-0.6, 0x3ff2f7aa606e5630, 0xbfe45f775546a77d),
        (3.0, 0x402422a497d6185e, 0x40240926e70949ae),
        (20.5, 0x41b7d6c4f0bcdd5c, 0x41b7d6c4f0bcdd5c),
        (21.0, 0x41c3a6e1fd9eecfd, 0x41c3a6e1fd9eecfd),
        (22.0, 0x41dab5adb9c435ff, 0x41dab5adb9c435ff),
        (-25.0, 0x4220c3d3920962c9, 0xc220c3d3920962c9),
        (100.0, 0x48e3494a9b171bf5, 0x48e3494a9b171bf5),
        (700.0, 0x7efd945df4f8ec8e, 0x7efd945df4f8ec8e),
        (709.4, 0x7fd5d303de3ac8fd, 0x7fd5d303de3ac8fd),
        (709.79, 0x7ff0000000000000, 0x7ff0000000000000),
        (709.8, 0x7ff0000000000000, 0x7ff0000000000000),
        (-709.8, 0x7ff0000000000000, 0xfff0000000000000),
        (710.0, 0x7ff0000000000000, 0x7ff0000000000000),
        (710.4, 0x7ff0000000000000, 0x7ff0000000000000),
        (710.5, 0x7ff0000000000000, 0x7ff0000000000000),
        (-710.5, 0x7ff0000000000000, 0xfff0000000000000),
    ];

    #[test]
    fn hyperbolic_functions_are_those_of_go_up_to_the_last_bits() {
        for (x, expected_cosh, expected_sinh) in HYPERBOLIC {
            for (name, found, expected) in
                [("cosh", cosh(x), expected_cosh), ("sinh", sinh(x), expected_sinh)]
            {
                // Powers of e differ in the last bit between processors, infinities do not.
                let is_right = match f64::from_bits(expected).is_finite() {
                    true => found.to_bits().abs_diff(expected) <= 4,
                    false => found.to_bits() == expected,
                };
                assert!(is_right, "{name} {x}: {found} is not {}", f64::from_bits(expected));
            }
        }
    }

    #[test]
    fn angles_are_those_of_go_where_the_quotient_underflows() {
        use std::f64::consts::PI;
        assert_eq!(atan2(-1e-200, -1e200), PI);
        assert_eq!(atan2(1e-200, -1e200), PI);
        assert_eq!(atan2(-1e-100, -1e100), -PI);
        assert_eq!(atan2(-1.0, f64::NEG_INFINITY), -PI);
        assert!(same(atan2(-0.0, -1.0), -PI) && same(atan2(-1e-200, 1e200), -0.0));
    }

    #[test]
    fn logarithms_are_those_of_go() {
        assert_eq!(log2(8.0), 3.0);
        assert_eq!(log2(f64::from_bits(1)), -1074.0);
        // 3 and 15 except for the last digit, as in Go.
        assert_eq!(log10(1e15), 14.999999999999998);
        assert_eq!(log10(100.0), 2.0);
        assert_eq!(log2(0.0), f64::NEG_INFINITY);
        assert_eq!(log2(f64::INFINITY), f64::INFINITY);
        assert!(log2(-1.0).is_nan() && log10(f64::NAN).is_nan());
    }

    #[test]
    fn inverse_hyperbolic_functions_hold_at_the_boundaries() {
        assert_eq!(acosh(1.0), 0.0);
        assert!(acosh(0.5).is_nan());
        assert!((acosh(f64::MAX) - 710.4758600739439).abs() < 1e-9);
        assert!((asinh(-f64::MAX) + 710.4758600739439).abs() < 1e-9);
        assert_eq!(asinh(f64::NEG_INFINITY), f64::NEG_INFINITY);
        assert!(same(asinh(-0.0), -0.0) && same(atanh(-0.0), -0.0));
        assert_eq!(atanh(1.0), f64::INFINITY);
        assert_eq!(atanh(-1.0), f64::NEG_INFINITY);
        assert!(atanh(1.5).is_nan());
    }

    #[test]
    fn rounding_resolves_ties_upwards() {
        let kernel = round(vec![1.0, 1.0, 1.0, 5.0, 0.1]);
        let mut values = [0.5, -0.5, 2.5, 8.0, 0.27];
        kernel(0, &mut values, &mut [0b11111]);
        assert_eq!(values, [1.0, 0.0, 3.0, 10.0, 0.3]);
    }

    #[test]
    fn crossed_bounds_leave_nothing() {
        let kernel = clamp(vec![9.0, 0.0, 5.0, 0.0, 0.0], vec![0.0, 5.0, 1.0, 1.0, f64::NAN]);
        let mut values = [7.0, -1.0, f64::NAN, 0.5];
        let mut presence = [0b1111];
        kernel(1, &mut values, &mut presence);
        assert_eq!(presence, [0b1101]);
        assert_eq!(values[0], 5.0);
        assert!(values[2].is_nan() && values[3].is_nan());
    }

    proptest! {
        #[test]
        fn splitting_gives_back_the_number(value in any::<f64>()) {
            let (fraction, exponent) = split_exponent(value);
            if value.is_finite() && value != 0.0 {
                prop_assert!((0.5..1.0).contains(&fraction.abs()));
                let half = 2f64.powi(exponent / 2);
                prop_assert_eq!(fraction * half * 2f64.powi(exponent - exponent / 2), value);
            }
        }

        #[test]
        fn inverses_undo_the_functions(x in -15.0..15.0f64) {
            prop_assert!((asinh(x.sinh()) - x).abs() < 1e-9);
            prop_assert!((acosh(x.cosh()) - x.abs()).abs() < 1e-7);
            let small = x / 3.0;
            prop_assert!((atanh(small.tanh()) - small).abs() < 1e-6 * (1.0 + small.abs()));
        }
    }
}
