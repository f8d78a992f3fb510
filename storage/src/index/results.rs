//! Results of matchers in one partition: the ids of each, and the series of whole selections.
//!
//! All results share one limit. When it is exceeded, all are dropped: dashboards repeat their
//! queries, and refill the cache soon.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use foldhash::fast::RandomState;
use hashbrown::{Equivalent, HashMap};
use model::{Labels, MatchOp, Matcher};
use roaring::RoaringBitmap;

use super::ids::bitmap_bytes;
use crate::keys;

/// Bytes that a result counts in addition to its own.
const RESULT_BYTES: usize = 96;

/// Results of matchers in one partition.
pub(super) struct Results {
    bytes_max: usize,
    bytes: usize,
    of_matchers: HashMap<MatcherKey, Arc<RoaringBitmap>, RandomState>,
    of_selections: HashMap<Box<[MatcherKey]>, Arc<Resolved>, RandomState>,
}

/// Series that pass all matchers of a selection.
#[derive(Debug, Default)]
pub(crate) struct Resolved {
    /// Ascending by id.
    pub(crate) labels: Vec<(u32, Labels)>,
    pub(crate) ids: SeriesIds,
    /// Results with the same number have the same series; 0 if it is not known.
    alike: AtomicU64,
}

/// Ids of some series.
#[derive(Debug, Default)]
pub(crate) struct SeriesIds {
    /// Ascending.
    pub(crate) all: Arc<[u32]>,
    /// Ids of each metric, by the hash of its name.
    pub(crate) of_metrics: BTreeMap<u64, RoaringBitmap>,
}

impl SeriesIds {
    /// Creates the ids of one metric, given by the hash of its name.
    pub(crate) fn of_metric(metric: u64, ids: RoaringBitmap) -> SeriesIds {
        SeriesIds { all: ids.iter().collect(), of_metrics: BTreeMap::from([(metric, ids)]) }
    }
}

/// Key of a matcher: without its compiled expression, which may be large.
#[derive(Debug, Hash, PartialEq, Eq)]
pub(super) struct MatcherKey {
    op: MatchOp,
    name: Box<str>,
    value: Box<str>,
}

/// Borrowed [`MatcherKey`].
#[derive(Hash, Clone, Copy)]
pub(super) struct MatcherRef<'a> {
    pub(super) op: MatchOp,
    pub(super) name: &'a str,
    pub(super) value: &'a str,
}

/// Matchers of a selection, in its order.
#[derive(Hash)]
pub(super) struct SelectionRef<'a>(Vec<MatcherRef<'a>>);

impl Results {
    /// Creates an empty cache of at most `bytes_max` bytes.
    pub(super) fn new(bytes_max: usize) -> Results {
        Results {
            bytes_max,
            bytes: 0,
            of_matchers: HashMap::default(),
            of_selections: HashMap::default(),
        }
    }

    /// Returns the limit.
    pub(super) fn bytes_max(&self) -> usize {
        self.bytes_max
    }

    /// Returns the bytes of all results.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Returns the ids of a matcher's term.
    pub(super) fn ids(&self, matcher: MatcherRef<'_>) -> Option<Arc<RoaringBitmap>> {
        self.of_matchers.get(&matcher).cloned()
    }

    /// Keeps the ids of a matcher's term.
    pub(super) fn keep_ids(&mut self, matcher: MatcherRef<'_>, ids: Arc<RoaringBitmap>) {
        let bytes = matcher.bytes() + bitmap_bytes(&ids);
        if self.make_room(bytes) && self.of_matchers.insert(matcher.to_owned(), ids).is_none() {
            self.bytes += bytes;
        }
    }

    /// Returns the series of a selection.
    pub(super) fn series(&self, selection: &SelectionRef<'_>) -> Option<Arc<Resolved>> {
        self.of_selections.get(selection).cloned()
    }

    /// Keeps the series of a selection.
    pub(super) fn keep_series(&mut self, matchers: &[Matcher], series: Arc<Resolved>) {
        let selection = SelectionRef::of(matchers);
        let bytes = selection.bytes() + series.bytes();
        if self.make_room(bytes)
            && self.of_selections.insert(selection.into_owned(), series).is_none()
        {
            self.bytes += bytes;
        }
    }

    /// Drops all results if the limit would be exceeded; returns whether the new one fits then.
    fn make_room(&mut self, bytes: usize) -> bool {
        if self.bytes + bytes > self.bytes_max {
            self.of_matchers.clear();
            self.of_selections.clear();
            self.bytes = 0;
        }
        bytes <= self.bytes_max
    }
}

impl Resolved {
    /// Creates the result from series, ascending by id.
    pub(crate) fn new(labels: Vec<(u32, Labels)>) -> Resolved {
        let all = labels.iter().map(|(id, _)| *id).collect();
        let ids = SeriesIds { all, of_metrics: by_metric(&labels) };
        Resolved::of(labels, ids)
    }

    /// Creates the result from series and their ids.
    pub(crate) fn of(labels: Vec<(u32, Labels)>, ids: SeriesIds) -> Resolved {
        Resolved { labels, ids, alike: AtomicU64::new(0) }
    }

    /// Returns whether another partition has the same series, in the same order. Equal results are
    /// remembered.
    pub(crate) fn has_series_of(&self, other: &Resolved) -> bool {
        if self.is_known_alike(other) {
            return true;
        }
        let (ours, theirs) = (&self.labels[..], &other.labels[..]);
        let is_same =
            ours.len() == theirs.len() && ours.iter().zip(theirs).all(|(a, b)| a.1 == b.1);
        if is_same {
            self.note_alike(other);
        }
        is_same
    }

    /// Returns the number of series that [`Resolved::has_series_of`] compares.
    pub(crate) fn compared_with(&self, other: &Resolved) -> usize {
        if self.is_known_alike(other) { 1 } else { self.labels.len() }
    }

    fn is_known_alike(&self, other: &Resolved) -> bool {
        let number = self.alike.load(Ordering::Relaxed);
        number != 0 && number == other.alike.load(Ordering::Relaxed)
    }

    /// Assigns one number to both results. Labels do not change, so all results with the same number
    /// have the same series.
    fn note_alike(&self, other: &Resolved) {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        let known = [self, other].map(|one| one.alike.load(Ordering::Relaxed));
        let number = known.into_iter().find(|number| *number != 0);
        let number = number.unwrap_or_else(|| NEXT.fetch_add(1, Ordering::Relaxed));
        self.alike.store(number, Ordering::Relaxed);
        other.alike.store(number, Ordering::Relaxed);
    }

    /// Returns the size in memory; the labels themselves are those of the index.
    fn bytes(&self) -> usize {
        let SeriesIds { all, of_metrics } = &self.ids;
        let metrics = of_metrics.values().map(|ids| RESULT_BYTES + bitmap_bytes(ids));
        let series = size_of_val(&self.labels[..]) + size_of_val(&all[..]);
        RESULT_BYTES + series + metrics.sum::<usize>()
    }
}

/// Returns the ids of each metric, by the hash of its name.
fn by_metric(labels: &[(u32, Labels)]) -> BTreeMap<u64, RoaringBitmap> {
    let mut metrics: BTreeMap<u64, Vec<u32>> = BTreeMap::new();
    // Series of a metric are mostly adjacent.
    for run in labels.chunk_by(|(_, a), (_, b)| a.metric_name() == b.metric_name()) {
        let hash = keys::metric_hash(run[0].1.metric_name());
        metrics.entry(hash).or_default().extend(run.iter().map(|(id, _)| id));
    }
    metrics.into_iter().map(|(metric, ids)| (metric, ids.into_iter().collect())).collect()
}

impl<'a> MatcherRef<'a> {
    pub(super) fn of(matcher: &'a Matcher) -> MatcherRef<'a> {
        MatcherRef { op: matcher.op(), name: matcher.name(), value: matcher.value() }
    }

    fn bytes(&self) -> usize {
        RESULT_BYTES + self.name.len() + self.value.len()
    }

    fn to_owned(self) -> MatcherKey {
        MatcherKey { op: self.op, name: self.name.into(), value: self.value.into() }
    }

    fn is(&self, key: &MatcherKey) -> bool {
        (self.op, self.name, self.value) == (key.op, &*key.name, &*key.value)
    }
}

impl<'a> SelectionRef<'a> {
    pub(super) fn of(matchers: &'a [Matcher]) -> SelectionRef<'a> {
        SelectionRef(matchers.iter().map(MatcherRef::of).collect())
    }

    /// Returns the bytes of the key in memory.
    pub(super) fn bytes(&self) -> usize {
        self.0.iter().map(MatcherRef::bytes).sum()
    }

    pub(super) fn into_owned(self) -> Box<[MatcherKey]> {
        self.0.into_iter().map(MatcherRef::to_owned).collect()
    }
}

impl Equivalent<MatcherKey> for MatcherRef<'_> {
    fn equivalent(&self, key: &MatcherKey) -> bool {
        self.is(key)
    }
}

impl Equivalent<Box<[MatcherKey]>> for SelectionRef<'_> {
    fn equivalent(&self, key: &Box<[MatcherKey]>) -> bool {
        self.0.len() == key.len() && self.0.iter().zip(key).all(|(matcher, key)| matcher.is(key))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn resolved(first_id: u32, names: [&str; 2]) -> Resolved {
        let labels = names.map(|name| Labels::from_pairs([("__name__", name)]));
        Resolved::new((first_id..).zip(labels).collect())
    }

    #[test]
    fn equal_series_are_compared_once() {
        let days = [(1, ["a", "b"]), (7, ["a", "b"]), (1, ["a", "c"]), (3, ["a", "b"])];
        let [first, second, other, third] = days.map(|(id, names)| resolved(id, names));
        assert_eq!(second.compared_with(&first), 2);
        assert!(second.has_series_of(&first) && third.has_series_of(&second));
        for (day, before) in [(&second, &first), (&third, &second), (&third, &first)] {
            assert_eq!(day.compared_with(before), 1);
            assert!(day.has_series_of(before));
        }
        assert!(!other.has_series_of(&first) && !third.has_series_of(&other));
        assert_eq!(other.compared_with(&first), 2);
        let again = resolved(2, ["a", "c"]);
        assert!(again.has_series_of(&other) && !again.has_series_of(&third));
    }
}
