//! LEB128 numbers of stored values, and labels with their length.

use model::Labels;
use model::labels::check_packed;

pub(crate) use model::varint::{push_varint, unzigzag, zigzag};

/// Takes a varint from the front.
#[inline]
pub(crate) fn take_varint(rest: &mut &[u8]) -> Result<u64, &'static str> {
    model::varint::take_varint(rest).ok_or("number is cut short or has more than 64 bits")
}

/// Takes a varint that must fit 32 bits.
pub(crate) fn take_u32(rest: &mut &[u8]) -> Result<u32, String> {
    let number = take_varint(rest)?;
    u32::try_from(number).map_err(|_| format!("{number} does not fit 32 bits"))
}

/// Takes a count of items that have at least a byte each.
pub(crate) fn take_count(rest: &mut &[u8]) -> Result<usize, String> {
    let count = take_varint(rest)?;
    match usize::try_from(count) {
        Ok(count) if count <= rest.len() => Ok(count),
        _ => Err(format!("{count} entries do not fit {} bytes", rest.len())),
    }
}

/// Takes a length and packed labels of that length, and checks them.
pub(crate) fn take_labels(rest: &mut &[u8]) -> Result<Labels, String> {
    take_packed_labels(rest).map(Labels::from_checked_bytes)
}

/// Takes a length and as many bytes.
pub(crate) fn take_bytes<'a>(rest: &mut &'a [u8]) -> Result<&'a [u8], String> {
    let len = take_varint(rest)?;
    let bytes = usize::try_from(len).ok().and_then(|len| rest.split_off(..len));
    bytes.ok_or_else(|| format!("{len} bytes are expected, {} are left", rest.len()))
}

/// Takes labels as [`take_labels`], without copying them.
pub(crate) fn take_packed_labels<'a>(rest: &mut &'a [u8]) -> Result<&'a [u8], String> {
    let bytes = take_bytes(rest)?;
    check_packed(bytes).map_err(|error| error.to_string())?;
    Ok(bytes)
}
