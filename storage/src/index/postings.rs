//! Postings of a label pair in the LSM: key and value.

use roaring::RoaringBitmap;

use crate::error::StoreError;
use crate::keys;
use crate::value;

/// Returns label name and value of a postings key.
pub(super) fn parse_postings(key: &[u8]) -> Result<(String, String), StoreError> {
    keys::parse_postings(key).ok_or_else(|| value::corrupt(key, "malformed postings key"))
}

/// Encodes the value of a postings key.
pub(crate) fn encode_postings(key: &[u8], ids: &RoaringBitmap) -> Vec<u8> {
    let mut body = Vec::with_capacity(ids.serialized_size());
    ids.serialize_into(&mut body).expect("a vector takes every byte");
    value::encode(key, &body)
}

/// Decodes the value of a postings key.
pub(crate) fn decode_postings(key: &[u8], bytes: &[u8]) -> Result<RoaringBitmap, StoreError> {
    let body = value::decode(key, bytes)?;
    RoaringBitmap::deserialize_from(body).map_err(|e| value::corrupt(key, e.to_string()))
}
