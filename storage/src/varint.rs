//! Numbers of variable length (LEB128), and what stands behind a length or a count.

use model::Labels;
use model::labels::check_packed;

pub(crate) fn zigzag(number: i64) -> u64 {
    (number << 1 ^ number >> 63) as u64
}

pub(crate) fn unzigzag(number: u64) -> i64 {
    (number >> 1) as i64 ^ -((number & 1) as i64)
}

/// Appends a LEB128 varint.
#[inline]
pub(crate) fn push_varint(out: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        out.push(number as u8 | 0x80);
        number >>= 7;
    }
    out.push(number as u8);
}

/// Takes a varint off the front.
#[inline]
pub(crate) fn take_varint(rest: &mut &[u8]) -> Result<u64, String> {
    let mut number = 0;
    for shift in (0..64).step_by(7) {
        let (byte, tail) = rest.split_first().ok_or("cut short in a number")?;
        *rest = tail;
        number |= u64::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            return Ok(number);
        }
    }
    Err("a number has more than 64 bits".to_owned())
}

/// Takes a varint that must fit 32 bits.
pub(crate) fn take_u32(rest: &mut &[u8]) -> Result<u32, String> {
    let number = take_varint(rest)?;
    u32::try_from(number).map_err(|_| format!("{number} does not fit 32 bits"))
}

/// Takes a count of things that have at least a byte each.
pub(crate) fn take_count(rest: &mut &[u8]) -> Result<usize, String> {
    let count = take_varint(rest)?;
    match usize::try_from(count) {
        Ok(count) if count <= rest.len() => Ok(count),
        _ => Err(format!("{count} entries do not fit {} bytes", rest.len())),
    }
}

/// Takes a length and so many bytes of packed labels, checked whole.
pub(crate) fn take_labels(rest: &mut &[u8]) -> Result<Labels, String> {
    let len = take_count(rest)?;
    let (bytes, tail) = rest.split_at_checked(len).ok_or("cut short in labels")?;
    *rest = tail;
    check_packed(bytes).map_err(|error| error.to_string())?;
    Ok(Labels::from_checked_bytes(bytes))
}
