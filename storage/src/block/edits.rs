//! Packed labels as edits of other labels: series with neighboring ids mostly differ in one or two
//! values.
//!
//! Layout: "Page of the forward index" in `docs/formats.md`.

use std::cmp::Ordering;

use model::Labels;
use model::labels::check_packed;

use crate::varint::{push_varint, take_bytes, take_count, take_varint};

/// Collects edits of packed labels.
#[derive(Debug, Default)]
struct Edits {
    count: u64,
    encoded: Vec<u8>,
    /// Bytes that are kept before the next edit.
    kept: usize,
}

impl Edits {
    /// Replaces the next bytes by others, except for their common prefix and suffix.
    fn replace(&mut self, before: &[u8], after: &[u8]) {
        let is_equal = |(a, b): &(&u8, &u8)| a == b;
        let prefix = before.iter().zip(after).take_while(is_equal).count();
        let (before, after) = (&before[prefix..], &after[prefix..]);
        let suffix = before.iter().rev().zip(after.iter().rev()).take_while(is_equal).count();
        let removed = before.len() - suffix;
        let added = &after[..after.len() - suffix];
        self.kept += prefix;
        if removed > 0 || !added.is_empty() {
            self.count += 1;
            for number in [self.kept, removed, added.len()] {
                push_varint(&mut self.encoded, number as u64);
            }
            self.encoded.extend_from_slice(added);
            self.kept = 0;
        }
        self.kept += suffix;
    }
}

/// Appends labels as edits of those before.
pub(crate) fn push_edited(before: &Labels, labels: &Labels, out: &mut Vec<u8>) {
    let mut edits = Edits::default();
    let (mut old_pairs, mut new_pairs) = (before.iter_packed(), labels.iter_packed());
    let (mut old, mut new) = (old_pairs.next(), new_pairs.next());
    loop {
        let order = match (&old, &new) {
            (Some((old_name, _)), Some((new_name, _))) => old_name.cmp(new_name),
            (Some(_), None) => Ordering::Less,
            (None, Some(_)) => Ordering::Greater,
            (None, None) => break,
        };
        let of_old = old.take_if(|_| order.is_le());
        let of_new = new.take_if(|_| order.is_ge());
        edits.replace(
            of_old.map_or(&[], |(_, packed)| packed),
            of_new.map_or(&[], |(_, packed)| packed),
        );
        old = old.or_else(|| old_pairs.next());
        new = new.or_else(|| new_pairs.next());
    }
    push_varint(out, edits.count);
    out.extend_from_slice(&edits.encoded);
}

/// Takes labels that were written as edits of `before` into `labels`, and checks them.
///
/// Errors: the bytes are not edits of these labels, or the result is no label set.
pub(crate) fn take_edited(
    rest: &mut &[u8],
    mut before: &[u8],
    labels: &mut Vec<u8>,
) -> Result<(), String> {
    labels.clear();
    for _ in 0..take_count(rest)? {
        labels.extend_from_slice(take_first(&mut before, rest)?);
        take_first(&mut before, rest)?;
        labels.extend_from_slice(take_bytes(rest)?);
    }
    labels.extend_from_slice(before);
    check_packed(labels).map_err(|error| error.to_string())
}

/// Takes a length from `rest`, and as many bytes of the labels before.
fn take_first<'a>(before: &mut &'a [u8], rest: &mut &[u8]) -> Result<&'a [u8], String> {
    let len = take_varint(rest)?;
    let parts = usize::try_from(len).ok().and_then(|len| before.split_at_checked(len));
    let (first, tail) = parts
        .ok_or_else(|| format!("an edit needs {len} bytes of labels, {} are left", before.len()))?;
    *before = tail;
    Ok(first)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn labels(pairs: &[(&str, &str)]) -> Labels {
        Labels::from_pairs(pairs.iter().copied())
    }

    fn edited(before: &Labels, after: &Labels) -> Vec<u8> {
        let mut encoded = Vec::new();
        push_edited(before, after, &mut encoded);
        encoded
    }

    #[test]
    fn only_what_differs_is_stored() {
        let before = labels(&[("job", "api"), ("path", "/a"), ("pod", "p-1"), ("status", "200")]);
        let after = labels(&[("job", "api"), ("path", "/b"), ("pod", "p-1"), ("status", "404")]);
        // After 15 bytes, 1 byte is replaced by "b", and after 16 more, 3 bytes by "404".
        assert_eq!(edited(&before, &after), b"\x02\x0f\x01\x01b\x10\x03\x03404");
        assert_eq!(edited(&before, &before), [0]);
    }

    #[test]
    fn a_label_more_or_less_moves_no_other() {
        let few = labels(&[("a", "1"), ("z", "9")]);
        let more = labels(&[("a", "1"), ("le", "5"), ("z", "9")]);
        assert_eq!(edited(&few, &more), b"\x01\x04\x00\x05\x02le\x015");
        assert_eq!(edited(&more, &few), [1, 4, 5, 0]);
    }

    #[test]
    fn damaged_edits_are_errors() {
        let before = labels(&[("a", "1")]);
        for (bytes, message) in [
            (&[][..], "number is cut short"),
            (&[2, 0], "entries do not fit"),
            (&[1, 5, 0, 0], "an edit needs 5 bytes of labels, 4 are left"),
            (&[1, 3, 2, 0], "an edit needs 2 bytes of labels, 1 are left"),
            (&[1, 0, 0, 9], "9 bytes are expected, 0 are left"),
            (&[1, 3, 1, 0], "label set is cut short"),
        ] {
            let error = take_edited(&mut &bytes[..], before.as_bytes(), &mut Vec::new());
            assert!(error.clone().unwrap_err().contains(message), "{bytes:?}: {error:?}");
        }
    }

    fn any_labels() -> impl Strategy<Value = Labels> {
        let pair = ("[a-d]{1,2}", "[xy]{0,4}|é|.{120,130}");
        proptest::collection::vec(pair, 0..6).prop_map(Labels::from_pairs)
    }

    proptest! {
        #[test]
        fn edits_are_taken_back(sets in proptest::collection::vec(any_labels(), 1..8)) {
            let (mut encoded, mut before) = (Vec::new(), Labels::empty());
            for set in &sets {
                push_edited(&before, set, &mut encoded);
                before = set.clone();
            }
            let (mut rest, mut before, mut found) = (&encoded[..], Vec::new(), Vec::new());
            for set in &sets {
                take_edited(&mut rest, &before, &mut found).unwrap();
                prop_assert_eq!(&found[..], set.as_bytes());
                std::mem::swap(&mut before, &mut found);
            }
            prop_assert!(rest.is_empty());
        }
    }
}
