//! Sorting of many label sets.
//!
//! Label sets of a store share long prefixes, such as names and the metric, so a comparison reads
//! many bytes of two sets that are far apart in memory. A radix sort reads 16 bytes of each set at a
//! time:
//!
//! ```text
//! sort a group whose sets are equal up to a position:
//!     few sets: compare them
//!     key of a set = its next 16 bytes
//!     sort by key; sort each run of equal keys at the position after them
//! ```
//!
//! Invariant: the order is that of [`Labels`]. In a key, a byte of a text is its value + 1, so that
//! the end of a text, 0, comes first. A set that has ended has zeros, and no other set has 16.

use std::ops::Range;

use crate::kernel::prefetch::prefetch;
use crate::labels::{Labels, text_at};

/// Groups of at most this many sets are sorted by comparison.
const COMPARED_LEN_MAX: usize = 24;

/// Distance in sets at which their bytes are prefetched.
const SETS_AHEAD: usize = 16;

const KEY_BYTES: usize = size_of::<u128>();

/// One in each byte of a key.
const ONES: u128 = u128::from_be_bytes([1; KEY_BYTES]);

/// Position in packed labels: a text, and the number of its bytes before the position.
#[derive(Debug, Clone, Copy, Default)]
struct Position {
    text_start: usize,
    passed: usize,
}

struct Keyed<T> {
    key: u128,
    entry: (Labels, T),
}

/// Sorts label sets with their items, as `sort_unstable` does.
pub fn sort_label_sets<T: Ord>(entries: Vec<(Labels, T)>) -> Vec<(Labels, T)> {
    let mut keyed: Vec<Keyed<T>> =
        entries.into_iter().map(|entry| Keyed { key: 0, entry }).collect();
    // Not recursive: a text may have millions of bytes.
    let mut groups = vec![(0..keyed.len(), Position::default())];
    while let Some((range, position)) = groups.pop() {
        sort_group(&mut keyed, range, position, &mut groups);
    }
    keyed.into_iter().map(|keyed| keyed.entry).collect()
}

/// Sorts sets that are equal up to a position by their next key. Adds runs of equal keys to
/// `groups`.
fn sort_group<T: Ord>(
    keyed: &mut [Keyed<T>],
    range: Range<usize>,
    position: Position,
    groups: &mut Vec<(Range<usize>, Position)>,
) {
    let group = &mut keyed[range.clone()];
    if group.len() <= COMPARED_LEN_MAX {
        group.sort_unstable_by(|a, b| a.entry.cmp(&b.entry));
        return;
    }
    for at in 0..group.len() {
        if let Some(ahead) = group.get(at + SETS_AHEAD) {
            let rest = ahead.entry.0.as_bytes().get(position.text_start + position.passed..);
            if let Some(next) = rest.and_then(|rest| rest.first_chunk::<KEY_BYTES>()) {
                prefetch(next);
            }
        }
        group[at].key = key_at(group[at].entry.0.as_bytes(), position).0;
    }
    group.sort_unstable_by_key(|keyed| keyed.key);
    let mut start = range.start;
    for run in group.chunk_by_mut(|a, b| a.key == b.key) {
        let run_range = start..start + run.len();
        start = run_range.end;
        if run[0].key == 0 {
            // All have ended.
            run.sort_unstable_by(|a, b| a.entry.1.cmp(&b.entry.1));
        } else if run.len() > 1 {
            let next = key_at(run[0].entry.0.as_bytes(), position).1;
            groups.push((run_range, next));
        }
    }
}

/// Returns the key of packed labels at a position, and the position after it.
#[inline]
fn key_at(packed: &[u8], mut position: Position) -> (u128, Position) {
    let (mut key, mut key_bytes) = (0u128, 0);
    while key_bytes < KEY_BYTES && position.text_start < packed.len() {
        let text = text_at(packed, position.text_start);
        let rest = text.end - text.start - position.passed;
        let count = rest.min(KEY_BYTES - key_bytes);
        if count > 0 {
            let bytes = next_bytes(packed, text.start + position.passed, count);
            key |= bytes >> (8 * key_bytes);
        }
        key_bytes += count;
        position.passed += count;
        if key_bytes < KEY_BYTES {
            // The zero after the text.
            key_bytes += 1;
            position = Position { text_start: text.end, passed: 0 };
        }
    }
    (key, position)
}

/// Returns bytes of a text, each + 1, as the first bytes of a number.
#[inline]
fn next_bytes(packed: &[u8], start: usize, count: usize) -> u128 {
    let all = packed[start..].first_chunk::<KEY_BYTES>().copied().unwrap_or_else(|| {
        let mut padded = [0; KEY_BYTES];
        padded[..count].copy_from_slice(&packed[start..start + count]);
        padded
    });
    // Bytes of UTF-8 are below 0xff, but a length may follow the text.
    let mask = u128::MAX << (8 * (KEY_BYTES - count));
    (u128::from_be_bytes(all) & mask) + (ONES & mask)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn check(entries: Vec<(Labels, u32)>) {
        let mut expected = entries.clone();
        expected.sort_unstable();
        let sorted = sort_label_sets(entries);
        assert!(sorted == expected, "{sorted:?} is not {expected:?}");
    }

    /// A value: lengths around those of keys and of a longer length, zeros, other characters.
    fn value() -> impl Strategy<Value = String> {
        prop_oneof![
            4 => "[a\0é]{1,3}",
            2 => (0_usize..20).prop_map(|len| format!("{}b", "a".repeat(len))),
            1 => (250_usize..260).prop_map(|len| "a".repeat(len)),
            1 => (250_usize..260).prop_map(|len| format!("{}\u{10ffff}", "a".repeat(len))),
        ]
    }

    fn labels() -> impl Strategy<Value = Labels> {
        let names = prop::sample::subsequence(vec!["a", "aa", "abcdefgh", "abcdefghi", "b"], 0..=5);
        names.prop_flat_map(|names| {
            prop::collection::vec(value(), names.len())
                .prop_map(move |values| Labels::from_pairs(names.iter().copied().zip(values)))
        })
    }

    proptest! {
        #[test]
        fn order_is_that_of_label_sets(
            sets in prop::collection::vec((labels(), 0_u32..3), 0..400),
        ) {
            check(sets);
        }
    }

    #[test]
    fn many_equal_sets_are_sorted_by_their_items() {
        let set = |value: &str| Labels::from_pairs([("a", value)]);
        check((0..200).map(|number| (set("1234567"), 199 - number)).collect());
        // One set is a prefix of the other, at the end of a key and elsewhere.
        for len in 1..20 {
            let value = "1".repeat(len);
            let value = value.as_str();
            let longer = Labels::from_pairs([("a", value), ("b", "1")]);
            let sets = [set(value), longer, Labels::from_pairs([("", ""); 0])];
            check((0..300).map(|number| (sets[number % 3].clone(), number as u32 / 7)).collect());
        }
    }

    #[test]
    fn long_texts_need_no_stack() {
        let text = "a".repeat(1 << 20);
        let labels = |number| Labels::from_pairs([("a", format!("{text}{number}"))]);
        check((0..40).map(|number| (labels(number % 9), number)).collect());
    }
}
