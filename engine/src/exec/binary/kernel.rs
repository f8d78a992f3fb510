//! Operators on rows of floats: the operator is chosen once per row, outside the loop.

use crate::exec::functions::atan2;
use crate::parse::ast::BinaryOp;

/// Side of the operator on which the modified row is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Side {
    /// `row op other`.
    Left,
    /// `other op row`.
    Right,
}

/// Replaces each value of `row` by the result of an arithmetic operator on it and the value of
/// `other` at the same position.
///
/// Panics: the operator is not arithmetic.
pub fn arithmetic(op: BinaryOp, side: Side, row: &mut [f64], other: &[f64]) {
    match op {
        BinaryOp::Add => zip(side, row, other, |a, b| a + b),
        BinaryOp::Sub => zip(side, row, other, |a, b| a - b),
        BinaryOp::Mul => zip(side, row, other, |a, b| a * b),
        BinaryOp::Div => zip(side, row, other, |a, b| a / b),
        BinaryOp::Mod => zip(side, row, other, |a, b| a % b),
        BinaryOp::Pow => zip(side, row, other, f64::powf),
        BinaryOp::Atan2 => zip(side, row, other, atan2),
        op => unreachable!("{} is no arithmetic operator", op.as_str()),
    }
}

#[inline]
fn zip(side: Side, row: &mut [f64], other: &[f64], apply: impl Fn(f64, f64) -> f64) {
    match side {
        Side::Left => row.iter_mut().zip(other).for_each(|(a, b)| *a = apply(*a, *b)),
        Side::Right => row.iter_mut().zip(other).for_each(|(b, a)| *b = apply(*a, *b)),
    }
}

/// Compares two rows; writes one bit per pair of values to `holds`, 64 per word, lowest bit first.
///
/// Panics: the operator is not a comparison, or there are too few words.
pub fn comparison(op: BinaryOp, lhs: &[f64], rhs: &[f64], holds: &mut [u64]) {
    match op {
        BinaryOp::Eq => compare(lhs, rhs, holds, |a, b| a == b),
        BinaryOp::Ne => compare(lhs, rhs, holds, |a, b| a != b),
        BinaryOp::Lt => compare(lhs, rhs, holds, |a, b| a < b),
        BinaryOp::Le => compare(lhs, rhs, holds, |a, b| a <= b),
        BinaryOp::Gt => compare(lhs, rhs, holds, |a, b| a > b),
        BinaryOp::Ge => compare(lhs, rhs, holds, |a, b| a >= b),
        op => unreachable!("{} does not compare", op.as_str()),
    }
}

#[inline]
fn compare(lhs: &[f64], rhs: &[f64], holds: &mut [u64], test: impl Fn(f64, f64) -> bool) {
    assert!(holds.len() * 64 >= lhs.len(), "a bit a value");
    for ((lhs, rhs), word) in lhs.chunks(64).zip(rhs.chunks(64)).zip(holds) {
        *word = lhs
            .iter()
            .zip(rhs)
            .enumerate()
            .fold(0, |word, (bit, (a, b))| word | u64::from(test(*a, *b)) << bit);
    }
}

/// Writes 1 for every set bit and 0 for every other bit.
pub fn bits_to_values(holds: &[u64], values: &mut [f64]) {
    for (values, word) in values.chunks_mut(64).zip(holds) {
        for (bit, value) in values.iter_mut().enumerate() {
            *value = (*word >> bit & 1) as f64;
        }
    }
}

/// Applies one operator to two numbers; returns the result and whether the pair is kept. An
/// arithmetic operator keeps every pair; a comparison returns its left operand.
///
/// Panics: a set or trimming operator.
pub fn pair(op: BinaryOp, lhs: f64, rhs: f64) -> (f64, bool) {
    match op {
        BinaryOp::Eq => (lhs, lhs == rhs),
        BinaryOp::Ne => (lhs, lhs != rhs),
        BinaryOp::Lt => (lhs, lhs < rhs),
        BinaryOp::Le => (lhs, lhs <= rhs),
        BinaryOp::Gt => (lhs, lhs > rhs),
        BinaryOp::Ge => (lhs, lhs >= rhs),
        op => {
            let mut value = [lhs];
            arithmetic(op, Side::Left, &mut value, &[rhs]);
            (value[0], true)
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const ARITHMETIC: [BinaryOp; 7] = [
        BinaryOp::Add,
        BinaryOp::Sub,
        BinaryOp::Mul,
        BinaryOp::Div,
        BinaryOp::Mod,
        BinaryOp::Pow,
        BinaryOp::Atan2,
    ];
    const COMPARISONS: [BinaryOp; 6] =
        [BinaryOp::Eq, BinaryOp::Ne, BinaryOp::Lt, BinaryOp::Le, BinaryOp::Gt, BinaryOp::Ge];

    fn number() -> impl Strategy<Value = f64> {
        prop_oneof![
            any::<f64>(),
            (-4i32..4).prop_map(f64::from),
            prop::sample::select(vec![
                f64::NAN,
                f64::INFINITY,
                f64::NEG_INFINITY,
                -0.0,
                0.0,
                f64::from_bits(1),
                f64::MIN_POSITIVE / 2.0,
                f64::MAX,
            ]),
        ]
    }

    fn rows() -> impl Strategy<Value = Vec<(f64, f64)>> {
        prop::collection::vec((number(), number()), 0..200)
    }

    /// Computes operators as Go defines them, one pair at a time.
    fn naive(op: BinaryOp, a: f64, b: f64) -> f64 {
        match op {
            BinaryOp::Add => a + b,
            BinaryOp::Sub => a - b,
            BinaryOp::Mul => a * b,
            BinaryOp::Div => a / b,
            BinaryOp::Mod if a.is_infinite() || b == 0.0 || a.is_nan() || b.is_nan() => f64::NAN,
            BinaryOp::Mod if b.is_infinite() => a,
            BinaryOp::Mod => (a.abs() % b.abs()).copysign(a),
            BinaryOp::Pow if b == 0.0 || a == 1.0 => 1.0,
            BinaryOp::Pow if a == -1.0 && b.is_infinite() => 1.0,
            BinaryOp::Pow => a.powf(b),
            // The quotient is 0 and has lost its sign.
            _ if b < 0.0 && a < 0.0 && b.is_finite() && a / b == 0.0 => std::f64::consts::PI,
            _ => a.atan2(b),
        }
    }

    fn same(a: f64, b: f64) -> bool {
        a.to_bits() == b.to_bits() || (a.is_nan() && b.is_nan())
    }

    proptest! {
        #[test]
        fn arithmetic_rows_agree_with_single_pairs(rows in rows()) {
            let (lhs, rhs): (Vec<f64>, Vec<f64>) = rows.iter().copied().unzip();
            for op in ARITHMETIC {
                let mut left = lhs.clone();
                arithmetic(op, Side::Left, &mut left, &rhs);
                let mut right = rhs.clone();
                arithmetic(op, Side::Right, &mut right, &lhs);
                for (index, (a, b)) in rows.iter().enumerate() {
                    let expected = naive(op, *a, *b);
                    prop_assert!(same(left[index], expected), "{a} {op:?} {b}");
                    prop_assert!(same(right[index], expected), "{a} {op:?} {b} swapped");
                    prop_assert!(same(pair(op, *a, *b).0, expected));
                }
            }
        }

        #[test]
        fn comparisons_agree_with_the_order_of_numbers(rows in rows()) {
            let (lhs, rhs): (Vec<f64>, Vec<f64>) = rows.iter().copied().unzip();
            let mut holds = vec![u64::MAX; rows.len().div_ceil(64)];
            let mut values = vec![f64::NAN; rows.len()];
            for op in COMPARISONS {
                comparison(op, &lhs, &rhs, &mut holds);
                bits_to_values(&holds, &mut values);
                for (index, (a, b)) in rows.iter().enumerate() {
                    let order = a.partial_cmp(b);
                    let expected = match op {
                        BinaryOp::Eq => order == Some(std::cmp::Ordering::Equal),
                        BinaryOp::Ne => order != Some(std::cmp::Ordering::Equal),
                        BinaryOp::Lt => order == Some(std::cmp::Ordering::Less),
                        BinaryOp::Le => order.is_some_and(std::cmp::Ordering::is_le),
                        BinaryOp::Gt => order == Some(std::cmp::Ordering::Greater),
                        _ => order.is_some_and(std::cmp::Ordering::is_ge),
                    };
                    prop_assert_eq!(values[index], f64::from(u8::from(expected)));
                    prop_assert_eq!(pair(op, *a, *b).1, expected);
                }
                let bits: u32 = holds.iter().map(|word| word.count_ones()).sum();
                prop_assert_eq!(bits as usize, values.iter().filter(|v| **v == 1.0).count());
            }
        }
    }
}
