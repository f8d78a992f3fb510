//! Encoding of protobuf fields. As in proto3, a field with its default value is omitted; a float
//! only if all of its bits are 0.

use model::varint::{push_varint, varint_len, zigzag};

/// Adds a number.
pub fn push_integer(out: &mut Vec<u8>, field: u32, number: u64) {
    if number != 0 {
        push_key(out, field, 0);
        push_varint(out, number);
    }
}

/// Adds a float.
pub(crate) fn push_double(out: &mut Vec<u8>, field: u32, value: f64) {
    if value.to_bits() != 0 {
        push_key(out, field, 1);
        out.extend_from_slice(&value.to_le_bytes());
    }
}

/// Adds a number, even if it is 0.
pub(crate) fn push_present_integer(out: &mut Vec<u8>, field: u32, number: u64) {
    push_key(out, field, 0);
    push_varint(out, number);
}

/// Adds a float, even if it is 0.
pub(crate) fn push_present_double(out: &mut Vec<u8>, field: u32, value: f64) {
    push_key(out, field, 1);
    out.extend_from_slice(&value.to_le_bytes());
}

/// Adds a message or bytes, even if empty.
pub fn push_bytes(out: &mut Vec<u8>, field: u32, bytes: &[u8]) {
    push_key(out, field, 2);
    push_varint(out, bytes.len() as u64);
    out.extend_from_slice(bytes);
}

/// Adds packed floats.
pub(crate) fn push_doubles(out: &mut Vec<u8>, field: u32, values: &[f64]) {
    if values.is_empty() {
        return;
    }
    push_key(out, field, 2);
    push_varint(out, values.len() as u64 * 8);
    for value in values {
        out.extend_from_slice(&value.to_le_bytes());
    }
}

/// Adds packed numbers.
pub fn push_integers(out: &mut Vec<u8>, field: u32, numbers: &[u64]) {
    if numbers.is_empty() {
        return;
    }
    push_key(out, field, 2);
    push_varint(out, numbers.iter().map(|number| varint_len(*number) as u64).sum());
    for number in numbers {
        push_varint(out, *number);
    }
}

/// Adds packed signed numbers.
pub(crate) fn push_signed(
    out: &mut Vec<u8>,
    field: u32,
    numbers: impl Iterator<Item = i64> + Clone,
) {
    let bytes: usize = numbers.clone().map(|number| varint_len(zigzag(number))).sum();
    if bytes == 0 {
        return;
    }
    push_key(out, field, 2);
    push_varint(out, bytes as u64);
    for number in numbers {
        push_varint(out, zigzag(number));
    }
}

fn push_key(out: &mut Vec<u8>, field: u32, wire_type: u8) {
    push_varint(out, u64::from(field) << 3 | u64::from(wire_type));
}
