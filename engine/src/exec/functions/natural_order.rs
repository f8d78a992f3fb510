//! The order of `sort_by_label`: digit sequences compare as numbers.
//!
//! Source: the `natsort` package used by Prometheus. Its relation is not an order: two texts with
//! the same numbers each precede the other, and the empty text follows texts that should follow it.
//! So the result depends on the algorithm: [`model::checkpoint::sort_by`] sorts short lists by
//! insertion, with the same steps as Go.

use std::cmp::Ordering;

/// Returns whether `a` precedes `b`, which differs from it.
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

/// Takes a sequence of digits, or of other characters, from the start.
fn next_chunk<'a>(rest: &mut &'a str) -> Option<&'a str> {
    let is_digit = rest.bytes().next()?.is_ascii_digit();
    let len = rest.bytes().position(|b| b.is_ascii_digit() != is_digit).unwrap_or(rest.len());
    let (chunk, after) = rest.split_at(len);
    *rest = after;
    Some(chunk)
}

/// Parses a sequence of digits; `None` for text and for numbers that overflow.
fn number(chunk: &str) -> Option<i64> {
    chunk.bytes().all(|b| b.is_ascii_digit()).then(|| chunk.parse().ok()).flatten()
}

#[cfg(test)]
mod tests {
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
}
