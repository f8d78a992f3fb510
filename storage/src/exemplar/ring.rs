//! Exemplars in memory: numbered in the order of acceptance, and indexed by series and time.

use std::collections::{BTreeMap, HashMap, VecDeque};

use foldhash::fast::RandomState;
use model::{Exemplar, Labels, TimeRange};

use super::{AcceptedExemplar, value};
use crate::keys;
use crate::value::corrupt;

/// Bytes that an exemplar counts in addition to its labels: its entries in ring, series and value.
const EXEMPLAR_BYTES: usize = 128;
/// Bytes that a series counts in addition to its labels.
const SERIES_BYTES: usize = 128;

/// More exemplars than a value can have: as many numbers are skipped after a damaged value.
const VALUE_EXEMPLARS_MAX: u64 = 1 << 32;

/// Limits of the ring.
#[derive(Debug, Clone, Copy)]
pub(super) struct Limits {
    /// Maximum number of exemplars; 0 for none.
    pub(super) exemplars_max: usize,
    /// Maximum number of exemplars of a series.
    pub(super) per_series_max: usize,
    /// Maximum bytes in memory, and of stored values.
    pub(super) bytes_max: usize,
}

/// Counters of the ring.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct RingStats {
    /// Exemplars.
    pub(crate) exemplars: usize,
    /// Series that have some.
    pub(crate) series: usize,
    /// Maximum number of exemplars.
    pub(crate) exemplars_max: usize,
    /// Bytes in memory.
    pub(crate) bytes: usize,
    /// Time of the exemplar that is evicted next.
    pub(crate) oldest_ms: Option<i64>,
    /// Stored values that cannot be read.
    pub(crate) damaged: usize,
}

/// Ring of exemplars.
///
/// Eviction, per series or overall, always removes the exemplar accepted first. So the contents
/// depend only on the order of acceptance, and replaying the stored values gives the same ring.
/// Only the byte limit may keep a few more after a start. Invariant: each of `entries` is in its
/// series, and counted in its value.
pub(super) struct Ring {
    limits: Limits,
    /// By number, which ascends in the order of acceptance.
    entries: BTreeMap<u64, AcceptedExemplar>,
    series: HashMap<Labels, OfSeries, RandomState>,
    /// Stored values by the number of their first exemplar.
    values: BTreeMap<u64, Stored>,
    next_number: u64,
    bytes: usize,
    value_bytes: usize,
    /// Keys of stored values whose exemplars are all evicted.
    dead: Vec<Vec<u8>>,
    /// Keys of unreadable values, and the reasons.
    damaged: BTreeMap<Vec<u8>, String>,
}

/// The exemplars of a series.
#[derive(Default)]
struct OfSeries {
    /// Time and number, by time; equal times in the order of acceptance.
    by_time: VecDeque<(i64, u64)>,
    /// Numbers in the order of acceptance.
    numbers: VecDeque<u64>,
}

/// One stored value.
struct Stored {
    /// Exemplars that are not evicted.
    live: usize,
    bytes: usize,
}

impl Ring {
    pub(super) fn new(limits: Limits) -> Ring {
        Ring {
            limits,
            entries: BTreeMap::new(),
            series: HashMap::default(),
            values: BTreeMap::new(),
            next_number: 0,
            bytes: 0,
            value_bytes: 0,
            dead: Vec::new(),
            damaged: BTreeMap::new(),
        }
    }

    /// Adds the exemplars of one stored value, whose key has the next number. `value_bytes` is its
    /// size.
    pub(super) fn apply(&mut self, taken: Vec<AcceptedExemplar>, value_bytes: usize) {
        let first = self.next_number;
        if taken.is_empty() {
            return;
        }
        self.values.insert(first, Stored { live: taken.len(), bytes: value_bytes });
        self.value_bytes += value_bytes;
        for (labels, exemplar) in taken {
            self.insert(labels, exemplar);
            self.make_room();
        }
    }

    /// Adds the exemplars of a stored value. Values come in the order of their keys.
    pub(super) fn replay(&mut self, key: &[u8], bytes: &[u8]) {
        let first = keys::parse_exemplars(key);
        let last = self.entries.last_key_value().map(|(number, _)| *number);
        let decoded = match first {
            Some(first) if last.is_none_or(|last| last < first) => value::decode(key, bytes),
            Some(_) => Err(corrupt(key, "the number is not above that of the exemplar before")),
            None => Err(corrupt(key, "malformed key")),
        };
        match (decoded, first) {
            (Ok(taken), Some(first)) if !taken.is_empty() => {
                self.next_number = first;
                self.apply(taken, bytes.len());
            }
            (Ok(_), _) => self.dead.push(key.to_vec()),
            (Err(error), _) => {
                tracing::error!(%error, "stored exemplars cannot be read; the others are kept");
                self.damaged.insert(key.to_vec(), format!("exemplars are missing: {error}"));
                self.next_number = first.map_or(self.next_number, |first| {
                    self.next_number.max(first.saturating_add(VALUE_EXEMPLARS_MAX))
                });
            }
        }
    }

    fn insert(&mut self, labels: Labels, exemplar: Exemplar) {
        let number = self.next_number;
        self.next_number = self.next_number.saturating_add(1);
        self.bytes += exemplar_bytes(&exemplar);
        let own = self.series.entry(labels.clone()).or_insert_with(|| {
            self.bytes += series_bytes(&labels);
            OfSeries::default()
        });
        let at = own.by_time.partition_point(|(time_ms, _)| *time_ms <= exemplar.timestamp_ms);
        own.by_time.insert(at, (exemplar.timestamp_ms, number));
        own.numbers.push_back(number);
        let is_full = own.numbers.len() > self.limits.per_series_max;
        let first = own.numbers.front().filter(|_| is_full).copied();
        self.entries.insert(number, (labels, exemplar));
        if let Some(first) = first {
            self.remove(first);
        }
    }

    /// Evicts the oldest exemplars until all limits hold.
    fn make_room(&mut self) {
        while self.entries.len() > self.limits.exemplars_max || self.bytes > self.limits.bytes_max {
            let Some((number, _)) = self.entries.first_key_value() else { return };
            self.remove(*number);
        }
        while self.value_bytes > self.limits.bytes_max && self.values.len() > 1 {
            let Some(first) = self.entries.first_key_value().map(|(number, _)| *number) else {
                return;
            };
            self.remove(first);
        }
    }

    /// Removes the first exemplar of its series.
    fn remove(&mut self, number: u64) {
        let Some((labels, exemplar)) = self.entries.remove(&number) else { return };
        self.bytes -= exemplar_bytes(&exemplar);
        if let Some(own) = self.series.get_mut(&labels) {
            let first = own.numbers.pop_front();
            debug_assert_eq!(first, Some(number), "evicts the first of a series");
            let from = own.by_time.partition_point(|(time_ms, _)| *time_ms < exemplar.timestamp_ms);
            // The first of its time, since it was accepted before the others.
            own.by_time.remove(from);
            if own.numbers.is_empty() {
                self.series.remove(&labels);
                self.bytes -= series_bytes(&labels);
            }
        }
        self.note_removed(number);
    }

    /// Counts a removal in its value, which dies with its last exemplar. Damaged values die once
    /// they are older than all exemplars left.
    fn note_removed(&mut self, number: u64) {
        if let Some((first, stored)) = self.values.range_mut(..=number).next_back() {
            let first = *first;
            stored.live -= 1;
            if stored.live == 0 {
                self.value_bytes -= stored.bytes;
                self.values.remove(&first);
                self.dead.push(keys::exemplars(first));
            }
        }
        let oldest = self.entries.first_key_value().map_or(number, |(number, _)| *number);
        let oldest = keys::exemplars(oldest);
        while let Some(damaged) = self.damaged.first_entry().filter(|d| *d.key() < oldest) {
            self.dead.push(damaged.remove_entry().0);
        }
    }

    /// Returns the keys of stored values whose exemplars are all evicted.
    pub(super) fn dead(&self) -> &[Vec<u8>] {
        &self.dead
    }

    /// Clears them once they are deleted from the store.
    pub(super) fn forget_dead(&mut self) {
        self.dead.clear();
    }

    /// Returns the number of the next exemplar.
    pub(super) fn next_number(&self) -> u64 {
        self.next_number
    }

    /// Returns whether the ring may hold exemplars.
    pub(super) fn is_enabled(&self) -> bool {
        self.limits.exemplars_max > 0
    }

    /// Returns the exemplar of a series with the latest time, the last of several.
    pub(super) fn newest(&self, labels: &Labels) -> Option<&Exemplar> {
        let (_, number) = self.series.get(labels)?.by_time.back()?;
        self.entries.get(number).map(|(_, exemplar)| exemplar)
    }

    /// Returns whether a series has an exemplar with a time.
    pub(super) fn holds(&self, labels: &Labels, timestamp_ms: i64) -> bool {
        self.series.get(labels).is_some_and(|own| {
            own.by_time.binary_search_by_key(&timestamp_ms, |(time_ms, _)| *time_ms).is_ok()
        })
    }

    /// Returns the series that may have exemplars in a range, in any order.
    pub(super) fn series_between(&self, times: TimeRange) -> Vec<Labels> {
        let overlaps = |own: &OfSeries| {
            own.by_time.front().is_some_and(|(time_ms, _)| *time_ms <= times.end_ms)
                && own.by_time.back().is_some_and(|(time_ms, _)| *time_ms >= times.start_ms)
        };
        let overlapping = self.series.iter().filter(|(_, own)| overlaps(own));
        overlapping.map(|(labels, _)| labels.clone()).collect()
    }

    /// Returns the exemplars of a series in a range, by time.
    pub(super) fn exemplars_between(&self, labels: &Labels, times: TimeRange) -> Vec<Exemplar> {
        let Some(own) = self.series.get(labels) else { return Vec::new() };
        let from = own.by_time.partition_point(|(time_ms, _)| *time_ms < times.start_ms);
        own.by_time
            .range(from..)
            .take_while(|(time_ms, _)| *time_ms <= times.end_ms)
            .filter_map(|(_, number)| self.entries.get(number))
            .map(|(_, exemplar)| exemplar.clone())
            .collect()
    }

    /// Returns the errors of damaged values, the oldest first.
    pub(super) fn damages(&self) -> impl Iterator<Item = &str> {
        self.damaged.values().map(String::as_str)
    }

    pub(super) fn stats(&self) -> RingStats {
        RingStats {
            exemplars: self.entries.len(),
            series: self.series.len(),
            exemplars_max: self.limits.exemplars_max,
            bytes: self.bytes,
            oldest_ms: self.entries.first_key_value().map(|(_, (_, e))| e.timestamp_ms),
            damaged: self.damaged.len(),
        }
    }
}

fn exemplar_bytes(exemplar: &Exemplar) -> usize {
    exemplar.labels.as_bytes().len() + size_of::<AcceptedExemplar>() + EXEMPLAR_BYTES
}

fn series_bytes(labels: &Labels) -> usize {
    labels.as_bytes().len() + SERIES_BYTES
}
