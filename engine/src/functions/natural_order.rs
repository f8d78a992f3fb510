//! The order of `sort_by_label`: runs of digits compare as numbers.
//!
//! Source: the `natsort` package that Prometheus uses. Its order is not one: two texts that
//! spell the same numbers each come before the other, and the empty text comes after
//! everything that comes after it. So that such results are the same here, short lists are
//! sorted by insertion, step by step as Go does, and longer ones by merging such runs.

use std::cmp::Ordering;

/// Go sorts up to so many elements by insertion.
const INSERTION_LEN: usize = 12;

/// Whether the first text comes before the second; the two differ.
pub(super) fn precedes(a: &str, b: &str) -> bool {
    let (mut a_rest, mut b_rest) = (a, b);
    while let Some(a_chunk) = next_chunk(&mut a_rest) {
        let Some(b_chunk) = next_chunk(&mut b_rest) else { return false };
        let numbers = (number(a_chunk), number(b_chunk));
        let order = match numbers {
            (Some(a), Some(b)) => a.cmp(&b),
            _ => a_chunk.cmp(b_chunk),
        };
        match order {
            Ordering::Less => return true,
            Ordering::Greater => return false,
            Ordering::Equal if a_rest.is_empty() => return true,
            Ordering::Equal if b_rest.is_empty() => return false,
            Ordering::Equal => {}
        }
    }
    false
}

/// Takes a run of digits, or of anything else, off the front.
fn next_chunk<'a>(rest: &mut &'a str) -> Option<&'a str> {
    let is_digit = rest.bytes().next()?.is_ascii_digit();
    let len = rest.bytes().position(|b| b.is_ascii_digit() != is_digit).unwrap_or(rest.len());
    let (chunk, after) = rest.split_at(len);
    *rest = after;
    Some(chunk)
}

/// A run of digits as a number; `None` for text, and for what does not fit.
fn number(chunk: &str) -> Option<i64> {
    chunk.bytes().all(|b| b.is_ascii_digit()).then(|| chunk.parse().ok()).flatten()
}

/// Sorts by an order that need not be consistent: it ends, and keeps every element, whatever
/// `compare` says.
pub(super) fn sort_by<T: Clone>(items: &mut Vec<T>, mut compare: impl FnMut(&T, &T) -> Ordering) {
    for run in items.chunks_mut(INSERTION_LEN) {
        for end in 1..run.len() {
            let mut at = end;
            while at > 0 && compare(&run[at], &run[at - 1]).is_lt() {
                run.swap(at, at - 1);
                at -= 1;
            }
        }
    }
    let mut width = INSERTION_LEN;
    while width < items.len() {
        let mut merged = Vec::with_capacity(items.len());
        for pair in items.chunks(2 * width) {
            let (mut left, mut right) = pair.split_at(width.min(pair.len()));
            while let (Some(first), Some(second)) = (left.first(), right.first()) {
                if compare(second, first).is_lt() {
                    merged.push(second.clone());
                    right = &right[1..];
                } else {
                    merged.push(first.clone());
                    left = &left[1..];
                }
            }
            merged.extend_from_slice(left);
            merged.extend_from_slice(right);
        }
        *items = merged;
        width *= 2;
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn digits_compare_as_numbers() {
        for (a, b) in [("a2", "a10"), ("2", "10"), ("a", "b"), ("a1b2", "a1b10"), ("a", "a1")] {
            assert!(precedes(a, b), "{a} before {b}");
            assert!(!precedes(b, a), "{b} not before {a}");
        }
        assert!(precedes("99999999999999999999", "a"));
    }

    #[test]
    fn spellings_of_a_number_precede_each_other() {
        assert!(precedes("01", "1") && precedes("1", "01"));
        assert!(!precedes("", "a") && !precedes("a", ""));
    }

    proptest! {
        #[test]
        fn consistent_orders_are_sorted(mut items in prop::collection::vec(0u32..50, 0..100)) {
            let mut expected = items.clone();
            expected.sort_unstable();
            sort_by(&mut items, u32::cmp);
            prop_assert_eq!(items, expected);
        }

        #[test]
        fn inconsistent_orders_lose_nothing(
            mut items in prop::collection::vec(0u32..50, 0..100),
            answers in prop::collection::vec(any::<bool>(), 1..20),
        ) {
            let mut expected = items.clone();
            expected.sort_unstable();
            let mut turn = 0;
            sort_by(&mut items, |_, _| {
                turn += 1;
                if answers[turn % answers.len()] { Ordering::Less } else { Ordering::Greater }
            });
            items.sort_unstable();
            prop_assert_eq!(items, expected);
        }
    }
}
