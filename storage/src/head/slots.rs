//! Places of series by slot, and visits of the series of a write.

use std::sync::{MutexGuard, PoisonError};

use model::prefetch;

use super::series::HeadSeries;
use super::{Head, SHARD_COUNT};

/// Number of consecutive slots in one shard. Series of one target, which are written together,
/// mostly have consecutive slots, and a writer locks their shard once.
const SHARED_SLOTS: usize = 32;
/// Samples after which a writer unlocks a shard, for readers that wait for it.
const HELD_SAMPLES_MAX: usize = 1024;
/// Distance in slots at which a writer prefetches a series, and then its windows.
const FETCH_SERIES_AHEAD: usize = 6;
const FETCH_WINDOWS_AHEAD: usize = 4;
const FETCH_TAILS_AHEAD: usize = 2;

/// Shard of a slot, and its entry there.
pub(super) struct SlotPlace {
    pub(super) shard: usize,
    pub(super) entry: usize,
}

impl SlotPlace {
    #[inline]
    pub(super) fn of(slot: u32) -> SlotPlace {
        let (group, position) = (slot as usize / SHARED_SLOTS, slot as usize % SHARED_SLOTS);
        SlotPlace {
            shard: group % SHARD_COUNT,
            entry: group / SHARD_COUNT * SHARED_SLOTS + position,
        }
    }

    /// Returns the slot that has this place.
    pub(super) fn slot(&self) -> u32 {
        let (group, position) = (self.entry / SHARED_SLOTS, self.entry % SHARED_SLOTS);
        ((group * SHARD_COUNT + self.shard) * SHARED_SLOTS + position) as u32
    }
}

/// Share of all slots: one of `count` shares, each with shards of its own.
#[derive(Debug, Clone, Copy)]
pub(crate) struct SlotShare {
    pub(crate) index: usize,
    pub(crate) count: usize,
}

impl SlotShare {
    /// The share of all slots.
    pub(crate) const ALL: SlotShare = SlotShare { index: 0, count: 1 };

    /// Returns whether a slot is in the share.
    #[inline]
    pub(crate) fn has(self, slot: u32) -> bool {
        self.count == 1 || SlotPlace::of(slot).shard % self.count == self.index
    }
}

/// One locked shard.
pub(crate) struct Shard<'a>(pub(super) MutexGuard<'a, Vec<Option<Box<HeadSeries>>>>);

impl Shard<'_> {
    /// Returns the series in a slot of this shard.
    #[inline]
    pub(crate) fn series(&mut self, slot: u32) -> Option<&mut HeadSeries> {
        self.0.get_mut(SlotPlace::of(slot).entry)?.as_deref_mut()
    }

    /// Returns the series at a distance after an entry, if it is in the same group of slots.
    #[inline]
    fn ahead(&self, entry: usize, distance: usize) -> Option<&HeadSeries> {
        let is_near = entry % SHARED_SLOTS + distance < SHARED_SLOTS;
        self.0.get(entry + distance).filter(|_| is_near)?.as_deref()
    }
}

/// Data of later series that a visit of series prefetches.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fetch {
    /// The series.
    Series,
    /// The series and their labels.
    Labels,
    /// The series, and the ends of their samples.
    Samples,
}

/// Visit of series by slot, which keeps the shard of the last one locked, and prefetches the next
/// ones.
pub(crate) struct SlotVisit<'a> {
    head: &'a Head,
    fetch: Fetch,
    held: Option<(usize, Shard<'a>)>,
    /// Samples of the visits since the shard was locked.
    samples: usize,
}

impl<'a> SlotVisit<'a> {
    /// Returns the series in a slot, for work on a number of samples.
    #[inline]
    pub(crate) fn series(&mut self, slot: u32, samples: usize) -> Option<&mut HeadSeries> {
        let SlotPlace { shard: shard_index, entry } = SlotPlace::of(slot);
        let is_held = matches!(&self.held, Some((held, _)) if *held == shard_index);
        if !is_held || self.samples >= HELD_SAMPLES_MAX {
            // Unlocked first: a thread holds one shard at a time.
            self.held = None;
            self.samples = 0;
        }
        self.samples += samples;
        let head = self.head;
        let (_, shard) =
            self.held.get_or_insert_with(|| (shard_index, head.lock_shard(shard_index)));
        if let Some(series) = shard.ahead(entry, FETCH_SERIES_AHEAD) {
            prefetch(series);
        }
        match self.fetch {
            Fetch::Series => {}
            Fetch::Labels => {
                if let Some(series) = shard.ahead(entry, FETCH_WINDOWS_AHEAD) {
                    prefetch(series.labels.as_bytes());
                }
            }
            Fetch::Samples => {
                if let Some(series) = shard.ahead(entry, FETCH_WINDOWS_AHEAD) {
                    series.fetch_recent();
                }
                if let Some(series) = shard.ahead(entry, FETCH_TAILS_AHEAD) {
                    series.fetch_end();
                }
            }
        }
        shard.0.get_mut(entry)?.as_deref_mut()
    }

    /// Unlocks the shard.
    pub(crate) fn release(&mut self) {
        self.held = None;
    }
}

impl Head {
    /// Locks the shard of a slot.
    #[inline]
    pub(crate) fn shard(&self, slot: u32) -> Shard<'_> {
        self.lock_shard(SlotPlace::of(slot).shard)
    }

    #[inline]
    pub(super) fn lock_shard(&self, shard_index: usize) -> Shard<'_> {
        Shard(self.shards[shard_index].lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Begins a visit of series by slot.
    pub(crate) fn visit_slots(&self, fetch: Fetch) -> SlotVisit<'_> {
        SlotVisit { head: self, fetch, held: None, samples: 0 }
    }

    /// Returns the slots of the series of a write, in its order.
    ///
    /// A sender mostly writes the same series in the same order, so the next slot is tried first.
    pub(crate) fn find_all<'a>(&self, series: impl Iterator<Item = &'a [u8]>) -> Vec<Option<u32>> {
        let mut visit = self.visit_slots(Fetch::Labels);
        let mut expected = None;
        series
            .map(|labels| {
                let is_found = |slot: &u32| {
                    visit.series(*slot, 1).is_some_and(|found| found.labels.as_bytes() == labels)
                };
                let slot = expected.filter(is_found).or_else(|| {
                    visit.release();
                    self.find(labels)
                });
                expected = slot.and_then(|slot| slot.checked_add(1));
                slot
            })
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::{HashMap, HashSet};

    use model::Labels;

    use super::*;
    use crate::head::HeadLimits;
    use crate::sizes::Sizes;

    fn labels(number: u32) -> Labels {
        Labels::from_pairs([("number", number.to_string())])
    }

    fn head_of(count: u32) -> Head {
        let limits =
            HeadLimits { series_max: 9_000, series_per_metric_max: 9_000, bytes_max: 1 << 30 };
        let head = Head::new(limits, None, &Sizes::default());
        (0..count).for_each(|number| {
            head.create(HeadSeries::new(labels(number)));
        });
        head
    }

    #[test]
    fn every_slot_has_a_place_of_its_own() {
        let mut places = HashSet::new();
        for slot in 0..10_000 {
            let place = SlotPlace::of(slot);
            assert!(place.shard < SHARD_COUNT);
            assert_eq!(place.slot(), slot);
            assert!(places.insert((place.shard, place.entry)));
        }
    }

    #[test]
    fn every_slot_and_its_shard_are_in_one_share() {
        for count in [1, 2, 3, 8] {
            let shares: Vec<_> = (0..count).map(|index| SlotShare { index, count }).collect();
            let mut share_of_shard = HashMap::new();
            for slot in 0..10_000 {
                let having: Vec<_> = shares.iter().filter(|share| share.has(slot)).collect();
                assert_eq!(having.len(), 1);
                let index = having[0].index;
                let shard = SlotPlace::of(slot).shard;
                assert_eq!(*share_of_shard.entry(shard).or_insert(index), index);
            }
        }
    }

    #[test]
    fn series_are_found_in_any_order() {
        const COUNT: u32 = 5_000;
        let head = head_of(COUNT);
        // In order, backwards, with gaps, with unknown series in between.
        let orders: [Vec<u32>; 4] = [
            (0..COUNT).collect(),
            (0..COUNT).rev().collect(),
            (0..COUNT).step_by(7).collect(),
            (0..COUNT).flat_map(|number| [number, COUNT + number]).collect(),
        ];
        for order in orders {
            let all: Vec<Labels> = order.iter().map(|number| labels(*number)).collect();
            let found = head.find_all(all.iter().map(Labels::as_bytes));
            let expected: Vec<_> =
                order.iter().map(|number| Some(*number).filter(|n| *n < COUNT)).collect();
            assert_eq!(found, expected);
        }
    }

    #[test]
    fn a_visit_finds_the_series_of_each_slot_and_no_other() {
        let head = head_of(3_000);
        for fetch in [Fetch::Series, Fetch::Labels, Fetch::Samples] {
            let mut visit = head.visit_slots(fetch);
            for slot in [0, 31, 32, 31, 2_999, 0, 2_047, 2_048] {
                assert_eq!(visit.series(slot, 700).unwrap().labels, labels(slot));
            }
            assert!(visit.series(3_000, 1).is_none());
            assert!(visit.series(u32::MAX, 1).is_none());
        }
    }

    #[test]
    fn a_released_visit_holds_no_lock() {
        let head = head_of(1);
        let mut visit = head.visit_slots(Fetch::Series);
        visit.series(0, 1).unwrap();
        assert!(head.shards[0].try_lock().is_err());
        visit.release();
        assert!(head.shards[0].try_lock().is_ok());
    }
}
