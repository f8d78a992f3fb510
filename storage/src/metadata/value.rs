//! Stored form of the metadata of a metric.
//!
//! Layout: "Metadata" in `docs/formats.md`.

use model::{MetricKind, MetricMetadata};

use crate::error::StoreError;
use crate::value;
use crate::varint::{push_varint, take_bytes, take_count, take_varint};

const VERSION: u8 = 1;

/// Types in the order of their bytes.
const KINDS: [MetricKind; 8] = [
    MetricKind::Unknown,
    MetricKind::Counter,
    MetricKind::Gauge,
    MetricKind::Histogram,
    MetricKind::GaugeHistogram,
    MetricKind::Summary,
    MetricKind::Info,
    MetricKind::StateSet,
];

/// Encodes the value of a key.
pub(super) fn encode(key: &[u8], number: u64, entries: &[MetricMetadata]) -> Vec<u8> {
    let mut body = vec![VERSION];
    push_varint(&mut body, number);
    push_varint(&mut body, entries.len() as u64);
    for entry in entries {
        let kind = KINDS.iter().position(|kind| *kind == entry.kind);
        body.push(kind.expect("all types are listed") as u8);
        for text in [&entry.help, &entry.unit] {
            push_varint(&mut body, text.len() as u64);
            body.extend_from_slice(text.as_bytes());
        }
    }
    value::encode(key, &body)
}

/// Decodes number and entries from the value of a key.
///
/// Errors: damaged bytes.
pub(super) fn decode(key: &[u8], bytes: &[u8]) -> Result<(u64, Vec<MetricMetadata>), StoreError> {
    let body = value::decode(key, bytes)?;
    decode_body(body).map_err(|detail| value::corrupt(key, detail))
}

fn decode_body(body: &[u8]) -> Result<(u64, Vec<MetricMetadata>), String> {
    let (version, mut rest) = body.split_first().ok_or("value is cut short")?;
    if *version != VERSION {
        return Err(format!("unknown version {version}"));
    }
    let rest = &mut rest;
    let number = take_varint(rest)?;
    let mut entries = Vec::new();
    for _ in 0..take_count(rest)? {
        let (kind, tail) = rest.split_first().ok_or("cut short in an entry")?;
        *rest = tail;
        let kind = KINDS.get(usize::from(*kind)).ok_or_else(|| format!("unknown type {kind}"))?;
        let (help, unit) = (take_text(rest)?, take_text(rest)?);
        entries.push(MetricMetadata { kind: *kind, help, unit });
    }
    if !rest.is_empty() {
        return Err(format!("{} bytes follow the entries", rest.len()));
    }
    Ok((number, entries))
}

fn take_text(rest: &mut &[u8]) -> Result<String, String> {
    String::from_utf8(take_bytes(rest)?.to_vec()).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::keys;
    use proptest::prelude::*;

    fn entries() -> impl Strategy<Value = Vec<MetricMetadata>> {
        let entry = (0..KINDS.len(), "\\PC{0,300}", "[a-z]{0,9}")
            .prop_map(|(kind, help, unit)| MetricMetadata { kind: KINDS[kind], help, unit });
        proptest::collection::vec(entry, 0..4)
    }

    proptest! {
        #[test]
        fn values_come_back(number in any::<u64>(), entries in entries()) {
            let key = keys::metadata("m");
            let bytes = encode(&key, number, &entries);
            prop_assert_eq!(decode(&key, &bytes), Ok((number, entries)));
        }

        #[test]
        fn every_flipped_bit_is_found(entries in entries(), place in any::<prop::sample::Index>()) {
            let key = keys::metadata("m");
            let mut bytes = encode(&key, 7, &entries);
            let bit = place.index(bytes.len() * 8);
            bytes[bit / 8] ^= 1 << (bit % 8);
            prop_assert!(decode(&key, &bytes).is_err());
        }

        #[test]
        fn any_bytes_are_entries_or_an_error(
            body in proptest::collection::vec(any::<u8>(), 0..64),
        ) {
            let _ = decode_body(&[&[VERSION], &body[..]].concat());
        }
    }
}
