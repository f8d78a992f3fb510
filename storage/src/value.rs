//! Stored form of every value except blocks: a checksum and the rest.
//!
//! Layout: "Values" in `docs/formats.md`.

use crate::error::StoreError;
use crate::keys;

/// Encodes the value of a key.
pub(crate) fn encode(key: &[u8], body: &[u8]) -> Vec<u8> {
    let mut value = Vec::with_capacity(4 + body.len());
    value.extend_from_slice(&checksum(key, body).to_le_bytes());
    value.extend_from_slice(body);
    value
}

/// Checks the checksum of a value, and returns the rest.
pub(crate) fn decode<'a>(key: &[u8], value: &'a [u8]) -> Result<&'a [u8], StoreError> {
    let Some((stored, body)) = value.split_first_chunk::<4>() else {
        return Err(corrupt(key, format!("value of {} bytes has no checksum", value.len())));
    };
    let (expected, found) = (u32::from_le_bytes(*stored), checksum(key, body));
    if expected != found {
        let detail = format!("checksum {found:#010x} differs from the stored {expected:#010x}");
        return Err(corrupt(key, detail));
    }
    Ok(body)
}

/// Encodes a value of one number.
pub(crate) fn encode_u32(key: &[u8], number: u32) -> Vec<u8> {
    encode(key, &number.to_le_bytes())
}

/// Decodes the number of a value.
pub(crate) fn decode_u32(key: &[u8], value: &[u8]) -> Result<u32, StoreError> {
    let body = decode(key, value)?;
    let number = body
        .try_into()
        .map_err(|_| corrupt(key, format!("expected 4 bytes, found {}", body.len())))?;
    Ok(u32::from_le_bytes(number))
}

/// Returns the error for a damaged value.
pub(crate) fn corrupt(key: &[u8], detail: impl Into<String>) -> StoreError {
    StoreError::Corrupt { location: format!("key {}", keys::printable(key)), detail: detail.into() }
}

fn checksum(key: &[u8], body: &[u8]) -> u32 {
    crc32c::crc32c_append(crc32c::crc32c(key), body)
}
