//! The stored form of a tombstone; its epoch is in the key.
//!
//! Layout: "Tombstone" in `docs/formats.md`.

use super::Tombstone;
use crate::error::StoreError;
use crate::matchers::{push_matchers, take_matchers};
use crate::varint::{push_varint, take_count, take_varint, unzigzag, zigzag};
use crate::{keys, value};

const VERSION: u8 = 1;

/// Encodes the value of a tombstone.
pub(crate) fn encode(key: &[u8], tombstone: &Tombstone) -> Vec<u8> {
    let mut body = vec![VERSION, u8::from(tombstone.is_cleaned)];
    push_varint(&mut body, zigzag(tombstone.start_ms));
    push_varint(&mut body, zigzag(tombstone.end_ms));
    push_varint(&mut body, tombstone.selectors.len() as u64);
    tombstone.selectors.iter().for_each(|matchers| push_matchers(&mut body, matchers));
    value::encode(key, &body)
}

/// Decodes a tombstone from its key and value.
///
/// Errors: damaged bytes, and matchers that this version does not understand.
pub(crate) fn decode(key: &[u8], bytes: &[u8]) -> Result<Tombstone, StoreError> {
    let epoch =
        keys::parse_tombstone(key).ok_or_else(|| value::corrupt(key, "malformed tombstone key"))?;
    let mut rest = value::decode(key, bytes)?;
    let mut read = || {
        let rest = &mut rest;
        let ([version, is_cleaned], tail) = rest.split_first_chunk::<2>().ok_or("cut short")?;
        if *version != VERSION {
            return Err(format!("unknown version {version}"));
        }
        *rest = tail;
        let start_ms = unzigzag(take_varint(rest)?);
        let end_ms = unzigzag(take_varint(rest)?);
        let selectors = (0..take_count(rest)?)
            .map(|_| take_matchers(rest))
            .collect::<Result<Vec<_>, String>>()?;
        match rest.len() {
            0 => {}
            len => return Err(format!("{len} bytes follow the tombstone")),
        }
        Ok(Tombstone { epoch, start_ms, end_ms, selectors, is_cleaned: *is_cleaned != 0 })
    };
    read().map_err(|detail| value::corrupt(key, detail))
}

#[cfg(test)]
mod tests {
    use model::{MatchOp, Matcher};

    use super::*;
    use crate::epoch::Epoch;

    fn tombstone() -> Tombstone {
        let regex = Matcher::new(MatchOp::NotRegex, "a", "x.*|é").unwrap();
        Tombstone {
            epoch: Epoch::new(7),
            start_ms: i64::MIN,
            end_ms: i64::MAX,
            selectors: vec![vec![Matcher::equal("__name__", "up"), regex], Vec::new()],
            is_cleaned: true,
        }
    }

    #[test]
    fn a_tombstone_is_read_as_it_was_written() {
        let key = keys::tombstone(Epoch::new(7));
        let read = decode(&key, &encode(&key, &tombstone())).unwrap();
        assert_eq!(format!("{read:?}"), format!("{:?}", tombstone()));
    }

    #[test]
    fn damage_is_an_error_that_names_the_key() {
        let key = keys::tombstone(Epoch::new(7));
        let bytes = encode(&key, &tombstone());
        for at in 0..bytes.len() {
            let mut damaged = bytes.clone();
            damaged[at] ^= 1;
            let error = decode(&key, &damaged).unwrap_err().to_string();
            assert!(error.contains("key mt"), "{error}");
            assert!(decode(&key, &bytes[..at]).is_err());
            // Also with a valid checksum.
            let cut = value::encode(&key, bytes.get(4..at).unwrap_or_default());
            assert!(decode(&key, &cut).is_err());
        }
        assert!(decode(&keys::tombstone(Epoch::new(8)), &bytes).is_err(), "under another key");
    }
}
