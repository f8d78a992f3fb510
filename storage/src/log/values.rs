//! Values of a log record: each as its difference from the float before it in the log.
//!
//! ```text
//! code:4 bits × floats, the lower half of a byte first, 0 at the end │ bytes of each float
//!
//! code 0       the bits of the float before; no bytes
//! code 1 … 7   whole numbers: zigzag(number − number before), in as many bytes
//! code 8 … 15  others: bits xor bits before, in code − 7 bytes
//! ```
//!
//! Numbers are little-endian. The float before the first one of a run is the last one of its
//! series in the epoch, or 0. A float that is not a whole number counts as the number 0.

use super::record::RecordRun;
use crate::varint::{unzigzag, zigzag};

/// Code of the first float that is stored as bits.
const BITS: u8 = 8;
/// Largest number up to which all whole numbers are exact floats.
const NUMBER_MAX: u64 = 1 << 53;

/// Returns the whole number that a float is, if the conversion is exact in both directions.
#[inline]
fn whole(bits: u64) -> Option<i64> {
    let number = f64::from_bits(bits) as i64;
    let is_exact = (number as f64).to_bits() == bits && number.unsigned_abs() <= NUMBER_MAX;
    is_exact.then_some(number)
}

/// Returns the number of bytes of a number.
#[inline]
fn byte_len(number: u64) -> u8 {
    (64 - number.leading_zeros()).div_ceil(8) as u8
}

/// Returns the number of bytes that follow a code.
#[inline]
fn len_of(code: u8) -> usize {
    usize::from(if code < BITS { code } else { code - BITS + 1 })
}

/// Returns the code and the stored number of a float after another one.
#[inline]
fn encode(before: u64, bits: u64) -> (u8, u64) {
    if bits == before {
        return (0, 0);
    }
    match whole(bits) {
        Some(number) => {
            let stored = zigzag(number - whole(before).unwrap_or(0));
            // The number 0 after a float that is none differs by nothing.
            (byte_len(stored).max(1), stored)
        }
        None => (BITS - 1 + byte_len(bits ^ before), bits ^ before),
    }
}

/// Returns the bits of a float after another one.
#[inline]
fn decode(before: u64, code: u8, stored: u64) -> u64 {
    match code {
        0 => before,
        1..BITS => {
            let number = unzigzag(stored).wrapping_add(whole(before).unwrap_or(0));
            (number as f64).to_bits()
        }
        _ => before ^ stored,
    }
}

/// Appends the floats of the runs.
pub(super) fn push_values(out: &mut Vec<u8>, runs: &[RecordRun], values: &[f64]) {
    let codes_at = out.len();
    let mut at = codes_at + values.len().div_ceil(2);
    // Each number is written as eight bytes, of which the next number overwrites some.
    out.resize(at + values.len() * 8, 0);
    let mut next = 0;
    for run in runs.iter().filter(|run| !run.is_histograms) {
        let mut before = run.bits_before;
        let end = next + run.count as usize;
        for value in &values[next..end] {
            let bits = value.to_bits();
            let (code, stored) = encode(before, bits);
            out[at..at + 8].copy_from_slice(&stored.to_le_bytes());
            at += len_of(code);
            out[codes_at + next / 2] |= code << (next % 2 * 4);
            before = bits;
            next += 1;
        }
    }
    out.truncate(at);
}

/// Reads `count` floats of the runs, to which all bytes belong. Updates `logged`, the bits of the
/// last float of each series of the epoch by reference; without it, these count as 0.
///
/// The caller has checked that `logged` has all series of the runs.
///
/// Errors: there are more or fewer bytes; then `logged` is unchanged.
pub(super) fn take_values(
    bytes: &[u8],
    runs: &[RecordRun],
    count: usize,
    mut logged: Option<&mut [u64]>,
) -> Result<Vec<f64>, String> {
    let (codes, mut rest) = bytes
        .split_at_checked(count.div_ceil(2))
        .ok_or_else(|| format!("{count} values do not fit {} bytes", bytes.len()))?;
    let code_of = |at: usize| codes[at / 2] >> (at % 2 * 4) & 15;
    let unused = if count.is_multiple_of(2) { 0 } else { codes[count / 2] >> 4 };
    let of_pair = |pair: &u8| len_of(pair & 15) + len_of(pair >> 4);
    let expected = codes.iter().map(of_pair).sum::<usize>() - len_of(unused);
    if expected != rest.len() {
        return Err(format!("{count} values have {} bytes instead of {expected}", rest.len()));
    }
    let mut values = Vec::with_capacity(count);
    for run in runs.iter().filter(|run| !run.is_histograms) {
        let last = logged.as_deref_mut().map(|all| &mut all[run.reference as usize]);
        let mut before = last.as_deref().copied().unwrap_or(0);
        for _ in 0..run.count {
            let code = code_of(values.len());
            let (stored, tail) = take_number(rest, len_of(code));
            before = decode(before, code, stored);
            values.push(f64::from_bits(before));
            rest = tail;
        }
        if let Some(last) = last {
            *last = before;
        }
    }
    Ok(values)
}

/// Takes a number of at most eight bytes.
#[inline]
fn take_number(bytes: &[u8], len: usize) -> (u64, &[u8]) {
    let (number, tail) = bytes.split_at(len);
    let stored = match bytes.first_chunk() {
        Some(word) => u64::from_le_bytes(*word) & u64::MAX.unbounded_shr(64 - 8 * len as u32),
        None => number.iter().rev().fold(0, |all, byte| all << 8 | u64::from(*byte)),
    };
    (stored, tail)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn value() -> impl Strategy<Value = u64> {
        let whole = prop_oneof![-100_i64..100, -1_i64 << 54..1 << 54, any::<i64>()];
        let others = [f64::NAN, -0.0, f64::INFINITY, f64::NEG_INFINITY, 0.1, 1e300, f64::MIN];
        prop_oneof![
            4 => whole.prop_map(|number| (number as f64).to_bits()),
            1 => prop::sample::select(others.map(f64::to_bits).to_vec()),
            1 => any::<u64>(),
        ]
    }

    proptest! {
        #[test]
        fn a_float_comes_back_after_any_other(before in value(), bits in value()) {
            let (code, stored) = encode(before, bits);
            prop_assert!(code < 16);
            prop_assert!(len_of(code) == 8 || stored >> (8 * len_of(code)) == 0);
            prop_assert_eq!(decode(before, code, stored), bits);
        }
    }

    #[test]
    fn counters_take_the_bytes_of_their_growth() {
        let lengths = |values: &[f64]| {
            let runs =
                [RecordRun { reference: 0, count: values.len() as u32, ..RecordRun::default() }];
            let mut out = Vec::new();
            push_values(&mut out, &runs, values);
            let back = take_values(&out, &runs, values.len(), None).unwrap();
            assert_eq!(back, values);
            out.len() - values.len().div_ceil(2)
        };
        assert_eq!(lengths(&[0.0, 0.0, 0.0]), 0);
        assert_eq!(lengths(&[127.0, 254.0, 381.0]), 3);
        assert_eq!(lengths(&[1e9, 1e9, 1e9 + 127.0]), 5);
        assert_eq!(lengths(&[0.1, 0.1]), 8);
    }

    #[test]
    fn numbers_of_all_lengths_are_taken_from_bytes_of_all_lengths() {
        let bytes: Vec<u8> = (1..=17).collect();
        for len in 0..=8 {
            for end in len..=bytes.len() {
                let mut expected = [0; 8];
                expected[..len].copy_from_slice(&bytes[..len]);
                let taken = take_number(&bytes[..end], len);
                assert_eq!(taken, (u64::from_le_bytes(expected), &bytes[len..end]));
            }
        }
    }

    #[test]
    fn wrong_lengths_are_refused_and_change_nothing() {
        let runs = [RecordRun { reference: 0, count: 2, ..RecordRun::default() }];
        let mut out = Vec::new();
        push_values(&mut out, &runs, &[1e9, 2e9]);
        let mut logged = [7];
        for bytes in [&out[..out.len() - 1], &[&out[..], &[0]].concat(), &[]] {
            assert!(take_values(bytes, &runs, 2, Some(&mut logged)).is_err());
            assert_eq!(logged, [7]);
        }
    }
}
