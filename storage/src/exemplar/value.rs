//! Stored form of the exemplars of one commit.
//!
//! Layout: "Exemplars" in `docs/formats.md`.

use std::collections::HashMap;

use foldhash::fast::RandomState;
use model::{Exemplar, Labels};

use super::AcceptedExemplar;
use crate::error::StoreError;
use crate::value;
use crate::varint::{
    push_varint, take_count, take_labels, take_u32, take_varint, unzigzag, zigzag,
};

const VERSION: u8 = 1;

/// Encodes the value of a key.
pub(super) fn encode(key: &[u8], taken: &[AcceptedExemplar]) -> Vec<u8> {
    let mut indexes: HashMap<&Labels, u64, RandomState> = HashMap::default();
    let mut series = Vec::new();
    let mut exemplars = Vec::new();
    push_varint(&mut exemplars, taken.len() as u64);
    let mut before_ms = 0_i64;
    for (labels, exemplar) in taken {
        let next = indexes.len() as u64;
        let index = *indexes.entry(labels).or_insert_with(|| {
            push_labels(&mut series, labels);
            next
        });
        push_varint(&mut exemplars, index);
        push_varint(&mut exemplars, zigzag(exemplar.timestamp_ms.wrapping_sub(before_ms)));
        before_ms = exemplar.timestamp_ms;
        exemplars.extend_from_slice(&exemplar.value.to_bits().to_le_bytes());
        push_labels(&mut exemplars, &exemplar.labels);
    }
    let mut body = vec![VERSION];
    push_varint(&mut body, indexes.len() as u64);
    body.append(&mut series);
    body.append(&mut exemplars);
    value::encode(key, &body)
}

fn push_labels(out: &mut Vec<u8>, labels: &Labels) {
    push_varint(out, labels.as_bytes().len() as u64);
    out.extend_from_slice(labels.as_bytes());
}

/// Decodes the value of a key.
///
/// Errors: damaged bytes. Memory is bounded by a few times their length, whatever they are.
pub(super) fn decode(key: &[u8], bytes: &[u8]) -> Result<Vec<AcceptedExemplar>, StoreError> {
    let body = value::decode(key, bytes)?;
    decode_body(body).map_err(|detail| value::corrupt(key, detail))
}

fn decode_body(body: &[u8]) -> Result<Vec<AcceptedExemplar>, String> {
    let (version, mut rest) = body.split_first().ok_or("value is cut short")?;
    if *version != VERSION {
        return Err(format!("unknown version {version}"));
    }
    let rest = &mut rest;
    let series: Vec<Labels> =
        (0..take_count(rest)?).map(|_| take_labels(rest)).collect::<Result<_, _>>()?;
    let mut taken = Vec::new();
    let mut before_ms = 0_i64;
    for _ in 0..take_count(rest)? {
        let index = take_u32(rest)? as usize;
        let labels = series.get(index).ok_or("a series is not defined")?;
        let timestamp_ms = before_ms.wrapping_add(unzigzag(take_varint(rest)?));
        before_ms = timestamp_ms;
        let (bits, tail) = rest.split_first_chunk::<8>().ok_or("cut short in a number")?;
        *rest = tail;
        let value = f64::from_bits(u64::from_le_bytes(*bits));
        let exemplar = Exemplar { labels: take_labels(rest)?, timestamp_ms, value };
        taken.push((labels.clone(), exemplar));
    }
    if !rest.is_empty() {
        return Err(format!("{} bytes follow the exemplars", rest.len()));
    }
    Ok(taken)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::keys;
    use proptest::prelude::*;

    fn taken() -> impl Strategy<Value = Vec<AcceptedExemplar>> {
        let labels = || {
            proptest::collection::btree_map("[a-z]{1,3}", "[a-zß]{1,300}", 0..3)
                .prop_map(Labels::from_pairs)
        };
        let exemplar = (labels(), any::<i64>(), -1e9_f64..1e9)
            .prop_map(|(labels, timestamp_ms, value)| Exemplar { labels, timestamp_ms, value });
        proptest::collection::vec((labels(), exemplar), 0..6)
    }

    proptest! {
        #[test]
        fn values_come_back(taken in taken()) {
            let key = keys::exemplars(7);
            prop_assert_eq!(decode(&key, &encode(&key, &taken)), Ok(taken));
        }

        #[test]
        fn every_flipped_bit_is_found(taken in taken(), place in any::<prop::sample::Index>()) {
            let key = keys::exemplars(7);
            let mut bytes = encode(&key, &taken);
            let bit = place.index(bytes.len() * 8);
            bytes[bit / 8] ^= 1 << (bit % 8);
            prop_assert!(decode(&key, &bytes).is_err());
        }

        #[test]
        fn any_bytes_are_exemplars_or_an_error(
            body in proptest::collection::vec(any::<u8>(), 0..64),
        ) {
            let _ = decode_body(&[&[VERSION], &body[..]].concat());
        }
    }
}
