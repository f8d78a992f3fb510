//! Pages of the forward index: the labels of some series.
//!
//! Layout: "Page of the forward index" in `docs/formats.md`.

use model::Labels;

use super::edits::{push_edited, take_edited};
use crate::error::StoreError;
use crate::value;
use crate::varint::{push_varint, take_count, take_packed_labels};

/// First byte of a page whose labels are edits of those before. Earlier pages begin with the number
/// of their series.
const EDITED: u8 = 0;
/// Maximum number of series. A series may take a byte and have all labels of the series before.
pub(crate) const SERIES_MAX: u32 = 128;

/// Encodes a page.
pub(crate) fn encode<'a>(key: &[u8], series: impl ExactSizeIterator<Item = &'a Labels>) -> Vec<u8> {
    let mut body = vec![EDITED];
    push_varint(&mut body, series.len() as u64);
    let mut before = &Labels::empty();
    for labels in series {
        push_edited(before, labels, &mut body);
        before = labels;
    }
    value::encode(key, &body)
}

/// Decodes the labels of a page.
pub(crate) fn decode(key: &[u8], bytes: &[u8]) -> Result<Vec<Labels>, StoreError> {
    decode_as(key, bytes, Labels::from_checked_bytes)
}

/// Decodes the labels of a page, and converts the packed bytes of each.
pub(crate) fn decode_as<T>(
    key: &[u8],
    bytes: &[u8],
    mut convert: impl FnMut(&[u8]) -> T,
) -> Result<Vec<T>, StoreError> {
    let mut rest = value::decode(key, bytes)?;
    let is_edited = rest.first() == Some(&EDITED);
    rest = &rest[usize::from(is_edited)..];
    let mut read = || {
        let rest = &mut rest;
        let count = take_count(rest)?;
        if count > SERIES_MAX as usize {
            return Err(format!("{count} series in a page"));
        }
        let (mut before, mut labels) = (Vec::new(), Vec::new());
        let next = |_| {
            if !is_edited {
                return take_packed_labels(rest).map(&mut convert);
            }
            std::mem::swap(&mut before, &mut labels);
            take_edited(rest, &before, &mut labels)?;
            Ok(convert(&labels))
        };
        (0..count).map(next).collect::<Result<Vec<_>, String>>()
    };
    read().map_err(|detail| value::corrupt(key, detail))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const KEY: &[u8] = b"a key";

    #[test]
    fn equal_labels_are_stored_once() {
        let labels = |number: u32| {
            let number = number.to_string();
            Labels::from_pairs([("__name__", "requests_total"), ("path", number.as_str())])
        };
        let series: Vec<Labels> = (0..100).map(labels).collect();
        let page = encode(KEY, series.iter());
        assert!(page.len() < 60 + 100 * 8, "{} bytes", page.len());
        assert_eq!(decode(KEY, &page).unwrap(), series);
    }

    #[test]
    fn a_page_has_a_bounded_number_of_series() {
        let series = |count: u32| vec![Labels::from_pairs([("a", "1")]); count as usize];
        let most = encode(KEY, series(SERIES_MAX).iter());
        assert_eq!(decode(KEY, &most).unwrap(), series(SERIES_MAX));
        let error = decode(KEY, &encode(KEY, series(SERIES_MAX + 1).iter())).unwrap_err();
        assert!(error.to_string().contains("129 series in a page"), "{error}");
    }

    proptest! {
        #[test]
        fn random_pages_are_never_a_panic(
            body in prop::collection::vec(prop_oneof![0u8..4, any::<u8>()], 0..80),
        ) {
            if let Ok(all) = decode(KEY, &value::encode(KEY, &body)) {
                prop_assert!(all.len() <= body.len());
            }
        }
    }
}
