//! Changed times by write, which decide what the result cache may keep.
//!
//! Every write gets a number once it is visible, and before it is acknowledged. A reader takes the
//! number of the last write first. Later writes have greater numbers, whether the reader has seen
//! them or not.
//!
//! The earliest written times are kept as a staircase: a later write replaces earlier ones unless
//! they reach back further. Expiry changes all times before a limit, so another staircase keeps
//! these limits.
//!
//! ```text
//! time │        × 7        changes since write 5: from the time of 6 on
//!      │      × 6
//!      │ × 3
//!      └───────────── write
//! ```

use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Maximum number of stairs; beyond it, close ones are joined.
const STAIRS_MAX: usize = 4096;
/// Distance in ms within which stairs are close.
const NEAR_MS: u64 = 250;
/// Share of their age within which older stairs are close, too: at most some 2,300 are left then.
const NEAR_SHARE: u64 = 32;

/// More writes than a head sees after another one has replaced it.
const WRITES_OF_REPLACED: u64 = 1 << 32;

/// Changed times since the store was opened.
#[derive(Debug)]
pub(crate) struct Changes {
    stairs: Mutex<Stairs>,
    /// Samples before this time have been deleted.
    kept_from_ms: AtomicI64,
    /// Samples before this time have been deleted by the size limit.
    kept_by_size_ms: AtomicI64,
}

#[derive(Debug, Default)]
struct Stairs {
    /// Number of the last write.
    version: u64,
    /// Last write that reaches back to a time, and that time. Both ascend.
    earliest: Vec<(u64, i64)>,
    /// Last expiry up to a time, and that time, which descends.
    expired: Vec<(u64, i64)>,
}

impl Default for Changes {
    fn default() -> Self {
        let never = || AtomicI64::new(i64::MIN);
        Changes { stairs: Mutex::default(), kept_from_ms: never(), kept_by_size_ms: never() }
    }
}

impl Changes {
    /// Returns the number of the last write.
    pub(crate) fn version(&self) -> u64 {
        self.lock().version
    }

    /// Continues from the writes of another head that it replaces: anything may have changed, and
    /// versions of results over that head are lower than all later ones.
    pub(crate) fn replace(&self, other: &Changes) {
        self.lock().version = other.version().saturating_add(WRITES_OF_REPLACED);
        self.note(i64::MIN);
    }

    /// Notes a visible write that changes nothing before a time.
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

    /// Notes an expiry that changes nothing from a time on.
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
            // The second stair takes over the later limit of the first.
            stairs.expired.remove(0);
            stairs.expired[0] = (version, latest_ms);
        }
    }

    /// Returns the time before which samples may have expired since a write.
    pub(crate) fn expired_since(&self, version: u64) -> i64 {
        let stairs = self.lock();
        let at = stairs.expired.partition_point(|(change, _)| *change <= version);
        stairs.expired.get(at).map_or(i64::MIN, |(_, time_ms)| *time_ms)
    }

    /// Notes that everything before a time is about to be deleted.
    pub(crate) fn note_deleted_before(&self, time_ms: i64) {
        self.kept_from_ms.fetch_max(time_ms, Ordering::AcqRel);
    }

    /// Notes a deletion by the size limit, which holds until the store is opened again.
    pub(crate) fn note_deleted_by_size_before(&self, time_ms: i64) {
        self.kept_by_size_ms.fetch_max(time_ms, Ordering::AcqRel);
        self.note_deleted_before(time_ms);
    }

    /// Returns the first writable time, given that of the retention by time.
    pub(crate) fn first_writable_ms(&self, time_ms: i64) -> i64 {
        time_ms.max(self.kept_by_size_ms.load(Ordering::Acquire))
    }

    /// Lets deleted times be written and read again from `time_ms` on, the limit of the retention
    /// by time. No old samples of them may be left.
    pub(crate) fn release_deleted(&self, time_ms: i64) {
        let time_ms = self.first_writable_ms(time_ms);
        let before_ms = self.kept_from_ms.fetch_min(time_ms, Ordering::AcqRel);
        if before_ms > time_ms {
            self.note_expired_before(before_ms);
        }
    }

    /// Returns the time before which everything has been deleted.
    pub(crate) fn kept_from_ms(&self) -> i64 {
        self.kept_from_ms.load(Ordering::Acquire)
    }

    /// Returns the time before which nothing has been written since a write.
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
    /// Joins close stairs: the earliest time of all, up to the last write.
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
    fn joined_expiries_count_as_later() {
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
    fn joined_writes_count_as_changed() {
        let count = 20 * STAIRS_MAX as i64;
        // One write each second, and one hundred.
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
