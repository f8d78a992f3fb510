//! Which times have changed since when: what lets an answer be used again.
//!
//! Every write gets a number once it can be seen, and before it is acknowledged. Whoever reads
//! takes the number of the last write first: what is written later has a greater one, whether the
//! reader has seen it or not.
//!
//! Kept are the earliest times that were written, as a staircase: of two writes the later one
//! alone, if it reaches back further. What expires reaches back to the beginning of all times, and
//! is told by the latest time that it reaches up to, as another staircase.
//!
//! ```text
//! time │        × 7        asked for what has changed since 5: the time of 6
//!      │      × 6
//!      │ × 3
//!      └───────────── write
//! ```

use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Steps of the staircase; where there are more, those that lie close together become one.
const STAIRS_MAX: usize = 4096;
/// Times that are so near to each other, in ms, lie close together.
const NEAR_MS: u64 = 250;
/// So do those that are nearer to each other than this share of what they lie back: of older
/// writes less need be known. At most some 2,300 stairs are left then.
const NEAR_SHARE: u64 = 32;

/// What has been written and deleted since the store was opened.
#[derive(Debug)]
pub(crate) struct Changes {
    stairs: Mutex<Stairs>,
    /// Samples before this time have been deleted.
    kept_from_ms: AtomicI64,
    /// The same of those that were deleted because the files took too much.
    kept_by_size_ms: AtomicI64,
}

#[derive(Debug, Default)]
struct Stairs {
    /// The number of the last write.
    version: u64,
    /// The last write that reaches back to a time, and that time. Both ascend.
    earliest: Vec<(u64, i64)>,
    /// The last change that reaches up to a time from the beginning, and that time, which descends.
    expired: Vec<(u64, i64)>,
}

impl Default for Changes {
    fn default() -> Self {
        let never = || AtomicI64::new(i64::MIN);
        Changes { stairs: Mutex::default(), kept_from_ms: never(), kept_by_size_ms: never() }
    }
}

impl Changes {
    /// The number of the last write.
    pub(crate) fn version(&self) -> u64 {
        self.lock().version
    }

    /// Notes a write that can be seen now: nothing before a time has changed by it.
    pub(crate) fn note(&self, earliest_ms: i64) {
        let mut stairs = self.lock();
        stairs.version += 1;
        while stairs.earliest.last().is_some_and(|(_, time_ms)| *time_ms >= earliest_ms) {
            stairs.earliest.pop();
        }
        let version = stairs.version;
        stairs.earliest.push((version, earliest_ms));
        if stairs.earliest.len() > STAIRS_MAX {
            stairs.flatten();
        }
    }

    /// Notes that something before a time is not there any more: nothing from it on has changed.
    pub(crate) fn note_expired_before(&self, time_ms: i64) {
        let mut stairs = self.lock();
        stairs.version += 1;
        while stairs.expired.last().is_some_and(|(_, before_ms)| *before_ms <= time_ms) {
            stairs.expired.pop();
        }
        let version = stairs.version;
        stairs.expired.push((version, time_ms));
        if stairs.expired.len() > STAIRS_MAX
            && let [(_, latest_ms), (version, _), ..] = stairs.expired[..]
        {
            // What is forgotten is when the first of them was.
            stairs.expired.remove(0);
            stairs.expired[0] = (version, latest_ms);
        }
    }

    /// Something before this time may have gone since a write, nothing from it on.
    pub(crate) fn expired_since(&self, version: u64) -> i64 {
        let stairs = self.lock();
        let at = stairs.expired.partition_point(|(change, _)| *change <= version);
        stairs.expired.get(at).map_or(i64::MIN, |(_, time_ms)| *time_ms)
    }

    /// Notes that everything before a time is about to be deleted.
    pub(crate) fn note_deleted_before(&self, time_ms: i64) {
        self.kept_from_ms.fetch_max(time_ms, Ordering::AcqRel);
    }

    /// Notes the same because the files take too much. It holds until the store is opened again.
    pub(crate) fn note_deleted_by_size_before(&self, time_ms: i64) {
        self.kept_by_size_ms.fetch_max(time_ms, Ordering::AcqRel);
        self.note_deleted_before(time_ms);
    }

    /// The first time that may be written to where the retention by time keeps what is from a time
    /// on.
    pub(crate) fn first_writable_ms(&self, time_ms: i64) -> i64 {
        time_ms.max(self.kept_by_size_ms.load(Ordering::Acquire))
    }

    /// Lets times be written and read again that the retention by time keeps, which is what is from a
    /// time on. Nothing of them may be left from before.
    pub(crate) fn release_deleted(&self, time_ms: i64) {
        let time_ms = self.first_writable_ms(time_ms);
        let before_ms = self.kept_from_ms.fetch_min(time_ms, Ordering::AcqRel);
        if before_ms > time_ms {
            self.note_expired_before(before_ms);
        }
    }

    /// Everything before this time has been deleted.
    pub(crate) fn kept_from_ms(&self) -> i64 {
        self.kept_from_ms.load(Ordering::Acquire)
    }

    /// Nothing before this time has been written since a write.
    pub(crate) fn earliest_since(&self, version: u64) -> i64 {
        let stairs = self.lock();
        let at = stairs.earliest.partition_point(|(write, _)| *write <= version);
        stairs.earliest.get(at).map_or(i64::MAX, |(_, time_ms)| *time_ms)
    }

    fn lock(&self) -> MutexGuard<'_, Stairs> {
        self.stairs.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Stairs {
    /// Makes one stair of those that lie close together: the earliest time of all, up to the last
    /// write.
    fn flatten(&mut self) {
        let Some((_, newest_ms)) = self.earliest.last().copied() else { return };
        let stairs = std::mem::take(&mut self.earliest);
        for (at, (version, time_ms)) in stairs.iter().enumerate() {
            let end_ms = stairs.get(at + 1).map_or(newest_ms, |(_, next_ms)| *next_ms);
            match self.earliest.last_mut() {
                Some((kept_version, kept_ms))
                    if end_ms.abs_diff(*kept_ms)
                        <= NEAR_MS.max(newest_ms.abs_diff(*kept_ms) / NEAR_SHARE) =>
                {
                    *kept_version = *version;
                }
                _ => self.earliest.push((*version, *time_ms)),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn the_earliest_time_since_a_write_is_known(
            times in prop::collection::vec(-50i64..50, 0..60),
        ) {
            let changes = Changes::default();
            for time_ms in &times {
                changes.note(*time_ms);
            }
            prop_assert_eq!(changes.version(), times.len() as u64);
            for version in 0..=times.len() {
                let expected = times[version..].iter().copied().min().unwrap_or(i64::MAX);
                prop_assert_eq!(changes.earliest_since(version as u64), expected);
            }
        }
    }

    proptest! {
        #[test]
        fn the_latest_time_that_has_expired_since_a_write_is_known(
            times in prop::collection::vec(-50i64..50, 0..60),
        ) {
            let changes = Changes::default();
            for time_ms in &times {
                changes.note_expired_before(*time_ms);
            }
            for version in 0..=times.len() {
                let expected = times[version..].iter().copied().max().unwrap_or(i64::MIN);
                prop_assert_eq!(changes.expired_since(version as u64), expected);
            }
            prop_assert_eq!(changes.earliest_since(0), i64::MAX);
        }
    }

    #[test]
    fn what_is_forgotten_of_many_expiries_is_taken_for_later() {
        let changes = Changes::default();
        let count = STAIRS_MAX as u64 + 10;
        (0..count).for_each(|number| changes.note_expired_before(-(number as i64)));
        assert_eq!(changes.lock().expired.len(), STAIRS_MAX);
        for version in 0..count {
            assert!(changes.expired_since(version) >= -(version as i64), "{version}");
        }
        assert_eq!(changes.expired_since(count), i64::MIN);
    }

    #[test]
    fn few_stairs_are_left_of_any_writes() {
        let changes = Changes::default();
        for exponent in 0..62u32 {
            (0..400).for_each(|part| changes.note(-(i64::MAX >> exponent) / 400 * (400 - part)));
        }
        let mut stairs = changes.lock();
        stairs.flatten();
        assert!(stairs.earliest.len() < 2_400, "{}", stairs.earliest.len());
    }

    #[test]
    fn what_is_forgotten_of_many_writes_is_taken_for_changed() {
        let count = 20 * STAIRS_MAX as i64;
        // A write a second, or a hundred.
        for distance_ms in [1_000, 10] {
            let changes = Changes::default();
            (0..count).for_each(|number| changes.note(number * distance_ms));
            assert!(changes.lock().earliest.len() <= STAIRS_MAX);
            for version in 0..count {
                let (since, expected) =
                    (changes.earliest_since(version as u64), version * distance_ms);
                let near_ms = 250.max((count * distance_ms - since) / 32);
                assert!(since <= expected, "{version}: {since} {expected}");
                assert!(expected - since <= near_ms, "{version}: {since} {expected} {near_ms}");
            }
            assert_eq!(changes.earliest_since(count as u64), i64::MAX);
        }
    }
}
