//! Slots: targets are hashed into 1024 slots, and each shard owns ranges of them, so that only slots
//! that change their owner move.

use std::fmt::Write as _;
use std::ops::RangeInclusive;

use crate::tools::ToolError;

/// Number of slots.
pub(super) const SLOTS: usize = 1024;

/// Owner of each slot.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct SlotLayout {
    owners: Vec<usize>,
    shard_count: usize,
}

impl SlotLayout {
    /// Divides the slots into equal ranges, in the order of shards.
    pub(super) fn equal(shard_count: usize) -> SlotLayout {
        let owners = (0..SLOTS).map(|slot| slot * shard_count / SLOTS).collect();
        SlotLayout { owners, shard_count }
    }

    /// Parses the ranges of each shard, such as `0-255,512-767`.
    ///
    /// Errors: a slot has no owner, or several.
    pub(super) fn parse(shards: &[String]) -> Result<SlotLayout, ToolError> {
        let mut owners = vec![None; SLOTS];
        for (shard, text) in shards.iter().enumerate() {
            for range in text.split(',') {
                let wrong = || usage(format!("--slots: {range:?} is not a range, such as 0-511"));
                for slot in parse_range(range).ok_or_else(wrong)? {
                    if owners[slot].replace(shard).is_some() {
                        return Err(usage(format!("--slots: slot {slot} has two owners")));
                    }
                }
            }
        }
        let missing = |slot: usize| usage(format!("--slots: slot {slot} has no owner"));
        let owned = owners.into_iter().enumerate().map(|(slot, owner)| owner.ok_or(missing(slot)));
        Ok(SlotLayout { owners: owned.collect::<Result<_, _>>()?, shard_count: shards.len() })
    }

    /// Returns a layout of equal shares for another number of shards. No other layout of equal
    /// shares moves fewer slots.
    pub(super) fn resized(&self, shard_count: usize) -> SlotLayout {
        let mut held = vec![0; shard_count.max(self.shard_count)];
        self.owners.iter().for_each(|owner| held[*owner] += 1);
        // Shards that have most keep one more, if the shares are not equal.
        let mut order: Vec<usize> = (0..shard_count).collect();
        order.sort_by_key(|shard| std::cmp::Reverse(held[*shard]));
        let mut free = vec![0_usize; shard_count];
        for (rank, shard) in order.into_iter().enumerate() {
            free[shard] = SLOTS / shard_count + usize::from(rank < SLOTS % shard_count);
        }
        let mut take = |shard: usize| {
            let left = free.get_mut(shard).filter(|left| **left > 0)?;
            *left -= 1;
            Some(shard)
        };
        let kept: Vec<Option<usize>> = self.owners.iter().map(|owner| take(*owner)).collect();
        let mut next = 0;
        let assign = |kept: Option<usize>| {
            kept.unwrap_or_else(|| {
                while take(next).is_none() {
                    next += 1;
                }
                next
            })
        };
        SlotLayout { owners: kept.into_iter().map(assign).collect(), shard_count }
    }

    pub(super) fn shard_count(&self) -> usize {
        self.shard_count
    }

    /// Returns the shard of a hash.
    pub(super) fn shard(&self, hash: u64) -> usize {
        self.owners[(hash % SLOTS as u64) as usize]
    }

    /// Returns the ranges of a shard.
    fn ranges(&self, shard: usize) -> Vec<RangeInclusive<usize>> {
        let mut ranges: Vec<RangeInclusive<usize>> = Vec::new();
        for slot in (0..SLOTS).filter(|slot| self.owners[*slot] == shard) {
            match ranges.last_mut() {
                Some(last) if *last.end() + 1 == slot => *last = *last.start()..=slot,
                _ => ranges.push(slot..=slot),
            }
        }
        ranges
    }

    /// Returns the ranges of a shard as `--slots` takes them.
    pub(super) fn text(&self, shard: usize) -> String {
        let ranges = self.ranges(shard);
        let texts = ranges.iter().map(|range| format!("{}-{}", range.start(), range.end()));
        texts.collect::<Vec<_>>().join(",")
    }

    /// Returns the regular expression of a shard's slots for the action `keep`, which matches whole
    /// texts.
    pub(super) fn regex(&self, shard: usize) -> String {
        let mut alternatives = Vec::new();
        self.ranges(shard).into_iter().for_each(|range| push_patterns(range, &mut alternatives));
        alternatives.join("|")
    }
}

fn usage(message: String) -> ToolError {
    ToolError::Usage(message)
}

fn parse_range(text: &str) -> Option<RangeInclusive<usize>> {
    let (first, last) = text.split_once('-').unwrap_or((text, text));
    let (first, last) = (first.trim().parse().ok()?, last.trim().parse().ok()?);
    (first <= last && last < SLOTS).then_some(first..=last)
}

/// Adds patterns of decimal numbers without leading zeros.
///
/// Each pattern is a prefix, a class of one digit, and any digits after it.
fn push_patterns(range: RangeInclusive<usize>, patterns: &mut Vec<String>) {
    let (mut first, last) = (*range.start(), *range.end());
    while first <= last {
        let mut block = 1;
        while first > 0 && first % (block * 10) == 0 && first + block * 10 - 1 <= last {
            block *= 10;
        }
        let (prefix, digit) = (first / (block * 10), first / block % 10);
        let count = ((last - first + 1) / block).min(10 - digit);
        let mut pattern = if prefix > 0 { prefix.to_string() } else { String::new() };
        // Writing to a string cannot fail.
        let _ = match count {
            1 => write!(pattern, "{digit}"),
            _ => write!(pattern, "[{digit}-{}]", digit + count - 1),
        };
        pattern.push_str(&"[0-9]".repeat(block.ilog10() as usize));
        patterns.push(pattern);
        first += count * block;
    }
}

#[cfg(test)]
mod tests {
    use regex::Regex;

    use super::*;

    fn moved(a: &SlotLayout, b: &SlotLayout) -> usize {
        a.owners.iter().zip(&b.owners).filter(|(a, b)| a != b).count()
    }

    fn texts(layout: &SlotLayout) -> Vec<String> {
        (0..layout.shard_count).map(|shard| layout.text(shard)).collect()
    }

    #[test]
    fn doubling_moves_half_of_the_slots_and_back() {
        let one = SlotLayout::equal(1);
        let two = one.resized(2);
        let four = two.resized(4);
        assert_eq!(texts(&two), ["0-511", "512-1023"]);
        assert_eq!(texts(&four), ["0-255", "512-767", "256-511", "768-1023"]);
        assert_eq!([moved(&one, &two), moved(&two, &four)], [512, 512]);
        assert_eq!(moved(&four, &four.resized(2)), 512);
        assert_eq!(SlotLayout::parse(&texts(&four)).unwrap(), four);
    }

    #[test]
    fn no_slot_moves_without_need_and_shares_are_equal() {
        for from in 1..40 {
            for to in 1..40 {
                let before = SlotLayout::equal(from);
                let after = before.resized(to);
                let mut counts = vec![0_usize; to];
                after.owners.iter().for_each(|owner| counts[*owner] += 1);
                let (least, most) = (*counts.iter().min().unwrap(), *counts.iter().max().unwrap());
                assert!(most - least <= 1, "{from} to {to}: {counts:?}");
                // Slots of shards that grow, which are those of new shards, or of lost shards.
                let held = |shard: usize| before.owners.iter().filter(|o| **o == shard).count();
                let needed: usize = (0..to).map(|i| counts[i].saturating_sub(held(i))).sum();
                assert_eq!(moved(&before, &after), needed, "{from} to {to}");
            }
        }
    }

    #[test]
    fn regular_expressions_match_the_slots_of_a_shard_only() {
        for (from, to) in [(1, 1), (1, 2), (2, 4), (3, 7), (5, 3), (1, 1024), (1, 100)] {
            let layout = SlotLayout::equal(from).resized(to);
            for shard in 0..to {
                let regex = Regex::new(&format!("^(?:{})$", layout.regex(shard))).unwrap();
                for slot in 0..SLOTS {
                    let is_owned = layout.owners[slot] == shard;
                    assert_eq!(regex.is_match(&slot.to_string()), is_owned, "{regex} {slot}");
                }
                assert!(!regex.is_match("") && !regex.is_match("1024"), "{regex}");
            }
        }
    }

    #[test]
    fn layouts_with_gaps_or_two_owners_are_refused() {
        for (texts, message) in [
            (&["0-1023", "5"][..], "slot 5 has two owners"),
            (&["0-1000", "1002-1023"], "slot 1001 has no owner"),
            (&["0-1024"], "is not a range"),
            (&["9-3"], "is not a range"),
            (&[""], "is not a range"),
        ] {
            let texts: Vec<String> = texts.iter().map(|text| (*text).to_owned()).collect();
            let error = SlotLayout::parse(&texts).unwrap_err().to_string();
            assert!(error.contains(message), "{error}");
        }
    }
}
